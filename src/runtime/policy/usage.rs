//! Counters that every submit writes: the number of selections of each resource, and the
//! round-robin position. Each thread has its own row of counters, so that threads share no cache
//! line.
//!
//! Only the thread that owns a row writes it, with plain loads and stores. A later thread that gets
//! the number of an exited thread sees all writes of the exited thread (see `sys::handles::epoch`).
//! Threads with numbers beyond the last row share an additional row, with atomic additions. Readers
//! sum the rows; the sums are exact while no thread submits.

use crate::sys::sync::{AtomicU64, Ordering};

/// Number of rows of counters that have exactly one writer thread each.
const ROWS: usize = 63;
/// Number of counters in 128 bytes. This is also the number of padding counters at each end of a
/// row: two cache lines, because a prefetcher loads lines in pairs.
const LINE: usize = 16;

/// Row of counters: padding, the round-robin position (next resource) at index LINE, the number of
/// selections of each resource, and padding.
struct UsageRow(Box<[AtomicU64]>);

/// Number of selections of each resource, and the round-robin position (next resource), in one row
/// of counters per thread.
pub(super) struct Counts {
    rows: [UsageRow; ROWS],
    shared: UsageRow,
    resources: usize,
}

impl UsageRow {
    /// Creates a row of zero counts. The round-robin order starts at a different resource for each
    /// thread; otherwise the first resource would get the first task of every thread.
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

    /// Counts a selection of the resource `index`. Called only by the thread that owns this row of
    /// counters.
    #[inline(always)] // row: select_tuned
    fn add(&self, index: usize) {
        if let Some(count) = self.count(index) {
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }
}

impl Counts {
    /// Creates counters for `resources` resources, with all counts 0.
    pub(super) fn new(resources: usize) -> Self {
        Counts {
            rows: std::array::from_fn(|thread| UsageRow::new(resources, thread)),
            shared: UsageRow::new(resources, ROWS),
            resources,
        }
    }

    /// Counts a selection of the resource `index` by the thread with the number `thread`.
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

    /// Selects the next resource in the round-robin order of the thread, counts the selection and
    /// returns the index of the resource.
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

    /// Returns how many times the resource `index` has been selected.
    pub(super) fn of(&self, index: usize) -> u64 {
        let rows = self.rows.iter().chain([&self.shared]);
        rows.filter_map(|row| row.count(index)).map(|count| count.load(Ordering::Relaxed)).sum()
    }
}
