//! Memory that the program passed to the library: host memory registered for a backend's devices
//! (`dtl_mem_register_host`), and memory of any kind from another allocator (`dtl_mem_adopt`).

use super::external::{self, ExternalEntry};
use super::{Allocation, device_only, drivers, kind_info, overlapping};
use crate::abi::word::{DTL_MEMORY_PINNED, dtl_enum_word_t};
use crate::error::{Result, fail};
use crate::runtime::component::DriverAllocation;
use crate::runtime::enums::describe as name_of;
use crate::runtime::registry::Backend;
use crate::runtime::registry::RangeUser;
use crate::runtime::{device, log};
use crate::sys::memory::buf::{Addr, Region};
use crate::sys::memory::heap;
use crate::sys::sync::lock::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Function that the program called to pass the memory to the library.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RegisteredBy {
    /// `dtl_mem_register_host`: the backend has locked the pages.
    Registered,
    /// `dtl_mem_adopt`: the backend was not called.
    Adopted,
}

impl RegisteredBy {
    fn verb(self) -> &'static str {
        if self == RegisteredBy::Registered { "registered" } else { "adopted" }
    }

    /// Returns the name of the function that reverts the registration or adoption.
    fn inverse(self) -> &'static str {
        if self == RegisteredBy::Registered { "dtl_mem_unregister_host" } else { "dtl_mem_release" }
    }
}

struct Registered {
    backend: RangeUser,
    region: Region,
    origin: RegisteredBy,
    /// Key of the range's entry in the list of external memory (see `external`); `None` while the
    /// backend registers the memory.
    entry: Option<ExternalEntry>,
}

/// Ranges that the program passed to `dtl_mem_register_host` or `dtl_mem_adopt`, keyed by the
/// address of their first byte. The ranges do not overlap.
static LIST: Mutex<BTreeMap<usize, Registered>> = Mutex::new(BTreeMap::new());

/// Registers user memory with a backend.
pub fn register(backend: Arc<Backend>, region: Region) -> Result<()> {
    let memory = backend.memory()?;
    let device = device::get_or_first(&backend)?;
    reserve(&backend, region, RegisteredBy::Registered)?;
    let described = kind_info(&backend, DTL_MEMORY_PINNED)
        .and_then(|_| memory.register(region)?.ok_or_else(|| backend.lacks("register_host")));
    described.inspect_err(|_| drop(LIST.lock().remove(&region.addr().get())))?;
    list(&backend, device, DTL_MEMORY_PINNED, region);
    Ok(())
}

/// Adds a range to the list of external memory (see `external`). [`reserve`] has already added the
/// range to LIST.
fn list(backend: &Backend, device: i32, kind: dtl_enum_word_t, region: Region) {
    let known = Allocation::of_others(backend, device, kind, region.len() as u64);
    let entry = external::enter(region.addr(), known);
    if let Some(reserved) = LIST.lock().get_mut(&region.addr().get()) {
        reserved.entry = Some(entry);
    }
}

/// Adds memory from another allocator to the library's lists (`dtl_mem_adopt`), so that the library
/// can copy this memory through the backend.
pub fn adopt(
    backend: Arc<Backend>,
    device: i32,
    kind: dtl_enum_word_t,
    region: Region,
) -> Result<()> {
    let memory = backend.memory()?;
    if backend.device.is_some() || device != 0 {
        device::check(&backend, device)?;
    }
    device::on(&backend, device, || kind_info(&backend, kind))?;
    if memory.can_identify() {
        check_with_driver(&backend, device, kind, region)?;
    }
    reserve(&backend, region, RegisteredBy::Adopted)?;
    list(&backend, device, kind, region);
    Ok(())
}

/// Fails if the program's description of the memory contradicts the driver's description.
fn check_with_driver(
    backend: &Backend,
    device: i32,
    kind: dtl_enum_word_t,
    region: Region,
) -> Result<()> {
    let first = region.addr();
    let Some(found) = drivers::identify(backend, region)? else {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "ptr {first:?}: the driver of backend {} does not know this address: pass memory that \
             this driver allocated",
            backend.name()
        );
    };
    let DriverAllocation { kind: known, device: home, base, size } = found;
    if home != device {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "device is {device}, but ptr {first:?} is memory of device {home} of backend {}: pass \
             {home}",
            backend.name()
        );
    }
    // DEVICE and SHARED are both device memory; the driver does not distinguish them.
    let is_hidden = |kind| device_only::is_hidden(backend, kind);
    if known != kind && !(is_hidden(known) && is_hidden(kind)) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "kind is {}, but ptr {first:?} is memory of kind {}: pass that kind",
            name_of(kind),
            name_of(known)
        );
    }
    let room = size - (first.get() - base.get()) as u64;
    if region.len() as u64 > room {
        return fail!(
            DTL_ERROR_OUT_OF_BOUNDS,
            "size_bytes is {}, but the allocation at {base:?} ends {room} bytes after ptr: pass at \
             most that",
            region.len()
        );
    }
    Ok(())
}

/// Adds the range to LIST. Fails if a part of the range is already in one of the library's lists of
/// allocations.
fn reserve(backend: &Arc<Backend>, region: Region, origin: RegisteredBy) -> Result<()> {
    let (first, last) = (region.addr(), region.addr().offset(region.len() - 1));
    let mut list = LIST.lock();
    let before = list.range(..=last.get()).next_back();
    if let Some((known, other)) =
        before.filter(|(known, found)| *known + found.region.len() > first.get())
    {
        return fail!(
            DTL_ERROR_ALREADY_EXISTS,
            "{} bytes at {first:?} overlap {} bytes at {known:#x}, which are {} with backend {}: \
             call {} first",
            region.len(),
            other.region.len(),
            other.origin.verb(),
            other.backend.name(),
            other.origin.inverse()
        );
    }
    if let Some((base, _)) = overlapping(region)? {
        let (bytes, advice) = match origin {
            RegisteredBy::Registered => {
                ("are memory of the library", "allocate it as DTL_MEMORY_PINNED instead")
            }
            RegisteredBy::Adopted => ("overlap memory that the library knows", "do not adopt it"),
        };
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{} bytes at {first:?} {bytes} (an allocation at {base:#x}): {advice}",
            region.len()
        );
    }
    // The segments of the allocator belong to it entirely, including the gaps between blocks, so a
    // range that overlaps one covers present or future blocks.
    if let Some(at) = heap::find_within(first, last) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{} bytes at {first:?} overlap memory of the library's allocator for host memory (from \
             {at:#x} on): pass memory of another allocator",
            region.len()
        );
    }
    let backend = RangeUser::new(backend)?;
    list.insert(first.get(), Registered { backend, region, origin, entry: None });
    Ok(())
}

/// Reverts [`register`]: the backend unlocks the pages.
pub fn unregister(backend: &Arc<Backend>, addr: Addr) -> Result<()> {
    let gone = take(backend, addr, RegisteredBy::Registered)?;
    forget(&gone)
}

/// Reverts [`adopt`]: removes the memory from the library's lists.
pub fn release(backend: &Arc<Backend>, addr: Addr) -> Result<()> {
    take(backend, addr, RegisteredBy::Adopted).map(drop)
}

/// Removes the entry of the range that starts at `addr` from LIST and returns it. Fails if there is
/// no such entry.
fn take(backend: &Arc<Backend>, addr: Addr, origin: RegisteredBy) -> Result<Registered> {
    let mut list = LIST.lock();
    let is_it = |found: &&Registered| found.backend.is_of(backend) && found.origin == origin;
    let entry = list.get(&addr.get()).filter(is_it).and_then(|found| found.entry);
    if let Some((entry, gone)) = entry.and_then(|entry| Some((entry, list.remove(&addr.get())?))) {
        drop(list);
        external::leave(entry);
        return Ok(gone);
    }
    drop(list);
    fail!(
        DTL_ERROR_NOT_FOUND,
        "{addr:?} is not the first byte of memory that is {} with backend {}",
        origin.verb(),
        backend.name()
    )
}

/// Describes the memory at an address, for error messages. Returns `None` unless the program passed
/// the memory to `dtl_mem_register_host` or `dtl_mem_adopt`.
pub fn describe(addr: Addr) -> Option<String> {
    let list = LIST.lock();
    let (known, found) = list.range(..=addr.get()).next_back()?;
    (addr.get() - known < found.region.len()).then(|| {
        format!(
            "{addr:?} is memory of the program that is {} with backend {}: {} reverts that",
            found.origin.verb(),
            found.backend.name(),
            found.origin.inverse()
        )
    })
}

/// Makes the backend unlock the pages of registered memory; does nothing for memory passed to
/// `dtl_mem_adopt`.
fn forget(gone: &Registered) -> Result<()> {
    if gone.origin == RegisteredBy::Adopted {
        return Ok(());
    }
    gone.backend.memory()?.unregister(gone.region).map(drop)
}

/// Unregisters all ranges that the program did not unregister. Called at finalize.
pub fn destroy_all() {
    for (_, left) in std::mem::take(&mut *LIST.lock()) {
        if let Some(entry) = left.entry {
            external::leave(entry);
        }
        let bytes = left.region.len();
        log::failure(format_args!("unregistering {bytes} bytes of host memory"), forget(&left));
    }
}

/// Discards all entries in a forked child without calling the backends, which belong to the parent.
pub fn forget_all() {
    std::mem::forget(std::mem::take(&mut *LIST.lock()));
}
