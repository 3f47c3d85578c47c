//! Adapter from the memory functions (`mem_*`) of a C comm table to [`WireDevices`] and
//! [`WireBuffers`]: the registrations of one communicator. Allocations of device memory stay
//! registered until they are freed, or until the transport has no room for another one. Each
//! message shares ownership of its allocation's registration. The functions of the table are called
//! only while the lock of the protocol engine is held, as its other functions are.

use super::call;
use super::comm::NativeWire;
use crate::abi::backend::vtable::*;
use crate::abi::devices::device::dtl_mem_info_t;
use crate::abi::status::{DTL_ERROR_LIMIT, DTL_ERROR_OUT_OF_MEMORY};
use crate::backend::p2p_protocol::{DeviceMapping, Wire, WireBuffers, WireDevices};
use crate::backend::reg_table::RegTable;
use crate::error::{Error, Result};
use crate::from_c::blank;
use crate::runtime::component::{
    DeviceBuffer, DeviceMemory, Hold, HostShadow, MemoryExport, MemoryPlace, OpId,
};
use crate::runtime::log;
use crate::sys::memory::buf::{Addr, Region};
use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// Registration of memory with a transport: the pointer that the transport has returned for it.
struct Registered(Addr);

/// Registered memory of one communicator.
#[derive(Default)]
pub(super) struct Registrations {
    /// Registrations of allocations, by their serial number.
    known: RegTable<Registered>,
    /// Buffers that the program has registered.
    buffers: Vec<Arc<Registered>>,
    /// Registrations whose memory was freed or deregistered while an operation used it.
    lingering: Vec<Arc<Registered>>,
    /// Serial numbers of the allocations that are staged.
    unfit: BTreeSet<u64>,
    /// True once a warning about an allocation that cannot be registered has been logged.
    has_warned: bool,
    /// Receives into device memory that are in flight.
    pub(super) receives: Vec<(OpId, Arc<HostShadow>)>,
}

fn describe(region: Region, place: MemoryPlace) -> dtl_mem_info_t {
    dtl_mem_info_t {
        device: place.device,
        backend: place.backend,
        kind: place.kind,
        base: region.addr().ptr(),
        size_bytes: region.len() as u64,
        ..blank()
    }
}

impl NativeWire {
    /// Returns how the transport accesses memory, as DTL_COMM_MEM_STAGED or another constant.
    fn memory_use(&self, region: Region, place: MemoryPlace) -> Result<i32> {
        let (info, mut way) = (describe(region, place), DTL_COMM_MEM_STAGED);
        call!(self.comm.mem_supports(self.object.ptr(), &raw const info, &raw mut way))?;
        if (DTL_COMM_MEM_STAGED..=DTL_COMM_MEM_DMABUF).contains(&way) {
            return Ok(way);
        }
        let text = format!(
            "wrote {way} into out_use: use DTL_COMM_MEM_STAGED, DTL_COMM_MEM_ADDRESS or \
             DTL_COMM_MEM_DMABUF"
        );
        Err(self.owner.invalid("comm.mem_supports", &text))
    }

    /// Registers memory. If the transport has no room, ends registrations that are not in use.
    fn begin(
        &mut self,
        region: Region,
        place: MemoryPlace,
        by: Option<&MemoryExport>,
    ) -> Result<Arc<Registered>> {
        self.end_lingering();
        let info = describe(region, place);
        let (fd, offset) = by.map_or((-1, 0), |(fd, offset)| (fd.as_raw_fd(), *offset));
        loop {
            let mut made = std::ptr::null_mut();
            let (comm, info, out) = (self.object.ptr(), &raw const info, &raw mut made);
            match call!(self.comm.mem_register(comm, info, fd, offset, out)) {
                Ok(()) => {
                    return Ok(Arc::new(Registered(
                        self.owner.not_null("comm.mem_register", made)?,
                    )));
                }
                Err(error)
                    if [DTL_ERROR_OUT_OF_MEMORY, DTL_ERROR_LIMIT].contains(&error.status()) =>
                {
                    let Some(oldest) = self.memory.known.remove_oldest() else { return Err(error) };
                    self.release(oldest);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn end(&self, registered: &Registered) -> Result<()> {
        call!(self.comm.mem_deregister(self.object.ptr(), registered.0.ptr()))
    }

    /// Ends a registration, or keeps it until the operations that use it are over.
    fn release(&mut self, registered: Arc<Registered>) {
        self.memory.lingering.push(registered);
        self.end_lingering();
    }

    fn end_lingering(&mut self) {
        for registered in std::mem::take(&mut self.memory.lingering) {
            if Arc::strong_count(&registered) > 1 {
                self.memory.lingering.push(registered);
            } else {
                log::failure(format_args!("deregistering memory"), self.end(&registered));
            }
        }
    }

    /// Ends all registrations before the communicator is closed.
    pub(super) fn end_registrations(&mut self) {
        let Registrations { mut known, buffers, lingering, .. } = std::mem::take(&mut self.memory);
        let known = known.drain();
        for registered in known.into_iter().chain(buffers).chain(lingering) {
            log::failure(format_args!("deregistering memory"), self.end(&registered));
        }
    }

    /// Records that an allocation is staged because its registration has failed.
    fn stage(&mut self, memory: &DeviceMemory<'_>, error: &Error) {
        self.memory.unfit.insert(memory.serial);
        if !std::mem::replace(&mut self.memory.has_warned, true) {
            log::warning!(
                "messages of an allocation of {} bytes of backend {} go through host memory: {}",
                memory.region.len(),
                memory.backend,
                error.text()
            );
        }
    }

    /// Ends the receive `op` into device memory, if it is one. `has_landed` is true if its bytes
    /// have arrived.
    #[cold]
    pub(super) fn end_receive(&mut self, op: OpId, has_landed: bool) {
        let receives = &mut self.memory.receives;
        let Some(index) = receives.iter().position(|(id, _)| *id == op) else { return };
        let (_, shadow) = receives.swap_remove(index);
        if has_landed {
            shadow.land();
        }
    }
}

impl WireDevices for NativeWire {
    fn find(&mut self, memory: &DeviceMemory<'_>, is_retry: bool) -> Result<DeviceMapping> {
        if let Some(known) = self.memory.known.find(|all| all.get_mut(&memory.serial)) {
            return Ok(DeviceMapping::Yes(known));
        }
        if !is_retry && self.memory.unfit.contains(&memory.serial) {
            return Ok(DeviceMapping::No);
        }
        let way = self.memory_use(memory.region, memory.place);
        match way.inspect_err(|error| self.stage(memory, error))? {
            DTL_COMM_MEM_STAGED => {
                self.memory.unfit.insert(memory.serial);
                Ok(DeviceMapping::No)
            }
            way => Ok(DeviceMapping::New { by_dmabuf: way == DTL_COMM_MEM_DMABUF }),
        }
    }

    fn add(&mut self, memory: &DeviceMemory<'_>, by: Option<Result<MemoryExport>>) -> Result<Hold> {
        // Another thread's message may have registered the allocation meanwhile.
        if let Some(known) = self.memory.known.find(|all| all.get_mut(&memory.serial)) {
            return Ok(known);
        }
        let made =
            by.transpose().and_then(|by| self.begin(memory.region, memory.place, by.as_ref()));
        let made = made.inspect_err(|error| self.stage(memory, error))?;
        self.memory.unfit.remove(&memory.serial);
        self.memory.known.add(memory.serial, &made, memory.region.len() as u64);
        Ok(made)
    }

    fn refusal(&self) -> Option<String> {
        None
    }

    fn freed(&mut self, serial: u64) {
        self.memory.unfit.remove(&serial);
        if let Some(gone) = self.memory.known.remove(serial) {
            self.release(gone);
        }
    }

    fn isend(&mut self, data: DeviceBuffer<'_>, dest: i32, word: u64) -> Result<OpId> {
        Wire::isend(self, data.device(), dest, word)
    }

    fn irecv(&mut self, data: DeviceBuffer<'_>, source: i32, word: u64) -> Result<OpId> {
        let op = Wire::irecv(self, data.device(), source, word)?;
        self.memory.receives.push((op, Arc::clone(data.shadow)));
        Ok(op)
    }
}

impl WireBuffers for NativeWire {
    fn register(&mut self, buffer: Region, place: MemoryPlace) -> Result<Option<Hold>> {
        if self.memory_use(buffer, place)? != DTL_COMM_MEM_ADDRESS {
            return Ok(None);
        }
        let made = self.begin(buffer, place, None)?;
        self.memory.buffers.push(Arc::clone(&made));
        Ok(Some(made))
    }

    fn deregister(&mut self, hold: Hold) -> Result<()> {
        let Ok(hold) = hold.downcast::<Registered>() else { return Ok(()) };
        self.memory.buffers.retain(|named| !Arc::ptr_eq(named, &hold));
        self.end(&hold)
    }
}
