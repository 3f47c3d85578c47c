//! Registrations of device memory, one for each allocation that held a large message: by its
//! dma-buf or by its address.
//!
//! These registrations count towards the limit of the host registrations (`reg_cache`). Freeing an
//! allocation ends its registration, in the thread that frees it and before its backend is called:
//! a registration pins the device's pages, and a registration by address would cover whatever is
//! allocated at that address next. A registration is identified by the allocation's serial number,
//! so a later allocation at the same address never matches. A message shares ownership of its
//! allocation's registration.
//!
//! If a backend exports no dma-buf of an allocation, that result is cached. If the device or the
//! kernel rejects a registration, no further registration is tried. Both cases are logged once.

use super::reg_cache::{Cache, Registered};
use crate::abi::status::DTL_ERROR_OUT_OF_MEMORY;
use crate::backend::rdma::verbs::rail::Rail;
use crate::error::{Error, Result};
use crate::runtime::component::{DeviceMemory, HostShadow};
use crate::runtime::log;
use crate::runtime::memory::device_only::{self, Watcher};
use crate::sys::sync::lock::Mutex;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// Registrations of device memory, by allocation. Innermost lock: no other is acquired while held.
#[derive(Default)]
pub(crate) struct Registrations(Mutex<DeviceMrTable>);

#[derive(Default)]
struct DeviceMrTable {
    /// Registrations, by the serial number of their allocation.
    entries: BTreeMap<u64, DeviceMrEntry>,
    bytes: u64,
    clock: u64,
    /// Reason why no more registrations are tried; `None` while registrations are tried.
    refusal: Option<String>,
    /// True once the log has the message that a backend exports no dma-buf.
    has_said: bool,
}

struct DeviceMrEntry {
    /// Registration of the allocation; `None` if the allocation cannot be registered.
    registered: Option<Arc<Registered>>,
    bytes: u64,
    /// Clock value of the last lookup that returned this entry.
    used: u64,
}

impl Registrations {
    /// Creates an empty set that watches for freed allocations.
    pub(crate) fn new() -> Arc<Registrations> {
        let all = Arc::new(Registrations::default());
        let watcher: Arc<dyn Watcher> = Arc::clone(&all) as Arc<dyn Watcher>;
        device_only::watch(Arc::downgrade(&watcher));
        all
    }

    /// Returns the number of registered bytes of device memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.lock().bytes
    }

    pub(crate) fn find(&self, serial: u64) -> Option<Option<Arc<Registered>>> {
        let mut known = self.0.lock();
        known.clock += 1;
        let now = known.clock;
        let entry = known.entries.get_mut(&serial)?;
        entry.used = now;
        Some(entry.registered.clone())
    }

    fn put(&self, serial: u64, bytes: u64, registered: Option<Arc<Registered>>) {
        let mut known = self.0.lock();
        known.clock += 1;
        let bytes = if registered.is_some() { bytes } else { 0 };
        let entry = DeviceMrEntry { registered, bytes, used: known.clock };
        known.bytes += bytes;
        let before = known.entries.insert(serial, entry);
        known.bytes -= before.as_ref().map_or(0, |entry| entry.bytes);
        drop(known); // the previous entry is dropped without the lock
    }

    /// Drops the least recently used idle registration; returns false if there is none.
    pub(crate) fn drop_oldest(&self) -> bool {
        let mut known = self.0.lock();
        let is_idle = |entry: &DeviceMrEntry| {
            entry.registered.as_ref().is_some_and(|of| Arc::strong_count(of) == 1)
        };
        let idle = known.entries.iter().filter(|(_, entry)| is_idle(entry));
        let Some(serial) = idle.min_by_key(|(_, entry)| entry.used).map(|(serial, _)| *serial)
        else {
            return false;
        };
        let gone = known.entries.remove(&serial);
        known.bytes -= gone.as_ref().map_or(0, |entry| entry.bytes);
        drop(known);
        drop(gone);
        true
    }

    fn refuse(&self, why: String) {
        self.0.lock().refusal = Some(why);
    }

    pub(crate) fn refusal(&self) -> Option<String> {
        self.0.lock().refusal.clone()
    }
}

impl Watcher for Registrations {
    fn freed(&self, serial: u64) {
        let mut known = self.0.lock();
        let gone = known.entries.remove(&serial);
        known.bytes -= gone.as_ref().map_or(0, |entry| entry.bytes);
        drop(known);
        drop(gone);
    }
}

impl Cache {
    /// Registers an allocation by the dma-buf `by`, or by its address if `by` is `None`; returns
    /// `None` if the registration fails.
    pub(crate) fn add_device(
        &mut self,
        memory: &DeviceMemory<'_>,
        by: Option<&(OwnedFd, u64)>,
    ) -> Option<Arc<Registered>> {
        let bytes = memory.region.len() as u64;
        if !self.make_room(bytes) {
            return None;
        }
        let register = |rail: &Arc<Rail>| match by {
            Some((fd, offset)) => rail.register_dmabuf(fd.as_raw_fd(), *offset, memory.region),
            None => rail.register(memory.region),
        };
        loop {
            let keys = self.rails().iter().map(register).collect::<Result<Vec<_>>>();
            match keys {
                Ok(keys) => {
                    let made = Arc::new(Registered::new(memory.region, keys));
                    self.devices.put(memory.serial, bytes, Some(Arc::clone(&made)));
                    return Some(made);
                }
                // Registration may succeed after other registrations are dropped.
                Err(error) if error.status() == DTL_ERROR_OUT_OF_MEMORY && self.drop_any() => {}
                Err(error) => {
                    self.refuse(memory, &error);
                    return None;
                }
            }
        }
    }

    fn refuse(&self, memory: &DeviceMemory<'_>, error: &Error) {
        let bytes = memory.region.len();
        let why = format!(
            "{bytes} bytes of {} memory cannot be registered: {}",
            memory.backend,
            error.text()
        );
        log::warning!("rdma: messages of device memory go through host memory from now on: {why}");
        self.devices.refuse(why);
    }

    pub(crate) fn has_no_dmabuf(&self, memory: &DeviceMemory<'_>, error: &Error) {
        self.devices.put(memory.serial, 0, None);
        if !std::mem::replace(&mut self.devices.0.lock().has_said, true) {
            log::warning!(
                "rdma: messages of an allocation of {} bytes of backend {} go through host memory: \
                 no dma-buf: {}",
                memory.region.len(),
                memory.backend,
                error.text()
            );
        }
    }
}

/// Returns the registration that a message of device memory came with.
pub(crate) fn registration(shadow: &HostShadow) -> Option<Arc<Registered>> {
    Arc::clone(&shadow.hold).downcast().ok()
}
