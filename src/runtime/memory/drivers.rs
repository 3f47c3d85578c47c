//! Driver queries, which identify memory that the program allocated through a driver (cudaMalloc,
//! Kokkos, PyTorch). For an address that is in none of the library's lists of allocations, the
//! backends that can identify pointers query their drivers.
//!
//! Queries begin when such a backend is first used, or when the library detects that the program
//! uses the driver of the backend (`registry::detect_driver_use`). From then on, the library
//! queries the drivers once for each buffer of a message or copy that is not in its lists, except
//! for buffers in ranges that contain only host memory (`sys::memory::buf`). Results are not
//! cached: the library is not notified of the program's calls to munmap and cudaMalloc, so a cached
//! result "host memory" could be wrong by the next call, and the host would read device memory.

use super::{Allocation, device_only};
use crate::abi::handle::dtl_backend_t;
use crate::abi::word::DTL_MEMORY_PINNED;
use crate::error::Result;
use crate::runtime::component::DriverAllocation;
use crate::runtime::registry::{self, Backend};
use crate::sys::handles::epoch;
use crate::sys::memory::buf::{Addr, Region, find_host_ranges, is_in_host_ranges};
use crate::sys::sync::lock::RwLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of backends that are queried.
const MOST: usize = 8;

/// Handles of the backends whose drivers are queried; 0 = free entry. At its first use, a backend
/// is stored in the first free entry. A query first copies the list, so that it holds no lock while
/// it calls a backend.
static DRIVERS: RwLock<[u64; MOST]> = RwLock::new([0; MOST]);
/// Number of handles in DRIVERS. Relaxed loads suffice: if the first use of a backend happens
/// before a call in another thread, that call reads the new count; a call that is concurrent with
/// the first use may read the old or the new count.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Adds an available backend to DRIVERS if it can identify pointers through its driver.
pub fn add(backend: &Backend) {
    let id = backend.handle().id;
    if id == 0 || !backend.memory.as_ref().is_some_and(|memory| memory.can_identify()) {
        return;
    }
    find_host_ranges();
    let mut drivers = DRIVERS.write();
    if drivers.contains(&id) {
        return;
    }
    if let Some(place) = drivers.iter_mut().find(|place| **place == 0) {
        *place = id;
        device_only::add_source();
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

/// Removes a backend from DRIVERS, so that its driver is no longer queried.
pub fn remove(backend: dtl_backend_t) {
    let mut drivers = DRIVERS.write();
    if let Some(place) = drivers.iter_mut().find(|place| **place == backend.id) {
        *place = 0;
        device_only::remove_source();
        COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Removes all backends from DRIVERS. Called at finalize, and in a forked child, which cannot use
/// the parent's backends.
pub fn forget_all() {
    let drivers = *DRIVERS.read();
    for id in drivers.into_iter().filter(|id| *id != 0) {
        remove(dtl_backend_t { id });
    }
}

/// Returns true if a range that is in none of the library's lists of allocations may be memory that
/// a driver allocated or registered.
#[inline]
pub(super) fn may_know(region: Region) -> bool {
    COUNT.load(Ordering::Relaxed) != 0 && !is_in_host_ranges(region)
}

/// Queries the drivers for the allocation in which a range begins. Returns the address of the first
/// byte of the allocation, and its description. Pinned memory is returned only if it contains the
/// whole range, because the program may have registered a part of a larger host buffer.
#[cold]
pub(super) fn find(region: Region) -> Result<Option<(usize, Allocation)>> {
    let end = region.addr().get().saturating_add(region.len());
    let is_whole = |(base, of): &(usize, Allocation)| {
        of.kind != DTL_MEMORY_PINNED || end <= base.saturating_add(of.size as usize)
    };
    Ok(query(region)?.filter(is_whole))
}

/// Queries the drivers of all backends in DRIVERS, even about ranges that contain only host memory,
/// because the program may have registered that memory with a driver. If a query fails, the range
/// may be memory of that driver, and the host may be unable to read it. So this function returns
/// the failure, unless another driver recognizes the range.
#[cold]
pub(super) fn query(region: Region) -> Result<Option<(usize, Allocation)>> {
    let drivers = *DRIVERS.read();
    let inside = epoch::enter();
    let mut failure = None;
    for id in drivers.into_iter().filter(|id| *id != 0) {
        let Ok(backend) = registry::find(&inside, dtl_backend_t { id }) else { continue };
        match identify(backend, region) {
            Ok(Some(DriverAllocation { kind, device, base, size })) => {
                return Ok(Some((base.get(), Allocation::of_others(backend, device, kind, size))));
            }
            Ok(None) => {}
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    failure.map_or(Ok(None), Err)
}

/// Queries the driver of one backend about a range. A program that maps memory in pieces (cuMemMap)
/// uses the pieces as one buffer, so adjacent allocations of the same kind and device are joined,
/// as far as the range extends.
pub fn identify(backend: &Backend, region: Region) -> Result<Option<DriverAllocation>> {
    let Some(memory) = backend.memory.as_ref() else { return Ok(None) };
    let Some(mut found) = memory.identify(region.addr())? else { return Ok(None) };
    let end = region.addr().get().saturating_add(region.len());
    loop {
        let next = found.base.get().saturating_add(found.size as usize);
        if next >= end {
            return Ok(Some(found));
        }
        let next = Addr::new(std::ptr::with_exposed_provenance_mut(next));
        match memory.identify(next)? {
            Some(DriverAllocation { kind, device, base, size })
                if (kind, device, base) == (found.kind, found.device, next) && size > 0 =>
            {
                found.size += size;
            }
            _ => return Ok(Some(found)),
        }
    }
}
