//! Registrations of device memory: one for each allocation that has contained the buffer of a large
//! message. An allocation is registered by its dma-buf or by its address.
//!
//! These registrations count towards the limit of the host registrations (`reg_cache`). Freeing an
//! allocation ends its registration, in the thread that frees the allocation and before the
//! allocation's backend is called: a registration pins the device's pages, and a registration by
//! address would cover whatever is allocated at that address next. A registration is identified by
//! the allocation's serial number, so a later allocation at the same address never matches. A
//! message shares ownership of its allocation's registration.
//!
//! If a backend cannot export a dma-buf for an allocation, that result is cached. If the device or
//! the kernel rejects a registration, no further registration is tried. Both cases are logged once.

use super::reg_cache::{Cache, RegTable, Registered};
use crate::abi::status::DTL_ERROR_OUT_OF_MEMORY;
use crate::backend::rdma::verbs::rail::Rail;
use crate::error::{Error, Result};
use crate::runtime::component::{DeviceMemory, HostShadow};
use crate::runtime::log;
use crate::runtime::memory::device_only::{self, Watcher};
use crate::sys::memory::buf::Region;
use crate::sys::sync::lock::Mutex;
use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// Registrations of device memory, keyed by allocation. The mutex is innermost: no other lock is
/// acquired while it is held.
#[derive(Default)]
pub(crate) struct Registrations(Mutex<DeviceMrTable>);

#[derive(Default)]
struct DeviceMrTable {
    /// Registrations, by the serial number of their allocation.
    known: RegTable,
    /// Serial numbers of the allocations that cannot be registered.
    unfit: BTreeSet<u64>,
    /// Reason why device memory is no longer registered; `None` if no registration has been
    /// rejected.
    refusal: Option<String>,
    /// True once a warning has been logged that a backend cannot export a dma-buf for an
    /// allocation.
    has_said: bool,
}

impl Registrations {
    /// Creates an empty set, which is notified when device memory is freed.
    pub(crate) fn new() -> Arc<Registrations> {
        let all = Arc::new(Registrations::default());
        let watcher: Arc<dyn Watcher> = Arc::clone(&all) as Arc<dyn Watcher>;
        device_only::watch(Arc::downgrade(&watcher));
        all
    }

    /// Returns the number of registered bytes of device memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.lock().known.bytes
    }

    /// Returns the registration of an allocation; `Some(None)` if it cannot be registered, `None`
    /// if that is unknown.
    pub(crate) fn find(&self, serial: u64) -> Option<Option<Arc<Registered>>> {
        let mut table = self.0.lock();
        match table.known.find(|all| all.get_mut(&serial)) {
            None => table.unfit.contains(&serial).then_some(None),
            registered => Some(registered),
        }
    }

    /// Drops the least recently used registration that is not in use; returns false if no such
    /// registration exists.
    pub(crate) fn drop_oldest(&self) -> bool {
        let gone = self.0.lock().known.remove_oldest();
        gone.is_some() // the registration is dropped without the lock
    }

    pub(crate) fn refusal(&self) -> Option<String> {
        self.0.lock().refusal.clone()
    }
}

impl Watcher for Registrations {
    fn freed(&self, serial: u64) {
        let mut table = self.0.lock();
        table.unfit.remove(&serial);
        let gone = table.known.remove(serial);
        drop(table);
        drop(gone);
    }
}

impl Cache {
    /// Registers an allocation through its dma-buf (`by`: file descriptor and offset), or by its
    /// address if `by` is `None`. Returns `None` if the allocation cannot be registered.
    pub(crate) fn add_device(
        &mut self,
        memory: &DeviceMemory<'_>,
        by: Option<&(OwnedFd, u64)>,
    ) -> Option<Arc<Registered>> {
        if !self.make_room(memory.region.len() as u64) {
            return None;
        }
        let register = |rail: &Arc<Rail>| match by {
            Some((fd, offset)) => rail.register_dmabuf(fd.as_raw_fd(), *offset, memory.region),
            None => rail.register(memory.region),
        };
        loop {
            let keys = self.rails.iter().map(register).collect::<Result<Vec<_>>>();
            match keys {
                Ok(keys) => {
                    let made = Arc::new(Registered { region: memory.region, keys });
                    self.devices.0.lock().known.add(memory.serial, &made);
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
        self.devices.0.lock().refusal = Some(why);
    }

    pub(crate) fn has_no_dmabuf(&self, memory: &DeviceMemory<'_>, error: &Error) {
        let mut table = self.devices.0.lock();
        table.unfit.insert(memory.serial);
        let has_said = std::mem::replace(&mut table.has_said, true);
        drop(table);
        if !has_said {
            log::warning!(
                "rdma: messages of an allocation of {} bytes of backend {} go through host memory: \
                 no dma-buf: {}",
                memory.region.len(),
                memory.backend,
                error.text()
            );
        }
    }

    /// Returns the registration of a payload's buffer: the registration in `shadow` for a message
    /// in device memory, else that of `host`; `None` if the buffer is not registered.
    pub(crate) fn hold_of(
        &mut self,
        host: Region,
        shadow: Option<&Arc<HostShadow>>,
    ) -> Option<Arc<Registered>> {
        match shadow {
            Some(shadow) => Arc::clone(&shadow.hold).downcast().ok(),
            None => self.get(host),
        }
    }
}
