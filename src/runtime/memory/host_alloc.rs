//! Plain memory: memory that a backend declares to be ordinary host memory
//! (`Backend::plain_memory`). The library's own allocator (`sys::memory::heap`) provides this
//! memory. The allocator can look up its own blocks, so plain memory needs neither an entry in the
//! ledger (the table of live allocations) nor a lock.
//!
//! Only one backend at a time declares plain memory: the built-in backend for the host.

pub use crate::runtime::registry::NO_POOL;

use crate::abi::handle::dtl_backend_t;
use crate::abi::word::*;
use crate::error::{Result, fail, failure};
use crate::sys::memory::buf::Addr;
use crate::sys::memory::heap::{self, CachedBlock, FreeOutcome, Label};
use crate::sys::os::process;
use std::sync::atomic::{AtomicU64, Ordering};

/// Heap block tag (see [`Label`]) of blocks that belong to arrays.
pub const ARRAYS: u8 = 1;
/// Heap block tag (see [`Label`]) of blocks that wait for a stream-ordered free. A lookup by
/// address no longer finds these blocks.
pub const LEAVING: u8 = 2;

/// Handle of the backend whose host memory the library's own allocator provides
/// (`Backend::plain_memory`); 0 = none.
static HOME: AtomicU64 = AtomicU64::new(0);

/// Sets the backend whose host allocations the library's own allocator serves from now on
/// (`Backend::plain_memory`).
pub fn settle(backend: dtl_backend_t) {
    HOME.store(backend.id, Ordering::Release);
}

/// Returns the handle of the backend whose host allocations the library's own allocator serves;
/// null if none is set.
pub fn backend() -> dtl_backend_t {
    dtl_backend_t { id: HOME.load(Ordering::Acquire) }
}

/// Returns true if the library's own allocator provides the host memory of this backend
/// (`Backend::plain_memory`).
#[inline]
pub fn serves(backend: dtl_backend_t) -> bool {
    backend.id != 0 && backend.id == HOME.load(Ordering::Relaxed)
}

const HOST: u8 = 0;
const DEVICE: u8 = 1;
const MANAGED: u8 = 2;

/// Returns the code that represents a memory kind in the label (memory kind and tag) of a heap
/// block; `None` if the library's allocator does not provide this kind.
#[inline]
pub fn code(kind: dtl_enum_word_t) -> Option<u8> {
    match kind {
        DTL_MEMORY_HOST => Some(HOST),
        DTL_MEMORY_DEVICE => Some(DEVICE),
        DTL_MEMORY_MANAGED => Some(MANAGED),
        _ => None,
    }
}

/// Returns the memory kind that the code `code` represents. The label (memory kind and tag) of a
/// heap block contains this code.
pub fn kind(code: u8) -> dtl_enum_word_t {
    match code {
        HOST => DTL_MEMORY_HOST,
        DEVICE => DTL_MEMORY_DEVICE,
        _ => DTL_MEMORY_MANAGED,
    }
}

/// Returns true if `align` is 0 (no requirement), or a power of two to which every heap block is
/// aligned by default.
pub fn allows_fast_path(align: u64) -> bool {
    align <= heap::ALIGNMENT && align & align.wrapping_sub(1) == 0
}

/// Fast path of allocation: returns a cached block of kind HOST and default alignment. Returns
/// `None` if the caller must use `memory::alloc`.
#[must_use]
pub fn quick_alloc(size: u64) -> Option<CachedBlock> {
    heap::quick_alloc(size, Label::new(HOST, NO_POOL))
}

/// Allocates a block of host memory from the library's allocator, and stores the kind code `kind`
/// and the tag `tag` with the block. The caller has checked the arguments.
pub fn alloc(kind: u8, tag: u8, size: u64, align: u64) -> Result<Addr> {
    heap::alloc(size, align, Label::new(kind, tag)).ok_or_else(|| {
        failure!(
            DTL_ERROR_OUT_OF_MEMORY,
            "no {size} bytes of host memory aligned to {align}: {}",
            process::memory_advice()
        )
    })
}

/// Fast path of free: frees a block that belongs to no pool. Returns `Some(true)` if the caller
/// must then call [`housekeeping`], and `None` if it must use `memory::free` instead.
pub fn quick_free(addr: Addr) -> Option<bool> {
    heap::quick_free(addr, Label::new(0, NO_POOL))
}

/// Performs the work that the fast paths of this thread have deferred, such as reclaiming blocks
/// that other threads freed.
pub fn housekeeping() {
    heap::housekeeping(NO_POOL);
}

/// Fails if `freed` reports that the library's allocator owns the block but could not free it.
#[cold]
pub fn check_freed(freed: FreeOutcome, addr: Addr, owner: &str) -> Result<()> {
    let text = match freed {
        FreeOutcome::Done | FreeOutcome::Foreign => return Ok(()),
        FreeOutcome::Inside => {
            format!("{addr:?} is no live allocation of {owner} (not its first byte?)")
        }
        FreeOutcome::Dead => format!("{addr:?} is no live allocation of {owner} (freed twice?)"),
        FreeOutcome::Tagged(NO_POOL) => {
            format!("{addr:?} was not allocated from {owner}: dtl_mem_free is for it")
        }
        FreeOutcome::Tagged(LEAVING) => {
            format!("{addr:?} was freed already, in a stream's order (dtl_mem_free_async)")
        }
        FreeOutcome::Tagged(ARRAYS) => {
            format!("{addr:?} is the memory of an array: it goes with that (dtl_array_destroy)")
        }
        FreeOutcome::Tagged(_) => {
            format!(
                "{addr:?} was not allocated from {owner} but from a pool: dtl_pool_free with that \
                 pool is for it"
            )
        }
    };
    fail!(DTL_ERROR_INVALID_ARGUMENT, "{text}")
}

/// Applies the settings: maximum number of unused bytes to cache, and use of huge pages.
pub fn configure(settings: &crate::runtime::settings::Settings) {
    heap::set_budget(
        settings.memory_keep.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX - 1)),
    );
    heap::use_huge_pages(settings.huge_pages.unwrap_or(true));
}

/// Returns unused memory to the system if its size exceeds `keep` bytes. Unused memory of the
/// calling thread and of exited threads is returned immediately; every other thread returns its
/// unused memory after a few more frees.
pub fn trim(keep: u64) {
    if heap::kept() as u64 > keep {
        heap::trim();
    }
}

/// Returns the number of bytes that the library's own allocator has obtained from the system, or 0
/// if it does not provide the memory of this backend.
pub fn reserved(backend: dtl_backend_t) -> u64 {
    if serves(backend) { heap::mapped() as u64 } else { 0 }
}
