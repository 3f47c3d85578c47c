//! Devices: the calling thread's current backend and device, and the properties of devices.
//!
//! The current backend and device are per thread, as in CUDA. The library stores them, so a backend
//! whose own current device is process-wide cannot leak one thread's choice into another thread.

use super::copy_text;
use super::enums::describe;
use super::enums::schedule::check_memory_kind;
use super::registry::{self, Backend};
use crate::abi::devices::device::*;
use crate::abi::handle::dtl_backend_t;
use crate::abi::word::{DTL_MEMORY_DEVICE, DTL_MEMORY_HOST, dtl_enum_word_t};
use crate::error::{Result, fail};
use crate::from_c::{blank, text_in};
use crate::sys::handles::epoch::{self, Guard};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

thread_local! {
    /// Handle of the backend that this thread last passed to `dtl_backend_set_device`; 0 = none.
    static BACKEND: Cell<u64> = const { Cell::new(0) };
    /// Devices that this thread has selected, as pairs of a backend handle and a device.
    static DEVICES: RefCell<Vec<(u64, i32)>> = const { RefCell::new(Vec::new()) };
}

/// Returns the backend with the given handle; a null handle means the thread's current backend.
pub fn backend(inside: &Guard, handle: dtl_backend_t) -> Result<&Backend> {
    if handle.id != 0 {
        registry::find(inside, handle)
    } else {
        registry::find(inside, current_backend(inside)?)
    }
}

/// Returns a counted reference to the backend with the given handle; a null handle means the
/// thread's current backend. The reference remains valid after the call.
pub fn pin_backend(inside: &Guard, handle: dtl_backend_t) -> Result<Arc<Backend>> {
    if handle.id != 0 {
        registry::pin(inside, handle)
    } else {
        registry::pin(inside, current_backend(inside)?)
    }
}

#[cold]
fn current_backend(inside: &Guard) -> Result<dtl_backend_t> {
    let current = dtl_backend_t { id: BACKEND.get() };
    if current.id != 0 && registry::find(inside, current).is_ok() {
        return Ok(current);
    }
    Ok(registry::by_name(inside, None)?.handle())
}

/// Makes `device` the thread's current device, and its backend the thread's current backend.
pub fn set(backend: &Backend, device: i32) -> Result<()> {
    let devices = backend.device()?;
    check(backend, device)?;
    devices.set(device)?;
    let id = backend.handle().id;
    let remembered = DEVICES.try_with(|devices| {
        let mut devices = devices.borrow_mut();
        devices.retain(|(known, _)| *known != id);
        devices.push((id, device));
    });
    if remembered.is_err() {
        return fail!(
            DTL_ERROR_INVALID_STATE,
            "the calling thread is ending: it cannot choose a device any more"
        );
    }
    BACKEND.set(id);
    Ok(())
}

/// Removes backends that no longer exist from the calling thread's list of current devices, so that
/// the list stays bounded. This function is separate from [`set`], because the library's own
/// threads call `set` without an epoch guard.
pub fn forget_gone(inside: &Guard) {
    let is_there = |known| registry::find(inside, dtl_backend_t { id: known }).is_ok();
    // In a thread that is ending the list no longer exists.
    let _ = DEVICES.try_with(|devices| devices.borrow_mut().retain(|(known, _)| is_there(*known)));
}

/// Returns the calling thread's current device for a backend.
pub fn get(backend: &Backend) -> Result<i32> {
    let devices = backend.device()?;
    let id = backend.handle().id;
    let chosen = DEVICES.try_with(|devices| {
        devices.borrow().iter().find(|(known, _)| *known == id).map(|(_, device)| *device)
    });
    match chosen {
        Ok(Some(device)) => Ok(device),
        _ => devices.get(),
    }
}

/// Returns the calling thread's current device for a backend, or 0 if the backend has no devices.
pub fn get_or_first(backend: &Backend) -> Result<i32> {
    if backend.device.is_none() { Ok(0) } else { get(backend) }
}

/// Runs `act` with `device` as the calling thread's current device for the backend.
pub fn on<T>(backend: &Backend, device: i32, act: impl FnOnce() -> Result<T>) -> Result<T> {
    let current = get_or_first(backend)?;
    if current == device {
        return act();
    }
    backend.device()?.set(device)?;
    let done = act();
    backend.device()?.set(current)?;
    done
}

/// Returns the PCI address of the device that the calling thread selected last; `None` if it has
/// selected none or the backend does not report the address.
pub fn selected_pci() -> Option<String> {
    let inside = epoch::enter();
    let backend = registry::pin(&inside, dtl_backend_t { id: BACKEND.get() }).ok()?;
    drop(inside);
    let info = info(&backend, get(&backend).ok()?).ok()?;
    let pci: Vec<u8> = info.pci.iter().map(|byte| *byte as u8).collect();
    Some(text_in(&pci)).filter(|pci| !pci.is_empty())
}

/// Fails unless `device` is at least 0 and below the backend's device count.
pub fn check(backend: &Backend, device: i32) -> Result<()> {
    let count = backend.device()?.count()?;
    if (0..count).contains(&device) {
        return Ok(());
    }
    fail!(
        DTL_ERROR_OUT_OF_BOUNDS,
        "device {device}: backend {} has {count} (counted from 0)",
        backend.name()
    )
}

/// Returns the properties of a device.
pub fn info(backend: &Backend, device: i32) -> Result<dtl_device_info_t> {
    check(backend, device)?;
    let mut out = dtl_device_info_t { numa_node: -1, ..blank() };
    backend.device()?.info(device, &mut out)?;
    if out.name.first() == Some(&0) {
        let name = format!("{} device {device}", backend.name());
        copy_text(&mut out.name, &name);
    }
    Ok(out)
}

/// Returns the free and total memory of a device in bytes. For a backend with memory but no
/// devices, device 0 stands for all of its memory.
pub fn memory_info(backend: &Backend, device: i32) -> Result<(u64, u64)> {
    let info = if backend.device.is_some() || backend.memory.is_none() {
        check(backend, device)?;
        let of_current = || backend.memory.as_ref().map_or(Ok(None), |own| own.memory_info());
        match backend.device()?.memory_info(device)? {
            None => on(backend, device, of_current)?,
            own => own,
        }
    } else if device == 0 {
        backend.memory()?.memory_info()?
    } else {
        return fail!(
            DTL_ERROR_OUT_OF_BOUNDS,
            "device {device}: backend {} has memory and no devices: 0 means all of it",
            backend.name()
        );
    };
    info.ok_or_else(|| backend.lacks("memory information"))
}

/// Returns the properties, alignment and name of a memory kind (for example host or device memory)
/// of a backend.
pub fn kind_info(backend: &Backend, kind: dtl_enum_word_t) -> Result<dtl_mem_kind_info_t> {
    check_memory_kind(kind)?;
    if let Some(info) = backend.memory()?.kind_info(kind)? {
        return Ok(info);
    }
    // The backend does not describe its memory: assume the minimum that the name of the kind
    // implies.
    let (properties, name) = match kind {
        DTL_MEMORY_HOST => (DTL_MEMORY_HOST_ACCESSIBLE | DTL_MEMORY_PAGEABLE, "host"),
        DTL_MEMORY_DEVICE => (DTL_MEMORY_DEVICE_ACCESSIBLE, "device"),
        _ => {
            return fail!(
                DTL_ERROR_NOT_SUPPORTED,
                "backend {} describes no memory kind {}",
                backend.name(),
                describe(kind)
            );
        }
    };
    Ok(new_kind_info(properties, 1, name))
}

/// Creates the description of a memory kind (for example host or device memory).
pub fn new_kind_info(properties: u64, alignment: u64, name: &str) -> dtl_mem_kind_info_t {
    let mut info = dtl_mem_kind_info_t { properties, alignment, ..blank() };
    copy_text(&mut info.name, name);
    info
}

#[cfg(test)]
#[path = "tests/device.rs"]
mod tests;
