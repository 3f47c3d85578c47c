//! Collectives of memory that the host cannot reach: where the communicator has collectives of such
//! memory, they are those (`coll_device`); else they run on host memory that stands for it, filled
//! before they begin and copied back when they are over. One load decides that there is no such
//! memory.
//!
//! The run on host memory uses the library's own collectives. All ranks have to take part alike,
//! whatever memory each has, as no rank has information about the others' staging.

use super::{Buffer, CollArgs, Extent, Root};
use crate::error::Result;
use crate::runtime::comm::Comm;
use crate::runtime::comm::op_desc::Kind;
use crate::runtime::comm::p2p::p2p_staging::{copy_out, is_hidden};
use crate::runtime::comm::p2p::staging_memory::host_memory;
use crate::runtime::memory::transfer;
use crate::sys::memory::buf::{Region, Scratch};

/// How a collective accesses a buffer.
#[derive(Clone, Copy)]
struct Access {
    reads: bool,
    writes: bool,
}

impl Access {
    const READ: Access = Access { reads: true, writes: false };
    const WRITTEN: Access = Access { reads: false, writes: true };
    const BOTH: Access = Access { reads: true, writes: true };

    /// Access to the buffer of the result. The data of a rank are only read.
    fn of_result(args: &CollArgs, rank: i32) -> Access {
        match args.kind {
            Kind::Bcast if rank == args.root => Access::READ,
            // The first rank's result stays as it was, and where nothing comes from a neighbor.
            Kind::Exscan | Kind::NeighborAlltoallv => Access::BOTH,
            _ if args.in_place => Access::BOTH,
            _ => Access::WRITTEN,
        }
    }
}

/// Host memory that stands for buffers of one collective.
#[derive(Default)]
pub(in crate::runtime::comm) struct StagedBuffers {
    memory: Vec<Scratch>,
    /// Device buffers that get results, and where these are.
    results: Vec<(Region, Region)>,
}

impl StagedBuffers {
    /// Whether there is none: the host reaches all buffers.
    pub(super) fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// The collective is over.
    pub(in crate::runtime::comm) fn deliver(&self) -> Result<()> {
        self.results.iter().try_for_each(|(device, host)| transfer::stage_in(*device, *host))
    }

    fn keep(&mut self, host: Scratch) -> Region {
        let region = host.region();
        self.memory.push(host);
        region
    }

    fn buffer(&mut self, comm: &Comm, buffer: &Buffer, access: Access) -> Result<Buffer> {
        Ok(match buffer {
            Buffer::Whole(range) => Buffer::Whole(self.range(comm, *range, access)?),
            Buffer::Blocks(blocks) => Buffer::Blocks(self.blocks(comm, blocks, access)?),
        })
    }

    fn range(&mut self, comm: &Comm, range: Region, access: Access) -> Result<Region> {
        if !is_hidden(comm, range)? {
            return Ok(range);
        }
        let host = if access.reads { copy_out(range)? } else { host_memory(range.len())? };
        let host = self.keep(host);
        if access.writes {
            self.results.push((range, host));
        }
        Ok(host)
    }

    /// Blocks of one buffer, which lie to each other as they did.
    fn blocks(&mut self, comm: &Comm, blocks: &[Region], access: Access) -> Result<Vec<Region>> {
        let used = || blocks.iter().filter(|block| !block.is_empty());
        let first = used().map(|block| block.addr()).min();
        let end = used().map(|block| block.addr().get() + block.len()).max();
        let (Some(first), Some(end)) = (first, end) else { return Ok(blocks.to_vec()) };
        if !is_hidden(comm, Region::allocated(first, end - first.get()))? {
            return Ok(blocks.to_vec());
        }
        let all = self.keep(host_memory(end - first.get())?);
        let of = |block: &Region| match block.is_empty() {
            true => *block,
            false => all.part(block.addr().get() - first.get(), block.len()),
        };
        for block in used() {
            if access.reads {
                transfer::stage_out(of(block), *block)?;
            }
            if access.writes {
                self.results.push((*block, of(block)));
            }
        }
        Ok(blocks.iter().map(of).collect())
    }

    /// A reduction in place whose result is the beginning of what its blocks are parts of.
    fn blocks_and_result(&mut self, comm: &Comm, args: &mut CollArgs) -> Result<()> {
        let first = |buffer: &Buffer| {
            buffer.ranges().iter().find(|range| !range.is_empty()).map(|range| range.addr())
        };
        let device = first(&args.send);
        args.send = self.buffer(comm, &args.send, Access::READ)?;
        let (host, result) = (first(&args.send), args.recv.whole());
        args.recv = Buffer::Whole(match host {
            Some(host) if device != Some(host) && !result.is_empty() => {
                let host = Region::allocated(host, result.len());
                self.results.push((result, host));
                host
            }
            _ => self.range(comm, result, Access::WRITTEN)?,
        });
        Ok(())
    }
}

/// Replaces the buffers that the host cannot reach by host memory that stands for them.
pub(super) fn stage(comm: &Comm, mut args: CollArgs) -> Result<(CollArgs, StagedBuffers)> {
    let mut stage = StagedBuffers::default();
    let recv = Access::of_result(&args, comm.rank);
    let row = args.row;
    if args.in_place && row.root == Root::Send {
        args.send = stage.buffer(comm, &args.send, Access::READ)?;
    } else if args.in_place && row.recv == Extent::Own && row.send != Extent::Own {
        stage.blocks_and_result(comm, &mut args)?;
        return Ok((args, stage));
    } else {
        if !args.in_place {
            args.send = stage.buffer(comm, &args.send, Access::READ)?;
        }
        args.recv = stage.buffer(comm, &args.recv, recv)?;
    }
    if args.in_place {
        args.set_place(comm.rank);
    }
    Ok((args, stage))
}
