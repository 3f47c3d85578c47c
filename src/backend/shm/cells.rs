//! Cells: memory through which a rank sends its large messages, to whichever rank. Its sender fills one cell
//! while the receiver empties another.
//!
//! Not the order of the cells: that is the order of the records which say "these bytes lie in that cell"
//! (`ring`). Here: who has a cell.
//!
//! A pool belongs to its sender, so nobody else takes cells from it, and a silent rank's has no memory. A cell
//! has one word: TAKEN is stored by the sender before it fills the cell, FREE by the receiver when it has read it. Memory
//! order: the record that tells of the cell is written with Release and read with Acquire, so the receiver sees
//! TAKEN and the bytes; FREE is stored with Release after the last read and loaded with Acquire before the
//! sender writes the cell again. At any time one side only writes the word.
//!
//! The words lie close together: when the sender comes round, eight of them come with one cache line.

use crate::error::{Result, fail};
use crate::sys::buf::Region;
use crate::sys::shared::{Memory, Span};
use crate::sys::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sys::sync::{self, AtomicU64};
use std::sync::Arc;

/// Bytes of a cell. docs/explanation/large-messages.md has what was measured.
pub(super) const CELL: usize = sync::size(16 << 10, 64);
/// Cells of a rank.
pub(super) const CELLS: u16 = sync::size(64, 2) as u16;
/// Cells that are looked at in one go: those whose words share a line.
const LOOKS: usize = sync::size(8, 2);

/// Bytes before the cells: their words.
const HEADER: usize = 4096;
/// Bytes from one pool to the next: whole pages.
pub(super) const STRIDE: usize = (HEADER + CELLS as usize * CELL).next_multiple_of(4096);

const FREE: u64 = 0;
const TAKEN: u64 = 1;

/// Nobody's, or filled and not sent yet.
const OWN: u16 = u16::MAX;

/// A pool's memory.
struct Place {
    words: Span,
    cells: Span,
}

impl Place {
    fn new(memory: &Arc<Memory>, offset: usize) -> Result<Place> {
        let words = memory.span(offset, 8 * usize::from(CELLS));
        let cells = memory.span(offset + HEADER, usize::from(CELLS) * CELL);
        match (words, cells) {
            (Some(words), Some(cells)) => Ok(Place { words, cells }),
            _ => fail!(DTL_ERROR_INTERNAL, "cells at {offset} lie outside the {} shared bytes", memory.len()),
        }
    }

    fn word(&self, cell: u16) -> Option<&AtomicU64> {
        (cell < CELLS).then(|| self.words.word(8 * usize::from(cell)))?
    }

    fn part(&self, cell: u16, len: usize) -> Option<Region> {
        let is_inside = cell < CELLS && len <= CELL;
        is_inside.then(|| self.cells.region().part(usize::from(cell) * CELL, len))
    }
}

/// The sender's side: its own cells.
pub(super) struct Pool {
    place: Place,
    /// Where to look next: after a full round, what was sent first is most likely to be free.
    next: u16,
    /// The rank that each cell was sent to last.
    readers: Vec<u16>,
}

impl Pool {
    /// A pool whose memory is committed and that nobody has used yet.
    pub(super) fn new(memory: &Arc<Memory>, offset: usize) -> Result<Pool> {
        let mut readers = Vec::new();
        if readers.try_reserve_exact(CELLS.into()).is_err() {
            return fail!(DTL_ERROR_OUT_OF_MEMORY, "no memory for a list of {CELLS} cells; free some");
        }
        readers.resize(CELLS.into(), OWN);
        Ok(Pool { place: Place::new(memory, offset)?, next: 0, readers })
    }

    /// Takes a free cell, if a few looks find one.
    pub(super) fn take(&mut self) -> Option<u16> {
        for _ in 0..LOOKS {
            let cell = self.next;
            self.next = (cell + 1) % CELLS;
            let word = self.place.word(cell)?;
            if word.load(Acquire) == FREE {
                word.store(TAKEN, Relaxed); // published by the record that sends the cell
                self.read_by(cell, OWN);
                return Some(cell);
            }
        }
        None
    }

    /// Copies bytes into a cell that was taken.
    pub(super) fn fill(&self, cell: u16, bytes: Region) {
        if let Some(into) = self.place.part(cell, bytes.len()) {
            into.copy_from(bytes);
        }
    }

    /// Notes that a cell goes to this rank, which frees it.
    pub(super) fn send(&mut self, cell: u16, to: usize) {
        self.read_by(cell, u16::try_from(to).unwrap_or(OWN));
    }

    fn read_by(&mut self, cell: u16, reader: u16) {
        if let Some(known) = self.readers.get_mut(usize::from(cell)) {
            *known = reader;
        }
    }

    /// Gives back a cell that was not sent.
    pub(super) fn give_back(&mut self, cell: u16) {
        if let Some(word) = self.place.word(cell) {
            word.store(FREE, Relaxed); // nobody else has seen it
        }
    }

    /// Takes back what was sent to a rank that is gone and reads no more.
    pub(super) fn take_back_from(&mut self, rank: usize) {
        for cell in 0..CELLS {
            if self.readers.get(usize::from(cell)).is_some_and(|&reader| usize::from(reader) == rank) {
                self.give_back(cell);
            }
        }
    }
}

/// The receiver's side: another rank's cells.
pub(super) struct Cells(Place);

impl Cells {
    /// The cells of a pool whose memory is committed.
    pub(super) fn new(memory: &Arc<Memory>, offset: usize) -> Result<Cells> {
        Place::new(memory, offset).map(Cells)
    }

    /// The bytes that a record tells of, until the cell is freed; `None`: there is no such cell.
    pub(super) fn bytes(&self, cell: u16, len: usize) -> Option<Region> {
        self.0.part(cell, len)
    }

    /// Frees a cell after it was read.
    pub(super) fn free(&self, cell: u16) {
        if let Some(word) = self.0.word(cell) {
            word.store(FREE, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::buf::Scratch;

    fn both() -> (Pool, Cells) {
        let memory = Memory::create(STRIDE).expect("memfd");
        memory.commit(0, STRIDE).expect("commit");
        (Pool::new(&memory, 0).expect("pool"), Cells::new(&memory, 0).expect("cells"))
    }

    /// All that can be had in two rounds.
    fn all(pool: &mut Pool) -> Vec<u16> {
        (0..2 * usize::from(CELLS) / LOOKS + usize::from(CELLS)).filter_map(|_| pool.take()).collect()
    }

    #[test]
    fn each_cell_is_had_once_until_it_is_freed() {
        let (mut pool, cells) = both();
        let mut had = all(&mut pool);
        had.sort_unstable();
        assert_eq!(had, (0..CELLS).collect::<Vec<_>>());
        cells.free(9);
        pool.give_back(40);
        let mut again = all(&mut pool);
        again.sort_unstable();
        assert_eq!(again, [9, 40]);
    }

    #[test]
    fn what_was_sent_to_a_rank_that_is_gone_comes_back() {
        let (mut pool, cells) = both();
        let had = all(&mut pool);
        pool.send(had[0], 3);
        pool.send(had[1], 3);
        pool.send(had[2], 4);
        cells.free(had[1]);
        assert_eq!(all(&mut pool), [had[1]], "freed, and filled again for nobody yet");
        pool.take_back_from(3);
        assert_eq!(all(&mut pool), [had[0]]);
    }

    #[test]
    fn bytes_arrive_and_the_outside_is_refused() {
        let (mut pool, cells) = both();
        let data = Scratch::new(CELL).expect("memory");
        data.region().fill(7);
        let cell = pool.take().expect("a cell");
        pool.fill(cell, data.region());
        let bytes = cells.bytes(cell, CELL).expect("inside");
        // SAFETY: nobody writes the cell until it is freed.
        assert!(unsafe { bytes.as_slice() }.iter().all(|&byte| byte == 7));
        assert!(cells.bytes(CELLS, 1).is_none() && cells.bytes(0, CELL + 1).is_none());
    }
}
