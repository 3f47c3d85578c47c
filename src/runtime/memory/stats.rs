//! Memory information of a backend: properties of memory kinds, usage counters, and trimming of
//! unused memory.

use super::{host_alloc, kind_info};
use crate::abi::devices::device::*;
use crate::abi::status::DTL_ERROR_NATIVE_BACKEND;
use crate::abi::word::dtl_enum_word_t;
use crate::error::{Result, fail};
use crate::from_c::blank;
use crate::runtime::registry::Backend;
use crate::sys::memory::heap;
use crate::sys::os::process;
use std::sync::atomic::Ordering;

/// Returns the usage counters of a backend.
pub fn stats(backend: &Backend) -> Result<dtl_mem_stats_t> {
    backend.memory()?;
    let usage = &backend.memory_use;
    let mut out: dtl_mem_stats_t = blank();
    out.live_bytes = usage.live_bytes.load(Ordering::Relaxed);
    out.peak_bytes = usage.peak_bytes.load(Ordering::Relaxed);
    out.reserved_bytes = out.live_bytes + host_alloc::reserved(backend.handle());
    out.live_count = usage.live_count.load(Ordering::Relaxed);
    out.total_count = usage.total_count.load(Ordering::Relaxed);
    if host_alloc::serves(backend.handle()) {
        let (own, arrays) = (heap::stats(host_alloc::NO_POOL), heap::stats(host_alloc::ARRAYS));
        // blocks of this tag were allocated with one of the other tags
        let leaving = heap::stats(host_alloc::LEAVING);
        // These counters include the backend's allocations outside of the allocator
        // (`Usage::grew`).
        out.live_bytes = own.live_bytes + arrays.live_bytes + leaving.live_bytes;
        out.peak_bytes = (own.peak_bytes + arrays.peak_bytes).max(out.live_bytes);
        out.live_count += own.live_count + arrays.live_count + leaving.live_count;
        out.total_count += own.total_count + arrays.total_count;
    }
    Ok(out)
}

/// Returns unused memory of a backend to the system.
pub fn trim(backend: &Backend) -> Result<()> {
    backend.memory()?.trim();
    if host_alloc::serves(backend.handle()) {
        heap::trim();
        // The library's own tables (communicators, queues) are allocated by malloc.
        process::trim_malloc();
    }
    Ok(())
}

/// Maximum alignment of an allocation, in bytes.
pub const MOST_ALIGNMENT: u64 = 1 << 30;

/// Checks a size and an alignment in bytes. Returns the alignment to use: 1 if `align` is 0,
/// otherwise `align`.
pub fn check(size: u64, align: u64) -> Result<u64> {
    let align = if align == 0 { 1 } else { align };
    if !align.is_power_of_two() || align > MOST_ALIGNMENT {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "alignment {align}: use a power of two up to 2^30, or 0 for the kind's own"
        );
    }
    if size == 0 || size > isize::MAX as u64 - align {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "size_bytes {size}: use 1 to {}",
            isize::MAX as u64 - align
        );
    }
    Ok(align)
}

/// Checks a size and an alignment in bytes with [`check`]. Returns the alignment to request from
/// the backend; an alignment of 0 becomes the alignment that the backend declares for the memory
/// kind.
pub fn alignment(backend: &Backend, kind: dtl_enum_word_t, size: u64, align: u64) -> Result<u64> {
    let given = check(size, align)?;
    if align != 0 {
        return Ok(given);
    }
    match kind_info(backend, kind) {
        Ok(info) => check(size, info.alignment),
        Err(error) if error.status() == DTL_ERROR_NATIVE_BACKEND => Err(error),
        // The backend does not describe the kind, or the kind does not exist, which `alloc` reports
        // better.
        Err(_) => Ok(given),
    }
}
