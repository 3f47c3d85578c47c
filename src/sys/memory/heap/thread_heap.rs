//! Heap of a thread: for each size class, the slab from which the thread currently allocates, and a
//! list of its other slabs with free blocks.
//!
//! One thread at a time uses a heap, so most calls do not need a locked instruction. A locked
//! instruction is needed mainly to free a block that belongs to another thread's heap
//! (`remote_free`). When a thread ends, its heap is kept with all its slabs. Another thread that
//! needs a heap can then take it over under the lock of the page heap.

use super::relaxed_cell::{Number, RelaxedPtr};
use super::remote_free::{self, RemoteFreeList};
use super::segment::{APART, CURRENT, LISTED, Slab};
use super::size_class::{self, FIRST_SPAN, LARGEST, OWN, QUANTUM, SEGMENT};
use super::stats::{TAGS, ThreadStats};
use super::{FreeOutcome, page_heap, page_map};
use crate::sys::handles::epoch::aside;
use crate::sys::sync::{AtomicU64, tls};
use std::sync::atomic::{AtomicBool, Ordering};

const BINS: usize = size_class::CLASSES.next_power_of_two();
/// Maximum request size in bytes for which the slab is found by the number of quanta (`QUANTUM`
/// bytes each) in the request, without computing the class.
const SMALL: usize = 1024;
const SMALLS: usize = SMALL / QUANTUM;

/// Heap of a thread. Only its thread allocates and frees through it; other threads push onto the
/// remote-free list (`mail`), set `wanted` and read the counters.
#[repr(C, align(128))]
pub(super) struct Heap {
    /// Slab from which the last block was allocated; it probably also contains the next block to be
    /// freed.
    last: RelaxedPtr<Slab>,
    /// Slabs from which requests of up to `SMALL` bytes are allocated: one for each multiple of
    /// `QUANTUM` bytes, to which the requested size is rounded up.
    small: [RelaxedPtr<Slab>; SMALLS],
    mail: RemoteFreeList,
    /// True if a thread has requested that this heap return its unused memory.
    wanted: AtomicBool,
    /// Number of bytes in slabs that count as unused: LISTED slabs without allocated blocks, and
    /// CURRENT slabs that consist of one block with a mapping of its own (even if the block is
    /// allocated).
    kept: Number,
    /// Number of bytes that the page heap permits this heap to keep unused; upper limit for `kept`.
    granted: Number,
    /// Next heap in the page heap's list of all heaps.
    pub(super) next: RelaxedPtr<Heap>,
    /// Next heap in the page heap's list of heaps without a thread.
    pub(super) idle: RelaxedPtr<Heap>,
    accounts: [ThreadStats; TAGS],
    /// Slab from which the heap allocates, for each size class; it may be full. The length of the
    /// array is a power of two, so that masking the index replaces a bounds check.
    current: [RelaxedPtr<Slab>; BINS],
    /// For each size class, the first slab in the list of slabs that have free blocks but are not
    /// in `current`.
    listed: [RelaxedPtr<Slab>; BINS],
}

/// Returns the calling thread's heap, if it has one.
pub(super) fn mine() -> Option<&'static Heap> {
    // SAFETY: null, or a heap, which lives forever.
    unsafe { tls::heap().cast::<Heap>().as_ref() }
}

/// Guard whose drop at thread exit gives the thread's heap to the page heap, for reuse by another
/// thread.
struct Leaving;

impl Drop for Leaving {
    fn drop(&mut self) {
        let _aside = aside();
        let heap = mine();
        tls::set_heap(std::ptr::null());
        if let Some(heap) = heap.filter(|_| page_heap::is_usable()) {
            heap.collect();
            page_heap::leave(heap);
        }
    }
}

thread_local! {
    static LEAVING: Leaving = const { Leaving };
}

/// Calls `act` with the calling thread's heap, which is created first if the thread has none. If
/// the thread is exiting and has already given its heap back, uses another heap for this call only.
pub(super) fn with<T>(act: impl FnOnce(&'static Heap) -> Option<T>) -> Option<T> {
    if let Some(heap) = mine() {
        return act(heap);
    }
    let heap = page_heap::adopt()?;
    if LEAVING.try_with(|_| ()).is_ok() {
        tls::set_heap(std::ptr::from_ref(heap).cast());
        return act(heap);
    }
    let done = act(heap);
    page_heap::leave(heap);
    done
}

/// Returns the state word of an allocated block of `size` requested bytes. `label` contains the
/// kind and the tag, two numbers that the caller has assigned to the block.
fn live(size: usize, label: u64) -> u64 {
    remote_free::LIVE | label | size as u64
}

/// Finds the allocated block that begins at `addr` and has the tag of `label`. Returns its slab,
/// its state word and the value of that word. If there is no such block, returns as `Err` the
/// reason why the address cannot be freed.
fn live_block(
    addr: usize,
    label: u64,
) -> Result<(&'static Slab, &'static AtomicU64, u64), FreeOutcome> {
    let segment = page_map::find(addr).ok_or(FreeOutcome::Foreign)?;
    let slab = segment.slab_of(addr);
    let word = slab.word(slab.index_of(addr).ok_or(FreeOutcome::Inside)?);
    let was = word.load(Ordering::Relaxed);
    if was >> remote_free::TAG_SHIFT == live(0, label) >> remote_free::TAG_SHIFT {
        Ok((slab, word, was))
    } else if was & remote_free::LIVE == 0 {
        Err(FreeOutcome::Dead)
    } else {
        Err(FreeOutcome::Tagged((was >> remote_free::TAG_SHIFT) as u8))
    }
}

/// Returns the element at an index modulo the array's length, which must be a power of two, so that
/// the compiler masks the index instead of checking bounds.
fn masked<T, const N: usize>(array: &[T; N], index: usize) -> &T {
    #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
    &array[index % N]
}

fn tag_of(label: u64) -> usize {
    (label >> remote_free::TAG_SHIFT) as usize % TAGS
}

impl Heap {
    fn current(&self, class: usize) -> &RelaxedPtr<Slab> {
        masked(&self.current, class)
    }

    /// Returns the pointer to the slab from which blocks for `size` bytes are allocated, or `None`
    /// if `size` is 0 or larger than the largest size class.
    fn at_hand(&self, size: usize) -> Option<&RelaxedPtr<Slab>> {
        let last = size.wrapping_sub(1);
        if last < SMALL {
            return Some(masked(&self.small, last / QUANTUM));
        }
        (last < LARGEST).then(|| self.current(size_class::of(size)))
    }

    fn set_current(&self, class: usize, slab: Option<&'static Slab>) {
        self.current(class).set(slab);
        let (end, begin) =
            (size_class::block(class), if class > 0 { size_class::block(class - 1) } else { 0 });
        let range = begin / QUANTUM..(end / QUANTUM).min(SMALLS);
        self.small.get(range).into_iter().flatten().for_each(|small| small.set(slab));
    }

    fn listed(&self, class: usize) -> &RelaxedPtr<Slab> {
        masked(&self.listed, class)
    }

    /// Returns the counters of this heap for a tag.
    pub(super) fn account(&self, tag: usize) -> &ThreadStats {
        masked(&self.accounts, tag)
    }

    /// Allocates a block from the current slab of its size class. Returns the address of the block
    /// and whether the caller must call `housekeeping`; `None` if that slab has no block in its
    /// list of free blocks.
    #[inline]
    pub(super) fn quick_alloc(&self, size: usize, label: u64) -> Option<(usize, bool)> {
        self.alloc_from(self.at_hand(size)?, size, label)
    }

    #[inline]
    fn alloc_from(
        &self,
        slab: &RelaxedPtr<Slab>,
        size: usize,
        label: u64,
    ) -> Option<(usize, bool)> {
        let slab = slab.get()?;
        let at = slab.head.get();
        if at == 0 {
            return None;
        }
        slab.take(at, live(size, label));
        self.last.set(Some(slab));
        Some((at, self.account(tag_of(label)).took(size)))
    }

    /// Allocates a block of a size class: from the current slab, from a slab in the list of slabs
    /// with free blocks, or from a new slab.
    pub(super) fn alloc(&'static self, class: usize, size: usize, label: u64) -> Option<usize> {
        if let Some((at, due)) = self.alloc_from(self.current(class), size, label) {
            if due {
                self.account(tag_of(label)).settle(tag_of(label));
            }
            return Some(at);
        }
        let slab = self.refill(class).or_else(|| {
            self.trim();
            page_heap::sweep();
            self.refill(class)
        })?;
        self.finish(slab, size, label)
    }

    /// Allocates a block in a mapping that contains no other block.
    #[cold]
    pub(super) fn alloc_own(&'static self, size: usize, align: usize, label: u64) -> Option<usize> {
        let map = || page_heap::span(OWN, size, align.max(SEGMENT), self);
        let slab = map().or_else(|| {
            self.trim();
            page_heap::sweep();
            map()
        })?;
        slab.extend();
        self.finish(slab, size, label)
    }

    fn finish(&self, slab: &'static Slab, size: usize, label: u64) -> Option<usize> {
        let at = Some(slab.head.get()).filter(|at| *at != 0)?;
        slab.take(at, live(size, label));
        if slab.place.get() != CURRENT {
            slab.used.add(1);
        }
        self.last.set(Some(slab));
        let account = self.account(tag_of(label));
        if account.took(size) {
            account.settle(tag_of(label));
        }
        Some(at)
    }

    /// Returns a slab of a size class with at least one block in the slab's list of free blocks, if
    /// possible the current slab; returns `None` if out of memory.
    fn refill(&'static self, class: usize) -> Option<&'static Slab> {
        self.collect();
        if let Some(slab) = self.current(class).get() {
            if slab.head.get() == 0 {
                slab.extend();
            }
            if slab.head.get() != 0 {
                return Some(slab);
            }
            self.set_current(class, None);
            if class >= FIRST_SPAN {
                self.kept.sub(page_heap::bytes(slab));
            }
            slab.current_of.set(None);
            slab.used.set(slab.count.get());
            slab.place.publish(APART);
        }
        if let Some(slab) = self.listed(class).get() {
            self.unlist(slab);
            if slab.used.get() == 0 && class < FIRST_SPAN {
                self.kept.sub(page_heap::bytes(slab));
            }
            return Some(self.make_current(slab));
        }
        if class < FIRST_SPAN {
            let slab = page_heap::slab(class, self)?;
            slab.extend();
            return Some(self.make_current(slab));
        }
        let slab = page_heap::span(class, size_class::block(class), SEGMENT, self)?;
        slab.extend();
        Some(if self.keep(slab) { self.make_current(slab) } else { slab })
    }

    fn make_current(&'static self, slab: &'static Slab) -> &'static Slab {
        slab.place.set(CURRENT);
        slab.current_of.set(Some(self));
        self.set_current(slab.class.get(), Some(slab));
        if slab.head.get() == 0 {
            slab.extend();
        }
        slab
    }

    /// Adds the bytes of a slab without allocated blocks to `kept` and returns true. Returns false
    /// if that would exceed the limit on unused memory, or if the slab is a block without a size
    /// class (OWN).
    fn keep(&self, slab: &Slab) -> bool {
        let kept = self.kept.get() + page_heap::bytes(slab);
        let missing = kept.saturating_sub(self.granted.get());
        if slab.class.get() == OWN || (missing > 0 && !page_heap::grant(missing)) {
            return false;
        }
        self.granted.add(missing);
        self.kept.set(kept);
        true
    }

    /// Returns the slab that contains an address, and the offset of the address from the first
    /// block of the slab, in bytes.
    #[inline]
    fn locate(&self, addr: usize) -> Option<(&'static Slab, usize)> {
        if let Some(last) = self.last.get() {
            let offset = addr.wrapping_sub(last.base.get());
            if offset < last.span.get() {
                return Some((last, offset));
            }
        }
        let slab = page_map::find(addr)?.slab_of(addr);
        let offset = addr.wrapping_sub(slab.base.get());
        (offset < slab.span.get()).then_some((slab, offset))
    }

    /// Frees the block that begins at `addr` if it has the tag of `label` and its slab remains in
    /// the same list. Returns `Some(true)` if the caller must call `housekeeping`, and `None` if
    /// the block was not freed.
    #[inline(always)] // row: alloc_free_64
    pub(super) fn quick_free(&self, addr: usize, label: u64) -> Option<bool> {
        let (slab, offset) = self.locate(addr)?;
        let index = slab.index_at(offset);
        if index.wrapping_mul(slab.block.get()) != offset {
            return None;
        }
        let word = slab.word(index);
        let was = word.load(Ordering::Relaxed);
        if was >> remote_free::TAG_SHIFT != live(0, label) >> remote_free::TAG_SHIFT {
            return None;
        }
        if !slab.current_of.is(self) {
            // A slab that is listed and remains listed.
            if !slab.owner.is(self) || slab.place.get() != LISTED || slab.used.get() < 2 {
                return None;
            }
            slab.used.sub(1);
        }
        slab.put(addr, word);
        Some(self.account(tag_of(label)).gave((was & remote_free::SIZE) as usize))
    }

    /// Frees the block that begins at `addr` if it has the tag of `label`.
    pub(super) fn free(&'static self, addr: usize, label: u64) -> FreeOutcome {
        if let Some(due) = self.quick_free(addr, label) {
            if due {
                self.housekeeping(tag_of(label));
            }
            return FreeOutcome::Done;
        }
        let (slab, _, was) = match live_block(addr, label) {
            Ok(found) => found,
            Err(outcome) => return outcome,
        };
        let freed = self.free_apart(slab, addr, was);
        if freed == FreeOutcome::Done
            && self.account(tag_of(label)).gave((was & remote_free::SIZE) as usize)
        {
            self.housekeeping(tag_of(label));
        }
        freed
    }

    /// Changes the tag of the block that begins at `addr` from `from` to `to`. If a thread that
    /// does not own the slab frees the block concurrently, the free and this call both use a
    /// compare-and-swap on the state word, so only one of them succeeds.
    pub(super) fn retag(&'static self, addr: usize, from: u64, to: u64) -> FreeOutcome {
        let (_, word, was) = match live_block(addr, from) {
            Ok(found) => found,
            Err(outcome) => return outcome,
        };
        let now = was & ((1 << remote_free::TAG_SHIFT) - 1)
            | live(0, to) >> remote_free::TAG_SHIFT << remote_free::TAG_SHIFT;
        if word.compare_exchange(was, now, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return FreeOutcome::Dead;
        }
        let size = (was & remote_free::SIZE) as usize;
        let due = (self.account(tag_of(from)).gave(size), self.account(tag_of(to)).took(size));
        if due.0 {
            self.housekeeping(tag_of(from));
        }
        if due.1 {
            self.account(tag_of(to)).settle(tag_of(to));
        }
        FreeOutcome::Done
    }

    /// Frees a block that [`Heap::quick_free`] has not freed, for example because its slab belongs
    /// to another heap or must be moved to another list. `was` is the state word of the block.
    fn free_apart(&'static self, slab: &'static Slab, addr: usize, was: u64) -> FreeOutcome {
        let (Some(index), Some(owner)) = (slab.index_of(addr), slab.owner.get()) else {
            return FreeOutcome::Dead;
        };
        let word = slab.word(index);
        let is_mine = std::ptr::eq(owner, self);
        let is_alone = slab.class.get() >= FIRST_SPAN;
        // A free of a large block takes over its slab, so the owner must claim it too.
        let head = owner.mail.peek();
        if (!is_mine || is_alone) && !remote_free::claim(word, was, head) {
            return FreeOutcome::Dead;
        }
        if slab.index_of(addr) != Some(index) {
            // A dead block, whose slab was reassigned after the look-up: leave it unchanged.
            word.store(was, Ordering::Relaxed);
            return FreeOutcome::Dead;
        }
        if is_mine {
            self.put_apart(slab, addr, word);
        } else if is_alone && slab.place.observe() == APART {
            slab.owner.set(Some(self));
            self.put_apart(slab, addr, word);
        } else {
            owner.mail.push(word, head, addr as u64);
        }
        FreeOutcome::Done
    }

    /// Frees a block in a slab of this heap. If the slab is not the current slab, adds it to the
    /// list of slabs with free blocks; if the slab has no allocated blocks left and the limit on
    /// unused memory does not permit keeping it, returns its memory to the system instead.
    fn put_apart(&'static self, slab: &'static Slab, addr: usize, word: &AtomicU64) {
        slab.put(addr, word);
        if slab.place.get() == CURRENT {
            return;
        }
        slab.used.sub(1);
        if slab.used.get() > 0 {
            if slab.place.get() == APART {
                self.list(slab);
            }
            return;
        }
        if slab.place.get() == LISTED {
            self.unlist(slab);
        }
        if self.keep(slab) { self.list(slab) } else { page_heap::release(slab) }
    }

    /// Frees the blocks in the remote-free list, onto which other threads have pushed them.
    pub(super) fn collect(&'static self) {
        if self.mail.peek() == 0 {
            return;
        }
        let mut at = self.mail.take() as usize;
        while at != 0 {
            let Some(slab) = page_map::find(at).map(|segment| segment.slab_of(at)) else { return };
            let Some(word) = slab.index_of(at).map(|index| slab.word(index)) else { return };
            let Some(next) = remote_free::next(word) else { return };
            self.put_apart(slab, at, word);
            at = next as usize;
        }
    }

    /// Does deferred work: updates the shared statistics of a tag, frees the blocks in the
    /// remote-free list, and returns unused memory if another thread has requested that.
    pub(super) fn housekeeping(&'static self, tag: usize) {
        self.account(tag).settle(tag);
        self.collect();
        if self.wanted.load(Ordering::Relaxed) {
            self.wanted.store(false, Ordering::Relaxed);
            self.trim();
        }
    }

    /// Requests that the thread of this heap return its unused memory at the next `housekeeping`.
    pub(super) fn want(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// Returns the slabs without allocated blocks to the page heap, which returns their memory to
    /// the system.
    pub(super) fn trim(&'static self) {
        self.collect();
        for class in 0..size_class::CLASSES {
            if let Some(slab) = self.current(class).get().filter(|slab| slab.is_unused()) {
                self.set_current(class, None);
                if class >= FIRST_SPAN {
                    self.kept.sub(page_heap::bytes(slab));
                }
                page_heap::release(slab);
            }
            let mut next = self.listed(class).get();
            while let Some(slab) = next {
                next = slab.next.get();
                if slab.used.get() == 0 {
                    self.unlist(slab);
                    self.kept.sub(page_heap::bytes(slab));
                    page_heap::release(slab);
                }
            }
        }
        page_heap::revoke(self.granted.get() - self.kept.get());
        self.granted.set(self.kept.get());
    }

    fn list(&self, slab: &'static Slab) {
        let first = self.listed(slab.class.get());
        let next = first.get();
        slab.prev.set(None);
        slab.next.set(next);
        slab.place.set(LISTED);
        if let Some(next) = next {
            next.prev.set(Some(slab));
        }
        first.set(Some(slab));
    }

    fn unlist(&self, slab: &'static Slab) {
        let (prev, next) = (slab.prev.get(), slab.next.get());
        if let Some(next) = next {
            next.prev.set(prev);
        }
        match prev {
            Some(prev) => prev.next.set(next),
            None => self.listed(slab.class.get()).set(next),
        }
        slab.place.set(APART);
    }

    /// Resets the heap to its initial state. Called when all memory of the allocator is unmapped.
    pub(super) fn clear(&'static self) {
        let _ = self.mail.take();
        self.wanted.store(false, Ordering::Relaxed);
        self.last.set(None);
        self.kept.set(0);
        self.granted.set(0);
        self.current.iter().chain(&self.listed).chain(&self.small).for_each(|link| link.set(None));
        self.accounts.iter().for_each(ThreadStats::clear);
    }
}
