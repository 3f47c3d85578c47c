//! Maps operating system errors to statuses: an exceeded limit becomes DTL_ERROR_LIMIT, and only a
//! lack of memory becomes DTL_ERROR_OUT_OF_MEMORY.

use crate::abi::status::{DTL_ERROR_BACKEND, DTL_ERROR_LIMIT, dtl_status_t};
use crate::error::{Error, failure};
use crate::sys::os::process;
use std::io;

/// Creates the error for a failed action `what`: DTL_ERROR_LIMIT, with a remedy in the error
/// message, if a limit on open files caused the failure; `status` otherwise.
pub(super) fn os_error(status: dtl_status_t, what: &str, error: &io::Error) -> Error {
    match process::fd_shortage(error) {
        Some(text) => Error::new(DTL_ERROR_LIMIT, format!("{what}: {text}")),
        None if error.raw_os_error() == Some(libc::EFBIG) => failure!(
            DTL_ERROR_LIMIT,
            "{what}: more than the largest file that this process may make; raise that limit \
             (ulimit -f)"
        ),
        None => Error::new(status, format!("{what}: {error}")),
    }
}

/// Creates the error for a failed memory operation: DTL_ERROR_OUT_OF_MEMORY for ENOMEM and ENOSPC,
/// DTL_ERROR_LIMIT for too many open files or a file-size limit, DTL_ERROR_BACKEND otherwise.
pub(super) fn memory_error(what: &str, error: &io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ENOMEM | libc::ENOSPC) => {
            failure!(DTL_ERROR_OUT_OF_MEMORY, "{what}: {error}; {}", process::memory_advice())
        }
        _ => os_error(DTL_ERROR_BACKEND, what, error),
    }
}

#[cfg(test)]
#[path = "tests/os_error.rs"]
mod tests;
