//! Tracing state of a thread: the calls in progress, and the journal (queue of events) from which
//! the trace file is written.

use super::args::{Args, Phase, TraceEvent};
use super::names::NameCache;
use super::{CHANGES, SINKS, Sinks, Tool, file};
use crate::abi::handle::dtl_comm_t;
use crate::abi::status::{DTL_SUCCESS, dtl_status_t};
use crate::abi::trace::{DTL_TRACE_OPERATION, dtl_trace_event_t};
use crate::sys::sync::wait;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Width of the lower part of an event id, in bits. The lower part is a per-thread counter; the
/// upper bits identify the thread.
const ID_BITS: u32 = 40;

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
    fn event(
        &mut self,
        phase: Phase,
        category: &'static str,
        name: &'static str,
        id: u64,
        args: Args,
    ) -> TraceEvent {
        let (category, name) = (self.known.name(category), self.known.name(name));
        TraceEvent { phase, category, name, id, time_ns: 0, status: DTL_SUCCESS, args }
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
        let event = TraceEvent { time_ns: wait::node_ns(), ..event };
        if let (Some(trace), Some(journal)) = (&self.sinks.file, &self.journal) {
            if file == Some(trace.number) {
                trace.put(journal, &event);
            }
        }
        let tool = self.sinks.tool.filter(|now| tool == Some(now.number))?;
        let TraceEvent { phase, category, name, id, time_ns, status, args } = event;
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
        };
        let is_begin = matches!(phase, Phase::Begin | Phase::OperationBegin);
        self.is_in_tool = true;
        Some(ToolEvent { tool, is_begin, event, args })
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
        let function = if self.is_begin { self.tool.begin } else { self.tool.end };
        if let Some(function) = function {
            function(&raw const self.event, self.tool.user.ptr());
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
    let mut is_open = false;
    with_mine(|mine| {
        mine.refresh();
        let (file, tool) = (mine.file_number(), mine.tool_number());
        if (file.is_none() || mine.journal.is_none()) && tool.is_none() {
            return None;
        }
        is_open = true;
        let id = mine.new_id();
        let begin = mine.event(Phase::Begin, category, name, id, args);
        let end = TraceEvent { phase: Phase::End, args: Args::NONE, ..begin };
        mine.open.push(OpenSpan { kind, end, file, tool });
        mine.tell(kind, begin, file, tool)
    });
    is_open
}

/// Records the end of the innermost call or span.
pub(super) fn end(status: dtl_status_t) {
    with_mine(|mine| {
        mine.refresh();
        let OpenSpan { kind, end, file, tool } = mine.open.pop()?;
        mine.tell(kind, TraceEvent { status, ..end }, file, tool)
    });
}

/// Adds arguments to the end event of the innermost call or span in progress.
pub(super) fn about(args: &Args) {
    with_mine(|mine| {
        let OpenSpan { end, .. } = mine.open.last_mut()?;
        end.args = end.args.and(args);
        None
    });
}

/// Records the start or the end of an operation.
pub(super) fn operation(phase: Phase, id: u64, name: &'static str, args: Args) {
    with_mine(|mine| {
        mine.refresh();
        let event = mine.event(phase, "operation", name, id, args);
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
