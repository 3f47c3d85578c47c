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

/// Allocates memory on the device of a stream, in stream order.
///
/// Work that is queued on the stream from now on may use the memory. Work of other streams, and the
/// host, may use it after an event of this stream. The call does not wait if the driver of the
/// backend allocates in stream order ("cuda": kind DEVICE, from the pool of the device). Otherwise
/// the memory is allocated immediately, as by dtl_mem_alloc. If the default dispatcher has a
/// handler for the kind (DTL_OPERATION_ALLOC), that handler allocates: in stream order if it does
/// so itself (dtl_dispatch_alloc_t.stream) or names the backend of the stream, otherwise
/// immediately.
///
/// @param kind        DTL_MEMORY_HOST, DEVICE, PINNED, MANAGED, SHARED or a registered kind.
/// @param size_bytes  Size in bytes, at least 1.
/// @param alignment   Power of two in bytes. 0 = the alignment that dtl_mem_kind_info reports for
///                    the kind.
/// @param out         First byte. Not zeroed. Written on success only. The caller owns it; free it
///                    with dtl_mem_free_async, or with dtl_mem_free once the stream has reached
///                    this point.
/// @return DTL_ERROR_OUT_OF_MEMORY: there is not enough memory.
///         DTL_ERROR_NOT_SUPPORTED: the backend has no such kind.
///         DTL_ERROR_INVALID_ARGUMENT: the size or the alignment is not valid.
///         DTL_ERROR_BUSY: another thread is unregistering the backend.
///         DTL_ERROR_LIMIT: no file descriptor is left (kind SHARED of backend "host").
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

/// Frees memory once the work queued so far on a stream is complete.
///
/// When the call returns, `ptr` is no longer an allocation: dtl_mem_query and later copies do not
/// recognise it, and freeing it again is an error. The call does not wait if the driver of the
/// backend frees in stream order. On a stream of the library, the thread of that stream frees it.
/// Otherwise the call waits for the stream.
///
/// @param stream  The stream. It may belong to another backend than the memory.
/// @param ptr     First byte from dtl_mem_alloc_async or dtl_mem_alloc. NULL has no effect.
/// @return If the call waits, a failure of the work of the stream; the memory is freed anyway. If
///         the free fails later, the stream reports it, and the memory is an allocation again.
///         DTL_ERROR_INVALID_ARGUMENT: `ptr` is not a live allocation, not its first byte, or
///         belongs to a pool or an array.
///         DTL_ERROR_INVALID_STATE: the call would wait for the stream whose work made it. Nothing
///         is freed.
/// Threads: any. Equivalent: cudaFreeAsync.
/// dtl:ptr address opt
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_mem_free_async(stream: dtl_stream_t, ptr: *mut c_void) -> dtl_status_t {
    Entry("dtl_mem_free_async")
        .call(|inside| stream_ordered::free(inside, stream::find(inside, stream)?, Addr::new(ptr)))
}

/// Queues the migration of memory to a device, before work there uses it.
///
/// It changes when data moves, never its contents. Only memory of kind DTL_MEMORY_MANAGED moves, on
/// streams of its backend, if the driver can move pages while devices work. Other memory stays
/// where it is, and the call succeeds.
///
/// @param ptr         First byte. If an allocation contains it, it must contain the whole range.
/// @param size_bytes  Bytes to move.
/// @param device      0 to the device count - 1 of the backend of the stream, or DTL_PREFETCH_HOST.
/// @return DTL_ERROR_OUT_OF_BOUNDS: there is no such device, or the range extends beyond the end of
///         its allocation.
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
