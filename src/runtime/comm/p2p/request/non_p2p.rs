//! Requests besides messages from or to the host's memory: a collective that was started, an
//! operation on a window, a message that is staged, a send that waits for an event.

use super::{
    Data, Outcome, PersistentArgs, Request, RequestOp, RequestPhase, at_rest, failed, insert,
    outcome,
};
use crate::abi::handle::dtl_request_t;
use crate::abi::status::DTL_ERROR_CANCELED;
use crate::error::{Error, Result, fail};
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
use crate::sys::handles::epoch;
use std::sync::Arc;
use std::task::Poll;

#[allow(clippy::large_enum_variant, reason = "always in a box")]
pub(super) enum Other {
    Collective(Run),
    /// An operation on a window, with its ticket in the window's way.
    Window(Arc<dyn rma_path::RmaPath>, rma_path::Ticket),
    /// A message whose buffer the host perhaps cannot reach.
    Staged(Staged),
    /// A send that has not begun.
    Gated(TriggeredSend),
}

/// A send that begins when an event is done.
pub(super) struct TriggeredSend {
    gate: EventGate,
    plan: PersistentArgs,
    /// Whether the buffer was such that the host cannot reach.
    was_hidden: bool,
    ticket: Ticket,
    is_canceled: bool,
}

impl TriggeredSend {
    /// Cancels the send. As it has not begun, no other rank takes part.
    pub(super) fn cancel(&mut self) {
        self.is_canceled = true;
    }

    /// Polls the wait for the event: it has ended, or the send has begun.
    fn look(&mut self, comm: &Comm, of: (Kind, i32)) -> Option<StartedOther> {
        if self.is_canceled {
            comm.recorder.end(self.ticket);
            let done = Completion { status: DTL_ERROR_CANCELED, ..Completion::NOBODY };
            return Some(StartedOther::Over((done, outcome(comm, of, &done))));
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
                StartedOther::Sending(staged)
            }
            Err(error) => {
                comm.recorder.end(self.ticket);
                StartedOther::Over(failed(error))
            }
        })
    }
}

#[allow(clippy::large_enum_variant, reason = "taken to pieces at once")]
enum StartedOther {
    Sending(Staged),
    Over(Outcome),
}

/// Starts the message of a plan by a path.
fn stage(comm: &Comm, plan: &PersistentArgs, path: BufferPath) -> Result<Staged> {
    let (bytes, peer, tag) = (plan.data.bytes, plan.peer, plan.what.tag());
    if plan.is_recv() {
        Staged::recv(comm, path, bytes, peer, tag)
    } else {
        Staged::send(comm, path, bytes, (peer, tag, plan.mode()))
    }
}

/// Starts a message again, as an operation of its persistent request.
#[cold]
pub(super) fn begin_staged(comm: &Comm, plan: &PersistentArgs) -> Result<RequestOp> {
    let staged = stage(comm, plan, plan.path(comm)?)?;
    Ok(operation(comm, plan, staged))
}

fn operation(comm: &Comm, plan: &PersistentArgs, mut staged: Staged) -> RequestOp {
    staged.ticket = Some(comm.recorder.begin(plan.words()));
    RequestOp::Other(Box::new(Other::Staged(staged)))
}

/// Starts the message of a plan by a path, under a handle.
#[cold]
pub(super) fn staged(
    comm: &Comm,
    plan: &PersistentArgs,
    path: BufferPath,
) -> Result<dtl_request_t> {
    insert_staged(comm, plan, stage(comm, plan, path)?)
}

/// Puts a message that was started under a handle.
#[cold]
pub(super) fn insert_staged(
    comm: &Comm,
    plan: &PersistentArgs,
    staged: Staged,
) -> Result<dtl_request_t> {
    put(comm, plan, operation(comm, plan, staged))
}

/// Puts it into a request. Calls that wait for others move it on as well, as they copy its parts.
fn put(comm: &Comm, plan: &PersistentArgs, operation: RequestOp) -> Result<dtl_request_t> {
    let (place, what, peer) = (comm.slot.get(), plan.what, plan.peer);
    let life = RequestPhase::Active(operation);
    let handle =
        insert(epoch::spare_slots(), comm, || Request { place, what, peer, again: None, life })?;
    // Unless another thread's calls are not welcome, as over an MPI that is not for several.
    if comm.link.transport.properties().allows_progress_thread {
        progress::add_running(handle);
    }
    Ok(handle)
}

/// Starts a send (standard) that begins when the record that the event has now is done.
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
        check_home(data, event)?;
    }
    let ticket = comm.recorder.begin(plan.words());
    let gated = TriggeredSend { gate: event.gate(), plan, was_hidden, ticket, is_canceled: false };
    put(comm, &plan, RequestOp::Other(Box::new(Other::Gated(gated))))
}

/// Checks that device memory is of the event's backend: an event orders no other backend's work.
fn check_home(data: Data, event: &Event) -> Result<()> {
    match device_only::allocation_of(data.bytes)? {
        Some(allocation) if allocation.hidden && allocation.backend != event.home().handle() => {
            fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "event: it is of backend {}, and buf is device memory of another one, whose work \
                 it does not wait for: use an \
             event of that one",
                event.home().name()
            )
        }
        _ => Ok(()),
    }
}

impl Other {
    /// Moves it on; returns its outcome, if it is over. `Err`: the poll failed, and it lives on.
    #[inline(never)]
    pub(super) fn poll(&mut self, comm: &Comm, of: (Kind, i32)) -> Result<Option<Outcome>> {
        match self {
            Other::Collective(run) => Ok(poll_collective(comm, run)),
            Other::Window(way, ticket) => Ok(match way.is_over(*ticket) {
                Ok(is_over) => is_over.then(at_rest),
                Err(error) => Some(failed(error)),
            }),
            Other::Staged(_) | Other::Gated(_) => self.poll_message(comm, of),
        }
    }

    #[cold]
    fn poll_message(&mut self, comm: &Comm, of: (Kind, i32)) -> Result<Option<Outcome>> {
        if let Other::Gated(gated) = self {
            match gated.look(comm, of) {
                None => return Ok(None),
                Some(StartedOther::Over(outcome)) => return Ok(Some(outcome)),
                Some(StartedOther::Sending(staged)) => *self = Other::Staged(staged),
            }
        }
        let Other::Staged(staged) = self else { return Ok(None) };
        let ended = staged.poll(comm)?;
        Ok(ended.map(|ended| end(comm, of, staged, ended)))
    }

    /// Takes it back; `Some` = it was over. Pending: it has been matched and is not over.
    pub(super) fn cancel(&mut self, comm: &Comm, of: (Kind, i32)) -> Result<Poll<Option<Outcome>>> {
        Ok(Poll::Ready(match self {
            Other::Collective(run) => {
                run.fail(
                    comm,
                    &Error::new(DTL_ERROR_CANCELED, "it was given up before it was over"),
                );
                None
            }
            Other::Window(way, ticket) => way.cancel(*ticket).map(|()| None)?,
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

    /// Returns the call of a collective.
    pub(super) fn call(&self) -> Option<&OpDesc> {
        match self {
            Other::Collective(run) => Some(run.call()),
            _ => None,
        }
    }

    /// Whether the operation can be cancelled as messages can.
    pub(super) fn is_message(&self) -> bool {
        matches!(self, Other::Staged(_) | Other::Gated(_))
    }

    /// Whether moving it on may call a function of the program's.
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
    let result = copied.and_then(|()| outcome(comm, of, &done));
    (done, result)
}
