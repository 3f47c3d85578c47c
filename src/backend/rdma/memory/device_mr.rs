//! Registrations of device memory: one for each allocation that has contained the buffer of a large
//! message. An allocation is registered by its dma-buf or by its address.
//!
//! These registrations count towards the limit of the host registrations (`reg_cache`). Freeing an
//! allocation ends its registration, before the allocation's backend is called: a registration pins
//! the device's pages, and a registration by address would cover whatever is allocated at that
//! address next. A registration is identified by the allocation's serial number, so a later
//! allocation at the same address never matches. A message shares ownership of its allocation's
//! registration.
//!
//! If a backend cannot export a dma-buf for an allocation, that result is cached. If the device or
//! the kernel rejects a registration, no further registration is tried. Both cases are logged once.

use super::reg_cache::{Cache, Registered};
use crate::abi::status::DTL_ERROR_OUT_OF_MEMORY;
use crate::backend::rdma::verbs::rail::Rail;
use crate::backend::reg_table::RegTable;
use crate::error::{Error, Result, fail};
use crate::runtime::component::{DeviceMemory, HostShadow, MemoryExport};
use crate::runtime::log;
use crate::sys::memory::buf::Region;
use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// Host memory of a payload, and the `HostShadow` if the payload is in device memory.
pub(crate) type PayloadBuffer<'a> = (Region, Option<&'a Arc<HostShadow>>);

/// Registrations of device memory, and of buffers of the program.
#[derive(Default)]
pub(crate) struct Registrations {
    /// Registrations, by the serial number of their allocation.
    pub(super) known: RegTable<Registered>,
    /// Buffers that the program has registered and that are not in the library's own memory. They
    /// do not count towards the limit.
    pub(super) buffers: Vec<Arc<Registered>>,
    /// Serial numbers of the allocations that cannot be registered.
    unfit: BTreeSet<u64>,
    /// Reason why device memory is no longer registered; `None` if no registration has been
    /// rejected.
    pub(crate) refusal: Option<String>,
    /// True once a warning has been logged that a backend cannot export a dma-buf for an
    /// allocation.
    has_said: bool,
}

impl Registrations {
    /// Returns the number of registered bytes of device memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.known.bytes()
    }

    /// Returns the registration of an allocation; `Some(None)` if it cannot be registered, `None`
    /// if that is unknown.
    pub(crate) fn find(&mut self, serial: u64) -> Option<Option<Arc<Registered>>> {
        match self.known.find(|all| all.get_mut(&serial)) {
            None => self.unfit.contains(&serial).then_some(None),
            registered => Some(registered),
        }
    }

    /// Ends the registration of an allocation that is about to be freed.
    pub(crate) fn freed(&mut self, serial: u64) {
        self.unfit.remove(&serial);
        drop(self.known.remove(serial));
    }
}

impl Cache {
    /// Registers an allocation through its dma-buf (`by`: file descriptor and offset), or by its
    /// address if `by` is `None`.
    pub(crate) fn add_device(
        &mut self,
        memory: &DeviceMemory<'_>,
        by: Option<&MemoryExport>,
    ) -> Result<Arc<Registered>> {
        if !self.make_room(memory.region.len() as u64) {
            return fail!(
                DTL_ERROR_LIMIT,
                "operations in flight use all the memory that may be registered: complete some of \
                 them, or raise cache_bytes"
            );
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
                    self.devices.known.add(memory.serial, &made, memory.region.len() as u64);
                    self.devices.unfit.remove(&memory.serial);
                    return Ok(made);
                }
                // Registration may succeed after other registrations are dropped.
                Err(error) if error.status() == DTL_ERROR_OUT_OF_MEMORY && self.drop_any() => {}
                Err(error) => {
                    self.refuse(memory, &error);
                    return Err(error);
                }
            }
        }
    }

    fn refuse(&mut self, memory: &DeviceMemory<'_>, error: &Error) {
        let bytes = memory.region.len();
        let why = format!(
            "{bytes} bytes of {} memory cannot be registered: {}",
            memory.backend,
            error.text()
        );
        log::warning!("rdma: messages of device memory go through host memory from now on: {why}");
        self.devices.refusal = Some(why);
    }

    pub(crate) fn has_no_dmabuf(&mut self, memory: &DeviceMemory<'_>, error: &Error) {
        self.devices.unfit.insert(memory.serial);
        let has_said = std::mem::replace(&mut self.devices.has_said, true);
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

    /// Returns the registration of a payload's buffer: the registration in the `HostShadow` for a
    /// message in device memory, else that of the host memory; `None` if the buffer is not
    /// registered.
    pub(crate) fn hold_of(&mut self, (host, shadow): PayloadBuffer<'_>) -> Option<Arc<Registered>> {
        match shadow {
            Some(shadow) => Arc::clone(&shadow.hold).downcast().ok(),
            None => self.get(host),
        }
    }
}
