//! Allocator of host memory: blocks of fixed sizes (size classes) in segments of 2 MiB, and one
//! heap for each thread.
//!
//! This file is the interface. A call first tries the free blocks of the calling thread's heap
//! (`thread_heap`), then the memory that all threads share (`page_heap`, protected by a lock), then
//! maps pages (`os`). `segment` contains the descriptors of the memory. `page_map` finds the
//! descriptor for an address without accessing that address. `remote_free` returns a block that
//! another thread has freed to the heap that it came from. `unmap_hooks` reports pages that are
//! returned to the system. `size_class` defines the block sizes, `stats` the counters, and
//! `relaxed_cell` the atomic fields of the descriptors. Design: docs/explanation/host-memory.md.
//!
//! Each block has a kind and a tag (see [`Label`]), which `runtime::memory` and `memory::mem_pool`
//! choose.

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

/// Two numbers that the caller assigns to a block: kind (0 to 31), which [`find`] returns, and tag
/// (below [`TAGS`]), which selects the statistics. The call that frees the block must pass the same
/// tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(u64);

impl Label {
    /// Creates a label from a kind and a tag.
    pub const fn new(kind: u8, tag: u8) -> Self {
        Label(
            (kind as u64 & 31) << remote_free::KIND_SHIFT | (tag as u64) << remote_free::TAG_SHIFT,
        )
    }

    /// Returns the label encoded as a number.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// Converts a number returned by [`Label::word`] back to the label.
    pub const fn of_word(word: u64) -> Self {
        Label(word)
    }

    /// Returns the encoded label with this tag and kind 0.
    const fn tag(self) -> u64 {
        self.0 & 0xFF << remote_free::TAG_SHIFT
    }
}

/// Outcome of a free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeOutcome {
    /// The block was freed.
    Done,
    /// The address is not in memory of this allocator.
    Foreign,
    /// The address is not the first byte of a block.
    Inside,
    /// The block is already free.
    Dead,
    /// The block is allocated and has a different tag, which this variant contains.
    Tagged(u8),
}

/// Properties of an allocated block.
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

/// Returns the mapping of this allocator that contains the whole region; `None` if there is none.
/// Before the mapping is unmapped, its address range is recorded in all live watchers (objects that
/// [`watch_returned`] creates).
pub fn mapping(region: Region) -> Option<Region> {
    let segment = page_map::find(region.addr().get())?;
    let (base, bytes) = (segment.base.get(), segment.bytes.get());
    let end = region.addr().get().checked_add(region.len())?;
    let at = Addr::new(std::ptr::with_exposed_provenance_mut(base));
    (end <= base + bytes).then(|| Region::allocated(at, bytes))
}

/// Allocation statistics of the blocks with one tag (see [`Label`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of bytes that were requested and have not been freed yet.
    pub live_bytes: u64,
    /// Maximum of `live_bytes` so far; an upper bound if several threads allocate.
    pub peak_bytes: u64,
    /// Number of live blocks.
    pub live_count: u64,
    /// Number of blocks ever allocated.
    pub total_count: u64,
}

/// Returns the size in bytes of the block that is allocated for a request of `size` bytes.
pub fn rounded(size: u64) -> u64 {
    match usize::try_from(size) {
        Ok(small @ 1..=LARGEST) => size_class::block(size_class::of(small)) as u64,
        _ => size.saturating_add(os::PAGE as u64 - 1) / os::PAGE as u64 * os::PAGE as u64,
    }
}

/// Block that was allocated from the thread's cached free blocks.
#[derive(Clone, Copy, Debug)]
pub struct CachedBlock {
    /// Address of the block.
    pub addr: Addr,
    /// True if the caller must call [`housekeeping`].
    pub due: bool,
}

/// Allocates a block of `size` bytes (1 byte to 1 GiB), aligned to 64 bytes, from the cached free
/// blocks of the calling thread. Does not acquire a lock or make a system call or function call.
/// Returns `None` if no such block is cached; the caller must then call [`alloc`].
#[must_use]
#[inline]
pub fn quick_alloc(size: u64, label: Label) -> Option<CachedBlock> {
    let (at, due) = thread_heap::mine()?.quick_alloc(size as usize, label.0)?;
    Some(CachedBlock { addr: address(at), due })
}

/// Frees a block with the tag of `label` on the fast path: without a lock, and only if the slab
/// that contains the block (a slab is a group of adjacent blocks of one size class) belongs to the
/// calling thread's heap, and the heap either currently allocates from the slab or keeps it in a
/// list of slabs with free blocks. Returns `Some(true)` if the caller must call [`housekeeping`]
/// afterwards, and `None` if the block was not freed; the caller must then call [`free`].
#[inline(always)] // row: alloc_free_64
pub fn quick_free(addr: Addr, label: Label) -> Option<bool> {
    thread_heap::mine()?.quick_free(addr.get(), label.tag())
}

/// Performs deferred work of the calling thread's heap: updates the statistics of `tag`, collects
/// the blocks that other threads have freed, and returns unused memory to the system if that was
/// requested. Called when a fast-path call has reported that this work is due.
pub fn housekeeping(tag: u8) {
    if let Some(heap) = thread_heap::mine() {
        heap.housekeeping(usize::from(tag));
    }
}

/// Allocates `size` (> 0) bytes aligned to `align` bytes (a power of two); returns `None` if out of
/// memory.
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

/// Frees the block that begins at `addr` if it has the tag of `label`. `addr` may be any address:
/// it is not dereferenced.
pub fn free(addr: Addr, label: Label) -> FreeOutcome {
    thread_heap::with(|heap| Some(heap.free(addr.get(), label.tag())))
        .unwrap_or(FreeOutcome::Foreign)
}

/// Changes the tag of the allocated block at `addr` from `from` to `to`. The call that frees the
/// block must then pass `to`. `addr` may be any address: it is not dereferenced.
pub fn retag(addr: Addr, from: u8, to: u8) -> FreeOutcome {
    let (from, to) = (Label::new(0, from).tag(), Label::new(0, to).tag());
    thread_heap::with(|heap| Some(heap.retag(addr.get(), from, to))).unwrap_or(FreeOutcome::Foreign)
}

/// Returns the allocated block that contains `addr`, which may be any address.
#[inline]
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

/// Returns the lowest address in the memory of this allocator that is at least `first` and at most
/// `last`; `None` if there is none. `first` and `last` may be arbitrary addresses.
pub fn find_within(first: Addr, last: Addr) -> Option<usize> {
    page_map::find_within(first.get(), last.get())
        .map(|segment| segment.base.get().max(first.get()))
}

/// Returns the statistics of the blocks with a tag. The effects of concurrent calls may be missing
/// from the statistics.
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

/// Adds `bytes` to the statistics of a tag (number of allocated bytes and its peak), for memory
/// that was allocated outside this allocator. A negative number counts freed bytes.
pub fn count_bytes(tag: u8, bytes: i64) {
    let _ = thread_heap::with(|heap| {
        heap.account(usize::from(tag)).shift(usize::from(tag), bytes);
        Some(())
    });
}

/// Resets the peak (maximum number of allocated bytes) in the statistics of a tag to 0. The tag
/// must have no allocated blocks, and no thread may be using it.
pub fn restart(tag: u8) {
    page_heap::for_each_heap(|heap| heap.account(usize::from(tag)).level());
    stats::reset(usize::from(tag));
}

/// Frees every allocated block that has the tag `tag`, in the heaps of all threads.
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
/// Requests that every other thread return its unused memory, which the thread does in one of its
/// later calls to the allocator.
pub fn trim() {
    page_heap::for_each_heap(Heap::want);
    let _ = thread_heap::with(|heap| {
        heap.trim();
        Some(())
    });
    page_heap::sweep();
}

/// Unmaps all memory of the allocator, including allocated blocks. No thread may be using the
/// allocator.
pub fn destroy_all() {
    page_heap::destroy();
}

/// Discards the allocator's state in a forked child, so that the child's allocator starts empty.
/// The memory of the inherited blocks stays mapped and unchanged.
pub fn forget_all() {
    crate::sys::sync::tls::set_heap(std::ptr::null());
    page_heap::forget();
}
