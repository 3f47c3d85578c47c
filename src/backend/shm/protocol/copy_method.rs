//! Methods by which large messages are copied.

/// How the fragments of an accepted message are copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CopyMethod {
    /// Sender and receiver copy through cells. While the sender is not in a call, the receiver
    /// reads its memory, if that is permitted (`DTL_SHM_COPY=cells` forbids it).
    Cells,
    /// The receiver reads all fragments from the sender's memory.
    Get,
    /// The receiver reads fragments from the sender's memory, and the sender writes the others to
    /// the receiver's memory. If messages travel in both directions, the receiver reads all of
    /// them, because each side has a message of its own to copy.
    Split,
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
            2 => Split,
            3 => CellsNt,
            _ => Cells,
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
