//! Arguments of a collective on one rank, in one value.

use super::ReductionInfo;
use super::table::{CollectiveRow, Extent, Root};
use crate::abi::word::dtl_dtype_t;
use crate::runtime::op_kind::Kind;
use crate::runtime::types::Reduction;
use crate::sys::memory::buf::Region;
use std::slice;

/// Memory that a collective reads or writes.
#[derive(Debug, Clone)]
pub enum Buffer {
    /// One range: the whole buffer, or blocks of one size in the order of ranks.
    Whole(Region),
    /// One block for each rank (or neighbor), each with its own place and size.
    Blocks(Vec<Region>),
}

impl Buffer {
    /// A buffer that the collective does not have, or that does not count on this rank.
    pub const NONE: Buffer = Buffer::Whole(Region::EMPTY);

    /// The range of a buffer that is one.
    #[must_use]
    #[inline]
    pub fn whole(&self) -> Region {
        match self {
            Buffer::Whole(region) => *region,
            Buffer::Blocks(_) => Region::EMPTY,
        }
    }

    /// All ranges.
    #[must_use]
    pub fn ranges(&self) -> &[Region] {
        match self {
            Buffer::Whole(region) => slice::from_ref(region),
            Buffer::Blocks(blocks) => blocks,
        }
    }

    /// Block of a rank; `len` is the size of a block where all have one size.
    #[must_use]
    pub fn block(&self, rank: i32, len: usize) -> Region {
        let rank = rank.unsigned_abs() as usize;
        match self {
            Buffer::Whole(region) => region.part(rank * len, len),
            Buffer::Blocks(blocks) => blocks.get(rank).copied().unwrap_or(Region::EMPTY),
        }
    }

    /// Bytes from the first one to the last.
    #[must_use]
    pub fn span(&self) -> usize {
        let used = || self.ranges().iter().filter(|range| !range.is_empty());
        let first = used().map(|range| range.addr().get()).min().unwrap_or(0);
        used().map(|range| range.addr().get() - first + range.len()).max().unwrap_or(0)
    }
}

/// Peers of a neighborhood collective.
#[derive(Debug, Clone)]
pub struct Neighbors {
    /// Receivers of the blocks of `send`: ranks, or DTL_PROC_NULL.
    pub dests: Vec<i32>,
    /// Senders of the blocks of `recv`.
    pub sources: Vec<i32>,
}

/// Arguments of a collective on one rank. Ranges are checked.
#[derive(Debug, Clone)]
pub struct CollArgs {
    /// The collective.
    pub kind: Kind,
    /// Its properties.
    pub row: &'static CollectiveRow,
    /// Whether one buffer is DTL_IN_PLACE. That buffer then names its place in the other one.
    pub in_place: bool,
    /// Root; -1: none.
    pub root: i32,
    /// Element type; -1: none.
    pub dtype: dtl_dtype_t,
    /// Elements of a rank's part; where there are blocks of one size, of a block; where each rank
    /// sends blocks of several sizes, of all of them.
    pub count: u64,
    /// Bytes of `count` elements.
    pub bytes: usize,
    /// The reduction, if it has one.
    pub reduction: Option<Reduction>,
    /// Data of this rank.
    pub send: Buffer,
    /// Where the result goes. Of a broadcast: the data.
    pub recv: Buffer,
    /// The peers, of a neighborhood collective.
    pub neighbors: Option<Box<Neighbors>>,
}

impl CollArgs {
    /// A collective without data.
    #[must_use]
    #[inline]
    pub fn new(kind: Kind) -> CollArgs {
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

    /// Whether operands may be taken in any order.
    #[must_use]
    pub fn commutes(&self) -> bool {
        self.reduction.is_none_or(|reduction| reduction.commutes)
    }

    /// Size of an element of a reduction in bytes.
    #[must_use]
    pub fn element(&self) -> usize {
        self.reduction.map_or(1, |reduction| reduction.element.max(1))
    }

    /// The buffers, of a collective in which both are one range.
    pub(super) fn pair(&self) -> (Region, Region) {
        (self.send.whole(), self.recv.whole())
    }

    /// Returns the properties of the reduction that an algorithm needs.
    pub(super) fn folding(&self) -> ReductionInfo {
        ReductionInfo { element: self.element(), commutes: self.commutes() }
    }

    /// Neighbors that receive from this rank, each with its block.
    pub(super) fn blocks_out(&self) -> impl Iterator<Item = (i32, Region)> + Clone + '_ {
        let ranks = self.neighbors.iter().flat_map(|neighbors| neighbors.dests.iter().copied());
        ranks.zip(self.send.ranges().iter().copied())
    }

    /// Neighbors that send to this rank, each with its block.
    pub(super) fn blocks_in(&self) -> impl Iterator<Item = (i32, Region)> + Clone + '_ {
        let ranks = self.neighbors.iter().flat_map(|neighbors| neighbors.sources.iter().copied());
        ranks.zip(self.recv.ranges().iter().copied())
    }

    /// In place: names the place of the buffer that was not passed. A reduction whose result is a
    /// block has its data and its result in one buffer, which is no place in the other one.
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
