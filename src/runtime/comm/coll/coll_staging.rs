//! Staging of collectives on memory that the host cannot access, if the communicator has no
//! collectives for such memory (`coll_device`). The collective runs on staging buffers in host
//! memory, which are filled before it starts and copied back when it completes. If the process has
//! no memory that the host cannot access, this code is skipped at the cost of one load.
//!
//! A staged run uses the library's own collectives. All ranks must use the same algorithm, whatever
//! memory each rank has, because no rank has information about the staging of other ranks.

use super::algorithms::args::area;
use super::{Buffer, CollArgs, Extent, Root};
use crate::error::Result;
use crate::runtime::comm::Comm;
use crate::runtime::comm::op_desc::Kind;
use crate::runtime::comm::p2p::p2p_staging::{copy_out, is_hidden};
use crate::runtime::comm::p2p::staging_memory::host_memory;
use crate::runtime::memory::transfer;
use crate::sys::memory::buf::{Region, Scratch};

/// Access of a collective to a buffer.
#[derive(Clone, Copy)]
struct Access {
    reads: bool,
    writes: bool,
}

impl Access {
    const READ: Access = Access { reads: true, writes: false };
    const WRITTEN: Access = Access { reads: false, writes: true };
    const BOTH: Access = Access { reads: true, writes: true };

    /// Returns the access mode for the result buffer. The send buffer is only read.
    fn of_result(args: &CollArgs, rank: i32) -> Access {
        match args.kind {
            Kind::Bcast if rank == args.root => Access::READ,
            // The result of exscan on rank 0, and of blocks without a source, remains unchanged.
            Kind::Exscan | Kind::NeighborAlltoallv => Access::BOTH,
            _ if args.in_place => Access::BOTH,
            _ => Access::WRITTEN,
        }
    }
}

/// Staging buffers in host memory for the buffers of one collective.
#[derive(Default)]
pub(crate) struct StagedBuffers {
    memory: Vec<Scratch>,
    /// Device buffers that receive results, each with the host region of its result.
    results: Vec<(Region, Region)>,
}

impl StagedBuffers {
    /// Returns true if the host can access all buffers, so that none of them is staged.
    pub(super) fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// Copies the results of the completed collective to the device buffers.
    pub(crate) fn deliver(&self) -> Result<()> {
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

    /// Stages the blocks of one buffer. They have the same relative offsets in the staging buffer
    /// as in device memory.
    fn blocks(&mut self, comm: &Comm, blocks: &[Region], access: Access) -> Result<Vec<Region>> {
        let Some((first, end)) = area(blocks) else { return Ok(blocks.to_vec()) };
        if !is_hidden(comm, Region::allocated(first, end - first.get()))? {
            return Ok(blocks.to_vec());
        }
        let all = self.keep(host_memory(end - first.get())?);
        let of = |block: &Region| match block.is_empty() {
            true => *block,
            false => all.part(block.addr().get() - first.get(), block.len()),
        };
        for block in blocks.iter().filter(|block| !block.is_empty()) {
            if access.reads {
                transfer::stage_out(of(block), *block)?;
            }
            if access.writes {
                self.results.push((*block, of(block)));
            }
        }
        Ok(blocks.iter().map(of).collect())
    }

    /// Stages an in-place reduction whose result is stored at the beginning of the memory that
    /// contains the input blocks.
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

/// Replaces buffers that the host cannot access with staging buffers in host memory.
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
