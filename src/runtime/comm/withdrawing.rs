//! Operations that are taken back: asked for once, or until the transport lets go of the buffer.

use super::Comm;
use super::link::Link;
use super::p2p::Started;
use crate::abi::status::DTL_ERROR_CANCELED;
use crate::error::Result;
use crate::runtime::backend::{Done, OpId};
use crate::sys::park::Backoff;
use std::task::Poll;

/// Tries until there is an answer.
pub(super) fn until<T>(mut attempt: impl FnMut() -> Result<Poll<T>>) -> Result<T> {
    let mut backoff = Backoff::new();
    loop {
        if let Poll::Ready(answer) = attempt()? {
            return Ok(answer);
        }
        backoff.pause();
    }
}

impl Link {
    /// Withdraws an operation and waits until the transport lets go of its buffer. `Some` = it had
    /// completed before it could be withdrawn.
    pub(super) fn withdraw(&self, op: OpId) -> Result<Option<Done>> {
        until(|| self.try_withdraw(op))
    }

    /// The same without waiting. Pending: it has been matched and is not over. To be asked again, as what had been matched may be
    /// free again: its sender may have withdrawn the message.
    fn try_withdraw(&self, op: OpId) -> Result<Poll<Option<Done>>> {
        let withdrawn = self.ask_to_withdraw(op);
        if withdrawn.is_err() {
            self.lose();
        }
        withdrawn
    }

    fn ask_to_withdraw(&self, op: OpId) -> Result<Poll<Option<Done>>> {
        // What is over already need not be withdrawn, where that is not possible.
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
    /// Withdraws what was started, and waits for what has been matched; `Some` = it had completed before that.
    pub(super) fn take_back(&self, started: Started) -> Result<Option<Done>> {
        until(|| self.try_take_back(started))
    }

    /// The same without waiting. Pending: as `Link::try_withdraw`.
    pub(super) fn try_take_back(&self, started: Started) -> Result<Poll<Option<Done>>> {
        Ok(match started {
            Started::Nothing => Poll::Ready(Some(Done::NOBODY)),
            Started::Sent => Poll::Ready(Some(self.sent())),
            Started::Op(op) | Started::FromAny(op) | Started::Kept(op) => {
                self.link.try_withdraw(op)?.map(|done| done.map(|done| self.inner(done)))
            }
        })
    }
}
