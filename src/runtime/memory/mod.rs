//! Memory: allocation through a backend, and the ledger of all live allocations.
//!
//! The ledger identifies pointers for copies and `dtl_mem_query`. It holds only what was allocated
//! here. Memory that others allocated is in the list of `external`, or is found by a driver query
//! (`drivers`). Any other pointer is plain host memory. Memory that `host_alloc` allocates is not
//! in the ledger, because the allocator can look up its own blocks.
//!
//! In reading order:
//! - `host_alloc`: host memory by the library's allocator
//! - `external`: memory that others allocated
//! - `registered`: host memory registered by the program, adopted memory
//! - `drivers`: driver queries for unknown pointers
//! - `located`: owner and bounds of a range
//! - `transfer`: copies and fills
//! - `stream_ordered`: allocation and freeing in stream order
//! - `mem_pool`: memory pools
//! - `foreign_owner`: memory that a dispatch handler provided
//! - `device_only`: memory that the host cannot access
//! - `ipc_handle`: export and import between processes
//! - `stats`: properties and use

pub mod device_only;
pub mod drivers;
pub mod external;
mod foreign_owner;
pub mod host_alloc;
pub mod ipc_handle;
mod located;
pub mod mem_pool;
pub mod registered;
mod stats;
pub mod stream_ordered;
pub mod transfer;
pub use super::usage::Usage;

pub use self::foreign_owner::{adopt, discard};
pub use self::stats::{alignment, kind_info, stats, trim};
use located::overlapping;
pub use located::{Located, locate, locate_around};

use super::component::{Extent, Memory};
use super::enums::describe;
use super::enums::schedule::check_memory_kind;
use super::registry::{self, Backend};
use super::trace::{self, Args};
use super::{device, library_ops};
use crate::abi::devices::device::*;
use crate::abi::handle::dtl_backend_t;
use crate::abi::word::{DTL_OPERATION_ALLOC, dtl_enum_word_t};
use crate::error::{Result, fail};
use crate::sys::handles::epoch::{self, Guard};
use crate::sys::memory::buf::{Addr, Region};
use crate::sys::memory::heap::{self, Label};
use crate::sys::sync::lock::RwLock;
use std::collections::BTreeMap;

/// Ledger entry of an allocation.
#[derive(Clone, Copy)]
pub struct Allocation {
    /// The backend that owns the memory.
    pub backend: dtl_backend_t,
    /// The device it was allocated on.
    pub device: i32,
    /// Its kind.
    pub kind: dtl_enum_word_t,
    /// Requested bytes.
    pub size: u64,
    /// Bytes requested from the backend.
    pub room: u64,
    /// Alignment requested from the backend.
    pub align: u64,
    /// The handle of the pool that it belongs to; 0 = none, OF_ARRAYS = it is an array's.
    pub pool: u64,
    /// Whether it came from another process (`dtl_mem_import`).
    pub imported: bool,
    /// Whether the host cannot read and write it (`hidden`).
    pub hidden: bool,
    /// If so, its number, which no other has; else 0.
    pub serial: u64,
}

impl Allocation {
    /// Makes the entry for memory that others allocate and free, and that a backend can copy.
    #[must_use]
    pub fn of_others(backend: &Backend, device: i32, kind: dtl_enum_word_t, size: u64) -> Self {
        let (hidden, backend) = (device_only::is_hidden(backend, kind), backend.handle());
        Allocation {
            backend,
            device,
            kind,
            size,
            room: size,
            align: 1,
            pool: 0,
            imported: true,
            hidden,
            serial: 0,
        }
    }

    fn is_of_pool(&self) -> bool {
        !matches!(self.pool, 0 | OF_ARRAYS)
    }

    /// Returns the properties that are equal in every process.
    fn extent(&self) -> Extent {
        Extent { kind: self.kind, size: self.size, align: self.align }
    }
}

/// Every live allocation by its first byte.
static LEDGER: RwLock<BTreeMap<usize, Allocation>> = RwLock::new(BTreeMap::new());

/// The allocation that holds the address, and its first byte.
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

/// Describes a block of the host's allocator as the ledger would.
fn plain_allocation(found: heap::LiveBlock) -> Allocation {
    let (size, kind) = (found.size, host_alloc::kind(found.kind));
    Allocation {
        backend: host_alloc::home(),
        device: 0,
        kind,
        size,
        room: size,
        align: 1,
        pool: 0,
        imported: false,
        hidden: false,
        serial: 0,
    }
}

/// Finds the memory in which a range begins, and its first byte, by a driver query if the memory is
/// in no list. Inlined, because moving the large result takes a tenth of a small copy (row
/// mem_copy_8).
#[inline]
fn find_any(region: Region) -> Result<Option<(usize, Allocation)>> {
    let found = find(region.addr());
    if found.is_none() && drivers::may_know(region) {
        return drivers::find(region);
    }
    Ok(found)
}

/// Owner of an allocation: only the owner frees it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The program's, which frees it by `dtl_mem_free`.
    Program,
    /// An array's.
    Array,
}

impl Owner {
    fn tag(self) -> u8 {
        if self == Owner::Array { host_alloc::ARRAYS } else { host_alloc::NO_POOL }
    }

    /// In the ledger, where pools are named by their handles.
    fn pool(self) -> u64 {
        if self == Owner::Array { OF_ARRAYS } else { 0 }
    }
}

/// Stands for a pool's handle in the ledger: an array's memory.
const OF_ARRAYS: u64 = u64::MAX;

/// What memory is wanted.
#[derive(Clone, Copy)]
pub struct Request {
    /// Its kind.
    pub kind: dtl_enum_word_t,
    /// Bytes.
    pub size: u64,
    /// A power of two, or 0 = the kind's own.
    pub align: u64,
}

/// Allocates: by the handler of the kind if the program has one, else from the backend.
pub fn alloc(
    owner: Owner,
    backend: &Backend,
    kind: dtl_enum_word_t,
    size: u64,
    align: u64,
) -> Result<Addr> {
    trace::about(|| {
        Args::NONE.bytes(size).what(format_args!("{} of {}", describe(kind), backend.name()))
    });
    let wanted = Request { kind, size, align };
    if library_ops::is_taken(DTL_OPERATION_ALLOC) {
        check(size, align)?;
        if let Some(addr) = library_ops::alloc(owner, backend, &wanted, None)? {
            return Ok(addr);
        }
    }
    alloc_own(owner, backend, &wanted)
}

/// Allocates from this backend, on the calling thread's current device.
pub fn alloc_own(owner: Owner, backend: &Backend, wanted: &Request) -> Result<Addr> {
    let Request { kind, size, align } = *wanted;
    let (memory, align) = (backend.memory()?, check(size, align)?);
    if let Some(code) = host_alloc::code(kind).filter(|_| host_alloc::serves(backend.handle())) {
        return host_alloc::alloc(code, owner.tag(), size, align);
    }
    check_memory_kind(kind)?;
    let extent = Extent { kind, size, align: alignment(backend, kind, size, wanted.align)? };
    let device = device::get_or_first(backend)?;
    admit(owner, backend, device, extent, || allocate(backend, memory, extent))
}

/// Counts and enters what `take` gives.
fn admit(
    owner: Owner,
    backend: &Backend,
    device: i32,
    extent: Extent,
    take: impl FnOnce() -> Result<Addr>,
) -> Result<Addr> {
    backend.memory_use.begin(backend)?;
    let addr = take().inspect_err(|_| backend.memory_use.give_up())?;
    let Extent { kind, size, align } = extent;
    let (home, hidden) = (backend.handle(), device_only::is_hidden(backend, kind));
    let (pool, imported, room, serial) = (owner.pool(), false, size, 0);
    backend.memory_use.grew(size, host_alloc::serves(home));
    enter(
        addr,
        Allocation {
            backend: home,
            device,
            kind,
            size,
            room,
            align,
            pool,
            imported,
            hidden,
            serial,
        },
    );
    Ok(addr)
}

/// The largest alignment.
pub const MOST_ALIGNMENT: u64 = 1 << 30;

/// Checks size and alignment. Returns the alignment to request.
pub fn check(size: u64, align: u64) -> Result<u64> {
    let align = if align == 0 { 1 } else { align };
    if !align.is_power_of_two() || align > MOST_ALIGNMENT {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "alignment {align}: use a power of two up to 2^30, or 0 for the kind's own"
        );
    }
    if size == 0 || size > isize::MAX as u64 - align {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "size_bytes {size}: use 1 to {}",
            isize::MAX as u64 - align
        );
    }
    Ok(align)
}

fn allocate(backend: &Backend, memory: &dyn Memory, extent: Extent) -> Result<Addr> {
    sound(backend, memory, memory.alloc(extent.kind, extent.size, extent.align)?, extent)
}

/// Checks that the memory from a backend meets the request; otherwise gives it back and fails.
fn sound(backend: &Backend, memory: &dyn Memory, addr: Addr, extent: Extent) -> Result<Addr> {
    let Extent { kind, size, align } = extent;
    if addr.is_null() || addr.get() as u64 % align != 0 {
        if !addr.is_null() {
            memory.free(kind, addr, size, align)?;
        }
        return fail!(
            DTL_ERROR_NATIVE_BACKEND,
            "slot memory.alloc of backend {} returned {addr:?} for {size} bytes aligned to {align}",
            backend.name()
        );
    }
    Ok(addr)
}

/// Frees what `alloc` gave; null is nothing.
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
        if let Some(error) =
            host_alloc::refusal(freed, addr, &format!("backend {}", backend.name()))
        {
            return Err(error);
        }
    }
    let allocation = leave(addr, backend, owner.pool())?;
    // Still there after a failure: to try again, an array's, too, which is gone.
    settle(backend, &allocation, addr)
        .inspect_err(|_| enter(addr, Allocation { pool: 0, ..allocation }))
}

/// Gives back what has left the ledger, and counts that.
fn settle(asked: &Backend, allocation: &Allocation, addr: Addr) -> Result<()> {
    let inside = epoch::enter();
    // Not the requested backend if a handler of the dispatcher provided the memory.
    let backend = match asked.handle() == allocation.backend {
        true => asked,
        false => registry::find(&inside, allocation.backend)?,
    };
    // First: once given back, the address may belong to another allocation.
    let asked = foreign_owner::take(addr);
    give(backend, allocation, addr).inspect_err(|_| foreign_owner::put_back(addr, asked))?;
    backend.memory_use.shrank(allocation.size, host_alloc::serves(backend.handle()));
    Ok(())
}

/// Enters an allocation into the ledger.
pub fn enter(addr: Addr, mut allocation: Allocation) {
    device_only::comes(addr.get(), &mut allocation);
    LEDGER.write().insert(addr.get(), allocation);
}

/// Takes an allocation of a backend and pool out of the ledger.
pub fn leave(addr: Addr, backend: &Backend, pool: u64) -> Result<Allocation> {
    let mut ledger = LEDGER.write();
    let found = ledger.get(&addr.get()).copied();
    match found {
        Some(found)
            if foreign_owner::is_of(backend.handle(), addr, &found) && found.pool == pool =>
        {
            ledger.remove(&addr.get());
            drop(ledger);
            device_only::goes(&found);
            return Ok(found);
        }
        _ => drop(ledger),
    }
    let text = match found {
        Some(found) if found.backend != backend.handle() => {
            format!("{addr:?} belongs to another backend than {}", backend.name())
        }
        Some(Allocation { pool: OF_ARRAYS, .. }) => {
            format!("{addr:?} is the memory of an array: it goes with that (dtl_array_destroy)")
        }
        Some(Allocation { pool: 0, .. }) => format!(
            "{addr:?} belongs to no pool: dtl_mem_free is \
            for it"
        ),
        Some(_) => format!(
            "{addr:?} belongs to another pool: dtl_pool_free with that one is for \
            it"
        ),
        None if heap::find(addr).is_some() => {
            format!("{addr:?} belongs to another backend than {}", backend.name())
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

/// Takes all allocations of a pool out of the ledger.
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

/// Memory from a backend that is not in the ledger, on the thread's current device.
pub fn take(backend: &Backend, kind: dtl_enum_word_t, room: u64, align: u64) -> Result<Addr> {
    allocate(backend, backend.memory()?, Extent { kind, size: room, align })
}

/// Gives memory back to its backend.
pub fn give(backend: &Backend, allocation: &Allocation, addr: Addr) -> Result<()> {
    let memory = backend.memory()?;
    match memory.exports().filter(|_| allocation.imported) {
        Some(exports) => exports.close(addr, allocation.extent()),
        None => memory.free(allocation.kind, addr, allocation.room, allocation.align),
    }
}

/// A dma-buf of a range of an allocation: a file descriptor, the caller's, and where in it the
/// range begins.
pub fn dmabuf(inside: &Guard, region: Region) -> Result<(i32, u64)> {
    let Located { owner: Some(owner), .. } = locate(inside, "ptr", region)? else {
        return fail!(
            DTL_ERROR_NOT_FOUND,
            "{:?} lies in no live allocation of the library: export what dtl_mem_alloc gave",
            region.addr()
        );
    };
    owner.memory()?.dmabuf(region).unwrap_or_else(|| {
        fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "backend {} gives no dma-buf (it has no export_dmabuf): send the data through memory \
             of the host",
            owner.name()
        )
    })
}

/// Describes the memory at an address. NOT_FOUND if neither the library nor a driver in use has
/// allocated it.
pub fn query(addr: Addr, out: &mut dtl_mem_info_t) -> Result<()> {
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
    out.backend = allocation.backend;
    out.device = allocation.device;
    out.kind = allocation.kind;
    out.size_bytes = allocation.size;
    out.base = std::ptr::with_exposed_provenance_mut(base);
    Ok(())
}

/// At finalize: frees what the program left.
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
        if let Err(error) = freed {
            super::log::warning!(
                "freeing {} left-over bytes of backend {}: {error}",
                allocation.size,
                backend.name()
            );
        }
    }
    foreign_owner::forget_all();
    heap::destroy_all();
    host_alloc::settle(dtl_backend_t::NULL);
}

/// In a forked child: forget the parent's allocations (the memory stays as it is).
pub fn forget_all() {
    LEDGER.write().clear();
    registered::forget_all();
    drivers::forget_all();
    device_only::forget();
    external::forget_all();
    foreign_owner::forget_all();
    heap::forget_all();
    host_alloc::settle(dtl_backend_t::NULL);
}
