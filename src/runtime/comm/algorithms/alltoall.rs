//! Total exchanges.

use super::choice::Algorithm;
use super::{Group, block, turn};
use crate::error::Result;
use crate::runtime::comm::steps::Steps;
use crate::sys::buf::Region;

/// Block r of `send` goes to rank r; block r of `recv` comes from rank r; blocks of `len` bytes.
pub(in crate::runtime::comm) fn alltoall(
    s: &mut impl Steps,
    g: Group,
    how: Algorithm,
    len: usize,
    (send, recv): (Region, Region),
) -> Result<()> {
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
fn bruck(s: &mut impl Steps, g: Group, len: usize, (send, recv): (Region, Region)) -> Result<()> {
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

/// Everything at once: each block straight to its rank. A block for this rank itself is copied.
pub(in crate::runtime::comm) fn exchange(
    s: &mut impl Steps,
    g: Group,
    out: impl Iterator<Item = (i32, Region)>,
    into: impl Iterator<Item = (i32, Region)>,
) {
    into.filter(|(rank, _)| *rank >= 0 && *rank != g.rank)
        .for_each(|(rank, data)| s.recv(rank, data));
    out.filter(|(rank, _)| *rank >= 0 && *rank != g.rank)
        .for_each(|(rank, data)| s.send(rank, data));
}
