//! Host memory through which a staged message is copied. The backend of the device buffer lends
//! this memory if it can; otherwise the library allocates it.

use crate::error::{Result, failure};
use crate::runtime::component::StagingBuffer;
use crate::runtime::memory::device_only;
use crate::runtime::registry;
use crate::sys::handles::epoch;
use crate::sys::memory::buf::{Region, Scratch};

/// Allocates `len` bytes of host memory to stage a device buffer.
pub(crate) fn host_memory(len: usize) -> Result<Scratch> {
    Scratch::unwritten(len).ok_or_else(|| {
        failure!(
            DTL_ERROR_OUT_OF_MEMORY,
            "no {len} bytes of host memory to stage a device buffer in"
        )
    })
}

/// Host memory through which a message's device buffer is staged.
pub(super) enum StagingMemory {
    Own(Scratch),
    /// Memory lent by the backend that owns the device buffer. The backend copies to and from this
    /// memory faster than to and from other host memory.
    Lent(Box<dyn StagingBuffer>),
}

impl Default for StagingMemory {
    fn default() -> Self {
        StagingMemory::Own(Scratch::default())
    }
}

impl StagingMemory {
    /// Returns host memory as large as the device buffer `device`. The buffer's backend lends the
    /// memory if possible.
    pub(super) fn beside(device: Region) -> Result<Self> {
        match lent_for(device)? {
            Some(lent) => Ok(StagingMemory::Lent(lent)),
            None => host_memory(device.len()).map(StagingMemory::Own),
        }
    }

    /// Returns the memory region.
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
    let memory = registry::find(&inside, allocation.backend)?.memory.as_deref();
    Ok(memory.and_then(|memory| memory.lend_host(device.len())))
}
