//! Memory that a handler of the dispatcher gave: it is one backend's, and another one was asked for it. Either frees it.

use super::{Allocation, LEDGER, Owner};
use crate::abi::handle::dtl_backend_t;
use crate::error::{Result, fail};
use crate::sys::buf::Addr;
use crate::sys::heap;
use crate::sys::lock::RwLock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// The backend that was asked, by the first byte; only of live allocations in the ledger.
static ASKED: RwLock<BTreeMap<usize, dtl_backend_t>> = RwLock::new(BTreeMap::new());
/// Whether there ever was one: most programs never ask the lock.
static ANY: AtomicBool = AtomicBool::new(false);

/// Takes in what a handler gave when `asked` was asked for `size` bytes.
pub fn adopt(owner: Owner, asked: dtl_backend_t, addr: Addr, size: u64, who: &str) -> Result<()> {
    if let Some(block) = heap::find(addr) {
        let is_right = block.base == addr.get() && block.size >= size && block.tag == owner.tag();
        if is_right && asked == super::plain::home() {
            return Ok(());
        }
        return fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "\"{who}\" gave {addr:?}, plain memory of the host: only the host's backend gives that out; register memory of a \
             kind of its own"
        );
    }
    let mut ledger = LEDGER.write();
    match ledger.get_mut(&addr.get()) {
        Some(known) if known.size >= size && known.pool == 0 => known.pool = owner.pool(),
        Some(known) if known.size >= size && known.pool == owner.pool() => {}
        _ => {
            return fail!(
                DTL_ERROR_NATIVE_BACKEND,
                "handler \"{who}\" gave {addr:?} for {size} bytes: not what dtl_mem_alloc gave for as many"
            );
        }
    }
    ANY.store(true, Ordering::Relaxed);
    ASKED.write().insert(addr.get(), asked);
    drop(ledger);
    Ok(())
}

/// Whether a backend frees an allocation: it is its memory, or it was asked for it.
pub(super) fn is_of(backend: dtl_backend_t, addr: Addr, allocation: &Allocation) -> bool {
    let was_asked = || ANY.load(Ordering::Relaxed) && ASKED.read().get(&addr.get()) == Some(&backend);
    allocation.backend == backend || was_asked()
}

/// The allocation is gone.
pub(super) fn forget(addr: Addr) {
    if ANY.load(Ordering::Relaxed) {
        ASKED.write().remove(&addr.get());
    }
}

/// All are gone.
pub(super) fn forget_all() {
    ASKED.write().clear();
}
