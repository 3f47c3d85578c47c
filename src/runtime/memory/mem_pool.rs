//! Memory pools: freed memory of a backend is cached for later allocations instead of being
//! returned to the backend.
//!
//! Plain memory (ordinary host memory, see `host_alloc`) comes from the library's own allocator,
//! which itself caches freed memory. A pool of plain memory consists only of counters and a label
//! that marks its blocks. A pool of any other memory stores freed blocks in lists by size and
//! alignment, under a lock that is not held while the backend is called.

use super::{Allocation, host_alloc};
use crate::abi::devices::device::dtl_mem_stats_t;
use crate::abi::status::DTL_ERROR_OUT_OF_MEMORY;
use crate::abi::word::dtl_enum_word_t;
use crate::error::{Result, fail};
use crate::from_c::blank;
use crate::runtime::component::Extent;
use crate::runtime::registry::Backend;
use crate::runtime::trace::{self, Args};
use crate::runtime::{device, invalid_handle, log, memory};
use crate::sys::handles::epoch::{self, Guard};
use crate::sys::handles::handle_table::{self, HandleTable};
use crate::sys::memory::buf::Addr;
use crate::sys::memory::heap::{self, CachedBlock, FreeOutcome, Label};
use crate::sys::sync::lock::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Type byte of pool handles.
const TAG: u8 = 9;
/// Default for the maximum number of cached bytes of a pool.
const USUAL_KEEP: u64 = 256 << 20;
/// Minimum alignment of blocks, in bytes.
const LEAST_ALIGN: u64 = 64;

/// Pools of the program.
pub static POOLS: HandleTable<MemPool> = HandleTable::new();

/// Lookup table for the fast paths: pools of plain memory (ordinary host memory, see `host_alloc`),
/// indexed by the low bits of their handles. Of several pools with the same index, the first one
/// owns the entry. An entry contains a handle only while the pool is in the handle table, and is
/// not reused before the pool is dropped. So a thread that enters the reclamation epoch and then
/// finds the handle in the entry may use the entry until it leaves the epoch.
static QUICK: [PoolEntry; ENTRIES] = [const {
    PoolEntry { id: AtomicU64::new(0), label: AtomicU64::new(0), owner: AtomicU64::new(0) }
}; ENTRIES];
const ENTRIES: usize = 64;

#[repr(align(32))]
struct PoolEntry {
    id: AtomicU64,
    /// Label (memory kind and tag) of the pool's blocks, encoded in one word.
    label: AtomicU64,
    /// Handle of the pool that owns the entry until the pool is dropped; 0 if no pool owns the
    /// entry.
    owner: AtomicU64,
}

impl PoolEntry {
    fn hide(&self, id: u64) {
        // The exchange fails if the entry belongs to another pool.
        let _ = self.id.compare_exchange(id, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

#[inline]
fn entry(id: u64) -> &'static PoolEntry {
    #[allow(
        clippy::indexing_slicing,
        reason = "masked to the array's length, which the compiler sees"
    )]
    &QUICK[handle_table::index_of(id) % ENTRIES]
}

/// Returns the label (memory kind and tag) of a pool's blocks; `None` if the pool is not in QUICK.
/// Must be called inside the reclamation epoch.
#[inline]
fn quick_label(id: u64) -> Option<Label> {
    let entry = entry(id);
    if entry.id.load(Ordering::Acquire) != id || id == 0 {
        return None;
    }
    Some(Label::of_word(entry.label.load(Ordering::Relaxed)))
}

/// Fast path of allocation: returns a cached block of default alignment. Must be called inside the
/// reclamation epoch, while `open_state` admits fast-path calls. Returns `None` if the caller must
/// use [`MemPool::alloc`] instead.
#[must_use]
pub fn quick_alloc(id: u64, size: u64) -> Option<CachedBlock> {
    heap::quick_alloc(size, quick_label(id)?)
}

/// Fast path of free: frees a block of this pool if that is possible immediately. Returns
/// `Some(true)` if the caller must then call [`housekeeping`], and `None` if it must use
/// [`MemPool::free`] instead.
pub fn quick_free(id: u64, addr: Addr) -> Option<bool> {
    heap::quick_free(addr, quick_label(id)?)
}

/// Performs the work that the fast paths of this thread have deferred for a pool.
pub fn housekeeping(inside: &Guard, id: u64) -> Result<()> {
    if let PoolBlocks::Plain { tag, .. } = find(inside, id)?.blocks {
        heap::housekeeping(tag);
    }
    Ok(())
}

/// Bit mask of the heap block tags that are reserved for memory outside of pools.
const NOT_POOLS: u64 =
    1 << host_alloc::NO_POOL | 1 << host_alloc::ARRAYS | 1 << host_alloc::LEAVING;
/// Bit mask of the heap block tags in use, including the reserved tags.
static LABELS: Mutex<u64> = Mutex::new(NOT_POOLS);

/// Memory pool of a backend: freed blocks are cached for later allocations.
pub struct MemPool {
    backend: Arc<Backend>,
    device: i32,
    kind: dtl_enum_word_t,
    /// Minimum alignment of blocks, in bytes.
    least_align: u64,
    /// True if the host cannot access the blocks.
    hidden: bool,
    /// Handle of the pool; 0 until the pool is in the handle table.
    id: AtomicU64,
    blocks: PoolBlocks,
}

enum PoolBlocks {
    /// Blocks of the library's allocator that have this memory kind (`code`) and tag in their
    /// labels. The allocator's count of allocations with a tag includes those of earlier pools with
    /// the same tag; `before` is the count when this pool was created.
    Plain {
        code: u8,
        tag: u8,
        before: u64,
    },
    Kept(Mutex<FreeLists>),
}

struct FreeLists {
    /// Unused blocks, keyed by size and alignment in bytes.
    free: BTreeMap<(u64, u64), Vec<Addr>>,
    kept_bytes: u64,
    most_bytes: u64,
    stats: dtl_mem_stats_t,
}

impl FreeLists {
    /// Removes and returns an unused block of this size and alignment, if there is one.
    fn reuse(&mut self, room: u64, align: u64) -> Option<Addr> {
        let addr = self.free.get_mut(&(room, align))?.pop()?;
        self.kept_bytes -= room;
        Some(addr)
    }

    fn took(&mut self, size: u64) {
        let stats = &mut self.stats;
        stats.live_bytes += size;
        stats.live_count += 1;
        stats.total_count += 1;
        stats.peak_bytes = stats.peak_bytes.max(stats.live_bytes);
    }

    /// Removes the largest unused blocks until at most `most` bytes are cached. Returns the removed
    /// blocks, each with its size and alignment in bytes.
    fn shed(&mut self, most: u64) -> Vec<(Addr, u64, u64)> {
        let mut shed = Vec::new();
        while self.kept_bytes > most {
            let Some((&(room, align), blocks)) = self.free.iter_mut().next_back() else { break };
            match blocks.pop() {
                Some(addr) => {
                    self.kept_bytes -= room;
                    shed.push((addr, room, align));
                }
                None => drop(self.free.remove(&(room, align))),
            }
        }
        shed
    }
}

impl MemPool {
    /// Creates a pool of a backend's memory on the calling thread's current device. `keep` is the
    /// maximum number of cached bytes; 0 = default.
    pub fn create(backend: Arc<Backend>, kind: dtl_enum_word_t, keep: u64) -> Result<MemPool> {
        memory::kind_info(&backend, kind)?;
        let device = device::get_or_first(&backend)?;
        let blocks = match host_alloc::code(kind).filter(|_| host_alloc::serves(backend.handle())) {
            Some(code) => {
                let tag = take_label()?;
                PoolBlocks::Plain { code, tag, before: heap::stats(tag).total_count }
            }
            None => {
                let most_bytes = if keep == 0 { USUAL_KEEP } else { keep };
                let (free, stats) = (BTreeMap::new(), blank());
                PoolBlocks::Kept(Mutex::new(FreeLists { free, kept_bytes: 0, most_bytes, stats }))
            }
        };
        let hidden =
            matches!(blocks, PoolBlocks::Kept(_)) && memory::device_only::is_hidden(&backend, kind);
        let least_align = memory::alignment(&backend, kind, 1, 0)?.max(LEAST_ALIGN);
        Ok(MemPool { backend, device, kind, least_align, hidden, id: AtomicU64::new(0), blocks })
    }

    /// Allocates a block of `size` bytes from the pool.
    pub fn alloc(&self, size: u64, align: u64) -> Result<Addr> {
        trace::about(|| {
            Args::NONE.bytes(size).what(format_args!("pool of {}", self.backend.name()))
        });
        let align = memory::check(size, align)?;
        let kept = match &self.blocks {
            PoolBlocks::Plain { code, tag, .. } => {
                return host_alloc::alloc(*code, *tag, size, align);
            }
            PoolBlocks::Kept(kept) => kept,
        };
        let (room, align) = (heap::rounded(size), align.max(self.least_align));
        let reused = kept.lock().reuse(room, align);
        let addr = reused.map_or_else(|| self.fetch(kept, room, align), Ok)?;
        kept.lock().took(size);
        memory::enter(addr, Allocation { size, ..self.describe(room, align) });
        Ok(addr)
    }

    fn describe(&self, room: u64, align: u64) -> Allocation {
        let extent = Extent { kind: self.kind, size: room, align };
        let block = Allocation::accessible(self.backend.handle(), self.device, extent);
        Allocation { pool: self.id.load(Ordering::Relaxed), hidden: self.hidden, ..block }
    }

    /// Allocates a block from the backend. If the backend is out of memory, returns all unused
    /// blocks to the backend first and retries.
    fn fetch(&self, kept: &Mutex<FreeLists>, room: u64, align: u64) -> Result<Addr> {
        let take = || {
            device::on(&self.backend, self.device, || {
                memory::take(&self.backend, self.kind, room, align)
            })
        };
        let addr = match take() {
            Err(error)
                if error.status() == DTL_ERROR_OUT_OF_MEMORY && kept.lock().kept_bytes > 0 =>
            {
                self.shed(kept, 0)?;
                take()
            }
            taken => taken,
        }?;
        kept.lock().stats.reserved_bytes += room;
        Ok(addr)
    }

    /// Frees a block of the pool. A null address is ignored.
    pub fn free(&self, addr: Addr) -> Result<()> {
        if addr.is_null() {
            return Ok(());
        }
        match &self.blocks {
            PoolBlocks::Plain { tag, .. } => match heap::free(addr, Label::new(0, *tag)) {
                FreeOutcome::Done => Ok(()),
                freed => {
                    host_alloc::check_freed(freed, addr, "this pool")?;
                    // A block of this pool is not in the ledger, so the ledger provides the error.
                    memory::leave(addr, &self.backend, self.id.load(Ordering::Relaxed)).map(drop)
                }
            },
            PoolBlocks::Kept(kept) => {
                let block = memory::leave(addr, &self.backend, self.id.load(Ordering::Relaxed))?;
                let mut now = kept.lock();
                now.stats.live_bytes -= block.size;
                now.stats.live_count -= 1;
                now.kept_bytes += block.room;
                now.free.entry((block.room, block.align)).or_default().push(addr);
                let most = now.most_bytes;
                drop(now);
                self.shed(kept, most)
            }
        }
    }

    /// Returns unused blocks to the backend until at most `keep` bytes are cached.
    pub fn trim(&self, keep: u64) -> Result<()> {
        match &self.blocks {
            PoolBlocks::Plain { .. } => {
                host_alloc::trim(keep);
                Ok(())
            }
            PoolBlocks::Kept(kept) => self.shed(kept, keep),
        }
    }

    fn shed(&self, kept: &Mutex<FreeLists>, most: u64) -> Result<()> {
        let mut outcome = Ok(());
        let shed = kept.lock().shed(most);
        for (addr, room, align) in shed {
            match device::on(&self.backend, self.device, || {
                memory::give(&self.backend, &self.describe(room, align), addr)
            }) {
                Ok(()) => kept.lock().stats.reserved_bytes -= room,
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }

    /// Returns the counters of the pool.
    pub fn stats(&self) -> dtl_mem_stats_t {
        match &self.blocks {
            PoolBlocks::Plain { tag, before, .. } => {
                let now = heap::stats(*tag);
                dtl_mem_stats_t {
                    live_bytes: now.live_bytes,
                    peak_bytes: now.peak_bytes,
                    reserved_bytes: now.live_bytes,
                    live_count: now.live_count,
                    total_count: now.total_count - before,
                    ..blank()
                }
            }
            PoolBlocks::Kept(kept) => kept.lock().stats,
        }
    }

    fn live_count(&self) -> u64 {
        match &self.blocks {
            PoolBlocks::Plain { tag, .. } => heap::stats(*tag).live_count,
            PoolBlocks::Kept(kept) => kept.lock().stats.live_count,
        }
    }
}

impl Drop for MemPool {
    fn drop(&mut self) {
        // At finalize there may be live blocks; otherwise only blocks that another thread allocated
        // during the destroy. No thread is inside a call with this pool any more.
        match &self.blocks {
            PoolBlocks::Plain { tag, .. } => {
                if self.live_count() > 0 {
                    heap::free_all(*tag);
                }
                let id = self.id.load(Ordering::Relaxed);
                let mut labels = LABELS.lock();
                if entry(id).owner.load(Ordering::Relaxed) == id {
                    entry(id).hide(id); // `insert` published the entry after `remove` hid it
                    entry(id).owner.store(0, Ordering::Relaxed);
                }
                *labels &= !(1 << tag);
            }
            PoolBlocks::Kept(kept) => {
                let mut outcome = Ok(());
                for (addr, block) in memory::leave_all(self.id.load(Ordering::Relaxed)) {
                    outcome = outcome.and(device::on(&self.backend, self.device, || {
                        memory::give(&self.backend, &block, addr)
                    }));
                }
                let outcome = outcome.and(self.shed(kept, 0));
                log::failure(
                    format_args!("a pool of backend {} ends", self.backend.name()),
                    outcome,
                );
            }
        }
    }
}

/// Allocates a heap block tag for a new pool. The tag of a destroyed pool becomes available when
/// all calls that were in progress at the destruction have returned. If no tag is available yet,
/// this function waits for these calls. The function must be called outside the reclamation epoch;
/// otherwise it may wait for its own caller. In a callback inside another library call, the thread
/// cannot leave the epoch, so the function fails with LIMIT instead of waiting.
fn take_label() -> Result<u8> {
    loop {
        if let Some(tag) = free_label() {
            heap::restart(tag);
            return Ok(tag);
        }
        let plain = POOLS.handles().into_iter().filter(|id| is_plain(*id)).count();
        if plain + NOT_POOLS.count_ones() as usize >= heap::TAGS {
            return fail!(
                DTL_ERROR_LIMIT,
                "{plain} pools of host memory are all that there may be at once: destroy one"
            );
        }
        if epoch::is_inside() {
            return fail!(
                DTL_ERROR_LIMIT,
                "{plain} pools of host memory, and destroyed ones that the call around this one \
                 may still use, are all \
                 that there may be at once: call dtl_pool_create outside of callbacks"
            );
        }
        epoch::collect();
        std::thread::yield_now();
    }
}

fn is_plain(id: u64) -> bool {
    let inside = epoch::enter();
    POOLS.get(&inside, id).is_some_and(|pool| matches!(pool.blocks, PoolBlocks::Plain { .. }))
}

fn free_label() -> Option<u8> {
    let mut labels = LABELS.lock();
    let tag = labels.trailing_ones();
    (tag < heap::TAGS as u32).then(|| {
        *labels |= 1 << tag;
        tag as u8
    })
}

/// Inserts a pool into the handle table and returns its handle.
pub fn insert(pool: MemPool) -> Result<u64> {
    let pool = Arc::new(pool);
    let Some(id) = POOLS.insert(TAG, Arc::clone(&pool)) else {
        return fail!(DTL_ERROR_LIMIT, "no pool handle is left; destroy some");
    };
    pool.id.store(id, Ordering::Relaxed);
    if let PoolBlocks::Plain { code, tag, .. } = pool.blocks {
        let _labels = LABELS.lock(); // only one thread at a time writes an entry
        let entry = entry(id);
        if entry.owner.load(Ordering::Relaxed) == 0 {
            entry.owner.store(id, Ordering::Relaxed);
            entry.label.store(Label::new(code, tag).word(), Ordering::Relaxed);
            entry.id.store(id, Ordering::Release);
        }
    }
    Ok(id)
}

/// Returns the pool with the handle `id`, borrowed for the duration of a call.
pub fn find(inside: &Guard, id: u64) -> Result<&MemPool> {
    POOLS.get(inside, id).ok_or_else(|| invalid_handle("pool", TAG, id))
}

/// Removes a pool from the handle table. The fast-path entry of the pool is cleared first: a thread
/// that still uses the entry is inside the reclamation epoch, and the pool is not dropped before
/// that thread leaves the epoch.
fn remove(inside: &Guard, id: u64) -> Option<Arc<MemPool>> {
    entry(id).hide(id);
    POOLS.remove(inside, id)
}

/// Destroys a pool. Fails with BUSY if it has live allocations. The null handle is ignored.
pub fn destroy(inside: &Guard, id: u64) -> Result<()> {
    if id == 0 {
        return Ok(());
    }
    let live = find(inside, id)?.live_count();
    if live > 0 {
        return fail!(
            DTL_ERROR_BUSY,
            "the pool has {live} live allocations: free them with dtl_pool_free first"
        );
    }
    remove(inside, id).map(drop).ok_or_else(|| invalid_handle("pool", TAG, id))
}

/// Destroys all pools at finalize. Does not free the live blocks of the pools: they are freed with
/// the ledger (the table of live allocations) or by the library's allocator.
pub fn destroy_all() {
    let inside = epoch::enter();
    for id in POOLS.handles() {
        drop(remove(&inside, id));
    }
    *LABELS.lock() = NOT_POOLS;
}

/// Removes the handles of all pools in a forked child without calling the backends.
pub fn forget_all() {
    let inside = epoch::enter();
    for id in POOLS.handles() {
        std::mem::forget(remove(&inside, id));
    }
    QUICK.iter().for_each(|entry| entry.owner.store(0, Ordering::Relaxed));
    *LABELS.lock() = NOT_POOLS;
}
