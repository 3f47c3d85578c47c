//! [`DeviceCommPart`]: a communicator's state for collectives on device memory.

use super::{CollArgs, CollCall};
use crate::error::{Error, Result, fail};
use crate::runtime::comm::op_desc::Kind;
use crate::runtime::component::{DeviceComm, Refusal};
use crate::runtime::explain;
use crate::runtime::memory::device_only;
use crate::runtime::registry::Backend;
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Backend of a rank's device communicator, and the options for its use.
pub(crate) struct DeviceCommSpec {
    /// Backend of the device communicator; this reference keeps the backend loaded.
    pub(crate) backend: Arc<Backend>,
    /// True if collectives that the device library does not support are staged through host memory.
    pub(crate) stages: bool,
    /// True if reductions must give results that are bitwise identical to those of communicators
    /// that use other transports.
    pub(crate) is_deterministic: bool,
}

/// Device communicator of one rank, and the options for its use.
pub(crate) struct DeviceCommPart {
    pub(crate) comm: Box<dyn DeviceComm>,
    pub(crate) kind: &'static CStr,
    pub(super) wanted: DeviceCommSpec,
    pub(super) explained: AtomicBool,
}

impl DeviceCommPart {
    /// Returns true if the nonempty buffers are in memory of this device that the host cannot
    /// access. Fails if a buffer is in such memory of another device, or if only some buffers are
    /// in such memory.
    pub(super) fn holds(&self, args: &CollArgs) -> Result<bool> {
        let (backend, device) = self.comm.device();
        let (mut hidden, mut plain) = (None, None);
        let buffers = args.send.ranges().iter().chain(args.recv.ranges());
        for buffer in buffers.filter(|buffer| !buffer.is_empty()) {
            let Some(allocation) =
                device_only::allocation_of(*buffer)?.filter(|found| found.hidden)
            else {
                plain = Some(buffer);
                continue;
            };
            if (allocation.backend, allocation.device) != (backend, device) {
                return fail!(
                    DTL_ERROR_INVALID_ARGUMENT,
                    "{:?} is memory of another device than the communicator's, which is {}: \
                     allocate on that one, or open a communicator on the other",
                    buffer.addr(),
                    self.comm.describe()
                );
            }
            hidden = Some(buffer);
        }
        match (hidden, plain) {
            (Some(hidden), Some(plain)) => fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "{:?} is device memory and {:?} is memory that the host reaches: over kind \"{}\" \
                 all buffers of a collective are of one sort, on all ranks",
                hidden.addr(),
                plain.addr(),
                self.kind.to_string_lossy()
            ),
            (hidden, _) => Ok(hidden.is_some()),
        }
    }

    /// Returns the reason why the device communicator does not execute a collective; `None` if it
    /// does.
    pub(super) fn refuses(&self, call: &CollCall<'_>) -> Result<Option<Refusal>> {
        let args = call.args;
        if args.neighbors.is_some() {
            return Ok(Some("each rank has other neighbors".into()));
        }
        let is_prefix = matches!(args.kind, Kind::Scan | Kind::Exscan);
        if args.reduction.is_some() && !is_prefix && self.wanted.is_deterministic {
            let why =
                "it takes operands in an order of its own, and the communicator is deterministic";
            return Ok(Some(why.into()));
        }
        self.comm.refuses(call)
    }

    pub(super) fn explain_once(&self, error: &Error) {
        if !self.explained.swap(true, Ordering::Relaxed) {
            let topic =
                format!("collectives of device memory over {}", self.kind.to_string_lossy());
            explain::chose(
                &topic,
                &format!("staged where need be (DTL_COMM_STAGE); first: {}", error.text()),
            );
        }
    }
}
