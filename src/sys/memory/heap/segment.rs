//! Descriptors of segments (memory that is mapped in one piece) and of the slabs in them (adjacent
//! blocks of one size class, which belong to one heap).
//!
//! The descriptors are separate from the memory that they describe, so a program that writes
//! outside its block does not corrupt them. Descriptors are never freed (see `relaxed_cell`).

use super::relaxed_cell::{Number, RelaxedPtr};
use super::remote_free::{LIVE, SENT, TAG_SHIFT};
use super::size_class::{self, CUTS, OWN, SPANS};
use super::thread_heap::Heap;
use crate::sys::sync::AtomicU64;
use std::sync::atomic::{AtomicPtr, Ordering};

/// State of a slab (`Slab::place`): the heap that owns the slab currently allocates blocks of the
/// slab's size class from it.
pub(super) const CURRENT: usize = 1;
/// State of a slab (`Slab::place`): the slab has free blocks and is in its owner's list of such
/// slabs.
pub(super) const LISTED: usize = 2;
/// State of a slab (`Slab::place`): the slab is not in any list, because all its blocks are
/// allocated (or freed by other threads and not collected yet), or because it has no owner.
pub(super) const APART: usize = 0;

/// Descriptor of memory that is mapped in one piece: 2 MiB that are divided into slabs, or one
/// large block.
pub(super) struct Segment {
    /// Address of the first byte.
    pub(super) base: Number,
    /// Length in bytes.
    pub(super) bytes: Number,
    /// Index of the segment's slab layout in `CUTS`, or `SPANS` if the segment is one block.
    pub(super) cut: Number,
    /// log2 of the slab size in bytes (63 if the segment is one block).
    pub(super) shift: Number,
    /// Bit mask of the slabs that do not belong to any heap.
    pub(super) free: Number,
    /// Next segment in the page heap's list that contains this segment.
    pub(super) next: RelaxedPtr<Segment>,
    /// Previous segment in the page heap's list that contains this segment.
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

    /// Returns a bit mask with one bit set for each slab: the value of `free` if no slab belongs to
    /// a heap.
    pub(super) fn all_free(&self) -> usize {
        (1 << self.slab_count()) - 1
    }

    /// Returns the slab with the index `number` (below `slab_count`).
    pub(super) fn slab(&self, number: usize) -> &'static Slab {
        let slabs = self.slabs.load(Ordering::Relaxed);
        // SAFETY: the page heap has allocated as many slabs, forever, as the segment's cut has; the
        // caller ensures that `number` is one of them.
        let slab = unsafe { slabs.add(number) };
        // SAFETY: `number` is in range, so this is one of the page heap's slabs; they live forever.
        unsafe { &*slab }
    }

    /// Returns the slab that contains an address of this segment. For an address outside the
    /// segment (this descriptor may have been reused for other memory since the look-up), returns
    /// some slab of this segment: a segment with several slabs is aligned to its size, so the
    /// result depends only on the lower bits of the address.
    pub(super) fn slab_of(&self, addr: usize) -> &'static Slab {
        self.slab((addr % size_class::SEGMENT) >> self.shift.get())
    }
}

/// Descriptor of adjacent blocks of one size class that belong to one heap.
#[repr(C, align(128))]
pub(super) struct Slab {
    /// Number of blocks.
    pub(super) count: Number,
    /// Number of blocks that are allocated, or that other threads have freed but the owner has not
    /// collected yet. Not updated while the slab is CURRENT.
    pub(super) used: Number,
    /// Index of the first block that was never used. This block and those after it are not in the
    /// list of free blocks.
    pub(super) fresh: Number,
    /// Size class of the blocks; OWN if the slab is one block that has no size class.
    pub(super) class: Number,
    /// State of the slab: CURRENT, LISTED or APART.
    pub(super) place: Number,
    /// Heap that owns the slab. Only this heap allocates from the slab.
    pub(super) owner: RelaxedPtr<Heap>,
    /// Next slab in the owner's list of slabs with free blocks.
    pub(super) next: RelaxedPtr<Slab>,
    /// Previous slab in the owner's list of slabs with free blocks.
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
    /// 2^32 / `block`, rounded up; 0 if the slab has only one block.
    pub(super) inverse: Number,
    /// Address of the first block in the list of free blocks; 0 if the list is empty.
    pub(super) head: Number,
    /// State words, one for each block (see `remote_free`).
    pub(super) words: AtomicPtr<AtomicU64>,
    /// Heap that currently allocates from this slab; null if the slab is not CURRENT.
    pub(super) current_of: RelaxedPtr<Heap>,
    /// Segment that contains the slab; this pointer never changes.
    pub(super) segment: RelaxedPtr<Segment>,
}

impl Slab {
    /// Returns the state word of block `index`.
    pub(super) fn word(&self, index: usize) -> &'static AtomicU64 {
        let words = self.words.load(Ordering::Relaxed);
        // SAFETY: callers pass indices below `count`, and the page heap has at least as many words,
        // forever.
        let word = unsafe { words.add(index) };
        // SAFETY: `index` is in range, so this is one of the page heap's words; they live forever.
        unsafe { &*word }
    }

    /// Returns the index of the block that contains the byte at `offset` in the slab. The index is
    /// exact for the first byte of a block, because `inverse` is rounded up and offsets are below
    /// 2^21 bytes if `inverse` is not 0.
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

    /// Assigns the slab to a size class and a heap. `bytes` is the block size in bytes if the slab
    /// has only one block; otherwise it is ignored.
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

    /// Fills the list of free blocks, which must be empty, with up to 64 blocks that have never
    /// been in use.
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

    /// Clears the state words of all blocks, including allocated blocks, and removes the owner.
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

    /// Returns true if no block is allocated and the owner has collected all blocks that other
    /// threads have freed.
    pub(super) fn is_unused(&self) -> bool {
        let is_used = |index| self.word(index).load(Ordering::Relaxed) & (LIVE | SENT) != 0;
        !(0..self.fresh.get()).any(is_used)
    }

    /// Calls `f` with the address of each allocated block that has the tag `tag`.
    pub(super) fn for_each_live(&self, tag: usize, mut f: impl FnMut(usize)) {
        for index in 0..self.fresh.get().min(self.count.get()) {
            let word = self.word(index).load(Ordering::Acquire);
            if word >> TAG_SHIFT == LIVE >> TAG_SHIFT | tag as u64 {
                f(self.base.get() + index * self.block.get());
            }
        }
    }

    /// Removes `head`, the first block, from the list of free blocks, and sets its state word to
    /// `live`.
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
