//! Transfers: large messages that two ranks copy at the same time.
//!
//! A message is copied by the rank whose call completes the match. The other rank started its
//! operation earlier, and usually waits for it. A transfer is an entry in the state of that rank
//! and is protected by the lock of that state. Both ranks claim pieces of the message under the
//! lock and copy them without it: the sender's rank from the front, the receiver's from the end.
//! The rank that completed the match copies until no piece is left, so it never waits for a rank
//! that is not in a call. The rank that ends the last copy completes both operations.
//!
//! The lock also orders the bytes: each rank locks the state after each of its copies, so the rank
//! that finds the last copy ended, and completes the operations, has observed all of them.

use crate::runtime::component::OpId;
use crate::sys::memory::buf::Region;
use std::ops::Range;

/// Minimum size in bytes of a message that two ranks copy. Below it, the exchange of the lock
/// between distant cores takes longer than the copy of one half.
pub(super) const SHARED_FROM: usize = 128 << 10;
/// Minimum and maximum size of a piece in bytes. Pieces become smaller toward the end of a message,
/// so that both ranks end at almost the same time.
const MIN_PIECE: usize = 32 << 10;
const MAX_PIECE: usize = 256 << 10;
/// Maximum number of transfers that one rank waits for. A further message is copied by one rank.
pub(super) const TRANSFERS: usize = 8;

/// Matched message whose send and receive are incomplete.
pub(super) struct Transfer {
    pub(super) data: Region,
    pub(super) into: Region,
    /// Rank and operation of the sender.
    pub(super) sender: (i32, OpId),
    /// Rank and operation of the receiver.
    pub(super) receiver: (i32, OpId),
    pub(super) match_bits: u64,
    /// Range of bytes that neither rank has claimed.
    left: Range<usize>,
    /// Number of claimed pieces that are not copied yet.
    copying: u32,
}

impl Transfer {
    /// Creates the transfer of a message from the operation `sender` to the operation `receiver`.
    pub(super) fn new(
        sender: (i32, OpId),
        (data, match_bits): (Region, u64),
        receiver: (i32, OpId),
        into: Region,
    ) -> Self {
        let left = 0..data.len().min(into.len());
        Transfer { data, into, sender, receiver, match_bits, left, copying: 0 }
    }

    /// Returns true if two ranks may copy the message: it is long enough, and its buffers do not
    /// overlap, so the order of the copies has no effect.
    pub(super) fn is_shared(&self) -> bool {
        self.left.len() >= SHARED_FROM && !self.data.overlaps(self.into)
    }

    /// Returns true if bytes are left that neither rank has claimed.
    pub(super) fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// Claims a piece for `rank`: half of the bytes that are left, within limits. Returns the
    /// memory that the piece is copied to and the memory that it is copied from.
    pub(super) fn claim(&mut self, rank: i32) -> (Region, Region) {
        let Range { start, end } = self.left;
        let half = (end - start) / 2;
        let len = half.next_multiple_of(MIN_PIECE).clamp(MIN_PIECE, MAX_PIECE).min(end - start);
        self.copying += 1;
        let from = if rank == self.sender.0 {
            self.left.start += len;
            start
        } else {
            self.left.end -= len;
            end - len
        };
        (self.into.part(from, len), self.data.part(from, len))
    }

    /// Records that a claimed piece is copied. Returns true if the whole message is copied.
    pub(super) fn end_piece(&mut self) -> bool {
        self.copying -= 1;
        self.copying == 0 && self.left.is_empty()
    }
}
