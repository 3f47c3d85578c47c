//! Memory that the host can neither read nor write: how much of it is alive, and whether a range lies in it.
//!
//! Nobody asks for a range while there is none, which costs one load. Not here: where such bytes go (`transfer` copies
//! them, `comm::staging` on their way to other ranks).

use super::{Allocation, find, kind_info};
use crate::abi::device::DTL_MEMORY_HOST_ACCESSIBLE;
use crate::abi::word::dtl_enum_word_t;
use crate::error::{Result, fail};
use crate::runtime::registry::Backend;
use crate::runtime::zeroed_kind_info;
use crate::sys::buf::Region;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Live allocations that the host cannot reach. Whoever has such a pointer has got it from a thread that counted it.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether there may be any.
#[inline(always)]
#[must_use]
pub fn is_any() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// Whether the host cannot reach memory of this kind: a backend that does not say so of a kind that it gives out is
/// believed to have meant the least.
#[must_use]
pub fn is_hidden(backend: &Backend, kind: dtl_enum_word_t) -> bool {
    let mut info = zeroed_kind_info();
    kind_info(backend, kind, &mut info).is_err() || info.properties & DTL_MEMORY_HOST_ACCESSIBLE == 0
}

/// Notes an allocation that comes or goes.
pub(super) fn count(allocation: &Allocation, comes: bool) {
    if allocation.hidden {
        let by = if comes { 1 } else { usize::MAX };
        COUNT.fetch_add(by, Ordering::Relaxed);
    }
}

/// All are gone.
pub(super) fn forget() {
    COUNT.store(0, Ordering::Relaxed);
}

/// The allocation that a range begins in, if there is one; OUT_OF_BOUNDS if it is hidden and the range runs over its end.
pub fn allocation_of(region: Region) -> Result<Option<Allocation>> {
    if region.is_empty() {
        return Ok(None);
    }
    let Some((base, allocation)) = find(region.addr()) else { return Ok(None) };
    let offset = (region.addr().get() - base) as u64;
    if !allocation.hidden || region.len() as u64 <= allocation.size - offset {
        return Ok(Some(allocation));
    }
    fail!(
        DTL_ERROR_OUT_OF_BOUNDS,
        "{} bytes at offset {offset} of an allocation of {} bytes that the host cannot reach",
        region.len(),
        allocation.size
    )
}

/// Refuses a buffer that the host cannot reach, for what does without staging.
#[inline(always)]
pub fn refuse(name: &str, region: Region) -> Result<()> {
    if is_any() { refuse_hidden(name, region) } else { Ok(()) }
}

#[cold]
fn refuse_hidden(name: &str, region: Region) -> Result<()> {
    match allocation_of(region)? {
        Some(allocation) if allocation.hidden => fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "{name}: {:?} is device memory that the host cannot reach, and windows are made of host memory: copy \
             through a host buffer (dtl_mem_copy), or send messages",
            region.addr()
        ),
        _ => Ok(()),
    }
}
