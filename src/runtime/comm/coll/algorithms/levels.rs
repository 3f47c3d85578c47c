//! Ranks of a communicator, grouped by node. Two-level algorithms communicate inside each node, and
//! between one rank (the leader) of each node.

use super::Group;
use crate::error::Result;
use crate::runtime::comm::coll::schedule_builder::Steps;
use crate::runtime::op_kind::Kind;
use std::collections::BTreeMap;

/// Ranks, grouped by node, of a communicator that spans several nodes, at least one of which has
/// several ranks.
pub(crate) struct Levels {
    /// Ranks of each node, ascending. Nodes are ordered by their lowest rank.
    nodes: Vec<Vec<i32>>,
    /// Node of each rank, and position of the rank among the ranks of the node.
    places: Vec<(i32, i32)>,
    /// For each node, the total number of ranks on the nodes that precede it.
    before: Vec<usize>,
    /// Rank whose steps are generated.
    pub(crate) rank: i32,
    /// True if the ranks of each node are consecutive.
    pub(crate) is_ordered: bool,
}

impl Levels {
    /// Groups the ranks by node; `nodes` yields the node id of each rank, in rank order. Returns
    /// `None` if there is only one node or if every node has one rank only, since two-level
    /// algorithms then have no advantage.
    pub(crate) fn new(rank: i32, nodes: impl Iterator<Item = i32>) -> Option<Self> {
        let mut numbers = BTreeMap::new();
        let mut levels = Levels {
            nodes: Vec::new(),
            places: Vec::new(),
            before: Vec::new(),
            rank,
            is_ordered: true,
        };
        for (member, number) in (0..).zip(nodes) {
            let node = *numbers.entry(number).or_insert_with(|| {
                levels.nodes.push(Vec::new());
                levels.nodes.len() - 1
            });
            levels.is_ordered &= node + 1 == levels.nodes.len();
            let Some(ranks) = levels.nodes.get_mut(node) else { continue };
            levels.places.push((int(node), int(ranks.len())));
            ranks.push(member);
        }
        let count =
            |all: &mut usize, ranks: &Vec<i32>| Some(std::mem::replace(all, *all + ranks.len()));
        levels.before = levels.nodes.iter().scan(0, count).collect();
        (1 < levels.nodes.len() && levels.nodes.len() < levels.places.len()).then_some(levels)
    }

    /// Returns true if two-level algorithms may run collective `kind`. For reduce and allreduce,
    /// the communicator must not be deterministic, because combining operands node by node gives
    /// different rounding errors. In addition, the operation must commute, or the ranks of each
    /// node must be consecutive, because otherwise operands are not combined in rank order.
    pub(crate) fn suit(&self, kind: Kind, commutes: bool, is_deterministic: bool) -> bool {
        match kind {
            Kind::Reduce | Kind::Allreduce => !is_deterministic && (commutes || self.is_ordered),
            _ => true,
        }
    }

    /// Returns the number of heap bytes that a [`Levels`] value for `ranks` ranks on `nodes` nodes
    /// occupies.
    pub(crate) fn heap_bytes(ranks: u64, nodes: u64) -> u64 {
        let each = size_of::<(i32, i32)>() + size_of::<i32>();
        ranks * each as u64 + nodes * (size_of::<Vec<i32>>() + size_of::<usize>()) as u64
    }

    fn place(&self, rank: i32) -> (i32, i32) {
        usize::try_from(rank).ok().and_then(|rank| self.places.get(rank)).copied().unwrap_or((0, 0))
    }

    pub(super) fn node(&self, node: i32) -> &[i32] {
        usize::try_from(node).ok().and_then(|node| self.nodes.get(node)).map_or(&[], Vec::as_slice)
    }

    /// Returns the number of nodes.
    pub(super) fn count(&self) -> i32 {
        int(self.nodes.len())
    }

    /// Returns the node of `rank`.
    pub(super) fn node_of(&self, rank: i32) -> i32 {
        self.place(rank).0
    }

    /// Returns the node of this rank.
    pub(super) fn own(&self) -> i32 {
        self.node_of(self.rank)
    }

    /// Returns the number of ranks on all nodes before `node`.
    pub(super) fn before(&self, node: i32) -> usize {
        self.before.get(node.unsigned_abs() as usize).copied().unwrap_or(self.places.len())
    }

    /// Returns all ranks, node by node.
    pub(super) fn by_node(&self) -> impl Iterator<Item = i32> {
        self.nodes.iter().flatten().copied()
    }

    /// Returns true if all nodes have the same number of ranks.
    pub(super) fn is_even(&self) -> bool {
        self.nodes.iter().all(|ranks| Some(ranks.len()) == self.nodes.first().map(Vec::len))
    }

    /// Returns the position of the leader in this rank's node: the position of `root` if it is on
    /// this node, otherwise 0.
    pub(super) fn leader(&self, root: i32) -> i32 {
        let (node, place) = self.place(root);
        if node == self.own() { place } else { 0 }
    }

    /// Returns true if this rank is the leader of its node.
    pub(super) fn is_leader(&self, root: i32) -> bool {
        self.place(self.rank).1 == self.leader(root)
    }

    /// Appends the steps that `list` generates for the group of all ranks on this rank's node.
    pub(super) fn inside(
        &self,
        s: &mut dyn Steps,
        list: impl Fn(&mut dyn Steps, Group) -> Result<()>,
    ) -> Result<()> {
        let ranks = self.node(self.own());
        let g = Group { rank: self.place(self.rank).1, size: int(ranks.len()) };
        let real = |place: i32| ranks.get(place.unsigned_abs() as usize).copied().unwrap_or(place);
        s.renamed(real, |s| list(s, g))
    }

    /// If this rank is the leader of its node, appends the steps that `list` generates for the
    /// group of all leaders. The rank of a leader in this group is the number of its node.
    pub(super) fn between(
        &self,
        s: &mut dyn Steps,
        root: i32,
        list: impl Fn(&mut dyn Steps, Group) -> Result<()>,
    ) -> Result<()> {
        if !self.is_leader(root) {
            return Ok(());
        }
        let g = Group { rank: self.own(), size: self.count() };
        let real = |node| match self.node(node).first() {
            Some(first) if node != self.node_of(root) => *first,
            _ => root,
        };
        s.renamed(real, |s| list(s, g))
    }
}

fn int(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

#[cfg(test)]
#[path = "tests/levels.rs"]
mod tests;
