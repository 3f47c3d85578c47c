//! The operations of a communicator that are in flight.

use super::atomics::Atomic;
use super::protocol::eager_slots::Note;
use super::window;
use crate::backend::op_table::Operations;
use crate::backend::rdma::memory::reg_cache::Registered;
use crate::runtime::component::{Completion, HostShadow, OpId};
use crate::sys::memory::buf::Region;
use std::sync::Arc;

/// An operation in flight.
pub(in crate::backend::rdma) enum RdmaOperation {
    Receive(PayloadReceive),
    Send(PayloadSend),
    OneSided(OneSided),
    Atomic(Atomic),
    /// Over; on this window, if it was on one.
    Done(Completion, Option<usize>),
}

/// The receive of a payload.
pub(in crate::backend::rdma) struct PayloadReceive {
    pub(in crate::backend::rdma) source: usize,
    pub(in crate::backend::rdma) word: u32,
    /// The host's.
    pub(in crate::backend::rdma) into: Region,
    /// Where devices write: that, or device memory.
    pub(in crate::backend::rdma) place: Region,
    pub(in crate::backend::rdma) twin: Option<Arc<HostShadow>>,
    /// Bytes that are there, or whose reading has begun.
    pub(in crate::backend::rdma) got: usize,
    /// What is read from the peer, and reads under way.
    pub(in crate::backend::rdma) from: Option<Note>,
    pub(in crate::backend::rdma) parts: u32,
    /// Registered as long as the device may write there.
    pub(in crate::backend::rdma) hold: Option<Arc<Registered>>,
}

/// The send of a payload.
pub(in crate::backend::rdma) struct PayloadSend {
    pub(in crate::backend::rdma) dest: usize,
    pub(in crate::backend::rdma) word: u32,
    /// The host's.
    pub(in crate::backend::rdma) data: Region,
    /// Where devices read: that, or device memory.
    pub(in crate::backend::rdma) place: Region,
    pub(in crate::backend::rdma) twin: Option<Arc<HostShadow>>,
    /// Bytes that were handed on.
    pub(in crate::backend::rdma) begun: usize,
    pub(in crate::backend::rdma) parts: u32,
    pub(in crate::backend::rdma) way: PayloadPath,
    pub(in crate::backend::rdma) hold: Option<Arc<Registered>>,
}

/// How a payload goes.
#[derive(Clone, Copy)]
pub(in crate::backend::rdma) enum PayloadPath {
    /// Through slots.
    Pieces,
    /// Into the peer's memory.
    Write(Note),
    /// The peer reads it.
    Offered,
}

impl RdmaOperation {
    /// Ends it.
    pub(in crate::backend::rdma) fn end(&mut self, done: Completion) {
        *self = RdmaOperation::Done(done, self.on_window().map(|(window, _)| window));
    }

    /// The window that it is on, and the target.
    pub(in crate::backend::rdma) fn on_window(&self) -> Option<(usize, usize)> {
        match self {
            RdmaOperation::OneSided(one_sided) => Some((one_sided.window, one_sided.target)),
            RdmaOperation::Atomic(atomic) => Some((atomic.window, atomic.target)),
            _ => None,
        }
    }
}

/// A put or get.
pub(in crate::backend::rdma) struct OneSided {
    pub(in crate::backend::rdma) target: usize,
    pub(in crate::backend::rdma) window: usize,
    /// Where it goes to, or comes from.
    pub(in crate::backend::rdma) place: window::RemoteRegion,
    pub(in crate::backend::rdma) local: Region,
    pub(in crate::backend::rdma) way: window::RmaDirection,
    pub(in crate::backend::rdma) begun: usize,
    pub(in crate::backend::rdma) parts: u32,
    pub(in crate::backend::rdma) hold: Option<Arc<Registered>>,
}

/// One part less; whether that was the last.
pub(in crate::backend::rdma) fn part_over(
    operations: &mut Operations<RdmaOperation>,
    op: OpId,
) -> bool {
    let parts = match operations.get_mut(op) {
        Some(RdmaOperation::Send(send)) => &mut send.parts,
        Some(RdmaOperation::Receive(receive)) => &mut receive.parts,
        Some(RdmaOperation::OneSided(one_sided)) => &mut one_sided.parts,
        _ => return false,
    };
    *parts = parts.saturating_sub(1);
    *parts == 0
}
