//! Pools: memory of a backend that is kept for later allocations instead of being given back.
//!
//! The plain memory of the host comes from the library's own allocator, which keeps memory for all
//! users: a pool of it is a label on blocks, with counters. For every other memory a pool keeps
//! freed blocks in lists by size, under a lock that is not held while the backend is called.

use super::{Allocation, host_alloc};
use crate::abi::devices::device::dtl_mem_stats_t;
use crate::abi::status::DTL_ERROR_OUT_OF_MEMORY;
use crate::abi::word::dtl_enum_word_t;
use crate::error::{Result, fail};
use crate::runtime::registry::Backend;
use crate::runtime::trace::{self, Args};
use crate::runtime::{device, invalid_handle, memory};
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
/// Default for the bytes that a pool keeps.
const USUAL_KEEP: u64 = 256 << 20;
/// Blocks are aligned to this at least.
const LEAST_ALIGN: u64 = 64;

static POOLS: HandleTable<MemPool> = HandleTable::new(TAG, 0);

/// Fast lookup: pools of plain memory by the last bits of their handles; the first pool with these
/// bits has the entry. An entry holds a handle only while its pool is in the table, and the entry
/// is not reused before the pool's end. So a thread that finds the handle inside the epoch may use
/// the entry.
static QUICK: [PoolEntry; ENTRIES] = [const {
    PoolEntry { id: AtomicU64::new(0), label: AtomicU64::new(0), owner: AtomicU64::new(0) }
}; ENTRIES];
const ENTRIES: usize = 64;

#[repr(align(32))]
struct PoolEntry {
    id: AtomicU64,
    /// A label's word.
    label: AtomicU64,
    /// Handle of the pool that has the place.
    owner: AtomicU64,
}

impl PoolEntry {
    fn hide(&self, id: u64) {
        // It may be another's.
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

/// The label of a pool of plain memory, inside the epoch.
#[inline]
fn quick_label(id: u64) -> Option<Label> {
    let entry = entry(id);
    if entry.id.load(Ordering::Acquire) != id || id == 0 {
        return None;
    }
    Some(Label::of_word(entry.label.load(Ordering::Relaxed)))
}

/// Fast path of allocation: takes a cached block, for a usual alignment and while the gate lets
/// quick calls pass. `None`: allocate from the pool.
#[must_use]
pub fn quick_alloc(id: u64, size: u64) -> Option<CachedBlock> {
    heap::quick_alloc(size, quick_label(id)?)
}

/// Fast path of free: frees a block of this pool if that can be done at once. Returns whether
/// [`housekeeping`] is due. `None`: free by the pool.
#[must_use]
pub fn quick_free(id: u64, addr: Addr) -> Option<bool> {
    heap::quick_free(addr, quick_label(id)?)
}

/// Does the housekeeping that the fast paths leave undone.
pub fn housekeeping(inside: &Guard, id: u64) -> Result<()> {
    if let PoolBlocks::Plain { tag, .. } = find(inside, id)?.blocks {
        heap::housekeeping(tag);
    }
    Ok(())
}

/// Tags that are not pools'.
const NOT_POOLS: u64 =
    1 << host_alloc::NO_POOL | 1 << host_alloc::ARRAYS | 1 << host_alloc::LEAVING;
/// One bit for each label in use.
static LABELS: Mutex<u64> = Mutex::new(NOT_POOLS);

/// Pool of a backend's memory: freed blocks are kept for later allocations.
pub struct MemPool {
    backend: Arc<Backend>,
    device: i32,
    kind: dtl_enum_word_t,
    /// Blocks are aligned to this at least.
    least_align: u64,
    /// Whether the host cannot reach its blocks.
    hidden: bool,
    /// Its handle once it has one.
    id: AtomicU64,
    blocks: PoolBlocks,
}

enum PoolBlocks {
    /// The allocator's, with this label. Counters of the label go on from an earlier pool's.
    Plain {
        code: u8,
        tag: u8,
        before: u64,
    },
    Kept(Mutex<FreeLists>),
}

#[derive(Default)]
struct FreeLists {
    /// By size and alignment.
    free: BTreeMap<(u64, u64), Vec<Addr>>,
    kept_bytes: u64,
    most_bytes: u64,
    /// From the backend now.
    reserved_bytes: u64,
    live_bytes: u64,
    peak_bytes: u64,
    live_count: u64,
    total_count: u64,
}

impl FreeLists {
    /// Takes an unused block of this size and alignment.
    fn reuse(&mut self, room: u64, align: u64) -> Option<Addr> {
        let addr = self.free.get_mut(&(room, align))?.pop()?;
        self.kept_bytes -= room;
        Some(addr)
    }

    fn took(&mut self, size: u64) {
        (self.live_bytes, self.live_count) = (self.live_bytes + size, self.live_count + 1);
        (self.peak_bytes, self.total_count) =
            (self.peak_bytes.max(self.live_bytes), self.total_count + 1);
    }

    /// Takes the largest blocks out until no more than so much is kept.
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
    /// A pool of a backend's memory on the thread's current device; `keep` 0 = as usual.
    pub fn create(backend: Arc<Backend>, kind: dtl_enum_word_t, keep: u64) -> Result<MemPool> {
        memory::kind_info(&backend, kind, &mut crate::runtime::zeroed_kind_info())?;
        let device = device::get_or_first(&backend)?;
        let blocks = match host_alloc::code(kind).filter(|_| host_alloc::serves(backend.handle())) {
            Some(code) => {
                let tag = take_label()?;
                PoolBlocks::Plain { code, tag, before: heap::stats(tag).total_count }
            }
            None => {
                let most_bytes = if keep == 0 { USUAL_KEEP } else { keep };
                PoolBlocks::Kept(Mutex::new(FreeLists { most_bytes, ..FreeLists::default() }))
            }
        };
        let hidden =
            matches!(blocks, PoolBlocks::Kept(_)) && memory::device_only::is_hidden(&backend, kind);
        let least_align = memory::alignment(&backend, kind, 1, 0)?.max(LEAST_ALIGN);
        Ok(MemPool { backend, device, kind, least_align, hidden, id: AtomicU64::new(0), blocks })
    }

    /// Allocates from it.
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
        let addr = match reused {
            Some(addr) => addr,
            None => self.fetch(kept, room, align)?,
        };
        kept.lock().took(size);
        memory::enter(addr, Allocation { size, ..self.describe(room, align) });
        Ok(addr)
    }

    fn describe(&self, room: u64, align: u64) -> Allocation {
        let (backend, pool) = (self.backend.handle(), self.id.load(Ordering::Relaxed));
        Allocation {
            backend,
            device: self.device,
            kind: self.kind,
            size: 0,
            room,
            align,
            pool,
            imported: false,
            hidden: self.hidden,
            serial: 0,
        }
    }

    /// A block from the backend. If it has none, everything kept without use goes back first.
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
        kept.lock().reserved_bytes += room;
        Ok(addr)
    }

    /// Takes a block back; null is nothing.
    pub fn free(&self, addr: Addr) -> Result<()> {
        if addr.is_null() {
            return Ok(());
        }
        match &self.blocks {
            PoolBlocks::Plain { tag, .. } => match heap::free(addr, Label::new(0, *tag)) {
                FreeOutcome::Done => Ok(()),
                freed => match host_alloc::refusal(freed, addr, "this pool") {
                    Some(error) => Err(error),
                    // No block of this pool is in the ledger, which records the owner.
                    None => memory::leave(addr, &self.backend, self.id.load(Ordering::Relaxed))
                        .map(drop),
                },
            },
            PoolBlocks::Kept(kept) => {
                let block = memory::leave(addr, &self.backend, self.id.load(Ordering::Relaxed))?;
                let mut now = kept.lock();
                (now.live_bytes, now.live_count) =
                    (now.live_bytes - block.size, now.live_count - 1);
                now.kept_bytes += block.room;
                now.free.entry((block.room, block.align)).or_default().push(addr);
                let most = now.most_bytes;
                drop(now);
                self.shed(kept, most)
            }
        }
    }

    /// Gives back to the backend until no more than `keep` bytes are kept without use.
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
                Ok(()) => kept.lock().reserved_bytes -= room,
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }

    /// Fills in its counters.
    pub fn stats(&self, out: &mut dtl_mem_stats_t) {
        match &self.blocks {
            PoolBlocks::Plain { tag, before, .. } => {
                let now = heap::stats(*tag);
                (out.live_bytes, out.live_count) = (now.live_bytes, now.live_count);
                (out.peak_bytes, out.total_count) = (now.peak_bytes, now.total_count - before);
                out.reserved_bytes = now.live_bytes;
            }
            PoolBlocks::Kept(kept) => {
                let now = kept.lock();
                (out.live_bytes, out.live_count) = (now.live_bytes, now.live_count);
                (out.peak_bytes, out.total_count) = (now.peak_bytes, now.total_count);
                out.reserved_bytes = now.reserved_bytes;
            }
        }
    }

    fn live_count(&self) -> u64 {
        match &self.blocks {
            PoolBlocks::Plain { tag, .. } => heap::stats(*tag).live_count,
            PoolBlocks::Kept(kept) => kept.lock().live_count,
        }
    }
}

impl Drop for MemPool {
    fn drop(&mut self) {
        // At finalize there may be live blocks, else only such as another thread allocated during
        // the destroy; nobody is inside a call with this pool any more.
        match &self.blocks {
            PoolBlocks::Plain { tag, .. } => {
                if self.live_count() > 0 {
                    heap::free_all(*tag);
                }
                let id = self.id.load(Ordering::Relaxed);
                let mut labels = LABELS.lock();
                if entry(id).owner.load(Ordering::Relaxed) == id {
                    entry(id).hide(id); // it was shown after the removal
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
                if let Err(error) = outcome.and(self.shed(kept, 0)) {
                    crate::runtime::log::warning!(
                        "a pool of backend {} ends: {error}",
                        self.backend.name()
                    );
                }
            }
        }
    }
}

/// Takes a label for a pool that is being made. The label of a destroyed pool becomes free when the
/// last call that was in progress meanwhile has left; that call may belong to a thread that is not
/// running now, so this waits for it. Call this outside the epoch: otherwise a destroyed pool may
/// wait for this very call. A call from within another one (a callback) cannot leave, and fails
/// instead.
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

/// Puts a pool under a handle.
pub fn insert(pool: MemPool) -> Result<u64> {
    let pool = Arc::new(pool);
    let Some(id) = POOLS.insert(Arc::clone(&pool)) else {
        return fail!(DTL_ERROR_LIMIT, "no pool handle is left; destroy some");
    };
    pool.id.store(id, Ordering::Relaxed);
    if let PoolBlocks::Plain { code, tag, .. } = pool.blocks {
        let _labels = LABELS.lock(); // one at a time
        let entry = entry(id);
        if entry.owner.load(Ordering::Relaxed) == 0 {
            entry.owner.store(id, Ordering::Relaxed);
            entry.label.store(Label::new(code, tag).word(), Ordering::Relaxed);
            entry.id.store(id, Ordering::Release);
        }
    }
    Ok(id)
}

/// Returns true if a handle names a live pool.
#[must_use]
pub fn is_live(id: u64) -> bool {
    POOLS.is_live(id)
}

/// The pool of a handle, for the duration of a call.
pub fn find(inside: &Guard, id: u64) -> Result<&MemPool> {
    POOLS.get(inside, id).ok_or_else(|| invalid_handle("pool", TAG, id))
}

/// Takes a pool out of the table. Its entry goes first: a thread that still uses the entry is
/// inside the epoch, and the pool outlives that.
fn remove(inside: &Guard, id: u64) -> Option<Arc<MemPool>> {
    entry(id).hide(id);
    POOLS.remove(inside, id)
}

/// Ends a pool without live allocations; the null handle is nothing.
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
    match remove(inside, id) {
        Some(pool) => drop(pool),
        None => return Err(invalid_handle("pool", TAG, id)),
    }
    Ok(())
}

/// At finalize: pools go; what is live of them goes with the ledger and the allocator.
pub fn destroy_all() {
    let inside = epoch::enter();
    for id in POOLS.handles() {
        drop(remove(&inside, id));
    }
    *LABELS.lock() = NOT_POOLS;
}

/// In a forked child: the handles go, the backends are left alone.
pub fn forget_all() {
    let inside = epoch::enter();
    for id in POOLS.handles() {
        std::mem::forget(remove(&inside, id));
    }
    QUICK.iter().for_each(|entry| entry.owner.store(0, Ordering::Relaxed));
    *LABELS.lock() = NOT_POOLS;
}
