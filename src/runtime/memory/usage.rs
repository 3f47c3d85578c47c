//! How much of a backend's memory there is, and whether more may be taken.

use crate::error::{Result, fail};
use crate::runtime::plain;
use crate::runtime::registry::Backend;
use crate::sys::heap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counters of one backend's allocations.
#[derive(Default)]
pub struct Usage {
    pub(super) live_bytes: AtomicU64,
    pub(super) peak_bytes: AtomicU64,
    /// Also those that are being allocated right now.
    pub(super) live_count: AtomicU64,
    pub(super) total_count: AtomicU64,
    /// Set while the backend is being unregistered.
    closing: AtomicBool,
}

impl Usage {
    /// Allocations alive now.
    #[must_use]
    pub fn live_count(&self) -> u64 {
        self.live_count.load(Ordering::Acquire)
    }

    /// Before an allocation. It counts before it looks, and [`Usage::close`] marks before it counts:
    /// whichever comes second sees the other.
    pub(super) fn begin(&self, backend: &Backend) -> Result<()> {
        self.live_count.fetch_add(1, Ordering::SeqCst);
        if self.closing.load(Ordering::SeqCst) {
            self.give_up();
            return fail!(DTL_ERROR_BUSY, "another thread is unregistering backend {}", backend.name());
        }
        Ok(())
    }

    /// The allocation that was begun came to nothing.
    pub(super) fn give_up(&self) {
        self.live_count.fetch_sub(1, Ordering::Release);
    }

    /// Lets nobody allocate any more. False, and nothing changed, if there are live allocations.
    #[must_use]
    pub fn close(&self) -> bool {
        self.closing.store(true, Ordering::SeqCst);
        let unused = self.live_count.load(Ordering::SeqCst) == 0;
        if !unused {
            self.closing.store(false, Ordering::SeqCst);
        }
        unused
    }

    /// `with_plain`: the peak is that of the plain memory and this together.
    pub(super) fn grew(&self, bytes: u64, with_plain: bool) {
        if with_plain {
            heap::count_bytes(plain::NO_POOL, bytes as i64);
        }
        let live = self.live_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak_bytes.fetch_max(live, Ordering::Relaxed);
        self.total_count.fetch_add(1, Ordering::Relaxed);
    }

    /// One was given back.
    pub(super) fn shrank(&self, bytes: u64, with_plain: bool) {
        if with_plain {
            heap::count_bytes(plain::NO_POOL, -(bytes as i64));
        }
        self.live_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.live_count.fetch_sub(1, Ordering::Release);
    }
}
