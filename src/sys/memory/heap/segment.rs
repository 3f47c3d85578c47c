//! Segments (memory that is mapped at once) and the slabs in them (blocks of one class, one owner).
//!
//! The descriptions are apart from the memory that they describe, so a program that writes outside
//! of its block does not hit them. Descriptions live forever (see `relaxed_cell`).

use super::relaxed_cell::{Number, RelaxedPtr};
use super::remote_free::{LIVE, SENT, TAG_SHIFT};
use super::size_class::{self, CUTS, OWN, SPANS};
use super::thread_heap::Heap;
use crate::sys::sync::AtomicU64;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Place of a slab that its owner allocates from.
pub(super) const CURRENT: usize = 1;
/// Place of a slab that has free blocks and is in its owner's list.
pub(super) const LISTED: usize = 2;
/// List number of a slab that is in no list: all its blocks are live (or being returned), or it has
/// no owner.
pub(super) const APART: usize = 0;

/// Memory mapped at once: 2 MiB cut into slabs, or one large block.
pub(super) struct Segment {
    /// Address of the first byte.
    pub(super) base: Number,
    /// Length in bytes.
    pub(super) bytes: Number,
    /// Index of the segment's layout in `CUTS`, or `SPANS`.
    pub(super) cut: Number,
    /// log2 of the slab size in bytes (63 if there is one slab).
    pub(super) shift: Number,
    /// Bit mask of the slabs that have no owner.
    pub(super) free: Number,
    /// Next segment in a list of the page heap.
    pub(super) next: RelaxedPtr<Segment>,
    /// Previous segment in a list of the page heap.
    pub(super) prev: RelaxedPtr<Segment>,
    /// Array of the segment's slabs.
    pub(super) slabs: AtomicPtr<Slab>,
}

impl Segment {
    /// Returns the number of slabs.
    pub(super) fn slab_count(&self) -> usize {
        CUTS.get(self.cut.get()).map_or(1, |cut| size_class::SEGMENT >> cut.shift)
    }

    /// Returns the maximum number of blocks that a slab of this segment can have.
    pub(super) fn most(&self) -> usize {
        CUTS.get(self.cut.get()).map_or(1, |cut| cut.most)
    }

    /// Returns the bit mask of all slabs.
    pub(super) fn all_free(&self) -> usize {
        (1 << self.slab_count()) - 1
    }

    /// Returns the slab with this number (below `slab_count`).
    pub(super) fn slab(&self, number: usize) -> &'static Slab {
        let slabs = self.slabs.load(Ordering::Relaxed);
        // SAFETY: the page heap has allocated as many slabs, forever, as the segment's cut has; the
        // caller ensures that `number` is one of them.
        let slab = unsafe { slabs.add(number) };
        // SAFETY: `number` is in range, so this is one of the page heap's slabs; they live forever.
        unsafe { &*slab }
    }

    /// Returns the slab that contains an address of this segment. If the description serves other
    /// memory meanwhile, returns an arbitrary slab of this segment: segments that are cut are
    /// aligned to their length, so their first address does not matter.
    pub(super) fn slab_of(&self, addr: usize) -> &'static Slab {
        self.slab((addr % size_class::SEGMENT) >> self.shift.get())
    }
}

/// Adjacent blocks of one class, with their owner.
#[repr(C, align(128))]
pub(super) struct Slab {
    /// Number of blocks.
    pub(super) count: Number,
    /// Number of blocks live or in a remote-free list. Not updated while the slab is CURRENT.
    pub(super) used: Number,
    /// Index of the first block that was never used. Such blocks are not in the free list.
    pub(super) fresh: Number,
    /// Size class of the blocks, or OWN.
    pub(super) class: Number,
    /// Place of the slab: CURRENT, LISTED or APART.
    pub(super) place: Number,
    /// Heap that allocates from the slab.
    pub(super) owner: RelaxedPtr<Heap>,
    /// Next slab in the owner's list.
    pub(super) next: RelaxedPtr<Slab>,
    /// Previous slab in the owner's list.
    pub(super) prev: RelaxedPtr<Slab>,
    // The fields that each call needs are in one cache line. It is the second line of the slab:
    // programs write to the first bytes of pages more than to others, and a processor treats a
    // store as one to any address with equal lower 12 bits until it has compared the rest (4K
    // aliasing; measured: 14 ns instead of 6).
    /// Address of the first byte of the first block.
    pub(super) base: Number,
    /// Number of bytes from `base` to the end of the last block; 0 while the slab has no owner.
    pub(super) span: Number,
    /// Size of a block in bytes.
    pub(super) block: Number,
    /// 2^32 / block, rounded up; 0 if there is one block.
    pub(super) inverse: Number,
    /// Address of the first free block; 0 if none.
    pub(super) head: Number,
    /// State words, one for each block (see `remote_free`).
    pub(super) words: AtomicPtr<AtomicU64>,
    /// Heap whose CURRENT slab this is.
    pub(super) current_of: RelaxedPtr<Heap>,
    /// Segment that the slab is a part of; it never changes.
    pub(super) segment: RelaxedPtr<Segment>,
}

impl Slab {
    /// Returns the word of block `index`.
    pub(super) fn word(&self, index: usize) -> &'static AtomicU64 {
        let words = self.words.load(Ordering::Relaxed);
        // SAFETY: callers pass indices below `count`, and the page heap has at least as many words,
        // forever.
        let word = unsafe { words.add(index) };
        // SAFETY: `index` is in range, so this is one of the page heap's words; they live forever.
        unsafe { &*word }
    }

    /// Returns the index of the block that contains the byte at `offset` in the slab. Exact for a
    /// block's first byte: the inverse is rounded up, and offsets are below 2^21 if it is not 0.
    pub(super) fn index_at(&self, offset: usize) -> usize {
        offset.wrapping_mul(self.inverse.get()) >> 32
    }

    /// Returns the index of the block that begins at `addr`, or `None` if no block begins there.
    pub(super) fn index_of(&self, addr: usize) -> Option<usize> {
        let offset = addr.wrapping_sub(self.base.get());
        let index = self.index_at(offset);
        (offset < self.span.get() && index.wrapping_mul(self.block.get()) == offset)
            .then_some(index)
    }

    /// Assigns the slab to a class and an owner. `bytes` is the block size if there is one block.
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

    /// Moves up to 64 of the never used blocks to the list of free blocks, which must be empty.
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

    /// Clears the words of all blocks, whatever their state, and removes the owner.
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

    /// Returns true if no block is live or being returned.
    pub(super) fn is_unused(&self) -> bool {
        let is_used = |index| self.word(index).load(Ordering::Relaxed) & (LIVE | SENT) != 0;
        !(0..self.fresh.get()).any(is_used)
    }

    /// Calls `f` with the address of each live block that has the tag `tag`.
    pub(super) fn for_each_live(&self, tag: usize, mut f: impl FnMut(usize)) {
        for index in 0..self.fresh.get().min(self.count.get()) {
            let word = self.word(index).load(Ordering::Acquire);
            if word >> TAG_SHIFT == LIVE >> TAG_SHIFT | tag as u64 {
                f(self.base.get() + index * self.block.get());
            }
        }
    }

    /// Removes the first free block, `head`, from the list, and sets the block's word to `live`.
    pub(super) fn take(&self, head: usize, live: u64) {
        let word = self.word(self.index_at(head.wrapping_sub(self.base.get())));
        self.head.set(word.load(Ordering::Relaxed) as usize);
        word.store(live, Ordering::Relaxed);
    }

    /// Adds a freed block to the list of free blocks.
    pub(super) fn put(&self, addr: usize, word: &AtomicU64) {
        word.store(self.head.get() as u64, Ordering::Relaxed);
        self.head.set(addr);
    }
}
