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

/// Creates a pool: memory of a backend that is kept when it is freed and given out again, which is
/// faster than asking the backend each time. Every backend has pools, also a registered one: its
/// table knows nothing of them. Sizes are rounded up by less than 64 bytes up to 256, above by at
/// most a quarter.
///
/// Pools of the kinds HOST, DEVICE and MANAGED of backend "host" use the library's own allocator,
/// as dtl_mem_alloc does: no lock and no system call as long as memory is at hand. There may be 61
/// of them at once. Other pools have a lock each.
///
/// @param backend  its memory on the calling thread's current device.
/// @param kind     as for dtl_mem_alloc.
/// @param desc     NULL = all defaults.
/// @param out      the pool; destroy it with dtl_pool_destroy.
/// @return DTL_ERROR_NOT_SUPPORTED: the backend has no such kind; DTL_ERROR_LIMIT: too many pools.
///         Destroyed pools count as long as a call in progress may still use them: near the limit
///         this call waits for the calls of other threads to return. It cannot wait for a call that
///         it is made from (in a callback).
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

/// Allocates from a pool. dtl_mem_query and copies know the block as memory of the pool's backend.
///
/// @param size_bytes  at least 1.
/// @param alignment   a power of two in bytes; 0 = the larger of 64 and the alignment that
///                    dtl_mem_kind_info reports for the kind.
/// @param out         its first byte. Yours until dtl_pool_free with the same pool; not zeroed.
/// @return DTL_ERROR_OUT_OF_MEMORY: also after everything kept without use has been given back;
///         DTL_ERROR_INVALID_ARGUMENT: size or alignment. *out is written on success only.
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

/// Gives a block back to its pool, from any thread. NULL is success. No copy or kernel may still
/// use it.
///
/// @return DTL_ERROR_INVALID_ARGUMENT: not a live block of this pool (freed twice, not its first
///         byte, another pool's or dtl_mem_alloc's); nothing is freed.
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

/// The end of a fast path that has done its work, outside the epoch.
fn quick_end(pool: dtl_pool_t, due: bool) -> dtl_status_t {
    if due { afterwards(pool) } else { DTL_SUCCESS }
}

#[cold]
#[inline(never)]
extern "C" fn afterwards(pool: dtl_pool_t) -> dtl_status_t {
    UNTRACED.call(|inside| mem_pool::housekeeping(inside, pool.id))
}

/// Gives what a pool keeps without use back to its backend, until it keeps at most keep_bytes. For
/// the plain kinds of the host it is as dtl_mem_trim, if more than keep_bytes are kept.
///
/// @return a failure of the backend's free; the rest is given back all the same.
/// Equivalent: cudaMemPoolTrimTo.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_pool_trim(pool: dtl_pool_t, keep_bytes: u64) -> dtl_status_t {
    Entry("dtl_pool_trim").call(|inside| mem_pool::find(inside, pool.id)?.trim(keep_bytes))
}

/// Counts a pool's live allocations (dtl_mem_stats of the backend does not). reserved_bytes is what
/// the pool has from its backend; for the plain kinds of the host, which share it, live_bytes.
///
/// @param out_stats  start from DTL_MEM_STATS_INIT.
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

/// Destroys a pool and gives what it keeps back. The null pool: nothing happens.
///
/// @return DTL_ERROR_BUSY: blocks of it are live; free them first. (dtl_finalize frees them. A
///         block that another thread allocates at the same moment goes with the pool.)
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_pool_destroy(pool: dtl_pool_t) -> dtl_status_t {
    Entry("dtl_pool_destroy").call(|inside| mem_pool::destroy(inside, pool.id))
}
