//! Gather, scatter and allgather.

use super::choice::Algorithm;
use super::{Group, block, ring, turned_parts};
use crate::error::Result;
use crate::runtime::comm::coll::schedule_builder::Steps;
use crate::sys::memory::buf::Region;

/// Returns the number of ranks in the subtree whose root is virtual rank `me`, in a binomial tree
/// over `size` ranks.
fn subtree(me: i32, size: i32) -> i32 {
    let width = if me == 0 { size } else { me & -me };
    width.min(size - me)
}

/// Appends a gather: `recv` (at the root) consists of one block for each rank. Each block has the
/// size of `send`.
pub(crate) fn gather(
    s: &mut dyn Steps,
    g: Group,
    how: Algorithm,
    root: i32,
    (send, recv): (Region, Region),
) -> Result<()> {
    let len = send.len();
    if how != Algorithm::Binomial {
        return gatherv(s, g, root, send, |rank| block(recv, rank, len));
    }
    let me = g.steps_from(root);
    let all = s.scratch(len * subtree(me, g.size) as usize)?;
    s.copy(block(all, 0, len), send);
    s.round();
    let mut reach = 1;
    while reach < g.size && me & reach == 0 {
        if me + reach < g.size {
            let width = subtree(me + reach, g.size).min(reach);
            s.recv(
                (me + reach + root) % g.size,
                all.part(reach as usize * len, width as usize * len),
            );
            s.round();
        }
        reach *= 2;
    }
    if me != 0 {
        s.send((me - reach + root) % g.size, all);
    } else {
        // The blocks are ordered from the root on.
        turned_parts(root, len, recv, all).for_each(|(into, from)| s.copy(into, from));
    }
    s.round();
    Ok(())
}

/// Appends a linear gather: every rank sends its block directly to the root.
pub(crate) fn gatherv(
    s: &mut dyn Steps,
    g: Group,
    root: i32,
    send: Region,
    recv: impl Fn(i32) -> Region,
) -> Result<()> {
    if g.rank == root {
        (0..g.size).filter(|rank| *rank != root).for_each(|rank| s.recv(rank, recv(rank)));
        s.copy(recv(root), send);
    } else {
        s.send(root, send);
    }
    s.round();
    Ok(())
}

/// Appends a scatter: `send` (at the root) consists of one block for each rank. Each block has the
/// size of `recv`.
pub(crate) fn scatter(
    s: &mut dyn Steps,
    g: Group,
    how: Algorithm,
    root: i32,
    (send, recv): (Region, Region),
) -> Result<()> {
    let len = recv.len();
    if how != Algorithm::Binomial {
        return scatterv(s, g, root, |rank| block(send, rank, len), recv);
    }
    let me = g.steps_from(root);
    let all = s.scratch(len * subtree(me, g.size) as usize)?;
    let mut reach = 1;
    while reach < g.size && me & reach == 0 {
        reach *= 2;
    }
    if me == 0 {
        turned_parts(root, len, send, all).for_each(|(from, into)| s.copy(into, from));
    } else {
        s.recv((me - reach + root) % g.size, all);
    }
    s.round();
    while reach > 1 {
        reach /= 2;
        if me + reach < g.size {
            let width = subtree(me + reach, g.size).min(reach);
            s.send(
                (me + reach + root) % g.size,
                all.part(reach as usize * len, width as usize * len),
            );
        }
    }
    s.copy(recv, block(all, 0, len));
    s.round();
    Ok(())
}

/// Appends a linear scatter: the root sends every block directly to the rank that receives it.
pub(crate) fn scatterv(
    s: &mut dyn Steps,
    g: Group,
    root: i32,
    send: impl Fn(i32) -> Region,
    recv: Region,
) -> Result<()> {
    if g.rank == root {
        (0..g.size).filter(|rank| *rank != root).for_each(|rank| s.send(rank, send(rank)));
        s.copy(recv, send(root));
    } else {
        s.recv(root, recv);
    }
    s.round();
    Ok(())
}

/// Appends an allgather: `recv` consists of one block for each rank. Each block has the size of
/// `send`.
pub(crate) fn allgather(
    s: &mut dyn Steps,
    g: Group,
    how: Algorithm,
    (send, recv): (Region, Region),
) -> Result<()> {
    let len = send.len();
    if how == Algorithm::Bruck {
        return bruck(s, g, send, recv);
    }
    allgatherv(s, g, send, |rank| block(recv, rank, len))
}

/// Appends a ring allgather of blocks of different sizes.
pub(crate) fn allgatherv(
    s: &mut dyn Steps,
    g: Group,
    send: Region,
    recv: impl Fn(i32) -> Region,
) -> Result<()> {
    // Copied at the end of the first round, so no rank waits for the copy.
    s.copy(recv(g.rank), send);
    ring(s, g, send, recv);
    s.round();
    Ok(())
}

/// Appends Bruck's allgather: in each round the number of blocks on a rank doubles. Until the last
/// step, the blocks are in rank order, starting with this rank's own block (modulo the number of
/// ranks).
fn bruck(s: &mut dyn Steps, g: Group, send: Region, recv: Region) -> Result<()> {
    let len = send.len();
    let all = s.scratch(len * g.size as usize)?;
    s.copy(block(all, 0, len), send);
    s.round();
    let mut have = 1;
    while have < g.size {
        let more = have.min(g.size - have) as usize;
        s.recv(g.after(have), all.part(have as usize * len, more * len));
        s.send(g.after(-have), all.part(0, more * len));
        s.round();
        have *= 2;
    }
    turned_parts(g.rank, len, recv, all).for_each(|(into, from)| s.copy(into, from));
    s.round();
    Ok(())
}
