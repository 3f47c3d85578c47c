//! Heap of a thread: per class the slab that it allocates from, and other slabs with free blocks.
//!
//! Only its thread uses a heap (or the thread that adopted it under the lock of the page heap), so
//! only blocks that other threads free (`remote_free`) need a locked instruction. A heap outlives
//! its thread: the next thread gets it with all of its contents.

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
/// Maximum size whose slab is found by number of quanta, without the arithmetic of classes.
const SMALL: usize = 1024;
const SMALLS: usize = SMALL / QUANTUM;

/// Heap of a thread. Only its thread uses it, except for the remote-free list (`mail`).
#[repr(C, align(128))]
pub(super) struct Heap {
    /// Slab of the last allocation: likely that of the next block to be freed.
    last: RelaxedPtr<Slab>,
    /// Current slab of the class of each number of quanta up to `SMALL`.
    small: [RelaxedPtr<Slab>; SMALLS],
    mail: RemoteFreeList,
    /// True if another thread has requested the unused memory of this heap.
    wanted: AtomicBool,
    /// Number of bytes kept unused: slabs without live blocks, and CURRENT slabs of large classes.
    kept: Number,
    /// Number of bytes that the heap may keep unused.
    granted: Number,
    /// Next heap in the page heap's list of all heaps.
    pub(super) next: RelaxedPtr<Heap>,
    /// Next heap in the page heap's list of heaps without a thread.
    pub(super) idle: RelaxedPtr<Heap>,
    accounts: [ThreadStats; TAGS],
    /// Slab to allocate from, for each class; it may be full. A power of two, so that masking
    /// replaces a bounds check.
    current: [RelaxedPtr<Slab>; BINS],
    /// List of the other slabs with free blocks, for each class.
    listed: [RelaxedPtr<Slab>; BINS],
}

/// Returns the calling thread's heap, if it has one.
pub(super) fn mine() -> Option<&'static Heap> {
    // SAFETY: null, or a heap, which lives forever.
    unsafe { tls::heap().cast::<Heap>().as_ref() }
}

/// Guard that returns the heap to the page heap when the thread ends.
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

/// Calls `act` with the calling thread's heap; late in a thread's exit, with a borrowed heap.
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

/// Returns the word of a live block. `label` has kind and tag.
fn live(size: usize, label: u64) -> u64 {
    remote_free::LIVE | label | size as u64
}

/// Finds the live block that begins at an address and has the tag of `label`. Returns its slab, its
/// word and the value of the word, or the outcome of a free as `Err`.
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

/// Returns the element at an index modulo the array's length, a power of two: the compiler masks
/// the index and checks no bounds.
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

    /// Returns the link to the current slab for a size, or `None` if no class serves the size.
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

    /// Returns the counters of an account.
    pub(super) fn account(&self, tag: usize) -> &ThreadStats {
        masked(&self.accounts, tag)
    }

    /// Allocates a block from the current slab. Returns its address and whether `housekeeping` is
    /// due.
    pub(super) fn quick_alloc(&self, size: usize, label: u64) -> Option<(usize, bool)> {
        self.alloc_from(self.at_hand(size)?, size, label)
    }

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

    /// Allocates a block of a class: from the current slab, a listed slab or a new slab.
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

    /// Allocates a block with a mapping of its own.
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

    /// Returns a slab of a class with a free block in its list: if possible the current slab.
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

    /// Counts a slab as kept unused and returns true, if the budget allows it.
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

    /// Returns the slab that contains an address, and the offset in the slab.
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

    /// Frees the block that begins at an address, if its tag is that of the label and no further
    /// work is needed. Returns whether `housekeeping` is due.
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

    /// Frees the block that begins at an address if its tag is that of the label.
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

    /// Changes the tag of the block that begins at an address. A concurrent free of the block
    /// either wins or comes too late: each call returns the state that its exchange found.
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

    /// Frees a block of a slab that is not the current one of its class, or not of this heap.
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

    /// Frees a block of a slab of this heap and moves the slab to the list that it now belongs to.
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

    /// Frees the blocks that other threads have pushed onto the remote-free list.
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

    /// Does deferred work: settles the account, frees remote blocks, trims if requested.
    pub(super) fn housekeeping(&'static self, tag: usize) {
        self.account(tag).settle(tag);
        self.collect();
        if self.wanted.load(Ordering::Relaxed) {
            self.wanted.store(false, Ordering::Relaxed);
            self.trim();
        }
    }

    /// Requests that the heap's thread return unused memory, at its next opportunity.
    pub(super) fn want(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// Returns all memory without live blocks to the page heap.
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

    /// Resets the heap. Called when all memory is unmapped.
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
