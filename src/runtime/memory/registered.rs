//! Memory of the program's own that the library was told of: host memory that a backend's devices are to reach
//! (`dtl_mem_register_host`), and memory of any kind that the program got elsewhere (`dtl_mem_adopt`).

use super::foreign::{self, Entry};
use super::{Allocation, drivers, hidden, kind_info, touched_here};
use crate::abi::word::{DTL_MEMORY_PINNED, dtl_enum_word_t};
use crate::error::{Result, fail};
use crate::runtime::backend::Found;
use crate::runtime::enums::describe as name_of;
use crate::runtime::registry::Backend;
use crate::runtime::{device, log};
use crate::sys::buf::{Addr, Region};
use crate::sys::lock::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which call told of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// `dtl_mem_register_host`: the backend has locked its pages.
    Registered,
    /// `dtl_mem_adopt`: the backend was not asked.
    Adopted,
}

impl Told {
    fn verb(self) -> &'static str {
        if self == Told::Registered { "registered" } else { "adopted" }
    }

    /// The call that takes it back.
    fn end(self) -> &'static str {
        if self == Told::Registered { "dtl_mem_unregister_host" } else { "dtl_mem_release" }
    }
}

struct Registered {
    backend: Arc<Backend>,
    region: Region,
    told: Told,
    /// `None`: the backend is at it.
    entry: Option<Entry>,
}

/// By first byte. Ranges do not overlap.
static LIST: Mutex<BTreeMap<usize, Registered>> = Mutex::new(BTreeMap::new());

/// Tells a backend of memory of the program's.
pub fn register(backend: Arc<Backend>, region: Region) -> Result<()> {
    let memory = backend.memory()?;
    let device = device::get_or_first(&backend)?;
    reserve(&backend, region, Told::Registered)?;
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

/// Notes memory of the program's, which the backend knows how to copy.
pub fn adopt(backend: Arc<Backend>, device: i32, kind: dtl_enum_word_t, region: Region) -> Result<()> {
    let memory = backend.memory()?;
    if backend.device.is_some() || device != 0 {
        device::check(&backend, device)?;
    }
    device::on(&backend, device, || kind_info(&backend, kind, &mut crate::runtime::zeroed_kind_info()))?;
    if memory.identifies() {
        check_with_driver(&backend, device, kind, region)?;
    }
    reserve(&backend, region, Told::Adopted)?;
    let entry =
        foreign::enter(region.addr(), Allocation::of_others(&backend, device, kind, region.len() as u64));
    if let Some(adopted) = LIST.lock().get_mut(&region.addr().get()) {
        adopted.entry = Some(entry);
    }
    Ok(())
}

/// What a driver knows better is not taken from the program.
fn check_with_driver(backend: &Backend, device: i32, kind: dtl_enum_word_t, region: Region) -> Result<()> {
    let first = region.addr();
    let Some(found) = drivers::identify(backend, region) else {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "ptr {first:?}: the driver of backend {} does not know it: adopt what its allocation functions gave",
            backend.name()
        );
    };
    let Found { kind: known, device: home, base, size } = found;
    if home != device {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "device {device}: ptr {first:?} is memory of device {home} of backend {}",
            backend.name()
        );
    }
    // What other processes can open is a device's memory, too.
    let is_hidden = |kind| hidden::is_hidden(backend, kind);
    if known != kind && !(is_hidden(known) && is_hidden(kind)) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "kind {}: ptr {first:?} is memory of kind {}",
            name_of(kind),
            name_of(known)
        );
    }
    let room = size - (first.get() - base.get()) as u64;
    if region.len() as u64 > room {
        return fail!(
            DTL_ERROR_OUT_OF_BOUNDS,
            "size_bytes {}: the allocation at {base:?} ends {room} bytes behind ptr",
            region.len()
        );
    }
    Ok(())
}

/// Refuses what the library has, or was told of.
fn reserve(backend: &Arc<Backend>, region: Region, told: Told) -> Result<()> {
    let (first, last) = (region.addr(), region.addr().offset(region.len() - 1));
    let mut list = LIST.lock();
    let before = list.range(..=last.get()).next_back();
    if let Some((known, other)) = before.filter(|(known, found)| *known + found.region.len() > first.get()) {
        return fail!(
            DTL_ERROR_ALREADY_EXISTS,
            "{} bytes at {first:?} overlap {} bytes at {known:#x}, which are {} with backend {}: {} first",
            region.len(),
            other.region.len(),
            other.told.verb(),
            other.backend.name(),
            other.told.end()
        );
    }
    if let Some((base, _)) = touched_here(region) {
        let (bytes, advice) = match told {
            Told::Registered => ("are memory of the library", "allocate it as DTL_MEMORY_PINNED instead"),
            Told::Adopted => ("overlap memory that the library knows", "it needs no dtl_mem_adopt"),
        };
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{} bytes at {first:?} {bytes} (an allocation at {base:#x}): {advice}",
            region.len()
        );
    }
    list.insert(first.get(), Registered { backend: Arc::clone(backend), region, told, entry: None });
    Ok(())
}

/// Takes `register` back.
pub fn unregister(backend: &Arc<Backend>, addr: Addr) -> Result<()> {
    let gone = take(backend, addr, Told::Registered)?;
    forget(&gone)
}

/// Takes `adopt` back.
pub fn release(backend: &Arc<Backend>, addr: Addr) -> Result<()> {
    take(backend, addr, Told::Adopted).map(drop)
}

/// Takes an entry out of the list.
fn take(backend: &Arc<Backend>, addr: Addr, told: Told) -> Result<Registered> {
    let mut list = LIST.lock();
    let is_it = |found: &&Registered| Arc::ptr_eq(&found.backend, backend) && found.told == told;
    let entry = list.get(&addr.get()).filter(is_it).and_then(|found| found.entry);
    if let Some((entry, gone)) = entry.and_then(|entry| Some((entry, list.remove(&addr.get())?))) {
        drop(list);
        foreign::leave(entry);
        return Ok(gone);
    }
    drop(list);
    fail!(
        DTL_ERROR_NOT_FOUND,
        "{addr:?} is not the first byte of memory that is {} with backend {}",
        told.verb(),
        backend.name()
    )
}

/// What an address is, for who takes it for an allocation of the library's.
#[must_use]
pub fn describe(addr: Addr) -> Option<String> {
    let list = LIST.lock();
    let (known, found) = list.range(..=addr.get()).next_back()?;
    (addr.get() - known < found.region.len()).then(|| {
        format!(
            "{addr:?} is memory of the program's own that is {} with backend {}: {} ends that",
            found.told.verb(),
            found.backend.name(),
            found.told.end()
        )
    })
}

/// Has a backend unlock what it has locked.
fn forget(gone: &Registered) -> Result<()> {
    if gone.told == Told::Adopted {
        return Ok(());
    }
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
