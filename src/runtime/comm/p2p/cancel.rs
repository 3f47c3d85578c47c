//! Cancelling operations: requested once, or until the transport lets go of the buffer.

use super::send_recv::OpHandle;
use crate::abi::status::DTL_ERROR_CANCELED;
use crate::error::{Error, Result, fail};
use crate::runtime::comm::Comm;
use crate::runtime::comm::shared_transport::SharedTransport;
use crate::runtime::component::{Completion, OpId};
use crate::sys::sync::backoff::Backoff;
use crate::sys::sync::clock::Deadline;
use std::task::Poll;

/// How long a transport that may keep operations has to give one back, and after it has kept one.
const GRACE_NS: u64 = 5_000_000_000;
const LATER_GRACE_NS: u64 = 100_000_000;

/// Error text for the buffer of an operation that the transport keeps.
const KEPT: &str = "the transport has not given the buffer back and may access it as long as the \
    process runs: do not free or reuse it";

/// Tries until there is an answer, or a transport that may keep operations has done so.
pub(in crate::runtime::comm) fn until<T>(
    link: &SharedTransport,
    mut attempt: impl FnMut() -> Result<Poll<T>>,
) -> Result<T> {
    let grace = if link.has_lost() { LATER_GRACE_NS } else { GRACE_NS };
    let limit = if link.transport.properties().may_keep_cancelled {
        Deadline::after(grace)
    } else {
        Deadline::NEVER
    };
    let mut backoff = Backoff::new();
    loop {
        if let Poll::Ready(answer) = attempt()? {
            return Ok(answer);
        }
        if limit.passed() {
            link.lose();
            return fail!(DTL_ERROR_TIMEOUT, "{KEPT}");
        }
        backoff.pause();
    }
}

/// The error of an operation that has failed and whose buffer the transport still has.
pub(in crate::runtime::comm) fn kept(error: &Error) -> Error {
    Error::new(error.status(), format!("{}; {KEPT}", error.text()))
}

impl SharedTransport {
    /// Cancels an operation and waits until the transport lets go of its buffer (see `until`).
    /// `Some` = it had completed before it could be cancelled.
    pub(in crate::runtime::comm) fn cancel(&self, op: OpId) -> Result<Option<Completion>> {
        until(self, || self.try_cancel(op))
    }

    /// Cancels an operation without waiting. `Some`: it had completed before it could be cancelled.
    /// Pending: it is matched and not over; call again, as its sender may cancel the message.
    fn try_cancel(&self, op: OpId) -> Result<Poll<Option<Completion>>> {
        let withdrawn = self.request_cancel(op);
        if withdrawn.is_err() {
            self.lose();
        }
        withdrawn
    }

    fn request_cancel(&self, op: OpId) -> Result<Poll<Option<Completion>>> {
        // An operation that is already over need not be cancelled, which some transports cannot do.
        let mut done = self.transport.outcome(op)?;
        if done.is_none() {
            self.transport.cancel(op)?;
            done = self.transport.outcome(op)?;
        }
        Ok(match done {
            Some(done) => Poll::Ready(Some(done).filter(|done| done.status != DTL_ERROR_CANCELED)),
            None => Poll::Pending,
        })
    }
}

impl Comm {
    /// Cancels a started operation, and waits for it if it has been matched (`until`); `Some` = it
    /// had completed before that.
    pub(in crate::runtime::comm) fn cancel_started(
        &self,
        started: OpHandle,
    ) -> Result<Option<Completion>> {
        until(&self.link, || self.try_cancel_started(started))
    }

    /// Cancels without waiting. `Some`: it had completed before. Pending: matched; call again.
    pub(in crate::runtime::comm) fn try_cancel_started(
        &self,
        started: OpHandle,
    ) -> Result<Poll<Option<Completion>>> {
        Ok(match started {
            OpHandle::Nothing => Poll::Ready(Some(Completion::NOBODY)),
            OpHandle::Sent => Poll::Ready(Some(self.sent())),
            OpHandle::Op(op) | OpHandle::FromAny(op) | OpHandle::Kept(op) => {
                self.link.try_cancel(op)?.map(|done| done.map(|done| self.localized(done)))
            }
        })
    }
}
