//! What every submit writes: how often each resource was selected, and whose turn is next. A row for each thread, so
//! that threads share no cache line.
//!
//! A row is written by its thread alone, with plain loads and stores; a later thread that gets the number of an ended
//! one sees what that wrote (see `sys::epoch`). Threads beyond the last row share it, with atomic additions. Readers
//! add the rows up: while nobody submits the sums are exact.

use crate::sys::sync::{AtomicU64, Ordering};

/// Rows; the last one is shared.
const ROWS: usize = 64;
/// Numbers in a line, which is two of the cache's: a prefetcher takes pairs.
const LINE: usize = 16;

#[repr(align(128))]
struct Line([AtomicU64; LINE]);

/// See the module's text.
pub(super) struct Counts {
    lines: Box<[Line]>,
    lines_of_row: usize,
    resources: usize,
}

/// A row and who may write it.
#[derive(Clone, Copy)]
struct Row {
    first: usize,
    is_shared: bool,
}

impl Counts {
    /// Nothing selected yet of so many resources.
    #[must_use]
    pub(super) fn new(resources: usize) -> Self {
        let lines_of_row = (resources + 1).div_ceil(LINE);
        let line = |_| Line(std::array::from_fn(|_| AtomicU64::new(0)));
        let counts = Counts { lines: (0..ROWS * lines_of_row).map(line).collect(), lines_of_row, resources };
        // Threads begin at different resources, or the first would get the first task of each.
        for thread in 0..ROWS {
            if let Some(turn) = counts.cell(counts.row(thread), 0) {
                turn.store((thread % resources.max(1)) as u64, Ordering::Relaxed);
            }
        }
        counts
    }

    #[inline(always)]
    fn row(&self, thread: usize) -> Row {
        let row = thread.min(ROWS - 1);
        Row { first: row * self.lines_of_row, is_shared: row == ROWS - 1 }
    }

    /// Place 0 is whose turn it is, then come the resources.
    #[inline(always)]
    fn cell(&self, row: Row, place: usize) -> Option<&AtomicU64> {
        self.lines.get(row.first + place / LINE)?.0.get(place % LINE)
    }

    /// The thread has selected a resource.
    #[inline(always)]
    pub(super) fn add(&self, thread: usize, index: usize) {
        let row = self.row(thread);
        let Some(count) = self.cell(row, index + 1) else { return };
        if row.is_shared {
            count.fetch_add(1, Ordering::Relaxed);
        } else {
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// The resource whose turn it is for this thread.
    #[inline(always)]
    #[must_use]
    pub(super) fn turn(&self, thread: usize) -> usize {
        let row = self.row(thread);
        let Some(turn) = self.cell(row, 0) else { return 0 };
        if row.is_shared {
            return (turn.fetch_add(1, Ordering::Relaxed) % self.resources as u64) as usize;
        }
        let now = turn.load(Ordering::Relaxed) as usize;
        let next = if now + 1 < self.resources { now + 1 } else { 0 };
        turn.store(next as u64, Ordering::Relaxed);
        now
    }

    /// How often a resource was selected.
    #[must_use]
    pub(super) fn of(&self, index: usize) -> u64 {
        let count =
            |thread| self.cell(self.row(thread), index + 1).map_or(0, |count| count.load(Ordering::Relaxed));
        (0..ROWS).map(count).sum()
    }
}
