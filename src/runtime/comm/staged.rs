//! Collectives of memory that the host cannot reach: where the communicator has collectives of such
//! memory, they are those (`on_device`); else they run on host memory that stands for it, filled
//! before they begin and copied back when they are over. One load tells that there is no such
//! memory.
//!
//! The library's own, as all ranks have to take part alike, whatever memory each has: no rank knows
//! of the others' staging.

use super::begun::{Begun, Caller};
use super::collective::{self, BlockKind, By, Neighbors, Of, Sent};
use super::on_device::{self, OnDevice};
use super::p2p::Data;
use super::staging::{copy_out, host_memory, is_hidden};
use super::whole::OnHost;
use crate::error::Result;
use crate::runtime::memory::hidden;
use crate::runtime::transfer;
use crate::sys::buf::{Region, Scratch};

pub use collective::barrier;

/// Host memory that stands for buffers of one collective.
#[derive(Default)]
pub(super) struct Stage {
    memory: Vec<Scratch>,
    /// Device buffers that get results, and where these are.
    results: Vec<(Region, Region)>,
}

impl Stage {
    /// The collective is over.
    pub(super) fn deliver(&self) -> Result<()> {
        self.results.iter().try_for_each(|(device, host)| transfer::copy_staged(*device, *host))
    }

    fn keep(&mut self, host: Scratch) -> Region {
        let region = host.region();
        self.memory.push(host);
        region
    }

    /// A buffer that is only read.
    fn out(&mut self, comm: Caller<'_>, buffer: Region) -> Result<Region> {
        if is_hidden(&comm, buffer)? { Ok(self.keep(copy_out(buffer)?)) } else { Ok(buffer) }
    }

    /// One that is only written.
    fn into(&mut self, comm: Caller<'_>, buffer: Region) -> Result<Region> {
        if !is_hidden(&comm, buffer)? {
            return Ok(buffer);
        }
        let host = self.keep(host_memory(buffer.len())?);
        self.results.push((buffer, host));
        Ok(host)
    }

    /// One that is read, then written.
    fn both(&mut self, comm: Caller<'_>, buffer: Region) -> Result<Region> {
        if !is_hidden(&comm, buffer)? {
            return Ok(buffer);
        }
        let host = self.keep(copy_out(buffer)?);
        self.results.push((buffer, host));
        Ok(host)
    }

    /// What is sent (`None`: it lies where the result goes), and where that is.
    fn pair(&mut self, comm: Caller<'_>, send: Sent, recv: Region) -> Result<(Sent, Region)> {
        match send {
            // Refused by the collective: nothing stands for them.
            Some(send) if send.overlaps(recv) => Ok((Some(send), recv)),
            Some(send) => Ok((Some(self.out(comm, send)?), self.into(comm, recv)?)),
            None => Ok((None, self.both(comm, recv)?)),
        }
    }

    /// The same of blocks and one buffer.
    fn pair_blocks(
        &mut self,
        comm: Caller<'_>,
        (blocks, how): (&[Region], (bool, bool)),
        one: Sent,
        stand: fn(&mut Self, Caller<'_>, Region) -> Result<Region>,
    ) -> Result<(Vec<Region>, Sent)> {
        if one.is_some_and(|one| blocks.iter().any(|block| block.overlaps(one))) {
            return Ok((blocks.to_vec(), one));
        }
        let one = one.map(|one| stand(self, comm, one)).transpose()?;
        Ok((self.blocks(comm, blocks, how)?, one))
    }

    /// Blocks of one buffer, which lie to each other as they did.
    fn blocks(
        &mut self,
        comm: Caller<'_>,
        blocks: &[Region],
        (reads, writes): (bool, bool),
    ) -> Result<Vec<Region>> {
        let used = || blocks.iter().filter(|block| !block.is_empty());
        let first = used().map(|block| block.addr()).min();
        let end = used().map(|block| block.addr().get() + block.len()).max();
        let (Some(first), Some(end)) = (first, end) else { return Ok(blocks.to_vec()) };
        if !is_hidden(&comm, Region::allocated(first, end - first.get()))? {
            return Ok(blocks.to_vec());
        }
        let all = self.keep(host_memory(end - first.get())?);
        let of = |block: &Region| match block.is_empty() {
            true => *block,
            false => all.part(block.addr().get() - first.get(), block.len()),
        };
        for block in used() {
            if reads {
                transfer::copy_staged(of(block), *block)?;
            }
            if writes {
                self.results.push((*block, of(block)));
            }
        }
        Ok(blocks.iter().map(of).collect())
    }
}

/// A buffer that may be in place.
fn one(buffer: Sent) -> Region {
    buffer.unwrap_or(Region::EMPTY)
}

/// One that counts at the root.
fn at_root(comm: Caller<'_>, root: i32, buffer: Region) -> Region {
    if comm.rank == root { buffer } else { Region::EMPTY }
}

const READ: (bool, bool) = (true, false);
const WRITTEN: (bool, bool) = (false, true);
const BOTH: (bool, bool) = (true, true);

/// Begins one where its buffers are, if that is on a device whose memory the communicator has
/// collectives of; else with what stands for them.
#[cold]
fn with(
    comm: Caller<'_>,
    buffers: &[&[Region]],
    on_device: impl FnOnce() -> Result<Begun>,
    begin: impl FnOnce(&mut Stage) -> Result<Begun>,
) -> Result<Begun> {
    if let Some(begun) = on_device::begin(&comm, buffers, on_device)? {
        return Ok(begun);
    }
    let mut stage = Stage::default();
    let begun = begin(&mut stage)?;
    if stage.memory.is_empty() { Ok(begun) } else { begun.with(stage) }
}

/// As `collective::bcast`.
#[inline(always)]
pub fn bcast(comm: Caller<'_>, data: Data, root: i32) -> Result<Begun> {
    if !hidden::is_any() {
        return collective::bcast::<OnHost>(comm, data, root);
    }
    let on_device = || collective::bcast::<OnDevice>(comm, data, root);
    with(comm, &[&[data.bytes]], on_device, |stage| {
        let bytes = match comm.rank == root {
            true => stage.out(comm, data.bytes)?,
            false => stage.into(comm, data.bytes)?,
        };
        collective::bcast::<OnHost>(comm, Data { bytes, ..data }, root)
    })
}

/// As `collective::reduce`.
#[inline(always)]
pub fn reduce(comm: Caller<'_>, send: Sent, recv: Data, by: By, root: i32) -> Result<Begun> {
    if !hidden::is_any() {
        return collective::reduce::<OnHost>(comm, send, recv, by, root);
    }
    let on_device = || collective::reduce::<OnDevice>(comm, send, recv, by, root);
    with(comm, &[&[one(send), at_root(comm, root, recv.bytes)]], on_device, |stage| {
        let (send, bytes) = stage.pair(comm, send, recv.bytes)?;
        collective::reduce::<OnHost>(comm, send, Data { bytes, ..recv }, by, root)
    })
}

/// As `collective::allreduce`.
#[inline(always)]
pub fn allreduce(comm: Caller<'_>, send: Sent, recv: Data, by: By) -> Result<Begun> {
    if hidden::is_any() {
        return allreduce_hidden(comm, send, recv, by);
    }
    collective::allreduce::<OnHost>(comm, send, recv, by)
}

#[cold]
#[inline(never)]
fn allreduce_hidden(comm: Caller<'_>, send: Sent, recv: Data, by: By) -> Result<Begun> {
    let on_device = || collective::allreduce::<OnDevice>(comm, send, recv, by);
    with(comm, &[&[one(send), recv.bytes]], on_device, |stage| {
        let (send, bytes) = stage.pair(comm, send, recv.bytes)?;
        collective::allreduce::<OnHost>(comm, send, Data { bytes, ..recv }, by)
    })
}

/// As `collective::reduce_scatter`. In place, the result is the beginning of what the blocks are
/// parts of.
#[inline(always)]
pub fn reduce_scatter(
    comm: Caller<'_>,
    kind: BlockKind,
    blocks: &[Region],
    in_place: bool,
    recv: Data,
    by: By,
) -> Result<Begun> {
    if !hidden::is_any() {
        return collective::reduce_scatter::<OnHost>(comm, kind, blocks, in_place, recv, by);
    }
    let on_device =
        || collective::reduce_scatter::<OnDevice>(comm, kind, blocks, in_place, recv, by);
    with(comm, &[blocks, &[recv.bytes]], on_device, |stage| {
        if !in_place && blocks.iter().any(|block| block.overlaps(recv.bytes)) {
            return collective::reduce_scatter::<OnHost>(comm, kind, blocks, in_place, recv, by);
        }
        let host = stage.blocks(comm, blocks, READ)?;
        let first = |blocks: &[Region]| blocks.iter().find(|block| !block.is_empty()).copied();
        let bytes = match (first(blocks), first(&host)) {
            (Some(device), Some(host)) if in_place && device != host && !recv.bytes.is_empty() => {
                let result = Region::allocated(host.addr(), recv.bytes.len());
                stage.results.push((recv.bytes, result));
                result
            }
            _ => stage.into(comm, recv.bytes)?,
        };
        collective::reduce_scatter::<OnHost>(
            comm,
            kind,
            &host,
            in_place,
            Data { bytes, ..recv },
            by,
        )
    })
}

/// As `collective::scan`.
#[inline(always)]
pub fn scan(comm: Caller<'_>, send: Sent, recv: Data, by: By, exclusive: bool) -> Result<Begun> {
    if !hidden::is_any() {
        return collective::scan::<OnHost>(comm, send, recv, by, exclusive);
    }
    let on_device = || collective::scan::<OnDevice>(comm, send, recv, by, exclusive);
    with(comm, &[&[one(send), recv.bytes]], on_device, |stage| {
        // The first rank's result of an exclusive one is what was there before.
        let is_refused = send.is_some_and(|send| send.overlaps(recv.bytes));
        let (send, bytes) = match send {
            Some(_) if is_refused => (send, recv.bytes),
            Some(send) => (Some(stage.out(comm, send)?), stage.both(comm, recv.bytes)?),
            None => (None, stage.both(comm, recv.bytes)?),
        };
        collective::scan::<OnHost>(comm, send, Data { bytes, ..recv }, by, exclusive)
    })
}

/// As `collective::gather`.
#[inline(always)]
pub fn gather(
    comm: Caller<'_>,
    send: Sent,
    per_rank: Of,
    recv: Region,
    root: i32,
) -> Result<Begun> {
    if !hidden::is_any() {
        return collective::gather::<OnHost>(comm, send, per_rank, recv, root);
    }
    let on_device = || collective::gather::<OnDevice>(comm, send, per_rank, recv, root);
    with(comm, &[&[one(send), at_root(comm, root, recv)]], on_device, |stage| {
        let (send, recv) = stage.pair(comm, send, recv)?;
        collective::gather::<OnHost>(comm, send, per_rank, recv, root)
    })
}

/// As `collective::gatherv`.
#[inline(always)]
pub fn gatherv(
    comm: Caller<'_>,
    send: Sent,
    of: Of,
    blocks: &[Region],
    root: i32,
) -> Result<Begun> {
    if !hidden::is_any() {
        return collective::gatherv::<OnHost>(comm, send, of, blocks, root);
    }
    let on_device = || collective::gatherv::<OnDevice>(comm, send, of, blocks, root);
    with(comm, &[&[one(send)], blocks], on_device, |stage| {
        let how = if send.is_some() { WRITTEN } else { BOTH };
        let (blocks, send) = stage.pair_blocks(comm, (blocks, how), send, Stage::out)?;
        collective::gatherv::<OnHost>(comm, send, of, &blocks, root)
    })
}

/// As `collective::scatter`.
#[inline(always)]
pub fn scatter(
    comm: Caller<'_>,
    send: Region,
    recv: Sent,
    per_rank: Of,
    root: i32,
) -> Result<Begun> {
    if !hidden::is_any() {
        return collective::scatter::<OnHost>(comm, send, recv, per_rank, root);
    }
    let on_device = || collective::scatter::<OnDevice>(comm, send, recv, per_rank, root);
    with(comm, &[&[at_root(comm, root, send), one(recv)]], on_device, |stage| {
        if recv.is_some_and(|recv| recv.overlaps(send)) {
            return collective::scatter::<OnHost>(comm, send, recv, per_rank, root);
        }
        let send = stage.out(comm, send)?;
        let recv = recv.map(|recv| stage.into(comm, recv)).transpose()?;
        collective::scatter::<OnHost>(comm, send, recv, per_rank, root)
    })
}

/// As `collective::scatterv`.
#[inline(always)]
pub fn scatterv(
    comm: Caller<'_>,
    blocks: &[Region],
    recv: Sent,
    of: Of,
    root: i32,
) -> Result<Begun> {
    if !hidden::is_any() {
        return collective::scatterv::<OnHost>(comm, blocks, recv, of, root);
    }
    let on_device = || collective::scatterv::<OnDevice>(comm, blocks, recv, of, root);
    with(comm, &[&[one(recv)], blocks], on_device, |stage| {
        let (blocks, recv) = stage.pair_blocks(comm, (blocks, READ), recv, Stage::into)?;
        collective::scatterv::<OnHost>(comm, &blocks, recv, of, root)
    })
}

/// As `collective::allgather`.
#[inline(always)]
pub fn allgather(comm: Caller<'_>, send: Sent, per_rank: Of, recv: Region) -> Result<Begun> {
    if !hidden::is_any() {
        return collective::allgather::<OnHost>(comm, send, per_rank, recv);
    }
    let on_device = || collective::allgather::<OnDevice>(comm, send, per_rank, recv);
    with(comm, &[&[one(send), recv]], on_device, |stage| {
        let (send, recv) = stage.pair(comm, send, recv)?;
        collective::allgather::<OnHost>(comm, send, per_rank, recv)
    })
}

/// As `collective::allgatherv`.
#[inline(always)]
pub fn allgatherv(comm: Caller<'_>, send: Sent, of: Of, blocks: &[Region]) -> Result<Begun> {
    if !hidden::is_any() {
        return collective::allgatherv::<OnHost>(comm, send, of, blocks);
    }
    let on_device = || collective::allgatherv::<OnDevice>(comm, send, of, blocks);
    with(comm, &[&[one(send)], blocks], on_device, |stage| {
        let how = if send.is_some() { WRITTEN } else { BOTH };
        let (blocks, send) = stage.pair_blocks(comm, (blocks, how), send, Stage::out)?;
        collective::allgatherv::<OnHost>(comm, send, of, &blocks)
    })
}

/// As `collective::alltoall`.
#[inline(always)]
pub fn alltoall(comm: Caller<'_>, send: Sent, per_rank: Of, recv: Region) -> Result<Begun> {
    if !hidden::is_any() {
        return collective::alltoall::<OnHost>(comm, send, per_rank, recv);
    }
    let on_device = || collective::alltoall::<OnDevice>(comm, send, per_rank, recv);
    with(comm, &[&[one(send), recv]], on_device, |stage| {
        let (send, recv) = stage.pair(comm, send, recv)?;
        collective::alltoall::<OnHost>(comm, send, per_rank, recv)
    })
}

/// As `collective::alltoallv`.
#[inline(always)]
pub fn alltoallv(
    comm: Caller<'_>,
    send: Option<&[Region]>,
    recv: &[Region],
    of: Of,
) -> Result<Begun> {
    if !hidden::is_any() {
        return collective::alltoallv::<OnHost>(comm, send, recv, of);
    }
    let on_device = || collective::alltoallv::<OnDevice>(comm, send, recv, of);
    with(comm, &[send.unwrap_or(&[]), recv], on_device, |stage| {
        let recv = stage.blocks(comm, recv, if send.is_some() { WRITTEN } else { BOTH })?;
        let send = send.map(|send| stage.blocks(comm, send, READ)).transpose()?;
        collective::alltoallv::<OnHost>(comm, send.as_deref(), &recv, of)
    })
}

/// As `collective::neighbor_alltoallv`.
#[inline(always)]
pub fn neighbor_alltoallv(
    comm: Caller<'_>,
    out: &Neighbors<'_>,
    into: &Neighbors<'_>,
    of: Of,
) -> Result<Begun> {
    if !hidden::is_any() {
        return collective::neighbor_alltoallv(comm, out, into, of);
    }
    let on_device = || on_device::refuse("neighbor_alltoallv", "each rank has other neighbors");
    with(comm, &[out.blocks, into.blocks], on_device, |stage| {
        // What comes from nobody is not written.
        let recv = stage.blocks(comm, into.blocks, BOTH)?;
        let send = stage.blocks(comm, out.blocks, READ)?;
        let out = Neighbors { blocks: &send, ..*out };
        collective::neighbor_alltoallv(comm, &out, &Neighbors { blocks: &recv, ..*into }, of)
    })
}
