//! Collective algorithms. Each function appends the steps of this rank to a schedule and does not
//! call the transport. `choice` selects an algorithm.
//!
//! The table lists the number of rounds, and the bytes that the busiest rank sends (n = number of
//! ranks, m = bytes of one rank's data):
//!
//! | collective | algorithm | rounds | bytes |
//! |---|---|---|---|
//! | barrier | dissemination | log2 n | 0 |
//! | bcast | binomial tree | log2 n | m log2 n |
//! | bcast | scatter, ring allgather | n | 2 m |
//! | reduce | binomial tree | log2 n | m |
//! | reduce | recursive halving, then gather | 2 log2 n (+1) | 2 m |
//! | allreduce | recursive doubling | log2 n (+2) | m log2 n |
//! | allreduce | Rabenseifner: recursive halving, recursive doubling | 2 log2 n (+2) | 2 m |
//! | allreduce | pairwise reduce-scatter, ring allgather | 2 n | 2 m |
//! | reduce_scatter | pairwise exchange | n | m |
//! | scan, exscan | recursive doubling | log2 n (+1) | m log2 n |
//! | gather, scatter | binomial tree | log2 n | m n/2 |
//! | gather, gatherv | linear | 1 | m |
//! | scatter, scatterv | linear | 1 | m (n-1) |
//! | allgather | Bruck | log2 n | m (n-1) |
//! | allgather, allgatherv | ring | n-1 | m (n-1) |
//! | alltoall | Bruck | log2 n | m/2 log2 n |
//! | alltoall | pairwise exchange | n-1 | m |
//! | alltoallv, neighbor_alltoallv | all at once | 1 | m |
//! | barrier, bcast, reduce, allreduce, allgather, gather, scatter | two levels | of the parts | |
//! | barrier, bcast, reduce, allreduce, allgather | mailboxes (`small_coll`) | 1 | m |
//!
//! Reductions of large data are split into pieces (segments of the data). For these, the table
//! lists the rounds of one piece.
//!
//! Two-level algorithms apply to communicators of several nodes, if the transport reports the
//! nodes. Between nodes, only one rank of each node sends messages. The parts inside the nodes and
//! between the nodes use the one-level algorithms of this table.
//!
//! Sources: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in
//! MPICH" (2005); Bruck et al., "Efficient Algorithms for All-to-All Communications" (1997).
//!
//! In reading order:
//! - `args`: arguments of a collective, `CollArgs`
//! - `table`: properties of each collective
//! - `choice`: selection of the algorithm
//! - `broadcast`: barrier, bcast
//! - `reduce`: reduce, allreduce, reduce_scatter
//! - `scan`: scan, exscan
//! - `gather`: gather, scatter, allgather
//! - `alltoall`: alltoall, neighborhood collectives
//! - `levels`: nodes and their leaders
//! - `two_level`: two-level collectives

mod alltoall;
pub(crate) mod args;
mod broadcast;
pub(crate) mod choice;
mod gather;
pub(crate) mod levels;
pub(crate) mod reduce;
mod scan;
pub(crate) mod table;
pub(crate) mod two_level;

pub(crate) use alltoall::{alltoall, alltoallv, neighbor_alltoallv};
pub(crate) use broadcast::{barrier, bcast};
pub(crate) use gather::{allgather, allgatherv, gather, gatherv, scatter, scatterv};
pub(crate) use reduce::{allreduce, reduce, reduce_scatter};
pub(crate) use scan::{exscan, scan};

use super::schedule_builder::Steps;
use crate::sys::memory::buf::Region;
use choice::Algorithm;
use levels::Levels;

/// Rank of this process in a collective, and the number of ranks.
#[derive(Clone, Copy)]
pub(crate) struct Group {
    pub(crate) rank: i32,
    pub(crate) size: i32,
}

impl Group {
    /// Returns the rank that is `steps` ranks after this rank in the ring of all ranks.
    fn after(self, steps: i32) -> i32 {
        (self.rank + steps).rem_euclid(self.size)
    }

    /// Returns this rank's distance from `root` in the ring of all ranks (virtual rank).
    #[inline]
    fn steps_from(self, root: i32) -> i32 {
        (self.rank - root).rem_euclid(self.size)
    }
}

/// Element size of a reduction, and whether the reduction operation commutes.
#[derive(Clone, Copy)]
pub(crate) struct ReductionInfo {
    /// Size of an element in bytes.
    pub(crate) element: usize,
    /// True if the operation commutes: operands may be combined in any order.
    pub(crate) commutes: bool,
}

/// Selected algorithm of a collective, and the ranks grouped by node for two-level algorithms.
#[derive(Clone, Copy)]
pub(crate) struct AlgorithmChoice<'a> {
    pub(crate) how: Algorithm,
    /// Ranks grouped by node; `None` if the communicator does not support two-level algorithms.
    pub(crate) levels: Option<&'a Levels>,
}

impl<'a> AlgorithmChoice<'a> {
    /// Returns the ranks grouped by node if the algorithm is a two-level algorithm.
    pub(crate) fn nodes(self) -> Option<&'a Levels> {
        self.levels.filter(|_| self.how == Algorithm::TwoLevel)
    }
}

/// Returns block `index` of `whole`, which consists of equal blocks of `len` bytes.
fn block(whole: Region, index: i32, len: usize) -> Region {
    whole.part(index as usize * len, len)
}

/// Returns part `index` of `whole` when `whole` is split into `parts` parts of almost equally many
/// elements.
fn share(whole: Region, index: i32, parts: i32, element: usize) -> Region {
    let count = whole.len() / element.max(1);
    let edge = |index: i32| (count as u128 * index as u128 / parts as u128) as usize * element;
    whole.part(edge(index), edge(index + 1) - edge(index))
}

/// Splits `by_rank`, whose blocks have equal sizes and are ordered from rank 0 on, into one or two
/// parts. Returns each part with its region in `turned`, where the blocks are ordered from rank
/// `first` on (modulo the number of ranks).
fn turned_parts(
    first: i32,
    len: usize,
    by_rank: Region,
    turned: Region,
) -> impl Iterator<Item = (Region, Region)> {
    let below = first as usize * len;
    let above = by_rank.len() - by_rank.part(0, below).len();
    let high = (by_rank.part(below, above), turned.part(0, above));
    let low = (by_rank.part(0, below), turned.part(above, below));
    [Some(high), (below > 0).then_some(low)].into_iter().flatten()
}

/// Appends a ring allgather: each rank contributes its block, read from `own`, and receives the
/// blocks of all other ranks. `block` returns the region of a rank's block in the result.
fn ring(s: &mut dyn Steps, g: Group, own: Region, block: impl Fn(i32) -> Region) {
    for step in 0..g.size - 1 {
        s.recv(g.after(-1), block(g.after(-step - 1)));
        s.send(g.after(1), if step == 0 { own } else { block(g.after(-step)) });
        s.round();
    }
}

#[cfg(test)]
mod tests;
