//! Log lines, passed to a callback or else written to standard error. No other module prints.
//!
//! The callback may call the library, so it must not run while the logging thread holds a lock, for
//! example that of a transport. A thread that logs inside a call therefore only stores the line.
//! The callback runs when the thread has left the call (and all calls around it), or when a thread
//! waits.

use crate::abi::runtime::{DTL_LOG_DEBUG, DTL_LOG_ERROR, DTL_LOG_INFO, DTL_LOG_WARN, dtl_log_fn_t};
use crate::error::Result;
use crate::sys::handles::epoch;
use crate::sys::memory::buf::Addr;
use crate::sys::os::process;
use crate::sys::sync::lock::{Mutex, RwLock};
use std::cell::Cell;
use std::ffi::CString;
use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

static LEVEL: AtomicI32 = AtomicI32::new(DTL_LOG_WARN);
/// Log level set by the last call to `dtl_log_set_callback`; 0 = none. This level takes precedence
/// over the settings.
static CALLED_LEVEL: AtomicI32 = AtomicI32::new(0);
static CALLBACK: RwLock<(dtl_log_fn_t, Addr)> = RwLock::new((None, Addr::NULL));
/// Lines, with their levels, that were logged inside calls and that wait for the callback.
static PENDING: Mutex<Vec<(i32, String)>> = Mutex::new(Vec::new());
/// True if lines may be pending.
static IS_PENDING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// True in threads of the library that lock transports outside calls.
    static IS_PROGRESS_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Sets the log level: lines up to this level are logged, unless `dtl_log_set_callback` has set
/// another level.
pub fn set_level(level: i32) {
    LEVEL.store(level, Ordering::Relaxed);
}

/// Sets the callback for log lines and the maximum level of the lines that are logged; without a
/// callback, lines are written to standard error.
pub fn set_callback(callback: dtl_log_fn_t, user: Addr, level: i32) {
    *CALLBACK.write() = (callback, user);
    CALLED_LEVEL.store(level, Ordering::Relaxed);
}

/// Returns true if lines of this level are written or passed to a callback. Callers check this
/// before they format a line.
pub fn enabled(level: i32) -> bool {
    match CALLED_LEVEL.load(Ordering::Relaxed) {
        0 => level <= LEVEL.load(Ordering::Relaxed),
        called => level <= called,
    }
}

/// Marks the calling thread as one that locks transports outside calls.
pub fn enter_progress_thread() {
    IS_PROGRESS_THREAD.set(true);
}

/// Logs one line.
pub fn log(level: i32, text: &str) {
    if !enabled(level) {
        return;
    }
    let has_callback = CALLBACK.read().0.is_some();
    if !has_callback || epoch::depth() == 0 && !IS_PROGRESS_THREAD.get() {
        return write(level, text);
    }
    let _aside = epoch::aside(); // a progress thread may lock during a fork
    PENDING.lock().push((level, text.to_owned()));
    if !IS_PENDING.swap(true, Ordering::Relaxed) {
        // A progress thread leaves the epoch with transports locked.
        epoch::until_done(Box::new(|| !IS_PROGRESS_THREAD.get() && deliver(0)));
    }
}

/// Passes the pending lines to the callback, unless the calling thread is in more than `depth`
/// calls and so may hold a lock. Returns false if lines are still pending.
pub fn deliver(depth: u32) -> bool {
    if IS_PENDING.load(Ordering::Relaxed) && epoch::depth() <= depth {
        // Before the lines are taken: a line that is added later sets the flag again.
        IS_PENDING.store(false, Ordering::Relaxed);
        let lines = std::mem::take(&mut *PENDING.lock());
        lines.into_iter().for_each(|(level, text)| write(level, &text));
        return true;
    }
    !IS_PENDING.load(Ordering::Relaxed)
}

fn write(level: i32, text: &str) {
    let (callback, user) = *CALLBACK.read(); // copied: the callback runs without the lock
    match callback {
        Some(callback) => {
            let text = CString::new(text.replace('\0', "?")).unwrap_or_default();
            callback(level, text.as_ptr(), user.ptr());
        }
        None => {
            let line = format!("dtl {}: {text}\n", level_name(level));
            // One write, so that lines of threads do not mix. A closed stderr is not an error.
            let _ = process::StandardError.write_all(line.as_bytes());
        }
    }
}

/// Logs the warning "`what`: error" if `outcome` is an error. Used where the error cannot be
/// returned to a caller.
pub fn failure(what: impl Display, outcome: Result<()>) {
    if let Err(error) = outcome {
        log(DTL_LOG_WARN, &format!("{what}: {error}"));
    }
}

fn level_name(level: i32) -> &'static str {
    match level {
        DTL_LOG_ERROR => "error",
        DTL_LOG_WARN => "warning",
        DTL_LOG_INFO => "info",
        _ => "debug",
    }
}

/// Returns the log level denoted by `name`, a value of the variable DTL_LOG; `None` if there is no
/// such level.
pub fn level_from_name(name: &str) -> Option<i32> {
    Some(match name {
        "off" => crate::abi::runtime::DTL_LOG_OFF,
        "error" => DTL_LOG_ERROR,
        "warn" | "warning" => DTL_LOG_WARN,
        "info" => DTL_LOG_INFO,
        "debug" => DTL_LOG_DEBUG,
        _ => return None,
    })
}

/// Logs a line at the level `$level`; formats it only if the level is enabled.
macro_rules! line {
    ($level:ident, $($text:tt)+) => {
        if $crate::runtime::log::enabled($crate::abi::runtime::$level) {
            $crate::runtime::log::log($crate::abi::runtime::$level, &format!($($text)+));
        }
    };
}
/// Logs a line at level debug; formats it only if the level is enabled.
macro_rules! debug {
    ($($text:tt)+) => { $crate::runtime::log::line!(DTL_LOG_DEBUG, $($text)+) };
}
/// Logs a line at level info; formats it only if the level is enabled.
macro_rules! info {
    ($($text:tt)+) => { $crate::runtime::log::line!(DTL_LOG_INFO, $($text)+) };
}
/// Logs a line at level warning; formats it only if the level is enabled.
macro_rules! warning {
    ($($text:tt)+) => { $crate::runtime::log::line!(DTL_LOG_WARN, $($text)+) };
}
/// Logs a line at level error; formats it only if the level is enabled.
macro_rules! error {
    ($($text:tt)+) => { $crate::runtime::log::line!(DTL_LOG_ERROR, $($text)+) };
}
pub(crate) use debug;
pub(crate) use error;
pub(crate) use info;
pub(crate) use line;
pub(crate) use warning;

#[cfg(test)]
#[path = "tests/log.rs"]
mod tests;
