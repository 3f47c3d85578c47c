//! Reductions. Operands are always folded in the order of ranks unless the operation commutes, and
//! every rank gets the identical result: a NaN's bits and the sign of a zero depend on the order.
//!
//! Much data goes piece by piece, each as if it were alone: what arrives is folded while it is in
//! the cache, and scratch memory is bounded. Data are received where their result goes if they can
//! be.

use super::choice::Algorithm;
use super::{Group, ReductionInfo, ring, share};
use crate::error::Result;
use crate::runtime::comm::coll::schedule_builder::Steps;
use crate::sys::memory::buf::Region;

/// Bytes that fit the cache together with what they are folded with.
const PIECE: usize = 512 << 10;
/// Most pieces of a collective; more data go in larger ones.
const MOST_PIECES: usize = 256;
/// Messages that a rank without parts to wait for sends at once.
const AHEAD: usize = 8;

/// Whole elements in pieces of about so many bytes: where each begins, and the length of all but
/// the last. One empty piece if there are none.
fn pieces(len: usize, element: usize, bytes: usize) -> (impl Iterator<Item = usize>, usize) {
    let element = element.max(1);
    let piece = bytes.max(len / MOST_PIECES).div_ceil(element) * element;
    ((0..len.div_ceil(piece).max(1)).map(move |index| index * piece), piece)
}

/// Bytes of a piece that ranks share among them.
fn shared_piece(ranks: i32) -> usize {
    (ranks as usize * (64 << 10)).clamp(PIECE, 4 << 20)
}

pub(crate) fn reduce(
    s: &mut dyn Steps,
    g: Group,
    how: Algorithm,
    root: i32,
    by: ReductionInfo,
    data: (Region, Region),
) -> Result<()> {
    match how {
        Algorithm::HalvingGather => halving_gather(s, g, root, by.element, data),
        _ => binomial(s, g, root, by, data),
    }
}

/// Binomial tree towards the root; each partial result covers consecutive ranks and the lower part
/// is always the left operand. Without commutation the tree's root must be rank 0.
fn binomial(
    s: &mut dyn Steps,
    g: Group,
    root: i32,
    by: ReductionInfo,
    (send, recv): (Region, Region),
) -> Result<()> {
    let top = if by.commutes { root } else { 0 };
    let me = g.steps_from(top);
    let is_root = g.rank == root;
    let has_parts = me % 2 == 0 && me + 1 < g.size;
    let (starts, piece) = pieces(send.len(), by.element, PIECE);
    let room = if has_parts { piece.min(send.len()) } else { 0 };
    let (partial, other) = (if is_root { recv } else { s.scratch(room)? }, s.scratch(room)?);
    for (index, start) in starts.enumerate() {
        let own = send.part(start, piece);
        let partial = partial.part(if is_root { start } else { 0 }, own.len());
        let folded = fold_parts(s, g, top, own, (partial, other.part(0, own.len())));
        if me != 0 {
            s.send((me - (me & -me) + top) % g.size, folded);
        } else if is_root {
            s.copy(partial, folded);
        }
        // Nothing is reused by those that have no parts.
        if has_parts || is_root || index % AHEAD == AHEAD - 1 {
            s.round();
        }
        if top != root && g.rank == top {
            s.send(root, folded);
            s.round();
        } else if top != root && is_root {
            s.recv(top, partial);
            s.round();
        }
    }
    s.round();
    Ok(())
}

/// Takes the parts of the tree below this rank; where they are folded with its own.
fn fold_parts(
    s: &mut dyn Steps,
    g: Group,
    top: i32,
    own: Region,
    (partial, other): (Region, Region),
) -> Region {
    let me = g.steps_from(top);
    let mut folded = own;
    let mut reach = 1;
    while me & reach == 0 && me + reach < g.size {
        let from = (me + reach + top) % g.size;
        if folded == partial {
            s.recv(from, other);
            s.reduce(partial, other);
        } else {
            s.recv(from, partial);
            s.reduce_to_right(own, partial);
            folded = partial;
        }
        s.round();
        reach *= 2;
    }
    folded
}

/// Recursive halving, then each rank's share goes up a binomial tree. For operations that commute:
/// ranks are counted so that the root is the last, which always goes on.
fn halving_gather(
    s: &mut dyn Steps,
    g: Group,
    root: i32,
    element: usize,
    (send, recv): (Region, Region),
) -> Result<()> {
    let v = Group { rank: (g.rank - root - 1).rem_euclid(g.size), size: g.size };
    let fold = Fold::new(v);
    let (mut starts, piece) = pieces(send.len(), element, shared_piece(fold.core));
    let room = piece.min(send.len());
    let is_root = g.rank == root;
    let (result, other) = (if is_root { recv } else { s.scratch(room)? }, s.scratch(room)?);
    s.renamed(&|rank| (rank + root + 1) % g.size, &mut |s| {
        for start in starts.by_ref() {
            let own = send.part(start, piece);
            let result = result.part(if is_root { start } else { 0 }, own.len());
            let Some((me, own)) = fold.enter(s, v, (own, result), other) else { continue };
            let shares = Shares { whole: result, core: fold.core, element };
            halve(s, &fold, me, &shares, own, other);
            shares.gather(s, &fold, me);
        }
        s.round();
        Ok(())
    })
}

pub(crate) fn allreduce(
    s: &mut dyn Steps,
    g: Group,
    how: Algorithm,
    element: usize,
    (send, recv): (Region, Region),
) -> Result<()> {
    if how == Algorithm::RecursiveDoubling {
        return doubling(s, g, (send, recv));
    }
    let (starts, piece) = pieces(send.len(), element, shared_piece(g.size));
    let largest = piece.min(send.len());
    let room = match how {
        Algorithm::Rabenseifner => largest,
        _ => COLLECTED * (largest / element.max(1)).div_ceil(g.size as usize) * element,
    };
    let room = s.scratch(room)?;
    for start in starts {
        let piece = (send.part(start, piece), recv.part(start, piece));
        match how {
            Algorithm::Rabenseifner => halving_doubling(s, g, element, piece, room),
            _ => pairwise_ring(s, g, element, piece, room),
        }
    }
    Ok(())
}

/// Ranks beyond a power of two: of the first 2*extra ranks each even one gives its part to its odd
/// neighbour, which stands for both. The rest keep their order, so parts stay consecutive.
pub(crate) struct Fold {
    pub(crate) core: i32,
    pub(crate) extra: i32,
}

impl Fold {
    pub(crate) fn new(g: Group) -> Fold {
        let core = 1 << (i32::BITS - 1 - g.size.leading_zeros());
        Fold { core, extra: g.size - core }
    }

    /// Gives or takes the neighbour's part. Our number among those that go on, and where our part
    /// lies then: still in `own`, or folded in `result`.
    fn enter(
        &self,
        s: &mut dyn Steps,
        g: Group,
        (own, result): (Region, Region),
        other: Region,
    ) -> Option<(i32, Region)> {
        if g.rank >= 2 * self.extra {
            return Some((g.rank - self.extra, own));
        }
        if g.rank % 2 == 0 {
            s.send(g.rank + 1, own);
            s.round();
            return None;
        }
        let other = other.part(0, own.len());
        s.recv(g.rank - 1, other);
        s.copy(result, own);
        s.reduce_to_right(other, result);
        s.round();
        Some((g.rank / 2, result))
    }

    /// The rank of one of those that go on.
    fn real(&self, number: i32) -> i32 {
        if number < self.extra { 2 * number + 1 } else { number + self.extra }
    }

    /// The result for those that gave their part away.
    fn leave(&self, s: &mut dyn Steps, g: Group, recv: Region) {
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
fn doubling(s: &mut dyn Steps, g: Group, (send, recv): (Region, Region)) -> Result<()> {
    let other = s.scratch(send.len())?;
    let fold = Fold::new(g);
    if let Some((me, mut own)) = fold.enter(s, g, (send, recv), other) {
        let mut distance = 1;
        while distance < fold.core {
            let partner = me ^ distance;
            s.recv(fold.real(partner), other);
            s.send(fold.real(partner), own);
            s.copy(recv, own);
            own = recv;
            if me < partner {
                s.reduce(recv, other);
            } else {
                s.reduce_to_right(other, recv);
            }
            s.round();
            distance *= 2;
        }
        if own != recv {
            s.copy(recv, own);
            s.round();
        }
    }
    fold.leave(s, g, recv);
    Ok(())
}

/// Data dealt out to those that go on.
struct Shares {
    whole: Region,
    core: i32,
    element: usize,
}

impl Shares {
    /// Shares first ... first + width - 1 of data that are laid out alike.
    fn of(&self, data: Region, first: i32, width: i32) -> Region {
        let begin = share(data, first, self.core, self.element);
        let end = share(data, first + width - 1, self.core, self.element);
        let start = begin.addr().get() - data.addr().get();
        data.part(start, end.addr().get() - begin.addr().get() + end.len())
    }

    /// Gathers all ranks' shares on every rank, by recursive doubling.
    fn spread(&self, s: &mut dyn Steps, fold: &Fold, me: i32) {
        let (mut first, mut width) = (me, 1);
        while width < self.core {
            let partner = fold.real(me ^ width);
            s.recv(partner, self.of(self.whole, first ^ width, width));
            s.send(partner, self.of(self.whole, first, width));
            s.round();
            first &= !width;
            width *= 2;
        }
    }

    /// Gathers all ranks' shares on the last rank, by a binomial tree.
    fn gather(&self, s: &mut dyn Steps, fold: &Fold, me: i32) {
        let (mut first, mut width) = (me, 1);
        while width < self.core {
            let partner = fold.real(me ^ width);
            if me & width == 0 {
                s.send(partner, self.of(self.whole, first, width));
                s.round();
                return;
            }
            first &= !width;
            s.recv(partner, self.of(self.whole, first, width));
            s.round();
            width *= 2;
        }
    }
}

/// Recursive halving: halves of halves are exchanged and folded until each rank has its share of
/// the result. `own`: where our part lies now.
fn halve(s: &mut dyn Steps, fold: &Fold, me: i32, shares: &Shares, own: Region, other: Region) {
    let result = shares.whole;
    let (mut first, mut width, mut own) = (0, fold.core, own);
    while width > 1 {
        width /= 2;
        let partner = fold.real(me ^ width);
        let (kept, given) =
            if me & width == 0 { (first, first + width) } else { (first + width, first) };
        let into = shares.of(result, kept, width);
        s.send(partner, shares.of(own, given, width));
        if own == result {
            let other = other.part(0, into.len());
            s.recv(partner, other);
            s.reduce(into, other);
        } else {
            s.recv(partner, into);
            s.reduce_to_right(shares.of(own, kept, width), into);
        }
        s.round();
        (first, own) = (kept, result);
    }
    s.copy(result, own);
}

/// Rabenseifner: recursive halving, then the shares are collected the same way back. For operations
/// that commute.
fn halving_doubling(
    s: &mut dyn Steps,
    g: Group,
    element: usize,
    (send, recv): (Region, Region),
    other: Region,
) {
    let fold = Fold::new(g);
    if let Some((me, own)) = fold.enter(s, g, (send, recv), other) {
        let shares = Shares { whole: recv, core: fold.core, element };
        halve(s, &fold, me, &shares, own, other);
        shares.spread(s, &fold, me);
    }
    fold.leave(s, g, recv);
    s.round();
}

/// Each rank collects its share from all ranks, folds it in the order of ranks, then the shares go
/// round the ring.
fn pairwise_ring(
    s: &mut dyn Steps,
    g: Group,
    element: usize,
    (send, recv): (Region, Region),
    room: Region,
) {
    let part = |whole: Region, rank: i32| share(whole, rank, g.size, element);
    collect(s, g, |rank| part(send, rank), part(recv, g.rank), room);
    ring(s, g, part(recv, g.rank), |rank| part(recv, rank));
}

/// Reduces the blocks of all ranks; rank r gets block r, which is as long as `recv`.
pub(crate) fn reduce_scatter(
    s: &mut dyn Steps,
    g: Group,
    block: impl Fn(i32) -> Region,
    recv: Region,
) -> Result<()> {
    let room = s.scratch(COLLECTED * recv.len())?;
    collect(s, g, block, recv, room);
    Ok(())
}

/// Parts that `collect` needs room for.
const COLLECTED: usize = 3;

/// Folds all ranks' parts for this rank into `result`. `result` may be part of what is sent. Parts
/// are folded as they come: those of the ranks below onto our own from there down, those of the
/// ranks above from the last down.
fn collect(
    s: &mut dyn Steps,
    g: Group,
    sent: impl Fn(i32) -> Region,
    result: Region,
    room: Region,
) {
    let part = |index: usize| room.part(index * result.len(), result.len());
    let is_free = !(0..g.size).any(|rank| sent(rank).overlaps(result));
    let lower = if is_free { result } else { part(0) };
    let (upper, other) = (part(1), part(2));
    s.copy(lower, sent(g.rank));
    for distance in 1..g.size {
        let (to, from) = (g.after(distance), g.after(-distance));
        s.send(to, sent(to));
        if from == g.size - 1 {
            s.recv(from, upper);
        } else {
            s.recv(from, other);
            s.reduce_to_right(other, if from < g.rank { lower } else { upper });
        }
        s.round();
    }
    if g.rank + 1 < g.size {
        s.reduce(lower, upper);
    }
    s.copy(result, lower);
    s.round();
}

#[cfg(test)]
mod tests;
