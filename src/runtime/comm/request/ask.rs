//! How a request is asked after: the usual case, a message, as short as can be.

use super::super::Comm;
use super::super::p2p::Started;
use super::super::recorder::Ticket;
use super::{Life, Operation, Outcome, Request, Standing, TABLE, at_rest, outcome};
use crate::abi::handle::dtl_request_t;
use crate::abi::status::DTL_SUCCESS;
use crate::error::Result;
use crate::runtime::backend::OpId;
use crate::sys::epoch::Guard;
use crate::sys::pool::{Then, Tried};

/// How a request stands for who asks after it.
pub(in crate::runtime::comm) enum Asked {
    /// It is over, who asks has been told, and its handle is stale unless it is persistent.
    Over,
    /// Persistent, and not started.
    AtRest,
    Active,
    /// Active on a communicator that is destroyed or being shrunk.
    Closed,
    /// There is no such request (any more).
    Stale,
}

impl Asked {
    /// Of one that is not over.
    #[inline(always)]
    fn active(comm: &Comm) -> Asked {
        if comm.is_open() { Asked::Active } else { Asked::Closed }
    }
}

/// Asks after a request without waiting; if it is over, its outcome is `told`. Another thread that does so
/// just now is not waited for. `told` has told nothing yet (`wait::untold`).
#[inline(never)]
pub(in crate::runtime::comm) fn ask(
    inside: &Guard,
    handle: dtl_request_t,
    told: &mut Outcome,
) -> Result<Asked> {
    ask_here(inside, handle, told)
}

/// The same, for the call that must be short. An ordinary message is asked after right here: outcomes that are
/// handed on by value, from a function to the next, take longer than the question.
#[inline(always)]
pub(in crate::runtime::comm) fn ask_here(
    inside: &Guard,
    handle: dtl_request_t,
    told: &mut Outcome,
) -> Result<Asked> {
    let asked = TABLE.try_with(handle.id, |request| request.ask(inside, told));
    match asked {
        Tried::Stale => Ok(Asked::Stale),
        Tried::Busy => Ok(Asked::Active),
        Tried::Kept(asked) => asked,
    }
}

impl Request {
    #[inline(always)]
    fn ask(&mut self, inside: &Guard, told: &mut Outcome) -> Then<Result<Asked>> {
        let Some(comm) = self.comm.get(inside) else { return Then::Keep(Ok(Asked::Closed)) };
        let Some((op, ticket)) = self.message() else { return self.ask_other(comm, told) };
        match comm.link.transport.test(op) {
            Ok(Some(done)) => {
                comm.recorder.end(ticket);
                told.0 = comm.inner(done);
                if done.status != DTL_SUCCESS {
                    told.1 = outcome(comm, (self.kind, self.peer), &told.0);
                }
                Then::Forget(Ok(Asked::Over))
            }
            Ok(None) => Then::Keep(Ok(Asked::active(comm))),
            Err(error) => Then::Keep(Err(error)),
        }
    }

    /// The usual case: a message in the transport's hands, by itself and not from any rank. Such a request
    /// owns nothing.
    #[inline(always)]
    fn message(&self) -> Option<(OpId, Ticket)> {
        match (&self.life, &self.again) {
            (Life::Active(Operation::Started(Started::Op(op), ticket)), None) => Some((*op, *ticket)),
            _ => None,
        }
    }

    /// Asks after all that is not the usual case.
    #[inline(never)]
    fn ask_other(&mut self, comm: &Comm, told: &mut Outcome) -> Then<Result<Asked>> {
        match self.hear(comm, told) {
            Ok(Standing::Over) if self.again.is_none() => Then::End(Ok(Asked::Over)),
            Ok(Standing::Over) => Then::Keep(Ok(Asked::Over)),
            Ok(Standing::Active) => Then::Keep(Ok(Asked::active(comm))),
            Ok(Standing::AtRest) => {
                *told = at_rest();
                Then::Keep(Ok(Asked::AtRest))
            }
            Err(error) => Then::Keep(Err(error)),
        }
    }
}
