//! Doorbell: wakes threads that sleep until a message is published in a mailbox.
//!
//! The writer publishes a message by storing the message's stamp (communicator ID and message
//! number), then checks for sleepers. A thread that is about to sleep registers as a sleeper, then
//! checks the stamp once more. With a full fence between the two steps on both sides, at least one
//! side observes the store of the other. Before these steps, the thread reads how often the
//! doorbell has rung. If the doorbell rings in between, the thread's futex wait returns
//! immediately.

use crate::sys::sync::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::sys::sync::{AtomicU32, fence, futex};
use std::time::Duration;

/// Doorbell of a mailbox, aligned to separate it from other data, so that its cache line changes
/// only when a thread goes to sleep or is woken.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Doorbell {
    sleepers: AtomicU32,
    rings: AtomicU32,
}

impl Doorbell {
    /// Wakes sleeping threads. Must be called after a message is published.
    pub(super) fn ring(&self) {
        fence(SeqCst);
        if self.sleepers.load(Relaxed) > 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        self.rings.fetch_add(1, Release);
        futex::wake(&self.rings, u32::MAX);
    }

    /// Sleeps until the doorbell rings, for at most `limit`. Returns at once if `is_there` returns
    /// true, which means that the awaited message has been published.
    pub(super) fn sleep(&self, is_there: impl FnOnce() -> bool, limit: Duration) {
        let rings = self.rings.load(Acquire);
        self.sleepers.fetch_add(1, Relaxed);
        fence(SeqCst);
        if !is_there() {
            futex::wait_for(&self.rings, rings, limit);
        }
        self.sleepers.fetch_sub(1, Relaxed);
    }
}
