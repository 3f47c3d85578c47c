//! A collective by whichever algorithm was chosen: on one level or on two.

use super::choice::Algorithm;
use super::levels::Levels;
use super::{Folding, Group, two_level};
use crate::error::Result;
use crate::runtime::comm::steps::Steps;
use crate::sys::buf::Region;

/// How a collective goes.
#[derive(Clone, Copy)]
pub(in crate::runtime::comm) struct Way<'a> {
    pub(in crate::runtime::comm) how: Algorithm,
    /// The nodes, if the communicator has several.
    pub(in crate::runtime::comm) levels: Option<&'a Levels>,
}

impl<'a> Way<'a> {
    /// The nodes, if the algorithm goes by them.
    fn nodes(self) -> Option<&'a Levels> {
        self.levels.filter(|_| self.how == Algorithm::TwoLevel)
    }
}

pub(in crate::runtime::comm) fn barrier(s: &mut impl Steps, g: Group, way: Way) -> Result<()> {
    if let Some(levels) = way.nodes() {
        return two_level::barrier(s, levels);
    }
    super::barrier(s, g);
    Ok(())
}

pub(in crate::runtime::comm) fn bcast(
    s: &mut impl Steps,
    g: Group,
    way: Way,
    root: i32,
    data: Region,
) -> Result<()> {
    if let Some(levels) = way.nodes() {
        return two_level::bcast(s, levels, root, data);
    }
    super::bcast(s, g, way.how, root, data);
    Ok(())
}

pub(in crate::runtime::comm) fn reduce(
    s: &mut impl Steps,
    g: Group,
    way: Way,
    root: i32,
    by: Folding,
    data: (Region, Region),
) -> Result<()> {
    match way.nodes() {
        Some(levels) => two_level::reduce(s, levels, g, root, by, data),
        None => super::reduce(s, g, way.how, root, by, data),
    }
}

pub(in crate::runtime::comm) fn allreduce(
    s: &mut impl Steps,
    g: Group,
    way: Way,
    by: Folding,
    data: (Region, Region),
) -> Result<()> {
    match way.nodes() {
        Some(levels) => two_level::allreduce(s, levels, by, data),
        None => super::allreduce(s, g, way.how, by.element, data),
    }
}

pub(in crate::runtime::comm) fn gather(
    s: &mut impl Steps,
    g: Group,
    way: Way,
    root: i32,
    data: (Region, Region),
) -> Result<()> {
    match way.nodes() {
        Some(levels) => two_level::gather(s, levels, g, root, data),
        None => super::gather(s, g, way.how, root, data),
    }
}

pub(in crate::runtime::comm) fn scatter(
    s: &mut impl Steps,
    g: Group,
    way: Way,
    root: i32,
    data: (Region, Region),
) -> Result<()> {
    match way.nodes() {
        Some(levels) => two_level::scatter(s, levels, g, root, data),
        None => super::scatter(s, g, way.how, root, data),
    }
}

pub(in crate::runtime::comm) fn allgather(
    s: &mut impl Steps,
    g: Group,
    way: Way,
    data: (Region, Region),
) -> Result<()> {
    match way.nodes() {
        Some(levels) => two_level::allgather(s, levels, data),
        None => super::allgather(s, g, way.how, data),
    }
}

/// Block r of `out` to rank r, block r of `into` from rank r. Each begins with its neighbour, or
/// all would send to rank 0 first and wait for its port.
pub(in crate::runtime::comm) fn alltoallv(
    s: &mut impl Steps,
    g: Group,
    out: impl Fn(i32) -> Region,
    into: impl Fn(i32) -> Region,
) {
    let after = |distance| g.after(distance);
    let before = |distance: i32| g.after(-distance);
    super::exchange(
        s,
        g,
        (1..g.size).map(after).map(|rank| (rank, out(rank))),
        (1..g.size).map(before).map(|rank| (rank, into(rank))),
    );
    s.copy(into(g.rank), out(g.rank));
    s.round();
}
