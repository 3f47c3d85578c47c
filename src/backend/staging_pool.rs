//! Host buffers through which messages in device memory are staged. They are registered with the
//! device's driver (page-locked), so the driver copies by DMA instead of through an internal bounce
//! buffer.
//!
//! Page-locking takes longer than a copy, and unlocking may wait for all work on the device, so
//! buffers are cached for later messages. The buffers are memory of the process that is registered,
//! not memory that the driver allocates, so that another process can read them (process_vm_readv).

use crate::runtime::component::StagingBuffer;
use crate::sys::memory::buf::{AlignedBlock, Region};
use crate::sys::memory::host_pages::page_size;
use crate::sys::sync::lock::Mutex;
use std::sync::Arc;

/// Minimum size of a staging buffer, in bytes.
const LEAST: usize = 64 << 10;
/// Maximum size of a staging buffer, in bytes.
const MOST: usize = 16 << 20;
/// Maximum total size of all staging buffers of a pool, in bytes.
const TOTAL: usize = 64 << 20;

/// Cache of registered staging buffers.
#[derive(Default)]
pub struct StagingPool(Mutex<Buffers>);

#[derive(Default)]
struct Buffers {
    unused: Vec<Buffer>,
    /// Total size of all buffers, including those in use, in bytes.
    bytes: usize,
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // The driver may write to memory that is still registered, so it is leaked.
        std::mem::forget(std::mem::take(&mut self.unused));
    }
}

/// Registered staging buffer.
struct Buffer {
    memory: AlignedBlock,
    size: usize,
}

impl Buffer {
    fn region(&self) -> Region {
        Region::allocated(self.memory.addr(), self.size)
    }
}

/// Staging buffer that a message uses; returned to the pool when dropped.
struct LentBuffer {
    pool: Arc<StagingPool>,
    buffer: Option<Buffer>,
    region: Region,
}

impl StagingPool {
    /// Returns a staging buffer of `len` bytes. `register` registers a new buffer. Returns `None`
    /// if `len` exceeds the maximum size, if the total limit is reached, if another thread has
    /// locked the cache, or if `register` returns `None`.
    pub fn lend(
        self: &Arc<Self>,
        len: usize,
        register: impl FnOnce(Region) -> Option<()>,
    ) -> Option<Box<dyn StagingBuffer>> {
        if len > MOST {
            return None;
        }
        let size = len.next_power_of_two().max(LEAST);
        let mut kept = self.0.try_lock()?;
        let place = kept.unused.iter().position(|buffer| buffer.size == size);
        let known = place.map(|place| kept.unused.swap_remove(place));
        if known.is_none() {
            if kept.bytes + size > TOTAL {
                return None;
            }
            kept.bytes += size;
        }
        drop(kept);
        // The lock is not held, because the driver may be a plugin.
        let buffer = known.or_else(|| {
            let memory = AlignedBlock::zeroed(size as u64, page_size() as u64)?;
            let made = Buffer { memory, size };
            register(made.region()).map(|()| made)
        });
        let Some(buffer) = buffer else {
            self.0.lock().bytes -= size;
            return None;
        };
        let region = buffer.region().part(0, len);
        Some(Box::new(LentBuffer { pool: Arc::clone(self), buffer: Some(buffer), region }))
    }

    /// Calls `unregister` for all buffers that are not in use, and frees them. Keeps those for
    /// which it returns false, because they are still registered.
    pub fn trim(&self, unregister: impl Fn(Region) -> bool) {
        let mut unused = std::mem::take(&mut self.0.lock().unused);
        let before: usize = unused.iter().map(|buffer| buffer.size).sum();
        unused.retain(|buffer| !unregister(buffer.region()));
        let mut kept = self.0.lock();
        kept.bytes -= before - unused.iter().map(|buffer| buffer.size).sum::<usize>();
        kept.unused.append(&mut unused);
    }

    /// Returns true if no buffer is cached.
    pub fn is_empty(&self) -> bool {
        self.0.lock().unused.is_empty()
    }
}

impl StagingBuffer for LentBuffer {
    fn region(&self) -> Region {
        self.region
    }
}

impl Drop for LentBuffer {
    fn drop(&mut self) {
        self.pool.0.lock().unused.extend(self.buffer.take());
    }
}
