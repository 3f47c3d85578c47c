//! Output of the program, and its error type.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::sync::OnceLock;

/// Reason why the program ends without a result.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The command line is invalid.
    Misused(String),
    /// An operation failed. If the operation was a call to the library, the string contains the
    /// library's error message.
    Failed(String),
}

impl From<String> for Stop {
    fn from(text: String) -> Stop {
        Stop::Failed(text)
    }
}

/// Result of a function whose error is a string.
pub(crate) type Outcome<T = ()> = Result<T, String>;

/// Prints a line to standard output; ignores a closed pipe.
macro_rules! say {
    ($($text:tt)+) => { $crate::out::put(format_args!($($text)+)) };
}
pub(crate) use say;

/// Prints a line to standard error.
macro_rules! complain {
    ($($text:tt)+) => { $crate::out::tell(format_args!($($text)+)) };
}
pub(crate) use complain;

/// Writes a line to standard error in one write, because other ranks write there too. A failed
/// write is ignored.
pub(crate) fn tell(line: Arguments) {
    drop(std::io::stderr().write_all(format!("{line}\n").as_bytes()));
}

static LOST: OnceLock<String> = OnceLock::new();

/// Prints a line to standard output; ignores a closed pipe.
pub(crate) fn put(line: Arguments) {
    let failed = writeln!(std::io::stdout(), "{line}").err();
    // `dtl-bench ... | head` is no failure.
    if let Some(error) = failed.filter(|error| error.kind() != ErrorKind::BrokenPipe) {
        let _ = LOST.set(format!("standard output: {error}")); // the first reason counts
    }
}

/// Returns the error message of the first failed write to standard output, ignoring writes to a
/// closed pipe; `None` if there was no such failure.
pub(crate) fn lost() -> Option<String> {
    LOST.get().cloned()
}
