//! Tracing state of a thread: the calls in progress, and the journal (queue of events) from which
//! the trace file is written.

use super::args::{Args, Phase, TraceEvent};
use super::names::{Name, NameCache};
use super::tracks::Track;
use super::{CHANGES, SINKS, Sinks, Tool, file};
use crate::abi::handle::dtl_comm_t;
use crate::abi::status::{DTL_SUCCESS, dtl_status_t};
use crate::abi::trace::*;
use crate::error::{Result, fail};
use crate::sys::sync::wait;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Width of the lower part of an event id, in bits. The lower part is a per-thread counter; the
/// upper bits identify the thread.
const ID_BITS: u32 = 40;
/// Most calls and spans in progress in a thread at which a plugin may begin a span.
const DEPTH: usize = 1024;

thread_local! {
    /// Tracing state of the thread, allocated on the heap when the thread is first traced. It is
    /// not stored in the static TLS block, which has little space left if the library is loaded at
    /// run time (dlopen).
    static MINE: RefCell<Option<Box<Thread>>> = const { RefCell::new(None) };
}

struct Thread {
    /// Value of [`CHANGES`] when `sinks` was read.
    seen: u64,
    sinks: Sinks,
    journal: Option<Arc<file::Journal>>,
    open: Vec<OpenSpan>,
    /// True while this thread runs a callback of an external tool that receives trace events.
    /// Library calls made by such a callback are not traced, because tracing them would cause
    /// infinite recursion.
    is_in_tool: bool,
    last_id: u64,
    known: NameCache,
}

/// Call or span in progress.
struct OpenSpan {
    kind: i32,
    /// True for a span that a plugin has begun, which may omit its end.
    is_plugins: bool,
    /// End event, with the arguments that were added since the begin event.
    end: TraceEvent,
    /// Number of the trace file that received the begin event. `tool` is the number of the tool
    /// that received it.
    file: Option<u64>,
    tool: Option<u64>,
}

/// Event to pass to a callback of an external tool. The callback is called when `MINE` is no longer
/// borrowed.
struct ToolEvent {
    tool: Tool,
    is_begin: bool,
    /// Time of the end, if the begin and the end are passed one after the other.
    end_ns: Option<u64>,
    event: dtl_trace_event_t,
    args: Args,
}

impl Thread {
    const NEW: Thread = Thread {
        seen: 0,
        sinks: Sinks { file: None, tool: None },
        journal: None,
        open: Vec::new(),
        is_in_tool: false,
        last_id: 0,
        known: NameCache::NONE,
    };

    /// Reloads the receivers of events ([`SINKS`]) if they have changed, and creates a journal
    /// (event queue) for a new trace file.
    fn refresh(&mut self) {
        let now = CHANGES.load(Ordering::Acquire);
        if now == self.seen {
            return;
        }
        self.seen = now;
        self.sinks = SINKS.lock().clone();
        let has_journal =
            |journal: &Arc<file::Journal>, file: &Arc<file::Trace>| journal.trace == file.number;
        match (&self.journal, &self.sinks.file) {
            (Some(journal), Some(file)) if has_journal(journal, file) => {}
            (_, file) => self.journal = file.as_ref().and_then(|file| file.join()),
        }
    }

    fn new_id(&mut self) -> u64 {
        static THREADS: AtomicU64 = AtomicU64::new(1);
        if self.last_id == 0 {
            self.last_id = THREADS.fetch_add(1, Ordering::Relaxed) << ID_BITS;
        }
        self.last_id += 1;
        self.last_id
    }

    /// Returns an event without its time, which [`Thread::tell`] adds.
    fn event(phase: Phase, (category, name): (Name, Name), id: u64, args: Args) -> TraceEvent {
        TraceEvent { phase, category, name, id, time_ns: 0, value: 0, status: DTL_SUCCESS, args }
    }

    /// Appends an event to the journal if `file` is the number of the current trace file. Returns
    /// the event for the tool if `tool` is the number of the current tool.
    fn tell(
        &mut self,
        kind: i32,
        event: TraceEvent,
        file: Option<u64>,
        tool: Option<u64>,
    ) -> Option<ToolEvent> {
        let time_ns = if event.time_ns == 0 { wait::node_ns() } else { event.time_ns };
        let event = TraceEvent { time_ns, ..event };
        if let (Some(trace), Some(journal)) = (&self.sinks.file, &self.journal) {
            if file == Some(trace.number) {
                trace.put(journal, &event);
            }
        }
        let tool = self.sinks.tool.filter(|now| tool == Some(now.number))?;
        let TraceEvent { phase, category, name, id, time_ns, value, status, args } = event;
        let (track, id) = match phase.is_of_track() {
            true => (Track::find(id).ok(), self.new_id()),
            false => (None, id),
        };
        let event = dtl_trace_event_t {
            struct_size: size_of::<dtl_trace_event_t>() as u32,
            kind,
            id,
            time_ns,
            category: category.text().as_ptr(),
            name: name.text().as_ptr(),
            has: args.has,
            status,
            bytes: args.bytes,
            peer: args.peer,
            tag: args.tag,
            comm: dtl_comm_t { id: args.comm },
            dtype: args.dtype,
            op: args.op,
            what: std::ptr::null(),
            group: track.as_ref().map_or(c"", |track| track.group.text()).as_ptr(),
            track: track.as_ref().map_or(c"", |track| track.name.text()).as_ptr(),
            value: if phase == Phase::Counter { f64::from_bits(value) } else { 0.0 },
        };
        let is_begin = !matches!(phase, Phase::End | Phase::OperationEnd);
        self.is_in_tool = true;
        let end_ns = (phase == Phase::Complete).then_some(value);
        Some(ToolEvent { tool, is_begin, end_ns, event, args })
    }

    /// Returns the number of the current trace file if it still accepts events. A file to which a
    /// write has failed stays in `sinks` until its trace is stopped, but receives no more events.
    fn file_number(&self) -> Option<u64> {
        self.sinks.file.as_ref().filter(|file| !file.has_failed()).map(|file| file.number)
    }

    fn tool_number(&self) -> Option<u64> {
        self.sinks.tool.map(|tool| tool.number)
    }
}

/// Calls `work` with the thread's tracing state. If `work` returns an event, passes the event to
/// the callback of the external tool. Does nothing while the thread-local state is being destroyed
/// or the thread runs such a callback.
fn with_mine(work: impl FnOnce(&mut Thread) -> Option<ToolEvent>) {
    let event = MINE.try_with(|mine| {
        let mut mine = mine.try_borrow_mut().ok()?;
        let mine = mine.get_or_insert_with(|| Box::new(Thread::NEW));
        if mine.is_in_tool { None } else { work(mine) }
    });
    if let Ok(Some(event)) = event {
        event.tell();
    }
}

impl ToolEvent {
    fn tell(mut self) {
        // The text has a NUL: `Args::what` always leaves one.
        self.event.what = self.args.what.as_ptr().cast();
        let call = |function: dtl_trace_fn_t, event: &dtl_trace_event_t| {
            if let Some(function) = function {
                function(&raw const *event, self.tool.user.ptr());
            }
        };
        call(if self.is_begin { self.tool.begin } else { self.tool.end }, &self.event);
        if let Some(time_ns) = self.end_ns {
            call(self.tool.end, &dtl_trace_event_t { time_ns, ..self.event });
        }
        let _ = MINE.try_with(|mine| {
            if let Ok(Some(mine)) = mine.try_borrow_mut().as_deref_mut().map(Option::as_mut) {
                mine.is_in_tool = false;
            }
        });
    }
}

/// Records the start of a call or span. Returns false if neither a trace file nor a tool receives
/// the event; [`end`] must then not be called.
pub(super) fn begin(kind: i32, category: &'static str, name: &'static str, args: Args) -> bool {
    let names = |known: &mut NameCache| Ok((known.name(category), known.name(name)));
    open(kind, false, names, args).is_ok_and(|id| id != 0)
}

/// Records the start of a plugin's span in the calling thread. Returns its number, or 0 if it is
/// not traced.
pub fn plugin_begin(category: &str, name: &str, args: Args) -> Result<u64> {
    open(DTL_TRACE_SPAN, true, |known| known.copied(category, name), args)
}

/// Records the start of a call or span. Returns its number; 0 if neither a trace file nor a tool
/// receives the event.
fn open(
    kind: i32,
    is_plugins: bool,
    names: impl FnOnce(&mut NameCache) -> Result<(Name, Name)>,
    args: Args,
) -> Result<u64> {
    let mut outcome = Ok(0);
    with_mine(|mine| {
        mine.refresh();
        let (file, tool) = (mine.file_number(), mine.tool_number());
        if (file.is_none() || mine.journal.is_none()) && tool.is_none() {
            return None;
        }
        if is_plugins && mine.open.len() >= DEPTH {
            outcome = fail!(
                DTL_ERROR_LIMIT,
                "{DEPTH} calls and spans are in progress in this thread: end spans by trace_end"
            );
            return None;
        }
        let names = names(&mut mine.known).map_err(|error| outcome = Err(error)).ok()?;
        let id = mine.new_id();
        outcome = Ok(id);
        let begin = Thread::event(Phase::Begin, names, id, args);
        let end = TraceEvent { phase: Phase::End, args: Args::NONE, ..begin };
        mine.open.push(OpenSpan { kind, is_plugins, end, file, tool });
        mine.tell(kind, begin, file, tool)
    });
    outcome
}

/// Records the end of the innermost call or span of the library, and of spans in it that plugins
/// have not ended.
pub(super) fn end(status: dtl_status_t) {
    while end_if(DTL_SUCCESS, |span| span.is_plugins) {}
    end_if(status, |_| true);
}

/// Records the end of the innermost call or span if `is_it` returns true for it.
fn end_if(status: dtl_status_t, is_it: impl FnOnce(&OpenSpan) -> bool) -> bool {
    let mut is_ended = false;
    with_mine(|mine| {
        mine.refresh();
        if !mine.open.last().is_some_and(is_it) {
            return None;
        }
        let OpenSpan { kind, end, file, tool, .. } = mine.open.pop()?;
        is_ended = true;
        mine.tell(kind, TraceEvent { status, ..end }, file, tool)
    });
    is_ended
}

/// Records the end of a plugin's span, which must be the innermost of the thread.
pub fn plugin_end(id: u64) -> Result<()> {
    if end_if(DTL_SUCCESS, |span| span.is_plugins && span.end.id == id) {
        return Ok(());
    }
    fail!(
        DTL_ERROR_INVALID_STATE,
        "span {id:#x} is not the innermost of this thread, or has ended with the slot in which it \
         began: end spans in the thread and the slot in which they begin, the last one first"
    )
}

/// Records an event of a track, with the names and times of a plugin. A tool receives the begin and
/// the end of a device's work, one after the other.
pub(super) fn of_track(
    phase: Phase,
    track: u64,
    (category, name): (&str, &str),
    (time_ns, value): (u64, u64),
    args: Args,
) -> Result<()> {
    let kind = if phase == Phase::Counter { DTL_TRACE_COUNTER } else { DTL_TRACE_DEVICE };
    let mut outcome = Ok(());
    with_mine(|mine| {
        mine.refresh();
        let names = mine.known.copied(category, name);
        let names = names.map_err(|error| outcome = Err(error)).ok()?;
        let event = TraceEvent { time_ns, value, ..Thread::event(phase, names, track, args) };
        mine.tell(kind, event, mine.file_number(), mine.tool_number())
    });
    outcome
}

/// Adds arguments to the end event of the innermost call or span of the library in progress.
pub(super) fn about(args: &Args) {
    with_mine(|mine| {
        // A slot may have left spans of its own open.
        let OpenSpan { end, .. } = mine.open.iter_mut().rfind(|span| !span.is_plugins)?;
        end.args = end.args.and(args);
        None
    });
}

/// Records the start or the end of an operation.
pub(super) fn operation(phase: Phase, id: u64, name: &'static str, args: Args) {
    with_mine(|mine| {
        mine.refresh();
        let names = (mine.known.name("operation"), mine.known.name(name));
        let event = Thread::event(phase, names, id, args);
        mine.tell(DTL_TRACE_OPERATION, event, mine.file_number(), mine.tool_number())
    });
}

impl Drop for Thread {
    fn drop(&mut self) {
        if let Some(journal) = &self.journal {
            journal.has_ended.store(true, Ordering::Release);
        }
    }
}
