//! A thread that runs a function of the program's between two short stays ([`Visit`]): outside, and
//! still in a call.

use super::{ThreadRecord, Visit};
use crate::sys::sync::Ordering;

impl Visit {
    /// Leaves for a function of the program's. Until the result is dropped, the thread counts as in
    /// a call; nothing is kept alive.
    #[inline]
    pub(in crate::sys) fn into_running(self) -> CallbackGuard {
        let record = self.inside.record;
        // Before the sequence number becomes even: a thread that sees that sees this (release).
        record.running.store(record.running.load(Ordering::Relaxed) + 1, Ordering::Release);
        CallbackGuard { record }
    }
}

/// See [`Visit::into_running`]. Errands are left to others, or to the next entry.
pub struct CallbackGuard {
    record: &'static ThreadRecord,
}

impl Drop for CallbackGuard {
    #[inline]
    fn drop(&mut self) {
        let running = self.record.running.load(Ordering::Relaxed);
        self.record.running.store(running.wrapping_sub(1), Ordering::Release);
    }
}
