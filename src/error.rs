//! Error type of the library: a status code and a message that names the cause and the remedy.
//!
//! Module `last_error` stores the last error of each thread. Module `abi::status` defines the
//! status codes.

use crate::abi::status::*;
use std::ffi::CStr;
use std::fmt;

/// Error of a failed call: status code and error message. Boxed so that a `Result<(), Error>` has
/// the size of a pointer.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    status: dtl_status_t,
    text: String,
}

/// Result of a library function that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Creates an error with the given status code and error message.
    #[cold]
    pub fn new(status: dtl_status_t, text: impl Into<String>) -> Self {
        Error(Box::new(Inner { status, text: text.into() }))
    }

    /// Creates an error with the given status code and a formatted error message.
    #[cold]
    #[inline(never)]
    pub fn formatted(status: dtl_status_t, text: fmt::Arguments<'_>) -> Self {
        Error::new(status, fmt::format(text))
    }

    /// Returns the status code that the C interface reports.
    pub fn status(&self) -> dtl_status_t {
        self.0.status
    }

    /// Returns the error message, which `dtl_last_error` returns.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Creates the error for a status that an application function (a callback or a function of a
    /// backend's vtable) returned. The error message is "`what` DTL_ERROR_X (number)". A number
    /// that is not a status becomes DTL_ERROR_NATIVE_BACKEND.
    #[cold]
    pub fn of_status(what: &str, status: dtl_status_t) -> Self {
        if !is_status(status) {
            let text = format!(
                "{what} {status}, which is not a status: use DTL_SUCCESS or a DTL_ERROR_ constant"
            );
            return Error::new(DTL_ERROR_NATIVE_BACKEND, text);
        }
        Error::new(status, format!("{what} {} ({status})", status_name(status).to_string_lossy()))
    }

    /// Prepends `context: ` to the error message and leaves the status unchanged.
    pub fn within(mut self, context: &str) -> Self {
        self.0.text = format!("{context}: {}", self.0.text);
        self
    }
}

/// Creates an error out of line, to keep the code for its creation off the caller's fast path.
#[cold]
#[inline(never)]
pub(crate) fn rare(make: impl FnOnce() -> Error) -> Error {
    make()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", status_name(self.status()).to_string_lossy(), self.text())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

/// Expands to an [`Error`] with a formatted message: `failure!(DTL_ERROR_X, "text {name}")`.
/// Formatting is out of line, off the fast path.
macro_rules! failure {
    ($status:ident, $($text:tt)+) => {
        $crate::error::rare(move || {
            $crate::error::Error::formatted($crate::abi::status::$status, format_args!($($text)+))
        })
    };
}
pub(crate) use failure;

/// Expands to an `Err` with the error that [`failure`] creates: `fail!(DTL_ERROR_X, "text
/// {name}")`.
macro_rules! fail {
    ($($error:tt)+) => {
        Err($crate::error::failure!($($error)+))
    };
}
pub(crate) use fail;

/// Builds the table of statuses. Each row consists of a status constant and its general meaning.
macro_rules! statuses {
    ($($status:ident: $meaning:literal,)+) => {
        &[$(($status, c_text(concat!(stringify!($status), "\0")), $meaning)),+]
    };
}

const fn c_text(text: &str) -> &CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    }
}

/// Number, name and general meaning of every status.
const STATUSES: &[(dtl_status_t, &CStr, &CStr)] = statuses! {
    DTL_SUCCESS: c"success",
    DTL_ERROR_NOT_FOUND: c"no such name or entry",
    DTL_ERROR_COMMUNICATION: c"communication failed",
    DTL_ERROR_TIMEOUT: c"the time limit passed",
    DTL_ERROR_CANCELED: c"cancelled, or the object was destroyed meanwhile",
    DTL_ERROR_CONNECTION_LOST: c"connection to a peer lost",
    DTL_ERROR_RANK_FAILURE: c"a rank died or left",
    DTL_ERROR_REVOKED: c"a rank revoked the communicator",
    DTL_ERROR_TRUNCATED: c"message longer than the receive buffer",
    DTL_ERROR_MEMORY: c"memory operation failed",
    DTL_ERROR_OUT_OF_MEMORY: c"not enough memory",
    DTL_ERROR_BUFFER_TOO_SMALL: c"text buffer too small",
    DTL_ERROR_OUT_OF_BOUNDS: c"index or range out of bounds",
    DTL_ERROR_INVALID_RANK: c"rank or root not in the communicator",
    DTL_ERROR_INVALID_ARGUMENT: c"invalid argument",
    DTL_ERROR_NULL_POINTER: c"a required pointer is NULL",
    DTL_ERROR_INVALID_HANDLE: c"handle is null, stale or of another type",
    DTL_ERROR_ALREADY_EXISTS: c"name or rank is taken",
    DTL_ERROR_TYPE: c"types do not go together",
    DTL_ERROR_AMBIGUOUS: c"more than one candidate fits",
    DTL_ERROR_LIMIT: c"a fixed limit is reached",
    DTL_ERROR_INCOMPATIBLE_ABI: c"caller and library speak different interfaces",
    DTL_ERROR_BUSY: c"the object is in use",
    DTL_ERROR_NOT_SUPPORTED: c"not supported by this backend or build",
    DTL_ERROR_BACKEND: c"backend failed",
    DTL_ERROR_UNAVAILABLE: c"backend cannot run here",
    DTL_ERROR_INIT_FAILED: c"backend failed to start",
    DTL_ERROR_DEVICE_LOST: c"a device failed and is lost to this process",
    DTL_ERROR_CUDA: c"CUDA error",
    DTL_ERROR_OPENCL: c"OpenCL error",
    DTL_ERROR_MPI: c"MPI error",
    DTL_ERROR_NCCL: c"NCCL error",
    DTL_ERROR_VERBS: c"verbs error",
    DTL_ERROR_NATIVE_BACKEND:
        c"a registered backend returned an unknown status or an invalid output",
    DTL_ERROR_COMPILE_FAILED: c"kernel source did not compile",
    DTL_ERROR_INTERNAL: c"bug in the library",
    DTL_ERROR_NOT_IMPLEMENTED: c"not implemented in this version",
    DTL_ERROR_INVALID_STATE: c"call not allowed in this state",
    DTL_ERROR_FORKED: c"forked process: call dtl_init_after_fork first",
};

fn find(status: dtl_status_t) -> Option<&'static (dtl_status_t, &'static CStr, &'static CStr)> {
    STATUSES.iter().find(|entry| entry.0 == status)
}

/// Returns the name of a status constant, or "DTL_ERROR_UNKNOWN" for a number that is not a status.
pub fn status_name(status: dtl_status_t) -> &'static CStr {
    find(status).map_or(c"DTL_ERROR_UNKNOWN", |entry| entry.1)
}

/// Returns the general meaning of a status as human-readable text.
pub fn status_message(status: dtl_status_t) -> &'static CStr {
    find(status).map_or(c"unknown status", |entry| entry.2)
}

/// Returns true if a number (for example from a registered backend) is a status code of the
/// library.
pub fn is_status(status: dtl_status_t) -> bool {
    find(status).is_some()
}
