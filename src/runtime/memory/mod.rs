//! Memory: allocation through a backend, and the ledger of all live allocations.
//!
//! For copies and `dtl_mem_query`, the ledger identifies the allocation into which a pointer
//! points. It contains only memory that this module allocated. Memory from other allocators is in
//! the list in `external`, or is found by a driver query (`drivers`). Any other pointer is assumed
//! to point to host memory. Memory that the library's own allocator (`host_alloc`) allocates is not
//! in the ledger, because this allocator can look up its own blocks.
//!
//! In reading order:
//! - `host_alloc`: host memory from the library's allocator
//! - `external`: memory from other allocators
//! - `registered`: memory that the program passed to `dtl_mem_register_host` or `dtl_mem_adopt`
//! - `drivers`: driver queries for unknown pointers
//! - `located`: owner and bounds of a range
//! - `transfer`: copies and fills
//! - `stream_ordered`: allocation and freeing in stream order
//! - `mem_pool`: memory pools
//! - `foreign_owner`: memory that a dispatch handler provided
//! - `handlers`: allocations and copies through handlers that the user has registered
//! - `device_only`: memory that the host cannot access
//! - `ipc_handle`: export and import between processes
//! - `stats`: memory properties and usage counters

pub mod device_only;
pub mod drivers;
pub mod external;
mod foreign_owner;
pub mod handlers;
pub mod host_alloc;
pub mod ipc_handle;
mod located;
pub mod mem_pool;
pub mod registered;
mod stats;
pub mod stream_ordered;
pub mod transfer;

pub use self::foreign_owner::{adopt, discard};
pub use self::handlers::alloc;
pub use self::stats::{MOST_ALIGNMENT, alignment, check, stats, trim};
pub use super::device::kind_info;
use located::overlapping;
pub use located::{Located, locate, locate_around};

use super::component::{Extent, Memory};
use super::device;
use super::enums::schedule::check_memory_kind;
use super::exec::stream::Stream;
use super::library_ops;
use super::log;
use super::registry::{self, Backend};
use crate::abi::devices::device::*;
use crate::abi::handle::dtl_backend_t;
use crate::abi::word::{DTL_OPERATION_FREE, dtl_enum_word_t};
use crate::error::{Result, fail, failure};
use crate::from_c::blank;
use crate::sys::handles::epoch::{self, Guard};
use crate::sys::memory::buf::{Addr, Region};
use crate::sys::memory::heap::{self, Label};
use crate::sys::sync::lock::RwLock;
use std::collections::BTreeMap;

/// Entry of an allocation in the ledger, the table of live allocations.
#[derive(Clone, Copy)]
pub struct Allocation {
    /// Backend that owns the memory.
    pub backend: dtl_backend_t,
    /// Backend from which the program requested the memory, which may free it too. Differs from
    /// `backend` if a dispatch handler provided the memory.
    pub requested: dtl_backend_t,
    /// Device on which the memory was allocated.
    pub device: i32,
    /// Memory kind of the allocation.
    pub kind: dtl_enum_word_t,
    /// Requested size in bytes.
    pub size: u64,
    /// Size requested from the backend, in bytes.
    pub room: u64,
    /// Alignment requested from the backend, in bytes.
    pub align: u64,
    /// Handle of the pool that owns the allocation; 0 = no pool, OF_ARRAYS = owned by an array.
    pub pool: u64,
    /// True if the memory was imported from another process (`dtl_mem_import`) or is owned by
    /// another allocator.
    pub imported: bool,
    /// True if the host cannot access the memory (see `device_only`).
    pub hidden: bool,
    /// Unique serial number if `hidden` is true; else 0.
    pub serial: u64,
}

impl Allocation {
    /// Returns true if the program may free the memory as memory of `backend`.
    fn is_of(&self, backend: &Backend) -> bool {
        [self.backend, self.requested].contains(&backend.handle())
    }

    /// Creates the description of memory that another allocator manages and that a backend can
    /// copy.
    pub fn of_others(backend: &Backend, device: i32, kind: dtl_enum_word_t, size: u64) -> Self {
        let extent = Extent { kind, size, align: 1 };
        Allocation { imported: true, ..Allocation::new(backend, device, extent) }
    }

    /// Creates the entry in the ledger (the table of live allocations) for memory that a backend
    /// has allocated outside of any pool.
    fn new(backend: &Backend, device: i32, extent: Extent) -> Self {
        let hidden = device_only::is_hidden(backend, extent.kind);
        Allocation { hidden, ..Allocation::accessible(backend.handle(), device, extent) }
    }

    /// Creates the entry in the ledger (the table of live allocations) for host-accessible memory
    /// outside of any pool.
    fn accessible(backend: dtl_backend_t, device: i32, extent: Extent) -> Self {
        let Extent { kind, size, align } = extent;
        Allocation {
            backend,
            requested: backend,
            device,
            kind,
            size,
            room: size,
            align,
            pool: 0,
            imported: false,
            hidden: false,
            serial: 0,
        }
    }

    fn is_of_pool(&self) -> bool {
        !matches!(self.pool, 0 | OF_ARRAYS)
    }

    /// Returns the kind, size and alignment that were requested from the backend.
    fn occupied(&self) -> Extent {
        Extent { size: self.room, ..self.extent() }
    }

    /// Returns the kind, size and alignment of the allocation, which are the same in every process
    /// that imports the memory.
    fn extent(&self) -> Extent {
        Extent { kind: self.kind, size: self.size, align: self.align }
    }
}

/// Live allocations, keyed by the address of their first byte.
static LEDGER: RwLock<BTreeMap<usize, Allocation>> = RwLock::new(BTreeMap::new());

/// Finds the allocation that contains the address `addr`. Returns the address of the first byte of
/// the allocation, and the entry that describes it.
fn find(addr: Addr) -> Option<(usize, Allocation)> {
    if let Some(found) = heap::find(addr).filter(|found| found.tag != host_alloc::LEAVING) {
        return Some((found.base, plain_allocation(found)));
    }
    let ledger = LEDGER.read();
    let nearest = ledger.range(..=addr.get()).next_back();
    let is_inside = |(base, allocation): &(&usize, &Allocation)| {
        ((addr.get() - **base) as u64) < allocation.size
    };
    if let Some((&base, allocation)) = nearest.filter(is_inside) {
        return Some((base, *allocation));
    }
    drop(ledger);
    external::find(addr)
}

/// Returns the [`Allocation`] that describes a block of the library's host memory allocator.
fn plain_allocation(found: heap::LiveBlock) -> Allocation {
    let extent = Extent { kind: host_alloc::kind(found.kind), size: found.size, align: 1 };
    Allocation::accessible(host_alloc::backend(), 0, extent)
}

/// Finds the allocation in which a range begins, and the start address of that allocation. Queries
/// the drivers if the range is in none of the library's lists of allocations. Inlined, because
/// returning the large result from a call takes a tenth of the time of an 8-byte copy (benchmark
/// mem_copy_8).
#[inline]
fn find_any(region: Region) -> Result<Option<(usize, Allocation)>> {
    let found = find(region.addr());
    if found.is_none() && drivers::may_know(region) {
        return drivers::find(region);
    }
    Ok(found)
}

/// Owner of an allocation. Only the owner may free the allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The program, which frees the memory with `dtl_mem_free`.
    Program,
    /// An array object, which frees the memory when it is destroyed.
    Array,
}

impl Owner {
    fn tag(self) -> u8 {
        if self == Owner::Array { host_alloc::ARRAYS } else { host_alloc::NO_POOL }
    }

    /// Returns the value of [`Allocation::pool`] for memory of this owner.
    fn pool(self) -> u64 {
        if self == Owner::Array { OF_ARRAYS } else { 0 }
    }
}

/// Value of [`Allocation::pool`] for the memory of an array, in place of a pool handle.
const OF_ARRAYS: u64 = u64::MAX;

/// Properties of the memory to allocate.
#[derive(Clone, Copy)]
pub struct Request {
    /// Requested memory kind.
    pub kind: dtl_enum_word_t,
    /// Requested size in bytes.
    pub size: u64,
    /// Requested alignment in bytes, a power of two; 0 = the default alignment of the memory kind.
    pub align: u64,
}

/// Allocates memory from the backend `backend`. If the stream `order` of this backend is passed,
/// the memory is on the device of the stream and is allocated in stream order; else it is on the
/// current device of the calling thread.
pub fn alloc_own(
    owner: Owner,
    backend: &Backend,
    wanted: &Request,
    order: Option<&Stream>,
) -> Result<Addr> {
    let Request { kind, size, align } = *wanted;
    let (memory, align) = (backend.memory()?, check(size, align)?);
    if let Some(code) = host_alloc::code(kind).filter(|_| host_alloc::serves(backend.handle())) {
        return host_alloc::alloc(code, owner.tag(), size, align);
    }
    check_memory_kind(kind)?;
    let extent = Extent { kind, size, align: alignment(backend, kind, size, wanted.align)? };
    let device =
        order.map_or_else(|| device::get_or_first(backend), |stream| Ok(stream.device()))?;
    admit(backend, size, || {
        let addr = match order {
            Some(stream) => stream_ordered::take(backend, memory, stream, extent)?,
            None => allocate(backend, memory, extent)?,
        };
        let new = Allocation::new(backend, device, extent);
        enter(addr, Allocation { pool: owner.pool(), ..new });
        Ok(addr)
    })
}

/// Calls `make`, then adds the allocation to the counters of the backend. `make` allocates `size`
/// bytes and enters the allocation into the ledger (the table of live allocations).
fn admit(backend: &Backend, size: u64, make: impl FnOnce() -> Result<Addr>) -> Result<Addr> {
    backend.memory_use.begin(backend)?;
    let addr = make().inspect_err(|_| backend.memory_use.give_up())?;
    backend.memory_use.grew(size, host_alloc::serves(backend.handle()));
    Ok(addr)
}

fn allocate(backend: &Backend, memory: &dyn Memory, extent: Extent) -> Result<Addr> {
    sound(backend, memory, memory.alloc(extent)?, extent)
}

/// Checks that memory from a backend is not null and is aligned as requested; otherwise frees it
/// and fails.
fn sound(backend: &Backend, memory: &dyn Memory, addr: Addr, extent: Extent) -> Result<Addr> {
    let Extent { size, align, .. } = extent;
    if addr.is_null() || addr.get() as u64 % align != 0 {
        if !addr.is_null() {
            memory.free(addr, extent)?;
        }
        return fail!(
            DTL_ERROR_NATIVE_BACKEND,
            "slot memory.alloc of backend {} returned {addr:?} for {size} bytes aligned to {align}",
            backend.name()
        );
    }
    Ok(addr)
}

/// Frees the memory at `addr`, which `alloc` returned. A null address is ignored.
pub fn free(owner: Owner, backend: &Backend, addr: Addr) -> Result<()> {
    if addr.is_null() {
        return Ok(());
    }
    let is_home = host_alloc::serves(backend.handle());
    if is_home {
        let freed = heap::free(addr, Label::new(0, owner.tag()));
        if freed == heap::FreeOutcome::Done {
            return Ok(());
        }
        host_alloc::check_freed(freed, addr, &format!("backend {}", backend.name()))?;
    }
    if owner == Owner::Program && library_ops::is_taken(DTL_OPERATION_FREE) {
        // Any other free fails below; its memory is not the handler's.
        let is_ours = |found: &Allocation| found.is_of(backend) && found.pool == 0;
        let found = LEDGER.read().get(&addr.get()).copied().filter(is_ours);
        if found.map_or(Ok(false), |found| handlers::free(backend, addr, &found))? {
            return Ok(());
        }
    }
    let allocation = leave(addr, backend, owner.pool())?;
    // After a failure the allocation is entered again, so that the free can be repeated. It has no
    // pool then, because an array that owned it is destroyed.
    settle(backend, &allocation, addr)
        .inspect_err(|_| enter(addr, Allocation { pool: 0, ..allocation }))
}

/// Frees memory that is no longer in the ledger (the table of live allocations), and updates the
/// counters of its backend.
fn settle(requested: &Backend, allocation: &Allocation, addr: Addr) -> Result<()> {
    let inside = epoch::enter();
    // Differs from the requested backend if a handler of the dispatcher provided the memory.
    let backend = match requested.handle() == allocation.backend {
        true => requested,
        false => registry::find(&inside, allocation.backend)?,
    };
    give(backend, allocation, addr)?;
    backend.memory_use.shrank(allocation.size, host_alloc::serves(backend.handle()));
    Ok(())
}

/// Enters an allocation into the ledger (the table of live allocations).
pub fn enter(addr: Addr, mut allocation: Allocation) {
    device_only::comes(addr.get(), &mut allocation);
    LEDGER.write().insert(addr.get(), allocation);
}

/// Removes the allocation at `addr` from the ledger (the table of live allocations) and returns it.
/// Fails unless it belongs to this backend and pool.
pub fn leave(addr: Addr, backend: &Backend, pool: u64) -> Result<Allocation> {
    let mut ledger = LEDGER.write();
    let found = ledger.get(&addr.get()).copied();
    match found {
        Some(found) if found.is_of(backend) && found.pool == pool => {
            ledger.remove(&addr.get());
            drop(ledger);
            device_only::goes(&found);
            return Ok(found);
        }
        _ => drop(ledger),
    }
    let is_of_another = match &found {
        Some(found) => found.backend != backend.handle(),
        None => heap::find(addr).is_some(),
    };
    let text = match found.map(|found| found.pool) {
        _ if is_of_another => {
            format!("{addr:?} belongs to another backend than {}", backend.name())
        }
        Some(OF_ARRAYS) => {
            format!("{addr:?} is the memory of an array: it goes with that (dtl_array_destroy)")
        }
        Some(0) => format!("{addr:?} belongs to no pool: dtl_mem_free is for it"),
        Some(_) => {
            format!("{addr:?} belongs to another pool: dtl_pool_free with that one is for it")
        }
        None => registered::describe(addr).unwrap_or_else(|| {
            format!(
                "{addr:?} is no live allocation of backend {} (freed twice, or not its first \
                 byte?)",
                backend.name()
            )
        }),
    };
    fail!(DTL_ERROR_INVALID_ARGUMENT, "{text}")
}

/// Removes all allocations of a pool from the ledger (the table of live allocations) and returns
/// them.
pub fn leave_all(pool: u64) -> Vec<(Addr, Allocation)> {
    let mut left = Vec::new();
    LEDGER.write().retain(|base, allocation| {
        let stays = allocation.pool != pool;
        if !stays {
            left.push((Addr::new(std::ptr::with_exposed_provenance_mut(*base)), *allocation));
        }
        stays
    });
    left.iter().for_each(|(_, allocation)| device_only::goes(allocation));
    left
}

/// Allocates memory from a backend on the calling thread's current device, without an entry in the
/// ledger (the table of live allocations).
pub fn take(backend: &Backend, kind: dtl_enum_word_t, room: u64, align: u64) -> Result<Addr> {
    allocate(backend, backend.memory()?, Extent { kind, size: room, align })
}

/// Frees memory through its backend, or closes imported memory.
pub fn give(backend: &Backend, allocation: &Allocation, addr: Addr) -> Result<()> {
    let memory = backend.memory()?;
    match memory.exports().filter(|_| allocation.imported) {
        Some(exports) => exports.close(addr, allocation.extent()),
        None => memory.free(addr, allocation.occupied()),
    }
}

/// Exports a range of an allocation as a dma-buf. Returns a file descriptor, which the caller owns,
/// and the offset of the range in bytes.
pub fn dmabuf(inside: &Guard, region: Region) -> Result<(i32, u64)> {
    let Located { owner: Some(owner), .. } = locate(inside, "ptr", region)? else {
        return fail!(
            DTL_ERROR_NOT_FOUND,
            "{:?} lies in no live allocation of the library: export what dtl_mem_alloc gave",
            region.addr()
        );
    };
    owner.memory()?.dmabuf(region)?.ok_or_else(|| {
        failure!(
            DTL_ERROR_NOT_SUPPORTED,
            "backend {} gives no dma-buf (it has no export_dmabuf): send the data through memory \
             of the host",
            owner.name()
        )
    })
}

/// Describes the memory at an address. Fails with NOT_FOUND if neither the library nor a driver in
/// use allocated it.
pub fn query(addr: Addr) -> Result<dtl_mem_info_t> {
    let mut found = find(addr);
    if found.is_none() {
        registry::detect_driver_use();
        found = drivers::query(Region::allocated(addr, 1))?;
    }
    let Some((base, allocation)) = found else {
        return fail!(
            DTL_ERROR_NOT_FOUND,
            "ptr {addr:?} lies in no memory that the library or a driver in use knows: it is \
             treated as host memory"
        );
    };
    Ok(dtl_mem_info_t {
        backend: allocation.backend,
        device: allocation.device,
        kind: allocation.kind,
        size_bytes: allocation.size,
        base: std::ptr::with_exposed_provenance_mut(base),
        ..blank()
    })
}

/// Frees all memory that the program did not free. Called at finalize.
pub fn destroy_all() {
    registered::destroy_all();
    let left = std::mem::take(&mut *LEDGER.write());
    let inside = epoch::enter();
    for (base, allocation) in left {
        device_only::goes(&allocation);
        let Ok(backend) = registry::find(&inside, allocation.backend) else { continue };
        if !allocation.is_of_pool() {
            backend.memory_use.shrank(allocation.size, host_alloc::serves(backend.handle()));
        }
        let addr = Addr::new(std::ptr::with_exposed_provenance_mut(base));
        let freed = give(backend, &allocation, addr);
        let (bytes, name) = (allocation.size, backend.name());
        log::failure(format_args!("freeing {bytes} left-over bytes of backend {name}"), freed);
    }
    heap::destroy_all();
    host_alloc::settle(dtl_backend_t { id: 0 });
}

/// Clears all lists of allocations in a forked child; the memory itself is not freed.
pub fn forget_all() {
    LEDGER.write().clear();
    registered::forget_all();
    drivers::forget_all();
    device_only::forget();
    external::forget_all();
    heap::forget_all();
    host_alloc::settle(dtl_backend_t { id: 0 });
}
