//! State of this rank as an origin: requests in flight and incomplete operations. One lock protects
//! this state, and no call waits while it holds the lock.

use super::wire_format::{HEAD, Head, REQUEST, ROOM};
use crate::error::{Error, Result, failure};
use crate::runtime::comm::Comm;
use crate::runtime::comm::p2p::op_handle::OpHandle;
use crate::runtime::comm::rma_path::{RmaStart, Ticket, TicketRequest};
use crate::runtime::comm::shared_transport::Class;
use crate::runtime::component::{OpId, SendMode};
use crate::sys::memory::buf::{Region, Scratch};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of request messages in flight. Each of them occupies a send buffer.
const MOST_STAGED: usize = 64;
/// Maximum number of operations that are not complete locally.
const MOST_PENDING: usize = 1024;
/// Maximum number of requests that were sent to one target and that no flush has confirmed as
/// complete. The requests are queued at the target until the target executes them.
const MOST_UNANSWERED: u64 = 256;
/// Maximum number of unused send buffers that are retained for later messages.
const SPARE: usize = 4;

/// Operation that is not complete locally.
struct Pending {
    ticket: Ticket,
    target: i32,
    what: &'static str,
    started: OpHandle,
    wants_ticket: TicketRequest,
}

/// Number of requests that were sent to a target (`sent`), and number of these requests that a
/// flush has found complete (`done`). Requests with a reply of their own are not counted.
#[derive(Clone, Copy, Default)]
struct TargetCounts {
    sent: u64,
    done: u64,
}

pub(super) struct Origin {
    comm: Arc<Comm>,
    staged: Sends,
    pending: VecDeque<Pending>,
    /// Results of completed operations whose tickets the caller has not polled yet.
    over: Vec<(Ticket, Result<()>)>,
    /// Failures that no flush has returned yet, with their targets.
    failed: Vec<(i32, Error)>,
    peers: Vec<TargetCounts>,
    number: u64,
    /// Posted receives for replies that no call is waiting for any more.
    abandoned: Vec<OpHandle>,
}

/// Result of checking whether one more request may be sent to a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SendCredit {
    Free,
    /// The request must wait until an operation in flight completes.
    Later,
    /// The request must wait until the target has confirmed previous requests.
    Flush,
}

impl Origin {
    pub(super) fn new(comm: Arc<Comm>) -> Origin {
        let peers = vec![TargetCounts::default(); comm.size.unsigned_abs() as usize];
        Origin {
            comm,
            staged: Sends::default(),
            pending: VecDeque::new(),
            over: Vec::new(),
            failed: Vec::new(),
            peers,
            number: 0,
            abandoned: Vec::new(),
        }
    }

    fn peer(&mut self, target: i32) -> Option<&mut TargetCounts> {
        self.peers.get_mut(usize::try_from(target).ok()?)
    }

    /// Determines whether one more request may be sent to `target` now.
    pub(super) fn room(&mut self, target: i32) -> Result<SendCredit> {
        self.is_answered();
        self.staged.collect(&self.comm);
        if self.pending.len() >= MOST_PENDING {
            self.collect(&(0..self.comm.size), true)?;
        }
        Ok(if self.staged.len() >= MOST_STAGED || self.pending.len() >= MOST_PENDING {
            SendCredit::Later
        } else if self.peer(target).is_some_and(|peer| peer.sent - peer.done >= MOST_UNANSWERED) {
            SendCredit::Flush
        } else {
            SendCredit::Free
        })
    }

    /// Returns a new operation number.
    pub(super) fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Returns the number of requests that `target` must complete before a flush returns, counting
    /// only requests that have no reply of their own; `None` if all of them are known to be
    /// complete.
    pub(super) fn unanswered(&mut self, target: i32) -> Option<u64> {
        self.peer(target).filter(|peer| peer.sent > peer.done).map(|peer| peer.sent)
    }

    /// Records that `target` has executed, or will never execute, the first `goal` requests that
    /// have no reply of their own.
    pub(super) fn answered(&mut self, target: i32, goal: u64) {
        if let Some(peer) = self.peer(target) {
            peer.done = peer.done.max(goal);
        }
    }

    /// Sends a request with a copy of its data.
    pub(super) fn post(&mut self, target: i32, head: &Head, data: &[Region]) -> Result<()> {
        let scratch = self.staged.buffer().ok_or_else(|| {
            failure!(DTL_ERROR_OUT_OF_MEMORY, "no {ROOM} bytes for a request to a window")
        })?;
        scratch.region().put_words(&head.words());
        let mut end = HEAD;
        for part in data {
            scratch.region().part(end, part.len()).copy_from(*part);
            end += part.len();
        }
        let message = scratch.region().part(0, end);
        self.staged.send(&self.comm, (target, REQUEST), message, Some(scratch))
    }

    /// Sends a request that has no reply and is confirmed only by a flush, and counts the request.
    pub(super) fn post_counted(&mut self, target: i32, head: &Head, data: &[Region]) -> Result<()> {
        self.post(target, head, data)?;
        self.peer(target).into_iter().for_each(|peer| peer.sent += 1);
        Ok(())
    }

    /// Polls the receives of replies that no call waits for any longer. Returns true if all of
    /// these receives have ended.
    pub(super) fn is_answered(&mut self) -> bool {
        self.abandoned.retain(|started| match self.comm.poll(*started) {
            Ok(done) => done.is_none(),
            Err(_) => {
                self.comm.link.lose();
                false
            }
        });
        self.abandoned.is_empty()
    }

    /// Adds `started`, a posted receive, to `abandoned`, the list of receives of replies that no
    /// call is waiting for any more.
    pub(super) fn abandon(&mut self, started: OpHandle) {
        self.abandoned.push(started);
    }

    /// Adds a started operation to the list of operations that are not locally complete, unless it
    /// is already complete. Returns the ticket that identifies the operation.
    pub(super) fn add(
        &mut self,
        number: u64,
        (what, target): (&'static str, i32),
        started: OpHandle,
        wants_ticket: TicketRequest,
    ) -> RmaStart {
        if !matches!(started, OpHandle::Op(_)) {
            return None;
        }
        let ticket = Ticket(number);
        self.pending.push_back(Pending { ticket, target, what, started, wants_ticket });
        Some(ticket)
    }

    /// Returns true if all operations on the targets are complete locally. Polls these operations
    /// up to the first incomplete one, or all of them if `every` is true. Fails if polling fails.
    pub(super) fn collect(&mut self, targets: &Range<i32>, every: bool) -> Result<bool> {
        let mut at = 0;
        while let Some(pending) = self.pending.get(at) {
            if !targets.contains(&pending.target) {
                at += 1;
            } else if let Some(end) = ending(&self.comm, pending)? {
                self.settle(at, end);
            } else if every {
                at += 1;
            } else {
                return Ok(false);
            }
        }
        Ok(!self.pending.iter().any(|pending| targets.contains(&pending.target)))
    }

    fn settle(&mut self, at: usize, end: Result<()>) {
        let Some(pending) = self.pending.remove(at) else { return };
        if pending.wants_ticket {
            self.over.push((pending.ticket, end));
        } else if let Err(error) = end {
            self.failed.push((pending.target, error));
        }
    }

    /// Returns the first unreported failure of an operation on `targets`, and discards all other
    /// unreported failures of operations on `targets`. A failure is unreported until a flush
    /// returns it.
    pub(super) fn failure(&mut self, targets: &Range<i32>) -> Result<()> {
        let failed = std::mem::take(&mut self.failed).into_iter();
        let (ours, rest): (Vec<_>, Vec<_>) = failed.partition(|(of, _)| targets.contains(of));
        self.failed = rest;
        ours.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Polls the operation with the given ticket. Returns true if the operation is complete, false
    /// if it is in flight, and its error if it has failed. Returns `None` if the ticket is unknown.
    pub(super) fn poll(&mut self, ticket: Ticket) -> Option<Result<bool>> {
        if let Some(at) = self.pending.iter().position(|pending| pending.ticket == ticket) {
            match self.pending.get(at).map_or(Ok(None), |pending| ending(&self.comm, pending)) {
                Ok(Some(end)) => self.settle(at, end),
                Ok(None) => return Some(Ok(false)),
                Err(error) => return Some(Err(error)),
            }
        }
        let at = self.over.iter().position(|(of, _)| *of == ticket)?;
        Some(self.over.swap_remove(at).1.map(|()| true))
    }

    /// Removes an operation and returns its handle, so that the caller can cancel it.
    pub(super) fn take(&mut self, ticket: Ticket) -> Option<OpHandle> {
        self.over.retain(|(of, _)| *of != ticket);
        let at = self.pending.iter().position(|pending| pending.ticket == ticket)?;
        self.pending.remove(at).map(|pending| pending.started)
    }

    /// Cancels all operations and requests.
    pub(super) fn close(&mut self) {
        self.staged.close(&self.comm);
        let pending = self.pending.drain(..).map(|pending| pending.started);
        for started in pending.chain(self.abandoned.drain(..)) {
            if let OpHandle::Op(op) = started {
                cancel(&self.comm, op, None);
            }
        }
    }
}

/// Messages in flight, each with its send buffer, and unused send buffers for later messages.
#[derive(Default)]
pub(super) struct Sends {
    in_flight: Vec<(OpId, Option<Scratch>)>,
    spare: Vec<Scratch>,
}

impl Sends {
    /// Returns the number of messages in flight.
    pub(super) fn len(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns a buffer of `ROOM` bytes; `None` if memory is exhausted.
    pub(super) fn buffer(&mut self) -> Option<Scratch> {
        self.spare.pop().or_else(|| Scratch::unwritten(ROOM))
    }

    /// Sends `data`. If `data` is in a buffer that `Sends::buffer` returned, `buffer` is that
    /// buffer, which is reused after the send; otherwise `buffer` is `None`.
    pub(super) fn send(
        &mut self,
        comm: &Comm,
        (dest, tag): (i32, i32),
        data: Region,
        buffer: Option<Scratch>,
    ) -> Result<()> {
        let sent = comm.start_send(Class::User, data, dest, tag, SendMode::Standard);
        match sent {
            Ok(OpHandle::Op(op)) => self.in_flight.push((op, buffer)),
            _ => self.keep(buffer),
        }
        sent.map(drop)
    }

    fn keep(&mut self, buffer: Option<Scratch>) {
        self.spare.extend(buffer.filter(|_| self.spare.len() < SPARE));
    }

    /// Reclaims the buffers of messages that have been sent.
    pub(super) fn collect(&mut self, comm: &Comm) {
        let Sends { in_flight, spare } = self;
        in_flight.retain_mut(|(op, buffer)| {
            // A call that waits for the receiving rank detects its death.
            let is_sent = matches!(comm.link.transport.outcome(*op), Ok(Some(_)));
            spare.extend(buffer.take_if(|_| is_sent && spare.len() < SPARE));
            !is_sent
        });
    }

    /// Cancels all messages.
    pub(super) fn close(&mut self, comm: &Comm) {
        self.in_flight.drain(..).for_each(|(op, buffer)| cancel(comm, op, buffer));
    }
}

/// Cancels an internal operation of the library.
pub(super) fn cancel(comm: &Comm, op: OpId, scratch: Option<Scratch>) {
    // Memory of an operation that cannot be canceled may still be read, so it is leaked.
    if comm.link.cancel(op).is_err() {
        std::mem::forget(scratch);
    }
}

/// Polls an operation. Returns its result, or `None` if the operation is in progress.
fn ending(comm: &Comm, pending: &Pending) -> Result<Option<Result<()>>> {
    let done = comm.poll_peer(pending.started, pending.target)?;
    Ok(done.map(|mut done| comm.check_done(&mut done, pending.what, pending.target)))
}
