//! Collective calls: arguments checked and steps generated. `run` runs them.

use super::Comm;
use super::algorithms as algorithm;
use super::algorithms::any::{self, Way};
use super::algorithms::choice::{Algorithm, Allowed, choose};
use super::begun::{Begun, Caller};
use super::call::{Call, Kind};
use super::flat::{Flat, Shape};
use super::p2p::Data;
use super::steps::Steps;
use super::types::Reduction;
use super::whole::{OnHost, Place};
use crate::error::{Result, fail};
use crate::runtime::backend::Collective;
use crate::runtime::explain;
use crate::sys::buf::Region;
use std::sync::atomic::Ordering;

impl Comm {
    fn check_root(&self, root: i32) -> Result<()> {
        if (0..self.size).contains(&root) {
            return Ok(());
        }
        fail!(
            DTL_ERROR_INVALID_RANK,
            "root {root}: the communicator has ranks 0 to {}",
            self.size - 1
        )
    }

    /// The algorithm for a call; the first use of each is explained.
    fn choose(&self, kind: Kind, bytes: usize, commutes: bool) -> Algorithm {
        let allowed = Allowed {
            two_level: self
                .levels
                .as_ref()
                .is_some_and(|levels| levels.suit(kind, commutes, self.link.is_deterministic)),
            flat: self.flat.as_ref().is_some_and(|flat| flat.takes(bytes)),
        };
        let algorithm = choose(kind, self.size, bytes, commutes, allowed);
        let bit = 1_u32 << (algorithm as u32);
        let seen = self.chosen.get(kind as usize);
        if seen.is_some_and(|seen| seen.load(Ordering::Relaxed) & bit == 0) {
            self.explain_choice(kind, algorithm, bytes);
        }
        algorithm
    }

    /// How a collective goes by an algorithm.
    fn way(&self, how: Algorithm) -> Way<'_> {
        Way { how, levels: self.levels.as_ref() }
    }

    /// The board, if the algorithm uses it.
    #[inline]
    fn flat(&self, how: Algorithm) -> Option<&Flat> {
        self.flat.as_ref().filter(|_| how == Algorithm::Flat)
    }

    #[cold]
    fn explain_choice(&self, kind: Kind, algorithm: Algorithm, bytes: usize) {
        if let Some(seen) = self.chosen.get(kind as usize) {
            seen.fetch_or(1 << (algorithm as u32), Ordering::Relaxed);
        }
        let topic = format!("{} {algorithm:?}", kind.name());
        let kind = self.link.kind.to_string_lossy();
        let text = format!("first used with {bytes} bytes over {} ranks ({kind})", self.size);
        explain::chose(&topic, &text);
    }
}

#[inline(always)]
fn check_disjoint(send: Region, recv: Region) -> Result<()> {
    if send.overlaps(recv) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "the send and receive buffers overlap: use two buffers, or DTL_IN_PLACE"
        );
    }
    Ok(())
}

/// A rank's own contribution; `None` = DTL_IN_PLACE: it lies where the result goes.
pub type Sent = Option<Region>;

/// The bytes sent, checked against where the result goes.
#[inline(always)]
fn sent_or(send: Sent, recv: Region, in_place: Region) -> Result<Region> {
    match send {
        Some(send) => check_disjoint(send, recv).map(|()| send),
        None => Ok(in_place),
    }
}

/// One of several blocks.
fn at(blocks: &[Region], rank: i32) -> Region {
    usize::try_from(rank).ok().and_then(|rank| blocks.get(rank)).copied().unwrap_or(Region::EMPTY)
}

/// How much a block is, for a rank's own buffer may be elsewhere.
#[derive(Clone, Copy)]
pub struct Of {
    /// Elements.
    pub count: u64,
    /// Their type.
    pub dtype: i32,
    /// Bytes.
    pub bytes: usize,
}

/// An operation for a collective: what folds, and what it is called in reports.
#[derive(Clone, Copy)]
pub struct By {
    /// What folds.
    pub reduction: Reduction,
    /// DTL_OP_....
    pub op: i32,
}

impl By {
    fn folding(&self) -> algorithm::Folding {
        algorithm::Folding { element: self.reduction.element, commutes: self.reduction.commutes }
    }
}

/// Returns once every rank has called it.
pub fn barrier(comm: Caller<'_>) -> Result<Begun> {
    let call = Call::new(Kind::Barrier);
    let whole = || Collective::Barrier;
    OnHost::begin(comm, &call, whole, || {
        let how = comm.choose(Kind::Barrier, 0, true);
        if let Some(flat) = comm.flat(how) {
            return comm.prepare_flat(call, None, flat, Shape::Barrier);
        }
        comm.prepare(call, None, |s, g| any::barrier(s, g, comm.way(how)))
    })
}

/// The same under another name, by the library's own algorithms, so that this rank serves others
/// while it waits.
pub(super) fn meet(comm: &Comm, kind: Kind) -> Result<Begun> {
    let call = Call::new(kind);
    match &comm.flat {
        Some(flat) => comm.prepare_flat(call, None, flat, Shape::Barrier),
        None => comm.prepare(call, None, |s, g| {
            algorithm::barrier(s, g);
            Ok(())
        }),
    }
}

/// The root's data to all.
pub(super) fn bcast<P: Place>(comm: Caller<'_>, data: Data, root: i32) -> Result<Begun> {
    comm.check_root(root)?;
    let call = Call::new(Kind::Bcast).with(data.count, data.dtype).root(root);
    let whole = || Collective::Bcast { data: data.bytes, root };
    P::begin(comm, &call, whole, || {
        let how = comm.choose(Kind::Bcast, data.bytes.len(), true);
        if let Some(flat) = comm.flat(how) {
            return comm.prepare_flat(call, None, flat, Shape::Bcast { root, data: data.bytes });
        }
        comm.prepare(call, None, |s, g| any::bcast(s, g, comm.way(how), root, data.bytes))
    })
}

/// Everybody's data folded, at the root. `recv` says count and dtype; its bytes count at the root.
pub(super) fn reduce<P: Place>(
    comm: Caller<'_>,
    send: Sent,
    recv: Data,
    by: By,
    root: i32,
) -> Result<Begun> {
    comm.check_root(root)?;
    if send.is_none() && comm.rank != root {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "sbuf: DTL_IN_PLACE is for the root (rank {root}) only"
        );
    }
    let whole = || Collective::Reduce { send, recv: recv.bytes, root, by: by.reduction };
    let send = sent_or(send, recv.bytes, recv.bytes)?;
    let call = Call::new(Kind::Reduce).with(recv.count, recv.dtype).op(by.op).root(root);
    P::begin(comm, &call, whole, || {
        let how = comm.choose(Kind::Reduce, send.len(), by.reduction.commutes);
        if let Some(flat) = comm.flat(how) {
            let shape = Shape::Reduce { root, send, recv: recv.bytes };
            return comm.prepare_flat(call, Some(by.reduction), flat, shape);
        }
        let folding = by.folding();
        comm.prepare(call, Some(by.reduction), |s, g| {
            any::reduce(s, g, comm.way(how), root, folding, (send, recv.bytes))
        })
    })
}

/// Everybody's data folded, at everybody.
#[inline(always)]
pub(super) fn allreduce<P: Place>(
    comm: Caller<'_>,
    send: Sent,
    recv: Data,
    by: By,
) -> Result<Begun> {
    let whole = || Collective::Allreduce { send, recv: recv.bytes, by: by.reduction };
    let from = sent_or(send, recv.bytes, recv.bytes)?;
    let call = Call::new(Kind::Allreduce).with(recv.count, recv.dtype).op(by.op);
    P::begin(comm, &call, whole, || allreduce_by_steps(&comm, call, (from, recv.bytes), by))
}

#[inline(never)]
fn allreduce_by_steps(
    comm: &Comm,
    call: Call,
    (send, recv): (Region, Region),
    by: By,
) -> Result<Begun> {
    let how = comm.choose(Kind::Allreduce, send.len(), by.reduction.commutes);
    if let Some(flat) = comm.flat(how) {
        let shape = Shape::Allreduce { send, recv };
        return comm.prepare_flat(call, Some(by.reduction), flat, shape);
    }
    let folding = by.folding();
    comm.prepare(call, Some(by.reduction), |s, g| {
        any::allreduce(s, g, comm.way(how), folding, (send, recv))
    })
}

/// Everybody's blocks folded; rank r gets block r. `blocks`: the parts of `send` (or in place: of
/// where the result goes).
pub(super) fn reduce_scatter<P: Place>(
    comm: Caller<'_>,
    kind: BlockKind,
    blocks: &[Region],
    in_place: bool,
    recv: Data,
    by: By,
) -> Result<Begun> {
    if !in_place {
        blocks.iter().try_for_each(|block| check_disjoint(*block, recv.bytes))?;
    }
    let kind =
        if kind == BlockKind::Equal { Kind::ReduceScatterBlock } else { Kind::ReduceScatter };
    let call = Call::new(kind).with(recv.count, recv.dtype).op(by.op);
    let whole = || {
        let send = if in_place { None } else { Some(span(blocks)) };
        Collective::ReduceScatter {
            send,
            blocks: blocks.to_vec(),
            recv: recv.bytes,
            by: by.reduction,
        }
    };
    P::begin(comm, &call, whole, || {
        comm.choose(kind, recv.bytes.len(), by.reduction.commutes);
        comm.prepare(call, Some(by.reduction), |s, g| {
            algorithm::reduce_scatter(s, g, blocks, recv.bytes)
        })
    })
}

/// What consecutive blocks cover. Empty ones are nowhere.
fn span(blocks: &[Region]) -> Region {
    let len = blocks.iter().map(|block| block.len()).sum();
    blocks
        .iter()
        .find(|block| !block.is_empty())
        .map_or(Region::EMPTY, |first| Region::allocated(first.addr(), len))
}

/// Whether all ranks' blocks have the same size.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum BlockKind {
    /// The same on all ranks.
    Equal,
    /// Each rank has its own.
    Various,
}

/// Everything up to this rank folded: with this rank's own part (scan) or without (exscan).
pub(super) fn scan<P: Place>(
    comm: Caller<'_>,
    send: Sent,
    recv: Data,
    by: By,
    exclusive: bool,
) -> Result<Begun> {
    let whole = || Collective::Scan { send, recv: recv.bytes, by: by.reduction, exclusive };
    let send = sent_or(send, recv.bytes, recv.bytes)?;
    let kind = if exclusive { Kind::Exscan } else { Kind::Scan };
    let call = Call::new(kind).with(recv.count, recv.dtype).op(by.op);
    P::begin(comm, &call, whole, || {
        comm.choose(kind, send.len(), by.reduction.commutes);
        comm.prepare(call, Some(by.reduction), |s, g| match exclusive {
            true => algorithm::exscan(s, g, send, recv.bytes),
            false => algorithm::scan(s, g, send, recv.bytes),
        })
    })
}

/// Everybody's block, at the root. `per_rank`: one block; `recv`: all of them, at the root.
pub(super) fn gather<P: Place>(
    comm: Caller<'_>,
    send: Sent,
    per_rank: Of,
    recv: Region,
    root: i32,
) -> Result<Begun> {
    comm.check_root(root)?;
    let len = per_rank.bytes;
    let whole = || Collective::Gather { send, recv, len, root };
    let own = recv.part(comm.rank as usize * len, len);
    let send = at_root_only(comm, "sbuf", send, recv, own, root)?;
    let call = Call::new(Kind::Gather).with(per_rank.count, per_rank.dtype).root(root);
    P::begin(comm, &call, whole, || {
        let how = comm.choose(Kind::Gather, len, true);
        comm.prepare(call, None, |s, g| any::gather(s, g, comm.way(how), root, (send, recv)))
    })
}

/// In place makes sense where the result goes.
fn at_root_only(
    comm: Caller<'_>,
    name: &str,
    mine: Sent,
    theirs: Region,
    own: Region,
    root: i32,
) -> Result<Region> {
    if mine.is_none() && comm.rank != root {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{name}: DTL_IN_PLACE is for the root (rank {root}) only"
        );
    }
    sent_or(mine, theirs, own)
}

/// The same with a block of its own size for each rank.
pub(super) fn gatherv<P: Place>(
    comm: Caller<'_>,
    send: Sent,
    of: Of,
    blocks: &[Region],
    root: i32,
) -> Result<Begun> {
    comm.check_root(root)?;
    if send.is_none() && comm.rank != root {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "sbuf: DTL_IN_PLACE is for the root (rank {root}) only"
        );
    }
    if let Some(send) = send {
        blocks.iter().try_for_each(|block| check_disjoint(send, *block))?;
    }
    let whole = || Collective::Gatherv { send, blocks: blocks.to_vec(), root };
    let send = send.unwrap_or(at(blocks, root));
    let call = Call::new(Kind::Gatherv).with(of.count, of.dtype).root(root);
    P::begin(comm, &call, whole, || {
        comm.choose(Kind::Gatherv, 0, true);
        comm.prepare(call, None, |s, g| {
            algorithm::gatherv(s, g, root, send, |rank| at(blocks, rank));
            Ok(())
        })
    })
}

/// The root's blocks, one to each. `recv` `None` = DTL_IN_PLACE at the root.
pub(super) fn scatter<P: Place>(
    comm: Caller<'_>,
    send: Region,
    recv: Sent,
    per_rank: Of,
    root: i32,
) -> Result<Begun> {
    comm.check_root(root)?;
    let len = per_rank.bytes;
    let whole = || Collective::Scatter { send, recv, len, root };
    let own = send.part(comm.rank as usize * len, len);
    let recv = at_root_only(comm, "rbuf", recv, send, own, root)?;
    let call = Call::new(Kind::Scatter).with(per_rank.count, per_rank.dtype).root(root);
    P::begin(comm, &call, whole, || {
        let how = comm.choose(Kind::Scatter, len, true);
        comm.prepare(call, None, |s, g| any::scatter(s, g, comm.way(how), root, (send, recv)))
    })
}

/// The same with a block of its own size for each rank.
pub(super) fn scatterv<P: Place>(
    comm: Caller<'_>,
    blocks: &[Region],
    recv: Sent,
    of: Of,
    root: i32,
) -> Result<Begun> {
    comm.check_root(root)?;
    if recv.is_none() && comm.rank != root {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "rbuf: DTL_IN_PLACE is for the root (rank {root}) only"
        );
    }
    if let Some(recv) = recv {
        blocks.iter().try_for_each(|block| check_disjoint(*block, recv))?;
    }
    let whole = || Collective::Scatterv { blocks: blocks.to_vec(), recv, root };
    let recv = recv.unwrap_or(at(blocks, root));
    let call = Call::new(Kind::Scatterv).with(of.count, of.dtype).root(root);
    P::begin(comm, &call, whole, || {
        comm.choose(Kind::Scatterv, 0, true);
        comm.prepare(call, None, |s, g| {
            algorithm::scatterv(s, g, root, |rank| at(blocks, rank), recv);
            Ok(())
        })
    })
}

/// Everybody's block, at everybody.
pub(super) fn allgather<P: Place>(
    comm: Caller<'_>,
    send: Sent,
    per_rank: Of,
    recv: Region,
) -> Result<Begun> {
    let len = per_rank.bytes;
    let whole = || Collective::Allgather { send, recv, len };
    let send = sent_or(send, recv, recv.part(comm.rank as usize * len, len))?;
    let call = Call::new(Kind::Allgather).with(per_rank.count, per_rank.dtype);
    P::begin(comm, &call, whole, || {
        let how = comm.choose(Kind::Allgather, len, true);
        if let Some(flat) = comm.flat(how) {
            return comm.prepare_flat(call, None, flat, Shape::Allgather { send, recv });
        }
        comm.prepare(call, None, |s, g| any::allgather(s, g, comm.way(how), (send, recv)))
    })
}

/// The same with a block of its own size for each rank.
pub(super) fn allgatherv<P: Place>(
    comm: Caller<'_>,
    send: Sent,
    of: Of,
    blocks: &[Region],
) -> Result<Begun> {
    if let Some(send) = send {
        blocks.iter().try_for_each(|block| check_disjoint(send, *block))?;
    }
    let whole = || Collective::Allgatherv { send, blocks: blocks.to_vec() };
    let send = send.unwrap_or(at(blocks, comm.rank));
    let call = Call::new(Kind::Allgatherv).with(of.count, of.dtype);
    P::begin(comm, &call, whole, || {
        comm.choose(Kind::Allgatherv, 0, true);
        comm.prepare(call, None, |s, g| {
            algorithm::allgatherv(s, g, send, |rank| at(blocks, rank));
            Ok(())
        })
    })
}

/// Block r to rank r, and block r from rank r.
pub(super) fn alltoall<P: Place>(
    comm: Caller<'_>,
    send: Sent,
    per_rank: Of,
    recv: Region,
) -> Result<Begun> {
    if let Some(send) = send {
        check_disjoint(send, recv)?;
    }
    let len = per_rank.bytes;
    let call = Call::new(Kind::Alltoall).with(per_rank.count, per_rank.dtype);
    let whole = || Collective::Alltoall { send, recv, len };
    P::begin(comm, &call, whole, || {
        let how = comm.choose(Kind::Alltoall, len, true);
        comm.prepare(call, None, |s, g| {
            let send = match send {
                Some(send) => send,
                None => copied(s, recv)?,
            };
            algorithm::alltoall(s, g, how, len, (send, recv))
        })
    })
}

/// What lies where the result goes, moved out of its way.
fn copied(s: &mut impl Steps, what: Region) -> Result<Region> {
    let copy = s.scratch(what.len())?;
    s.copy(copy, what);
    s.round();
    Ok(copy)
}

/// The same with blocks of their own sizes. `send` `None` = DTL_IN_PLACE.
pub(super) fn alltoallv<P: Place>(
    comm: Caller<'_>,
    send: Option<&[Region]>,
    recv: &[Region],
    of: Of,
) -> Result<Begun> {
    let whole =
        || Collective::Alltoallv { send: send.map(<[Region]>::to_vec), blocks: recv.to_vec() };
    let call = Call::new(Kind::Alltoallv).with(of.count, of.dtype);
    P::begin(comm, &call, whole, || {
        comm.choose(Kind::Alltoallv, 0, true);
        comm.prepare(call, None, |s, g| {
            let moved: Vec<Region> = match send {
                Some(send) => send.to_vec(),
                None => recv.iter().map(|block| copied(s, *block)).collect::<Result<_>>()?,
            };
            any::alltoallv(s, g, |rank| at(&moved, rank), |rank| at(recv, rank));
            Ok(())
        })
    })
}

/// Blocks to and from chosen ranks.
pub struct Neighbors<'a> {
    /// Ranks, or DTL_PROC_NULL.
    pub ranks: &'a [i32],
    /// One for each.
    pub blocks: &'a [Region],
}

/// One block to each of `out`'s ranks, one from each of `into`'s.
pub fn neighbor_alltoallv(
    comm: Caller<'_>,
    out: &Neighbors<'_>,
    into: &Neighbors<'_>,
    of: Of,
) -> Result<Begun> {
    out.ranks.iter().try_for_each(|rank| comm.check_peer("dests", *rank, false))?;
    into.ranks.iter().try_for_each(|rank| comm.check_peer("sources", *rank, false))?;
    comm.choose(Kind::NeighborAlltoallv, 0, true);
    comm.prepare(Call::new(Kind::NeighborAlltoallv).with(of.count, of.dtype), None, |s, g| {
        let pairs = |of: &Neighbors<'_>| -> Vec<(i32, Region)> {
            of.ranks.iter().copied().zip(of.blocks.iter().copied()).collect()
        };
        let (sent, received) = (pairs(out), pairs(into));
        algorithm::exchange(s, g, sent.iter().copied(), received.iter().copied());
        let own = |pairs: &[(i32, Region)]| -> Vec<Region> {
            pairs.iter().filter(|(rank, _)| *rank == g.rank).map(|(_, data)| *data).collect()
        };
        // The n-th block to itself is the n-th from itself.
        own(&received).iter().zip(own(&sent)).for_each(|(to, from)| s.copy(*to, from));
        s.round();
        Ok(())
    })
}
