//! Host memory for messages of device memory that are staged: page-locked, so that the driver
//! copies it by DMA and not through a buffer of its own.
//!
//! Page-locking takes longer than a copy, and ending it waits for all work of the device, so
//! buffers are kept for later messages. They are memory of the library's own that is registered,
//! not cuMemHostAlloc's: another process may read it (process_vm_readv).

use super::driver::CudaDriver;
use super::symbols::*;
use crate::runtime::component::StagingBuffer;
use crate::sys::memory::buf::{AlignedBlock, Region};
use crate::sys::memory::host_pages::page_size;
use crate::sys::sync::lock::Mutex;
use std::sync::Arc;

/// Bytes of the smallest buffer.
const LEAST: usize = 64 << 10;
/// Bytes of the largest buffer.
const MOST: usize = 16 << 20;
/// Bytes of all buffers of the process.
const TOTAL: usize = 64 << 20;

/// Buffers of the process.
#[derive(Default)]
pub(super) struct Buffers(Mutex<BufferList>);

#[derive(Default)]
struct BufferList {
    unused: Vec<Buffer>,
    /// Of all buffers, lent ones too.
    bytes: usize,
}

struct Buffer {
    memory: AlignedBlock,
    size: usize,
}

/// A buffer in use.
struct LentBuffer {
    driver: Arc<CudaDriver>,
    buffer: Option<Buffer>,
    region: Region,
}

/// A buffer of `len` bytes. `None`: it would be too large, too much is in use already, the list is
/// in use by another thread, or the driver refuses.
pub(super) fn lend(driver: &Arc<CudaDriver>, len: usize) -> Option<Box<dyn StagingBuffer>> {
    let register = driver.cuda.cuMemHostRegister_v2?;
    if len > MOST || driver.cuda.cuMemHostUnregister.is_none() {
        return None;
    }
    let size = len.next_power_of_two().max(LEAST);
    let mut kept = driver.staging.0.try_lock()?;
    let buffer = if let Some(place) = kept.unused.iter().position(|buffer| buffer.size == size) {
        kept.unused.swap_remove(place)
    } else {
        if kept.bytes + size > TOTAL {
            return None;
        }
        let memory = AlignedBlock::zeroed(size as u64, page_size() as u64)?;
        let _inside = driver.enter_any()?;
        let flags = CU_MEMHOSTREGISTER_PORTABLE;
        // SAFETY: whole pages, which are kept until they are unregistered.
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
        self.driver.staging.0.lock().unused.extend(self.buffer.take());
    }
}

impl Buffers {
    /// Frees those that are not in use.
    pub(super) fn trim(&self, driver: &CudaDriver) {
        let mut kept = self.0.lock();
        let unused = std::mem::take(&mut kept.unused);
        kept.bytes -= unused.iter().map(|buffer| buffer.size).sum::<usize>();
        drop(kept);
        let Some(unregister) = driver.cuda.cuMemHostUnregister else { return };
        if unused.is_empty() {
            return;
        }
        let _inside = driver.enter_any();
        for buffer in unused {
            // SAFETY: registered, unregistered once; no copy uses it.
            let _ = unsafe { unregister(buffer.memory.addr().ptr()) };
        }
    }
}
