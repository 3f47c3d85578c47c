//! Cancellation of operations: either one attempt, or repeated attempts until the transport
//! releases the buffer.

use super::op_handle::OpHandle;
use crate::abi::status::DTL_ERROR_CANCELED;
use crate::error::{Error, Result, failure};
use crate::runtime::comm::Comm;
use crate::runtime::comm::shared_transport::SharedTransport;
use crate::runtime::component::{Completion, OpId};
use crate::sys::sync::wait::{self, Deadline};
use std::task::Poll;

/// Maximum time, in nanoseconds, that a cancellation waits for the transport to release the buffer
/// of the operation. It applies only to transports that may keep the buffer.
const GRACE_NS: u64 = 5_000_000_000;
/// Maximum time, in nanoseconds, that a cancellation waits after the transport has failed to
/// release the buffer of an earlier operation; until then, `GRACE_NS` applies.
const LATER_GRACE_NS: u64 = 100_000_000;

/// Error message for an operation whose buffer the transport has not released.
const KEPT: &str = "the transport has not given the buffer back and may access it as long as the \
    process runs: do not free or reuse it";

/// Repeats `attempt`, which tries to cancel an operation, until it returns Ready. For a transport
/// that may keep the buffer of a canceled operation, waits at most `GRACE_NS` (`LATER_GRACE_NS` if
/// the transport has already kept a buffer). If this time passes, records in `link` that the
/// transport has kept a buffer, and fails with TIMEOUT.
pub(crate) fn until<T>(
    link: &SharedTransport,
    mut attempt: impl FnMut() -> Result<Poll<T>>,
) -> Result<T> {
    let grace = if link.has_lost() { LATER_GRACE_NS } else { GRACE_NS };
    let limit = if link.transport.properties().may_keep_cancelled {
        Deadline::after(grace)
    } else {
        Deadline::NEVER
    };
    let ready = |answer| if let Poll::Ready(answer) = answer { Some(answer) } else { None };
    wait::poll(limit, || attempt().map(ready))?.ok_or_else(|| {
        link.lose();
        failure!(DTL_ERROR_TIMEOUT, "{KEPT}")
    })
}

/// Returns a copy of `error` whose message also says that the transport has not released the
/// buffer.
pub(crate) fn kept(error: &Error) -> Error {
    Error::new(error.status(), format!("{}; {KEPT}", error.text()))
}

impl SharedTransport {
    /// Cancels an operation and waits until the transport releases its buffer (see `until`).
    /// Returns `Some` if the operation completed before it could be canceled.
    pub(crate) fn cancel(&self, op: OpId) -> Result<Option<Completion>> {
        until(self, || self.try_cancel(op))
    }

    /// Tries once, without blocking, to cancel an operation. Returns `Some` if the operation
    /// completed before it could be canceled. Returns `Pending` if the operation is matched but
    /// incomplete. The caller must then retry, because the sender may still cancel the message.
    fn try_cancel(&self, op: OpId) -> Result<Poll<Option<Completion>>> {
        self.request_cancel(op).inspect_err(|_| self.lose())
    }

    fn request_cancel(&self, op: OpId) -> Result<Poll<Option<Completion>>> {
        // A completed operation need not be canceled; some transports could not cancel it.
        let mut done = self.transport.outcome(op)?;
        if done.is_none() {
            self.transport.cancel(op)?;
            done = self.transport.outcome(op)?;
        }
        Ok(done.map_or(Poll::Pending, |done| {
            Poll::Ready(Some(done).filter(|done| done.status != DTL_ERROR_CANCELED))
        }))
    }
}

impl Comm {
    /// Cancels a started operation. If the operation has been matched, waits until it completes
    /// (see `until`). Returns `Some` if the operation completed before it could be canceled.
    pub(crate) fn cancel_started(&self, started: OpHandle) -> Result<Option<Completion>> {
        until(&self.link, || self.try_cancel_started(started))
    }

    /// Tries once, without blocking, to cancel a started operation. Returns `Ready(Some)` if the
    /// operation completed before it could be canceled. Returns `Pending` if the operation is
    /// matched but not complete; the caller then has to retry.
    pub(crate) fn try_cancel_started(&self, started: OpHandle) -> Result<Poll<Option<Completion>>> {
        Ok(match started {
            OpHandle::Nothing => Poll::Ready(Some(Completion::NOBODY)),
            OpHandle::Sent => Poll::Ready(Some(self.sent())),
            OpHandle::Op(op) | OpHandle::FromAny(op) | OpHandle::Kept(op) => {
                self.link.try_cancel(op)?.map(|done| done.map(|done| self.localized(done)))
            }
        })
    }
}
