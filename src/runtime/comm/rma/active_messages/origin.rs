//! The origin's side: requests in flight, and operations that are not over. Under one lock, which
//! is not held while anything is waited for.

use super::wire_format::{HEAD, Head, REQUEST, ROOM};
use crate::error::{Error, Result, fail};
use crate::runtime::comm::Comm;
use crate::runtime::comm::p2p::send_recv::OpHandle;
use crate::runtime::comm::rma_path::{RmaStart, Ticket, TicketRequest};
use crate::runtime::comm::shared_transport::Class;
use crate::runtime::component::{OpId, SendMode};
use crate::sys::memory::buf::{Region, Scratch};
use std::collections::VecDeque;
use std::ops::Range;

/// Requests on their way that have a buffer each.
const MOST_STAGED: usize = 64;
/// Operations that are not over locally.
const MOST_PENDING: usize = 1024;
/// Requests to one target that it has not answered for: as many as it may have to keep while it
/// does not serve.
const MOST_UNANSWERED: u64 = 256;
/// Buffers kept for later requests.
const SPARE: usize = 4;

/// An operation that is not over locally.
struct Pending {
    ticket: Ticket,
    target: i32,
    what: &'static str,
    started: OpHandle,
    asked: TicketRequest,
}

/// Requests to a target that are answered for together, by a flush: sent, and known to be done.
#[derive(Clone, Copy, Default)]
struct TargetCounts {
    sent: u64,
    done: u64,
}

pub(super) struct Origin {
    spare: Vec<Scratch>,
    staged: Vec<(OpId, Scratch)>,
    pending: VecDeque<Pending>,
    /// Operations with a request that were found over.
    over: Vec<(Ticket, Result<()>)>,
    /// By target, failures that no flush has returned.
    failed: Vec<(i32, Error)>,
    peers: Vec<TargetCounts>,
    number: u64,
    /// Receives of answers that no call waits for any more.
    abandoned: Vec<OpHandle>,
}

/// Why a request has to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SendCredit {
    Free,
    /// Until some of what is on its way is over.
    Later,
    /// Until the target has answered for what it was sent.
    Flush,
}

impl Origin {
    pub(super) fn new(ranks: usize) -> Origin {
        Origin {
            spare: Vec::new(),
            staged: Vec::new(),
            pending: VecDeque::new(),
            over: Vec::new(),
            failed: Vec::new(),
            peers: vec![TargetCounts::default(); ranks],
            number: 0,
            abandoned: Vec::new(),
        }
    }

    fn peer(&mut self, target: i32) -> Option<&mut TargetCounts> {
        self.peers.get_mut(usize::try_from(target).ok()?)
    }

    /// Whether there is room for one more request to a target.
    pub(super) fn room(&mut self, comm: &Comm, target: i32) -> Result<SendCredit> {
        self.collect_staged(comm);
        if self.pending.len() >= MOST_PENDING {
            self.collect(comm, &(0..comm.size), true)?;
        }
        Ok(if self.staged.len() >= MOST_STAGED || self.pending.len() >= MOST_PENDING {
            SendCredit::Later
        } else if self.peer(target).is_some_and(|peer| peer.sent - peer.done >= MOST_UNANSWERED) {
            SendCredit::Flush
        } else {
            SendCredit::Free
        })
    }

    /// The number of a new operation.
    pub(super) fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Notes that the target was sent something that only a flush answers for.
    pub(super) fn note(&mut self, target: i32) {
        if let Some(peer) = self.peer(target) {
            peer.sent += 1;
        }
    }

    /// Returns the number of messages that a flush of the target has to wait for. `None`: nothing
    /// was sent to it since the last flush.
    pub(super) fn unanswered(&mut self, target: i32) -> Option<u64> {
        self.peer(target).filter(|peer| peer.sent > peer.done).map(|peer| peer.sent)
    }

    /// Notes that the target has done that many messages, or will never do them.
    pub(super) fn answered(&mut self, target: i32, goal: u64) {
        if let Some(peer) = self.peer(target) {
            peer.done = peer.done.max(goal);
        }
    }

    /// Sends a request with its data, which are copied.
    pub(super) fn post(
        &mut self,
        comm: &Comm,
        target: i32,
        head: &Head,
        data: &[Region],
    ) -> Result<()> {
        let Some(mut scratch) = self.spare.pop().or_else(|| Scratch::unwritten(ROOM)) else {
            return fail!(DTL_ERROR_OUT_OF_MEMORY, "no {ROOM} bytes for a request to a window");
        };
        scratch.put_words(&head.words());
        let mut end = HEAD;
        for part in data {
            scratch.region().part(end, part.len()).copy_from(*part);
            end += part.len();
        }
        let message = scratch.region().part(0, end);
        let sent = comm.start_send(Class::User, message, target, REQUEST, SendMode::Standard);
        match sent {
            Ok(OpHandle::Op(op)) => self.staged.push((op, scratch)),
            _ => self.keep(scratch),
        }
        sent.map(drop)
    }

    /// Whether all answers are there that no call waits for any more.
    pub(super) fn is_answered(&mut self, comm: &Comm) -> bool {
        self.abandoned.retain(|started| match comm.poll(*started) {
            Ok(done) => done.is_none(),
            Err(_) => {
                comm.link.lose();
                false
            }
        });
        self.abandoned.is_empty()
    }

    /// Leaves an answer alone that will come.
    pub(super) fn abandon(&mut self, started: OpHandle) {
        self.abandoned.push(started);
    }

    fn keep(&mut self, scratch: Scratch) {
        if self.spare.len() < SPARE {
            self.spare.push(scratch);
        }
    }

    /// Takes back the buffers of requests that are on their way no more.
    fn collect_staged(&mut self, comm: &Comm) {
        self.is_answered(comm);
        let mut at = 0;
        while let Some((op, _)) = self.staged.get(at) {
            // The call that waits for a target finds out that it has died.
            if matches!(comm.link.transport.outcome(*op), Ok(Some(_))) {
                let (_, scratch) = self.staged.swap_remove(at);
                self.keep(scratch);
            } else {
                at += 1;
            }
        }
    }

    /// Notes an operation that was started.
    pub(super) fn add(
        &mut self,
        number: u64,
        (what, target): (&'static str, i32),
        started: OpHandle,
        asked: TicketRequest,
    ) -> RmaStart {
        if !matches!(started, OpHandle::Op(_)) {
            return RmaStart::Over;
        }
        let ticket = Ticket(number);
        self.pending.push_back(Pending { ticket, target, what, started, asked });
        RmaStart::Pending(ticket)
    }

    /// Whether all operations on these targets are over locally. Polls up to the first that is not
    /// over, or `every` one. An error: they could not be polled.
    pub(super) fn collect(
        &mut self,
        comm: &Comm,
        targets: &Range<i32>,
        every: bool,
    ) -> Result<bool> {
        let mut at = 0;
        while let Some(pending) = self.pending.get(at) {
            if !targets.contains(&pending.target) {
                at += 1;
            } else if let Some(end) = ending(comm, pending)? {
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
        if pending.asked {
            self.over.push((pending.ticket, end));
        } else if let Err(error) = end {
            self.failed.push((pending.target, error));
        }
    }

    /// Takes the first failure on these targets that was not returned, and drops their others.
    pub(super) fn failure(&mut self, targets: &Range<i32>) -> Result<()> {
        let first = self
            .failed
            .iter()
            .find(|(target, _)| targets.contains(target))
            .map(|(_, error)| error.clone());
        self.failed.retain(|(target, _)| !targets.contains(target));
        first.map_or(Ok(()), Err)
    }

    /// Polls an operation by its ticket: whether it is over, or its error. `None`: there is none.
    pub(super) fn poll(&mut self, comm: &Comm, ticket: Ticket) -> Option<Result<bool>> {
        if let Some(at) = self.pending.iter().position(|pending| pending.ticket == ticket) {
            match self.pending.get(at).map_or(Ok(None), |pending| ending(comm, pending)) {
                Ok(Some(end)) => self.settle(at, end),
                Ok(None) => return Some(Ok(false)),
                Err(error) => return Some(Err(error)),
            }
        }
        let at = self.over.iter().position(|(of, _)| *of == ticket)?;
        Some(self.over.swap_remove(at).1.map(|()| true))
    }

    /// Takes an operation out, to be cancelled.
    pub(super) fn take(&mut self, ticket: Ticket) -> Option<OpHandle> {
        self.over.retain(|(of, _)| *of != ticket);
        let at = self.pending.iter().position(|pending| pending.ticket == ticket)?;
        self.pending.remove(at).map(|pending| pending.started)
    }

    /// Cancels everything.
    pub(super) fn close(&mut self, comm: &Comm) {
        for (op, scratch) in self.staged.drain(..) {
            cancel(comm, op, Some(scratch));
        }
        let pending = self.pending.drain(..).map(|pending| pending.started);
        for started in pending.chain(self.abandoned.drain(..)) {
            if let OpHandle::Op(op) = started {
                cancel(comm, op, None);
            }
        }
    }
}

/// Cancels an operation of the library's own.
pub(super) fn cancel(comm: &Comm, op: OpId, scratch: Option<Scratch>) {
    // Memory of an operation that cannot be cancelled may still be read, so it is leaked.
    if comm.link.cancel(op).is_err() {
        std::mem::forget(scratch);
    }
}

/// Polls how an operation has ended; `None`: not yet.
fn ending(comm: &Comm, pending: &Pending) -> Result<Option<Result<()>>> {
    let done = comm.poll_peer(pending.started, pending.target)?;
    Ok(done.map(|done| comm.check_done(&done, pending.what, pending.target)))
}
