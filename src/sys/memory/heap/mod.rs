//! Allocator of host memory: size classes on 2 MiB segments, one heap for each thread.
//!
//! This file is the interface. A call descends through `thread_heap` (a thread's heap: cached free
//! blocks) -> `page_heap` (memory that threads share; lock) -> `os` (pages). `segment` describes
//! memory, `page_map` finds the description of an address without accessing that address,
//! `remote_free` returns blocks that another thread freed to their owner, `unmap_hooks` reports
//! pages that are returned to the system, `size_class` has the sizes, `stats` counts,
//! `relaxed_cell` has the cells of the descriptions. Design: docs/explanation/host-memory.md.
//!
//! Blocks carry a kind and a tag, which `runtime::memory` and `memory::mem_pool` choose.

mod os;
mod page_heap;
mod page_map;
mod relaxed_cell;
mod remote_free;
mod segment;
mod size_class;
mod stats;
#[cfg(test)]
mod tests;
mod thread_heap;
mod unmap_hooks;

use super::buf::{Addr, Region};
use size_class::{LARGEST, QUANTUM, SEGMENT};
use std::sync::atomic::Ordering;
use thread_heap::Heap;

pub use os::use_huge_pages;
pub use page_heap::{budget, kept, mapped, set_budget};
pub use stats::TAGS;
pub use unmap_hooks::{UnmapWatcher, watch as watch_returned};

/// Minimum alignment of every block, in bytes.
pub const ALIGNMENT: u64 = QUANTUM as u64;

/// Purpose of a block: a kind (0 to 31) and a tag (below [`TAGS`]). A free must name an equal tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(u64);

impl Label {
    /// Creates a label from a kind and a tag.
    pub const fn new(kind: u8, tag: u8) -> Self {
        Label(
            (kind as u64 & 31) << remote_free::KIND_SHIFT | (tag as u64) << remote_free::TAG_SHIFT,
        )
    }

    /// Returns the label as a number.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// Returns the label of a number that [`Label::word`] returned.
    pub const fn of_word(word: u64) -> Self {
        Label(word)
    }

    /// Returns the label's word with its tag alone, without the kind.
    const fn tag(self) -> u64 {
        self.0 & 0xFF << remote_free::TAG_SHIFT
    }
}

/// Outcome of a free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeOutcome {
    /// The block was freed.
    Done,
    /// The address is in no memory of this allocator.
    Foreign,
    /// The address is not the first byte of a block.
    Inside,
    /// The block is free already.
    Dead,
    /// The block is live and has another tag, which is the payload.
    Tagged(u8),
}

/// Description of a live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// Address of the first byte of the block.
    pub base: usize,
    /// Number of bytes that were requested.
    pub size: u64,
    /// Kind of the block; see [`Label`].
    pub kind: u8,
    /// Tag of the block; see [`Label`].
    pub tag: u8,
}

/// Returns the mapping that contains a whole region. It stays until [`watch_returned`] reports it.
pub fn mapping(region: Region) -> Option<Region> {
    let segment = page_map::find(region.addr().get())?;
    let (base, bytes) = (segment.base.get(), segment.bytes.get());
    let end = region.addr().get().checked_add(region.len())?;
    let at = Addr::new(std::ptr::with_exposed_provenance_mut(base));
    (end <= base + bytes).then(|| Region::allocated(at, bytes))
}

/// Statistics of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of bytes requested and not freed.
    pub live_bytes: u64,
    /// Maximum of `live_bytes`; an upper bound if several threads allocate.
    pub peak_bytes: u64,
    /// Number of live blocks.
    pub live_count: u64,
    /// Number of blocks ever allocated.
    pub total_count: u64,
}

/// Returns the size of the block that serves a request of `size` bytes.
pub fn rounded(size: u64) -> u64 {
    match usize::try_from(size) {
        Ok(small @ 1..=LARGEST) => size_class::block(size_class::of(small)) as u64,
        _ => size.saturating_add(os::PAGE as u64 - 1) / os::PAGE as u64 * os::PAGE as u64,
    }
}

/// Block from the thread's cached free blocks.
#[derive(Clone, Copy, Debug)]
pub struct CachedBlock {
    /// Address of the block.
    pub addr: Addr,
    /// True if [`housekeeping`] must be called next.
    pub due: bool,
}

/// Allocates a block of `size` (1 to 1 GiB) bytes aligned to 64, if the thread has one cached: no
/// lock, no system call, no function call. Returns `None` otherwise: call [`alloc`].
#[must_use]
pub fn quick_alloc(size: u64, label: Label) -> Option<CachedBlock> {
    let (at, due) = thread_heap::mine()?.quick_alloc(size as usize, label.0)?;
    Some(CachedBlock { addr: address(at), due })
}

/// Frees a block on the fast path: it has this label's tag and is in a current or listed slab of
/// this thread. Returns whether [`housekeeping`] is due. `None`: call [`free`].
#[inline(always)] // row: alloc_free_64
pub fn quick_free(addr: Addr, label: Label) -> Option<bool> {
    thread_heap::mine()?.quick_free(addr.get(), label.tag())
}

/// Does the housekeeping that was due after a fast-path call of this thread with this tag.
pub fn housekeeping(tag: u8) {
    if let Some(heap) = thread_heap::mine() {
        heap.housekeeping(usize::from(tag));
    }
}

/// Allocates `size` (> 0) bytes aligned to `align` (a power of two); `None` if out of memory.
pub fn alloc(size: u64, align: u64, label: Label) -> Option<Addr> {
    let (size, align) = (usize::try_from(size).ok()?, usize::try_from(align).ok()?);
    if size as u64 > remote_free::SIZE {
        return None;
    }
    let room = if align > QUANTUM { size.checked_next_multiple_of(align)? } else { size };
    if room > LARGEST || align > SEGMENT {
        return thread_heap::with(|heap| heap.alloc_own(size, align, label.0)).map(address);
    }
    let class = size_class::of(room);
    thread_heap::with(|heap| heap.alloc(class, size, label.0)).map(address)
}

fn address(at: usize) -> Addr {
    Addr::new(std::ptr::with_exposed_provenance_mut(at))
}

/// Frees a block with this label's tag. Any address may be passed: it is not dereferenced.
pub fn free(addr: Addr, label: Label) -> FreeOutcome {
    thread_heap::with(|heap| Some(heap.free(addr.get(), label.tag())))
        .unwrap_or(FreeOutcome::Foreign)
}

/// Changes the tag of a live block from `from` to `to`; a later free must name `to`. Any address
/// may be passed: it is not dereferenced.
pub fn retag(addr: Addr, from: u8, to: u8) -> FreeOutcome {
    let (from, to) = (Label::new(0, from).tag(), Label::new(0, to).tag());
    thread_heap::with(|heap| Some(heap.retag(addr.get(), from, to))).unwrap_or(FreeOutcome::Foreign)
}

/// Returns the live block that contains `addr`, which may be any address.
#[must_use]
pub fn find(addr: Addr) -> Option<LiveBlock> {
    let segment = page_map::find(addr.get())?;
    let slab = segment.slab_of(addr.get());
    let (base, block) = (slab.base.get(), slab.block.get());
    let offset = addr.get().checked_sub(base)?;
    if offset >= slab.span.get() {
        return None;
    }
    // The slab may serve another class meanwhile.
    let index = offset.checked_div(block).filter(|index| *index < segment.most())?;
    let word = slab.word(index).load(Ordering::Acquire);
    let found = LiveBlock {
        base: base + index * block,
        size: word & remote_free::SIZE,
        kind: (word >> remote_free::KIND_SHIFT) as u8 & 31,
        tag: (word >> remote_free::TAG_SHIFT) as u8,
    };
    let is_inside = ((addr.get() - found.base) as u64) < found.size;
    (word & remote_free::LIVE != 0 && is_inside).then_some(found)
}

/// Returns the first byte of the range `first` to `last` (any addresses) in the allocator's memory.
pub fn find_within(first: Addr, last: Addr) -> Option<usize> {
    page_map::find_within(first.get(), last.get())
        .map(|segment| segment.base.get().max(first.get()))
}

/// Returns the counters of a tag. The effects of concurrent calls may be missing.
pub fn stats(tag: u8) -> Stats {
    let mut sum = stats::Sum::default();
    page_heap::for_each_heap(|heap| heap.account(usize::from(tag)).add_to(&mut sum));
    let live_bytes = u64::try_from(sum.live_bytes).unwrap_or(0);
    Stats {
        live_bytes,
        peak_bytes: stats::peak(usize::from(tag)).max(live_bytes),
        live_count: sum.allocs.saturating_sub(sum.frees),
        total_count: sum.allocs,
    }
}

/// Adds `bytes` allocated elsewhere (below 0: freed) to the live bytes and the peak of an account.
pub fn count_bytes(tag: u8, bytes: i64) {
    let _ = thread_heap::with(|heap| {
        heap.account(usize::from(tag)).shift(usize::from(tag), bytes);
        Some(())
    });
}

/// Resets the peak of an account, which must have no live blocks and must not be in use.
pub fn restart(tag: u8) {
    page_heap::for_each_heap(|heap| heap.account(usize::from(tag)).level());
    stats::reset(usize::from(tag));
}

/// Frees every live block of a tag, in all heaps.
pub fn free_all(tag: u8) {
    page_map::for_each(|segment| {
        for number in 0..segment.slab_count() {
            segment.slab(number).for_each_live(usize::from(tag), |at| {
                let _ = free(address(at), Label::new(0, tag));
            });
        }
    });
}

/// Returns the unused memory of the calling thread and of threads that have ended to the system.
/// All other threads return theirs after some more frees.
pub fn trim() {
    page_heap::for_each_heap(Heap::want);
    let _ = thread_heap::with(|heap| {
        heap.trim();
        Some(())
    });
    page_heap::sweep();
}

/// Unmaps every block, live or not. No thread may be using the allocator.
pub fn destroy_all() {
    page_heap::destroy();
}

/// Discards all blocks in a forked child (their memory stays as it is) and starts empty.
pub fn forget_all() {
    crate::sys::sync::tls::set_heap(std::ptr::null());
    page_heap::forget();
}
