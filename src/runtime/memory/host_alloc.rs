//! Plain memory of the process: memory that a backend declares as such (`Backend::plain_memory`) is
//! served by the library's own allocator (`sys::memory::heap`). The allocator can look up its own
//! blocks, so there is no ledger and no lock.
//!
//! One backend's memory is like that at a time, the built-in one for the host.

use crate::abi::handle::dtl_backend_t;
use crate::abi::word::*;
use crate::error::{Error, Result, fail};
use crate::runtime::registry::Backend;
use crate::sys::memory::buf::Addr;
use crate::sys::memory::heap::{self, CachedBlock, FreeOutcome, Label};
use crate::sys::os::hwinfo;
use std::sync::atomic::{AtomicU64, Ordering};

/// The tag of blocks that belong to no pool.
pub const NO_POOL: u8 = 0;
/// The tag of arrays' memory.
pub const ARRAYS: u8 = 1;
/// The tag of blocks that a stream frees when it comes to that: no allocations any more.
pub const LEAVING: u8 = 2;

/// The handle of the backend whose memory this is; 0 = none.
static HOME: AtomicU64 = AtomicU64::new(0);

/// Sets the backend that `sys::memory::heap` serves from now on.
pub fn settle(backend: dtl_backend_t) {
    HOME.store(backend.id, Ordering::Release);
}

/// The handle of the backend that is served.
#[must_use]
pub fn home() -> dtl_backend_t {
    dtl_backend_t { id: HOME.load(Ordering::Acquire) }
}

/// Returns true if this backend is the one whose plain memory is served here.
#[inline]
#[must_use]
pub fn serves(backend: dtl_backend_t) -> bool {
    backend.id != 0 && backend.id == HOME.load(Ordering::Relaxed)
}

const HOST: u8 = 0;
const DEVICE: u8 = 1;
const MANAGED: u8 = 2;

/// How a block's label names a kind, and whether the allocator serves it.
#[inline]
#[must_use]
pub fn code(kind: dtl_enum_word_t) -> Option<u8> {
    match kind {
        DTL_MEMORY_HOST => Some(HOST),
        DTL_MEMORY_DEVICE => Some(DEVICE),
        DTL_MEMORY_MANAGED => Some(MANAGED),
        _ => None,
    }
}

/// The kind of a code.
#[must_use]
pub fn kind(code: u8) -> dtl_enum_word_t {
    match code {
        HOST => DTL_MEMORY_HOST,
        DEVICE => DTL_MEMORY_DEVICE,
        _ => DTL_MEMORY_MANAGED,
    }
}

/// Returns true if every block is aligned to this anyway; 0 asks for no alignment.
#[must_use]
pub fn allows_fast_path(align: u64) -> bool {
    align <= heap::ALIGNMENT && align & align.wrapping_sub(1) == 0
}

/// Fast path of allocation: takes a cached block of kind HOST, for a usual alignment. `None`: use
/// `memory::alloc`.
#[must_use]
pub fn quick_alloc(size: u64) -> Option<CachedBlock> {
    heap::quick_alloc(size, Label::new(HOST, NO_POOL))
}

/// A block; the arguments were checked.
pub fn alloc(kind: u8, tag: u8, size: u64, align: u64) -> Result<Addr> {
    match heap::alloc(size, align, Label::new(kind, tag)) {
        Some(addr) => Ok(addr),
        None => fail!(
            DTL_ERROR_OUT_OF_MEMORY,
            "no {size} bytes of host memory aligned to {align}: {}",
            hwinfo::memory_advice()
        ),
    }
}

/// Fast path of free: frees a block that belongs to no pool. Returns whether [`housekeeping`] is
/// due. `None`: use `memory::free`.
#[must_use]
pub fn quick_free(addr: Addr) -> Option<bool> {
    heap::quick_free(addr, Label::new(0, NO_POOL))
}

/// Does the housekeeping that the fast paths leave undone.
pub fn housekeeping() {
    heap::housekeeping(NO_POOL);
}

/// Returns the error for a block that could not be freed; `None` if it is not one of the
/// allocator's.
#[cold]
#[must_use]
pub fn refusal(freed: FreeOutcome, addr: Addr, owner: &str) -> Option<Error> {
    let text = match freed {
        FreeOutcome::Done | FreeOutcome::Foreign => return None,
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
    Some(Error::new(crate::abi::status::DTL_ERROR_INVALID_ARGUMENT, text))
}

/// Applies settings: the most bytes kept unused, and whether to request huge pages.
pub fn configure(settings: &crate::runtime::settings::Settings) {
    heap::set_budget(
        settings.memory_keep.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX - 1)),
    );
    heap::use_huge_pages(settings.huge_pages.unwrap_or(true));
}

/// Gives back what is kept without use, if that is more than `keep` bytes: what the calling thread
/// and those that have ended keep at once, the others' at their next calls.
pub fn trim(keep: u64) {
    if heap::kept() as u64 > keep {
        heap::trim();
    }
}

/// Bytes that the allocator has from the system, if it serves this backend.
#[must_use]
pub fn reserved(backend: &Backend) -> u64 {
    if serves(backend.handle()) { heap::mapped() as u64 } else { 0 }
}
