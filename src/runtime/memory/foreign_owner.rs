//! Memory that a dispatch handler provided: one backend allocated it for a request to another
//! backend. Either backend may free it.

use super::{Allocation, LEDGER, Owner, Request, host_alloc, stream_ordered};
use crate::abi::handle::dtl_backend_t;
use crate::error::{Result, fail};
use crate::runtime::exec::stream::Stream;
use crate::runtime::{log, registry};
use crate::sys::handles::epoch::Guard;
use crate::sys::memory::buf::Addr;
use crate::sys::memory::heap;
use crate::sys::sync::lock::RwLock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// For each allocation that a dispatch handler provided: the backend from which the program had
/// requested the memory, keyed by the address of the first byte. Contains only allocations that are
/// in the ledger (the table of live allocations).
static REQUESTED: RwLock<BTreeMap<usize, dtl_backend_t>> = RwLock::new(BTreeMap::new());
/// True once an entry has been added to `REQUESTED`. It is checked before `REQUESTED` is locked, so
/// that programs that never add an entry never take the lock.
static ANY: AtomicBool = AtomicBool::new(false);

/// Accepts the memory that a dispatch handler provided for a request to another backend. Fails if
/// the memory does not satisfy the request.
pub fn adopt(
    owner: Owner,
    requested: dtl_backend_t,
    addr: Addr,
    wanted: &Request,
    who: &str,
) -> Result<()> {
    let &Request { size, align, .. } = wanted;
    let unfit = || {
        let alignment =
            if align == 0 { "as their kind is".to_owned() } else { format!("to {align}") };
        fail!(
            DTL_ERROR_NATIVE_BACKEND,
            "handler \"{who}\" gave {addr:?} for {size} bytes aligned {alignment}: not what \
             dtl_mem_alloc gave for as many"
        )
    };
    if addr.get() as u64 % align.max(1) != 0 {
        return unfit();
    }
    if let Some(block) = heap::find(addr) {
        if requested != host_alloc::backend() {
            return fail!(
                DTL_ERROR_NOT_SUPPORTED,
                "\"{who}\" gave {addr:?}, plain memory of the host: only the host's backend gives \
                 that out; register memory of a kind of its own"
            );
        }
        let becomes_owners =
            || heap::retag(addr, host_alloc::NO_POOL, owner.tag()) == heap::FreeOutcome::Done;
        let is_owners = || block.tag == owner.tag() || becomes_owners();
        let is_right = block.base == addr.get() && block.size >= size && is_owners();
        return if is_right { Ok(()) } else { unfit() };
    }
    let mut ledger = LEDGER.write();
    match ledger.get_mut(&addr.get()) {
        Some(known) if known.size >= size && known.pool == 0 => known.pool = owner.pool(),
        Some(known) if known.size >= size && known.pool == owner.pool() => {}
        _ => return unfit(),
    }
    ANY.store(true, Ordering::Relaxed);
    REQUESTED.write().insert(addr.get(), requested);
    drop(ledger);
    Ok(())
}

/// Frees memory that a dispatch handler returned and `adopt` rejected, if dtl_mem_alloc allocated
/// it. No other reference to this memory exists.
#[cold]
pub fn discard(inside: &Guard, addr: Addr, order: Option<&Stream>) {
    let handle = match heap::find(addr) {
        Some(block) => {
            (block.base == addr.get() && block.tag == host_alloc::NO_POOL).then(host_alloc::backend)
        }
        None => LEDGER
            .read()
            .get(&addr.get())
            .filter(|known| known.pool == 0)
            .map(|known| known.backend),
    };
    let Some(handle) = handle else { return };
    let freed = match order {
        // The handler may have queued work that uses the memory.
        Some(stream) => stream_ordered::free(inside, stream, addr),
        None => registry::find(inside, handle)
            .and_then(|backend| super::free(Owner::Program, backend, addr)),
    };
    log::failure(format_args!("freeing {addr:?}, which a handler gave for something else"), freed);
}

/// Returns true if `backend` may free `allocation`, that is, if `backend` allocated the memory or
/// the program requested the memory from `backend`.
pub(super) fn is_of(backend: dtl_backend_t, addr: Addr, allocation: &Allocation) -> bool {
    let was_asked =
        || ANY.load(Ordering::Relaxed) && REQUESTED.read().get(&addr.get()) == Some(&backend);
    allocation.backend == backend || was_asked()
}

/// Removes the entry for an allocation that is about to be freed, and returns the backend from
/// which the program requested the allocation. Returns `None` if there is no entry: the requested
/// backend has allocated the memory itself.
pub(super) fn take(addr: Addr) -> Option<dtl_backend_t> {
    if ANY.load(Ordering::Relaxed) { REQUESTED.write().remove(&addr.get()) } else { None }
}

/// Reverts [`take`] if the free failed.
pub(super) fn put_back(addr: Addr, requested: Option<dtl_backend_t>) {
    if let Some(requested) = requested {
        REQUESTED.write().insert(addr.get(), requested);
    }
}

/// Clears the table of requested backends.
pub(super) fn forget_all() {
    REQUESTED.write().clear();
}
