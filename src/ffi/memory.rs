//! Memory: allocate, free, describe, ask after a pointer.

use super::args::{self, Out, sized};
use super::guard;
use crate::abi::device::{dtl_mem_info_t, dtl_mem_kind_info_t, dtl_mem_stats_t};
use crate::abi::handle::dtl_backend_t;
use crate::abi::status::dtl_status_t;
use crate::abi::word::{DTL_MEMORY_HOST, dtl_enum_word_t};
use crate::runtime::{device, memory, plain};
use crate::sys::buf::Addr;
use std::ffi::c_void;

sized!(dtl_mem_info_t, dtl_mem_kind_info_t, dtl_mem_stats_t);

/// Allocates memory on the calling thread's current device.
///
/// @param kind        DTL_MEMORY_HOST, DEVICE, PINNED, MANAGED or a registered kind.
/// @param size_bytes  at least 1.
/// @param alignment   a power of two in bytes; 0 = the kind's own (host: 64).
/// @param out         its first byte. Yours until dtl_mem_free with the same backend, by any thread; not
///                    zeroed. Of the host: in a block of up to 63 bytes more (sizes up to 256), above at
///                    most a quarter more; what is freed is kept within a budget (see dtl_mem_trim).
/// @return DTL_ERROR_OUT_OF_MEMORY; DTL_ERROR_NOT_SUPPORTED: the backend has no such kind;
///         DTL_ERROR_INVALID_ARGUMENT: size or alignment; DTL_ERROR_BUSY: another thread is
///         unregistering the backend. *out is written on success only.
/// Equivalent: cudaMalloc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_alloc(
    backend: dtl_backend_t,
    kind: dtl_enum_word_t,
    size_bytes: u64,
    alignment: u64,
    out: *mut *mut c_void,
) -> dtl_status_t {
    let is_usual = alignment == 0 || plain::is_usual(alignment);
    if kind == DTL_MEMORY_HOST && is_usual && !out.is_null() && out.is_aligned() {
        if let Some(quick) = guard::quick(backend, || plain::quick_alloc(size_bytes)) {
            // SAFETY: the caller's contract: a non-null pointer passed as an output is writable.
            unsafe { out.write(quick.addr.ptr()) };
            return guard::quick_end(quick.due);
        }
    }
    alloc(backend, kind, size_bytes, alignment, out)
}

/// Out of line, and a function that cannot unwind, so that the usual case needs no room on the stack.
#[cold]
#[inline(never)]
extern "C" fn alloc(
    backend: dtl_backend_t,
    kind: dtl_enum_word_t,
    size_bytes: u64,
    alignment: u64,
    out: *mut *mut c_void,
) -> dtl_status_t {
    guard::call(|inside| {
        let out = Out::new(out, "out")?;
        out.set(memory::alloc(device::backend(inside, backend)?, kind, size_bytes, alignment)?.ptr());
        Ok(())
    })
}

/// Frees what dtl_mem_alloc gave. NULL is success. No copy or kernel may still use it.
///
/// @return DTL_ERROR_INVALID_ARGUMENT: not a live allocation of this backend (freed twice, not its
///         first byte, another backend's); nothing is freed.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_mem_free(backend: dtl_backend_t, ptr: *mut c_void) -> dtl_status_t {
    match guard::quick(backend, || plain::quick_free(Addr::new(ptr))) {
        Some(due) => guard::quick_end(due),
        None => free(backend, ptr),
    }
}

/// Out of line, as `alloc`.
#[cold]
#[inline(never)]
extern "C" fn free(backend: dtl_backend_t, ptr: *mut c_void) -> dtl_status_t {
    guard::call(|inside| memory::free(device::backend(inside, backend)?, Addr::new(ptr)))
}

/// Describes a memory kind of a backend: who can access it, its alignment.
///
/// @param out_info  start from DTL_MEM_KIND_INFO_INIT.
/// @return DTL_ERROR_NOT_SUPPORTED: the backend has no such kind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_kind_info(
    backend: dtl_backend_t,
    kind: dtl_enum_word_t,
    out_info: *mut dtl_mem_kind_info_t,
) -> dtl_status_t {
    guard::call(|inside| {
        let backend = device::backend(inside, backend)?;
        // SAFETY: the caller's contract.
        unsafe { args::fill(out_info, |info| memory::kind_info(backend, kind, info)) }
    })
}

/// Counts a backend's live allocations.
///
/// @param out_stats  start from DTL_MEM_STATS_INIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_stats(
    backend: dtl_backend_t,
    out_stats: *mut dtl_mem_stats_t,
) -> dtl_status_t {
    guard::call(|inside| {
        let backend = device::backend(inside, backend)?;
        // SAFETY: the caller's contract.
        unsafe { args::fill(out_stats, |stats| memory::stats(backend, stats)) }
    })
}

/// Gives back to the system what is kept of a backend's freed memory for later dtl_mem_alloc. Only for
/// backend "host" something is kept: up to DTL_MEMORY_KEEP bytes (default 256 MiB, or an eighth of the
/// most that was used), besides the slabs that threads allocate from. What the calling thread and threads
/// that have ended keep goes at once, what others keep within their next 256 frees.
///
/// Equivalent: malloc_trim.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_mem_trim(backend: dtl_backend_t) -> dtl_status_t {
    guard::call(|inside| memory::trim(device::backend(inside, backend)?))
}

/// Tells which allocation a pointer lies in.
///
/// @param ptr       any address; it is not read.
/// @param out_info  start from DTL_MEM_INFO_INIT.
/// @return DTL_ERROR_NOT_FOUND: in none made by dtl_mem_alloc.
/// Equivalent: cudaPointerGetAttributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_query(ptr: *const c_void, out_info: *mut dtl_mem_info_t) -> dtl_status_t {
    guard::call(|_| {
        // SAFETY: the caller's contract.
        unsafe { args::fill(out_info, |info| memory::query(Addr::new(ptr.cast_mut()), info)) }
    })
}
