//! Failed calls: name of the function, status, and error message.

use crate::sys;
#[cfg(feature = "program")]
use crate::text;
use std::fmt;

/// Result of a call.
pub type Result<T = ()> = std::result::Result<T, Error>;

/// Status of a call: `DTL_SUCCESS` or one of the `DTL_ERROR_` codes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Status(pub sys::dtl_status_t);

impl Status {
    /// Returns the name of the status constant, for example "DTL_ERROR_TIMEOUT".
    #[cfg(feature = "program")]
    #[must_use]
    pub fn name(self) -> String {
        // SAFETY: the name ends with NUL and lives for ever.
        unsafe { text::text_of(sys::dtl_status_name(self.0)) }
    }
}

impl PartialEq<sys::dtl_status_t> for Status {
    fn eq(&self, other: &sys::dtl_status_t) -> bool {
        self.0 == *other
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[cfg(feature = "program")]
        return f.write_str(&self.name());
        // The names are the library's, which a plugin does not link.
        #[cfg(not(feature = "program"))]
        write!(f, "status {}", self.0)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[cfg(feature = "program")]
        return write!(f, "{} ({})", self.name(), self.0);
        #[cfg(not(feature = "program"))]
        write!(f, "{}", self.0)
    }
}

/// Failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Name of the function; empty for an error of the program or a driver.
    pub call: &'static str,
    /// Status that the call returned.
    pub status: Status,
    /// Cause and remedy, as `dtl_last_error` reports them.
    pub text: String,
}

impl Error {
    /// Creates an error, for example one that a [`driver`](crate::driver) reports. The text names
    /// the wrong parameter and states what to do.
    #[must_use]
    pub fn new(status: sys::dtl_status_t, text: impl Into<String>) -> Error {
        Error { call: "", status: Status(status), text: text.into() }
    }

    /// Returns the text with the name of the function, for the library.
    pub(crate) fn message(&self) -> String {
        match self.call {
            "" => self.text.clone(),
            call => format!("{call}: {}", self.text),
        }
    }

    /// Creates the error for an argument that cannot be passed to C, with the status that the
    /// library uses for such arguments.
    #[cfg(feature = "program")]
    pub(crate) fn argument(call: &'static str, text: String) -> Error {
        Error { call, status: Status(sys::DTL_ERROR_INVALID_ARGUMENT), text }
    }

    /// Creates the error for a buffer that is too small, with the status that the library uses for
    /// such buffers.
    #[cfg(feature = "program")]
    pub(crate) fn out_of_bounds(call: &'static str, text: String) -> Error {
        Error { call, status: Status(sys::DTL_ERROR_OUT_OF_BOUNDS), text }
    }

    /// Creates the error for an object that is in the wrong state.
    #[cfg(feature = "program")]
    pub(crate) fn state(call: &'static str, text: String) -> Error {
        Error { call, status: Status(sys::DTL_ERROR_INVALID_STATE), text }
    }

    /// Creates the error for an object that is in use.
    #[cfg(feature = "program")]
    pub(crate) fn busy(call: &'static str, text: String) -> Error {
        Error { call, status: Status(sys::DTL_ERROR_BUSY), text }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message(), self.status)
    }
}

impl std::error::Error for Error {}

/// Converts the status of a call that this thread has just made to a result.
///
/// # Errors
/// Every status but `DTL_SUCCESS`, with the thread's last error message.
#[cfg(feature = "program")]
#[inline]
pub fn check(call: &'static str, status: sys::dtl_status_t) -> Result {
    if status == sys::DTL_SUCCESS { Ok(()) } else { Err(failure(call, status)) }
}

/// Returns the error of a call of this thread that has just failed.
#[cfg(feature = "program")]
#[cold]
pub(crate) fn failure(call: &'static str, status: sys::dtl_status_t) -> Error {
    // SAFETY: the text ends with NUL and stays as it is until this thread's second failure from now.
    let text = unsafe { text::text_of(sys::dtl_last_error()) };
    Error { call, status: Status(status), text }
}

/// Calls a function of [`sys`](crate::sys) by its name and turns its status into a
/// [`Result`](crate::Result). Calls to functions with pointer parameters are unsafe through this
/// macro, too.
///
/// ```no_run
/// use dtl_binding::{call, sys};
///
/// let mut count = 0;
/// // SAFETY: the output is a local.
/// unsafe { call!(dtl_backend_count(&raw mut count)) }?;
/// # Ok::<(), dtl_binding::Error>(())
/// ```
#[cfg(feature = "program")]
#[macro_export]
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {
        $crate::check(::core::stringify!($name), $crate::sys::$name($($argument),*))
    };
}
