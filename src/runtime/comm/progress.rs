//! Progress of every communicator of the process while a call waits on one of them: a peer may need
//! our part of a large message on another before it can answer on this one.
//!
//! Not for the waited-for communicator itself: asking after the operation moves that.

use super::Comm;
use crate::sys::lock::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

static OPEN: Mutex<Vec<Weak<Comm>>> = Mutex::new(Vec::new());
/// Its length, so that a program with one communicator takes no lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Adds a communicator; who is gone leaves the list here.
pub(super) fn add(comm: &Arc<Comm>) {
    let mut open = OPEN.lock();
    open.retain(|comm| comm.strong_count() > 0);
    open.push(Arc::downgrade(comm));
    COUNT.store(open.len(), Ordering::Relaxed);
}

/// Moves the others on. Call now and then in a long wait.
pub(super) fn others(waiting: &Comm) {
    if COUNT.load(Ordering::Relaxed) < 2 {
        return;
    }
    // Without the lock: a registered transport may open a communicator of its own.
    let open: Vec<_> = OPEN.lock().iter().filter_map(Weak::upgrade).collect();
    for comm in open {
        if !std::ptr::eq(comm.as_ref(), waiting) {
            comm.transport.progress();
        }
    }
}
