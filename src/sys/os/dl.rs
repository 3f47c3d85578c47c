//! The dynamic loader: shared objects by path, symbols by name, and the object of this code.
//!
//! Not here: the check that a file may be loaded (`sys::os::secure_path`).

use crate::sys::memory::buf::Addr;
use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// Loaded shared object. Never unloaded: its threads, destructors, pointers may outlive any owner.
pub struct SharedObject(NonNull<c_void>);

// SAFETY: the loader's handle is not bound to a thread; any thread may call dlsym.
unsafe impl Send for SharedObject {}
// SAFETY: dlsym may be called from several threads at once with one handle.
unsafe impl Sync for SharedObject {}

impl SharedObject {
    /// Loads an object, with all symbols bound at once and none visible to other objects. The error
    /// is the loader's text.
    ///
    /// # Safety
    /// The object's constructors run: the object must be one that is meant to be loaded here.
    pub unsafe fn open(path: &Path) -> Result<Self, String> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| "a NUL in the path".to_owned())?;
        // SAFETY: a NUL-terminated path; the caller is responsible for the object's constructors.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle).map(SharedObject).ok_or_else(last_error)
    }

    /// Returns an object that is already loaded, by its path or the requested name.
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

    /// Returns the address of a symbol of the object, or of the objects that were loaded with it.
    pub fn symbol(&self, name: &CStr) -> Option<Addr> {
        // SAFETY: a handle that is never closed and a NUL-terminated name.
        let address = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        (!address.is_null()).then(|| Addr::new(address))
    }
}

/// Returns the address of a symbol that the program itself would use under this name: its own, a
/// linked library's, or that of a library that was loaded with global visibility.
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

/// Returns the loader's text for this thread's last failure.
fn last_error() -> String {
    // SAFETY: takes no arguments; the text stays valid until this thread's next call of the loader.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader gives no reason".to_owned();
    }
    // SAFETY: not null, so a NUL-terminated text.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Returns the object file that this library's code was loaded from, without symbolic links:
/// libdtl.so, or the program that the library was linked into.
pub fn own_file() -> Option<PathBuf> {
    let here: *const c_void = (own_file as fn() -> Option<PathBuf>) as *const c_void;
    file_of(Addr::new(here.cast_mut()))
}

/// Returns the object file that an address belongs to, without symbolic links.
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

/// Returns true if this code, in file `own`, was linked into the program, not loaded as a library.
pub fn is_in_program(own: &Path) -> bool {
    std::fs::read_link("/proc/self/exe").is_ok_and(|program| program == own)
}

#[cfg(test)]
#[path = "tests/dl.rs"]
mod tests;
