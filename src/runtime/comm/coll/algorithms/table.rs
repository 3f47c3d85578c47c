//! Table of the collectives: one row for each collective.

use super::args::CollArgs;
use super::{AlgorithmChoice, Group, two_level};
use crate::error::Result;
use crate::runtime::comm::coll::schedule_builder::Steps;
use crate::runtime::op_kind::Kind;

/// Size of a buffer of a collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// The collective has no such buffer.
    Nothing,
    /// Data of one rank.
    Own,
    /// One block for each rank, all of equal size.
    All,
    /// One block for each rank or neighbor, each with its own address and size.
    Varied,
}

/// Role of the root. It determines which buffer is significant only at the root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Root {
    /// The collective has no root.
    None,
    /// The collective has a root, and its only buffer is significant on all ranks.
    Everywhere,
    /// The root receives, so its `send` may be DTL_IN_PLACE.
    Recv,
    /// The root sends, so its `recv` may be DTL_IN_PLACE.
    Send,
}

/// Function that appends the steps of a collective on this rank.
type List = fn(&mut dyn Steps, Group, AlgorithmChoice<'_>, &CollArgs) -> Result<()>;

/// Properties of a collective.
#[derive(Clone, Copy, Debug)]
pub struct CollectiveRow {
    /// Kind of the collective.
    pub kind: Kind,
    /// Extent of the send buffer, which contains the data that a rank contributes.
    pub send: Extent,
    /// Extent of the receive buffer, which contains the result.
    pub recv: Extent,
    /// Role of the root.
    pub root: Root,
    /// True if the collective reduces data.
    pub reduces: bool,
    /// Function that appends the steps of the selected algorithm for this rank.
    pub(crate) list: List,
}

impl CollectiveRow {
    /// Returns true if ranks may pass different counts.
    pub fn is_varied(&self) -> bool {
        self.send == Extent::Varied || self.recv == Extent::Varied
    }

    /// Returns the number of bytes that determines the selected algorithm: `bytes`, or 0 if sizes
    /// may differ between ranks, because all ranks must select the same algorithm.
    pub(crate) fn deciding_bytes(&self, bytes: usize) -> usize {
        let is_equal = self.reduces || !self.is_varied();
        if is_equal && self.recv != Extent::Nothing { bytes } else { 0 }
    }
}

impl Kind {
    /// Returns the properties of the collective; those of a barrier if the table has no row for
    /// this `Kind`.
    pub const fn row(self) -> &'static CollectiveRow {
        match TABLE.split_at_checked((self as usize).wrapping_sub(Kind::Barrier as usize)) {
            Some((_, [row, ..])) => row,
            _ => &BARRIER,
        }
    }
}

/// Returns all rows of the table.
pub(crate) fn rows() -> impl Iterator<Item = &'static CollectiveRow> {
    TABLE.iter()
}

const fn row(kind: Kind, send: Extent, recv: Extent, root: Root, list: List) -> CollectiveRow {
    CollectiveRow { kind, send, recv, root, reduces: false, list }
}

const fn reduction(
    kind: Kind,
    send: Extent,
    recv: Extent,
    root: Root,
    list: List,
) -> CollectiveRow {
    CollectiveRow { reduces: true, ..row(kind, send, recv, root, list) }
}

use Extent::{All, Nothing, Own, Varied};

const BARRIER: CollectiveRow =
    row(Kind::Barrier, Nothing, Nothing, Root::None, |s, g, choice, _| match choice.nodes() {
        Some(levels) => two_level::barrier(s, levels),
        None => super::barrier(s, g),
    });

/// One row for each collective, in the order of the variants of `Kind`.
static TABLE: [CollectiveRow; 17] = [
    BARRIER,
    row(Kind::Bcast, Nothing, Own, Root::Everywhere, |s, g, choice, a| match choice.nodes() {
        Some(levels) => two_level::bcast(s, levels, a.root, a.recv.whole()),
        None => super::bcast(s, g, choice.how, a.root, a.recv.whole()),
    }),
    reduction(Kind::Reduce, Own, Own, Root::Recv, |s, g, choice, a| match choice.nodes() {
        Some(levels) => two_level::reduce(s, levels, g, a.root, a.folding(), a.pair()),
        None => super::reduce(s, g, choice.how, a.root, a.folding(), a.pair()),
    }),
    reduction(Kind::Allreduce, Own, Own, Root::None, |s, g, choice, a| match choice.nodes() {
        Some(levels) => two_level::allreduce(s, levels, a.folding(), a.pair()),
        None => super::allreduce(s, g, choice.how, a.folding(), a.pair()),
    }),
    row(Kind::Gather, Own, All, Root::Recv, |s, g, choice, a| match choice.nodes() {
        Some(levels) => two_level::gather(s, levels, g, a.root, a.pair()),
        None => super::gather(s, g, choice.how, a.root, a.pair()),
    }),
    row(Kind::Gatherv, Own, Varied, Root::Recv, |s, g, _, a| {
        super::gatherv(s, g, a.root, a.send.whole(), |rank| a.recv.block(rank, a.bytes))
    }),
    row(Kind::Scatter, All, Own, Root::Send, |s, g, choice, a| match choice.nodes() {
        Some(levels) => two_level::scatter(s, levels, g, a.root, a.pair()),
        None => super::scatter(s, g, choice.how, a.root, a.pair()),
    }),
    row(Kind::Scatterv, Varied, Own, Root::Send, |s, g, _, a| {
        super::scatterv(s, g, a.root, |rank| a.send.block(rank, a.bytes), a.recv.whole())
    }),
    row(Kind::Allgather, Own, All, Root::None, |s, g, choice, a| match choice.nodes() {
        Some(levels) => two_level::allgather(s, levels, a.pair()),
        None => super::allgather(s, g, choice.how, a.pair()),
    }),
    row(Kind::Allgatherv, Own, Varied, Root::None, |s, g, _, a| {
        super::allgatherv(s, g, a.send.whole(), |rank| a.recv.block(rank, a.bytes))
    }),
    row(Kind::Alltoall, All, All, Root::None, |s, g, choice, a| {
        super::alltoall(s, g, choice.how, a.bytes, a.pair(), a.in_place)
    }),
    row(Kind::Alltoallv, Varied, Varied, Root::None, |s, g, _, a| {
        let out = |rank| a.send.block(rank, a.bytes);
        super::alltoallv(s, g, out, |rank| a.recv.block(rank, a.bytes), a.in_place)
    }),
    reduction(Kind::ReduceScatter, Varied, Own, Root::None, |s, g, _, a| {
        super::reduce_scatter(s, g, |rank| a.send.block(rank, a.bytes), a.recv.whole())
    }),
    reduction(Kind::ReduceScatterBlock, All, Own, Root::None, |s, g, _, a| {
        super::reduce_scatter(s, g, |rank| a.send.block(rank, a.bytes), a.recv.whole())
    }),
    reduction(Kind::Scan, Own, Own, Root::None, |s, g, _, a| {
        super::scan(s, g, a.send.whole(), a.recv.whole())
    }),
    reduction(Kind::Exscan, Own, Own, Root::None, |s, g, _, a| {
        super::exscan(s, g, a.send.whole(), a.recv.whole())
    }),
    row(Kind::NeighborAlltoallv, Varied, Varied, Root::None, |s, g, _, a| {
        super::neighbor_alltoallv(s, g, a.blocks_out(), a.blocks_in())
    }),
];

#[cfg(test)]
#[path = "tests/table.rs"]
mod tests;
