//! Copies and fills: in stream order.

use super::stream;
use crate::abi::handle::dtl_stream_t;
use crate::abi::status::dtl_status_t;
use crate::ffi::args;
use crate::ffi::guard::Entry;
use crate::runtime::memory::transfer::async_copy;
use std::ffi::c_void;

/// Queues a copy between any two kinds of memory on a stream.
///
/// If the backend of the stream cannot queue the copy, the call waits for the work of the stream
/// and copies in the calling thread. This is the case if the driver has no such copy, if both sides
/// are host memory, or if one side belongs to another backend. CUDA queues no copies from or to
/// host memory that is not page-locked: such a copy waits, unless it is the only work of the
/// stream. On a stream of the library the copy is always queued.
///
/// @param dst         `size_bytes` bytes, valid and not accessed by others until the copy is
///                    complete. NULL only for 0 bytes.
/// @param src         `size_bytes` bytes, valid and not written until the copy is complete. Must
///                    not overlap `dst`. NULL only for 0 bytes.
/// @param size_bytes  Bytes to copy.
/// @return Failures that occur later are failures of the stream; dtl_stream_wait returns them. With
///         these statuses nothing is queued:
///         DTL_ERROR_OUT_OF_BOUNDS: a side extends beyond the end of its allocation.
///         DTL_ERROR_INVALID_ARGUMENT: the two sides overlap.
///         DTL_ERROR_INVALID_STATE: the call would wait for the stream whose work made it.
/// Equivalent: cudaMemcpyAsync.
/// dtl:dst out len(size_bytes) opt(size_bytes==0) until(stream)
/// dtl:src len(size_bytes) opt(size_bytes==0) until(stream)
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_copy_async(
    stream: dtl_stream_t,
    dst: *mut c_void,
    src: *const c_void,
    size_bytes: u64,
) -> dtl_status_t {
    Entry("dtl_mem_copy_async").call(|inside| {
        let stream = stream::find(inside, stream)?;
        // SAFETY: the caller's contract: both sides hold size_bytes until the copy is done.
        let dst = unsafe { args::region(dst, size_bytes, "dst") }?;
        // SAFETY: as above.
        let src = unsafe { args::region(src, size_bytes, "src") }?;
        async_copy::copy(inside, stream, dst, src)
    })
}

/// Queues a fill of memory with a byte value on a stream.
///
/// If the backend of the stream cannot queue the fill, the call waits for the work of the stream
/// and fills in the calling thread.
///
/// @param dst         `size_bytes` bytes, valid and not accessed by others until the fill is
///                    complete. NULL only for 0 bytes.
/// @param value       Value of each byte.
/// @param size_bytes  Bytes to fill.
/// @return Failures that occur later are failures of the stream. With these statuses nothing is
///         queued:
///         DTL_ERROR_OUT_OF_BOUNDS: `dst` extends beyond the end of its allocation.
///         DTL_ERROR_INVALID_STATE: the call would wait for the stream whose work made it.
/// Equivalent: cudaMemsetAsync.
/// dtl:dst out len(size_bytes) opt(size_bytes==0) until(stream)
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_fill_async(
    stream: dtl_stream_t,
    dst: *mut c_void,
    value: u8,
    size_bytes: u64,
) -> dtl_status_t {
    Entry("dtl_mem_fill_async").call(|inside| {
        let stream = stream::find(inside, stream)?;
        // SAFETY: the caller's contract.
        let dst = unsafe { args::region(dst, size_bytes, "dst") }?;
        async_copy::fill(inside, stream, dst, value)
    })
}
