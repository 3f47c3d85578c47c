//! Memory that the program got from a driver itself (cudaMalloc, Kokkos, torch): a backend that can ask its driver about a
//! pointer is asked about addresses that are in no list.
//!
//! Nobody is asked until such a backend is used, or the program was seen to use its driver (`registry::notice`). From then on
//! messages and copies ask about each buffer that the library does not know, except where only host memory can be
//! (`process::host_ranges`). Answers are not kept: the program frees and maps memory without a word, and what was the host's
//! may be a device's a moment later.

use super::{Allocation, hidden};
use crate::abi::handle::dtl_backend_t;
use crate::abi::word::DTL_MEMORY_PINNED;
use crate::runtime::backend::Found;
use crate::runtime::registry::{self, Backend};
use crate::sys::buf::{Addr, Region};
use crate::sys::epoch;
use crate::sys::lock::RwLock;
use crate::sys::process::host_ranges;
use std::sync::atomic::{AtomicUsize, Ordering};

/// So many backends are asked at most.
const MOST: usize = 8;

/// The handles of those backends, in the order of their first use; 0 = none.
static DRIVERS: RwLock<[u64; MOST]> = RwLock::new([0; MOST]);
/// How many there are. Relaxed loads are enough: a thread that uses a backend, or that passes on a pointer of its driver's,
/// orders that before the calls of threads it tells, and calls that nothing orders may be answered as before.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A backend can be used from now on.
pub fn begin(backend: &Backend) {
    let id = backend.handle().id;
    if id == 0 || !backend.memory.as_ref().is_some_and(|memory| memory.identifies()) {
        return;
    }
    host_ranges::prepare();
    let mut drivers = DRIVERS.write();
    if drivers.contains(&id) {
        return;
    }
    if let Some(place) = drivers.iter_mut().find(|place| **place == 0) {
        *place = id;
        hidden::one_more_asked();
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

/// A backend goes.
pub fn end(backend: dtl_backend_t) {
    let mut drivers = DRIVERS.write();
    if let Some(place) = drivers.iter_mut().find(|place| **place == backend.id) {
        *place = 0;
        hidden::one_less_asked();
        COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All go, or are the parent's of a forked child.
pub fn forget_all() {
    let drivers = *DRIVERS.read();
    for id in drivers.into_iter().filter(|id| *id != 0) {
        end(dtl_backend_t { id });
    }
}

/// Whether a driver may know a range that is in no list.
#[inline]
pub(super) fn may_know(region: Region) -> bool {
    COUNT.load(Ordering::Relaxed) != 0 && !host_ranges::hold(region)
}

/// The memory that a range begins in, and its first byte, if a driver knows it. The host's memory that the program registered
/// with a driver is found for ranges within it: one that goes on behind it is the program's host memory as before.
pub(super) fn find(region: Region) -> Option<(usize, Allocation)> {
    if !may_know(region) {
        return None;
    }
    let end = region.addr().get().saturating_add(region.len());
    ask(region)
        .filter(|(base, of)| of.kind != DTL_MEMORY_PINNED || end <= base.saturating_add(of.size as usize))
}

/// The same without looking at where the range is.
#[cold]
pub(super) fn ask(region: Region) -> Option<(usize, Allocation)> {
    let drivers = *DRIVERS.read();
    let inside = epoch::enter();
    drivers.into_iter().filter(|id| *id != 0).find_map(|id| {
        let backend = registry::find(&inside, dtl_backend_t { id }).ok()?;
        let Found { kind, device, base, size } = identify(backend, region)?;
        Some((base.get(), Allocation::of_others(backend, device, kind, size)))
    })
}

/// What a backend's driver knows of a range. Memory that was mapped piece by piece is one to the program, so pieces of one
/// kind and device that lie in a row are taken together as far as the range goes.
#[must_use]
pub fn identify(backend: &Backend, region: Region) -> Option<Found> {
    let memory = backend.memory.as_ref()?;
    let mut found = memory.identify(region.addr())?;
    let end = region.addr().get().saturating_add(region.len());
    loop {
        let next = found.base.get().saturating_add(found.size as usize);
        if next >= end {
            return Some(found);
        }
        let next = Addr::new(std::ptr::with_exposed_provenance_mut(next));
        match memory.identify(next) {
            Some(Found { kind, device, base, size })
                if (kind, device, base) == (found.kind, found.device, next) && size > 0 =>
            {
                found.size += size;
            }
            _ => return Some(found),
        }
    }
}
