//! Segments (what is mapped at once) and the slabs in them (blocks of one class, one owner).
//!
//! Their descriptions lie apart from the memory they describe, so a program that writes outside of
//! its block does not hit them, and live for ever (see `relaxed_cell`).

use super::relaxed_cell::{Number, RelaxedPtr};
use super::remote_free::{LIVE, SENT, TAG_SHIFT};
use super::size_class::{self, CUTS, OWN, SPANS};
use super::thread_heap::Heap;
use crate::sys::sync::AtomicU64;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A slab is the one its owner allocates from.
pub(super) const CURRENT: usize = 1;
/// It has free blocks and waits in its owner's list.
pub(super) const LISTED: usize = 2;
/// It is in no list: all blocks are live (or on their way back), or nobody owns it.
pub(super) const APART: usize = 0;

/// Memory mapped at once: 2 MiB cut into slabs, or one large block.
pub(super) struct Segment {
    /// First byte.
    pub(super) base: Number,
    /// Length in bytes.
    pub(super) bytes: Number,
    /// Which of the cuts.
    pub(super) cut: Number,
    /// Slabs are 2^shift bytes (63: there is one).
    pub(super) shift: Number,
    /// One bit for each slab without an owner.
    pub(super) free: Number,
    /// In the store's lists.
    pub(super) next: RelaxedPtr<Segment>,
    /// In the store's lists.
    pub(super) prev: RelaxedPtr<Segment>,
    /// Its slabs.
    pub(super) slabs: AtomicPtr<Slab>,
}

impl Segment {
    /// How many slabs there are.
    pub(super) fn slab_count(&self) -> usize {
        CUTS.get(self.cut.get()).map_or(1, |cut| size_class::SEGMENT >> cut.shift)
    }

    /// Most blocks that a slab can have.
    pub(super) fn most(&self) -> usize {
        CUTS.get(self.cut.get()).map_or(1, |cut| cut.most)
    }

    /// The mask of all slabs.
    pub(super) fn all_free(&self) -> usize {
        (1 << self.slab_count()) - 1
    }

    /// The slab of this number (below `slab_count`).
    #[inline]
    pub(super) fn slab(&self, number: usize) -> &'static Slab {
        let slabs = self.slabs.load(Ordering::Relaxed);
        // SAFETY: the store has made as many slabs, for ever, as the segment's cut has; the caller
        // ensures that `number` is one of them.
        let slab = unsafe { slabs.add(number) };
        // SAFETY: `number` is in range, so this is one of the store's slabs; they live for ever.
        unsafe { &*slab }
    }

    /// The slab that an address of this segment lies in. Some slab of it if the description serves
    /// other memory by now: segments that are cut are aligned to their length, so where they begin
    /// does not matter.
    #[inline]
    pub(super) fn slab_of(&self, addr: usize) -> &'static Slab {
        self.slab((addr % size_class::SEGMENT) >> self.shift.get())
    }
}

/// Adjacent blocks of one class, with their owner.
#[repr(C, align(128))]
pub(super) struct Slab {
    /// Number of blocks.
    pub(super) count: Number,
    /// Blocks that are live or in the mail. Not kept up to date while it is CURRENT.
    pub(super) used: Number,
    /// Blocks from here on were never used and are not in the list of free ones.
    pub(super) fresh: Number,
    /// Its class, or OWN.
    pub(super) class: Number,
    /// CURRENT, LISTED or APART.
    pub(super) place: Number,
    /// Heap that allocates from it.
    pub(super) owner: RelaxedPtr<Heap>,
    /// In its owner's list.
    pub(super) next: RelaxedPtr<Slab>,
    /// In its owner's list.
    pub(super) prev: RelaxedPtr<Slab>,
    // The fields that each call needs, in one cache line. It is the second one: programs write to
    // the first bytes of pages more than to others, and a processor takes a store for one to any
    // address with the same lower 12 bits until it has compared the rest (4K aliasing; measured: 14
    // ns instead of 6).
    /// First byte of the first block.
    pub(super) base: Number,
    /// Bytes from there to the end of the last block; 0 while nobody owns the slab.
    pub(super) span: Number,
    /// Size of a block.
    pub(super) block: Number,
    /// 2^32 / block, rounded up; 0 if there is one block.
    pub(super) inverse: Number,
    /// The first free block's address; 0 = none.
    pub(super) head: Number,
    /// One word for each block (see `remote_free`).
    pub(super) words: AtomicPtr<AtomicU64>,
    /// The heap that has it as CURRENT one.
    pub(super) current_of: RelaxedPtr<Heap>,
    /// The segment it is a part of, for ever.
    pub(super) segment: RelaxedPtr<Segment>,
}

impl Slab {
    /// A block's word.
    #[inline]
    pub(super) fn word(&self, index: usize) -> &'static AtomicU64 {
        let words = self.words.load(Ordering::Relaxed);
        // SAFETY: callers pass indices below `count`, and the store has made at least as many
        // words, for ever.
        let word = unsafe { words.add(index) };
        // SAFETY: `index` is in range, so this is one of the store's words; they live for ever.
        unsafe { &*word }
    }

    /// The number of the block that an address in the slab lies in, exact for its first byte: the
    /// inverse is rounded up, and offsets are below 2^21 wherever it is not 0.
    pub(super) fn index_at(&self, offset: usize) -> usize {
        offset.wrapping_mul(self.inverse.get()) >> 32
    }

    /// The block that begins at an address.
    #[inline]
    pub(super) fn index_of(&self, addr: usize) -> Option<usize> {
        let offset = addr.wrapping_sub(self.base.get());
        let index = self.index_at(offset);
        (offset < self.span.get() && index.wrapping_mul(self.block.get()) == offset)
            .then_some(index)
    }

    /// Makes it serve a class. `bytes` is the size of its only block, if it has but one.
    pub(super) fn dedicate(&self, class: usize, bytes: usize, owner: &'static Heap) {
        let one = size_class::cut(class) == SPANS;
        let (block, room) = match CUTS.get(size_class::cut(class)) {
            Some(cut) => (size_class::block(class), 1 << cut.shift),
            None => (bytes, bytes),
        };
        debug_assert!(class <= OWN && self.used.get() == 0);
        self.block.set(block);
        self.inverse.set(if one { 0 } else { (1_usize << 32).div_ceil(block) });
        self.head.set(0);
        self.fresh.set(0);
        self.class.set(class);
        self.place.set(APART);
        self.count.set(room / block);
        self.owner.set(Some(owner));
        self.span.set(room / block * block);
    }

    /// Puts some more of the never used blocks into the list of free ones, which is empty.
    pub(super) fn extend(&self) {
        const STEP: usize = 64;
        let first = self.fresh.get();
        let end = self.count.get().min(first + STEP);
        let at = |index| self.base.get() + index * self.block.get();
        for index in first..end {
            let next = if index + 1 < end { at(index + 1) } else { 0 };
            self.word(index).store(next as u64, Ordering::Relaxed);
        }
        if first < end {
            self.head.set(at(first));
            self.fresh.set(end);
        }
    }

    /// Clears the words of all blocks, whatever their state, and the owner.
    pub(super) fn forget(&self) {
        self.span.set(0);
        (0..self.count.get()).for_each(|index| self.word(index).store(0, Ordering::Relaxed));
        self.disown();
    }

    /// Removes the owner.
    pub(super) fn disown(&self) {
        self.span.set(0);
        self.head.set(0);
        self.used.set(0);
        self.place.set(APART);
        self.owner.set(None);
        self.current_of.set(None);
    }

    /// Whether no block is live or on its way back.
    pub(super) fn is_unused(&self) -> bool {
        let is_used = |index| self.word(index).load(Ordering::Relaxed) & (LIVE | SENT) != 0;
        !(0..self.fresh.get()).any(is_used)
    }

    /// Calls `f` with the address of each block that is live with a tag.
    pub(super) fn for_each_live(&self, tag: usize, mut f: impl FnMut(usize)) {
        for index in 0..self.fresh.get().min(self.count.get()) {
            let word = self.word(index).load(Ordering::Acquire);
            if word >> TAG_SHIFT == LIVE >> TAG_SHIFT | tag as u64 {
                f(self.base.get() + index * self.block.get());
            }
        }
    }

    /// Takes a free block, the first of the list; `live` is its word from now on.
    #[inline]
    pub(super) fn take(&self, head: usize, live: u64) {
        let word = self.word(self.index_at(head.wrapping_sub(self.base.get())));
        self.head.set(word.load(Ordering::Relaxed) as usize);
        word.store(live, Ordering::Relaxed);
    }

    /// Takes a block back from its user.
    #[inline]
    pub(super) fn put(&self, addr: usize, word: &AtomicU64) {
        word.store(self.head.get() as u64, Ordering::Relaxed);
        self.head.set(addr);
    }
}
