//! Tracing: records what the library does and how long it takes, for a file and for another tool.
//!
//! From a call to the file: `ffi/guard.rs` finds the library in state TRACED (the only check while
//! nothing is traced) and calls [`call_begin`] and [`call_end`]; `thread` makes records of them
//! and puts them into the thread's own queue; `file` takes them out, in a thread of its own every
//! tenth of a second, and writes them as Chrome's trace JSON. Work inside of calls is recorded by
//! [`span`] for a part of a call, [`about`] for what the call is about, [`operation_begin`] for
//! what goes on after its call has returned. All of these are one load and one branch while
//! nothing is traced.
//!
//! In reading order:
//! - `names`: names of events as numbers
//! - `args`: arguments of events, and records
//! - `thread`: the calls of a thread and its queue of records
//! - `text`: records as lines of JSON
//! - `file`: the file and the thread that writes it

mod args;
mod file;
mod names;
mod text;
mod thread;

pub use args::Args;

use crate::abi::status::{DTL_SUCCESS, dtl_status_t};
use crate::abi::trace::{DTL_TRACE_CALL, DTL_TRACE_SPAN, dtl_trace_fn_t};
use crate::error::{Result, fail};
use crate::sys::memory::buf::Addr;
use crate::sys::sync::lock::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// True while there is a file or a tool to record events for.
static ON: AtomicBool = AtomicBool::new(false);
/// A file has failed, and [`has_ended`] has not yet checked whether anything is still traced.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);
/// The last path of DTL_TRACE, and how many files it has led to.
static LIVES: Mutex<(String, u32)> = Mutex::new((String::new(), 0));
/// Changes whenever [`SINKS`] does, so that threads need not lock it.
static CHANGES: AtomicU64 = AtomicU64::new(0);
static SINKS: Mutex<Sinks> = Mutex::new(Sinks { file: None, tool: None });

/// Receivers of events.
#[derive(Clone)]
struct Sinks {
    file: Option<Arc<file::Trace>>,
    tool: Option<Tool>,
}

/// Another tool's functions.
#[derive(Clone, Copy)]
struct Tool {
    /// No other table's.
    number: u64,
    begin: dtl_trace_fn_t,
    end: dtl_trace_fn_t,
    user: Addr,
}

impl Sinks {
    /// Makes a change known.
    fn publish(&self) {
        CHANGES.fetch_add(1, Ordering::Release);
        let is_written = self.file.as_ref().is_some_and(|file| !file.has_failed());
        ON.store(is_written || self.tool.is_some(), Ordering::Release);
    }
}

/// Returns true if anything is traced. The only check on fast paths.
#[must_use]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Returns true if nothing is traced any more because a file has failed; the caller then updates
/// the state of `lifecycle`. Called by traced calls, not by the writer: the writer takes no lock
/// that a forked child needs.
#[must_use]
pub fn has_ended() -> bool {
    if !HAS_FAILED.load(Ordering::Relaxed) || !HAS_FAILED.swap(false, Ordering::Acquire) {
        return false;
    }
    SINKS.lock().publish();
    !is_on()
}

/// Starts the file of DTL_TRACE. Each life of the library in this process has a file of its own.
pub fn start_life(path: &str) -> Result<()> {
    let mut lives = LIVES.lock();
    let life = if lives.0 == path { lives.1 + 1 } else { 1 };
    start_file(path, life)?;
    *lives = (path.to_owned(), life);
    Ok(())
}

/// Starts to write a file. Calls are traced once `lifecycle` has set the state TRACED.
pub fn start(path: &str) -> Result<()> {
    start_file(path, 1)
}

fn start_file(path: &str, life: u32) -> Result<()> {
    let mut sinks = SINKS.lock();
    if let Some(file) = &sinks.file {
        let path = file.path().display();
        return match file.failure() {
            None => fail!(
                DTL_ERROR_INVALID_STATE,
                "a trace is being written to {path}: call dtl_trace_stop first"
            ),
            Some(why) => fail!(
                DTL_ERROR_INVALID_STATE,
                "the trace to {path} has ended ({}) and is to be stopped: call dtl_trace_stop \
                 first",
                why.text()
            ),
        };
    }
    sinks.file = Some(file::Trace::open(path, life)?);
    sinks.publish();
    Ok(())
}

/// Ends the file, with all events recorded before.
pub fn stop() -> Result<()> {
    let mut sinks = SINKS.lock();
    let Some(file) = sinks.file.take() else {
        return fail!(
            DTL_ERROR_INVALID_STATE,
            "no trace is being written: dtl_trace_start begins one"
        );
    };
    sinks.publish();
    drop(sinks);
    file.close()
}

/// Sets the tool that gets events from now on; `None`: no tool.
pub fn set_tool(functions: Option<(dtl_trace_fn_t, dtl_trace_fn_t, Addr)>) {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    let mut sinks = SINKS.lock();
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    sinks.tool = functions.map(|(begin, end, user)| Tool { number, begin, end, user });
    sinks.publish();
}

/// At finalize: the file is complete.
pub fn close() {
    set_tool(None);
    if SINKS.lock().file.is_some() {
        if let Err(error) = stop() {
            super::log::warning!("{error}");
        }
    }
}

/// In a forked child: the file belongs to the parent, which continues it.
pub fn forget() {
    *LIVES.lock() = (String::new(), 0);
    let mut sinks = SINKS.lock();
    // Another thread of the parent may have had its lock, and the one that writes is not here:
    // nothing of it is touched.
    std::mem::forget(sinks.file.take());
    sinks.tool = None;
    sinks.publish();
}

/// A call of the C interface begins. False: it is not traced.
pub fn call_begin(name: &'static str) -> bool {
    let noun = name.split('_').nth(1).unwrap_or(name);
    is_on() && thread::begin(DTL_TRACE_CALL, noun, name, Args::NONE)
}

/// The call that [`call_begin`] has noted returns.
pub fn call_end(status: dtl_status_t) {
    thread::end(status);
}

/// A part of a call, from here until the end of the block: `let _span = trace::span("dispatch",
/// "lookup", || Args::what(name));` No lock is held that the functions of a tool must not wait for.
/// `args` is called only if something is traced.
#[must_use]
pub fn span(category: &'static str, name: &'static str, args: impl FnOnce() -> Args) -> Span {
    if is_on() { begin_span(category, name, args) } else { Span(false) }
}

#[cold]
fn begin_span(category: &'static str, name: &'static str, args: impl FnOnce() -> Args) -> Span {
    Span(thread::begin(DTL_TRACE_SPAN, category, name, args()))
}

/// Ends where it is dropped.
pub struct Span(bool);

impl Drop for Span {
    #[inline]
    fn drop(&mut self) {
        if self.0 {
            thread::end(DTL_SUCCESS);
        }
    }
}

/// Adds arguments to the call or span that this thread is in. They are recorded at its end.
#[inline]
pub fn about(args: impl FnOnce() -> Args) {
    if is_on() {
        thread::about(&args());
    }
}

/// Records the begin of an operation that may outlive its call; `id` must be unique.
#[cold]
pub fn operation_begin(id: u64, name: &'static str, args: &Args) {
    thread::about(args);
    thread::operation(true, id, name, args);
}

/// Records the end of the operation `id`.
#[cold]
pub fn operation_end(id: u64, name: &'static str) {
    thread::operation(false, id, name, &Args::NONE);
}
