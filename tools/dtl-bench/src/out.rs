//! What the program says, and why it stops.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::sync::OnceLock;

/// Why there is no result.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The command line is invalid.
    Misused(String),
    /// An operation failed; the text is the library's if it was a call.
    Failed(String),
}

impl From<String> for Stop {
    fn from(text: String) -> Stop {
        Stop::Failed(text)
    }
}

/// The result of a part that can only fail.
pub(crate) type Outcome<T = ()> = Result<T, String>;

/// Prints to standard output; ignores a closed pipe.
macro_rules! say {
    ($($text:tt)+) => { $crate::out::put(format_args!($($text)+)) };
}
pub(crate) use say;

/// A line on standard error.
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

/// See [`say`].
pub(crate) fn put(line: Arguments) {
    let failed = writeln!(std::io::stdout(), "{line}").err();
    // `dtl-bench ... | head` is no failure.
    if let Some(error) = failed.filter(|error| error.kind() != ErrorKind::BrokenPipe) {
        let _ = LOST.set(format!("standard output: {error}")); // the first reason counts
    }
}

/// Why something said did not arrive.
pub(crate) fn lost() -> Option<String> {
    LOST.get().cloned()
}
