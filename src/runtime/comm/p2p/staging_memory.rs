//! Host memory through which a staged message travels: the backend's of its buffer, if that lends
//! any, else the library's own.

use crate::error::{Result, fail};
use crate::runtime::component::StagingBuffer;
use crate::runtime::memory::device_only;
use crate::runtime::registry;
use crate::sys::handles::epoch;
use crate::sys::memory::buf::{Region, Scratch};

/// Host memory that stands for a buffer.
pub(crate) fn host_memory(len: usize) -> Result<Scratch> {
    match Scratch::unwritten(len) {
        Some(scratch) => Ok(scratch),
        None => fail!(
            DTL_ERROR_OUT_OF_MEMORY,
            "no {len} bytes of host memory to stage a device buffer in"
        ),
    }
}

/// Host memory beside the buffer of a message.
pub(super) enum StagingMemory {
    Own(Scratch),
    /// Lent by the buffer's backend, which copies it faster.
    Lent(Box<dyn StagingBuffer>),
}

impl Default for StagingMemory {
    fn default() -> Self {
        StagingMemory::Own(Scratch::empty())
    }
}

impl StagingMemory {
    /// Memory beside a device's buffer, lent by its backend if that can.
    pub(super) fn beside(device: Region) -> Result<Self> {
        match lent_for(device)? {
            Some(lent) => Ok(StagingMemory::Lent(lent)),
            None => host_memory(device.len()).map(StagingMemory::Own),
        }
    }

    /// Its bytes.
    pub(super) fn region(&self) -> Region {
        match self {
            StagingMemory::Own(scratch) => scratch.region(),
            StagingMemory::Lent(lent) => lent.region(),
        }
    }
}

fn lent_for(device: Region) -> Result<Option<Box<dyn StagingBuffer>>> {
    let Some(allocation) = device_only::allocation_of(device)? else { return Ok(None) };
    let inside = epoch::enter();
    let transfer = registry::find(&inside, allocation.backend)?.transfer.as_deref();
    Ok(transfer.and_then(|transfer| transfer.lend_host(device.len())))
}
