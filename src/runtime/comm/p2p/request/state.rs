//! Life cycle of a request: inactive, active, complete. The state determines which caller obtains
//! the outcome.
//!
//! Starting, polling and canceling the operation are not implemented in this file; `request` passes
//! functions for them. Mutual exclusion between threads is not implemented here either: each
//! request has a lock (`sys::handles::slot_map`), which a thread holds while it polls or cancels
//! the operation. So no operation is polled after its completion, and each outcome is returned
//! once. `tests/models` explores every interleaving of two threads.

use std::task::Poll;

/// Phase of a request. `A` is the type of its operation, and `O` the type of its outcome.
pub(crate) enum RequestPhase<A, O> {
    /// Persistent request that is not started.
    AtRest,
    Active(A),
    /// Complete request whose outcome no caller has obtained yet.
    Over(O),
}

/// State of a request after a poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PollState {
    AtRest,
    Active,
    Over,
}

impl<A, O> RequestPhase<A, O> {
    /// Starts an inactive request, which stays inactive if `begin` fails. Returns `None` if the
    /// request was not inactive.
    pub(crate) fn start<E>(
        &mut self,
        begin: impl FnOnce() -> Result<A, E>,
    ) -> Option<Result<(), E>> {
        if !matches!(self, RequestPhase::AtRest) {
            return None;
        }
        Some(begin().map(|operation| *self = RequestPhase::Active(operation)))
    }

    /// Makes progress on the request (nonblocking) and returns its state. `poll` returns the
    /// outcome if the operation is complete, otherwise `None`. If `poll` fails, the request remains
    /// active.
    pub(crate) fn settle<E>(
        &mut self,
        poll: impl FnOnce(&mut A) -> Result<Option<O>, E>,
    ) -> Result<PollState, E> {
        let outcome = match self {
            RequestPhase::AtRest => return Ok(PollState::AtRest),
            RequestPhase::Over(_) => return Ok(PollState::Over),
            RequestPhase::Active(operation) => match poll(operation)? {
                Some(outcome) => outcome,
                None => return Ok(PollState::Active),
            },
        };
        *self = RequestPhase::Over(outcome);
        Ok(PollState::Over)
    }

    /// Returns the outcome of a complete request and makes the request inactive, so that no other
    /// caller obtains the outcome. Returns `None` if the request is not complete.
    pub(crate) fn take_outcome(&mut self) -> Option<O> {
        match std::mem::replace(self, RequestPhase::AtRest) {
            RequestPhase::Over(outcome) => Some(outcome),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Cancels the request, which becomes inactive. If the request is active, calls `withdraw` with
    /// its operation; if `withdraw` fails or returns Pending, the request stays active. Returns
    /// `None` if the operation was canceled, otherwise its outcome. For an inactive request,
    /// returns the outcome `resting`.
    pub(crate) fn cancel<E>(
        &mut self,
        resting: O,
        withdraw: impl FnOnce(&mut A) -> Result<Poll<Option<O>>, E>,
    ) -> Result<Poll<Option<O>>, E> {
        let taken = match self {
            RequestPhase::Active(operation) => withdraw(operation)?,
            RequestPhase::Over(_) => return Ok(Poll::Ready(self.take_outcome())),
            RequestPhase::AtRest => return Ok(Poll::Ready(Some(resting))),
        };
        if taken.is_ready() {
            *self = RequestPhase::AtRest;
        }
        Ok(taken)
    }
}
