//! Reductions. Operands are always folded in the order of ranks unless the operation commutes, and
//! every rank gets the identical result: a NaN's bits and the sign of a zero depend on the order.

use super::choice::Algorithm;
use super::{Group, block, ring, share};
use crate::error::Result;
use crate::runtime::comm::schedule::Schedule;
use crate::sys::buf::Region;

/// Binomial tree towards the root; each partial result covers consecutive ranks and the lower part
/// is always the left operand. Without commutation the tree's root must be rank 0.
pub(in crate::runtime::comm) fn reduce(
    s: &mut Schedule,
    g: Group,
    root: i32,
    commutes: bool,
    (send, recv): (Region, Region),
) -> Result<()> {
    let top = if commutes { root } else { 0 };
    let me = g.steps_from(top);
    let real = |virtual_rank: i32| (virtual_rank + top) % g.size;
    let partial = if g.rank == root { recv } else { s.scratch(send.len())? };
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
    if top != root {
        if g.rank == top {
            s.send(root, partial);
        } else if g.rank == root {
            s.recv(top, recv);
        }
        s.round();
    }
    Ok(())
}

pub(in crate::runtime::comm) fn allreduce(
    s: &mut Schedule,
    g: Group,
    how: Algorithm,
    element: usize,
    (send, recv): (Region, Region),
) -> Result<()> {
    if how == Algorithm::PairwiseRing {
        return pairwise_ring(s, g, element, (send, recv));
    }
    s.copy(recv, send);
    s.round();
    let other = s.scratch(send.len())?;
    let fold = Fold::new(g);
    let Some(me) = fold.enter(s, g, recv, other) else {
        fold.leave(s, g, recv);
        return Ok(());
    };
    match how {
        Algorithm::Rabenseifner => halving_doubling(s, &fold, me, element, (recv, other)),
        _ => doubling(s, &fold, me, (recv, other)),
    }
    fold.leave(s, g, recv);
    Ok(())
}

/// Ranks beyond a power of two: of the first 2·extra ranks each even one gives its part to its odd
/// neighbour, which stands for both. The rest keep their order, so parts stay consecutive.
struct Fold {
    core: i32,
    extra: i32,
}

impl Fold {
    fn new(g: Group) -> Fold {
        let core = 1 << (i32::BITS - 1 - g.size.leading_zeros());
        Fold { core, extra: g.size - core }
    }

    /// Gives or takes the neighbour's part; our number among those that go on.
    fn enter(&self, s: &mut Schedule, g: Group, recv: Region, other: Region) -> Option<i32> {
        if g.rank >= 2 * self.extra {
            return Some(g.rank - self.extra);
        }
        if g.rank % 2 == 0 {
            s.send(g.rank + 1, recv);
            s.round();
            return None;
        }
        s.recv(g.rank - 1, other);
        s.reduce(other, recv);
        s.copy(recv, other);
        s.round();
        Some(g.rank / 2)
    }

    /// The rank of one of those that go on.
    fn real(&self, number: i32) -> i32 {
        if number < self.extra { 2 * number + 1 } else { number + self.extra }
    }

    /// The result for those that gave their part away.
    fn leave(&self, s: &mut Schedule, g: Group, recv: Region) {
        if g.rank < 2 * self.extra {
            if g.rank % 2 == 0 {
                s.recv(g.rank + 1, recv);
            } else {
                s.send(g.rank - 1, recv);
            }
            s.round();
        }
    }
}

/// Recursive doubling: the partners' parts are neighbours, the lower one is the left operand.
fn doubling(s: &mut Schedule, fold: &Fold, me: i32, (recv, other): (Region, Region)) {
    let mut distance = 1;
    while distance < fold.core {
        let partner = me ^ distance;
        s.recv(fold.real(partner), other);
        s.send(fold.real(partner), recv);
        if me < partner {
            s.reduce(recv, other);
        } else {
            s.reduce(other, recv);
            s.copy(recv, other);
        }
        s.round();
        distance *= 2;
    }
}

/// Rabenseifner: halves of halves are exchanged and folded until each rank has its share of the
/// result, then the shares are collected the same way back. For operations that commute.
fn halving_doubling(s: &mut Schedule, fold: &Fold, me: i32, element: usize, (recv, other): (Region, Region)) {
    // Shares first … first + width - 1 of a region.
    let shares = |whole: Region, first: i32, width: i32| {
        let begin = share(whole, first, fold.core, element);
        let end = share(whole, first + width - 1, fold.core, element);
        let start = begin.addr().get() - whole.addr().get();
        whole.part(start, end.addr().get() - begin.addr().get() + end.len())
    };
    let (mut first, mut width) = (0, fold.core);
    while width > 1 {
        width /= 2;
        let partner = fold.real(me ^ width);
        let (kept, given) = if me & width == 0 { (first, first + width) } else { (first + width, first) };
        s.recv(partner, shares(other, kept, width));
        s.send(partner, shares(recv, given, width));
        s.reduce(shares(recv, kept, width), shares(other, kept, width));
        s.round();
        first = kept;
    }
    while width < fold.core {
        let partner = fold.real(me ^ width);
        let theirs = first ^ width;
        s.recv(partner, shares(recv, theirs, width));
        s.send(partner, shares(recv, first, width));
        s.round();
        first = first.min(theirs);
        width *= 2;
    }
}

/// Each rank collects its share from everybody, folds it in the order of ranks, then the shares go
/// round the ring.
fn pairwise_ring(s: &mut Schedule, g: Group, element: usize, (send, recv): (Region, Region)) -> Result<()> {
    let part = |whole: Region, rank: i32| share(whole, rank, g.size, element);
    collect(s, g, |rank| part(send, rank), part(recv, g.rank))?;
    ring(s, g, |rank| part(recv, rank));
    Ok(())
}

/// Folds everybody's blocks; rank r gets block r, whose length `recv` says.
pub(in crate::runtime::comm) fn reduce_scatter(
    s: &mut Schedule,
    g: Group,
    blocks: &[Region],
    recv: Region,
) -> Result<()> {
    let block = |rank: i32| blocks.get(rank as usize).copied().unwrap_or(Region::EMPTY);
    collect(s, g, block, recv)
}

/// Everybody's part for this rank, folded into `result`. `result` may be part of what is sent.
fn collect(s: &mut Schedule, g: Group, sent: impl Fn(i32) -> Region, result: Region) -> Result<()> {
    let len = result.len();
    let parts = s.scratch(len * g.size as usize)?;
    for distance in 1..g.size {
        let (to, from) = (g.after(distance), g.after(-distance));
        s.recv(from, block(parts, from, len));
        s.send(to, sent(to));
        s.round();
    }
    s.copy(block(parts, g.rank, len), sent(g.rank));
    for rank in 1..g.size {
        s.reduce(block(parts, 0, len), block(parts, rank, len));
    }
    s.copy(result, block(parts, 0, len));
    s.round();
    Ok(())
}
