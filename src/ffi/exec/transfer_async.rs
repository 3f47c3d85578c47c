//! Copies and fills: in stream order.

use super::stream;
use crate::abi::handle::dtl_stream_t;
use crate::abi::status::dtl_status_t;
use crate::ffi::args;
use crate::ffi::guard::Entry;
use crate::runtime::memory::transfer::async_copy;
use std::ffi::c_void;

/// Queues a copy between any two kinds of memory. Where the stream's backend cannot queue it (its
/// driver takes no such copy, both sides are the host's, one is another backend's), the call waits
/// for the stream's work and copies itself. CUDA queues no copies from or to host memory that is
/// not page-locked: one that is not the stream's only work waits.
///
/// @param dst, src  size_bytes each, valid (and not written by others) until the copy is done,
///                  which an event or dtl_stream_wait tells; they must not overlap.
/// @return DTL_ERROR_OUT_OF_BOUNDS, DTL_ERROR_INVALID_ARGUMENT: as dtl_mem_copy, at once; nothing
///         is queued then. What fails later is the stream's failure.
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

/// Queues setting size_bytes bytes to `value`. Where the stream's backend cannot queue that, as for
/// dtl_mem_copy_async.
///
/// @param dst  size_bytes, valid until the fill is done.
/// @return DTL_ERROR_OUT_OF_BOUNDS: over the end of its allocation; nothing is queued then.
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
