//! Large messages in device memory that the transport transfers without staging
//! (`component::Direct`). Each message also has a host buffer, whose pages are allocated only if
//! the message is staged through host memory. Therefore a message can still be staged after its
//! start, if it turns out to be short or if the peer does not support the direct transfer. Only the
//! transport's network device accesses the device memory.
//!
//! If a message is staged, the thread that waits for it or makes progress on it copies the bytes.
//! This thread holds no lock except the lock of the request, as for all staged messages
//! (`p2p_staging`). The thread that starts the message obtains the dma-buf from the backend, and
//! holds no lock during that call.

use super::op_handle::OpHandle;
use super::p2p_staging;
use crate::abi::comm::communicator::DTL_PROC_NULL;
use crate::error::{Result, fail, failure};
use crate::runtime::comm::Comm;
use crate::runtime::comm::diagnostics::hang_report;
use crate::runtime::comm::shared_transport::Class;
use crate::runtime::component::{
    DeviceBuffer, DeviceMemory, Direct, Hold, HostShadow, MemoryExport, MemoryPlace, SendMode,
};
use crate::runtime::memory::{self, Allocation, device_only};
use crate::runtime::registry;
use crate::sys::handles::epoch;
use crate::sys::memory::buf::Region;
use crate::sys::os::process;
use std::sync::Arc;

/// Creates the `HostShadow` of a device buffer, which records whether the bytes of the message are
/// in the device buffer or in host memory. Returns `None` if the message has to be staged.
pub(crate) fn host_shadow(comm: &Comm, buffer: Region) -> Result<Option<Arc<HostShadow>>> {
    let Some(direct) = comm.link.direct() else { return Ok(None) };
    if buffer.len() <= direct.above() {
        return Ok(None);
    }
    let held = hold(comm, direct, buffer, false)?;
    Ok(held.map(|(hold, _)| Arc::new(HostShadow::new(buffer, hold))))
}

/// Returns the object that keeps the device memory of `buffer` accessible to the transport, and the
/// place of that memory. Returns `None` if the buffer has to be staged. If `is_explicit` is true,
/// because the program registers the buffer, a failed registration is an error.
pub(crate) fn hold(
    comm: &Comm,
    direct: &dyn Direct,
    buffer: Region,
    is_explicit: bool,
) -> Result<Option<(Hold, MemoryPlace)>> {
    match direct.refusal() {
        Some(why) if is_explicit => return fail!(DTL_ERROR_NOT_SUPPORTED, "{}", refused(&why)),
        Some(_) => return Ok(None),
        None => {}
    }
    let Some((all, allocation)) = device_only::allocation_at(buffer)? else { return Ok(None) };
    // Memory that another process or library allocated is staged without a report to `dtl_explain`.
    if !allocation.hidden || allocation.imported {
        return Ok(None);
    }
    let inside = epoch::enter();
    let backend = registry::find(&inside, allocation.backend)?;
    let export = || export(all);
    let Allocation { backend: owner, kind, device, .. } = allocation;
    let place = MemoryPlace { backend: owner, kind, device };
    let memory = DeviceMemory {
        backend: backend.name(),
        place,
        region: all,
        serial: allocation.serial,
        export: &export,
    };
    let hold = direct.hold(&memory, is_explicit);
    hang_report::send_notices(comm);
    check_is_there(buffer, &allocation)?;
    let Some(hold) = hold? else {
        p2p_staging::explain_staged(comm, &allocation, direct.refusal());
        return Ok(None);
    };
    Ok(Some((hold, place)))
}

/// Fails if the device buffer has been freed or no longer belongs to the allocation `was`, to which
/// it belonged before the calling thread exported that allocation.
fn check_is_there(buffer: Region, was: &Allocation) -> Result<()> {
    match device_only::allocation_of(buffer)? {
        Some(is) if is.serial == was.serial => Ok(()),
        _ => {
            device_only::notify_freed(was.serial);
            fail!(
                DTL_ERROR_INVALID_STATE,
                "the device buffer of a message was freed before the message began"
            )
        }
    }
}

/// Exports the allocation `all` as a dma-buf.
fn export(all: Region) -> Result<MemoryExport> {
    let (given, offset) = memory::dmabuf(&epoch::enter(), all)?;
    let fd = process::new_fd(given)
        .map_err(|error| failure!(DTL_ERROR_LIMIT, "a dma-buf's descriptor: {error}"))?;
    Ok((fd, offset))
}

/// Returns the text in which `dtl_explain` describes how messages in device buffers are
/// transferred.
pub(crate) fn text(direct: &dyn Direct) -> String {
    if let Some(why) = direct.refusal() {
        return refused(&why);
    }
    format!(
        "direct: messages of more than {} bytes of memory that was allocated here; others, and \
         collectives, are staged through host memory",
        direct.above()
    )
}

/// Returns the text in which `dtl_explain` reports that all device buffers are staged, for the
/// reason `why`.
pub(crate) fn refused(why: &str) -> String {
    format!("staged through host memory, each message as a whole: {why}")
}

impl Comm {
    /// Starts a send of a device buffer. If the transport cannot access device memory, starts a
    /// send of the host buffer of `data`.
    pub(crate) fn start_send_shadow(
        &self,
        data: DeviceBuffer<'_>,
        (dest, tag, mode): (i32, i32, SendMode),
    ) -> Result<OpHandle> {
        let Some(direct) = self.link.direct() else {
            return self.start_send(Class::User, data.host, dest, tag, mode);
        };
        let word = self.match_bits(Class::User, tag);
        direct.isend(data, self.to_world(dest), word, mode).map(OpHandle::Op)
    }

    /// Starts a receive into a device buffer. If the transport cannot access device memory, starts
    /// a receive into the host buffer of `data`.
    pub(crate) fn start_recv_shadow(
        &self,
        data: DeviceBuffer<'_>,
        source: i32,
        tag: i32,
    ) -> Result<OpHandle> {
        let Some(direct) = self.link.direct().filter(|_| source != DTL_PROC_NULL) else {
            return self.start_recv(Class::User, data.host, source, tag);
        };
        let op = direct.irecv(data, self.selector(Class::User, source, tag))?;
        Ok(OpHandle::recv(op, source))
    }
}
