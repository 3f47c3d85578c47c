//! Progress of every communicator of the process while a call waits on one of them. A peer may need
//! this rank's part of a large message, or of a started collective, before the peer can answer.
//!
//! The operation that the call waits for is not handled here: the call itself polls it.

use super::diagnostics::hang_report;
use super::p2p::request;
use super::shared_transport::SharedTransport;
use super::{Comm, rma};
use crate::abi::handle::dtl_request_t;
use crate::runtime::hot_globals::HOT;
use crate::sys::{
    os::process::spawn_scoped,
    sync::{AtomicUpdate, lock::Mutex, wait::Backoff},
};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Number of other communicators on which one call makes progress, in round-robin order.
pub(super) const TURNS: usize = 4;

/// Number of progress calls on each transport before this thread enters a backend's `open`.
const ROUNDS_BEFORE_OPEN: usize = 32;

/// List of objects that need progress. Their number is stored outside the lock, so that an empty
/// list is never locked. The time of each call but [`ProgressList::live`] is independent of the
/// number.
pub(super) struct ProgressList<T: ?Sized> {
    all: Mutex<Listed<T>>,
    count: AtomicUsize,
}

struct Listed<T: ?Sized> {
    /// Listed objects by address. The address of a listed object is not reused, because its weak
    /// reference keeps the allocation.
    by_address: BTreeMap<usize, Weak<T>>,
    /// Address of the object whose turn was last.
    last: usize,
}

static OPEN: ProgressList<Comm> = ProgressList::new();
/// Handles of the started requests that need progress: collectives that the library runs, messages
/// that calls start, and messages whose parts calls copy. The oldest is first, because the requests
/// of one communicator may have to complete in that order.
static RUNNING: Mutex<ActiveRequests> =
    Mutex::new(ActiveRequests { all: VecDeque::new(), swept_at: LEAST_SWEPT });
/// Number of objects that need progress, in one word that every call reads before it blocks in a
/// transport. Value modulo [`RUNNING_ONE`]: number of links whose operations progress only during
/// calls. Value divided by [`RUNNING_ONE`]: length of `RUNNING`.
static MOVING: &AtomicU64 = &HOT.moving;
const RUNNING_ONE: u64 = 1 << 32;
static RUNNING_TURN: AtomicUsize = AtomicUsize::new(0);
/// Maximum number of rounds in which one call makes progress on started requests. Each round starts
/// with the oldest requests; the call stops when none of the oldest has completed.
const BURST: usize = 64;
const LEAST_SWEPT: usize = 64;

struct ActiveRequests {
    all: VecDeque<dtl_request_t>,
    /// Length of `all` from which on an insertion removes all stale handles, not only the oldest.
    swept_at: usize,
}

impl ActiveRequests {
    /// Publishes the length of this list in `MOVING`.
    fn count(&self) {
        let length = self.all.len() as u64 * RUNNING_ONE;
        let told = |moving| Some(moving % RUNNING_ONE + length);
        let _before = MOVING.checked_update(Ordering::Relaxed, Ordering::Relaxed, told);
    }
}

impl<T: ?Sized> ProgressList<T> {
    pub(super) const fn new() -> Self {
        ProgressList {
            all: Mutex::new(Listed { by_address: BTreeMap::new(), last: 0 }),
            count: AtomicUsize::new(0),
        }
    }

    /// Adds an object, which [`ProgressList::remove`] removes before the object's memory is freed.
    pub(super) fn add(&self, what: &Arc<T>) {
        let mut all = self.all.lock();
        all.by_address.insert(Arc::as_ptr(what).addr(), Arc::downgrade(what));
        self.count.store(all.by_address.len(), Ordering::Relaxed);
    }

    /// Removes the object at `address`. Returns false if the object was not listed.
    pub(super) fn remove(&self, address: usize) -> bool {
        let mut all = self.all.lock();
        let was_there = all.by_address.remove(&address).is_some();
        self.count.store(all.by_address.len(), Ordering::Relaxed);
        was_there
    }

    pub(super) fn clear(&self) {
        self.all.lock().by_address.clear();
        self.count.store(0, Ordering::Relaxed);
    }

    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns all live objects, to be dropped outside the lock, which `Drop` of `Comm` acquires.
    fn live(&self) -> Vec<Arc<T>> {
        self.all.lock().by_address.values().filter_map(Weak::upgrade).collect()
    }

    /// Returns the next `TURNS` live objects in round-robin order; none if the list is locked.
    pub(super) fn turns(&self) -> [Option<Arc<T>>; TURNS] {
        let mut next = [const { None }; TURNS];
        // If the list is locked, the thread that holds the lock does the work.
        let Some(mut all) = self.all.try_lock() else { return next };
        let Listed { by_address, last } = &mut *all;
        let before = *last;
        let rest = by_address.range((Bound::Excluded(before), Bound::Unbounded));
        for (slot, (address, known)) in next.iter_mut().zip(rest.chain(by_address.range(..=before)))
        {
            *slot = known.upgrade();
            *last = *address;
        }
        next
    }
}

/// Adds a communicator to the list of open communicators.
pub(super) fn add(comm: &Arc<Comm>) {
    OPEN.add(comm);
}

/// Removes a communicator from the list of open communicators when it is dropped.
pub(super) fn remove(comm: &Comm) {
    OPEN.remove(std::ptr::from_ref(comm).addr());
}

/// Adds the request of a started collective or of a staged message that is not complete.
pub(super) fn add_running(handle: dtl_request_t) {
    let mut running = RUNNING.lock();
    if running.all.len() >= running.swept_at {
        running.all.retain(|known| request::is_alive(*known));
        running.swept_at = (2 * running.all.len()).max(LEAST_SWEPT);
    }
    running.all.push_back(handle);
    running.count();
}

/// Adds a persistent request that was started, unless it is still listed from its previous start.
pub(super) fn add_running_again(handle: dtl_request_t) {
    if !RUNNING.lock().all.contains(&handle) {
        add_running(handle);
    }
}

/// Returns true if started requests may need progress. Waiting threads then poll, not sleep.
pub(super) fn has_running() -> bool {
    MOVING.load(Ordering::Relaxed) >= RUNNING_ONE
}

/// Makes progress on a request. A failure is returned to the thread that waits for the request.
fn move_on(handle: dtl_request_t) {
    drop(request::standing(handle));
}

/// Makes progress on other started requests after an unsuccessful poll, also on staged messages.
pub(super) fn running() {
    if has_running() {
        move_running(move_on);
    }
}

/// Makes progress on some started requests: on the oldest ones repeatedly as long as they complete,
/// and on a few other requests in round-robin order.
fn move_running(move_on: fn(dtl_request_t)) {
    for _ in 0..BURST {
        let mut next = [dtl_request_t::NULL; 2 * TURNS];
        {
            let Some(running) = RUNNING.try_lock() else { return };
            let all = &running.all;
            let first = RUNNING_TURN.fetch_add(TURNS, Ordering::Relaxed);
            for (step, slot) in next.iter_mut().enumerate().take(2 * TURNS.min(all.len())) {
                let index =
                    if step % 2 == 0 { step / 2 } else { first.wrapping_add(step / 2) % all.len() };
                *slot = all.get(index).copied().unwrap_or(dtl_request_t::NULL);
            }
        }
        for handle in next.iter().filter(|handle| handle.id != 0) {
            move_on(*handle);
        }
        if !forget_oldest() {
            return;
        }
    }
}

/// Removes the completed requests at the front of the list. Returns true if some were removed and
/// the list is not empty. Returns false without a change if another thread holds the lock.
fn forget_oldest() -> bool {
    let Some(mut running) = RUNNING.try_lock() else { return false };
    let before = running.all.len();
    while running.all.front().is_some_and(|oldest| request::is_at_rest(*oldest)) {
        running.all.pop_front();
    }
    running.count();
    !running.all.is_empty() && running.all.len() < before
}

/// Clears all lists in a forked child, so that the child makes no progress on the parent's objects.
/// Without this the lists would contain the parent's communicators, which the child never drops.
pub(super) fn forget() {
    OPEN.clear();
    RUNNING.lock().all.clear();
    MOVING.store(0, Ordering::Relaxed);
}

/// Counts a link that is opened (`comes`) or closed, if its operations progress only during calls.
pub(super) fn count(link: &SharedTransport, comes: bool) {
    if link.transport.properties().needs_progress {
        let _before = if comes {
            MOVING.fetch_add(1, Ordering::Relaxed)
        } else {
            MOVING.fetch_sub(1, Ordering::Relaxed)
        };
    }
}

/// Returns true if no object of the process needs calls for its progress.
pub(super) fn is_idle() -> bool {
    MOVING.load(Ordering::Relaxed) == 0
}

/// Returns true if a call may block until completion in a transport that progresses by itself.
pub(super) fn may_block() -> bool {
    is_idle() || has_settled()
}

/// Makes progress on the started requests. Returns true if all have completed and no link needs
/// calls for its progress. Otherwise the peer may wait for a request that is not complete.
#[cold]
#[inline(never)]
fn has_settled() -> bool {
    if MOVING.load(Ordering::Relaxed) % RUNNING_ONE != 0 {
        return false;
    }
    move_running(move_on);
    !has_running()
}

/// Runs `call`, which blocks in its transport until completion. If other communicators progress
/// only during calls, an additional thread makes progress on those communicators meanwhile.
pub(super) fn while_blocked<T>(call: impl FnOnce() -> T) -> T {
    if may_block() {
        return call();
    }
    meanwhile(call, || {
        move_needy();
        move_running(request::serve);
        rma::rma_progress::serve_some();
    })
}

/// Runs a backend's `open`, during which this thread makes no progress. If other ranks may need an
/// answer of this rank before they reach `open`, an additional thread makes progress meanwhile.
pub(super) fn while_opening<T>(open: impl FnOnce() -> T) -> T {
    let answers = |comm: &Comm| {
        let properties = comm.link.transport.properties();
        properties.answers_late && properties.allows_progress_thread
    };
    if !OPEN.live().iter().any(|comm| answers(comm)) {
        return open();
    }
    meanwhile(open, || {
        let turns = OPEN.turns();
        turns
            .iter()
            .flatten()
            .filter(|comm| answers(comm))
            .for_each(|comm| comm.link.transport.progress());
    })
}

/// Runs `call` while an additional thread calls `moves` repeatedly until `call` returns.
fn meanwhile<T>(call: impl FnOnce() -> T, moves: impl Fn() + Sync) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let moving = spawn_scoped(scope, "dtl-progress", || {
            let mut backoff = Backoff::new();
            while !is_over.load(Ordering::Acquire) {
                moves();
                backoff.pause();
            }
        });
        if let Err(error) = moving {
            crate::runtime::log::warning!(
                "no thread to move other communicators on meanwhile: {error}"
            );
        }
        let result = call();
        is_over.store(true, Ordering::Release);
        result
    })
}

fn move_needy() {
    for comm in OPEN.turns().iter().flatten() {
        if comm.link.transport.properties().needs_progress {
            comm.link.transport.progress();
            hang_report::serve(comm);
        }
    }
}

/// Makes progress on all communicators before this thread blocks in a backend's `open`, where it
/// makes none. Ranks that reach the same `open` later may still wait for a message that this rank
/// has sent, or for its answer to a report. The number of rounds is fixed, because no transport
/// reports its queued messages. A message for which the transport has no room remains queued.
pub(super) fn before_open() {
    let mut comms: Vec<Arc<Comm>> = OPEN.live();
    let running: Vec<dtl_request_t> = RUNNING.lock().all.iter().copied().collect();
    comms.iter().for_each(|comm| hang_report::serve(comm));
    running.iter().for_each(|handle| move_on(*handle));
    // Communicators derived from the same communicator share their transport.
    comms.sort_by_key(|comm| Arc::as_ptr(&comm.link));
    comms.dedup_by(|one, other| Arc::ptr_eq(&one.link, &other.link));
    for _ in 0..ROUNDS_BEFORE_OPEN {
        comms.iter().for_each(|comm| comm.link.transport.progress());
        rma::rma_progress::serve_some();
    }
}

/// Makes progress on all communicators but `waiting` and answers queries, regularly in a long wait.
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
    rma::rma_progress::serve_some();
}
