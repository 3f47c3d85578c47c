//! Counters that every submit writes: selections per resource, and the next turn. Each thread has a
//! row, so that threads share no cache line.
//!
//! A row is written by its thread alone, with plain loads and stores; a later thread that gets the
//! number of an ended one sees what that wrote (see `sys::handles::epoch`). Threads beyond the last
//! row share one more, with atomic additions. Readers add the rows up: while no thread submits the
//! sums are exact.

use crate::sys::sync::{AtomicU64, Ordering};

/// Rows that one thread writes.
const ROWS: usize = 63;
/// Numbers in a line, which is two of the cache's: a prefetcher takes pairs. So many are left free
/// at a row's ends.
const LINE: usize = 16;

/// The turn at LINE, then the resources' counts, with a cache line of padding around them.
struct UsageRow(Box<[AtomicU64]>);

/// Selections per resource and the round-robin turn, in one row per thread.
pub(super) struct Counts {
    rows: [UsageRow; ROWS],
    shared: UsageRow,
    resources: usize,
}

impl UsageRow {
    /// Threads begin at different resources, or the first would get the first task of each.
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

    /// By the row's own thread.
    #[inline(always)] // row: select_tuned
    fn add(&self, index: usize) {
        if let Some(count) = self.count(index) {
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }
}

impl Counts {
    /// Nothing selected yet of so many resources.
    #[must_use]
    pub(super) fn new(resources: usize) -> Self {
        Counts {
            rows: std::array::from_fn(|thread| UsageRow::new(resources, thread)),
            shared: UsageRow::new(resources, ROWS),
            resources,
        }
    }

    /// The thread has selected a resource.
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

    /// The thread selects the resource whose turn it is.
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

    /// How often a resource was selected.
    #[must_use]
    pub(super) fn of(&self, index: usize) -> u64 {
        let rows = self.rows.iter().chain([&self.shared]);
        rows.filter_map(|row| row.count(index)).map(|count| count.load(Ordering::Relaxed)).sum()
    }
}
