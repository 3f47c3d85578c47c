//! The dynamic loader: shared objects by path, symbols by name, and which object this code is in.
//!
//! Not here: whether a file may be loaded (`sys::os::secure_path`).

use crate::sys::memory::buf::Addr;
use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// A loaded object. It is never unloaded: threads, destructors and pointers of it may outlive any
/// owner.
pub struct SharedObject(NonNull<c_void>);

// SAFETY: the loader's handle is not bound to a thread; dlsym may be called from any.
unsafe impl Send for SharedObject {}
// SAFETY: dlsym may be called from several threads at once with one handle.
unsafe impl Sync for SharedObject {}

impl SharedObject {
    /// Loads an object, all its symbols bound at once, none of them visible to others. The error is
    /// the loader's text.
    ///
    /// # Safety
    /// The object's constructors run: it must be one that is meant to be loaded here.
    pub unsafe fn open(path: &Path) -> Result<Self, String> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| "a NUL in the path".to_owned())?;
        // SAFETY: a NUL-terminated path; the caller answers for the object's constructors.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle).map(SharedObject).ok_or_else(last_error)
    }

    /// Returns an object that is already loaded, by path or by the name of the request.
    #[must_use]
    pub fn loaded(path: &Path) -> Option<Self> {
        Self::reopen(path, libc::RTLD_LOCAL)
    }

    /// Lets objects that are loaded from now on use the symbols of one that is loaded already.
    #[must_use]
    pub fn make_global(path: &Path) -> bool {
        Self::reopen(path, libc::RTLD_GLOBAL).is_some()
    }

    fn reopen(path: &Path, visible: i32) -> Option<Self> {
        let name = CString::new(path.as_os_str().as_bytes()).ok()?;
        // SAFETY: a NUL-terminated path; RTLD_NOLOAD loads nothing, so nothing runs.
        let handle =
            unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD | visible) };
        NonNull::new(handle).map(SharedObject)
    }

    /// The address of a symbol of the object, or of those that it was loaded with.
    #[must_use]
    pub fn symbol(&self, name: &CStr) -> Option<Addr> {
        // SAFETY: a handle that is never closed and a NUL-terminated name.
        let address = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        (!address.is_null()).then(|| Addr::new(address))
    }
}

/// The address of a symbol that the program itself would use under this name: its own, a linked
/// library's, or one of a library that was loaded for all to see.
#[must_use]
pub fn process_symbol(name: &CStr) -> Option<Addr> {
    // SAFETY: the handle of the default search and a NUL-terminated name.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then(|| Addr::new(address))
}

/// Returns the paths of all loaded objects, as the loader reports them.
#[must_use]
pub fn loaded_files() -> Vec<PathBuf> {
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, list: *mut c_void) -> i32 {
        // SAFETY: the loader hands in a description that is valid during this call.
        let name = unsafe { (*info).dlpi_name };
        if !name.is_null() {
            // SAFETY: not null, so a NUL-terminated path.
            let name = unsafe { CStr::from_ptr(name) };
            // SAFETY: the list below; nobody else uses it while dl_iterate_phdr runs.
            let list = unsafe { &mut *list.cast::<Vec<PathBuf>>() };
            list.push(PathBuf::from(OsStr::from_bytes(name.to_bytes())));
        }
        0
    }
    let mut list: Vec<PathBuf> = Vec::new();
    // SAFETY: `note` does not unwind and takes `list` for what it is, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut list).cast()) };
    list.retain(|path| !path.as_os_str().is_empty());
    list
}

/// Returns the loader's text for this thread's last failure.
fn last_error() -> String {
    // SAFETY: takes nothing; the text stays valid until this thread's next call of the loader.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader gives no reason".to_owned();
    }
    // SAFETY: not null, so a NUL-terminated text.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The object file that this library's code was loaded from, without symbolic links: libdtl.so, or
/// the program that it was linked into.
#[must_use]
pub fn own_file() -> Option<PathBuf> {
    let here: *const c_void = (own_file as fn() -> Option<PathBuf>) as *const c_void;
    file_of(Addr::new(here.cast_mut()))
}

/// The object file that an address belongs to, without symbolic links.
#[must_use]
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

/// Whether this code was linked into the program, rather than loaded as a library.
#[must_use]
pub fn is_in_program(own: &Path) -> bool {
    std::fs::read_link("/proc/self/exe").is_ok_and(|program| program == own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_itself_and_says_why_not() {
        let own = own_file().expect("some file");
        assert!(is_in_program(&own), "{own:?}");
        // SAFETY: there is no such object, so nothing of it runs.
        let error = unsafe { SharedObject::open(Path::new("/no/such/file.so")) }
            .err()
            .expect("no such file");
        assert!(error.contains("/no/such/file.so"), "{error}");
    }

    #[test]
    fn finds_what_is_loaded() {
        // No tool replaces this symbol, as sanitizers do with malloc.
        let function = process_symbol(c"gnu_get_libc_version").expect("the C library");
        let file = file_of(function).expect("its file");
        assert!(file.to_string_lossy().contains("libc"), "{file:?}");
        let listed = loaded_files();
        let path =
            listed.iter().find(|path| std::fs::canonicalize(path).is_ok_and(|path| path == file));
        let module = SharedObject::loaded(path.expect("listed")).expect("loaded");
        assert_eq!(module.symbol(c"gnu_get_libc_version"), Some(function));
        assert!(process_symbol(c"no_such_symbol_anywhere").is_none());
        assert!(SharedObject::loaded(Path::new("/no/such/file.so")).is_none());
    }
}
