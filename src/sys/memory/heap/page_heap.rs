//! Memory that all threads share: segments (mappings of 2 MiB) with slabs (adjacent blocks of one
//! size class) that do not belong to any heap; mappings for large blocks; the heaps of threads that
//! have ended; and the budget (the maximum number of bytes that heaps may keep mapped without
//! allocated blocks).
//!
//! One lock protects the lists of this module. An allocation acquires it only if the heap of the
//! calling thread has no suitable memory. While this lock is held, pages of blocks are neither
//! written nor returned to the system, except when all memory is unmapped.

use super::relaxed_cell::RelaxedPtr;
use super::segment::{Segment, Slab};
use super::size_class::{self, CUTS, SEGMENT, SPANS};
use super::thread_heap::Heap;
use super::{os, page_map, stats, unmap_hooks};
use crate::sys::sync::lock::{Mutex, MutexGuard};
use crate::sys::sync::{AtomicU64, AtomicUpdate};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Default limit on the number of bytes that heaps keep mapped but unused: the larger of
/// `USUAL_BUDGET` and 1 / `BUDGET_SHARE` of the maximum number of bytes that were mapped at once.
const USUAL_BUDGET: usize = 256 << 20;
const BUDGET_SHARE: usize = 8;
/// Size in bytes of the mappings from which the descriptors of segments, slabs and heaps are
/// allocated; larger arrays of descriptors get larger mappings.
const CHUNK: usize = 1 << 20;

/// Number of 64-bit words that are left unused before the array of state words of a slab (one word
/// for each block).
const SKIPPED: usize = 8;

/// Number of bytes that are currently mapped for blocks.
static MAPPED: AtomicUsize = AtomicUsize::new(0);
static MOST_MAPPED: AtomicUsize = AtomicUsize::new(0);
/// Number of bytes that all heaps together are currently permitted to keep mapped but unused.
static GRANTED: AtomicUsize = AtomicUsize::new(0);
/// Upper limit for `GRANTED`, in bytes; `usize::MAX` selects the default limit.
static BUDGET: AtomicUsize = AtomicUsize::new(usize::MAX);

struct Store {
    /// Lists of the segments with at least one slab that does not belong to any heap, one list for
    /// each slab layout (entry of `CUTS`).
    with_room: [RelaxedPtr<Segment>; SPANS],
    /// Lists of segment descriptors that can be reused because their memory was unmapped, one list
    /// for each slab layout and one for segments that are a single block.
    spare: [RelaxedPtr<Segment>; SPANS + 1],
    /// List of all heaps that were ever allocated.
    heaps: RelaxedPtr<Heap>,
    /// List of the heaps that have no thread.
    idle: RelaxedPtr<Heap>,
    /// Address at which the next descriptor is allocated.
    next: usize,
    end: usize,
}

static STORE: Mutex<Store> = Mutex::new(Store {
    with_room: [const { RelaxedPtr::none() }; SPANS],
    spare: [const { RelaxedPtr::none() }; SPANS + 1],
    heaps: RelaxedPtr::none(),
    idle: RelaxedPtr::none(),
    next: 0,
    end: 0,
});

/// Type for which all-zero bytes are a valid value, and whose values are never moved or dropped.
///
/// # Safety
/// All-zero bytes must be a valid value of the type, and its values must never be moved or dropped.
unsafe trait Plain: 'static {}
// SAFETY: numbers and links that may be null, all atomics: zeros are valid. It is never moved.
unsafe impl Plain for Segment {}
// SAFETY: numbers and links that may be null, all atomics: zeros are valid. It is never moved.
unsafe impl Plain for Slab {}
// SAFETY: numbers, flags and links, all atomics: zeros are valid. It is never moved.
unsafe impl Plain for Heap {}
// SAFETY: an atomic.
unsafe impl Plain for AtomicU64 {}

impl Store {
    /// Allocates an array of `count` zeroed descriptors, which are never freed; `None` if out of
    /// memory.
    fn describe<T: Plain>(&mut self, count: usize) -> Option<&'static [T]> {
        let bytes = (count * size_of::<T>()).next_multiple_of(128);
        if self.end - self.next < bytes {
            let chunk = bytes.next_multiple_of(CHUNK);
            self.next = os::map(chunk, os::PAGE)?;
            self.end = self.next + chunk;
        }
        let at = self.next;
        self.next += bytes;
        // SAFETY: `count` zeroed values of a type for which zero is valid, in pages that stay
        // forever and of which this part is allocated once; aligned to 128, which suffices for all.
        Some(unsafe {
            std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<T>(at), count)
        })
    }

    /// Returns an unused or new descriptor for a segment with the slab layout `cut`: an index into
    /// `CUTS`, or `SPANS` for a segment that is a single block.
    fn segment(&mut self, cut: usize) -> Option<&'static Segment> {
        if let Some(spare) = self.spare.get(cut) {
            if let Some(segment) = spare.get() {
                spare.set(segment.next.get());
                return Some(segment);
            }
        }
        let segment = self.describe::<Segment>(1)?.first()?;
        segment.cut.set(cut);
        segment.shift.set(CUTS.get(cut).map_or(63, |cut| cut.shift));
        let slabs = self.describe::<Slab>(segment.slab_count())?;
        for slab in slabs {
            // Skips the first bytes of a page, against 4K aliasing: see `Slab`.
            let words = self.describe::<AtomicU64>(segment.most() + SKIPPED)?.get(SKIPPED..)?;
            slab.words.store(words.as_ptr().cast_mut(), Ordering::Relaxed);
            slab.segment.set(Some(segment));
        }
        segment.slabs.store(slabs.as_ptr().cast_mut(), Ordering::Release);
        Some(segment)
    }

    /// Initializes the descriptor of a newly mapped segment of `bytes` bytes at `at`, and enters it
    /// into the page map.
    fn install(&mut self, cut: usize, at: usize, bytes: usize) -> Option<&'static Segment> {
        let segment = self.segment(cut)?;
        segment.base.set(at);
        segment.bytes.set(bytes);
        segment.free.set(segment.all_free());
        for number in 0..segment.slab_count() {
            segment.slab(number).base.set(at + (number << (segment.shift.get() & 31)));
        }
        if !page_map::enter(segment) {
            self.put_away(segment);
            return None;
        }
        Some(segment)
    }

    fn put_away(&self, segment: &'static Segment) {
        if let Some(spare) = self.spare.get(segment.cut.get()) {
            segment.next.set(spare.get());
            spare.set(Some(segment));
        }
    }

    fn list(&self, segment: &'static Segment) {
        let Some(first) = self.with_room.get(segment.cut.get()) else { return };
        let next = first.get();
        segment.prev.set(None);
        segment.next.set(next);
        if let Some(next) = next {
            next.prev.set(Some(segment));
        }
        first.set(Some(segment));
    }

    fn unlist(&self, segment: &'static Segment) {
        let (prev, next) = (segment.prev.get(), segment.next.get());
        if let Some(next) = next {
            next.prev.set(prev);
        }
        match (prev, self.with_room.get(segment.cut.get())) {
            (Some(prev), _) => prev.next.set(next),
            (None, Some(first)) => first.set(next),
            (None, None) => {}
        }
    }

    /// Returns a slab that does not belong to any heap, from a segment with the slab layout `cut`,
    /// and marks it as not free; `None` if there is no such slab.
    fn pick(&self, cut: usize) -> Option<&'static Slab> {
        let segment = self.with_room.get(cut)?.get()?;
        let number = segment.free.get().trailing_zeros() as usize;
        segment.free.set(segment.free.get() & !(1 << number));
        if segment.free.get() == 0 {
            self.unlist(segment);
        }
        Some(segment.slab(number))
    }
}

/// Maps a segment of `bytes` bytes. Returns its descriptor together with the guard of the page
/// heap's lock.
fn map(
    cut: usize,
    bytes: usize,
    align: usize,
) -> Option<(MutexGuard<'static, Store>, &'static Segment)> {
    let at = os::map(bytes, align)?;
    let mut store = STORE.lock();
    let Some(segment) = store.install(cut, at, bytes) else {
        drop(store);
        os::unmap(at, bytes);
        return None;
    };
    let mapped = MAPPED.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST_MAPPED.fetch_max(mapped, Ordering::Relaxed);
    Some((store, segment))
}

/// Assigns a slab to the heap `owner`, for blocks of the size class `class` (below `FIRST_SPAN`),
/// and returns the slab.
pub(super) fn slab(class: usize, owner: &'static Heap) -> Option<&'static Slab> {
    let cut = size_class::cut(class);
    let found = STORE.lock().pick(cut);
    let slab = match found {
        Some(slab) => slab,
        None => {
            let (store, segment) = map(cut, SEGMENT, SEGMENT)?;
            store.list(segment);
            store.pick(cut)?
        }
    };
    slab.dedicate(class, 0, owner);
    Some(slab)
}

/// Maps memory for a slab that consists of one block of `bytes` bytes. Assigns this slab to the
/// heap `owner` and returns it.
pub(super) fn span(
    class: usize,
    bytes: usize,
    align: usize,
    owner: &'static Heap,
) -> Option<&'static Slab> {
    let bytes = bytes.checked_next_multiple_of(os::PAGE)?;
    let (store, segment) = map(SPANS, bytes, align)?;
    segment.free.set(0);
    drop(store);
    if bytes >= SEGMENT {
        os::prefer_huge(segment.base.get(), bytes);
    }
    let slab = segment.slab(0);
    slab.dedicate(class, bytes, owner);
    Some(slab)
}

/// Returns the memory of a slab to the system and removes its owner. The slab must have no
/// allocated blocks and must not be in any list.
pub(super) fn release(slab: &'static Slab) {
    let Some(segment) = slab.segment.get() else { return };
    slab.disown();
    let unit = bytes(slab);
    if segment.slab_count() > 1 {
        unmap_hooks::tell(slab.base.get(), unit);
        os::purge(slab.base.get(), unit);
    }
    let store = STORE.lock();
    let before = segment.free.get();
    segment.free.set(before | 1 << ((slab.base.get() - segment.base.get()) / unit));
    if segment.free.get() != segment.all_free() {
        if before == 0 {
            store.list(segment);
        }
        return;
    }
    if before != 0 {
        store.unlist(segment);
    }
    page_map::leave(segment);
    let (at, bytes) = (segment.base.get(), segment.bytes.get());
    store.put_away(segment);
    drop(store);
    unmap_hooks::tell(at, bytes);
    os::unmap(at, bytes);
    MAPPED.fetch_sub(bytes, Ordering::Relaxed);
}

/// Returns the number of mapped bytes that belong to a slab.
pub(super) fn bytes(slab: &Slab) -> usize {
    let Some(segment) = slab.segment.get() else { return 0 };
    segment.bytes.get() / segment.slab_count()
}

/// Sets the limit on the number of bytes that heaps keep mapped but unused; `None` selects the
/// default.
pub fn set_budget(bytes: Option<usize>) {
    BUDGET.store(bytes.unwrap_or(usize::MAX), Ordering::Relaxed);
}

/// Returns the limit on the number of bytes that heaps keep mapped but unused.
pub fn budget() -> usize {
    match BUDGET.load(Ordering::Relaxed) {
        usize::MAX => USUAL_BUDGET.max(MOST_MAPPED.load(Ordering::Relaxed) / BUDGET_SHARE),
        bytes => bytes,
    }
}

/// Permits a heap to keep `bytes` more bytes mapped but unused; returns true on success. If that
/// would exceed [`budget`], first returns the unused memory of exited threads to the system.
pub(super) fn grant(bytes: usize) -> bool {
    let fits = |now: usize| now.checked_add(bytes).filter(|then| *then <= budget());
    let try_it = || GRANTED.checked_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
    try_it() || (bytes <= budget() && sweep() && try_it())
}

/// Withdraws the permission, given by [`grant`], to keep `bytes` bytes mapped but unused.
pub(super) fn revoke(bytes: usize) {
    GRANTED.fetch_sub(bytes, Ordering::Relaxed);
}

/// Returns the number of bytes that are currently mapped for blocks.
pub fn mapped() -> usize {
    MAPPED.load(Ordering::Relaxed)
}

/// Returns the number of bytes that heaps are currently permitted to keep mapped but unused.
pub fn kept() -> usize {
    GRANTED.load(Ordering::Relaxed)
}

/// Returns a heap for the calling thread: the heap of a thread that has ended, or a new heap.
pub(super) fn adopt() -> Option<&'static Heap> {
    let mut store = STORE.lock();
    if let Some(heap) = store.idle.get() {
        store.idle.set(heap.idle.get());
        return Some(heap);
    }
    let heap = store.describe::<Heap>(1)?.first()?;
    heap.next.set(store.heaps.get());
    store.heaps.set(Some(heap));
    Some(heap)
}

/// Returns true if the lock of the page heap can be acquired. In a forked child, this lock stays
/// locked if another thread held it at the fork, because that thread does not exist in the child. A
/// thread of the child must be able to exit even then.
pub(super) fn is_usable() -> bool {
    (0..1000).any(|_| {
        STORE.try_lock().is_some() || {
            std::thread::yield_now();
            false
        }
    })
}

/// Adds `heap`, which its thread no longer uses, to the list of heaps without a thread.
pub(super) fn leave(heap: &'static Heap) {
    let store = STORE.lock();
    heap.idle.set(store.idle.get());
    store.idle.set(Some(heap));
}

/// Returns the unused memory in the heaps of exited threads to the system. Returns false if there
/// is no such heap.
pub(super) fn sweep() -> bool {
    let mut heap = {
        let store = STORE.lock();
        let first = store.idle.get();
        store.idle.set(None);
        first
    };
    let any = heap.is_some();
    while let Some(mine) = heap {
        heap = mine.idle.get();
        mine.trim();
        leave(mine);
    }
    any
}

/// Calls `f` for every heap.
pub(super) fn for_each_heap(mut f: impl FnMut(&'static Heap)) {
    let first = STORE.lock().heaps.get();
    let mut heap = first;
    while let Some(one) = heap {
        f(one);
        heap = one.next.get();
    }
}

/// Unmaps all segments and empties every heap. No other thread may be using the heaps.
pub(super) fn destroy() {
    for_each_heap(Heap::clear);
    let store = STORE.lock();
    store.with_room.iter().for_each(|first| first.set(None));
    page_map::for_each(|segment| {
        page_map::leave(segment);
        for number in 0..segment.slab_count() {
            segment.slab(number).forget();
        }
        unmap_hooks::tell(segment.base.get(), segment.bytes.get());
        os::unmap(segment.base.get(), segment.bytes.get());
        store.put_away(segment);
    });
    drop(store);
    start_anew();
}

/// Discards all state of the allocator in a forked child. The inherited memory stays mapped but is
/// not used for allocations any more.
pub(super) fn forget() {
    let mut store = STORE.lock();
    store.with_room.iter().for_each(|first| first.set(None));
    store.heaps.set(None);
    store.idle.set(None);
    (store.next, store.end) = (0, 0);
    page_map::for_each(page_map::leave);
    drop(store);
    start_anew();
}

fn start_anew() {
    for number in [&MAPPED, &MOST_MAPPED, &GRANTED] {
        number.store(0, Ordering::Relaxed);
    }
    (0..stats::TAGS).for_each(stats::reset);
}
