//! Memory: allocate, free and prefetch in stream order.

use crate::abi::handle::dtl_stream_t;
use crate::abi::status::dtl_status_t;
use crate::abi::word::dtl_enum_word_t;
use crate::ffi::args::{self, Out};
use crate::ffi::exec::stream;
use crate::ffi::guard::Entry;
use crate::runtime::memory::handlers::Order;
use crate::runtime::memory::transfer::async_copy;
use crate::runtime::memory::{self, Owner, Request, stream_ordered};
use crate::sys::memory::buf::Addr;
use std::ffi::c_void;

/// Allocates on a stream's device in the stream's order: what is queued to it from now on may use
/// the memory; work of other streams, and the host, after an event of this stream. A backend takes
/// it without waiting where its driver can ("cuda": kind DEVICE, from the device's pool), else at
/// once, as dtl_mem_alloc does. A kind that the default dispatcher has a handler for
/// (DTL_OPERATION_ALLOC) is allocated by that, as dtl_mem_alloc does: in the stream's order where
/// the handler does so (dtl_dispatch_alloc_t.stream) or names the stream's backend, else at once.
///
/// @param kind, size_bytes, alignment  as for dtl_mem_alloc.
/// @param out   the first byte, yours until dtl_mem_free_async, or dtl_mem_free once the stream has
///              come this far. Not zeroed.
/// @return as dtl_mem_alloc; *out is written on success only.
/// Threads: any. Equivalent: cudaMallocAsync.
/// dtl:kind values(DTL_MEMORY_)
/// dtl:out owned(dtl_mem_free_async|dtl_mem_free)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_alloc_async(
    stream: dtl_stream_t,
    kind: dtl_enum_word_t,
    size_bytes: u64,
    alignment: u64,
    out: *mut *mut c_void,
) -> dtl_status_t {
    Entry("dtl_mem_alloc_async").call(|inside| {
        let out = Out::new(out, "out")?;
        let order = Order { handle: stream, stream: stream::find(inside, stream)? };
        let wanted = Request { kind, size: size_bytes, align: alignment };
        let backend = order.stream.backend();
        out.put(memory::alloc(Owner::Program, backend, &wanted, Some(order)).map(Addr::ptr))
    })
}

/// Frees memory when the work that is in the stream so far is done. From now on it is no allocation
/// any more: dtl_mem_query and later copies do not know it, and freeing it again is an error. A
/// backend frees it without waiting where its driver can (as for dtl_mem_alloc_async); on a stream
/// of the library's own its thread does; otherwise the call waits for the stream.
///
/// @param stream  also one of another backend than the memory's.
/// @param ptr     what dtl_mem_alloc_async or dtl_mem_alloc gave; NULL: nothing happens.
/// @return DTL_ERROR_INVALID_ARGUMENT: no live allocation, not its first byte, a pool's or an
///         array's. Where the call waits: a failure of the stream's work, and the memory is free
///         all the same; DTL_ERROR_INVALID_STATE: called by that work. What fails later is the
///         stream's failure, and the memory is an allocation again.
/// Threads: any. Equivalent: cudaFreeAsync.
/// dtl:ptr address opt
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_mem_free_async(stream: dtl_stream_t, ptr: *mut c_void) -> dtl_status_t {
    Entry("dtl_mem_free_async")
        .call(|inside| stream_ordered::free(inside, stream::find(inside, stream)?, Addr::new(ptr)))
}

/// Queues moving memory near a device before it is used there. Only kind DTL_MEMORY_MANAGED moves,
/// on the streams of the backend that it is of, where the driver can move pages while devices work;
/// anything else stays where it is, and the call succeeds: it changes when data moves, never what
/// it is.
///
/// @param ptr     any range of size_bytes; of an allocation, within it.
/// @param device  0 ... count-1 of the stream's backend, or DTL_PREFETCH_HOST.
/// @return DTL_ERROR_OUT_OF_BOUNDS: no such device, or over the end of the allocation.
/// Threads: any. Equivalent: cudaMemPrefetchAsync.
/// dtl:ptr len(size_bytes) opt(size_bytes==0) until(stream)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_prefetch(
    stream: dtl_stream_t,
    ptr: *const c_void,
    size_bytes: u64,
    device: i32,
) -> dtl_status_t {
    Entry("dtl_mem_prefetch").call(|inside| {
        let stream = stream::find(inside, stream)?;
        // SAFETY: the caller's contract: it holds size_bytes.
        let region = unsafe { args::region(ptr, size_bytes, "ptr") }?;
        async_copy::prefetch(inside, stream, region, device)
    })
}
