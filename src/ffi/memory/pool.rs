//! Memory pools: create, allocate, free, trim, statistics.

use crate::abi::devices::device::{dtl_mem_stats_t, dtl_pool_desc_t};
use crate::abi::handle::{dtl_backend_t, dtl_pool_t};
use crate::abi::status::{DTL_SUCCESS, dtl_status_t};
use crate::abi::word::dtl_enum_word_t;
use crate::ffi::args::{self, Out};
use crate::ffi::guard::{self, Entry, UNTRACED};
use crate::runtime::device;
use crate::runtime::memory::host_alloc;
use crate::runtime::memory::mem_pool::{self, MemPool};
use crate::sys::memory::buf::Addr;
use std::ffi::c_void;

/// Creates a memory pool, which caches freed memory of a backend for later allocations.
///
/// This is faster than the allocator of most backends. Pools work with every backend, including
/// registered ones, without support in their tables. Sizes up to 256 bytes are rounded up by less
/// than 64 bytes, larger ones by at most a quarter.
///
/// Pools of kinds HOST, DEVICE and MANAGED of backend "host" use the library's allocator, as
/// dtl_mem_alloc does: no lock, and no system call while cached memory is available. At most 61 of
/// them can exist at once. Each of the other pools has a lock.
///
/// @param backend  The backend that provides the memory, on the current device of the calling
///                 thread.
/// @param kind     DTL_MEMORY_HOST, DEVICE, PINNED, MANAGED, SHARED or a registered kind.
/// @param desc     Start from DTL_POOL_DESC_INIT. NULL = all defaults.
/// @param out      The pool. The caller owns it; destroy it with dtl_pool_destroy.
/// @return DTL_ERROR_NOT_SUPPORTED: the backend has no such kind.
///         DTL_ERROR_LIMIT: there are too many pools. A destroyed pool counts while a call in
///         progress may still use it: near the limit this call blocks until the calls of other
///         threads return. It cannot wait for the call from which it is made (in a callback).
/// Equivalent: cudaMemPoolCreate.
/// dtl:kind values(DTL_MEMORY_)
/// dtl:desc opt
/// dtl:out owned(dtl_pool_destroy)
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_pool_create(
    backend: dtl_backend_t,
    kind: dtl_enum_word_t,
    desc: *const dtl_pool_desc_t,
    out: *mut dtl_pool_t,
) -> dtl_status_t {
    Entry("dtl_pool_create").wait(
        |inside| {
            let out = Out::new(out, "out")?;
            // SAFETY: the caller's contract: null, or a struct as long as its struct_size.
            let desc = unsafe { args::take_or_zero(desc, "desc") }?;
            args::check_reserved(desc.reserved, "desc.reserved")?;
            Ok((out, device::pin_backend(inside, backend)?, desc.keep_bytes))
        },
        |(out, backend, keep)| {
            let pool = MemPool::create(backend, kind, keep)?;
            out.put(mem_pool::insert(pool).map(|id| dtl_pool_t { id }))
        },
    )
}

/// Allocates memory from a pool. dtl_mem_query and copies recognise the block as memory of the
/// backend of the pool.
///
/// @param size_bytes  Size in bytes, at least 1.
/// @param alignment   Power of two in bytes. 0 = 64, or the alignment that dtl_mem_kind_info
///                    reports for the kind if that is larger.
/// @param out         First byte. Not zeroed. Written on success only. The caller owns it; free it
///                    with dtl_pool_free of the same pool.
/// @return DTL_ERROR_OUT_OF_MEMORY: there is not enough memory, even after all unused cached memory
///         was returned. DTL_ERROR_INVALID_ARGUMENT: the size or the alignment is not valid.
/// Equivalent: cudaMallocFromPoolAsync, without a stream.
/// dtl:out owned(dtl_pool_free)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_pool_alloc(
    pool: dtl_pool_t,
    size_bytes: u64,
    alignment: u64,
    out: *mut *mut c_void,
) -> dtl_status_t {
    /// By C's convention, so that it cannot unwind: the fast path jumps to it.
    #[cold]
    #[inline(never)]
    extern "C" fn alloc(
        pool: dtl_pool_t,
        size_bytes: u64,
        alignment: u64,
        out: *mut *mut c_void,
    ) -> dtl_status_t {
        Entry("dtl_pool_alloc").call(|inside| {
            let out = Out::new(out, "out")?;
            out.put(mem_pool::find(inside, pool.id)?.alloc(size_bytes, alignment).map(Addr::ptr))
        })
    }

    guard::quick(
        || guard::is_open_for(host_alloc::backend()),
        move |visit| {
            if !host_alloc::allows_fast_path(alignment) || out.is_null() || !out.is_aligned() {
                return None;
            }
            let quick = mem_pool::quick_alloc(pool.id, size_bytes)?;
            drop(visit);
            // SAFETY: the caller's contract: a non-null pointer passed as an output is writable.
            unsafe { out.write(quick.addr.ptr()) };
            Some(quick_end(pool, quick.due))
        },
        move || alloc(pool, size_bytes, alignment, out),
    )
}

/// Frees a block of a pool, in any thread. No copy or kernel may still use it.
///
/// @param ptr  First byte of the block. NULL has no effect.
/// @return DTL_ERROR_INVALID_ARGUMENT: `ptr` is not a live block of this pool (freed twice, not its
///         first byte, of another pool or dtl_mem_alloc). Nothing is freed.
/// dtl:ptr address opt
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_pool_free(pool: dtl_pool_t, ptr: *mut c_void) -> dtl_status_t {
    /// By C's convention, so that it cannot unwind: the fast path jumps to it.
    #[cold]
    #[inline(never)]
    extern "C" fn free(pool: dtl_pool_t, ptr: *mut c_void) -> dtl_status_t {
        Entry("dtl_pool_free").call(|inside| mem_pool::find(inside, pool.id)?.free(Addr::new(ptr)))
    }

    guard::quick(
        || guard::is_open_for(host_alloc::backend()),
        move |visit| {
            let due = mem_pool::quick_free(pool.id, Addr::new(ptr))?;
            drop(visit);
            Some(quick_end(pool, due))
        },
        move || free(pool, ptr),
    )
}

/// Ends a fast path that succeeded, outside the epoch.
fn quick_end(pool: dtl_pool_t, due: bool) -> dtl_status_t {
    if due { afterwards(pool) } else { DTL_SUCCESS }
}

#[cold]
#[inline(never)]
extern "C" fn afterwards(pool: dtl_pool_t) -> dtl_status_t {
    UNTRACED.call(|inside| mem_pool::housekeeping(inside, pool.id))
}

/// Returns unused memory of a pool to its backend until the pool caches at most `keep_bytes`.
///
/// For kinds HOST, DEVICE and MANAGED of backend "host" it acts like dtl_mem_trim if more than
/// `keep_bytes` are cached.
///
/// @param keep_bytes  Bytes that may stay cached.
/// @return The status of the backend's `free` if it fails. The rest is returned anyway.
/// Equivalent: cudaMemPoolTrimTo.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_pool_trim(pool: dtl_pool_t, keep_bytes: u64) -> dtl_status_t {
    Entry("dtl_pool_trim").call(|inside| mem_pool::find(inside, pool.id)?.trim(keep_bytes))
}

/// Returns the number and size of the live allocations of a pool.
///
/// dtl_mem_stats of the backend does not count them. reserved_bytes is the memory that the pool has
/// from its backend. For kinds HOST, DEVICE and MANAGED of backend "host", which share one
/// allocator, it equals live_bytes.
///
/// @param out_stats  Start from DTL_MEM_STATS_INIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_pool_stats(
    pool: dtl_pool_t,
    out_stats: *mut dtl_mem_stats_t,
) -> dtl_status_t {
    Entry("dtl_pool_stats").call(|inside| {
        let pool = mem_pool::find(inside, pool.id)?;
        // SAFETY: the caller's contract.
        unsafe { args::fill(out_stats, "out_stats", || Ok(pool.stats())) }
    })
}

/// Destroys a pool and returns its cached memory. Destroying DTL_POOL_NULL succeeds. dtl_finalize
/// frees the blocks of pools that are left.
///
/// @return DTL_ERROR_BUSY: blocks of the pool are live. Free them first. A block that another
///         thread allocates at the same time is freed with the pool.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_pool_destroy(pool: dtl_pool_t) -> dtl_status_t {
    Entry("dtl_pool_destroy").call(|inside| mem_pool::destroy(inside, pool.id))
}
