//! Memory components of backends: allocation, copy and fill.

use super::{Exports, Extent, Token};
use crate::abi::devices::device::*;
use crate::abi::word::dtl_enum_word_t;
use crate::error::Result;
use crate::sys::memory::buf::{Addr, Region};

/// Allocation that the program made through the interface of a device driver (for example
/// cudaMalloc), not through this library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverAllocation {
    /// Memory kind of the allocation.
    pub kind: dtl_enum_word_t,
    /// Device on which the allocation was made.
    pub device: i32,
    /// Address of the first byte.
    pub base: Addr,
    /// Size in bytes.
    pub size: u64,
}

/// Memory component of a backend. Methods act on the calling thread's current device.
pub trait Memory: Send + Sync {
    /// Allocates memory.
    fn alloc(&self, extent: Extent) -> Result<Addr>;
    /// Frees memory that `alloc` has returned; `extent` is the extent that was passed to `alloc`.
    fn free(&self, addr: Addr, extent: Extent) -> Result<()>;
    /// Describes a memory kind; fails with NOT_SUPPORTED for an unknown kind.
    fn kind_info(&self, _kind: dtl_enum_word_t) -> Result<Option<dtl_mem_kind_info_t>> {
        Ok(None)
    }
    /// Returns the free and the total memory of the current device in bytes, where 0 means unknown;
    /// `None` if the backend does not provide this function.
    fn memory_info(&self) -> Result<Option<(u64, u64)>> {
        Ok(None)
    }
    /// Allocates memory on the device of a native stream, in stream order.
    fn alloc_async(&self, _stream: Token, _extent: Extent) -> Result<Option<Addr>> {
        Ok(None)
    }
    /// Frees memory in stream order: after all work that is already queued on the native stream.
    fn free_async(&self, _stream: Token, _addr: Addr, _extent: Extent) -> Result<Option<()>> {
        Ok(None)
    }
    /// Registers (pins) user-allocated host memory as PINNED memory of the backend. The region has
    /// at least one byte.
    fn register(&self, _region: Region) -> Result<Option<()>> {
        Ok(None)
    }
    /// Unregisters a region that `register` has registered.
    fn unregister(&self, _region: Region) -> Result<Option<()>> {
        Ok(None)
    }
    /// Lends `len` bytes of host memory for fast copies from and to the backend's devices. Returns
    /// `None` if the backend has no such memory, or if none is left.
    fn lend_host(&self, _len: usize) -> Option<Box<dyn StagingBuffer>> {
        None
    }
    /// Exports the region as a dma-buf for drivers of other devices. Returns the file descriptor
    /// and the offset of the region in the dma-buf.
    fn dmabuf(&self, _region: Region) -> Result<Option<(i32, u64)>> {
        Ok(None)
    }
    /// Returns freed but still cached memory to the operating system or the driver.
    fn trim(&self) {}
    /// Returns true if `identify` can currently query the backend's driver about an address.
    fn can_identify(&self) -> bool {
        false
    }
    /// Queries the driver about an address that the library has not allocated; returns `None` if
    /// the address is unknown to the driver. After a failure the address may belong to the driver,
    /// so the caller must not access the memory. Called for the buffers of messages, so it must be
    /// fast. Any thread may call this function, whatever its current device.
    fn identify(&self, _addr: Addr) -> Result<Option<DriverAllocation>> {
        Ok(None)
    }
    /// Returns the interface for export and import of allocations; `None` if the backend does not
    /// support them.
    fn exports(&self) -> Option<&dyn Exports> {
        None
    }
}

/// One side of a copy: memory region, memory kind and device.
#[derive(Clone, Copy, Debug)]
pub struct CopySide {
    /// Address and size in bytes (for 2-D copies: up to the end of the last row).
    pub region: Region,
    /// Memory kind of the region.
    pub kind: dtl_enum_word_t,
    /// Device on which the memory was allocated; 0 for host memory.
    pub device: i32,
}

/// Host memory that a backend lends to the library until the buffer is dropped.
pub trait StagingBuffer: Send + Sync {
    /// Returns the address range of the buffer.
    fn region(&self) -> Region;
}

/// Shape of a 2-D copy: rows of equal width on two sides.
#[derive(Clone, Copy)]
pub struct Rows {
    /// Distances in bytes between the starts of consecutive rows, for the destination and the
    /// source.
    pub pitches: (u64, u64),
    /// Number of bytes in a row.
    pub width: u64,
    /// Number of rows.
    pub height: u64,
}

/// Transfer component of a backend: copies and fills. One side of a copy is memory of the backend,
/// and the other side is memory of the backend or any other memory that the host can access.
pub trait Transfer: Send + Sync {
    /// Copies all of `src` to `dst`. The regions must be nonempty, have equal lengths and not
    /// overlap.
    fn copy(&self, dst: CopySide, src: CopySide) -> Result<()>;
    /// Queues a copy on a native stream.
    fn copy_async(&self, _stream: Token, _dst: CopySide, _src: CopySide) -> Result<Option<()>> {
        Ok(None)
    }
    /// Prefetches MANAGED memory to a device (-1: the host), in the order of a native stream.
    fn prefetch(&self, _stream: Token, _place: CopySide, _device: i32) -> Result<Option<()>> {
        Ok(None)
    }
    /// Copies rows of equal width, whose number and pitches `_rows` contains. The regions include
    /// the gaps between the rows.
    fn copy_2d(&self, _dst: CopySide, _src: CopySide, _rows: Rows) -> Result<Option<()>> {
        Ok(None)
    }
    /// Sets every byte of `_dst` (nonempty) to `_value`.
    fn fill(&self, _dst: CopySide, _value: u8) -> Result<Option<()>> {
        Ok(None)
    }
    /// Queues a fill of `_dst` (nonempty) with the byte `_value` on a native stream.
    fn fill_async(&self, _stream: Token, _dst: CopySide, _value: u8) -> Result<Option<()>> {
        Ok(None)
    }
}
