//! Buffers that the program registers with a communicator (`dtl_comm_register`) because it uses
//! them again and again.
//!
//! Host memory is registered with the transport. Device memory is registered by the device
//! communicator if there is one. Otherwise the transport registers the whole allocation, as for a
//! message in it, and the registration stays until the program ends it or frees the memory. Where
//! nothing is to be registered, the buffer is only recorded, so that the calls fail for the same
//! reasons on every communicator.

use super::buffer_list::{Buffer, BufferState};
use crate::abi::word::DTL_MEMORY_HOST;
use crate::error::{Result, fail};
use crate::runtime::comm::Comm;
use crate::runtime::comm::coll::device_part::DeviceCommPart;
use crate::runtime::comm::comm_state::CommState;
use crate::runtime::comm::diagnostics::hang_report;
use crate::runtime::comm::p2p::gpu_direct;
use crate::runtime::component::{MemoryPlace, Registration};
use crate::runtime::log;
use crate::runtime::memory::{Allocation, device_only, host_alloc};
use crate::sys::memory::buf::{Addr, Region};

/// Registers a buffer of at least one byte.
pub fn register(comm: &Comm, buffer: Region) -> Result<()> {
    comm.check_open()?;
    let first = buffer.addr().get();
    let mut all = comm.buffers.lock();
    let before = all.range(..first + buffer.len()).next_back();
    if let Some((_, known)) = before.filter(|(_, known)| known.region.overlaps(buffer)) {
        return fail!(
            DTL_ERROR_ALREADY_EXISTS,
            "buf: {} bytes at {:?} overlap {} bytes at {:?}, which are registered with this \
             communicator: call dtl_comm_deregister first, or register both as one buffer",
            buffer.len(),
            buffer.addr(),
            known.region.len(),
            known.region.addr()
        );
    }
    all.insert(first, Buffer { region: buffer, state: BufferState::Pending });
    drop(all);
    // The lock is not held, because registration may take long.
    let begun = begin(comm, buffer);
    hang_report::send_notices(comm);
    let mut all = comm.buffers.lock();
    // `destroy` calls `end_all` after it has closed the communicator. `end_all` may have run
    // meanwhile, and cannot end a registration that is pending.
    let is_closed = comm.standing.state() == CommState::Closed;
    let state = match begun {
        Ok(state) if !is_closed => {
            all.insert(first, Buffer { region: buffer, state });
            return Ok(());
        }
        begun => {
            all.remove(&first);
            begun?
        }
    };
    drop(all);
    log::failure(
        format_args!("deregistering a buffer"),
        end(comm, Buffer { region: buffer, state }),
    );
    Err(comm.ended())
}

fn begin(comm: &Comm, buffer: Region) -> Result<BufferState> {
    const NOTHING: BufferState = BufferState::Kept { _hold: None };
    let found = device_only::allocation_at(buffer)?;
    let place = found.as_ref().map_or_else(host, |(_, found)| place_of(found));
    if !found.as_ref().is_some_and(|(_, found)| found.hidden) {
        if let Some((all, _)) = found.filter(|(all, _)| !buffer.is_inside(*all)) {
            let offset = buffer.addr().get() - all.addr().get();
            return fail!(
                DTL_ERROR_OUT_OF_BOUNDS,
                "buf is at offset {offset} of an allocation of {} bytes at {:?}, and size_bytes is \
                 {}: pass at most {}",
                all.len(),
                all.addr(),
                buffer.len(),
                all.len() - offset
            );
        }
        let transport = comm.link.transport.groups().registration;
        let made = transport.map_or(Ok(None), |transport| transport.register(buffer, place))?;
        return Ok(made.map_or(NOTHING, BufferState::Transport));
    }
    let is_of_part = |part: &DeviceCommPart| part.comm.device() == (place.backend, place.device);
    if comm.device.as_deref().is_some_and(|part| !is_of_part(part)) {
        return Ok(NOTHING);
    }
    if let Some(part) = device_part(comm) {
        let made = part.register(buffer, place)?;
        return Ok(made.map_or(NOTHING, BufferState::Device));
    }
    let Some(direct) = comm.link.direct() else { return Ok(NOTHING) };
    let held = gpu_direct::hold(comm, direct, buffer, true)?;
    Ok(BufferState::Kept { _hold: held.map(|(hold, _)| hold) })
}

fn place_of(found: &Allocation) -> MemoryPlace {
    let &Allocation { backend, kind, device, .. } = found;
    MemoryPlace { backend, kind, device }
}

fn device_part(comm: &Comm) -> Option<&dyn Registration> {
    comm.device.as_ref()?.comm.registration()
}

/// Ends the registration of the buffer that begins at `addr`.
pub fn deregister(comm: &Comm, addr: Addr) -> Result<()> {
    let mut all = comm.buffers.lock();
    let is_ready = |known: &&Buffer| !matches!(known.state, BufferState::Pending);
    let Some(known) = all.get(&addr.get()).filter(is_ready) else {
        return fail!(
            DTL_ERROR_NOT_FOUND,
            "buf {addr:?} is not the first byte of a buffer that is registered with this \
             communicator: pass the `buf` of dtl_comm_register"
        );
    };
    let part = match known.state {
        BufferState::Device(_) => device_part(comm),
        _ => comm.link.transport.groups().registration,
    };
    if part.is_some_and(|part| part.is_in_use(known.region)) {
        return fail!(
            DTL_ERROR_BUSY,
            "buf {addr:?}: an operation in flight uses this buffer of {} bytes: complete it first",
            known.region.len()
        );
    }
    let known = all.remove(&addr.get());
    drop(all);
    known.map_or(Ok(()), |known| end(comm, known))
}

/// Ends the registrations of all buffers of a communicator that is destroyed.
pub(crate) fn end_all(comm: &Comm) {
    let mut all = comm.buffers.lock();
    if all.is_empty() {
        return; // taking an empty map apart costs more than this
    }
    let taken = std::mem::take(&mut *all);
    drop(all);
    for (_, buffer) in taken {
        log::failure(format_args!("deregistering a buffer"), end(comm, buffer));
    }
}

fn end(comm: &Comm, buffer: Buffer) -> Result<()> {
    let (part, hold) = match buffer.state {
        BufferState::Pending | BufferState::Kept { .. } => return Ok(()),
        BufferState::Transport(hold) => (comm.link.transport.groups().registration, hold),
        BufferState::Device(hold) => (device_part(comm), hold),
    };
    part.map_or(Ok(()), |part| part.deregister(hold))
}

/// Returns the place of host memory that the program has allocated.
fn host() -> MemoryPlace {
    MemoryPlace { backend: host_alloc::backend(), kind: DTL_MEMORY_HOST, device: 0 }
}
