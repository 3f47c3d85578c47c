//! Host buffers through which messages in device memory are staged. The buffers are page-locked, so
//! the driver copies by DMA instead of through an internal bounce buffer.
//!
//! Page-locking takes longer than a copy, and unlocking waits for all work on the device, so
//! buffers are cached for later messages. The library allocates and registers the buffers instead
//! of calling cuMemHostAlloc, so that another process can read them (process_vm_readv).

use super::driver::{Buffer, CudaDriver};
use super::symbols::*;
use crate::runtime::component::StagingBuffer;
use crate::sys::memory::buf::{AlignedBlock, Region};
use crate::sys::memory::host_pages::page_size;
use std::sync::Arc;

/// Minimum size of a staging buffer, in bytes.
const LEAST: usize = 64 << 10;
/// Maximum size of a staging buffer, in bytes.
const MOST: usize = 16 << 20;
/// Maximum total size of all staging buffers of the process, in bytes.
const TOTAL: usize = 64 << 20;

/// Staging buffer that a message uses; returned to the cache when dropped.
struct LentBuffer {
    driver: Arc<CudaDriver>,
    buffer: Option<Buffer>,
    region: Region,
}

/// Returns a staging buffer of `len` bytes. Returns `None` if `len` exceeds the maximum size, if
/// the total limit is reached, if another thread has locked the cache, or if the driver fails to
/// register the memory.
pub(super) fn lend(driver: &Arc<CudaDriver>, len: usize) -> Option<Box<dyn StagingBuffer>> {
    let register = driver.cuda.cuMemHostRegister_v2?;
    if len > MOST || driver.cuda.cuMemHostUnregister.is_none() {
        return None;
    }
    let size = len.next_power_of_two().max(LEAST);
    let mut kept = driver.staging.try_lock()?;
    let buffer = if let Some(place) = kept.unused.iter().position(|buffer| buffer.size == size) {
        kept.unused.swap_remove(place)
    } else {
        if kept.bytes + size > TOTAL {
            return None;
        }
        let memory = AlignedBlock::zeroed(size as u64, page_size() as u64)?;
        let _inside = driver.enter_any()?;
        let flags = CU_MEMHOSTREGISTER_PORTABLE;
        // SAFETY: the memory consists of whole pages and remains allocated until it is
        // unregistered.
        if unsafe { register(memory.addr().ptr(), size, flags) } != CUDA_SUCCESS {
            return None;
        }
        kept.bytes += size;
        Buffer { memory, size }
    };
    drop(kept);
    let region = Region::allocated(buffer.memory.addr(), len);
    Some(Box::new(LentBuffer { driver: Arc::clone(driver), buffer: Some(buffer), region }))
}

impl StagingBuffer for LentBuffer {
    fn region(&self) -> Region {
        self.region
    }
}

impl Drop for LentBuffer {
    fn drop(&mut self) {
        self.driver.staging.lock().unused.extend(self.buffer.take());
    }
}

/// Unregisters and frees all buffers that are not in use.
pub(super) fn trim(driver: &CudaDriver) {
    let mut kept = driver.staging.lock();
    let unused = std::mem::take(&mut kept.unused);
    kept.bytes -= unused.iter().map(|buffer| buffer.size).sum::<usize>();
    drop(kept);
    let Some(unregister) = driver.cuda.cuMemHostUnregister else { return };
    if unused.is_empty() {
        return;
    }
    let _inside = driver.enter_any();
    for buffer in unused {
        // SAFETY: the buffer was registered and is unregistered once. No copy uses it.
        let _ = unsafe { unregister(buffer.memory.addr().ptr()) };
    }
}
