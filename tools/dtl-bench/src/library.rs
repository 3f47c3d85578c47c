//! Calls to the library, with failures converted to error messages.

use crate::out::Outcome;
use dtl_sys::*;
use std::path::PathBuf;
use std::ptr;

/// Converts a status to a result. The error string contains the name of the function, the library's
/// error message and the name of the status.
#[inline]
pub(crate) fn check(call: &'static str, status: dtl_status_t) -> Outcome {
    dtl_binding::check(call, status).map_err(|error| error.to_string())
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
