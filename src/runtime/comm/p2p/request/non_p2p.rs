//! Requests for operations other than messages in host memory: nonblocking collectives, one-sided
//! operations, staged messages, and sends that wait for an event.

use super::{
    Data, Outcome, PersistentArgs, RequestOp, RequestPhase, TABLE, at_rest, failed, insert_request,
    outcome,
};
use crate::abi::handle::dtl_request_t;
use crate::abi::status::DTL_ERROR_CANCELED;
use crate::error::{Result, fail, failure};
use crate::runtime::comm::coll::coll_exec::Run;
use crate::runtime::comm::coll::schedule::Advance;
use crate::runtime::comm::flight_recorder::Ticket;
use crate::runtime::comm::op_desc::{Kind, OpDesc, Tagged};
use crate::runtime::comm::p2p::cancel;
use crate::runtime::comm::p2p::p2p_staging::{self, BufferPath, Staged};
use crate::runtime::comm::{Comm, progress, rma_path};
use crate::runtime::component::Completion;
use crate::runtime::exec::event::{Event, EventGate};
use crate::runtime::id_table;
use crate::runtime::memory::device_only;
use std::sync::Arc;
use std::task::Poll;

#[allow(clippy::large_enum_variant, reason = "always in a box")]
pub(super) enum Other {
    Collective(Run),
    /// One-sided operation: the RMA path of its window, and the ticket that identifies the
    /// operation in this path.
    Window(Arc<dyn rma_path::RmaPath>, rma_path::Ticket),
    /// Message whose buffer the host may not be able to access.
    Staged(Staged),
    /// Send that has not started yet, because the event that triggers it has not completed.
    Gated(TriggeredSend),
}

/// Send that starts once an event has completed.
pub(super) struct TriggeredSend {
    gate: EventGate,
    plan: PersistentArgs,
    /// True if the host could not access the buffer when the send was requested.
    was_hidden: bool,
    ticket: Ticket,
    is_canceled: bool,
}

impl TriggeredSend {
    /// Marks the send as canceled. No communication is necessary, because the send has not started.
    pub(super) fn cancel(&mut self) {
        self.is_canceled = true;
    }

    /// Polls the event. Returns `None` while the event is pending. Otherwise returns the started
    /// send, or the outcome if the send failed or was canceled before its start.
    fn look(&mut self, comm: &Comm, of: (Kind, i32)) -> Option<Result<Staged, Outcome>> {
        if self.is_canceled {
            comm.recorder.end(self.ticket);
            let done = Completion { status: DTL_ERROR_CANCELED, ..Completion::NOBODY };
            return Some(Err(outcome(comm, of, done)));
        }
        let begun = match self.gate.is_open() {
            Ok(false) => return None,
            Ok(true) => p2p_staging::is_still_hidden(comm, self.plan.data.bytes, self.was_hidden)
                .and_then(|_| stage(comm, &self.plan, self.plan.path(comm)?)),
            Err(error) => Err(error.within("not sent: the event that it waits for")),
        };
        Some(match begun {
            Ok(mut staged) => {
                staged.ticket = Some(self.ticket);
                Ok(staged)
            }
            Err(error) => {
                comm.recorder.end(self.ticket);
                Err(failed(error))
            }
        })
    }
}

/// Starts the send or receive with the arguments `plan`. `path` selects whether and how the message
/// is staged.
#[cold]
pub(super) fn stage(comm: &Comm, plan: &PersistentArgs, path: BufferPath) -> Result<Staged> {
    let (bytes, peer, tag) = (plan.data.bytes, plan.peer, plan.what.tag());
    if plan.is_recv() {
        Staged::recv(comm, path, bytes, peer, tag)
    } else {
        Staged::send(comm, path, bytes, (peer, tag, plan.mode()))
    }
}

/// Converts a started message into the operation of a request. Records the start of the message in
/// the flight recorder; callers must not record it.
#[cold]
pub(super) fn operation(comm: &Comm, plan: &PersistentArgs, mut staged: Staged) -> RequestOp {
    staged.ticket = Some(comm.recorder.begin(plan.words()));
    RequestOp::Other(Box::new(Other::Staged(staged)))
}

/// Inserts the request of a started message into the handle table. Returns the handle of the
/// request.
#[cold]
pub(super) fn insert_staged(
    comm: &Comm,
    plan: &PersistentArgs,
    staged: Staged,
) -> Result<dtl_request_t> {
    put(comm, plan, operation(comm, plan, staged))
}

/// Inserts the request of an operation into the handle table. If the transport allows progress by
/// other threads, also registers the request for progress, so that calls that wait for other
/// operations also copy the chunks of a staged message.
fn put(comm: &Comm, plan: &PersistentArgs, operation: RequestOp) -> Result<dtl_request_t> {
    let life = RequestPhase::Active(operation);
    let handle = insert_request(comm, (plan.what, plan.peer), None, life)?;
    // Not registered if only one thread may call the transport, as for a single-threaded MPI.
    if comm.link.transport.properties().allows_progress_thread {
        progress::add_running(&TABLE, handle);
    }
    Ok(handle)
}

/// Creates the request of a standard-mode send that starts once the event has completed. The send
/// waits for the most recent recording of the event before this call.
pub fn isend_on(
    comm: &Comm,
    data: Data,
    dest: i32,
    tag: i32,
    event: &Arc<Event>,
) -> Result<dtl_request_t> {
    let plan = PersistentArgs { data, peer: dest, what: Tagged::new(Kind::Send, tag) };
    plan.check(comm)?;
    let was_hidden = device_only::may_be(data.bytes) && p2p_staging::is_hidden(comm, data.bytes)?;
    if was_hidden {
        check_event_backend(data, event)?;
    }
    let ticket = comm.recorder.begin(plan.words());
    let gated = TriggeredSend { gate: event.gate(), plan, was_hidden, ticket, is_canceled: false };
    put(comm, &plan, RequestOp::Other(Box::new(Other::Gated(gated))))
}

/// Checks that a buffer in device memory was allocated by the device backend of the event, because
/// an event does not order the work of other backends.
fn check_event_backend(data: Data, event: &Event) -> Result<()> {
    match device_only::allocation_of(data.bytes)? {
        Some(allocation) if allocation.hidden && allocation.backend != event.backend().handle() => {
            fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "event: it is of backend {}, and buf is device memory of another one, whose work \
                 it does not wait for: use an event of that one",
                event.backend().name()
            )
        }
        _ => Ok(()),
    }
}

impl Other {
    /// Makes progress on the operation. Returns the outcome if the operation is complete, otherwise
    /// `None`. Returns an error if the poll fails; the operation is then still in flight.
    #[inline(never)]
    pub(super) fn poll(&mut self, comm: &Comm, of: (Kind, i32)) -> Result<Option<Outcome>> {
        match self {
            Other::Collective(run) => Ok(poll_collective(comm, run)),
            Other::Window(path, ticket) => Ok(match path.is_over(*ticket) {
                Ok(is_over) => is_over.then(at_rest),
                Err(error) => Some(failed(comm.revoked_or(error))),
            }),
            Other::Staged(_) | Other::Gated(_) => self.poll_message(comm, of),
        }
    }

    #[cold]
    fn poll_message(&mut self, comm: &Comm, of: (Kind, i32)) -> Result<Option<Outcome>> {
        if let Other::Gated(gated) = self {
            match gated.look(comm, of) {
                None => return Ok(None),
                Some(Err(outcome)) => return Ok(Some(outcome)),
                Some(Ok(staged)) => *self = Other::Staged(staged),
            }
        }
        let Other::Staged(staged) = self else { return Ok(None) };
        let ended = staged.poll(comm)?;
        Ok(ended.map(|ended| end(comm, of, staged, ended)))
    }

    /// Cancels the operation. Returns `None` if the operation was canceled, and the outcome if the
    /// operation completed. Returns Pending if the operation has been matched but is not complete.
    pub(super) fn cancel(&mut self, comm: &Comm, of: (Kind, i32)) -> Result<Poll<Option<Outcome>>> {
        Ok(Poll::Ready(match self {
            Other::Collective(run) => {
                run.fail(comm, &failure!(DTL_ERROR_CANCELED, "it was given up before it was over"));
                None
            }
            Other::Window(path, ticket) => path.cancel(*ticket).map(|()| None)?,
            Other::Staged(staged) => {
                let Poll::Ready(ended) = staged.try_cancel(comm)? else {
                    return Ok(Poll::Pending);
                };
                staged.ticket.into_iter().for_each(|ticket| comm.recorder.end(ticket));
                ended.map(|ended| end(comm, of, staged, ended))
            }
            Other::Gated(gated) => {
                comm.recorder.end(gated.ticket);
                None
            }
        }))
    }

    /// Returns the description of the operation if it is a collective, otherwise `None`.
    pub(super) fn call(&self) -> Option<&OpDesc> {
        match self {
            Other::Collective(run) => Some(run.call()),
            _ => None,
        }
    }

    /// Returns true if the operation is a message, possibly one that has not started yet. Users can
    /// cancel messages, but not collectives or one-sided operations.
    pub(super) fn is_message(&self) -> bool {
        matches!(self, Other::Staged(_) | Other::Gated(_))
    }

    /// Returns true if making progress on the operation may call a user-defined reduction function.
    pub(super) fn calls_program(&self) -> bool {
        self.call().is_some_and(|call| call.op >= id_table::FIRST)
    }

    pub(super) fn is_irrevocable(&self) -> bool {
        matches!(self, Other::Collective(run) if run.is_irrevocable())
    }
}

#[inline(always)] // row: message_8
fn poll_collective(comm: &Comm, run: &mut Run) -> Option<Outcome> {
    match run.progress(comm) {
        Ok(Advance::Done) => {
            run.recycle(comm);
            Some(match run.deliver() {
                Ok(()) => at_rest(),
                Err(error) => failed(error),
            })
        }
        Ok(_) => None,
        Err(error) => {
            run.fail(comm, &error);
            Some(failed(if run.is_kept() { cancel::kept(&error) } else { error }))
        }
    }
}

fn end(
    comm: &Comm,
    of: (Kind, i32),
    staged: &Staged,
    (done, copied): (Completion, Result<()>),
) -> Outcome {
    staged.ticket.into_iter().for_each(|ticket| comm.recorder.end(ticket));
    let (done, ended) = outcome(comm, of, done);
    (done, copied.and(ended))
}
