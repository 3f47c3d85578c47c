//! Progress of every communicator of the process while a call waits on one of them: a peer may need
//! our part of a large message, or of a collective that was only started, before it can answer.
//!
//! Not for the waited-for operation itself: asking after it moves that.

use super::request::Request;
use super::{Comm, report};
use crate::sys::lock::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Others that one call looks after: with many communicators they take turns.
const TURNS: usize = 4;

/// How often each transport is moved on before this thread goes into an `open`.
const ROUNDS_BEFORE_OPEN: usize = 32;

/// Things that want to be moved on, and their number so that nothing is locked where there are none.
struct List<T> {
    all: Mutex<Vec<Weak<T>>>,
    count: AtomicUsize,
    turn: AtomicUsize,
}

static OPEN: List<Comm> = List::new();
static RUNNING: List<Request> = List::new();

impl<T> List<T> {
    const fn new() -> Self {
        List { all: Mutex::new(Vec::new()), count: AtomicUsize::new(0), turn: AtomicUsize::new(0) }
    }

    /// Adds one; who is gone leaves the list here.
    fn add(&self, what: &Arc<T>) {
        let mut all = self.all.lock();
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(what));
        self.count.store(all.len(), Ordering::Relaxed);
    }

    /// The next few.
    fn turns(&self) -> [Option<Arc<T>>; TURNS] {
        let mut next = [const { None }; TURNS];
        // Who finds it locked leaves the work to the other.
        let Some(mut all) = self.all.try_lock() else { return next };
        all.retain(|known| known.strong_count() > 0);
        self.count.store(all.len(), Ordering::Relaxed);
        let turns = TURNS.min(all.len());
        let first = self.turn.fetch_add(turns, Ordering::Relaxed);
        for (step, slot) in next.iter_mut().enumerate().take(turns) {
            *slot = all.get(first.wrapping_add(step) % all.len()).and_then(Weak::upgrade);
        }
        next
    }
}

/// Adds a communicator.
pub(super) fn add(comm: &Arc<Comm>) {
    OPEN.add(comm);
}

/// Adds a collective that was started and is not over.
pub(super) fn add_running(request: &Arc<Request>) {
    RUNNING.add(request);
}

/// Moves all communicators on before this thread waits in a backend's `open`, where it moves none: ranks
/// that come to this one's `open` later may still wait for what it has sent, or for its answer to a report.
/// A fixed number of rounds, as nobody says what is queued: what a transport has no room for stays.
pub(super) fn before_open() {
    let mut comms: Vec<Arc<Comm>> = OPEN.all.lock().iter().filter_map(Weak::upgrade).collect();
    let running: Vec<Arc<Request>> = RUNNING.all.lock().iter().filter_map(Weak::upgrade).collect();
    comms.iter().for_each(|comm| report::serve(comm));
    running.iter().for_each(|request| drop(request.settle()));
    // Those made from one another share their transport.
    comms.sort_by_key(|comm| Arc::as_ptr(&comm.link));
    comms.dedup_by(|one, other| Arc::ptr_eq(&one.link, &other.link));
    for _ in 0..ROUNDS_BEFORE_OPEN {
        comms.iter().for_each(|comm| comm.link.transport.progress());
    }
}

/// Moves the others on, and serves who asks after us. Call now and then in a long wait.
pub(super) fn others(waiting: &Comm) {
    report::serve(waiting);
    if OPEN.count.load(Ordering::Relaxed) > 1 {
        // Without the lock: a registered transport may open a communicator of its own.
        for comm in OPEN.turns().iter().flatten() {
            if !std::ptr::eq(comm.as_ref(), waiting) {
                comm.link.transport.progress();
                report::serve(comm);
            }
        }
    }
    if RUNNING.count.load(Ordering::Relaxed) > 0 {
        for request in RUNNING.turns().iter().flatten() {
            drop(request.settle());
        }
    }
}
