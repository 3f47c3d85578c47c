//! State of a thread that runs a function of the program between two short visits ([`Visit`]):
//! outside the epoch, and still in a call.

use super::{ThreadRecord, Visit};
use crate::sys::sync::Ordering;

impl Visit {
    /// Leaves the epoch to run a function of the program. Until the result is dropped, the thread
    /// counts as being in a call; no object is kept alive.
    #[inline]
    pub(crate) fn into_running(self) -> CallbackGuard {
        let record = self.inside.record;
        // Before the number becomes even: a thread that sees it even sees this store (release).
        record.running.store(record.running.load(Ordering::Relaxed) + 1, Ordering::Release);
        CallbackGuard { record }
    }
}

/// Guard of [`Visit::into_running`]. Its drop leaves deferred work to others or the next entry.
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
