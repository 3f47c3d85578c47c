//! Operations of a communicator in flight.

use super::atomic_op::Atomic;
use super::protocol::eager_slots::Note;
use super::window_memory::RemoteRegion;
use crate::backend::op_table::Operations;
use crate::backend::rdma::memory::reg_cache::Registered;
use crate::runtime::component::{Completion, HostShadow, OpId};
use crate::sys::memory::buf::Region;
use std::sync::Arc;

/// Operation in flight.
pub(crate) enum RdmaOperation {
    Receive(PayloadReceive),
    Send(PayloadSend),
    OneSided(OneSided),
    Atomic(Atomic),
    /// Completed operation, with the number of its window if it was one-sided.
    Done(Completion, Option<usize>),
}

/// Receive of a payload.
pub(crate) struct PayloadReceive {
    pub(crate) source: usize,
    pub(crate) word: u32,
    /// Receive buffer in host memory.
    pub(crate) into: Region,
    /// Buffer that devices write to: `into`, or the device memory that `into` shadows.
    pub(crate) place: Region,
    pub(crate) shadow: Option<Arc<HostShadow>>,
    /// Number of bytes that have arrived, or whose read has been posted.
    pub(crate) got: usize,
    /// Memory of the peer that is read from, if any; `parts` counts the reads in flight.
    pub(crate) from: Option<Note>,
    pub(crate) parts: u32,
    /// Registration of the buffer, held as long as the device may write to the buffer.
    pub(crate) hold: Option<Arc<Registered>>,
}

/// Send of a payload.
pub(crate) struct PayloadSend {
    pub(crate) dest: usize,
    pub(crate) word: u32,
    /// Send buffer in host memory.
    pub(crate) data: Region,
    /// Buffer that devices read from: `data`, or the device memory that `data` shadows.
    pub(crate) place: Region,
    pub(crate) shadow: Option<Arc<HostShadow>>,
    /// Number of bytes passed to the device or copied to slots.
    pub(crate) begun: usize,
    pub(crate) parts: u32,
    pub(crate) path: PayloadPath,
    pub(crate) hold: Option<Arc<Registered>>,
}

/// Path of a payload.
#[derive(Clone, Copy)]
pub(crate) enum PayloadPath {
    /// Payload sent in pieces through slots.
    Pieces,
    /// Payload written by the sender's device into the peer's memory.
    Write(Note),
    /// Payload announced to the peer (RTS), which reads the payload.
    Offered,
}

impl RdmaOperation {
    /// Completes the operation with `done`.
    pub(crate) fn end(&mut self, done: Completion) {
        *self = RdmaOperation::Done(done, self.on_window().map(|(window, _)| window));
    }

    /// Returns window number and target of a one-sided or atomic operation, `None` for others.
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
    pub(crate) place: RemoteRegion,
    pub(crate) local: Region,
    pub(crate) path: RmaDirection,
    pub(crate) begun: usize,
    pub(crate) parts: u32,
    pub(crate) hold: Option<Arc<Registered>>,
}

/// Counts one completed part of an operation; returns true if it was the last part in flight.
pub(crate) fn part_over(operations: &mut Operations<RdmaOperation>, op: OpId) -> bool {
    let parts = match operations.get_mut(op) {
        Some(RdmaOperation::Send(send)) => &mut send.parts,
        Some(RdmaOperation::Receive(receive)) => &mut receive.parts,
        Some(RdmaOperation::OneSided(one_sided)) => &mut one_sided.parts,
        _ => return false,
    };
    *parts = parts.saturating_sub(1);
    *parts == 0
}
