//! How a test or a call ends.

use crate::api;
use dtl_sys::{DTL_SUCCESS, dtl_last_error, dtl_status_t};
use std::ffi::CStr;
use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::sync::OnceLock;

/// Why a test did not pass.
#[derive(Debug)]
pub(crate) enum Stop {
    Failed(String),
    Skipped(String),
}

/// The result of a test.
pub(crate) type Outcome<T = ()> = Result<T, Stop>;

/// A call that did not succeed.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) call: &'static str,
    pub(crate) status: dtl_status_t,
    pub(crate) text: String,
}

/// The result of a call.
pub(crate) type Called<T = ()> = Result<T, Refused>;

impl From<Refused> for Stop {
    fn from(refused: Refused) -> Stop {
        Stop::Failed(format!(
            "{}: {} ({})",
            refused.call,
            refused.text,
            api::name_of(refused.status)
        ))
    }
}

/// Its text has call and status.
impl From<api::Failure> for Stop {
    fn from(failure: api::Failure) -> Stop {
        Stop::Failed(failure.text)
    }
}

/// A line on standard output; nobody may be reading it any more.
macro_rules! say {
    ($($text:tt)+) => { $crate::kit::outcome::put(format_args!($($text)+)) };
}
pub(crate) use say;

/// A line on standard error; if it cannot be written there is nobody to tell.
macro_rules! complain {
    ($($text:tt)+) => { drop(std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{}\n", format_args!($($text)+)))) };
}
pub(crate) use complain;

static LOST: OnceLock<String> = OnceLock::new();

/// See [`say`].
pub(crate) fn put(line: Arguments) {
    let failed = writeln!(std::io::stdout(), "{line}").err();
    if let Some(error) = failed.filter(|error| error.kind() != ErrorKind::BrokenPipe) {
        let _ = LOST.set(error.to_string()); // the first reason counts
    }
}

/// Why the report could not be written; `None` if it was, or if nobody wanted all of it (`| head`).
pub(crate) fn lost() -> Option<&'static str> {
    LOST.get().map(String::as_str)
}

/// Ends a test that found something wrong.
macro_rules! wrong {
    ($($text:tt)+) => { return Err($crate::kit::outcome::Stop::Failed(format!($($text)+))) };
}
pub(crate) use wrong;

/// Fails the test unless the condition holds; the text says what is wrong then.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            $crate::kit::outcome::wrong!($($text)+);
        }
    };
}
pub(crate) use ensure;

/// Ends a test that cannot be made here.
macro_rules! skip {
    ($($text:tt)+) => { return Err($crate::kit::outcome::Stop::Skipped(format!($($text)+))) };
}
pub(crate) use skip;

/// A status as a result, with the library's text.
pub(crate) fn called(call: &'static str, status: dtl_status_t) -> Called {
    if status == DTL_SUCCESS {
        return Ok(());
    }
    // SAFETY: the library's texts end with NUL and live at least until the next call.
    let text = unsafe { CStr::from_ptr(dtl_last_error()) }.to_string_lossy().into_owned();
    Err(Refused { call, status, text })
}

/// Calls a function of the library that wants raw pointers.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: pointers are to locals or to memory that the caller's face owns, of the sizes
        // told.
        let status = unsafe { $name($($argument),*) };
        $crate::kit::outcome::called(stringify!($name), status)
    }};
}
pub(crate) use call;

/// The test passes only if the call failed with this status.
pub(crate) fn refused<T>(result: Called<T>, status: dtl_status_t, when: &str) -> Outcome {
    match result {
        Err(refused) if refused.status == status => Ok(()),
        Err(refused) => wrong!(
            "{when}: {} answered {}, expected {} ({})",
            refused.call,
            api::name_of(refused.status),
            api::name_of(status),
            refused.text
        ),
        Ok(_) => wrong!("{when}: the call succeeded, expected {}", api::name_of(status)),
    }
}

/// A call that may answer NOT_SUPPORTED: `None` then.
pub(crate) fn optional<T>(result: Called<T>) -> Called<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(refused) if refused.status == dtl_sys::DTL_ERROR_NOT_SUPPORTED => Ok(None),
        Err(refused) => Err(refused),
    }
}
