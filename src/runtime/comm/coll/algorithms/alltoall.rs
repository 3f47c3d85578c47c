//! Total exchanges.

use super::choice::Algorithm;
use super::{Group, block, turn};
use crate::error::Result;
use crate::runtime::comm::coll::schedule_builder::Steps;
use crate::sys::memory::buf::Region;

/// Block r of `send` goes to rank r; block r of `recv` comes from rank r; blocks of `len` bytes. In
/// place `send` is `recv`.
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

/// Bruck: in round k every block whose distance has bit k goes 2^k ranks on, packed into one
/// message.
fn bruck(s: &mut dyn Steps, g: Group, len: usize, (send, recv): (Region, Region)) -> Result<()> {
    let all = s.scratch(len * g.size as usize)?;
    let most = len * ((g.size + 1) / 2) as usize;
    let (out, into) = (s.scratch(most)?, s.scratch(most)?);
    turn(s, g.rank, len, all, send);
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

/// Copies data that a result will overwrite.
fn copied(s: &mut dyn Steps, data: Region) -> Result<Region> {
    let copy = s.scratch(data.len())?;
    s.copy(copy, data);
    s.round();
    Ok(copy)
}

/// Block r of `out` to rank r, block r of `into` from rank r. Each begins with its neighbour, or
/// all would send to rank 0 first and wait for its port. In place the blocks of `into` are sent.
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

/// One block to each of `out`'s ranks, one from each of `into`'s. The n-th block to this rank
/// itself is the n-th from itself.
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

/// Everything at once: each block straight to its rank. A block for this rank itself is copied.
pub(crate) fn exchange(
    s: &mut dyn Steps,
    g: Group,
    out: impl Iterator<Item = (i32, Region)>,
    into: impl Iterator<Item = (i32, Region)>,
) {
    into.filter(|(rank, _)| *rank >= 0 && *rank != g.rank)
        .for_each(|(rank, data)| s.recv(rank, data));
    out.filter(|(rank, _)| *rank >= 0 && *rank != g.rank)
        .for_each(|(rank, data)| s.send(rank, data));
}
