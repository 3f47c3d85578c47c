//! Reports to watchers which pages the allocator returns to the system, because a registration of
//! these pages with a device (memory registration) becomes invalid.

use crate::sys::memory::buf::{Addr, Region};
use crate::sys::sync::lock::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Maximum number of ranges that a watcher ([`UnmapWatcher`]) records individually. If more ranges
/// are returned to the system, the watcher reports all memory as returned.
const RANGES: usize = 64;

static WATCHERS: Mutex<Vec<Weak<HookRanges>>> = Mutex::new(Vec::new());
/// Number of watchers. While it is 0, the report that the allocator returned pages to the system
/// costs one load.
static COUNT: AtomicUsize = AtomicUsize::new(0);

struct HookRanges {
    is_any: AtomicBool,
    ranges: Mutex<Vec<Region>>,
}

/// Watcher that records the ranges returned to the system since the last [`UnmapWatcher::take`]. A
/// range is recorded before its pages are unmapped. A thread that later maps memory at the same
/// addresses therefore finds the range in the watcher's list: kernel locks order the unmapping
/// before the new mapping.
pub struct UnmapWatcher(Arc<HookRanges>);

/// Creates a watcher. Until it is dropped, it records the ranges that are returned to the system.
pub fn watch() -> UnmapWatcher {
    let list = Arc::new(HookRanges {
        is_any: AtomicBool::new(false),
        ranges: Mutex::new(Vec::with_capacity(RANGES)),
    });
    let mut watchers = WATCHERS.lock();
    watchers.push(Arc::downgrade(&list));
    COUNT.store(watchers.len(), Ordering::Release);
    UnmapWatcher(list)
}

impl UnmapWatcher {
    /// Returns true if any ranges are recorded.
    pub fn is_any(&self) -> bool {
        self.0.is_any.load(Ordering::Acquire)
    }

    /// Removes and returns the recorded ranges.
    #[must_use]
    pub fn take(&self) -> Vec<Region> {
        let mut ranges = self.0.ranges.lock();
        self.0.is_any.store(false, Ordering::Release);
        std::mem::replace(&mut ranges, Vec::with_capacity(RANGES))
    }
}

impl Drop for UnmapWatcher {
    fn drop(&mut self) {
        let mut watchers = WATCHERS.lock();
        watchers.retain(|list| list.as_ptr() != Arc::as_ptr(&self.0));
        COUNT.store(watchers.len(), Ordering::Release);
    }
}

/// Reports to all watchers that the pages of the `len` bytes at the address `at` are about to be
/// returned to the system.
pub(super) fn tell(at: usize, len: usize) {
    if COUNT.load(Ordering::Acquire) != 0 {
        tell_all(Region::allocated(Addr::new(std::ptr::with_exposed_provenance_mut(at)), len));
    }
}

#[cold]
fn tell_all(range: Region) {
    for list in WATCHERS.lock().iter().filter_map(Weak::upgrade) {
        let mut ranges = list.ranges.lock();
        if ranges.len() < RANGES {
            ranges.push(range);
        } else {
            // Without allocating: this code runs where memory is returned.
            ranges.truncate(1);
            ranges.iter_mut().for_each(|all| {
                *all = Region::allocated(Addr::new(std::ptr::dangling_mut()), usize::MAX - 1)
            });
        }
        list.is_any.store(true, Ordering::Release);
    }
}

#[cfg(test)]
#[path = "tests/unmap_hooks.rs"]
mod tests;
