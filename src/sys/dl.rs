//! The dynamic loader: shared objects by path, symbols by name, and which object this code is in.
//!
//! Not here: whether a file may be loaded (`sys::trust`).

use super::buf::Addr;
use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// A loaded object. It is never unloaded: threads, destructors and pointers of it may outlive any owner.
pub struct Module(NonNull<c_void>);

// SAFETY: the loader's handle is a number to all threads alike; dlsym may be called from any.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// Loads an object, all its symbols bound at once, none of them visible to others. The error is the
    /// loader's text.
    ///
    /// # Safety
    /// The object's constructors run: it must be one that is meant to be loaded here.
    pub unsafe fn open(path: &Path) -> Result<Self, String> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| "a NUL in the path".to_owned())?;
        // SAFETY: a NUL-terminated path; the caller answers for the object's constructors.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle).map(Module).ok_or_else(last_error)
    }

    /// The address of a symbol.
    #[must_use]
    pub fn symbol(&self, name: &CStr) -> Option<Addr> {
        // SAFETY: a handle that is never closed and a NUL-terminated name.
        let address = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        (!address.is_null()).then(|| Addr::new(address))
    }
}

/// What the loader says of this thread's last failure.
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
    // SAFETY: all-zero is a valid Dl_info: null pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let here: *const c_void = (own_file as fn() -> Option<PathBuf>) as *const c_void;
    // SAFETY: `info` is a writable local; any address may be asked after.
    let found = unsafe { libc::dladdr(here, &raw mut info) } != 0;
    let name: *const c_char = info.dli_fname;
    if !found || name.is_null() {
        return None;
    }
    // SAFETY: not null, so a NUL-terminated path.
    let name = unsafe { CStr::from_ptr(name) };
    // For the program itself the loader only knows what it was called by.
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
        let error = unsafe { Module::open(Path::new("/no/such/file.so")) }.err().expect("no such file");
        assert!(error.contains("/no/such/file.so"), "{error}");
    }
}
