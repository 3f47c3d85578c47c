//! Dynamic loader: loads shared objects, looks up symbols, and finds the object file that contains
//! this code. Also checks the owner and the permissions of a file or folder to determine whether
//! code may be loaded from it.
//!
//! The rules for plugins are in `runtime::plugins`.

use crate::sys::memory::buf::Addr;
use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::fs::{DirBuilder, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::ptr::NonNull;
use std::{fmt, fs, io};

/// Loaded shared object. It is never unloaded, because threads that run its code, destructors that
/// it has registered and pointers into it may outlive this value.
pub struct SharedObject(NonNull<c_void>);

// SAFETY: the loader's handle is not bound to a thread; any thread may call dlsym.
unsafe impl Send for SharedObject {}
// SAFETY: dlsym may be called from several threads at once with one handle.
unsafe impl Sync for SharedObject {}

impl SharedObject {
    /// Loads a shared object (RTLD_NOW | RTLD_LOCAL): binds all symbols at once and makes none
    /// visible to other objects. On failure, returns the loader's error message.
    ///
    /// # Safety
    /// This call runs the constructors of the object, so they must be sound to run in this process.
    pub unsafe fn open(path: &Path) -> Result<Self, String> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| "a NUL in the path".to_owned())?;
        // SAFETY: a NUL-terminated path; the caller is responsible for the object's constructors.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle).map(SharedObject).ok_or_else(last_error)
    }

    /// Returns the object that is already loaded under this path or name; `None` if there is none.
    pub fn loaded(path: &Path) -> Option<Self> {
        Self::reopen(path, libc::RTLD_LOCAL)
    }

    /// Makes a loaded object's symbols visible to objects loaded later; returns true on success.
    pub fn make_global(path: &Path) -> bool {
        Self::reopen(path, libc::RTLD_GLOBAL).is_some()
    }

    fn reopen(path: &Path, visible: i32) -> Option<Self> {
        let name = CString::new(path.as_os_str().as_bytes()).ok()?;
        // SAFETY: a NUL-terminated path; RTLD_NOLOAD loads nothing, so no code runs.
        let handle =
            unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD | visible) };
        NonNull::new(handle).map(SharedObject)
    }

    /// Returns the address of a symbol in the object or in its dependencies; `None` if there is no
    /// such symbol.
    pub fn symbol(&self, name: &CStr) -> Option<Addr> {
        // SAFETY: a handle that is never closed and a NUL-terminated name.
        let address = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        (!address.is_null()).then(|| Addr::new(address))
    }
}

/// Returns the address of the symbol that the program itself would use under this name: a symbol of
/// the program, of a library linked to it, or of a library that was loaded with global visibility.
pub fn process_symbol(name: &CStr) -> Option<Addr> {
    // SAFETY: the handle of the default search and a NUL-terminated name.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then(|| Addr::new(address))
}

/// Returns the paths of all loaded objects, as the loader reports them.
pub fn loaded_files() -> Vec<PathBuf> {
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, list: *mut c_void) -> i32 {
        // SAFETY: the loader passes a description that is valid during this call.
        let name = unsafe { (*info).dlpi_name };
        if !name.is_null() {
            // SAFETY: not null, so a NUL-terminated path.
            let name = unsafe { CStr::from_ptr(name) };
            // SAFETY: the list below; no other code uses it while dl_iterate_phdr runs.
            let list = unsafe { &mut *list.cast::<Vec<PathBuf>>() };
            list.push(PathBuf::from(OsStr::from_bytes(name.to_bytes())));
        }
        0
    }
    let mut list: Vec<PathBuf> = Vec::new();
    // SAFETY: `note` does not unwind and uses `list` with its type; the list outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut list).cast()) };
    list.retain(|path| !path.as_os_str().is_empty());
    list
}

/// Returns the file of another minor version of this library in this process, if its functions have
/// no symbol version and the program itself uses this library. Both export the same names, so calls
/// of code that is linked with the other one reach this one. Two that were both loaded with local
/// scope do not disturb each other.
pub fn shadowed_version() -> Option<PathBuf> {
    let is_other = |file: &PathBuf| {
        // Programs load hundreds of files: only those that may be it are looked up.
        if !file.file_name().is_some_and(|name| name.as_bytes().starts_with(b"libdtl.so")) {
            return false;
        }
        let file = fs::canonicalize(file).unwrap_or_default();
        let name = file.file_name().and_then(OsStr::to_str);
        name.is_some_and(is_other_version) && !has_symbol_versions(&file)
    };
    let other = loaded_files().into_iter().find(is_other)?;
    // SAFETY: a null path stands for the program; nothing is loaded, so no code runs.
    let program = NonNull::new(unsafe { libc::dlopen(std::ptr::null(), libc::RTLD_NOW) })?;
    let called = file_of(SharedObject(program).symbol(c"dtl_init")?);
    (called == own_file()).then_some(other)
}

/// Returns true if the functions of a library in this process have symbol versions. In a library
/// without versions, the loader finds a function under any version.
#[cfg(target_env = "gnu")]
fn has_symbol_versions(file: &Path) -> bool {
    let Ok(path) = CString::new(file.as_os_str().as_bytes()) else { return false };
    let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD;
    // SAFETY: a NUL-terminated path, whose file is loaded already: no code runs.
    let Some(library) = NonNull::new(unsafe { libc::dlopen(path.as_ptr(), flags) }) else {
        return false;
    };
    let (name, no_version) = (c"dtl_init".as_ptr(), c"no version".as_ptr());
    // SAFETY: a handle that is not closed, and NUL-terminated names.
    unsafe { libc::dlvsym(library.as_ptr(), name, no_version) }.is_null()
}

/// Returns false: symbol versions are glibc's.
#[cfg(not(target_env = "gnu"))]
fn has_symbol_versions(_file: &Path) -> bool {
    false
}

/// Returns true if `name` is the file name of this library in another minor version.
pub fn is_other_version(name: &str) -> bool {
    let Some(version) = name.strip_prefix("libdtl.so.") else { return false };
    let own = [env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR")];
    !version.split('.').take(2).eq(own)
}

/// Returns the loader's error message (dlerror) for the last failure in this thread.
fn last_error() -> String {
    // SAFETY: takes no arguments; the text stays valid until this thread's next call of the loader.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader gives no reason".to_owned();
    }
    // SAFETY: not null, so a NUL-terminated text.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    if text != NO_LOADER {
        return text;
    }
    "this program is linked statically with musl, which cannot load libraries: link it dynamically"
        .to_owned()
}

/// Error message of musl's dlopen in programs that are linked statically.
const NO_LOADER: &str = "Dynamic loading not supported";

/// Returns the path, with symbolic links resolved, of the object file that this library's code was
/// loaded from: libdtl.so, or the program that the library was linked into.
pub fn own_file() -> Option<PathBuf> {
    let here: *const c_void = (own_file as fn() -> Option<PathBuf>) as *const c_void;
    file_of(Addr::new(here.cast_mut()))
}

/// Returns the path, with symbolic links resolved, of the object file that an address belongs to.
pub fn file_of(address: Addr) -> Option<PathBuf> {
    // SAFETY: all-zero is a valid Dl_info: null pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is a writable local; dladdr accepts any address.
    let found = unsafe { libc::dladdr(address.ptr(), &raw mut info) } != 0;
    let name: *const c_char = info.dli_fname;
    if !found || name.is_null() {
        return None;
    }
    // SAFETY: not null, so a NUL-terminated path.
    let name = unsafe { CStr::from_ptr(name) };
    // For the program itself the loader only has the name by which it was called.
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    let program = || std::fs::read_link("/proc/self/exe").ok();
    if name.to_bytes().contains(&b'/') {
        std::fs::canonicalize(path).ok().or_else(program)
    } else {
        program()
    }
}

/// Returns true if this library is linked into the executable file. `own` is the path of the file
/// that contains this code, with symbolic links resolved ([`own_file`]).
pub fn is_in_program(own: &Path) -> bool {
    std::fs::read_link("/proc/self/exe").is_ok_and(|program| program == own)
}

/// Returns true if this program runs with more privileges than the user that started it (set-uid,
/// set-gid, file capabilities). In this case, its environment variables must not be trusted.
pub fn is_privileged() -> bool {
    // SAFETY: takes a number; the result is 0 for an unknown number.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Identity of a file, independent of its path: device and inode numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// Returns the identity of code that is linked into the program, by the address of its entry.
    /// No file has it: the device number is not one of a file system.
    pub fn of_code(entry: usize) -> Self {
        Identity { device: u64::MAX, inode: entry as u64 }
    }
}

/// File that may be loaded.
#[derive(Clone, Debug)]
pub struct Trusted {
    /// Path of the file, with symbolic links resolved.
    pub path: PathBuf,
    /// Identity of the file.
    pub identity: Identity,
}

/// Maximum number of symbolic links in the resolution of one path: the kernel's limit.
const MOST_LINKS: usize = 40;

/// Resolves the symbolic links of a path. Every link must belong to the user of this process or to
/// root, because the owner of a link chooses its target.
pub fn resolve(path: &Path) -> Result<PathBuf, Refusal> {
    walk(path, &link_fault, false)
}

/// Resolves the path of a folder in the same way as [`resolve`]. Creates missing folders, which
/// only this user can access.
pub fn make_folder(path: &Path) -> Result<PathBuf, Refusal> {
    walk(path, &link_fault, true)
}

fn link_fault(_: &Path, link: &Metadata) -> Option<String> {
    owner_fault(TrustedOwner::of_this_process(), link.uid())
}

/// Returns the reason why a symbolic link must not be followed in the path of a file that the user
/// has named; `None` if the link is permitted. Links in folders that not every user can write to
/// are always permitted.
fn named_link_fault(folder: &Path, link: &Metadata) -> Option<String> {
    let is_open = fs::metadata(folder).map_or(true, |about| about.mode() & OTHERS_WRITE != 0);
    if is_open { link_fault(folder, link) } else { None }
}

/// Resolves a path component by component and checks every symbolic link with `fault`, because
/// `canonicalize` does not report the links that it follows. If `makes_folders` is true, creates
/// missing folders with mode 0700.
fn walk(
    path: &Path,
    fault: &dyn Fn(&Path, &Metadata) -> Option<String>,
    makes_folders: bool,
) -> Result<PathBuf, Refusal> {
    if path.as_os_str().is_empty() {
        return Err(io::Error::from(io::ErrorKind::NotFound).into());
    }
    let mut resolved = if path.is_absolute() { PathBuf::new() } else { fs::canonicalize(".")? };
    let mut rest = path.to_path_buf();
    let mut links = 0;
    loop {
        let mut components = rest.components();
        let Some(first) = components.next() else { return Ok(resolved) };
        let behind = components.as_path().to_path_buf();
        let next = match first {
            Component::Normal(name) => resolved.join(name),
            Component::ParentDir => fs::canonicalize(resolved.join(".."))?,
            Component::RootDir | Component::Prefix(_) => PathBuf::from("/"),
            Component::CurDir => resolved.clone(),
        };
        let about = match fs::symlink_metadata(&next) {
            Err(error) if makes_folders && error.kind() == io::ErrorKind::NotFound => {
                match DirBuilder::new().mode(0o700).create(&next) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(error.into());
                    }
                    _ => continue, // check the folder that exists now
                }
            }
            about => about?,
        };
        if !about.is_symlink() {
            (resolved, rest) = (next, behind);
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(io::Error::from_raw_os_error(libc::ELOOP).into());
        }
        if let Some(fault) = fault(&resolved, &about) {
            let text = format!("the symbolic link {} in its path {fault}", next.display());
            return Err(Refusal::Untrusted(text));
        }
        rest = fs::read_link(&next)?.join(behind);
        if rest.is_absolute() {
            resolved = PathBuf::new();
        }
    }
}

/// Returns the metadata of a regular file.
fn about_file(path: &Path) -> Result<Metadata, Refusal> {
    let about = fs::metadata(path)?;
    if !about.is_file() {
        return Err(Refusal::Untrusted("it is no regular file".to_owned()));
    }
    Ok(about)
}

/// Checks that the path leads to a regular file, and that the owner and permissions of the file and
/// of its folder allow the library to load code from it.
pub fn check_file(path: &Path) -> Result<Trusted, Refusal> {
    let path = resolve(path)?;
    let about = about_file(&path)?;
    check_folder(path.parent().unwrap_or(Path::new("/")))?;
    match judge(TrustedOwner::of_this_process(), about.uid(), about.mode(), false) {
        Some(fault) => Err(Refusal::Untrusted(format!("the file {fault}"))),
        None => {
            Ok(Trusted { path, identity: Identity { device: about.dev(), inode: about.ino() } })
        }
    }
}

/// Checks that code may be loaded from a regular file that the user has named. Fails only if the
/// permissions allow every user of the system to modify or replace the file. The libraries of a
/// site often belong to a dedicated user and are writable by a group, which is permitted.
pub fn check_named_file(path: &Path) -> Result<PathBuf, Refusal> {
    let path = walk(path, &named_link_fault, false)?;
    let about = about_file(&path)?;
    if about.mode() & OTHERS_WRITE != 0 {
        return Err(Refusal::Untrusted(
            "the file can be written by everybody: chmod o-w".to_owned(),
        ));
    }
    check_above(&path)?;
    Ok(path)
}

/// Returns the path to pass to the loader for a library that a configuration setting names. Fails
/// if every user of the system could have written or replaced the file ([`check_named_file`]). A
/// name without a folder is returned unchanged; the loader then searches its library directories
/// for the library.
pub fn library_path(name: &str) -> Result<PathBuf, String> {
    if !name.contains('/') {
        return Ok(PathBuf::from(name));
    }
    check_named_file(Path::new(name)).map_err(|refusal| match refusal {
        Refusal::System(error) => error.to_string(),
        Refusal::Untrusted(why) => format!("refused: {why}"),
    })
}

/// Checks that code may be loaded from a folder. The criteria are the folder's owner, its
/// permissions, and whether another user can replace it. `path` must have no symbolic links.
pub fn check_folder(path: &Path) -> Result<(), Refusal> {
    let about = fs::metadata(path)?;
    if !about.is_dir() {
        return Err(Refusal::Untrusted(format!("{} is no folder", path.display())));
    }
    let own = TrustedOwner::of_this_process();
    if let Some(fault) = judge(own, about.uid(), about.mode(), true) {
        return Err(Refusal::Untrusted(format!("the folder {} {fault}", path.display())));
    }
    check_above(path)
}

/// Checks that each folder above `path` that all users can write to has the sticky bit. Without
/// this bit, any user could rename and replace a component of the path.
fn check_above(path: &Path) -> Result<(), Refusal> {
    for above in path.ancestors().skip(1) {
        let mode = fs::metadata(above)?.mode();
        if mode & OTHERS_WRITE != 0 && mode & STICKY == 0 {
            let text = format!(
                "the folder {} can be written by others: chmod o-w, or +t",
                above.display()
            );
            return Err(Refusal::Untrusted(text));
        }
    }
    Ok(())
}

/// Reason why code must not be loaded from a path.
#[derive(Debug)]
pub enum Refusal {
    /// The system returned an error.
    System(io::Error),
    /// Other users could have written or replaced the file or folder. The string contains the
    /// reason and the remedy.
    Untrusted(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::System(error) => error.fmt(to),
            Refusal::Untrusted(why) => to.write_str(why),
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Refusal::System(error)
    }
}

/// User whose files this process trusts, in addition to those of root.
#[derive(Clone, Copy)]
struct TrustedOwner {
    uid: u32,
    /// True if the process runs with elevated privileges. Then only files owned by root are
    /// trusted, because `uid` may be the user that started the program.
    is_privileged: bool,
}

impl TrustedOwner {
    fn of_this_process() -> Self {
        TrustedOwner { uid: super::process::own_uid(), is_privileged: is_privileged() }
    }
}

const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
/// Sticky bit in the mode of a folder: a file in the folder can be renamed or deleted only by its
/// owner, the owner of the folder, or root.
const STICKY: u32 = 0o1000;

fn owner_fault(own: TrustedOwner, owner: u32) -> Option<String> {
    let who = if own.is_privileged {
        "root (the program runs with raised privileges)"
    } else {
        "you or root"
    };
    let is_foreign = owner != 0 && (own.is_privileged || owner != own.uid);
    is_foreign.then(|| format!("belongs to user {owner}: it must belong to {who}"))
}

/// Returns a string that describes why the owner or the permissions of a file or folder are not
/// safe, with the remedy; `None` if they are safe.
fn judge(own: TrustedOwner, owner: u32, mode: u32, is_folder: bool) -> Option<String> {
    if let Some(fault) = owner_fault(own, owner) {
        return Some(fault);
    }
    let who = match mode & (GROUP_WRITES | OTHERS_WRITE) {
        0 => return None,
        _ if is_folder && mode & STICKY != 0 => return None,
        GROUP_WRITES => "its group",
        OTHERS_WRITE => "others",
        _ => "its group and others",
    };
    Some(format!("can be written by {who} (mode {:04o}): chmod go-w", mode & 0o7777))
}

#[cfg(test)]
#[path = "tests/secure_path.rs"]
mod secure_path_tests;
#[cfg(test)]
#[path = "tests/dl.rs"]
mod tests;
