//! Reductions. Operands are combined in rank order unless the operation commutes. All ranks get
//! bitwise identical results. This requires the same order of the operands for all ranks, because
//! the bits of a NaN and the sign of a zero depend on it.
//!
//! Large data is split into pieces (segments), and each piece is reduced separately. Therefore a
//! received piece is still in the cache when it is combined with local data, and the size of the
//! scratch memory is bounded. Data is received directly into the result buffer where possible.

use super::choice::Algorithm;
use super::{Group, ReductionInfo, ring, share};
use crate::error::Result;
use crate::runtime::comm::coll::schedule_builder::Steps;
use crate::sys::memory::buf::Region;

/// Size in bytes of a piece (segment of the data of a reduction). A piece and the data that it is
/// combined with fit into the cache.
const PIECE: usize = 512 << 10;
/// Maximum number of pieces (segments) into which the data of a reduction is split. The piece size
/// is increased if the data would need more pieces.
const MOST_PIECES: usize = 256;
/// Number of messages that a rank without children in the binomial tree sends in one round.
const AHEAD: usize = 8;

/// Splits `len` bytes into pieces of about `bytes` bytes each, without splitting an element.
/// Returns the offset of each piece, and the length of every piece except the last. Returns one
/// empty piece if `len` is 0.
fn pieces(len: usize, element: usize, bytes: usize) -> (impl Iterator<Item = usize>, usize) {
    let element = element.max(1);
    let piece = bytes.max(len / MOST_PIECES).div_ceil(element) * element;
    ((0..len.div_ceil(piece).max(1)).map(move |index| index * piece), piece)
}

/// Returns the size, in bytes, of the pieces (segments of the data) of a reduction in which each of
/// `ranks` ranks reduces one share of every piece.
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

/// Appends a binomial-tree reduction towards the root. Each partial result covers consecutive
/// ranks, and the partial result of the lower ranks is always the left operand. If the operation
/// does not commute, the root of the tree is rank 0, which sends the result to `root`.
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
        // Ranks without children reuse no scratch memory, so they need no round for each piece.
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

/// Appends steps that receive the partial results of the subtree below this rank and combine them
/// with this rank's data. Returns the region of the result.
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

/// Appends a reduction by recursive halving, then a binomial-tree gather of the ranks' shares of
/// the result at the root. For commutative operations only. Ranks are renumbered so that the root
/// is last. Therefore the root is always in the core, the power-of-two subset of ranks that
/// executes the recursive halving.
fn halving_gather(
    s: &mut dyn Steps,
    g: Group,
    root: i32,
    element: usize,
    (send, recv): (Region, Region),
) -> Result<()> {
    let v = Group { rank: (g.rank - root - 1).rem_euclid(g.size), size: g.size };
    let fold = Fold::new(v);
    let (starts, piece) = pieces(send.len(), element, shared_piece(fold.core));
    let room = piece.min(send.len());
    let is_root = g.rank == root;
    let (result, other) = (if is_root { recv } else { s.scratch(room)? }, s.scratch(room)?);
    let real = |rank: i32| (rank + root + 1) % g.size;
    s.renamed(real, |s| {
        for start in starts {
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
    by: ReductionInfo,
    (send, recv): (Region, Region),
) -> Result<()> {
    if how == Algorithm::RecursiveDoubling {
        return doubling(s, g, by, (send, recv));
    }
    let element = by.element;
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

/// Initial step that reduces the number of participating ranks to a power of two (the core). Of the
/// first 2 * `extra` ranks, each even rank sends its data to its odd neighbor, which combines this
/// data with its own and represents both ranks in the core. The rank order is kept, so each partial
/// result covers consecutive ranks.
pub(crate) struct Fold {
    pub(crate) core: i32,
    pub(crate) extra: i32,
}

impl Fold {
    pub(crate) fn new(g: Group) -> Fold {
        let core = 1 << (i32::BITS - 1 - g.size.leading_zeros());
        Fold { core, extra: g.size - core }
    }

    /// Appends the step after which only the ranks of the core participate; their number is a power
    /// of two. A rank outside the core sends its data to its neighbor, which combines this data
    /// with its own. Returns this rank's number in the core, and the region of its data (`own`, or
    /// `result` if the data of two ranks was combined); `None` if this rank is not in the core.
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

    /// Returns the rank of member `number` of the core (the ranks that [`Fold::enter`] selects).
    fn real(&self, number: i32) -> i32 {
        if number < self.extra { 2 * number + 1 } else { number + self.extra }
    }

    /// Appends the sends and receives that return the result to the ranks that are not in the core
    /// (see [`Fold::enter`]).
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

/// Appends an allreduce by recursive doubling. The partial results of two partners cover adjacent
/// ranges of ranks. The partial result of the lower ranks is the left operand.
fn doubling(
    s: &mut dyn Steps,
    g: Group,
    by: ReductionInfo,
    (send, recv): (Region, Region),
) -> Result<()> {
    let other = s.scratch(send.len())?;
    let fold = Fold::new(g);
    if let Some((me, mut own)) = fold.enter(s, g, (send, recv), other) {
        let mut distance = 1;
        while distance < fold.core {
            let partner = me ^ distance;
            // In the first exchange, the result has a buffer of its own: the message can be reduced
            // as it arrives.
            if !own.overlaps(recv) && (by.commutes || me < partner) {
                s.recv(fold.real(partner), recv);
                if me < partner {
                    s.reduce_to_right(own, recv)
                } else {
                    s.reduce(recv, own)
                }
                s.send(fold.real(partner), own);
            } else {
                s.recv(fold.real(partner), other);
                s.send(fold.real(partner), own);
                s.copy(recv, own);
                if me < partner { s.reduce(recv, other) } else { s.reduce_to_right(other, recv) }
            }
            own = recv;
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

/// Data divided into one share for each rank of the core (the power-of-two subset of the ranks).
struct Shares {
    whole: Region,
    core: i32,
    element: usize,
}

impl Shares {
    /// Returns shares `first` to `first + width - 1` of `data`, which has the layout of `whole`.
    fn of(&self, data: Region, first: i32, width: i32) -> Region {
        let begin = share(data, first, self.core, self.element);
        let end = share(data, first + width - 1, self.core, self.element);
        let start = begin.addr().get() - data.addr().get();
        data.part(start, end.addr().get() - begin.addr().get() + end.len())
    }

    /// Appends an allgather, by recursive doubling, of the shares of all ranks in the core (the
    /// power-of-two subset of the ranks).
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

    /// Appends the steps that gather the shares of all ranks in the core (the power-of-two subset
    /// of the ranks) on the core's last rank along a binomial tree.
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

/// Appends recursive halving: partners exchange halves and combine them until each rank has its
/// share of the result. `own` is the region with this rank's partial result.
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

/// Appends Rabenseifner's allreduce: recursive halving, then recursive doubling over the same
/// partners in reverse order. For commutative operations only.
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

/// Appends an allreduce: a pairwise reduce-scatter in rank order, then a ring allgather of the
/// ranks' shares of the result.
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

/// Appends a reduce-scatter: reduces block r of all ranks into `recv` of rank r. Each block has the
/// size of `recv`.
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

/// Size of the scratch memory of `collect`, as a multiple of the size of its `result`.
const COLLECTED: usize = 3;

/// Appends a pairwise reduce-scatter: reduces into `result` the blocks that all ranks contribute
/// for this rank. `result` may overlap with the sent data. Blocks are combined as they arrive:
/// blocks from lower ranks with this rank's own block, from the nearest rank down; blocks from
/// higher ranks with each other, from the last rank down.
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
    s.round();
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
#[path = "tests/reduce.rs"]
mod tests;
