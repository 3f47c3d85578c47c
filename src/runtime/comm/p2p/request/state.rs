//! The life of a request: at rest, active, over. Decides which caller gets its outcome.
//!
//! Not here: what an operation is and how it is moved on (`request` does that, in the functions
//! that it passes in), nor which of several threads is at it: each request has a lock
//! (`sys::handles::slot_map`), held while its operation is polled or cancelled. So nothing is
//! polled after its end, and each outcome is returned once. `tests/models` tries every order of two
//! threads.

use std::task::Poll;

/// A request with operation `A` and outcome `O`.
pub(in crate::runtime::comm) enum RequestPhase<A, O> {
    /// Persistent and not started.
    AtRest,
    Active(A),
    /// Over, and no caller has taken its outcome yet.
    Over(O),
}

/// State of a request, as a poll returns it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::runtime::comm) enum PollState {
    AtRest,
    Active,
    Over,
}

impl<A, O> RequestPhase<A, O> {
    /// Starts what is at rest; `None` = it is not. If `begin` fails, it rests on.
    pub(in crate::runtime::comm) fn start<E>(
        &mut self,
        begin: impl FnOnce() -> Result<A, E>,
    ) -> Option<Result<(), E>> {
        if !matches!(self, RequestPhase::AtRest) {
            return None;
        }
        Some(begin().map(|operation| *self = RequestPhase::Active(operation)))
    }

    /// Moves the request on without waiting; `poll` returns the outcome of an operation that is
    /// over. If `poll` fails, the request stays active.
    #[inline]
    pub(in crate::runtime::comm) fn settle<E>(
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

    /// Takes the outcome of a request that is over. It is then at rest: no other caller gets it.
    #[inline]
    pub(in crate::runtime::comm) fn take_outcome(&mut self) -> Option<O> {
        match std::mem::replace(self, RequestPhase::AtRest) {
            RequestPhase::Over(outcome) => Some(outcome),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Ends the request, so that it rests: an active operation is passed to `withdraw`; if that
    /// fails or is pending, it stays active. `None` = cancelled; `resting`: the outcome at rest.
    pub(in crate::runtime::comm) fn cancel<E>(
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
