//! [`OpHandle`]: handle of a started operation, with the information that a poll of the operation
//! needs.

use crate::abi::comm::communicator::DTL_ANY_SOURCE;
use crate::runtime::component::OpId;

/// Handle of a started operation.
#[derive(Clone, Copy)]
pub(crate) enum OpHandle {
    /// Operation whose peer is DTL_PROC_NULL. It is complete without having been started.
    Nothing,
    /// Send that completed when it was started.
    Sent,
    /// Operation in flight in the transport, with the id that the transport has assigned to it.
    Op(OpId),
    /// Receive from DTL_ANY_SOURCE in flight in the transport. It fails when any rank dies.
    FromAny(OpId),
    /// Operation of a persistent request, in flight in the transport.
    Kept(OpId),
}

impl OpHandle {
    /// Returns the operation handle of a send that the transport has started.
    #[inline(always)] // row: send_recv_8
    pub(super) fn send(begun: OpId) -> OpHandle {
        if begun == OpId::COMPLETED { OpHandle::Sent } else { OpHandle::Op(begun) }
    }

    /// Returns the operation handle of a started receive from `source`, or of a started persistent
    /// operation whose peer is `source`.
    #[inline(always)] // row: send_recv_8
    pub(super) fn recv(begun: OpId, source: i32) -> OpHandle {
        if source == DTL_ANY_SOURCE { OpHandle::FromAny(begun) } else { OpHandle::Op(begun) }
    }

    /// Converts this handle to the handle of an operation of a persistent request.
    pub(crate) fn kept(self) -> OpHandle {
        match self {
            OpHandle::Op(op) => OpHandle::Kept(op),
            OpHandle::Sent => OpHandle::Nothing,
            other => other,
        }
    }

    pub(crate) fn op(self) -> Option<OpId> {
        match self {
            OpHandle::Op(op) | OpHandle::FromAny(op) | OpHandle::Kept(op) => Some(op),
            OpHandle::Nothing | OpHandle::Sent => None,
        }
    }
}
