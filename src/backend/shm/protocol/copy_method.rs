//! Methods by which large messages are copied.

use crate::backend::shm::memory::cells::CELL;

/// Maximum size of a message that is sent without a rendezvous request, in bytes, if the method
/// uses cells and enough of them are free.
pub(crate) const LONG: usize = 4 * CELL;

/// How the fragments of an accepted message are copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CopyMethod {
    /// The receiver reads fragments from the sender's memory, and the sender writes the others to
    /// the receiver's memory. If messages travel in both directions, the receiver reads all of
    /// them, because each side has a message of its own to copy. Without a choice, messages above
    /// `LONG` are copied in this way: it needs no cells.
    Split,
    /// The receiver reads all fragments from the sender's memory.
    Get,
    /// Sender and receiver copy through cells. While the sender is not in a call, the receiver
    /// reads its memory, if that is permitted (`DTL_SHM_COPY=cells` forbids it).
    Cells,
    /// Like `Cells`, but the sender fills cells by non-temporal stores, so that the receiver reads
    /// memory and not the cache of a distant core.
    CellsNt,
}

use CopyMethod::{Cells, CellsNt, Get, Split};

impl CopyMethod {
    /// Returns the method with the number `word` in records and choices.
    pub(crate) fn of(word: u64) -> CopyMethod {
        match word & 3 {
            1 => Get,
            2 => Cells,
            3 => CellsNt,
            _ => Split,
        }
    }

    /// Returns true if the bytes travel through cells.
    pub(crate) fn uses_cells(self) -> bool {
        matches!(self, Cells | CellsNt)
    }

    /// Returns the value of `DTL_SHM_COPY` that forces the method.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Cells => "cells",
            Get => "cma_get",
            Split => "cma_split",
            CellsNt => "cells_nt",
        }
    }
}
