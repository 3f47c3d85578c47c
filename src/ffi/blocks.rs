//! Blocks of vector variants: arrays of counts and displacements, checked and converted into
//! regions.

use super::args;
use crate::abi::word::dtl_dtype_t;
use crate::error::{Result, fail};
use crate::runtime::types::element_size;
use crate::sys::memory::buf::Region;
use std::ffi::c_void;

/// Returns an array of the caller as a slice. `pointer` may be NULL if `count` is 0.
///
/// # Safety
/// `pointer` is NULL or has `count` values that do not change during the call.
pub(super) unsafe fn array<'a, T>(pointer: *const T, count: usize, name: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return fail!(DTL_ERROR_NULL_POINTER, "{name} is NULL (for {count} values)");
    }
    // SAFETY: `pointer` is not null, so it has `count` values by the contract.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Blocks of a vector variant's buffer.
pub(super) struct VectorBlocks<'a> {
    base: *const c_void,
    counts: &'a [u64],
    /// Displacements of the blocks; `None` if the blocks are contiguous.
    displs: Option<&'a [u64]>,
    dtype: dtl_dtype_t,
    name: &'a str,
}

impl<'a> VectorBlocks<'a> {
    /// Reads the counts and displacements of a buffer.
    ///
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
        // SAFETY: the caller guarantees that `counts` has `ranks` values.
        let counts = unsafe { array(counts, ranks, &format!("the counts of {name}")) }?;
        let displs = match displs.is_null() {
            true => None,
            // SAFETY: the caller guarantees that `displs`, which is not null here, has `ranks`
            // values.
            false => Some(unsafe { array(displs, ranks, name) }?),
        };
        Ok(VectorBlocks { base, counts, displs, dtype, name })
    }

    /// Returns the regions of the blocks. Returns an error if a block does not fit into memory or,
    /// for receiving, if two blocks overlap.
    ///
    /// # Safety
    /// The caller must keep the blocks valid until the collective has completed.
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
            // SAFETY: the caller guarantees that the blocks stay valid until the collective has
            // completed.
            regions.push(unsafe { args::region(pointer, count * size, self.name) }?);
            next = end;
        }
        if for_receiving {
            self.check_apart(&regions)?;
        }
        Ok(regions)
    }

    /// Returns an error if two regions overlap. Blocks are usually in the order of their
    /// displacements, which a linear check detects.
    fn check_apart(&self, regions: &[Region]) -> Result<()> {
        // Empty regions are skipped, because an empty region may lie between two overlapping
        // regions.
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
