//! Tracing: records calls and operations of the library with their durations in a trace file, and
//! reports them to an external tool.
//!
//! Path of an event from a call to the file: while the state of the library is TRACED,
//! `ffi/guard.rs` calls [`call_begin`] and [`call_end`]. While tracing is off, a call only checks
//! this state. `thread` converts the calls to records and appends them to the thread's own queue.
//! `file` drains the queues every tenth of a second in a separate thread, and writes the records as
//! Chrome's trace JSON. Inside a call, [`span`] records a part of the call, [`about`] adds
//! arguments, and [`operation_begin`] records an operation that continues after the call has
//! returned. Each of these functions costs one load and one branch while tracing is off. Plugins
//! record spans, counters and the work of devices by [`plugin_begin`] and the functions after it.
//!
//! In reading order:
//! - `names`: names of events as numbers
//! - `spsc_queue`: queue of records with one writer and one reader
//! - `args`: arguments of events, and records
//! - `tracks`: rows of devices and of counters
//! - `thread`: the calls that a thread has in progress, and its queue of records
//! - `text`: conversion of records to lines of JSON
//! - `file`: the file and the thread that writes it

mod args;
mod file;
mod names;
mod spsc_queue;
mod text;
mod thread;
mod tracks;

pub use args::Args;
pub use thread::{plugin_begin, plugin_end};

use crate::abi::status::{DTL_SUCCESS, dtl_status_t};
use crate::abi::trace::{DTL_TRACE_CALL, DTL_TRACE_SPAN, dtl_trace_fn_t};
use crate::error::{Result, fail, failure};
use crate::sys::memory::buf::Addr;
use crate::sys::sync::lock::Mutex;
use names::Name;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tracks::Track;

/// True while a file or a tool receives events.
static ON: AtomicBool = AtomicBool::new(false);
/// True if a write to a trace file has failed, and [`has_ended`] has not yet checked whether
/// tracing is still on.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);
/// Last value of DTL_TRACE, and the number of trace files that were started for this value.
static LIVES: Mutex<(String, u32)> = Mutex::new((String::new(), 0));
/// Version number of [`SINKS`] (the receivers of events). A thread locks `SINKS` only if this
/// number has changed.
static CHANGES: AtomicU64 = AtomicU64::new(0);
static SINKS: Mutex<Sinks> = Mutex::new(Sinks { file: None, tool: None });

/// Receivers of events.
#[derive(Clone)]
struct Sinks {
    file: Option<Arc<file::Trace>>,
    tool: Option<Tool>,
}

/// Functions of an external tool that receive the trace events.
#[derive(Clone, Copy)]
struct Tool {
    /// Unique number of the tool's registration.
    number: u64,
    begin: dtl_trace_fn_t,
    end: dtl_trace_fn_t,
    user: Addr,
}

impl Sinks {
    /// Publishes a change of [`SINKS`] (the trace file and the tool) to all threads.
    fn publish(&self) {
        CHANGES.fetch_add(1, Ordering::Release);
        let is_written = self.file.as_ref().is_some_and(|file| !file.has_failed());
        ON.store(is_written || self.tool.is_some(), Ordering::Release);
    }
}

/// Returns true if tracing is on. Fast paths do not make any other check for tracing.
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Returns true if tracing has ended because a write to the trace file failed; the caller then
/// updates the state of the library (`lifecycle`). Traced calls check this, because the writer
/// thread cannot update the state: it must not take any lock that a forked child needs.
pub fn has_ended() -> bool {
    if !HAS_FAILED.load(Ordering::Relaxed) || !HAS_FAILED.swap(false, Ordering::Acquire) {
        return false;
    }
    SINKS.lock().publish();
    !is_on()
}

/// Starts the trace file that DTL_TRACE names. Each initialization of the library in this process
/// starts a new file.
pub fn start_life(path: &str) -> Result<()> {
    let mut lives = LIVES.lock();
    let life = if lives.0 == path { lives.1 + 1 } else { 1 };
    start_file(path, life)?;
    *lives = (path.to_owned(), life);
    Ok(())
}

/// Starts a trace file. Calls are traced once `lifecycle` has set the state of the library to
/// TRACED.
pub fn start(path: &str) -> Result<()> {
    start_file(path, 1)
}

fn start_file(path: &str, life: u32) -> Result<()> {
    let mut sinks = SINKS.lock();
    if let Some(file) = &sinks.file {
        let path = file.path.display();
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

/// Writes all events recorded so far to the trace file and completes the file.
pub fn stop() -> Result<()> {
    let mut sinks = SINKS.lock();
    let file = sinks.file.take().ok_or_else(|| {
        failure!(DTL_ERROR_INVALID_STATE, "no trace is being written: dtl_trace_start begins one")
    })?;
    sinks.publish();
    drop(sinks);
    file.close()
}

/// Sets the tool that receives events from now on; `None` removes the current tool.
pub fn set_tool(functions: Option<(dtl_trace_fn_t, dtl_trace_fn_t, Addr)>) {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    let mut sinks = SINKS.lock();
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    sinks.tool = functions.map(|(begin, end, user)| Tool { number, begin, end, user });
    sinks.publish();
}

/// Removes the external tool that receives trace events, and completes the trace file. Called at
/// finalize.
pub fn close() {
    set_tool(None);
    if SINKS.lock().file.is_some() {
        if let Err(error) = stop() {
            super::log::warning!("{error}");
        }
    }
}

/// Removes the parent's trace file and tool from `SINKS` in a forked child. The file is neither
/// closed nor accessed.
pub fn forget() {
    *LIVES.lock() = (String::new(), 0);
    let mut sinks = SINKS.lock();
    // Another thread of the parent may have held the file's lock, and the writer thread does not
    // exist in this process, so no part of the file object is accessed.
    std::mem::forget(sinks.file.take());
    sinks.tool = None;
    sinks.publish();
}

/// Records the start of a call to a function of the C interface. Returns false if the call is not
/// traced.
pub fn call_begin(name: &'static str) -> bool {
    let noun = name.split('_').nth(1).unwrap_or(name);
    is_on() && thread::begin(DTL_TRACE_CALL, noun, name, Args::NONE)
}

/// Records the end of the call whose start [`call_begin`] has recorded.
pub fn call_end(status: dtl_status_t) {
    thread::end(status);
}

/// Starts a span: a part of a call that is traced separately and lasts until the returned guard is
/// dropped. Example: `let _span = trace::span("dispatch", "lookup", || Args::NONE.what(name));` The
/// caller must not hold any lock that the callbacks of an external tool could acquire. `args` is
/// called only if tracing is on.
pub fn span(category: &'static str, name: &'static str, args: impl FnOnce() -> Args) -> Span {
    if is_on() { begin_span(category, name, args) } else { Span(false) }
}

#[cold]
fn begin_span(category: &'static str, name: &'static str, args: impl FnOnce() -> Args) -> Span {
    Span(thread::begin(DTL_TRACE_SPAN, category, name, args()))
}

/// Guard of a span. The span ends when the guard is dropped.
pub struct Span(bool);

impl Drop for Span {
    fn drop(&mut self) {
        if self.0 {
            thread::end(DTL_SUCCESS);
        }
    }
}

/// Adds arguments to the end event of the innermost call or span of the library that is in progress
/// in this thread. Spans of plugins are skipped.
pub fn about(args: impl FnOnce() -> Args) {
    if is_on() {
        thread::about(&args());
    }
}

/// Records the start of an operation that may outlive the call that starts it; `id` must be unique.
#[cold]
pub fn operation_begin(id: u64, name: &'static str, args: &Args) {
    thread::about(args);
    thread::operation(args::Phase::OperationBegin, id, name, *args);
}

/// Records the end of the operation `id`.
#[cold]
pub fn operation_end(id: u64, name: &'static str) {
    thread::operation(args::Phase::OperationEnd, id, name, Args::NONE);
}

/// Returns the number of the track `name` of `group`.
pub fn track(group: &str, name: &str) -> Result<u64> {
    let (group, name) = (Name::copied(group, "group")?, Name::copied(name, "name")?);
    Ok(Track { group, name }.number())
}

/// Records work of a device that has ended, with its times by the clock of `wait::node_ns`.
pub fn device_span(
    track: u64,
    names: (&str, &str),
    (begin_ns, end_ns): (u64, u64),
    args: Args,
) -> Result<()> {
    Track::find(track)?;
    if begin_ns == 0 || end_ns < begin_ns {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "span.begin_ns is {begin_ns} and span.end_ns {end_ns}: the begin is not 0 and not \
             after the end, both in nanoseconds of the clock of trace_now"
        );
    }
    thread::of_track(args::Phase::Complete, track, names, (begin_ns, end_ns), args)
}

/// Records the value of a counter at a time; 0: now. The counter belongs to the group of `track`;
/// 0: to this rank.
pub fn counter(track: u64, name: &str, time_ns: u64, value: f64) -> Result<()> {
    if track != 0 {
        Track::find(track)?;
    }
    if !value.is_finite() {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "value is {value}: it must be finite");
    }
    let value = (time_ns, value.to_bits());
    thread::of_track(args::Phase::Counter, track, ("counter", name), value, Args::NONE)
}
