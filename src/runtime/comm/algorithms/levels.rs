//! The ranks of a communicator by node, for algorithms of two levels: inside the nodes, and between one
//! rank of each.

use super::Group;
use crate::error::Result;
use crate::runtime::comm::schedule::Schedule;

/// Ranks on more than one node, some with more than one of them.
pub(in crate::runtime::comm) struct Levels {
    /// The ranks of each node, ascending; nodes by their lowest ranks.
    nodes: Vec<Vec<i32>>,
    /// By rank: its node, and its place there.
    places: Vec<(i32, i32)>,
    rank: i32,
    /// Whether each node's ranks are consecutive.
    pub(in crate::runtime::comm) is_ordered: bool,
}

impl Levels {
    /// `nodes`: by rank, some number of its node. `None`: there is nothing to gain.
    pub(in crate::runtime::comm) fn new(rank: i32, nodes: impl Iterator<Item = i32>) -> Option<Self> {
        let mut numbers = Vec::new();
        let mut levels = Levels { nodes: Vec::new(), places: Vec::new(), rank, is_ordered: true };
        for (member, number) in (0..).zip(nodes) {
            let node = numbers.iter().position(|known| *known == number).unwrap_or_else(|| {
                numbers.push(number);
                levels.nodes.push(Vec::new());
                numbers.len() - 1
            });
            levels.is_ordered &= node + 1 == numbers.len();
            let Some(ranks) = levels.nodes.get_mut(node) else { continue };
            levels.places.push((int(node), int(ranks.len())));
            ranks.push(member);
        }
        (1 < numbers.len() && numbers.len() < levels.places.len()).then_some(levels)
    }

    fn place(&self, rank: i32) -> (i32, i32) {
        usize::try_from(rank).ok().and_then(|rank| self.places.get(rank)).copied().unwrap_or((0, 0))
    }

    pub(super) fn node(&self, node: i32) -> &[i32] {
        usize::try_from(node).ok().and_then(|node| self.nodes.get(node)).map_or(&[], Vec::as_slice)
    }

    /// Number of nodes.
    pub(super) fn count(&self) -> i32 {
        int(self.nodes.len())
    }

    /// The node of a rank.
    pub(super) fn node_of(&self, rank: i32) -> i32 {
        self.place(rank).0
    }

    /// This rank's node.
    pub(super) fn own(&self) -> i32 {
        self.node_of(self.rank)
    }

    /// The ranks that come before a node's when they are taken node by node.
    pub(super) fn before(&self, node: i32) -> usize {
        self.nodes.iter().take(node.unsigned_abs() as usize).map(Vec::len).sum()
    }

    /// All ranks, node by node.
    pub(super) fn by_node(&self) -> impl Iterator<Item = i32> {
        self.nodes.iter().flatten().copied()
    }

    /// Whether all nodes have the same number of ranks.
    pub(super) fn is_even(&self) -> bool {
        self.nodes.iter().all(|ranks| Some(ranks.len()) == self.nodes.first().map(Vec::len))
    }

    /// Where in this rank's node its leader is: the root, or else the first.
    pub(super) fn leader(&self, root: i32) -> i32 {
        let (node, place) = self.place(root);
        if node == self.own() { place } else { 0 }
    }

    /// Whether this rank speaks for its node.
    pub(super) fn is_leader(&self, root: i32) -> bool {
        self.place(self.rank).1 == self.leader(root)
    }

    /// Lists steps among the ranks of this rank's node.
    pub(super) fn inside(
        &self,
        s: &mut Schedule,
        list: impl FnOnce(&mut Schedule, Group) -> Result<()>,
    ) -> Result<()> {
        let ranks = self.node(self.own());
        let first = s.len();
        list(s, Group { rank: self.place(self.rank).1, size: int(ranks.len()) })?;
        s.rename(first, |place| ranks.get(place.unsigned_abs() as usize).copied().unwrap_or(place));
        Ok(())
    }

    /// Lists steps among the leaders, numbered by node; nothing for the other ranks.
    pub(super) fn between(
        &self,
        s: &mut Schedule,
        root: i32,
        list: impl FnOnce(&mut Schedule, Group) -> Result<()>,
    ) -> Result<()> {
        if !self.is_leader(root) {
            return Ok(());
        }
        let first = s.len();
        list(s, Group { rank: self.own(), size: self.count() })?;
        s.rename(first, |node| match self.node(node).first() {
            Some(first) if node != self.node_of(root) => *first,
            _ => root,
        });
        Ok(())
    }
}

fn int(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_sorted_by_node() {
        let levels = Levels::new(3, [5, 7, 5, 7, 2].into_iter()).unwrap();
        assert_eq!(levels.by_node().collect::<Vec<_>>(), [0, 2, 1, 3, 4]);
        assert_eq!((levels.count(), levels.own(), levels.before(2)), (3, 1, 4));
        assert_eq!(
            (levels.leader(3), levels.leader(0), levels.is_leader(3), levels.is_leader(2)),
            (1, 0, true, false)
        );
        assert!(!levels.is_ordered && !levels.is_even());
        let levels = Levels::new(0, [1, 1, 0, 0].into_iter()).unwrap();
        assert!(levels.is_ordered && levels.is_even());
        assert!(Levels::new(0, [1, 1, 1].into_iter()).is_none(), "one node");
        assert!(Levels::new(0, [1, 0, 2].into_iter()).is_none(), "a node for each");
        assert!(!Levels::new(0, [1, 0, 1].into_iter()).unwrap().is_ordered);
    }
}
