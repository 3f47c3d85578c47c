//! Which messages a collective consists of. Each function appends steps for this rank; none of
//! them talks to a transport.
//!
//! n = ranks, m = bytes. Steps (rounds) and bytes sent by one rank:
//!
//! | collective | algorithm | rounds | bytes |
//! |---|---|---|---|
//! | barrier | dissemination | log2 n | 0 |
//! | bcast, reduce | binomial tree | log2 n | m log2 n at the root |
//! | allreduce, small | recursive doubling | log2 n (+2) | m log2 n |
//! | allreduce, large | reduce-scatter by exchange, ring allgather | n | 2 m |
//! | gather, scatter | direct | 1 | m |
//! | allgather | ring | n-1 | m (n-1) |
//! | alltoall | pairwise exchange | n-1 | m (n-1) |
//!
//! Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in
//! MPICH" (2005).

use super::schedule::Schedule;
use super::types::Reduction;
use crate::error::Result;
use crate::sys::buf::Region;

/// From this size on, an allreduce moves 2 m bytes in n rounds instead of m log2 n in log2 n.
const LARGE_ALLREDUCE: usize = 32 << 10;

/// Who we are in the collective.
#[derive(Clone, Copy)]
pub(super) struct Group {
    pub(super) rank: i32,
    pub(super) size: i32,
}

impl Group {
    fn after(self, steps: i32) -> i32 {
        (self.rank + steps).rem_euclid(self.size)
    }
}

pub(super) fn barrier(s: &mut Schedule, g: Group) {
    let mut distance = 1;
    while distance < g.size {
        s.recv(g.after(-distance), Region::EMPTY);
        s.send(g.after(distance), Region::EMPTY);
        s.round();
        distance *= 2;
    }
}

/// Binomial tree; ranks are counted from the root.
pub(super) fn bcast(s: &mut Schedule, g: Group, root: i32, data: Region) {
    let me = (g.rank - root).rem_euclid(g.size);
    let real = |virtual_rank: i32| (virtual_rank + root) % g.size;
    let mut reach = 1;
    while reach < g.size {
        if me & reach != 0 {
            s.recv(real(me - reach), data);
            s.round();
            break;
        }
        reach *= 2;
    }
    // `reach` is the subtree's width: pass on to its halves, the largest first.
    while reach > 1 {
        reach /= 2;
        if me + reach < g.size {
            s.send(real(me + reach), data);
        }
    }
    s.round();
}

/// Binomial tree towards the root; each partial result covers consecutive ranks from the root on
/// and the lower part is always the left operand.
pub(super) fn reduce(s: &mut Schedule, g: Group, root: i32, send: Region, recv: Region) -> Result<()> {
    let me = (g.rank - root).rem_euclid(g.size);
    let real = |virtual_rank: i32| (virtual_rank + root) % g.size;
    let partial = if me == 0 { recv } else { s.scratch(send.len())? };
    let other = s.scratch(send.len())?;
    s.copy(partial, send);
    s.round();
    let mut reach = 1;
    while reach < g.size {
        if me & reach != 0 {
            s.send(real(me - reach), partial);
            s.round();
            break;
        }
        if me + reach < g.size {
            s.recv(real(me + reach), other);
            s.reduce(partial, other);
            s.round();
        }
        reach *= 2;
    }
    Ok(())
}

/// For an operation that does not commute: in the order of ranks to rank 0, and from there to the root.
pub(super) fn reduce_in_order(
    s: &mut Schedule,
    g: Group,
    root: i32,
    send: Region,
    recv: Region,
) -> Result<()> {
    if root == 0 {
        return reduce(s, g, 0, send, recv);
    }
    let all = if g.rank == 0 { s.scratch(send.len())? } else { Region::EMPTY };
    reduce(s, g, 0, send, all)?;
    if g.rank == 0 {
        s.send(root, all);
    } else if g.rank == root {
        s.recv(0, recv);
    }
    s.round();
    Ok(())
}

pub(super) fn allreduce(
    s: &mut Schedule,
    g: Group,
    send: Region,
    recv: Region,
    by: &Reduction,
) -> Result<()> {
    // Doubling pairs the ranks beyond a power of two out of order.
    if (send.len() >= LARGE_ALLREDUCE || !by.commutes) && g.size > 1 {
        allreduce_blocks(s, g, send, recv, by.element)
    } else {
        allreduce_doubling(s, g, send, recv)
    }
}

/// Recursive doubling. Ranks beyond the largest power of two hand their part to a partner first
/// and get the result from it at the end. The lower rank's part is always the left operand: a NaN's
/// bits and the sign of a zero depend on the order, and every rank shall get the identical result.
fn allreduce_doubling(s: &mut Schedule, g: Group, send: Region, recv: Region) -> Result<()> {
    let core = 1 << (i32::BITS - 1 - g.size.leading_zeros());
    let extra = g.size - core;
    s.copy(recv, send);
    s.round();
    if g.rank >= core {
        s.send(g.rank - core, recv);
        s.round();
        s.recv(g.rank - core, recv);
        s.round();
        return Ok(());
    }
    let other = s.scratch(send.len())?;
    if g.rank < extra {
        s.recv(g.rank + core, other);
        s.reduce(recv, other);
        s.round();
    }
    let mut distance = 1;
    while distance < core {
        let partner = g.rank ^ distance;
        s.recv(partner, other);
        s.send(partner, recv);
        if g.rank < partner {
            s.reduce(recv, other);
        } else {
            s.reduce(other, recv);
            s.copy(recv, other);
        }
        s.round();
        distance *= 2;
    }
    if g.rank < extra {
        s.send(g.rank + core, recv);
        s.round();
    }
    Ok(())
}

/// Each rank collects one block from everybody, folds it in the order of ranks, then the blocks go
/// round the ring.
fn allreduce_blocks(s: &mut Schedule, g: Group, send: Region, recv: Region, element: usize) -> Result<()> {
    let count = send.len() / element;
    let bounds = |block: i32| {
        let edge = |index: i32| count * index as usize / g.size as usize * element;
        (edge(block), edge(block + 1) - edge(block))
    };
    let (start, len) = bounds(g.rank);
    let parts = s.scratch(len * g.size as usize)?;
    let part = |rank: i32| parts.part(rank as usize * len, len);
    for distance in 1..g.size {
        let (to, from) = (g.after(distance), g.after(-distance));
        let (there, size) = bounds(to);
        s.recv(from, part(from));
        s.send(to, send.part(there, size));
        s.round();
    }
    s.copy(part(g.rank), send.part(start, len));
    for rank in 1..g.size {
        s.reduce(part(0), part(rank));
    }
    s.copy(recv.part(start, len), part(0));
    s.round();
    ring(s, g, |block| {
        let (start, len) = bounds(block);
        recv.part(start, len)
    });
    Ok(())
}

/// Every rank starts with its own block and ends with all of them.
fn ring(s: &mut Schedule, g: Group, block: impl Fn(i32) -> Region) {
    for step in 0..g.size - 1 {
        s.recv(g.after(-1), block(g.after(-step - 1)));
        s.send(g.after(1), block(g.after(-step)));
        s.round();
    }
}

/// `recv` (at the root) holds one block of `send`'s size for each rank.
pub(super) fn gather(s: &mut Schedule, g: Group, root: i32, send: Region, recv: Region) {
    if g.rank != root {
        s.send(root, send);
    } else {
        let len = send.len();
        for rank in (0..g.size).filter(|rank| *rank != root) {
            s.recv(rank, recv.part(rank as usize * len, len));
        }
        s.copy(recv.part(root as usize * len, len), send);
    }
    s.round();
}

/// `send` (at the root) holds one block of `recv`'s size for each rank.
pub(super) fn scatter(s: &mut Schedule, g: Group, root: i32, send: Region, recv: Region) {
    if g.rank != root {
        s.recv(root, recv);
    } else {
        let len = recv.len();
        for rank in (0..g.size).filter(|rank| *rank != root) {
            s.send(rank, send.part(rank as usize * len, len));
        }
        s.copy(recv, send.part(root as usize * len, len));
    }
    s.round();
}

pub(super) fn allgather(s: &mut Schedule, g: Group, send: Region, recv: Region) {
    let len = send.len();
    let block = |rank: i32| recv.part(rank as usize * len, len);
    s.copy(block(g.rank), send);
    s.round();
    ring(s, g, block);
}

/// Block r of `send` goes to rank r; block r of `recv` comes from rank r.
pub(super) fn alltoall(s: &mut Schedule, g: Group, send: Region, recv: Region, len: usize) {
    let part = |whole: Region, rank: i32| whole.part(rank as usize * len, len);
    s.copy(part(recv, g.rank), part(send, g.rank));
    for distance in 1..g.size {
        let (to, from) = (g.after(distance), g.after(-distance));
        s.recv(from, part(recv, from));
        s.send(to, part(send, to));
        s.round();
    }
}
