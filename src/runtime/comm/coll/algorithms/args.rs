//! Arguments of a collective on one rank.

use super::ReductionInfo;
use super::table::{CollectiveRow, Extent, Root};
use crate::abi::word::dtl_dtype_t;
use crate::runtime::memory_place::MemoryPlace;
use crate::runtime::op_kind::Kind;
use crate::runtime::types::Reduction;
use crate::sys::memory::buf::{Addr, Region};
use std::slice;

/// Memory that a collective reads or writes.
#[derive(Debug, Clone)]
pub enum Buffer {
    /// One contiguous range: the whole buffer, or equal blocks in rank order.
    Whole(Region),
    /// One block for each rank (or neighbor), each with its own address and size.
    Blocks(Vec<Region>),
}

impl Buffer {
    /// Empty buffer: the collective has no such buffer, or the buffer is not significant on this
    /// rank.
    pub const NONE: Buffer = Buffer::Whole(Region::EMPTY);

    /// Returns the range of a `Whole` buffer; an empty range for `Blocks`.
    pub fn whole(&self) -> Region {
        match self {
            Buffer::Whole(region) => *region,
            Buffer::Blocks(_) => Region::EMPTY,
        }
    }

    /// Returns all ranges of the buffer.
    pub fn ranges(&self) -> &[Region] {
        match self {
            Buffer::Whole(region) => slice::from_ref(region),
            Buffer::Blocks(blocks) => blocks,
        }
    }

    /// Returns the block of `rank`. `len` is the block size in bytes of a `Whole` buffer.
    pub fn block(&self, rank: i32, len: usize) -> Region {
        let rank = rank.unsigned_abs() as usize;
        match self {
            Buffer::Whole(region) => region.part(rank.saturating_mul(len), len),
            Buffer::Blocks(blocks) => blocks.get(rank).copied().unwrap_or(Region::EMPTY),
        }
    }

    /// Returns the number of bytes from the lowest address of the non-empty ranges to the highest
    /// end of a range.
    pub fn span(&self) -> usize {
        self.area().map_or(0, Region::len)
    }

    /// Returns the memory from the lowest address of the non-empty ranges to the highest end of a
    /// range; `None` if all ranges are empty.
    pub fn area(&self) -> Option<Region> {
        let (first, end) = area(self.ranges())?;
        Some(Region::allocated(first, end - first.get()))
    }
}

/// Returns the lowest address of the non-empty ranges, and the address after their last byte;
/// `None` if all ranges are empty.
pub(crate) fn area(ranges: &[Region]) -> Option<(Addr, usize)> {
    let used = ranges.iter().filter(|range| !range.is_empty());
    let ends = used.map(|range| (range.addr(), range.addr().get() + range.len()));
    ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

/// Peers of a neighborhood collective.
#[derive(Debug, Clone)]
pub struct Neighbors {
    /// Ranks that receive the blocks of `send`; entries may be DTL_PROC_NULL.
    pub dests: Vec<i32>,
    /// Ranks that send the blocks of `recv`; entries may be DTL_PROC_NULL.
    pub sources: Vec<i32>,
}

/// Arguments of a collective on one rank. The address ranges of the buffers have been validated.
#[derive(Debug, Clone)]
pub struct CollArgs {
    /// Kind of the collective.
    pub kind: Kind,
    /// Properties of the collective.
    pub row: &'static CollectiveRow,
    /// True if the caller passed DTL_IN_PLACE for one buffer. That buffer is then this rank's part
    /// of the other buffer.
    pub in_place: bool,
    /// Root rank; -1 if the collective has no root.
    pub root: i32,
    /// Element type; -1 if the collective has no data.
    pub dtype: dtl_dtype_t,
    /// Number of elements of one rank's data. If all blocks have equal size, this is the number of
    /// elements of one block. If a rank sends blocks of different sizes, it is the number of
    /// elements of all its blocks.
    pub count: u64,
    /// Size of `count` elements in bytes.
    pub bytes: usize,
    /// Reduction operation; `None` if the collective does not reduce.
    pub reduction: Option<Reduction>,
    /// Data that this rank contributes.
    pub send: Buffer,
    /// Result buffer; for a broadcast, the buffer that contains the data on every rank.
    pub recv: Buffer,
    /// Peers of a neighborhood collective; `None` for all other collectives.
    pub neighbors: Option<Box<Neighbors>>,
}

/// A collective, as a communicator passes it to native collectives.
#[derive(Clone, Copy)]
pub struct CollCall<'a> {
    /// Arguments of this rank.
    pub args: &'a CollArgs,
    /// Context of the communicator: equal on its ranks, and different from those of all other
    /// communicators on the transport.
    pub context: u32,
    /// True if the result of a reduction must be that of the library's algorithms.
    pub is_deterministic: bool,
    /// Place of the buffers' device memory; `None` if the host can access the buffers.
    pub place: Option<MemoryPlace>,
}

impl CollArgs {
    /// Creates the arguments of a collective, with no buffers and counts of 0.
    pub const fn new(kind: Kind) -> CollArgs {
        CollArgs {
            kind,
            row: kind.row(),
            in_place: false,
            root: -1,
            dtype: -1,
            count: 0,
            bytes: 0,
            reduction: None,
            send: Buffer::NONE,
            recv: Buffer::NONE,
            neighbors: None,
        }
    }

    /// Returns true if operands may be combined in any order.
    pub fn commutes(&self) -> bool {
        self.reduction.is_none_or(|reduction| reduction.commutes)
    }

    /// Returns the element size of the reduction in bytes; 1 if the collective does not reduce.
    pub fn element(&self) -> usize {
        self.reduction.map_or(1, |reduction| reduction.element.max(1))
    }

    /// Returns the send and receive buffers of a collective in which each of them is one contiguous
    /// range.
    pub(super) fn pair(&self) -> (Region, Region) {
        (self.send.whole(), self.recv.whole())
    }

    /// Returns the element size in bytes, and whether the reduction operation commutes.
    pub(super) fn folding(&self) -> ReductionInfo {
        ReductionInfo { element: self.element(), commutes: self.commutes() }
    }

    /// Returns the neighbors that receive from this rank, each with its block of `send`.
    pub(super) fn blocks_out(&self) -> impl Iterator<Item = (i32, Region)> + Clone + '_ {
        let ranks = self.neighbors.iter().flat_map(|neighbors| neighbors.dests.iter().copied());
        ranks.zip(self.send.ranges().iter().copied())
    }

    /// Returns the neighbors that send to this rank, each with its block of `recv`.
    pub(super) fn blocks_in(&self) -> impl Iterator<Item = (i32, Region)> + Clone + '_ {
        let ranks = self.neighbors.iter().flat_map(|neighbors| neighbors.sources.iter().copied());
        ranks.zip(self.recv.ranges().iter().copied())
    }

    /// Replaces the buffer that was passed as DTL_IN_PLACE with the block of `rank` in the other
    /// buffer or, if both buffers have the same layout, with the other buffer. Does not change the
    /// buffers of a reduce-scatter: its data and its result share one buffer, so the result is not
    /// a separate block of the data.
    pub fn set_place(&mut self, rank: i32) {
        let row = self.row;
        match (row.root, row.send, row.recv) {
            (Root::Send, ..) => self.recv = Buffer::Whole(self.send.block(rank, self.bytes)),
            (_, Extent::Own, Extent::Own) => self.send = self.recv.clone(),
            (_, Extent::Own, _) => self.send = Buffer::Whole(self.recv.block(rank, self.bytes)),
            (.., Extent::All | Extent::Varied) => self.send = self.recv.clone(),
            _ => {}
        }
    }
}
