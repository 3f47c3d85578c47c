//! Memory: allocations, and what copies and fills them.

use super::{Exports, Token};
use crate::abi::devices::device::*;
use crate::abi::word::dtl_enum_word_t;
use crate::error::Result;
use crate::sys::memory::buf::{Addr, Region};

/// An allocation that a program made through a driver's own interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverAllocation {
    /// Its kind.
    pub kind: dtl_enum_word_t,
    /// The device that it was made on.
    pub device: i32,
    /// Its first byte.
    pub base: Addr,
    /// Its size in bytes.
    pub size: u64,
}

/// Memory on the calling thread's current device.
pub trait Memory: Send + Sync {
    /// Allocates `size` (> 0) bytes aligned to `align` (a power of two).
    fn alloc(&self, kind: dtl_enum_word_t, size: u64, align: u64) -> Result<Addr>;
    /// Frees memory from `alloc`, with the same kind, size and alignment.
    fn free(&self, kind: dtl_enum_word_t, addr: Addr, size: u64, align: u64) -> Result<()>;
    /// Describes a kind; an unknown kind is NOT_SUPPORTED.
    fn kind_info(
        &self,
        _kind: dtl_enum_word_t,
        _out: &mut dtl_mem_kind_info_t,
    ) -> Option<Result<()>> {
        None
    }
    /// Free and total bytes, 0 = unknown.
    fn memory_info(&self) -> Option<Result<(u64, u64)>> {
        None
    }
    /// Allocates in the order of one of the backend's own streams, on its device.
    fn alloc_async(
        &self,
        _stream: Token,
        _kind: dtl_enum_word_t,
        _size: u64,
        _align: u64,
    ) -> Option<Result<Addr>> {
        None
    }
    /// Frees behind what is queued on one of the backend's own streams.
    fn free_async(
        &self,
        _stream: Token,
        _kind: dtl_enum_word_t,
        _addr: Addr,
        _size: u64,
        _align: u64,
    ) -> Option<Result<()>> {
        None
    }
    /// Makes host memory of the program's (not empty) PINNED memory of the backend.
    fn register(&self, _region: Region) -> Option<Result<()>> {
        None
    }
    /// Reverts `register`.
    fn unregister(&self, _region: Region) -> Option<Result<()>> {
        None
    }
    /// A file descriptor for other devices' drivers, and where in it the range begins.
    fn dmabuf(&self, _region: Region) -> Option<Result<(i32, u64)>> {
        None
    }
    /// Gives back what is kept of freed memory.
    fn trim(&self) {}
    /// Returns true if the backend can query its driver about any address now.
    fn can_identify(&self) -> bool {
        false
    }
    /// Queries the driver about an address that was not allocated here; `None` = unknown to the
    /// driver. After a failure the address may belong to the driver, so the caller must not touch
    /// the memory. Messages wait for the result. Any thread, with any device current.
    fn identify(&self, _addr: Addr) -> Result<Option<DriverAllocation>> {
        Ok(None)
    }
    /// Allocations that cross to other processes.
    fn exports(&self) -> Option<&dyn Exports> {
        None
    }
}

/// One side of a copy: where, and what kind of memory that is.
#[derive(Clone, Copy, Debug)]
pub struct CopySide {
    /// First byte and number of bytes (for 2-D copies: up to the end of the last row).
    pub region: Region,
    /// Its memory kind.
    pub kind: dtl_enum_word_t,
    /// Device that the memory was allocated on; 0 for host memory.
    pub device: i32,
}

/// Host memory that a backend lends, until it is dropped.
pub trait StagingBuffer: Send + Sync {
    /// The memory.
    fn region(&self) -> Region;
}

/// Copies and fills. One side is the backend's own memory, the other that or plain host memory.
pub trait Transfer: Send + Sync {
    /// Copies all of `src` (not empty, same length as `dst`, not overlapping).
    fn copy(&self, dst: CopySide, src: CopySide) -> Result<()>;
    /// Queues a copy on one of the backend's own streams.
    fn copy_async(&self, _stream: Token, _dst: CopySide, _src: CopySide) -> Option<Result<()>> {
        None
    }
    /// Lends host memory of `len` bytes with which copies from and to the backend's devices are
    /// fast. `None`: there is none, or none is left.
    fn lend_host(&self, _len: usize) -> Option<Box<dyn StagingBuffer>> {
        None
    }
    /// Moves MANAGED memory near a device (-1: the host), in the order of one of the backend's own
    /// streams.
    fn prefetch(&self, _stream: Token, _place: CopySide, _device: i32) -> Option<Result<()>> {
        None
    }
    /// Copies `height` rows of `width` bytes. The places span the rows with their pitches.
    fn copy_2d(
        &self,
        _dst: CopySide,
        _dst_pitch: u64,
        _src: CopySide,
        _src_pitch: u64,
        _width: u64,
        _height: u64,
    ) -> Option<Result<()>> {
        None
    }
    /// Sets every byte of `dst` (not empty).
    fn fill(&self, _dst: CopySide, _value: u8) -> Option<Result<()>> {
        None
    }
    /// Queues a fill of every byte of `dst` (not empty) on one of the backend's own streams.
    fn fill_async(&self, _stream: Token, _dst: CopySide, _value: u8) -> Option<Result<()>> {
        None
    }
}
