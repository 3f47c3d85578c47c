//! Host memory of the program's own that a backend was told of, so that its devices reach it (`dtl_mem_register_host`).

use super::foreign::{self, Entry};
use super::{Allocation, find, kind_info};
use crate::abi::word::DTL_MEMORY_PINNED;
use crate::error::{Result, fail};
use crate::runtime::registry::Backend;
use crate::runtime::{device, log};
use crate::sys::buf::{Addr, Region};
use crate::sys::lock::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

struct Registered {
    backend: Arc<Backend>,
    region: Region,
    /// `None`: the backend is at it.
    entry: Option<Entry>,
}

/// By first byte. Ranges do not overlap.
static LIST: Mutex<BTreeMap<usize, Registered>> = Mutex::new(BTreeMap::new());

/// Tells a backend of memory of the program's.
pub fn register(backend: Arc<Backend>, region: Region) -> Result<()> {
    let memory = backend.memory()?;
    let device = device::get_or_first(&backend)?;
    reserve(&backend, region)?;
    let first = region.addr().get();
    let told = kind_info(&backend, DTL_MEMORY_PINNED, &mut crate::runtime::zeroed_kind_info())
        .and_then(|()| memory.register(region).unwrap_or_else(|| Err(backend.lacks("register_host"))));
    if let Err(error) = told {
        LIST.lock().remove(&first);
        return Err(error);
    }
    let known = Allocation::of_others(&backend, device, DTL_MEMORY_PINNED, region.len() as u64);
    let entry = foreign::enter(region.addr(), known);
    if let Some(registered) = LIST.lock().get_mut(&first) {
        registered.entry = Some(entry);
    }
    Ok(())
}

/// Refuses what the library has, or was told of.
fn reserve(backend: &Arc<Backend>, region: Region) -> Result<()> {
    let (first, last) = (region.addr(), region.addr().offset(region.len() - 1));
    let mut list = LIST.lock();
    let before = list.range(..=last.get()).next_back();
    if let Some((known, registered)) =
        before.filter(|(known, found)| *known + found.region.len() > first.get())
    {
        return fail!(
            DTL_ERROR_ALREADY_EXISTS,
            "{} bytes at {first:?} overlap {} bytes at {known:#x}, which are registered with backend {}: dtl_mem_unregister_host \
             first",
            region.len(),
            registered.region.len(),
            registered.backend.name()
        );
    }
    if let Some((base, _)) = find(first).or_else(|| find(last)) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{} bytes at {first:?} are memory of the library (an allocation at {base:#x}): allocate it as DTL_MEMORY_PINNED \
             instead",
            region.len()
        );
    }
    list.insert(first.get(), Registered { backend: Arc::clone(backend), region, entry: None });
    Ok(())
}

/// Takes that back.
pub fn unregister(backend: &Arc<Backend>, addr: Addr) -> Result<()> {
    let mut list = LIST.lock();
    let known = list.get(&addr.get()).filter(|found| Arc::ptr_eq(&found.backend, backend));
    let Some(entry) = known.and_then(|found| found.entry) else {
        drop(list);
        return fail!(
            DTL_ERROR_NOT_FOUND,
            "{addr:?} is not the first byte of memory that is registered with backend {}",
            backend.name()
        );
    };
    let Some(gone) = list.remove(&addr.get()) else { return Ok(()) }; // it was there just now
    drop(list);
    foreign::leave(entry);
    forget(&gone)
}

/// What an address is, for who takes it for an allocation of the library's.
#[must_use]
pub fn describe(addr: Addr) -> Option<String> {
    let list = LIST.lock();
    let (known, found) = list.range(..=addr.get()).next_back()?;
    (addr.get() - known < found.region.len()).then(|| {
        format!(
            "{addr:?} is memory of the program's own that is registered with backend {}: dtl_mem_unregister_host ends that",
            found.backend.name()
        )
    })
}

fn forget(gone: &Registered) -> Result<()> {
    gone.backend.memory()?.unregister(gone.region).unwrap_or(Ok(()))
}

/// At finalize: what the program left.
pub fn destroy_all() {
    for (_, left) in std::mem::take(&mut *LIST.lock()) {
        if let Some(entry) = left.entry {
            foreign::leave(entry);
        }
        if let Err(error) = forget(&left) {
            log::warning!("unregistering {} bytes of host memory: {error}", left.region.len());
        }
    }
}

/// In a forked child: the backends are the parent's.
pub fn forget_all() {
    std::mem::forget(std::mem::take(&mut *LIST.lock()));
}
