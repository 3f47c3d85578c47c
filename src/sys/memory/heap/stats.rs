//! Allocation statistics for each tag (a number that the caller assigns to a block): counters in
//! the heap of each thread, and the peak number of bytes that all threads together have allocated.
//!
//! Each thread has its own counters. For the peak, all threads share one total for each tag. A
//! thread adds bytes to the total (charges them) only when it has allocated more bytes than it has
//! charged. It subtracts freed bytes from the total only at intervals, so the total is never less
//! than the number of allocated bytes. The peak is exact while only one thread allocates; otherwise
//! it is an upper bound (see `dtl_mem_stats_t`).

use super::relaxed_cell::Number;
use std::sync::atomic::{AtomicI64, Ordering};

/// Number of tags, each with statistics of its own. `dtl_mem_alloc` uses tag 0; pools use the other
/// tags.
pub const TAGS: usize = 64;
/// Number of blocks with one tag that a thread frees before it must call `Heap::housekeeping`.
pub(super) const ROUND: usize = 256;
/// Maximum number of bytes that `settle` leaves in the total of a tag although the thread, which
/// added them in advance, has not allocated them.
const SLACK: i64 = 1 << 20;

struct Total {
    charged: AtomicI64,
    peak: AtomicI64,
}

static TOTALS: [Total; TAGS] =
    [const { Total { charged: AtomicI64::new(0), peak: AtomicI64::new(0) } }; TAGS];

/// Adds `bytes`, which may be negative, to the total number of allocated bytes of a tag, and
/// updates the peak.
fn charge(tag: usize, bytes: i64) {
    if let Some(total) = TOTALS.get(tag) {
        let now = total.charged.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if now > total.peak.load(Ordering::Relaxed) {
            total.peak.fetch_max(now, Ordering::Relaxed);
        }
    }
}

/// Returns the peak of the total number of allocated bytes of a tag.
pub(super) fn peak(tag: usize) -> u64 {
    TOTALS.get(tag).map_or(0, |total| total.peak.load(Ordering::Relaxed).max(0) as u64)
}

/// Resets the total and the peak of a tag to 0.
pub(super) fn reset(tag: usize) {
    if let Some(total) = TOTALS.get(tag) {
        total.charged.store(0, Ordering::Relaxed);
        total.peak.store(0, Ordering::Relaxed);
    }
}

/// Counters of one thread for the blocks with one tag. A thread may free blocks that other threads
/// have allocated, so only the sum over all threads is meaningful. The difference between the
/// allocated and the freed bytes of one thread may be negative.
#[derive(Default)]
pub(super) struct ThreadStats {
    /// Number of bytes that this thread has added to the total of the tag (`TOTALS`), minus those
    /// that it has subtracted.
    charged: Number,
    /// Number of bytes that this thread has added to the total of the tag in advance but not
    /// allocated.
    room: Number,
    allocs: Number,
    frees: Number,
}

/// Sum of the counters of all threads for one tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    /// Number of bytes that are allocated and not freed yet.
    pub(super) live_bytes: i64,
    /// Number of allocations.
    pub(super) allocs: u64,
    /// Number of frees.
    pub(super) frees: u64,
}

impl ThreadStats {
    /// Counts an allocation of `size` bytes. Returns true if `settle` must be called afterwards.
    pub(super) fn took(&self, size: usize) -> bool {
        self.allocs.add(1);
        let room = self.room.get().wrapping_sub(size);
        self.room.set(room);
        (room as i64) < 0
    }

    /// Counts a free of `size` bytes. Returns true on every `ROUND`-th free: the caller must then
    /// call `housekeeping`.
    pub(super) fn gave(&self, size: usize) -> bool {
        self.room.add(size);
        let frees = self.frees.get().wrapping_add(1);
        self.frees.set(frees);
        frees % ROUND == 0
    }

    /// Adds to the total of the tag the bytes that this thread has allocated but not added yet.
    /// Subtracts from this total the bytes that the thread has added in advance and not allocated,
    /// if there are more than `SLACK` of them.
    pub(super) fn settle(&self, tag: usize) {
        let room = self.room.get();
        if !(0..=SLACK).contains(&(room as i64)) {
            self.charged.sub(room);
            self.room.set(0);
            charge(tag, (room as i64).wrapping_neg());
        }
    }

    /// Adds `bytes`, which may be negative, to the number of allocated bytes by subtracting them
    /// from `room`. Does not count an allocation.
    pub(super) fn shift(&self, tag: usize, bytes: i64) {
        self.room.sub(bytes as usize);
        if (self.room.get() as i64) < 0 {
            self.settle(tag);
        }
    }

    /// Resets to 0 the number of bytes that this thread has added to the total of the tag in
    /// advance. The caller resets the total.
    pub(super) fn level(&self) {
        self.charged.sub(self.room.get());
        self.room.set(0);
    }

    /// Adds these counters to a sum.
    pub(super) fn add_to(&self, sum: &mut Sum) {
        let holds = self.charged.get().wrapping_sub(self.room.get());
        sum.live_bytes = sum.live_bytes.wrapping_add(holds as i64);
        sum.allocs = sum.allocs.wrapping_add(self.allocs.get() as u64);
        sum.frees = sum.frees.wrapping_add(self.frees.get() as u64);
    }

    /// Resets all counters to 0. No thread may be using them.
    pub(super) fn clear(&self) {
        self.charged.set(0);
        self.room.set(0);
        self.allocs.set(0);
        self.frees.set(0);
    }
}
