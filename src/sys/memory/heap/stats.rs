//! Allocation statistics: counters of each thread, and the peak of all threads together.
//!
//! A thread counts in counters of its own. For the peak, it charges its allocated bytes to a total
//! that all threads share, and only when it has allocated more than it has charged. It returns the
//! bytes that it has freed to the total at intervals. So the total is never less than the allocated
//! bytes. The peak is exact as long as one thread allocates, else an upper bound (see
//! `dtl_mem_stats_t`).

use super::relaxed_cell::Number;
use std::sync::atomic::{AtomicI64, Ordering};

/// Number of accounts. Account 0 is that of `dtl_mem_alloc`; pools use the others.
pub const TAGS: usize = 64;
/// Number of frees of a thread in one account between two runs of `housekeeping`.
pub(super) const ROUND: usize = 256;
/// Maximum number of bytes that a thread may leave charged to the total but not allocated.
const SLACK: i64 = 1 << 20;

struct Total {
    charged: AtomicI64,
    peak: AtomicI64,
}

static TOTALS: [Total; TAGS] =
    [const { Total { charged: AtomicI64::new(0), peak: AtomicI64::new(0) } }; TAGS];

/// Charges `bytes` to the total of an account; a negative number is returned to the total.
fn charge(tag: usize, bytes: i64) {
    if let Some(total) = TOTALS.get(tag) {
        let now = total.charged.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if now > total.peak.load(Ordering::Relaxed) {
            total.peak.fetch_max(now, Ordering::Relaxed);
        }
    }
}

/// Returns the maximum number of bytes that were charged at once.
pub(super) fn peak(tag: usize) -> u64 {
    TOTALS.get(tag).map_or(0, |total| total.peak.load(Ordering::Relaxed).max(0) as u64)
}

/// Resets the total and the peak of an account to 0.
pub(super) fn reset(tag: usize) {
    if let Some(total) = TOTALS.get(tag) {
        total.charged.store(0, Ordering::Relaxed);
        total.peak.store(0, Ordering::Relaxed);
    }
}

/// Counters of one account in one thread. Other threads may have allocated the blocks that a thread
/// frees, so the counters of a single thread have no meaning alone, and its balance may be below 0.
#[derive(Default)]
pub(super) struct ThreadStats {
    /// Number of bytes charged to the total.
    charged: Number,
    /// Number of the charged bytes that are not allocated.
    room: Number,
    allocs: Number,
    frees: Number,
}

/// Sum of the counters of all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    /// Number of bytes allocated and not freed.
    pub(super) live_bytes: i64,
    /// Number of allocations.
    pub(super) allocs: u64,
    /// Number of frees.
    pub(super) frees: u64,
}

impl ThreadStats {
    /// Counts an allocation of `size` bytes. Returns true if `settle` is due.
    pub(super) fn took(&self, size: usize) -> bool {
        self.allocs.add(1);
        let room = self.room.get().wrapping_sub(size);
        self.room.set(room);
        (room as i64) < 0
    }

    /// Counts a free of `size` bytes. Returns true on every `ROUND`-th free: `housekeeping` is due.
    pub(super) fn gave(&self, size: usize) -> bool {
        self.room.add(size);
        let frees = self.frees.get().wrapping_add(1);
        self.frees.set(frees);
        frees % ROUND == 0
    }

    /// Charges the bytes allocated but not charged, and returns excess charges to the total.
    pub(super) fn settle(&self, tag: usize) {
        let room = self.room.get();
        if !(0..=SLACK).contains(&(room as i64)) {
            self.charged.sub(room);
            self.room.set(0);
            charge(tag, (room as i64).wrapping_neg());
        }
    }

    /// Counts bytes without an allocation.
    pub(super) fn shift(&self, tag: usize, bytes: i64) {
        self.room.sub(bytes as usize);
        if (self.room.get() as i64) < 0 {
            self.settle(tag);
        }
    }

    /// Removes all excess charges of this thread; the caller resets the total.
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
