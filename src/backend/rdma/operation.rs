//! Operations that are in flight on a communicator.

use super::atomic_op::Atomic;
use super::protocol::eager_slots::Note;
use super::verbs::qp::Remote;
use crate::backend::op_table::Operations;
use crate::backend::rdma::memory::reg_cache::Registered;
use crate::runtime::component::{Completion, HostShadow, OpId};
use crate::sys::memory::buf::Region;
use std::sync::Arc;

/// Operation in flight.
pub(crate) enum RdmaOperation {
    Payload(Payload),
    OneSided(OneSided),
    Atomic(Atomic),
    /// Completed operation, with the number of its window if it was one-sided.
    Done(Completion, Option<usize>),
}

/// Payload that is sent or received.
pub(crate) struct Payload {
    /// Rank of the other side.
    pub(crate) rank: usize,
    pub(crate) word: u32,
    /// Buffer in host memory.
    pub(crate) host: Region,
    /// Buffer that the network cards access: `host`, or the device memory for which `host` is the
    /// staging buffer.
    pub(crate) place: Region,
    pub(crate) shadow: Option<Arc<HostShadow>>,
    /// Number of bytes that have arrived, that were copied to send slots (registered buffers), or
    /// whose RDMA write or read has been posted.
    pub(crate) moved: usize,
    /// Number of RDMA writes or reads in flight.
    pub(crate) parts: u32,
    pub(crate) path: PayloadPath,
    /// Registration of the buffer, held as long as a device may access the buffer.
    pub(crate) hold: Option<Arc<Registered>>,
}

/// Path of a payload.
#[derive(Clone, Copy)]
pub(crate) enum PayloadPath {
    /// Payload copied to send slots (registered buffers) and sent in fragments.
    Fragments,
    /// Payload written into the peer's memory by the sender's network card (RDMA write).
    Write(Note),
    /// Payload announced to the peer (RTS), which reads the payload.
    Offered,
    /// Payload to be received in fragments or by RDMA writes from the sender's network card.
    Awaited,
    /// Payload that the receiver's network card reads from the peer's memory.
    Read(Note),
}

impl Payload {
    /// Returns the number of bytes to write to, or read from, the peer's memory `there`.
    pub(crate) fn direct_len(&self, there: &Note) -> usize {
        (there.len as usize).min(self.host.len())
    }
}

impl RdmaOperation {
    /// Completes the operation with `done`.
    pub(crate) fn end(&mut self, done: Completion) {
        *self = RdmaOperation::Done(done, self.on_window().map(|(window, _)| window));
    }

    /// Returns the window number and the target of a one-sided or atomic operation, or `None` for
    /// any other operation.
    pub(crate) fn on_window(&self) -> Option<(usize, usize)> {
        match self {
            RdmaOperation::OneSided(one_sided) => Some((one_sided.window, one_sided.target)),
            RdmaOperation::Atomic(atomic) => Some((atomic.window, atomic.target)),
            _ => None,
        }
    }
}

/// Direction of a one-sided transfer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RmaDirection {
    Put,
    Get,
}

/// Put or get operation.
pub(crate) struct OneSided {
    pub(crate) target: usize,
    pub(crate) window: usize,
    /// Remote memory that is written (put) or read (get).
    pub(crate) place: Remote,
    pub(crate) local: Region,
    pub(crate) path: RmaDirection,
    pub(crate) begun: usize,
    pub(crate) parts: u32,
    pub(crate) hold: Option<Arc<Registered>>,
}

/// Counts one completed part (work request) of an operation; returns true if no other part is in
/// flight.
pub(crate) fn part_over(operations: &mut Operations<RdmaOperation>, op: OpId) -> bool {
    let parts = match operations.get_mut(op) {
        Some(RdmaOperation::Payload(payload)) => &mut payload.parts,
        Some(RdmaOperation::OneSided(one_sided)) => &mut one_sided.parts,
        _ => return false,
    };
    *parts = parts.saturating_sub(1);
    *parts == 0
}
