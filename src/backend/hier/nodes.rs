//! Mapping of ranks to nodes. The mapping is computed from the ranks' node identities or, if
//! `DTL_FAKE_NODES` is set, simulated.

use crate::error::{Result, fail};
use std::sync::Arc;

/// Mapping of a communicator's ranks to nodes.
pub(super) struct Nodes {
    /// Node number of each rank, indexed by rank. Nodes are numbered in ascending order of their
    /// lowest ranks.
    pub(super) of: Arc<[i32]>,
    /// Index of each rank within its node, indexed by rank in the communicator.
    pub(super) local: Vec<i32>,
    /// Ranks of this rank's node, in ascending order.
    pub(super) mine: Vec<i32>,
    /// Number of nodes.
    pub(super) count: usize,
}

/// Size of a rank-to-node mapping, in bytes per rank.
pub(super) const RANK_BYTES: usize = 2 * size_of::<i32>();

impl Nodes {
    /// Creates the mapping of ranks to nodes; `rank` is the calling rank. Ranks are on the same
    /// node if and only if their elements of `words` are equal.
    pub(super) fn new<T: PartialEq>(rank: i32, words: &[T]) -> Self {
        let mut firsts: Vec<&T> = Vec::new();
        let mut sizes: Vec<i32> = Vec::new();
        let (mut of, mut local) =
            (Vec::with_capacity(words.len()), Vec::with_capacity(words.len()));
        for word in words {
            let node = firsts.iter().position(|first| *first == word).unwrap_or_else(|| {
                firsts.push(word);
                sizes.push(0);
                firsts.len() - 1
            });
            of.push(i32::try_from(node).unwrap_or(i32::MAX));
            if let Some(size) = sizes.get_mut(node) {
                local.push(*size);
                *size += 1;
            }
        }
        let own = usize::try_from(rank).ok().and_then(|rank| of.get(rank)).copied();
        let mine =
            (0..).zip(&of).filter(|(_, node)| Some(**node) == own).map(|(rank, _)| rank).collect();
        Nodes { of: of.into(), local, mine, count: firsts.len() }
    }

    /// Returns a description of the nodes such as "2 nodes x 4 ranks", or "2 nodes with 3 to 4
    /// ranks" if nodes differ in size.
    pub(super) fn text(&self) -> String {
        let size = |node: i32| self.of.iter().filter(|of| **of == node).count();
        let sizes: Vec<usize> = (0..).take(self.count).map(size).collect();
        let (least, most) =
            (sizes.iter().min().copied().unwrap_or(0), sizes.iter().max().copied().unwrap_or(0));
        let nodes = if self.count == 1 { "1 node" } else { &format!("{} nodes", self.count) };
        match least == most {
            true if most == 1 => format!("{nodes} x 1 rank"),
            true => format!("{nodes} x {most} ranks"),
            false => format!("{nodes} with {least} to {most} ranks"),
        }
    }
}

/// Parses `DTL_FAKE_NODES` and returns the node of each rank. "2x3" means two nodes of three ranks
/// each; "3,1" means one node of three ranks and one node of one rank. Fails unless the total
/// number of ranks is `size`.
pub(super) fn pretended(text: &str, size: i32) -> Result<Vec<u64>> {
    let number = |text: &str| text.trim().parse::<i32>().ok().filter(|number| *number > 0);
    let ranks: Option<Vec<i32>> = match text.split_once(['x', 'X']) {
        // The number of nodes is limited by the number of ranks, so that an absurd value cannot
        // exhaust memory.
        Some((nodes, each)) => number(nodes)
            .zip(number(each))
            .map(|(nodes, each)| vec![each; nodes.min(size + 1).unsigned_abs() as usize]),
        None => text.split(',').map(number).collect(),
    };
    let Some(ranks) = ranks else {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "DTL_FAKE_NODES={text}: use nodes x ranks, as 2x4, or the ranks of each node, as 3,1"
        );
    };
    if ranks.iter().map(|ranks| i64::from(*ranks)).sum::<i64>() != i64::from(size) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "DTL_FAKE_NODES={text}: that is not {size} ranks, which the communicator has; make \
             them add up, or unset it"
        );
    }
    let numbered = (0_u64..).zip(ranks);
    Ok(numbered.flat_map(|(node, ranks)| vec![node; ranks.unsigned_abs() as usize]).collect())
}

#[cfg(test)]
#[path = "tests/nodes.rs"]
mod tests;
