//! How much of a backend's memory there is, and whether more may be taken.

use super::memory::host_alloc;
use crate::error::{Result, fail};
use crate::runtime::registry::Backend;
use crate::sys::memory::heap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counters of one backend's allocations.
#[derive(Default)]
pub struct Usage {
    pub(super) live_bytes: AtomicU64,
    pub(super) peak_bytes: AtomicU64,
    /// Also those that are being allocated right now.
    pub(super) live_count: AtomicU64,
    pub(super) total_count: AtomicU64,
    /// Ranges of the program that are adopted or registered, each a `RangeUser`.
    range_count: AtomicU64,
    /// Set while the backend is being unregistered.
    closing: AtomicBool,
}

impl Usage {
    /// Allocations alive now.
    #[must_use]
    pub fn live_count(&self) -> u64 {
        self.live_count.load(Ordering::Acquire)
    }

    /// Before an allocation. It counts before it looks, and [`Usage::close`] marks before it
    /// counts: whichever comes second sees the other.
    pub(super) fn begin(&self, backend: &Backend) -> Result<()> {
        self.live_count.fetch_add(1, Ordering::SeqCst);
        self.check_open(backend).inspect_err(|_| self.give_up())
    }

    fn check_open(&self, backend: &Backend) -> Result<()> {
        if self.closing.load(Ordering::SeqCst) {
            return fail!(
                DTL_ERROR_BUSY,
                "another thread is unregistering backend {}",
                backend.name()
            );
        }
        Ok(())
    }

    /// The allocation that was begun came to nothing.
    pub(super) fn give_up(&self) {
        self.live_count.fetch_sub(1, Ordering::Release);
    }

    /// Adopted and registered ranges.
    #[must_use]
    pub fn range_count(&self) -> u64 {
        self.range_count.load(Ordering::Acquire)
    }

    /// Refuses allocations and ranges from now on. Returns false and changes nothing if there are
    /// any.
    #[must_use]
    pub fn close(&self) -> bool {
        self.closing.store(true, Ordering::SeqCst);
        let unused = self.live_count.load(Ordering::SeqCst) == 0
            && self.range_count.load(Ordering::SeqCst) == 0;
        if !unused {
            self.closing.store(false, Ordering::SeqCst);
        }
        unused
    }

    /// `with_plain`: the peak is that of the plain memory and this together.
    pub(super) fn grew(&self, bytes: u64, with_plain: bool) {
        if with_plain {
            heap::count_bytes(host_alloc::NO_POOL, bytes as i64);
        }
        let live = self.live_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak_bytes.fetch_max(live, Ordering::Relaxed);
        self.total_count.fetch_add(1, Ordering::Relaxed);
    }

    /// One was given back.
    pub(super) fn shrank(&self, bytes: u64, with_plain: bool) {
        if with_plain {
            heap::count_bytes(host_alloc::NO_POOL, -(bytes as i64));
        }
        self.live_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.live_count.fetch_sub(1, Ordering::Release);
    }
}

/// Keeps a backend registered while a range of the program's memory is adopted by it or registered
/// with it.
pub(super) struct RangeUser(Arc<Backend>);

impl RangeUser {
    /// Fails if the backend is being unregistered. The order of the accesses is that of
    /// [`Usage::begin`].
    pub(super) fn new(backend: &Arc<Backend>) -> Result<Self> {
        backend.memory_use.range_count.fetch_add(1, Ordering::SeqCst);
        let user = RangeUser(Arc::clone(backend));
        user.memory_use.check_open(&user)?;
        Ok(user)
    }

    pub(super) fn is_of(&self, backend: &Arc<Backend>) -> bool {
        Arc::ptr_eq(&self.0, backend)
    }
}

impl Deref for RangeUser {
    type Target = Backend;

    fn deref(&self) -> &Backend {
        &self.0
    }
}

impl Drop for RangeUser {
    fn drop(&mut self) {
        self.memory_use.range_count.fetch_sub(1, Ordering::Release);
    }
}
