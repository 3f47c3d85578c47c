//! Cache of host memory registrations. Later messages whose buffers are in the same memory reuse a
//! registration.
//!
//! Only memory from the library's own allocator is registered, one mapping at a time. The allocator
//! reports when pages are returned to the system, and registrations of such pages are released
//! before the next lookup. The library is not notified when the program's own memory is unmapped,
//! and pages mapped later at that address would not be the pages that the device has registered. So
//! messages whose buffers are in the program's own memory are copied through registered buffers
//! (`eager_slots`), unless the program has registered the buffer (`dtl_comm_register`).

use super::device_mr::Registrations;
use crate::abi::status::DTL_ERROR_OUT_OF_MEMORY;
use crate::backend::rdma::protocol::eager_slots::RAILS;
use crate::backend::rdma::verbs::rail::{Rail, Registration};
use crate::backend::reg_table::RegTable;
use crate::error::Result;
use crate::sys::memory::buf::Region;
use crate::sys::memory::heap::{self, UnmapWatcher};
use std::sync::Arc;

/// Memory mapping that is registered on each rail.
pub(crate) struct Registered {
    pub(super) region: Region,
    /// Registration on each rail, by rail index.
    pub(super) keys: Vec<Registration>,
}

impl Registered {
    /// Returns the local key (lkey) of the mapping on a rail; 0 if the rail does not exist.
    pub(crate) fn lkey(&self, rail: usize) -> u32 {
        self.keys.get(rail).map_or(0, |keys| keys.lkey)
    }

    /// Returns the remote keys (rkeys) of the mapping, by rail index; 0 for each index without a
    /// rail.
    pub(crate) fn rkeys(&self) -> [u32; RAILS] {
        let mut all = [0; RAILS];
        all.iter_mut().zip(&self.keys).for_each(|(to, keys)| *to = keys.rkey);
        all
    }
}

/// Registers a region on all rails, or on none if one fails.
pub(crate) fn register(rails: &[Arc<Rail>], region: Region) -> Result<Registered> {
    let keys = rails.iter().map(|rail| rail.register(region)).collect::<Result<Vec<_>>>()?;
    Ok(Registered { region, keys })
}

/// Registration cache: memory regions of the library's allocator, kept registered on all rails.
pub(crate) struct Cache {
    pub(super) rails: Vec<Arc<Rail>>,
    /// Registrations of host memory, by address.
    host: RegTable<Registered>,
    limit: u64,
    returned: UnmapWatcher,
    /// Registrations of device memory; their bytes count towards `limit`, too.
    pub(crate) devices: Box<Registrations>,
    /// True after a registration has failed. No further registration is attempted until an existing
    /// one is released.
    is_full: bool,
}

impl Cache {
    pub(crate) fn new(rails: &[Arc<Rail>], limit: u64) -> Cache {
        Cache {
            rails: rails.to_vec(),
            host: RegTable::default(),
            limit,
            returned: heap::watch_returned(),
            devices: Box::default(),
            is_full: false,
        }
    }

    /// Returns the registration that contains `region`; returns `None` if the region cannot be
    /// registered. The caller must hold the result while the region is in use.
    pub(crate) fn get(&mut self, region: Region) -> Option<Arc<Registered>> {
        if let Some(named) =
            self.devices.buffers.iter().find(|named| region.is_inside(named.region))
        {
            return Some(Arc::clone(named));
        }
        self.mapping_of(region)
    }

    /// Returns the registration of the allocator's mapping that contains `region`; returns `None`
    /// if there is no such mapping, or if it cannot be registered.
    fn mapping_of(&mut self, region: Region) -> Option<Arc<Registered>> {
        self.forget_returned();
        let (at, end) = (region.addr().get(), region.addr().get().checked_add(region.len())?);
        let known = self.host.find(|all| {
            let (_, entry) = all.range_mut(..=at as u64).next_back()?;
            let of = entry.registered.region;
            (end <= of.addr().get() + of.len()).then_some(entry)
        });
        if known.is_some() { known } else { self.add(heap::mapping(region)?) }
    }

    /// Registers a buffer that the program names: memory of the library's allocator with its whole
    /// mapping, other memory by itself.
    pub(crate) fn register_buffer(&mut self, buffer: Region) -> Result<Arc<Registered>> {
        if let Some(known) = self.mapping_of(buffer) {
            return Ok(known);
        }
        loop {
            match register(&self.rails, buffer) {
                Ok(made) => {
                    let made = Arc::new(made);
                    self.devices.buffers.push(Arc::clone(&made));
                    return Ok(made);
                }
                Err(error) if error.status() != DTL_ERROR_OUT_OF_MEMORY || !self.drop_any() => {
                    return Err(error);
                }
                Err(_) => {}
            }
        }
    }

    /// Ends the registration of a buffer that the program names.
    pub(crate) fn deregister_buffer(&mut self, hold: &Arc<Registered>) {
        self.devices.buffers.retain(|named| !Arc::ptr_eq(named, hold));
    }

    fn add(&mut self, mapping: Region) -> Option<Arc<Registered>> {
        let bytes = mapping.len() as u64;
        if self.is_full || !self.make_room(bytes) {
            return None;
        }
        let made = loop {
            match register(&self.rails, mapping) {
                Ok(made) => break Arc::new(made),
                // A limit of the process or the device is reached. Registration may succeed after
                // other registrations are dropped.
                Err(_) if self.drop_any() => {}
                Err(error) => {
                    crate::runtime::log::warning!(
                        "{} bytes cannot be registered, messages in them go through slots: {}",
                        mapping.len(),
                        error.text()
                    );
                    self.is_full = true;
                    return None;
                }
            }
        };
        self.host.add(mapping.addr().get() as u64, &made, bytes);
        Some(made)
    }

    /// Drops unused registrations until `bytes` more bytes can be registered within the limit;
    /// returns false if that is not possible.
    pub(crate) fn make_room(&mut self, bytes: u64) -> bool {
        while bytes <= self.limit && self.bytes() + bytes > self.limit {
            if !self.drop_any() {
                return false;
            }
        }
        bytes <= self.limit
    }

    /// Drops one registration that is not in use; returns false if no such registration exists.
    pub(crate) fn drop_any(&mut self) -> bool {
        if self.host.remove_oldest().is_some() {
            self.is_full = false;
            return true;
        }
        self.devices.known.remove_oldest().is_some()
    }

    /// Releases registrations of pages that have been returned to the system.
    fn forget_returned(&mut self) {
        if !self.returned.is_any() {
            return;
        }
        for gone in self.returned.take() {
            let hit = self.host.keys(|registered| registered.region.overlaps(gone));
            self.is_full &= hit.is_empty();
            hit.into_iter().for_each(|at| drop(self.host.remove(at)));
        }
    }

    /// Returns the number of registered bytes of host and device memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.host.bytes() + self.devices.bytes()
    }
}
