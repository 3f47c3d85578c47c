//! Owner, kind and bounds of a range that was passed to a copy or fill.

use super::{Allocation, LEDGER, external, find, find_any, kind_info};
use crate::abi::devices::device::DTL_MEMORY_HOST_ACCESSIBLE;
use crate::abi::word::DTL_MEMORY_HOST;
use crate::error::{Result, fail};
use crate::runtime::component::CopySide;
use crate::runtime::registry::{self, Backend};
use crate::sys::handles::epoch::Guard;
use crate::sys::memory::buf::{Addr, Region};

/// Range passed to a copy or fill, with the backend that owns the memory.
pub struct Located<'g> {
    /// Range and memory kind. Host memory that is not in the library's lists of allocations has the
    /// kind DTL_MEMORY_HOST.
    pub place: CopySide,
    /// Backend that owns the memory; `None` = host memory that is not in the library's lists of
    /// allocations.
    pub owner: Option<&'g Backend>,
}

impl Located<'_> {
    /// Creates the description of host memory that is not in the library's lists of allocations.
    pub fn host(region: Region) -> Self {
        Located { place: CopySide { region, kind: DTL_MEMORY_HOST, device: 0 }, owner: None }
    }

    /// Returns the subrange of `len` bytes at `offset`, or fewer bytes if the range ends earlier.
    pub(super) fn part(&self, offset: u64, len: u64) -> Self {
        let region = self.place.region.part(offset as usize, len as usize);
        Located { place: CopySide { region, ..self.place }, owner: self.owner }
    }

    /// Returns true if the host can read and write the range.
    pub fn host_accessible(&self) -> Result<bool> {
        let Some(owner) = self.owner else { return Ok(true) };
        Ok(kind_info(owner, self.place.kind)?.properties & DTL_MEMORY_HOST_ACCESSIBLE != 0)
    }
}

/// Creates the description of a range that lies inside an allocation.
fn within<'g>(inside: &'g Guard, region: Region, allocation: &Allocation) -> Result<Located<'g>> {
    let owner = registry::find(inside, allocation.backend)?;
    let place = CopySide { region, kind: allocation.kind, device: allocation.device };
    Ok(Located { place, owner: Some(owner) })
}

/// Finds the owner of a range. Fails with OUT_OF_BOUNDS if the range exceeds the end of its
/// allocation.
pub fn locate<'g>(inside: &'g Guard, name: &str, region: Region) -> Result<Located<'g>> {
    let Some((base, allocation)) = find_any(region)? else { return Ok(Located::host(region)) };
    let offset = (region.addr().get() - base) as u64;
    if region.len() as u64 > allocation.size - offset {
        return fail!(
            DTL_ERROR_OUT_OF_BOUNDS,
            "{name}: {} bytes at offset {offset} of an allocation of {} bytes",
            region.len(),
            allocation.size
        );
    }
    within(inside, region, &allocation)
}

/// Finds the owner of strided elements. `region` spans the elements, and `first`, the first
/// element, may lie anywhere in `region`. The allocation of `first` must contain all of `region`.
pub fn locate_around<'g>(
    inside: &'g Guard,
    name: &str,
    first: Addr,
    region: Region,
) -> Result<Located<'g>> {
    let end = region.addr().get() + region.len();
    let holds_all = |(base, of): &(usize, Allocation)| {
        *base <= region.addr().get() && (end - *base) as u64 <= of.size
    };
    let own = find_any(Region::allocated(first, 1))?;
    let found = match own.filter(holds_all) {
        None => find_any(region)?.filter(holds_all),
        found => found,
    };
    if let Some((_, allocation)) = found {
        return within(inside, region, &allocation);
    }
    let is_one = |(_, of): &(usize, Allocation)| of.hidden || !of.imported;
    let at = |addr| Ok(find_any(Region::allocated(addr, 1))?.filter(is_one));
    let touched = if own.is_some() { own } else { touched(region, at, is_one)? };
    let Some((base, allocation)) = touched else { return Ok(Located::host(region)) };
    fail!(
        DTL_ERROR_OUT_OF_BOUNDS,
        "{name}: elements from offset {} to {} of the allocation of {} bytes at {:?}: see pointer, \
         shape and strides",
        region.addr().get() as i128 - base as i128,
        end as i128 - base as i128,
        allocation.size,
        std::ptr::without_provenance::<u8>(base)
    )
}

/// Finds an allocation that contains the first or the last byte of a range, or that begins inside
/// the range. `at` looks up the allocation at an address. `counts` returns false to reject an
/// allocation that begins inside the range.
fn touched(
    region: Region,
    at: impl Fn(Addr) -> Result<Option<(usize, Allocation)>>,
    counts: impl Fn(&(usize, Allocation)) -> bool,
) -> Result<Option<(usize, Allocation)>> {
    let last = region.addr().offset(region.len().saturating_sub(1));
    let over = || {
        let range = region.addr().get()..=last.get();
        LEDGER.read().range(range).next().map(|(&base, allocation)| (base, *allocation))
    };
    for end in [region.addr(), last] {
        if let Some(found) = at(end)? {
            return Ok(Some(found));
        }
    }
    let found = over().filter(&counts);
    Ok(found.or_else(|| external::first_within(region.addr(), last).filter(&counts)))
}

/// Finds an allocation that overlaps the range, in the library's lists of allocations only. Does
/// not query drivers.
pub(super) fn overlapping(region: Region) -> Result<Option<(usize, Allocation)>> {
    touched(region, |addr| Ok(find(addr)), |_| true)
}
