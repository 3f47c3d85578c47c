//! [`OpHandle`]: an operation that was started, as its later polls need it.

use crate::abi::comm::communicator::DTL_ANY_SOURCE;
use crate::runtime::component::OpId;

/// Operation that was started.
#[derive(Clone, Copy)]
pub(crate) enum OpHandle {
    /// Operation with DTL_PROC_NULL, which is complete without a start.
    Nothing,
    /// Send that completed at once.
    Sent,
    /// Operation that the transport has started.
    Op(OpId),
    /// Receive from any rank that the transport has started; the death of a rank ends it.
    FromAny(OpId),
    /// Operation of a persistent request that the transport has started.
    Kept(OpId),
}

impl OpHandle {
    /// Returns the operation handle of a send that the transport has started.
    #[inline(always)] // row: send_recv_8
    pub(super) fn send(begun: OpId) -> OpHandle {
        if begun == OpId::COMPLETED { OpHandle::Sent } else { OpHandle::Op(begun) }
    }

    /// Returns the operation handle of a started receive from `source`, or of a started persistent
    /// message, whose peer is `source`.
    #[inline(always)] // row: send_recv_8
    pub(super) fn recv(begun: OpId, source: i32) -> OpHandle {
        if source == DTL_ANY_SOURCE { OpHandle::FromAny(begun) } else { OpHandle::Op(begun) }
    }

    /// Returns this operation handle marked as an operation of a persistent request.
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
