//! Polling of a single request.

use super::wait::empty_outcome;
use super::{Outcome, PollState, Request, RequestOp, RequestPhase, TABLE, at_rest, outcome};
use crate::abi::handle::dtl_request_t;
use crate::abi::status::DTL_SUCCESS;
use crate::error::Result;
use crate::hints;
use crate::runtime::comm::flight_recorder::Ticket;
use crate::runtime::comm::p2p::op_handle::OpHandle;
use crate::runtime::comm::{Comm, progress_count};
use crate::runtime::component::{Completion, OpId};
use crate::sys::compute::callback::{TestOutcome, TestOutputs};
use crate::sys::handles::epoch::Guard;
use crate::sys::handles::slot_map::{Locked, LookupFailure};
use std::cell::Cell;
use std::task::Poll;

/// Result of a poll of a request.
pub(crate) enum RequestState {
    /// The request is complete and the caller has received its outcome. The handle is stale unless
    /// the request is persistent.
    Over,
    /// Persistent request that is not started.
    AtRest,
    Active,
    /// The request is active on a communicator that has been destroyed or is being shrunk.
    Closed,
    /// The handle does not refer to a request, or refers to a request that has already ended.
    Stale,
}

impl RequestState {
    /// Returns `Active` if the communicator is open, otherwise `Closed`.
    fn active(comm: &Comm) -> RequestState {
        if comm.is_open() { RequestState::Active } else { RequestState::Closed }
    }
}

/// Polls a request. If the request is complete, stores the outcome in the caller's `Outcome`, which
/// must be empty on entry (`wait::empty_outcome`). If another thread is polling the request,
/// immediately reports the request as active. If `waits` is true, the caller waits only for this
/// request, and the poll may take a few microseconds if the operation is a message.
#[inline(always)] // row: wait
pub(crate) fn poll_request(
    inside: &Guard,
    handle: dtl_request_t,
    out: &mut Outcome,
    waits: bool,
) -> Result<RequestState> {
    let request = match TABLE.try_look(handle.id) {
        Ok(request) => request,
        Err(missed) => {
            hints::rarely();
            return Ok(if missed == LookupFailure::Stale {
                RequestState::Stale
            } else {
                RequestState::Active
            });
        }
    };
    let Some(comm) = request.comm(inside) else { return Ok(RequestState::Closed) };
    let Some(message) = hints::usual(request.message()) else {
        return poll_other(inside, request, comm, out);
    };
    Ok(match end_message(inside, request, comm, message, out, waits)? {
        Poll::Ready(()) => RequestState::Over,
        Poll::Pending => RequestState::active(comm),
    })
}

/// Polls the message of a request. If the message is complete, removes the request from the handle
/// table. This function is inlined into its caller, because returning the outcome by value through
/// several functions takes longer than the poll.
#[inline(always)] // row: wait
fn end_message(
    inside: &Guard,
    request: Locked<Request>,
    comm: &Comm,
    (op, ticket): (Option<OpId>, Ticket),
    out: &mut Outcome,
    waits: bool,
) -> Poll<Result<()>> {
    if let Some(op) = op {
        match comm.ask_foreign_test(op, &mut out.0, waits) {
            TestOutcome::Over => {}
            TestOutcome::Pending => return Poll::Pending,
            TestOutcome::Unasked => {
                let tested = comm.link.part().test(op, &mut out.0);
                if !matches!(tested, Poll::Ready(Ok(()))) {
                    hints::rarely();
                    return tested;
                }
            }
        }
    }
    end(inside, request, comm, (op, ticket), out);
    Poll::Ready(Ok(()))
}

/// Completes the outcome of a complete message and removes its request from the handle table.
#[inline(always)] // row: wait
fn end(
    inside: &Guard,
    request: Locked<Request>,
    comm: &Comm,
    (op, ticket): (Option<OpId>, Ticket),
    out: &mut Outcome,
) {
    if op.is_some() {
        comm.localize(&mut out.0);
    } else {
        comm.fill_sent(&mut out.0);
    }
    comm.recorder.end(ticket);
    if out.0.status != DTL_SUCCESS {
        hints::rarely();
        request.report_failure(comm, out);
    }
    request.forget(inside.spare_slots());
}

/// Maximum number of handles that one call to the transport polls, because other threads may wait
/// for a lock of the transport meanwhile.
const BATCH: usize = 16;

/// Result of polling the messages at the beginning of an array of handles.
#[derive(Default)]
pub(crate) struct PollCounts {
    /// Number of handles that need no further poll: those that are null, of messages that have
    /// ended or, if the batch continues past incomplete messages, of incomplete messages.
    pub(crate) count: usize,
    /// Number of messages that have ended.
    pub(crate) ended: usize,
    /// Number of incomplete messages.
    pub(crate) active: usize,
}

/// Polls the messages at the beginning of `handles` with one call to the transport, and ends those
/// that are complete: up to `most` ended messages or `BATCH` handles, and up to the first request
/// that is not a message of the first one's communicator, or to a message that failed. If
/// `passes_active` is false, also up to the first incomplete message, whose poll may take a few
/// microseconds if the first value of `asked` is true. Sets the handle of each ended message to
/// null and passes its outcome to `out`, with the fields that the completion in `asked` requests.
pub(crate) fn end_in_order(
    inside: &Guard,
    handles: &mut [dtl_request_t],
    limits: (usize, bool),
    asked: (bool, Completion),
    mut out: impl FnMut(usize, Outcome),
) -> PollCounts {
    let handles = Cell::from_mut(handles).as_slice_of_cells();
    poll_in_order(inside, handles, limits, asked, |index, comm, request, message, done| {
        let mut outcome = (done, Ok(()));
        end(inside, request, comm, message, &mut outcome);
        if let Some(handle) = handles.get(index) {
            handle.set(dtl_request_t { id: 0 });
        }
        out(index, outcome);
    })
}

/// Polls the messages at the beginning of `handles` with one call to the transport, like
/// [`end_in_order`], up to the first incomplete message. The outcomes of complete messages stay
/// stored in their requests.
pub(crate) fn settle_in_order(inside: &Guard, handles: &mut [dtl_request_t]) -> PollCounts {
    let handles = Cell::from_mut(handles).as_slice_of_cells();
    let (limits, asked) = ((usize::MAX, false), (false, empty_outcome().0));
    poll_in_order(inside, handles, limits, asked, |_, comm, mut request, (op, ticket), done| {
        let done = if op.is_some() { comm.localized(done) } else { comm.sent() };
        comm.recorder.end(ticket);
        let outcome = outcome(comm, (request.what.kind(), request.peer), done);
        request.life = RequestPhase::Over(outcome);
    })
}

/// Polls the messages at the beginning of `handles` as described at [`end_in_order`]. Passes each
/// complete message to `finish`, with its index, request and completion.
fn poll_in_order(
    inside: &Guard,
    handles: &[Cell<dtl_request_t>],
    (most, passes_active): (usize, bool),
    (waits, empty): (bool, Completion),
    mut finish: impl FnMut(usize, &Comm, Locked<Request>, (Option<OpId>, Ticket), Completion),
) -> PollCounts {
    let count = handles.iter().take_while(|handle| handle.get().id == 0).count();
    let (mut polled, mut tested) = (PollCounts { count, ..PollCounts::default() }, None);
    let handles = handles.get(..count + BATCH).unwrap_or(handles);
    let first = handles.get(count).and_then(|first| TABLE.try_look(first.get().id).ok());
    let first = first.filter(|request| request.message().is_some());
    let comm = first.and_then(|request| request.comm(inside));
    let Some(comm) = comm.filter(|comm| comm.is_open() || !passes_active) else { return polled };
    let (group, failed) = (comm.slot.handle(), Cell::new(None));
    let mut next = |done: Option<&Completion>| {
        let mut done = done;
        loop {
            match (tested.take(), done) {
                (Some(message), Some(failure))
                    if failure.status != DTL_SUCCESS && failed.get().is_none() =>
                {
                    failed.set(Some(*failure));
                    tested = Some(message);
                    return None;
                }
                (Some((request, message)), Some(done)) => {
                    finish(polled.count, comm, request, message, *done);
                    (polled.count, polled.ended) = (polled.count + 1, polled.ended + 1);
                }
                (Some(_), None) => {
                    polled.active += 1;
                    if !passes_active {
                        return None;
                    }
                    polled.count += 1;
                }
                (None, _) => {}
            }
            while handles.get(polled.count).is_some_and(|handle| handle.get().id == 0) {
                polled.count += 1;
            }
            let handle = handles.get(polled.count).filter(|_| polled.ended < most)?.get();
            // A lock that another thread holds is not waited for: the transport may be locked.
            let request = TABLE.try_look(handle.id).ok()?;
            let (op, ticket) = request.message().filter(|(_, ticket)| !ticket.is_traced())?;
            if request.group() != group {
                return None;
            }
            tested = Some((request, (op, ticket)));
            if op.is_some() {
                return op;
            }
            done = Some(&empty);
        }
    };
    // Without an operation to test, the transport is not called.
    let mut op = next(None);
    while let Some(tested) = op.take() {
        let mut done = empty;
        match comm.ask_foreign_test(tested, &mut done, waits) {
            TestOutcome::Unasked => comm.link.part().test_in_order(tested, &mut next),
            answer => op = next((answer == TestOutcome::Over).then_some(&done)),
        }
    }
    // The text of a failure is made after the call, because that may call the transport.
    if let Some(failure) = failed.get() {
        next(Some(&failure));
    }
    polled
}

impl Comm {
    /// Polls an operation by calling the test function (for example MPI_Test) of the transport's
    /// communication library, if the transport provides this function. If `waits` is true and no
    /// other transport or request of this process needs progress, repeats the call for a few
    /// microseconds.
    #[inline(always)] // row: wait
    fn ask_foreign_test(&self, op: OpId, out: &mut Completion, waits: bool) -> TestOutcome {
        let Some(asking) = &self.asking else { return TestOutcome::Unasked };
        let mut outputs = TestOutputs::nothing();
        let answer = asking.test(op.0, &mut outputs, || waits && progress_count::is_idle());
        if answer == TestOutcome::Over && !hints::usually(outputs.code == 0 && out.is_unasked()) {
            self.fill_tested(op, &outputs, out);
        }
        answer
    }

    /// Fills in the completion of an operation that is complete according to the test function (for
    /// example MPI_Test) of the transport's communication library.
    #[cold]
    #[inline(never)]
    fn fill_tested(&self, op: OpId, outputs: &TestOutputs, out: &mut Completion) {
        if let Some(test) = &self.link.foreign_test {
            test.part().fill_completion(op, outputs, out);
        }
    }
}

/// Slow path of `poll_request`: polls a request for which `Request::message` returns `None`.
#[cold]
#[inline(never)]
fn poll_other(
    inside: &Guard,
    mut request: Locked<Request>,
    comm: &Comm,
    out: &mut Outcome,
) -> Result<RequestState> {
    request.set_owner();
    let is_active = matches!(request.life, RequestPhase::Active(_));
    if is_active && request.settle(comm)? == PollState::Active {
        return Ok(RequestState::active(comm));
    }
    let Some(outcome) = request.life.take_outcome() else {
        *out = at_rest();
        return Ok(RequestState::AtRest);
    };
    *out = outcome;
    if request.again.is_none() {
        request.end(inside.spare_slots());
    }
    Ok(RequestState::Over)
}

impl Request {
    #[cold]
    #[inline(never)]
    fn report_failure(&self, comm: &Comm, out: &mut Outcome) {
        *out = outcome(comm, (self.what.kind(), self.peer), out.0);
    }

    /// Returns the operation and the ticket of an active nonpersistent message that is not staged
    /// and whose peer is a specific rank; `None` for all other requests. The operation is `None`
    /// for a send that completed at once. A request for which this function returns `Some` owns no
    /// resources.
    #[inline(always)] // row: wait
    fn message(&self) -> Option<(Option<OpId>, Ticket)> {
        match self.life {
            RequestPhase::Active(RequestOp::Started(OpHandle::Op(op), ticket)) => {
                Some((Some(op), ticket))
            }
            RequestPhase::Active(RequestOp::Started(OpHandle::Sent, ticket)) => {
                Some((None, ticket))
            }
            _ => None,
        }
    }
}
