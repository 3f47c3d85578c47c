//! Progress of every communicator of the process while a call waits on one of them: a peer may need
//! our part of a large message, or of a collective that was only started, before it can answer.
//!
//! Not for the operation that the call waits for: polling moves that on.

use super::diagnostics::hang_report;
use super::p2p::request;
use super::shared_transport::SharedTransport;
use super::{Comm, rma};
use crate::abi::handle::dtl_request_t;
use crate::runtime::hot_globals::HOT;
use crate::sys::os::thread::spawn_scoped;
use crate::sys::sync::atomic_update::AtomicUpdate;
use crate::sys::sync::backoff::Backoff;
use crate::sys::sync::lock::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Number of other communicators that one call moves on: with many they take turns.
pub(super) const TURNS: usize = 4;

/// How often each transport is moved on before this thread goes into an `open`.
const ROUNDS_BEFORE_OPEN: usize = 32;

/// List of objects that need progress. Their number is kept outside the lock, so that an empty list
/// is never locked. The time of each call but [`List::live`] does not grow with their number.
pub(super) struct ProgressList<T: ?Sized> {
    all: Mutex<Listed<T>>,
    count: AtomicUsize,
}

struct Listed<T: ?Sized> {
    /// By address. The address of a listed object is not reused, as its weak reference keeps the
    /// allocation.
    by_address: BTreeMap<usize, Weak<T>>,
    /// Address of the object that had its turn last.
    last: usize,
}

static OPEN: ProgressList<Comm> = ProgressList::new();
/// Collectives that the library runs (and messages that calls begin, or whose parts they copy) that
/// were started, by handle, the oldest first: those of one communicator may have to end in that
/// order.
static RUNNING: Mutex<ActiveRequests> =
    Mutex::new(ActiveRequests { all: VecDeque::new(), swept_at: LEAST_SWEPT });
/// Number of objects that need progress, in one word that every call reads which stays in a
/// transport. Below [`RUNNING_ONE`]: the links whose operations move only during calls. From it on:
/// the length of `RUNNING`.
static MOVING: &AtomicU64 = &HOT.moving;
const RUNNING_ONE: u64 = 1 << 32;
static RUNNING_TURN: AtomicUsize = AtomicUsize::new(0);
/// Most further operations that one call moves on, the oldest first, as long as they end.
const BURST: usize = 64;
const LEAST_SWEPT: usize = 64;

struct ActiveRequests {
    all: VecDeque<dtl_request_t>,
    /// At this length those that are gone leave from between the others.
    swept_at: usize,
}

impl ActiveRequests {
    /// Tells its length.
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

    /// Adds an object. [`List::remove`] removes it before its memory is freed.
    pub(super) fn add(&self, what: &Arc<T>) {
        let mut all = self.all.lock();
        all.by_address.insert(Arc::as_ptr(what).addr(), Arc::downgrade(what));
        self.count.store(all.by_address.len(), Ordering::Relaxed);
    }

    /// Removes the object at an address. Returns false if it was not listed.
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

    /// Returns all live objects. The caller drops them outside the lock, which the end of a
    /// communicator takes.
    fn live(&self) -> Vec<Arc<T>> {
        self.all.lock().by_address.values().filter_map(Weak::upgrade).collect()
    }

    /// The next few.
    pub(super) fn turns(&self) -> [Option<Arc<T>>; TURNS] {
        let mut next = [const { None }; TURNS];
        // Who finds it locked leaves the work to the other.
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

/// Adds a communicator.
pub(super) fn add(comm: &Arc<Comm>) {
    OPEN.add(comm);
}

/// Removes a communicator that ends.
pub(super) fn remove(comm: &Comm) {
    OPEN.remove(std::ptr::from_ref(comm).addr());
}

/// Adds a collective, or a message in parts, that was started and is not over.
pub(super) fn add_running(handle: dtl_request_t) {
    let mut running = RUNNING.lock();
    if running.all.len() >= running.swept_at {
        running.all.retain(|known| request::is_alive(*known));
        running.swept_at = (2 * running.all.len()).max(LEAST_SWEPT);
    }
    running.all.push_back(handle);
    running.count();
}

/// Adds a persistent operation that was started, unless it is still listed from its last start.
pub(super) fn add_running_again(handle: dtl_request_t) {
    if !RUNNING.lock().all.contains(&handle) {
        add_running(handle);
    }
}

/// Whether collectives that were started may need progress. A thread that waits then does not sleep
/// until it is woken.
#[inline]
pub(super) fn has_running() -> bool {
    MOVING.load(Ordering::Relaxed) >= RUNNING_ONE
}

/// Moves a request on. A failure is returned to the thread that waits for it.
fn move_on(handle: dtl_request_t) {
    drop(request::standing(handle));
}

/// After a look that found nothing: what else was started gets on, the parts of messages among it,
/// which calls copy.
#[inline]
pub(super) fn running() {
    if has_running() {
        move_running(move_on);
    }
}

/// Moves some collectives on that were started: the oldest, as long as they end, and a few of the
/// others in turn.
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

/// Those at the front that are over leave. False: the oldest is not over.
fn forget_oldest() -> bool {
    let Some(mut running) = RUNNING.try_lock() else { return false };
    let before = running.all.len();
    while running.all.front().is_some_and(|oldest| request::is_at_rest(*oldest)) {
        running.all.pop_front();
    }
    running.count();
    !running.all.is_empty() && running.all.len() < before
}

/// In a forked child: what the parent has is not moved on from here. Its communicators are never
/// dropped here, so they would be found.
pub(super) fn forget() {
    OPEN.clear();
    RUNNING.lock().all.clear();
    MOVING.store(0, Ordering::Relaxed);
}

/// Notes a link that comes (true) or goes.
pub(super) fn count(link: &SharedTransport, comes: bool) {
    if link.transport.properties().needs_progress {
        let _before = if comes {
            MOVING.fetch_add(1, Ordering::Relaxed)
        } else {
            MOVING.fetch_sub(1, Ordering::Relaxed)
        };
    }
}

/// Whether nothing is there that moves only during calls.
pub(super) fn is_idle() -> bool {
    MOVING.load(Ordering::Relaxed) == 0
}

/// Whether a call may stay in a transport that progresses on its own until the call is done.
pub(super) fn may_block() -> bool {
    is_idle() || has_settled()
}

/// Whether all that was started is over once it has been moved on: else the peer may wait for just
/// that.
#[cold]
#[inline(never)]
fn has_settled() -> bool {
    if MOVING.load(Ordering::Relaxed) % RUNNING_ONE != 0 {
        return false;
    }
    move_running(move_on);
    !has_running()
}

/// Runs a call that stays in its transport until it is done. If there are others that move only
/// during calls, a thread moves them on meanwhile.
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

/// Runs a backend's `open`, in which this thread moves nothing on. Where others may wait for an
/// answer of this rank before they come, a thread gives it meanwhile.
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

/// Has a thread do something over and over until a call is over.
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

/// Moves all communicators on before this thread waits in a backend's `open`, where it moves none:
/// ranks that come to this one's `open` later may still wait for what it has sent, or for its
/// answer to a report. The number of rounds is fixed, as no transport reports what is queued: what
/// it has no room for stays queued.
pub(super) fn before_open() {
    let mut comms: Vec<Arc<Comm>> = OPEN.live();
    let running: Vec<dtl_request_t> = RUNNING.lock().all.iter().copied().collect();
    comms.iter().for_each(|comm| hang_report::serve(comm));
    running.iter().for_each(|handle| move_on(*handle));
    // Those made from one another share their transport.
    comms.sort_by_key(|comm| Arc::as_ptr(&comm.link));
    comms.dedup_by(|one, other| Arc::ptr_eq(&one.link, &other.link));
    for _ in 0..ROUNDS_BEFORE_OPEN {
        comms.iter().for_each(|comm| comm.link.transport.progress());
        rma::rma_progress::serve_some();
    }
}

/// Moves the others on, and answers other ranks' queries. Call now and then in a long wait.
pub(super) fn others(waiting: &Comm) {
    hang_report::serve(waiting);
    if OPEN.len() > 1 {
        // Without the lock: a registered transport may open a communicator of its own.
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
