//! How much is allocated: counters of each thread, and the peak of all of them together.
//!
//! A thread counts in numbers of its own. For the peak it charges what it holds to a total that all
//! share, and only when it holds more than it has charged; what it frees it gives back to the total
//! now and then. So the total is never less than what is allocated, and the peak is exact as long
//! as one thread allocates, else an upper bound (see `dtl_mem_stats_t`).

use super::relaxed_cell::Number;
use std::sync::atomic::{AtomicI64, Ordering};

/// Number of accounts. 0 is that of `dtl_mem_alloc`, the others are pools'.
pub const TAGS: usize = 64;
/// Frees of a thread after which it looks after its account and its mail.
pub(super) const ROUND: usize = 256;
/// So much may stay charged.
const SLACK: i64 = 1 << 20;

struct Total {
    charged: AtomicI64,
    peak: AtomicI64,
}

static TOTALS: [Total; TAGS] =
    [const { Total { charged: AtomicI64::new(0), peak: AtomicI64::new(0) } }; TAGS];

/// Charges (or, below 0, gives back) bytes of an account.
fn charge(tag: usize, bytes: i64) {
    if let Some(total) = TOTALS.get(tag) {
        let now = total.charged.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if now > total.peak.load(Ordering::Relaxed) {
            total.peak.fetch_max(now, Ordering::Relaxed);
        }
    }
}

/// The most that was charged at once.
pub(super) fn peak(tag: usize) -> u64 {
    TOTALS.get(tag).map_or(0, |total| total.peak.load(Ordering::Relaxed).max(0) as u64)
}

/// Begins an account, or all anew.
pub(super) fn reset(tag: usize) {
    if let Some(total) = TOTALS.get(tag) {
        total.charged.store(0, Ordering::Relaxed);
        total.peak.store(0, Ordering::Relaxed);
    }
}

/// A thread's counters of one account. The blocks that it frees may have been allocated by others,
/// so a single thread's numbers have no meaning alone, and its balance may be below 0.
#[derive(Default)]
pub(super) struct ThreadStats {
    /// Charged to the total.
    charged: Number,
    /// How much of that it does not hold.
    room: Number,
    allocs: Number,
    frees: Number,
}

/// The counters of all threads, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    /// Bytes allocated and not freed.
    pub(super) live_bytes: i64,
    /// Allocations.
    pub(super) allocs: u64,
    /// Frees.
    pub(super) frees: u64,
}

impl ThreadStats {
    /// After an allocation. True: `settle` is due.
    #[inline]
    pub(super) fn took(&self, size: usize) -> bool {
        self.allocs.add(1);
        let room = self.room.get().wrapping_sub(size);
        self.room.set(room);
        (room as i64) < 0
    }

    /// After a free. True now and then: time for `settle` and for the mail.
    #[inline]
    pub(super) fn gave(&self, size: usize) -> bool {
        self.room.add(size);
        let frees = self.frees.get().wrapping_add(1);
        self.frees.set(frees);
        frees % ROUND == 0
    }

    /// Charges what is held and not charged, and gives back what is charged too much.
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

    /// Has nothing charged that it does not hold; the total is reset by the caller.
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

    /// All from 0, when nobody uses them.
    pub(super) fn clear(&self) {
        self.charged.set(0);
        self.room.set(0);
        self.allocs.set(0);
        self.frees.set(0);
    }
}
