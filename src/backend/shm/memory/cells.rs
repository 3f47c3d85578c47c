//! Cells: shared buffers through which a rank sends large messages to any other rank. The sender
//! fills one cell while the receiver empties another.
//!
//! This module implements the ownership of cells. The order of the fragments is the order of the
//! ring records that refer to the cells (`ring`).
//!
//! A pool of cells belongs to its sender, so no other rank allocates cells from it, and the pool of
//! a rank that sends no large messages has no memory. Each cell has one word: the number of times
//! that the cell was read. The sender counts how often it has sent the cell and puts this send
//! count into the record that refers to the cell. It reuses the cell once the word has reached that
//! count.
//!
//! Memory order: the record is stored with Release and loaded with Acquire, so the receiver sees
//! the bytes. The receiver stores the count with Release after its last read of the bytes, and the
//! sender loads the count with Acquire before it writes the cell again. Only the receiver of a cell
//! writes the cell's word.
//!
//! A cache line contains the words of eight cells. The sender reads all eight words once per round
//! through the pool: a cache line that both sides access for each cell would cost as much as
//! copying some KiB.

use crate::error::{Result, fail};
use crate::sys::memory::buf::Region;
use crate::sys::os::shm_segment::{SharedMapping, Span};
use crate::sys::sync::Ordering::{Acquire, Release};
use crate::sys::sync::{self, AtomicU64};
use std::ops::Range;
use std::sync::Arc;

/// Size of a cell (shared buffer for a fragment of a large message), in bytes.
/// docs/explanation/large-messages.md contains measurements with cells of this size.
pub(crate) const CELL: usize = sync::size(16 << 10, 64);
/// Number of cells (shared buffers for large messages) per rank. Together they are larger than a
/// level-2 cache of 1 MiB: the processor moves a cell to the shared cache before it is used again,
/// and a core reads from there several times faster than from the level-2 cache of another one.
pub(crate) const CELLS: u16 = sync::size(128, 2) as u16;
/// Number of cells that a rank uses at first. The first use of a page takes a microsecond or two,
/// so a rank that sends little must not pay for all cells.
pub(crate) const FIRST_CELLS: u16 = sync::size(16, 2) as u16;
/// Number of cells that a rank uses after `SOME_BYTES` or the first message that is larger than the
/// first cells together. Both limits are numbers of bytes in large messages, whatever their method:
/// with more cells, another method may be the fastest one.
pub(crate) const SOME_CELLS: u16 = sync::size(48, 2) as u16;
const SOME_BYTES: usize = 4 << 20;
const MANY_BYTES: usize = 128 << 20;
/// Number of cells per group. The read counts of a group share a cache line.
const GROUP: u16 = sync::size(8, 2) as u16;
/// Maximum number of further groups that an allocation checks if the current group has no free
/// cell.
const LOOKS: u16 = 2;

/// Size, in bytes, of the area before the cells. The area contains one read count per cell.
const HEADER: usize = sync::size(4096, 64);
/// Size, in bytes, of the memory of a pool that uses its first cells.
pub(crate) const FIRST_MEMORY: usize = HEADER + FIRST_CELLS as usize * CELL;
/// Distance between the cell pools of consecutive ranks, in bytes; a multiple of the page size.
pub(crate) const STRIDE: usize = (HEADER + CELLS as usize * CELL).next_multiple_of(4096);

/// Value that means that a cell has no last receiver: it was never sent, or it was reclaimed.
const NOBODY: u16 = u16::MAX;

/// View of the memory of a cell pool: the read count of each cell, and the cells. A receiver uses
/// only this view.
pub(crate) struct CellMemory {
    words: Span,
    cells: Span,
}

impl CellMemory {
    /// Creates the view of the pool at byte `offset` of `memory`. That part of the memory must be
    /// committed.
    pub(crate) fn new(memory: &Arc<SharedMapping>, offset: usize) -> Result<CellMemory> {
        let words = memory.span(offset, 8 * usize::from(CELLS));
        let cells = memory.span(offset + HEADER, usize::from(CELLS) * CELL);
        match (words, cells) {
            (Some(words), Some(cells)) => Ok(CellMemory { words, cells }),
            _ => fail!(DTL_ERROR_INTERNAL, "cells at {offset} lie outside the shared memory"),
        }
    }

    fn word(&self, cell: u16) -> Option<&AtomicU64> {
        (cell < CELLS).then(|| self.words.word(8 * usize::from(cell)))?
    }

    /// Returns `len` bytes of a cell; `None` if `cell` or `len` is out of range. The bytes are
    /// valid until the cell is freed.
    pub(crate) fn bytes(&self, cell: u16, len: usize) -> Option<Region> {
        let is_inside = cell < CELLS && len <= CELL;
        is_inside.then(|| self.cells.region().part(usize::from(cell) * CELL, len))
    }

    /// Frees a cell whose bytes have been read. `number` is the cell's send count, taken from the
    /// ring record that announced the cell.
    pub(crate) fn free(&self, cell: u16, number: u64) {
        if let Some(word) = self.word(cell) {
            word.store(number, Release);
        }
    }
}

/// Sender's side of this rank's pool of cells (shared buffers for large messages).
pub(crate) struct CellPool {
    place: CellMemory,
    /// For each cell: number of times that it was sent, and the rank that received it last.
    sent: Vec<(u64, u16)>,
    /// Bit set of the cells known to be free; `held` is the bit set of the cells that are allocated
    /// but not sent.
    free: u128,
    held: u128,
    /// Number of groups in use, and of bytes sent in large messages. Memory for the other groups is
    /// committed later, in `memory` at the offset of the pool.
    groups: u16,
    bytes: usize,
    memory: (Arc<SharedMapping>, usize),
    /// Group in which the next allocation starts. Groups are used in turn, so the cells of this
    /// group are those that were sent least recently.
    group: u16,
}

fn bit(cell: u16) -> u128 {
    1 << (cell % CELLS)
}

fn cells_of(group: u16) -> Range<u16> {
    group * GROUP..(group + 1) * GROUP
}

impl CellPool {
    /// Creates a pool at byte `offset` of `memory`. The first `FIRST_MEMORY` bytes of that part
    /// must be committed, and no rank may have used it.
    pub(crate) fn new(memory: &Arc<SharedMapping>, offset: usize) -> Result<CellPool> {
        let mut sent = Vec::new();
        if sent.try_reserve_exact(CELLS.into()).is_err() {
            return fail!(DTL_ERROR_OUT_OF_MEMORY, "no memory for {CELLS} cells; free some");
        }
        sent.resize(CELLS.into(), (0, NOBODY));
        let place = CellMemory::new(memory, offset)?;
        let (groups, memory) = (FIRST_CELLS / GROUP, (Arc::clone(memory), offset));
        Ok(CellPool { place, sent, free: 0, held: 0, groups, bytes: 0, memory, group: 0 })
    }

    /// Allocates a free cell; `None` if neither the current group nor the next `LOOKS` groups have
    /// a free cell.
    pub(crate) fn take(&mut self) -> Option<u16> {
        for _ in 0..=LOOKS {
            let found = cells_of(self.group).find(|&cell| self.free & bit(cell) != 0);
            if let Some(cell) = found {
                self.free &= !bit(cell);
                self.held |= bit(cell);
                return Some(cell);
            }
            self.group = (self.group + 1) % self.groups;
            self.look();
        }
        None
    }

    /// Frees the cells of the current group that their receivers have read.
    fn look(&mut self) {
        for cell in cells_of(self.group) {
            let Some(&(sent, _)) = self.sent.get(usize::from(cell)) else { continue };
            let is_read = self.place.word(cell).is_some_and(|word| word.load(Acquire) == sent);
            if is_read && self.held & bit(cell) == 0 {
                self.free |= bit(cell);
            }
        }
    }

    /// Copies bytes into allocated cell `cell`, with non-temporal stores if `is_nt`.
    pub(crate) fn fill(&self, cell: u16, bytes: Region, is_nt: bool) {
        if let Some(into) = self.place.bytes(cell, bytes.len()) {
            if is_nt { into.copy_nt(bytes) } else { into.copy_across(bytes) }
        }
    }

    /// Counts a large message of `len` bytes that was sent by any method.
    pub(crate) fn count(&mut self, len: usize) {
        self.bytes = self.bytes.saturating_add(len);
        let wanted = match self.bytes {
            MANY_BYTES.. => CELLS,
            bytes if bytes >= SOME_BYTES || len > CELL * usize::from(FIRST_CELLS) => SOME_CELLS,
            _ => FIRST_CELLS,
        };
        if wanted > self.groups * GROUP {
            self.grow(wanted);
        }
    }

    /// Begins to use `cells` cells. If there is no memory for them, a later call retries.
    #[cold]
    fn grow(&mut self, cells: u16) {
        let old = CELL * usize::from(self.groups * GROUP);
        let (memory, offset) = &self.memory;
        match memory.commit(offset + HEADER + old, CELL * usize::from(cells) - old) {
            Ok(()) => self.groups = cells / GROUP,
            Err(_) => self.bytes = 0,
        }
    }

    /// Records that allocated cell `cell` is sent to rank `to`. Returns the cell's send count,
    /// which the caller must put into the ring record that announces the cell.
    pub(crate) fn send(&mut self, cell: u16, to: usize) -> u64 {
        self.held &= !bit(cell);
        let Some((sent, reader)) = self.sent.get_mut(usize::from(cell)) else { return 0 };
        (*sent, *reader) = (*sent + 1, u16::try_from(to).unwrap_or(NOBODY));
        *sent
    }

    /// Frees the allocated cell `cell`, which was not sent.
    pub(crate) fn give_back(&mut self, cell: u16) {
        self.held &= !bit(cell);
        self.free |= bit(cell);
    }

    /// Reclaims the cells that were sent to `rank`, which died or left and will not read them.
    pub(crate) fn take_back_from(&mut self, rank: usize) {
        for (cell, (sent, reader)) in (0..CELLS).zip(&mut self.sent) {
            if let (true, Some(word)) = (usize::from(*reader) == rank, self.place.word(cell)) {
                (*sent, *reader) = (word.load(Acquire), NOBODY);
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/cells.rs"]
mod tests;
