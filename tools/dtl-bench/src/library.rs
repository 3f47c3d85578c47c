//! Calls to the library, with failures converted to error messages.

use crate::out::Outcome;
use dtl_sys::*;
use std::ffi::{CStr, c_char};
use std::path::PathBuf;
use std::ptr;

/// Converts a status to a result. The error string contains the name of the function, the library's
/// error message and the name of the status.
#[inline]
pub(crate) fn check(call: &str, status: dtl_status_t) -> Outcome {
    if status == DTL_SUCCESS { Ok(()) } else { Err(failure(call, status)) }
}

#[cold]
fn failure(call: &str, status: dtl_status_t) -> String {
    format!("{call}: {} ({})", text_of(dtl_last_error()), text_of(dtl_status_name(status)))
}

/// Initializes the library and returns the handle of backend "host".
pub(crate) fn open_host() -> Outcome<dtl_backend_t> {
    call!(dtl_init(ptr::null()))?;
    let mut backend = DTL_BACKEND_NULL;
    call!(dtl_backend_get(c"host".as_ptr(), &raw mut backend))?;
    Ok(backend)
}

/// Returns the path of this program.
pub(crate) fn own_file() -> Outcome<PathBuf> {
    std::env::current_exe().map_err(|error| format!("this program's file: {error}"))
}

/// Converts a C string that the library has returned; a null pointer becomes an empty string.
pub(crate) fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the library's texts end with NUL and live at least until the next call.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Calls a library function and converts its status to a `Result`.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        #[allow(unused_unsafe, reason = "some functions take no pointers")]
        // SAFETY: pointers are to locals or to buffers that are borrowed, of the sizes told.
        let status = unsafe { $name($($argument),*) };
        $crate::library::check(stringify!($name), status)
    }};
}
pub(crate) use call;
