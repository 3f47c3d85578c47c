//! Counters that every submit writes: selections per resource, and the round-robin turn. Each
//! thread has its own row, so that threads share no cache line.
//!
//! Only its own thread writes a row, with plain loads and stores. A later thread that gets the
//! number of an ended thread sees all writes of the ended thread (see `sys::handles::epoch`).
//! Threads with numbers beyond the last row share an additional row, with atomic additions. Readers
//! sum the rows; the sums are exact while no thread submits.

use crate::sys::sync::{AtomicU64, Ordering};

/// Number of rows that a single thread writes.
const ROWS: usize = 63;
/// Counters in 128 bytes: two cache lines, because a prefetcher loads lines in pairs. Also the
/// number of padding counters at each end of a row.
const LINE: usize = 16;

/// Row of counters: padding, the turn at index LINE, the counts of the resources, padding.
struct UsageRow(Box<[AtomicU64]>);

/// Selections per resource and the round-robin turn, in one row per thread.
pub(super) struct Counts {
    rows: [UsageRow; ROWS],
    shared: UsageRow,
    resources: usize,
}

impl UsageRow {
    /// Creates a row of zero counts. The turn starts at a different resource for each thread;
    /// otherwise the first resource would get the first task of every thread.
    fn new(resources: usize, thread: usize) -> Self {
        let row = UsageRow((0..LINE + 1 + resources + LINE).map(|_| AtomicU64::new(0)).collect());
        if let Some(turn) = row.turn() {
            turn.store((thread % resources.max(1)) as u64, Ordering::Relaxed);
        }
        row
    }

    fn turn(&self) -> Option<&AtomicU64> {
        self.0.get(LINE)
    }

    fn count(&self, index: usize) -> Option<&AtomicU64> {
        self.0.get(LINE + 1 + index)
    }

    /// Counts a selection of the resource `index`. Called only by the thread that owns the row.
    #[inline(always)] // row: select_tuned
    fn add(&self, index: usize) {
        if let Some(count) = self.count(index) {
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }
}

impl Counts {
    /// Creates counters of 0 for this number of resources.
    pub(super) fn new(resources: usize) -> Self {
        Counts {
            rows: std::array::from_fn(|thread| UsageRow::new(resources, thread)),
            shared: UsageRow::new(resources, ROWS),
            resources,
        }
    }

    /// Counts that the thread `thread` has selected the resource `index`.
    #[inline(always)] // row: select_tuned
    pub(super) fn add(&self, thread: usize, index: usize) {
        match self.rows.get(thread) {
            Some(own) => own.add(index),
            None => self.add_shared(index),
        }
    }

    #[cold]
    fn add_shared(&self, index: usize) {
        if let Some(count) = self.shared.count(index) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Selects the resource whose turn it is for the thread, and counts the selection. Returns its
    /// index.
    #[inline]
    #[must_use]
    pub(super) fn take_turn(&self, thread: usize) -> usize {
        let Some(own) = self.rows.get(thread) else { return self.take_turn_shared() };
        let Some(turn) = own.turn() else { return 0 };
        let now = turn.load(Ordering::Relaxed) as usize;
        let next = if now + 1 < self.resources { now + 1 } else { 0 };
        turn.store(next as u64, Ordering::Relaxed);
        own.add(now);
        now
    }

    #[cold]
    fn take_turn_shared(&self) -> usize {
        let turn = self.shared.turn().map_or(0, |turn| turn.fetch_add(1, Ordering::Relaxed));
        let now = (turn % self.resources as u64) as usize;
        self.add_shared(now);
        now
    }

    /// Returns the number of selections of the resource `index`.
    pub(super) fn of(&self, index: usize) -> u64 {
        let rows = self.rows.iter().chain([&self.shared]);
        rows.filter_map(|row| row.count(index)).map(|count| count.load(Ordering::Relaxed)).sum()
    }
}
