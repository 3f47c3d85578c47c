//! Two-level collectives over several nodes. Only one rank of each node, the leader, exchanges data
//! with other nodes. Data moves inside each node to its leader, then among the leaders, and then
//! from each leader to the other ranks of its node; a collective omits the phases that it does not
//! need. This keeps traffic between nodes small, and no data is transferred between two nodes
//! twice. Each phase uses a one-level algorithm. The root of a collective is the leader of its
//! node, so its data needs no transfer inside the node.

use super::choice::{Algorithm, Allowed, choose};
use super::levels::Levels;
use super::{Group, ReductionInfo, allgatherv, gatherv, scatterv};
use crate::error::Result;
use crate::runtime::comm::coll::schedule_builder::Steps;
use crate::runtime::op_kind::Kind;
use crate::sys::memory::buf::Region;

/// Returns the algorithm for one part of a two-level collective: the part inside a node, or the
/// part between the nodes.
fn how(kind: Kind, g: Group, bytes: usize, commutes: bool) -> Algorithm {
    choose(kind, g.size, bytes, commutes, Allowed::default())
}

fn bcast_inside(s: &mut dyn Steps, l: &Levels, root: i32, data: Region) -> Result<()> {
    l.inside(s, |s, g| {
        super::bcast(s, g, how(Kind::Bcast, g, data.len(), true), l.leader(root), data)
    })
}

pub(crate) fn barrier(s: &mut dyn Steps, l: &Levels) -> Result<()> {
    l.inside(s, super::barrier)?;
    l.between(s, 0, super::barrier)?;
    bcast_inside(s, l, 0, Region::EMPTY)
}

pub(crate) fn bcast(s: &mut dyn Steps, l: &Levels, root: i32, data: Region) -> Result<()> {
    l.between(s, root, |s, g| {
        super::bcast(s, g, how(Kind::Bcast, g, data.len(), true), l.node_of(root), data)
    })?;
    bcast_inside(s, l, root, data)
}

fn reduce_part(
    s: &mut dyn Steps,
    g: Group,
    root: i32,
    by: ReductionInfo,
    data: (Region, Region),
) -> Result<()> {
    super::reduce(s, g, how(Kind::Reduce, g, data.0.len(), by.commutes), root, by, data)
}

/// Appends a two-level reduction. Operands are combined in rank order only if the ranks of each
/// node are consecutive.
pub(crate) fn reduce(
    s: &mut dyn Steps,
    l: &Levels,
    g: Group,
    root: i32,
    by: ReductionInfo,
    (send, recv): (Region, Region),
) -> Result<()> {
    let partial = match l.is_leader(root) {
        _ if g.rank == root => recv,
        true => s.scratch(send.len())?,
        false => Region::EMPTY,
    };
    l.inside(s, |s, g| reduce_part(s, g, l.leader(root), by, (send, partial)))?;
    l.between(s, root, |s, g| reduce_part(s, g, l.node_of(root), by, (partial, partial)))
}

/// Appends a two-level allreduce. Operands are combined in rank order only if the ranks of each
/// node are consecutive.
pub(crate) fn allreduce(
    s: &mut dyn Steps,
    l: &Levels,
    by: ReductionInfo,
    (send, recv): (Region, Region),
) -> Result<()> {
    l.inside(s, |s, g| reduce_part(s, g, l.leader(0), by, (send, recv)))?;
    l.between(s, 0, |s, g| {
        let how = how(Kind::Allreduce, g, recv.len(), by.commutes);
        super::allreduce(s, g, how, by, (recv, recv))
    })?;
    bcast_inside(s, l, 0, recv)
}

/// Returns the blocks of the ranks of `node` in `all`, where all blocks are ordered node by node.
fn of_node(l: &Levels, all: Region, node: i32, len: usize) -> Region {
    all.part(l.before(node) * len, l.node(node).len() * len)
}

/// Appends copies of all blocks from `by_node` (ordered by node) to `by_rank` (ordered by rank).
fn sort(s: &mut dyn Steps, l: &Levels, len: usize, by_node: Region, by_rank: Region) {
    for (place, rank) in (0..).zip(l.by_node()) {
        s.copy(super::block(by_rank, rank, len), super::block(by_node, place, len));
    }
    s.round();
}

pub(crate) fn allgather(
    s: &mut dyn Steps,
    l: &Levels,
    (send, recv): (Region, Region),
) -> Result<()> {
    let len = send.len();
    let all = if l.is_ordered { recv } else { s.scratch(recv.len())? };
    let own = of_node(l, all, l.own(), len);
    l.inside(s, |s, g| {
        super::gather(s, g, how(Kind::Gather, g, len, true), l.leader(0), (send, own))
    })?;
    l.between(s, 0, |s, g| {
        if l.is_even() {
            return super::allgather(s, g, how(Kind::Allgather, g, own.len(), true), (own, all));
        }
        allgatherv(s, g, own, |node| of_node(l, all, node, len))
    })?;
    bcast_inside(s, l, 0, all)?;
    if !l.is_ordered {
        sort(s, l, len, all, recv);
    }
    Ok(())
}

/// Returns two regions whose blocks are ordered node by node: one for the blocks of all ranks
/// (empty except at the root), and one for the blocks of this node (empty except at its leader).
fn places(
    s: &mut dyn Steps,
    l: &Levels,
    g: Group,
    root: i32,
    user: Region,
    len: usize,
) -> Result<(Region, Region)> {
    let all = match g.rank == root {
        true if l.is_ordered => user,
        true => s.scratch(user.len())?,
        false => Region::EMPTY,
    };
    let own = match l.is_leader(root) {
        _ if g.rank == root => of_node(l, all, l.own(), len),
        true => s.scratch(l.node(l.own()).len() * len)?,
        false => Region::EMPTY,
    };
    Ok((all, own))
}

pub(crate) fn gather(
    s: &mut dyn Steps,
    l: &Levels,
    g: Group,
    root: i32,
    (send, recv): (Region, Region),
) -> Result<()> {
    let len = send.len();
    let (all, own) = places(s, l, g, root, recv, len)?;
    l.inside(s, |s, g| {
        super::gather(s, g, how(Kind::Gather, g, len, true), l.leader(root), (send, own))
    })?;
    l.between(s, root, |s, g| {
        gatherv(s, g, l.node_of(root), own, |node| of_node(l, all, node, len))
    })?;
    if g.rank == root && !l.is_ordered {
        sort(s, l, len, all, recv);
    }
    Ok(())
}

pub(crate) fn scatter(
    s: &mut dyn Steps,
    l: &Levels,
    g: Group,
    root: i32,
    (send, recv): (Region, Region),
) -> Result<()> {
    let len = recv.len();
    let (all, own) = places(s, l, g, root, send, len)?;
    if g.rank == root && !l.is_ordered {
        for (place, rank) in (0..).zip(l.by_node()) {
            s.copy(super::block(all, place, len), super::block(send, rank, len));
        }
        s.round();
    }
    l.between(s, root, |s, g| {
        scatterv(s, g, l.node_of(root), |node| of_node(l, all, node, len), own)
    })?;
    l.inside(s, |s, g| {
        super::scatter(s, g, how(Kind::Scatter, g, len, true), l.leader(root), (own, recv))
    })
}

#[cfg(test)]
#[path = "tests/two_level.rs"]
mod tests;
