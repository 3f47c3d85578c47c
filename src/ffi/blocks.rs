//! The blocks of v-forms: arrays of counts and places, checked and turned into regions.

use super::args;
use crate::abi::word::dtl_dtype_t;
use crate::error::{Result, fail};
use crate::runtime::types::element_size;
use crate::sys::memory::buf::Region;
use std::ffi::c_void;

/// An array of the caller's.
///
/// # Safety
/// NULL, or `count` values that stay through the call.
pub(super) unsafe fn array<'a, T>(pointer: *const T, count: usize, name: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return fail!(DTL_ERROR_NULL_POINTER, "{name} is NULL (for {count} values)");
    }
    // SAFETY: not null, and `count` values by the contract.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Blocks of a v-form's buffer.
pub(super) struct VectorBlocks<'a> {
    base: *const c_void,
    counts: &'a [u64],
    /// `None`: one after the other.
    displs: Option<&'a [u64]>,
    dtype: dtl_dtype_t,
    name: &'a str,
}

impl<'a> VectorBlocks<'a> {
    /// # Safety
    /// `counts`, and `displs` unless NULL, have `ranks` values.
    pub(super) unsafe fn new(
        base: *const c_void,
        counts: *const u64,
        displs: *const u64,
        ranks: usize,
        dtype: dtl_dtype_t,
        name: &'a str,
    ) -> Result<Self> {
        if ranks > 0 {
            args::check_place(base, name)?;
        }
        // SAFETY: passed on.
        let counts = unsafe { array(counts, ranks, &format!("the counts of {name}")) }?;
        let displs = match displs.is_null() {
            true => None,
            // SAFETY: passed on.
            false => Some(unsafe { array(displs, ranks, name) }?),
        };
        Ok(VectorBlocks { base, counts, displs, dtype, name })
    }

    /// The regions, checked to fit into memory and, for receiving, not to overlap.
    ///
    /// # Safety
    /// The blocks stay valid until the collective is over.
    pub(super) unsafe fn regions(&self, for_receiving: bool) -> Result<Vec<Region>> {
        let size = element_size(self.dtype)? as u64;
        let mut regions = Vec::new();
        if regions.try_reserve_exact(self.counts.len()).is_err() {
            return fail!(
                DTL_ERROR_OUT_OF_MEMORY,
                "no memory for a list of {} blocks",
                self.counts.len()
            );
        }
        let mut next = 0_u64;
        for (rank, count) in self.counts.iter().enumerate() {
            let begin = self.displs.and_then(|displs| displs.get(rank)).copied().unwrap_or(next);
            let end = begin.checked_add(*count).filter(|end| *end <= isize::MAX as u64 / size);
            let Some(end) = end else {
                return fail!(
                    DTL_ERROR_INVALID_ARGUMENT,
                    "{}: block {rank} ({count} elements from {begin} on) is more than memory can \
                     hold",
                    self.name
                );
            };
            let place = self.base.wrapping_byte_add((begin * size) as usize);
            let pointer = if self.base.is_null() { self.base } else { place };
            // SAFETY: passed on.
            regions.push(unsafe { args::region(pointer, count * size, self.name) }?);
            next = end;
        }
        if for_receiving {
            self.check_apart(&regions)?;
        }
        Ok(regions)
    }

    /// Mostly blocks are in the order of their places, which is quick to see.
    fn check_apart(&self, regions: &[Region]) -> Result<()> {
        // Without empty ones: two that overlap may have one of those between them.
        let used = || regions.iter().enumerate().filter(|(_, region)| !region.is_empty());
        if used().is_sorted_by(|(_, a), (_, b)| a.addr().get() + a.len() <= b.addr().get()) {
            return Ok(());
        }
        let mut sorted: Vec<_> = used().collect();
        sorted.sort_unstable_by_key(|(_, region)| region.addr().get());
        for pair in sorted.windows(2) {
            if let [(a, first), (b, second)] = pair {
                if first.overlaps(**second) {
                    return fail!(
                        DTL_ERROR_INVALID_ARGUMENT,
                        "{}: blocks {a} and {b} overlap",
                        self.name
                    );
                }
            }
        }
        Ok(())
    }

    pub(super) fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}
