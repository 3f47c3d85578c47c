//! Usage counters of a backend's memory, and rejection of allocations while the backend is being
//! unregistered.

use super::Backend;
use crate::error::{Result, fail};
use crate::sys::memory::heap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// Tag (the number that selects the statistics) of those blocks of the host allocator that do not
/// belong to a memory pool.
pub const NO_POOL: u8 = 0;

/// Counters of one backend's allocations.
#[derive(Default)]
pub struct Usage {
    pub(crate) live_bytes: AtomicU64,
    pub(crate) peak_bytes: AtomicU64,
    /// Number of live allocations, including allocations in progress.
    pub(crate) live_count: AtomicU64,
    pub(crate) total_count: AtomicU64,
    /// Number of memory ranges that the application has passed to `dtl_mem_adopt` or
    /// `dtl_mem_register_host` for the backend and has not yet released. Each has a `RangeUser`.
    pub(super) range_count: AtomicU64,
    /// True while the backend is being unregistered.
    closing: AtomicBool,
}

impl Usage {
    /// Counts an allocation before it is made; fails while the backend is being unregistered. This
    /// function increments `live_count` before it reads `closing`, and [`Usage::close`] sets
    /// `closing` before it reads the counts. All four accesses are sequentially consistent, so at
    /// least one of the two functions reads the write of the other. (The fence in `close` is for
    /// qemu: on x86 it does not keep Arm's store-release before a later load-acquire.)
    pub(crate) fn begin(&self, backend: &Backend) -> Result<()> {
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

    /// Reverts [`Usage::begin`] after an allocation has failed.
    pub(crate) fn give_up(&self) {
        self.live_count.fetch_sub(1, Ordering::Release);
    }

    /// Rejects, for the backend, further allocations and further calls to `dtl_mem_adopt` and
    /// `dtl_mem_register_host`. If the backend still has an allocation, or a memory range from such
    /// a call, withdraws the rejection and returns false.
    pub fn close(&self) -> bool {
        self.closing.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let unused = self.live_count.load(Ordering::SeqCst) == 0
            && self.range_count.load(Ordering::SeqCst) == 0;
        if !unused {
            self.closing.store(false, Ordering::SeqCst);
        }
        unused
    }

    /// Counts a new allocation of `bytes` bytes. If `with_plain` is true, adds the bytes to the
    /// host allocator's counters as well, so that their peak covers the memory of the host
    /// allocator and of the backend together.
    pub(crate) fn grew(&self, bytes: u64, with_plain: bool) {
        if with_plain {
            heap::count_bytes(NO_POOL, bytes as i64);
        }
        let live = self.live_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak_bytes.fetch_max(live, Ordering::Relaxed);
        self.total_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the release of an allocation of `bytes` bytes. `with_plain` has the same meaning as
    /// in [`Usage::grew`].
    pub(crate) fn shrank(&self, bytes: u64, with_plain: bool) {
        if with_plain {
            heap::count_bytes(NO_POOL, -(bytes as i64));
        }
        self.live_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.live_count.fetch_sub(1, Ordering::Release);
    }
}

/// Guard for one memory range that the application has passed to `dtl_mem_adopt` or
/// `dtl_mem_register_host`. It keeps the backend registered until the range is released.
pub struct RangeUser(Arc<Backend>);

impl RangeUser {
    /// Counts a memory range that is passed to `dtl_mem_adopt` or `dtl_mem_register_host`; fails
    /// while the backend is being unregistered. The memory ordering is the same as in
    /// [`Usage::begin`].
    pub(crate) fn new(backend: &Arc<Backend>) -> Result<Self> {
        backend.memory_use.range_count.fetch_add(1, Ordering::SeqCst);
        let user = RangeUser(Arc::clone(backend));
        user.memory_use.check_open(&user)?;
        Ok(user)
    }

    pub(crate) fn is_of(&self, backend: &Arc<Backend>) -> bool {
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
