//! Alltoall and neighborhood alltoall.

use super::choice::Algorithm;
use super::{Group, block, turned_parts};
use crate::error::Result;
use crate::runtime::comm::coll::schedule_builder::Steps;
use crate::sys::memory::buf::Region;

/// Appends the steps of an alltoall with blocks of `len` bytes: block r of `send` is sent to rank
/// r, and block r of `recv` is received from rank r. If `in_place` is true, the blocks of `recv`
/// are sent.
pub(crate) fn alltoall(
    s: &mut dyn Steps,
    g: Group,
    how: Algorithm,
    len: usize,
    (send, recv): (Region, Region),
    in_place: bool,
) -> Result<()> {
    let send = if in_place { copied(s, recv)? } else { send };
    if how == Algorithm::Bruck {
        return bruck(s, g, len, (send, recv));
    }
    s.copy(block(recv, g.rank, len), block(send, g.rank, len));
    for distance in 1..g.size {
        let (to, from) = (g.after(distance), g.after(-distance));
        s.recv(from, block(recv, from, len));
        s.send(to, block(send, to, len));
        s.round();
    }
    s.round();
    Ok(())
}

/// Appends the steps of Bruck's alltoall: in round k, blocks whose distance to the destination rank
/// has bit k set move 2^k ranks ahead.
fn bruck(s: &mut dyn Steps, g: Group, len: usize, (send, recv): (Region, Region)) -> Result<()> {
    let all = s.scratch(len * g.size as usize)?;
    let most = len * ((g.size + 1) / 2) as usize;
    let (out, into) = (s.scratch(most)?, s.scratch(most)?);
    turned_parts(g.rank, len, send, all).for_each(|(from, into)| s.copy(into, from));
    s.round();
    let mut distance = 1;
    while distance < g.size {
        let moved = || (0..g.size).filter(move |step| step & distance != 0);
        for (place, step) in (0..).zip(moved()) {
            s.copy(block(out, place, len), block(all, step, len));
        }
        s.round();
        let bytes = moved().count() * len;
        s.recv(g.after(-distance), into.part(0, bytes));
        s.send(g.after(distance), out.part(0, bytes));
        for (place, step) in (0..).zip(moved()) {
            s.copy(block(all, step, len), block(into, place, len));
        }
        s.round();
        distance *= 2;
    }
    (0..g.size).for_each(|step| s.copy(block(recv, g.after(-step), len), block(all, step, len)));
    s.round();
    Ok(())
}

/// Appends a step that copies `data` to scratch memory, because the result of the collective
/// overwrites `data`. Returns the scratch memory.
fn copied(s: &mut dyn Steps, data: Region) -> Result<Region> {
    let copy = s.scratch(data.len())?;
    s.copy(copy, data);
    s.round();
    Ok(copy)
}

/// Appends the steps of an alltoall with blocks of different sizes: `out(r)` is sent to rank r, and
/// `into(r)` is received from rank r. Each rank begins with its neighbor, because otherwise all
/// ranks would send to rank 0 first and contend for its port. If `in_place`, the blocks of `into`
/// are sent.
pub(crate) fn alltoallv(
    s: &mut dyn Steps,
    g: Group,
    out: impl Fn(i32) -> Region,
    into: impl Fn(i32) -> Region,
    in_place: bool,
) -> Result<()> {
    let copies: Vec<Region> = match in_place {
        true => (0..g.size).map(|rank| copied(s, into(rank))).collect::<Result<_>>()?,
        false => Vec::new(),
    };
    let out = |rank: i32| copies.get(rank as usize).copied().unwrap_or_else(|| out(rank));
    let after = |distance| g.after(distance);
    let before = |distance: i32| g.after(-distance);
    exchange(
        s,
        g,
        (1..g.size).map(after).map(|rank| (rank, out(rank))),
        (1..g.size).map(before).map(|rank| (rank, into(rank))),
    );
    s.copy(into(g.rank), out(g.rank));
    s.round();
    Ok(())
}

/// Appends the steps of a neighborhood alltoall, which sends one block to each rank in `out` and
/// receives one block from each rank in `into`. The n-th block sent to this rank itself is the n-th
/// block received from this rank.
pub(crate) fn neighbor_alltoallv(
    s: &mut dyn Steps,
    g: Group,
    out: impl Iterator<Item = (i32, Region)> + Clone,
    into: impl Iterator<Item = (i32, Region)> + Clone,
) -> Result<()> {
    exchange(s, g, out.clone(), into.clone());
    let (from, to) =
        (out.filter(|(rank, _)| *rank == g.rank), into.filter(|(rank, _)| *rank == g.rank));
    to.zip(from).for_each(|((_, to), (_, from))| s.copy(to, from));
    s.round();
    Ok(())
}

/// Appends the sends and receives of one round: each block of `out` is sent directly to its rank,
/// and each block of `into` is received directly from its rank. Blocks for this rank itself and for
/// DTL_PROC_NULL are skipped; the caller copies blocks for this rank itself.
pub(crate) fn exchange(
    s: &mut dyn Steps,
    g: Group,
    out: impl Iterator<Item = (i32, Region)>,
    into: impl Iterator<Item = (i32, Region)>,
) {
    let is_other = |(rank, _): &(i32, Region)| *rank >= 0 && *rank != g.rank;
    into.filter(is_other).for_each(|(rank, data)| s.recv(rank, data));
    out.filter(is_other).for_each(|(rank, data)| s.send(rank, data));
}
