//! A bell: wakes the threads that sleep until a post is on a board.
//!
//! The poster stores the stamp, then checks for sleepers; a thread that goes to sleep registers as
//! a sleeper, then checks the stamp once more. With a full fence between the two on both sides, at
//! least one sees the other. The number of rings is read before that, so a ring in between keeps
//! the kernel from putting it to sleep.

use crate::sys::sync::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::sys::sync::{AtomicU32, fence, futex};
use std::time::Duration;

/// Far enough from others that its line changes only when somebody goes to sleep.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Doorbell {
    sleepers: AtomicU32,
    rings: AtomicU32,
}

impl Doorbell {
    /// After a post.
    #[inline]
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

    /// Sleeps for `limit` at most, unless it is there.
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
