//! Selection of a collective's algorithm. The first matching row of `TABLE` determines it.
//!
//! All ranks must select the same algorithm, so the selection depends only on values that are equal
//! on all ranks: the collective, the number of ranks, the number of bytes that each rank passes,
//! whether the operation commutes, and which ranks share a node. It does not depend on the kind of
//! communicator, that is, on the transport. A sum is bitwise identical on communicators of all
//! kinds within one node, and also over several nodes if the communicator is deterministic.

use crate::runtime::op_kind::Kind;

/// Defines `Algorithm`. Each algorithm has a short name, which the documentation uses.
macro_rules! algorithms {
    ($($algorithm:ident: $name:literal,)+) => {
        /// Algorithm of a collective. The table in the module documentation of `algorithms` lists
        /// the costs.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Algorithm { $(#[doc = $name] $algorithm),+ }

        impl Algorithm {
            /// Returns the short name of the algorithm, as used in the documentation.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Algorithm::$algorithm => $name),+ }
            }
        }
    };
}

algorithms! {
    Dissemination: "dissemination",
    Binomial: "binomial tree",
    ScatterRing: "scatter, ring",
    RecursiveDoubling: "recursive doubling",
    Rabenseifner: "Rabenseifner",
    HalvingGather: "halving, gather",
    PairwiseRing: "pairwise, ring",
    Linear: "linear",
    Ring: "ring",
    Bruck: "Bruck",
    Pairwise: "pairwise",
    AllAtOnce: "all at once",
    TwoLevel: "two levels",
    Mailbox: "mailbox",
}

struct ChoiceRow {
    kind: Kind,
    /// Minimum number of ranks.
    ranks: i32,
    /// Minimum size, in bytes, of one rank's data (or of one block, for collectives of blocks such
    /// as gather) for which the row applies.
    from: usize,
    /// Exclusive upper bound of the size, in bytes, of one rank's data (or of one block, for
    /// collectives of blocks such as gather) for which the row applies.
    below: usize,
    /// True if the row applies to commutative operations only.
    commutes: bool,
    algorithm: Algorithm,
}

const ANY: usize = usize::MAX;

const fn row(kind: Kind, ranks: i32, from: usize, below: usize, algorithm: Algorithm) -> ChoiceRow {
    ChoiceRow { kind, ranks, from, below, commutes: false, algorithm }
}

impl ChoiceRow {
    const fn commuting(self) -> ChoiceRow {
        ChoiceRow { commutes: true, ..self }
    }
}

const TABLE: &[ChoiceRow] = &[
    // Few ranks that share memory. Operands are grouped as recursive doubling and the binomial tree
    // group them, so results are bitwise the same.
    row(Kind::Barrier, 0, 0, ANY, Algorithm::Mailbox),
    row(Kind::Bcast, 0, 0, 2 << 10, Algorithm::Mailbox),
    row(Kind::Reduce, 0, 0, 2 << 10, Algorithm::Mailbox),
    row(Kind::Allreduce, 0, 0, 2 << 10, Algorithm::Mailbox),
    row(Kind::Allgather, 0, 0, 2 << 10, Algorithm::Mailbox),
    // Several nodes. Large blocks use one-level algorithms: the ring crosses each border between
    // nodes once per block anyway, and leaders would only forward what their ranks can send
    // themselves.
    row(Kind::Barrier, 0, 0, ANY, Algorithm::TwoLevel),
    row(Kind::Bcast, 0, 0, ANY, Algorithm::TwoLevel),
    row(Kind::Reduce, 0, 0, ANY, Algorithm::TwoLevel),
    row(Kind::Allreduce, 0, 0, ANY, Algorithm::TwoLevel),
    row(Kind::Gather, 0, 0, 2 << 10, Algorithm::TwoLevel),
    row(Kind::Scatter, 0, 0, 2 << 10, Algorithm::TwoLevel),
    row(Kind::Allgather, 0, 0, 4 << 10, Algorithm::TwoLevel),
    // All communicators.
    row(Kind::Barrier, 0, 0, ANY, Algorithm::Dissemination),
    row(Kind::Bcast, 4, 256 << 10, ANY, Algorithm::ScatterRing),
    row(Kind::Bcast, 0, 0, ANY, Algorithm::Binomial),
    row(Kind::Reduce, 4, 256 << 10, ANY, Algorithm::HalvingGather).commuting(),
    row(Kind::Reduce, 0, 0, ANY, Algorithm::Binomial),
    row(Kind::Allreduce, 0, 0, 16 << 10, Algorithm::RecursiveDoubling),
    row(Kind::Allreduce, 3, 0, ANY, Algorithm::Rabenseifner).commuting(),
    // Two ranks send as many bytes by either algorithm, and here none that were just written.
    row(Kind::Allreduce, 0, 0, 4096 << 10, Algorithm::RecursiveDoubling).commuting(),
    row(Kind::Allreduce, 0, 0, ANY, Algorithm::Rabenseifner).commuting(),
    row(Kind::Allreduce, 0, 0, ANY, Algorithm::PairwiseRing),
    row(Kind::ReduceScatter, 0, 0, ANY, Algorithm::Pairwise),
    row(Kind::ReduceScatterBlock, 0, 0, ANY, Algorithm::Pairwise),
    row(Kind::Scan, 0, 0, ANY, Algorithm::RecursiveDoubling),
    row(Kind::Exscan, 0, 0, ANY, Algorithm::RecursiveDoubling),
    row(Kind::Gather, 4, 0, 2 << 10, Algorithm::Binomial),
    row(Kind::Gather, 0, 0, ANY, Algorithm::Linear),
    row(Kind::Scatter, 4, 0, 2 << 10, Algorithm::Binomial),
    row(Kind::Scatter, 0, 0, ANY, Algorithm::Linear),
    row(Kind::Gatherv, 0, 0, ANY, Algorithm::Linear),
    row(Kind::Scatterv, 0, 0, ANY, Algorithm::Linear),
    row(Kind::Allgather, 3, 0, 4 << 10, Algorithm::Bruck),
    row(Kind::Allgather, 0, 0, ANY, Algorithm::Ring),
    row(Kind::Allgatherv, 0, 0, ANY, Algorithm::Ring),
    row(Kind::Alltoall, 5, 0, 256, Algorithm::Bruck),
    row(Kind::Alltoall, 0, 0, ANY, Algorithm::Pairwise),
    row(Kind::Alltoallv, 0, 0, ANY, Algorithm::AllAtOnce),
    row(Kind::NeighborAlltoallv, 0, 0, ANY, Algorithm::AllAtOnce),
];

/// Algorithms that a communicator supports in addition to those that every communicator supports.
#[derive(Clone, Copy, Default)]
pub(crate) struct Allowed {
    /// True if two-level algorithms are allowed.
    pub(crate) two_level: bool,
    /// True if algorithms over mailboxes in shared memory are allowed.
    pub(crate) mailboxes: bool,
}

/// Returns the algorithm for the collective `kind` on `ranks` ranks. `bytes` is the size of one
/// rank's data or, for collectives of blocks (such as gather), of one block.
#[inline]
pub(crate) fn choose(
    kind: Kind,
    ranks: i32,
    bytes: usize,
    commutes: bool,
    allowed: Allowed,
) -> Algorithm {
    let fits = |row: &&ChoiceRow| {
        row.kind == kind
            && ranks >= row.ranks
            && (row.from..row.below).contains(&bytes)
            && (commutes || !row.commutes)
            && match row.algorithm {
                Algorithm::TwoLevel => allowed.two_level,
                Algorithm::Mailbox => allowed.mailboxes,
                _ => true,
            }
    };
    TABLE.iter().find(fits).map_or(Algorithm::Linear, |row| row.algorithm)
}

#[cfg(test)]
#[path = "tests/choice.rs"]
mod tests;
