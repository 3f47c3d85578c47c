//! Progress of every communicator of the process while a call waits on one of them. Before a peer
//! can answer, it may need this rank to advance a large message or a started collective.
//!
//! The operation that the call waits for is not handled here: the call itself polls it.

use super::Comm;
use super::comm_table::OPEN;
use super::diagnostics::hang_report;
use super::progress_count::{self, has_running, is_idle};
use super::progress_list::TURNS;
use super::rma::rma_progress;
use crate::abi::handle::dtl_request_t;
use crate::runtime::log;
use crate::sys::os::process::spawn_scoped;
use crate::sys::sync::lock::Mutex;
use crate::sys::sync::wait::Backoff;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Number of progress calls on each transport before this thread enters a backend's `open`.
const ROUNDS_BEFORE_OPEN: usize = 32;

/// Handles of the started requests that need progress: collectives that the library runs, sends
/// that start once an event has completed, and messages that are staged through host memory. The
/// oldest is first, because the requests of one communicator may have to complete in that order.
static RUNNING: Mutex<ActiveRequests> =
    Mutex::new(ActiveRequests { all: VecDeque::new(), swept_at: LEAST_SWEPT });
static RUNNING_TURN: AtomicUsize = AtomicUsize::new(0);
/// Maximum number of rounds in which one call makes progress on started requests. Each round makes
/// progress on the oldest requests and on a few others. The call stops after a round in which the
/// oldest request has not completed.
const BURST: usize = 64;
const LEAST_SWEPT: usize = 64;

/// Functions that a table of requests provides for progress on its requests.
pub(super) trait Progress: Sync {
    /// Makes progress on a request. A failure is returned to the thread that waits for the request.
    /// On a thread of the library (`is_library_thread`), does nothing if the transport does not
    /// allow calls from such a thread, or if the operation would call a user callback there.
    fn progress(&self, handle: dtl_request_t, is_library_thread: bool);

    /// Returns true if the handle refers to a request that still exists.
    fn is_alive(&self, handle: dtl_request_t) -> bool;

    /// Returns true if the request is inactive or complete, or the handle is stale. Does not make
    /// progress on the request.
    fn is_at_rest(&self, handle: dtl_request_t) -> bool;
}

/// Started request that needs progress, and the table of requests that contains it.
#[derive(Clone, Copy)]
struct ActiveRequest {
    handle: dtl_request_t,
    table: &'static dyn Progress,
}

struct ActiveRequests {
    all: VecDeque<ActiveRequest>,
    /// Length of `all` at which the next insertion removes all stale handles. Otherwise handles are
    /// removed only from the front of `all`.
    swept_at: usize,
}

/// Adds the incomplete request of a started collective, or of a message staged through host memory,
/// to the list of requests that need progress.
pub(super) fn add_running(table: &'static dyn Progress, handle: dtl_request_t) {
    let mut running = RUNNING.lock();
    if running.all.len() >= running.swept_at {
        running.all.retain(|known| known.table.is_alive(known.handle));
        running.swept_at = (2 * running.all.len()).max(LEAST_SWEPT);
    }
    running.all.push_back(ActiveRequest { handle, table });
    progress_count::set_running(running.all.len());
}

/// Adds a started persistent request to the list of requests that need progress, unless it is still
/// listed from its previous start.
pub(super) fn add_running_again(table: &'static dyn Progress, handle: dtl_request_t) {
    if !RUNNING.lock().all.iter().any(|known| known.handle == handle) {
        add_running(table, handle);
    }
}

/// Makes progress on started requests, including messages staged through host memory, after an
/// unsuccessful poll of another operation.
pub(super) fn running() {
    if has_running() {
        move_running(false);
    }
}

/// Makes progress on the oldest started requests, and on a few others in round-robin order. Repeats
/// this while it completes the oldest request, at most `BURST` times. `is_library_thread` is true
/// on a thread of the library.
fn move_running(is_library_thread: bool) {
    for _ in 0..BURST {
        let mut next = [None; 2 * TURNS];
        {
            let Some(running) = RUNNING.try_lock() else { return };
            let all = &running.all;
            let first = RUNNING_TURN.fetch_add(TURNS, Ordering::Relaxed);
            for (step, slot) in next.iter_mut().enumerate().take(2 * TURNS.min(all.len())) {
                let index =
                    if step % 2 == 0 { step / 2 } else { first.wrapping_add(step / 2) % all.len() };
                *slot = all.get(index).copied();
            }
        }
        for request in next.into_iter().flatten() {
            request.table.progress(request.handle, is_library_thread);
        }
        if !forget_oldest() {
            return;
        }
    }
}

/// Removes the completed requests at the front of the list. Returns true if some were removed and
/// the list is not empty. If another thread holds the lock, leaves the list unchanged and returns
/// false.
fn forget_oldest() -> bool {
    let Some(mut running) = RUNNING.try_lock() else { return false };
    let before = running.all.len();
    while running.all.front().is_some_and(|oldest| oldest.table.is_at_rest(oldest.handle)) {
        running.all.pop_front();
    }
    progress_count::set_running(running.all.len());
    !running.all.is_empty() && running.all.len() < before
}

/// Clears all lists in a forked child, so that the child makes no progress on the parent's objects.
/// Otherwise the lists would contain the parent's communicators, which the child never drops.
pub(super) fn forget() {
    OPEN.clear();
    RUNNING.lock().all.clear();
    progress_count::forget();
}

/// Returns true if a call may block in its transport until completion: every transport makes
/// progress without calls, and no started request needs progress.
pub(super) fn may_block() -> bool {
    is_idle() || has_settled()
}

/// Makes progress on the started requests. Returns true if all have completed and no transport
/// needs library calls to make progress. If it returns false, the caller must not block, because a
/// peer may be waiting for one of these requests.
#[cold]
#[inline(never)]
fn has_settled() -> bool {
    if progress_count::has_transports() {
        return false;
    }
    move_running(false);
    !has_running()
}

/// Runs `call`, which blocks in its transport until completion. If other communicators make
/// progress only during calls, or if started requests need progress, an additional thread drives
/// their progress until `call` returns.
pub(super) fn while_blocked<T>(call: impl FnOnce() -> T) -> T {
    if may_block() {
        return call();
    }
    meanwhile(call, || {
        for comm in OPEN.turns().iter().flatten() {
            if comm.link.transport.properties().needs_progress {
                comm.link.transport.progress();
                hang_report::serve(comm);
            }
        }
        move_running(true);
        rma_progress::serve_some();
    })
}

/// Runs a backend's `open`, during which this thread makes no progress. If other ranks may need a
/// reply from this rank before they call `open`, an additional thread makes progress meanwhile.
pub(super) fn while_opening<T>(open: impl FnOnce() -> T) -> T {
    let answers = |comm: &Comm| {
        let properties = comm.link.transport.properties();
        properties.answers_late && properties.allows_progress_thread
    };
    if !OPEN.live().iter().any(|comm| answers(comm)) {
        return open();
    }
    meanwhile(open, || {
        let turns = OPEN.turns().into_iter().flatten().filter(|comm| answers(comm));
        turns.for_each(|comm| comm.link.transport.progress());
    })
}

/// Runs `call` while an additional thread calls `moves` repeatedly until `call` returns.
fn meanwhile<T>(call: impl FnOnce() -> T, moves: impl Fn() + Sync) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let moving = spawn_scoped(scope, "dtl-progress", || {
            let mut backoff = Backoff::new();
            log::enter_progress_thread();
            while !is_over.load(Ordering::Acquire) {
                moves();
                log::deliver(0);
                backoff.pause();
            }
        });
        if let Err(error) = moving {
            log::warning!("no thread to move other communicators on meanwhile: {error}");
        }
        let result = call();
        is_over.store(true, Ordering::Release);
        result
    })
}

/// Makes progress on all communicators before this thread blocks in a backend's `open`, where it
/// makes no progress. Ranks that call the same `open` later may still wait for a message that this
/// rank has sent, or for its reply to a query. The number of rounds is fixed, because no transport
/// reports its queued messages. A message for which the transport has no room remains queued.
pub(super) fn before_open() {
    let mut comms: Vec<Arc<Comm>> = OPEN.live();
    let running: Vec<ActiveRequest> = RUNNING.lock().all.iter().copied().collect();
    comms.iter().for_each(|comm| hang_report::serve(comm));
    running.into_iter().for_each(|request| request.table.progress(request.handle, false));
    // Communicators derived from the same communicator share their transport.
    comms.sort_by_key(|comm| Arc::as_ptr(&comm.link));
    comms.dedup_by(|one, other| Arc::ptr_eq(&one.link, &other.link));
    for _ in 0..ROUNDS_BEFORE_OPEN {
        comms.iter().for_each(|comm| comm.link.transport.progress());
        rma_progress::serve_some();
    }
}

/// Makes progress on communicators other than `waiting`, selected in round-robin order, and on
/// started requests and one-sided operations. Also replies to other ranks' queries for the hang
/// report. A long wait calls this function at regular intervals.
pub(super) fn others(waiting: &Comm) {
    hang_report::serve(waiting);
    if OPEN.len() > 1 {
        // Called without the lock: a registered transport may open a communicator of its own.
        for comm in OPEN.turns().iter().flatten() {
            if !std::ptr::eq(comm.as_ref(), waiting) {
                comm.link.transport.progress();
                hang_report::serve(comm);
            }
        }
    }
    running();
    rma_progress::serve_some();
}
