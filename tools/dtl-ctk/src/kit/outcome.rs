//! Outcomes of tests, calls and cases.

use dtl_binding::Status;
pub(crate) use dtl_binding::{Error, Result as Called};
use dtl_sys::*;
use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::sync::OnceLock;

/// Reason why a test did not pass.
#[derive(Debug)]
pub(crate) enum Stop {
    Failed(String),
    Skipped(String),
}

/// Result of a test.
pub(crate) type Outcome<T = ()> = Result<T, Stop>;

/// Reason why a random case failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) text: String,
    /// True if a call failed, so that other ranks may wait for this rank forever.
    pub(crate) out_of_step: bool,
}

impl Failure {
    /// Creates the failure for a call that succeeded with a wrong result.
    pub(crate) fn wrong(text: String) -> Failure {
        Failure { text, out_of_step: false }
    }

    pub(crate) fn within(self, what: &str) -> Failure {
        Failure { text: format!("{what}: {}", self.text), ..self }
    }
}

impl From<Error> for Stop {
    fn from(refused: Error) -> Stop {
        Stop::Failed(refused.to_string())
    }
}

impl From<Error> for Failure {
    fn from(refused: Error) -> Failure {
        Failure { text: refused.to_string(), out_of_step: true }
    }
}

impl From<Stop> for Failure {
    fn from(stop: Stop) -> Failure {
        match stop {
            Stop::Failed(text) | Stop::Skipped(text) => Failure::wrong(text),
        }
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failed(failure.text)
    }
}

/// Returns the name of a status.
pub(crate) fn name_of(status: dtl_status_t) -> String {
    Status(status).name()
}

/// Prints a line to standard output; ignores a closed pipe.
macro_rules! outln {
    ($($text:tt)+) => { $crate::kit::outcome::put(format_args!($($text)+)) };
}
pub(crate) use outln;

/// Prints a line to standard error; ignores a failed write.
macro_rules! errln {
    ($($text:tt)+) => {
        $crate::kit::outcome::put_error(format_args!($($text)+))
    };
}
pub(crate) use errln;

/// Writes a line to standard error; ignores a failed write.
pub(crate) fn put_error(line: Arguments) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

static LOST: OnceLock<String> = OnceLock::new();

/// Writes a line to standard output. Records the first error for [`lost`], but ignores a closed
/// pipe.
pub(crate) fn put(line: Arguments) {
    let failed = writeln!(std::io::stdout(), "{line}").err();
    if let Some(error) = failed.filter(|error| error.kind() != ErrorKind::BrokenPipe) {
        let _ = LOST.set(error.to_string()); // the first reason counts
    }
}

/// Returns the reason why output could not be written; `None` if all was written, or if the reader
/// has closed the pipe (`| head`).
pub(crate) fn lost() -> Option<&'static str> {
    LOST.get().map(String::as_str)
}

/// Fails the test with this message.
macro_rules! wrong {
    ($($text:tt)+) => { return Err($crate::kit::outcome::Stop::Failed(format!($($text)+))) };
}
pub(crate) use wrong;

/// Fails the test with this message unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            $crate::kit::outcome::wrong!($($text)+);
        }
    };
}
pub(crate) use ensure;

/// Returns an outcome: success if the condition holds, otherwise a failure with this message.
macro_rules! check {
    ($condition:expr, $($text:tt)+) => {
        match $condition {
            true => Ok(()),
            false => Err($crate::kit::outcome::Stop::Failed(format!($($text)+))),
        }
    };
}
pub(crate) use check;

/// Compares two byte arrays and returns the outcome. A description of the first difference replaces
/// the last `{}` of the message.
macro_rules! same {
    ($is:expr, $should:expr, $text:literal $(, $argument:expr)* $(,)?) => {
        match $crate::kit::subject::difference($is, $should) {
            Some(found) => {
                Err($crate::kit::outcome::Stop::Failed(format!($text, $($argument,)* found)))
            }
            None => Ok(()),
        }
    };
}
pub(crate) use same;

/// Ends a test that cannot be run here. The test counts as skipped, with this message as the
/// reason.
macro_rules! skip {
    ($($text:tt)+) => { return Err($crate::kit::outcome::Stop::Skipped(format!($($text)+))) };
}
pub(crate) use skip;

/// Calls a function of the library.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: pointers are to locals or to memory that the caller of the macro owns, of the
        // sizes that are passed, until the call, or the operation that it starts, is over. A call
        // with others is refused before they are used.
        #[allow(unused_unsafe, reason = "functions without pointers are safe")]
        let status = unsafe { $name($($argument),*) };
        dtl_binding::check(stringify!($name), status)
    }};
}
pub(crate) use call;

/// Calls a function of the library whose last parameter is an output. Presets the output to
/// `before`, and returns its value after the call.
macro_rules! output {
    ($before:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let mut out = $before;
        $crate::kit::outcome::call!($name($($argument,)* &raw mut out)).map(|()| out)
    }};
}
pub(crate) use output;

/// Checks that a call has failed with this status.
pub(crate) fn refused<T>(result: Called<T>, status: dtl_status_t, when: &str) -> Outcome {
    let expected = name_of(status);
    match result {
        Err(refused) if refused.status == status => Ok(()),
        Err(Error { call, status, text }) => {
            wrong!("{when}: {call} answered {status}, expected {expected} ({text})")
        }
        Ok(_) => wrong!("{when}: the call succeeded, expected {expected}"),
    }
}

/// Returns `None` if the call failed with DTL_ERROR_NOT_SUPPORTED.
pub(crate) fn optional<T>(result: Called<T>) -> Called<Option<T>> {
    match result {
        Err(refused) if refused.status == DTL_ERROR_NOT_SUPPORTED => Ok(None),
        other => other.map(Some),
    }
}
