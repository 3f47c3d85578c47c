//! Polling of a request. Its fast path, a message, is as short as possible.

use super::{Life, Operation, Outcome, Request, Standing, TABLE, at_rest, outcome};
use crate::abi::handle::dtl_request_t;
use crate::abi::status::DTL_SUCCESS;
use crate::error::Result;
use crate::runtime::comm::flight_recorder::Ticket;
use crate::runtime::comm::p2p::send_recv::Started;
use crate::runtime::comm::{Comm, progress};
use crate::runtime::component::{Done, OpId};
use crate::sys::compute::foreign_test::{Answer, Heard};
use crate::sys::handles::epoch::Guard;
use crate::sys::handles::slot_map::{Locked, Missed};
use crate::sys::sync::hints;
use std::task::Poll;

/// State of a request, as a poll returns it.
pub(in crate::runtime::comm) enum Asked {
    /// It is over, the caller has its outcome, and its handle is stale unless it is persistent.
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
    /// State of a request that is not over.
    fn active(comm: &Comm) -> Asked {
        if comm.is_open() { Asked::Active } else { Asked::Closed }
    }
}

/// Polls a request without waiting, and writes its outcome to `told` if it is over. Does not wait
/// for another thread that polls it at the same time. On entry, `told` is empty (`wait::untold`).
pub(in crate::runtime::comm) fn ask(
    inside: &Guard,
    handle: dtl_request_t,
    told: &mut Outcome,
) -> Result<Asked> {
    let request = match TABLE.try_look(handle.id) {
        Ok(request) => request,
        Err(Missed::Stale) => return Ok(Asked::Stale),
        Err(_) => return Ok(Asked::Active),
    };
    let Some(comm) = request.comm(inside) else { return Ok(Asked::Closed) };
    let Some(message) = request.message() else { return ask_other(request, comm, told) };
    Ok(match end_message(inside, request, comm, message, told, false)? {
        Poll::Ready(()) => Asked::Over,
        Poll::Pending => Asked::active(comm),
    })
}

/// Fast path of test and wait: true if the request is a message that is over, or is over within
/// some microseconds if the caller `waits` for nothing else. Its outcome is then in `told`. False:
/// call `ask`.
#[inline(always)]
pub(in crate::runtime::comm) fn is_over(
    inside: &Guard,
    handle: dtl_request_t,
    told: &mut Outcome,
    waits: bool,
) -> bool {
    let Some(request) = hints::usual(TABLE.try_look(handle.id).ok()) else { return false };
    let Some(comm) = request.comm(inside) else { return false };
    let Some(message) = hints::usual(request.message()) else { return false };
    matches!(end_message(inside, request, comm, message, told, waits), Poll::Ready(Ok(())))
}

/// Polls a message; its request ends with it. Inlined into the caller, as returning outcomes by
/// value from one function to the next takes longer than the poll.
#[inline(always)]
fn end_message(
    inside: &Guard,
    request: Locked<Request>,
    comm: &Comm,
    (op, ticket): (Option<OpId>, Ticket),
    told: &mut Outcome,
    waits: bool,
) -> Poll<Result<()>> {
    match op {
        Some(op) => {
            let asked = comm.hear(op, &mut told.0, waits);
            if !matches!(asked, Poll::Ready(Ok(()))) {
                hints::rarely();
                return asked;
            }
            comm.tell_inner(&mut told.0);
        }
        None => comm.tell_sent(&mut told.0),
    }
    comm.recorder.end(ticket);
    if told.0.status != DTL_SUCCESS {
        hints::rarely();
        request.tell_failure(comm, told);
    }
    request.forget(inside);
    Poll::Ready(Ok(()))
}

impl Comm {
    /// Polls an operation; a caller that `waits` and has nothing else to do gets its end at once.
    #[inline(always)]
    fn hear(&self, op: OpId, told: &mut Done, waits: bool) -> Poll<Result<()>> {
        let Some(asking) = &self.asking else { return self.link.part().test(op, told) };
        let mut heard = Heard::nothing();
        match asking.ask(op.0, &mut heard, waits & progress::is_idle()) {
            Answer::Over => {
                if !hints::usually(heard.code == 0 && told.is_unasked()) {
                    if let Some(test) = &self.link.foreign_test {
                        test.part().tell(op, &heard, told);
                    }
                }
                Poll::Ready(Ok(()))
            }
            Answer::Pending => {
                hints::rarely();
                Poll::Pending
            }
            Answer::Unasked => {
                hints::rarely();
                self.link.part().test(op, told)
            }
        }
    }
}

/// Asks after all that is not the usual case.
#[cold]
#[inline(never)]
fn ask_other(mut request: Locked<Request>, comm: &Comm, told: &mut Outcome) -> Result<Asked> {
    request.set_owner();
    match request.hear(comm, told)? {
        Standing::Over => {
            if request.again.is_none() {
                request.end();
            }
            Ok(Asked::Over)
        }
        Standing::Active => Ok(Asked::active(comm)),
        Standing::AtRest => {
            *told = at_rest();
            Ok(Asked::AtRest)
        }
    }
}

impl Request {
    #[cold]
    #[inline(never)]
    fn tell_failure(&self, comm: &Comm, told: &mut Outcome) {
        told.1 = outcome(comm, (self.what.kind(), self.peer), &told.0);
    }

    /// The usual case: a message by itself and not from any rank, in the transport's hands, or a
    /// send that was over at once (`None`). Such a request owns nothing.
    #[inline(always)]
    fn message(&self) -> Option<(Option<OpId>, Ticket)> {
        match self.life {
            Life::Active(Operation::Started(Started::Op(op), ticket)) => Some((Some(op), ticket)),
            Life::Active(Operation::Started(Started::Sent, ticket)) => Some((None, ticket)),
            _ => None,
        }
    }
}
