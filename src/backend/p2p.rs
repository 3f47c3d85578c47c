//! Point-to-point protocol, generic over the link that carries the messages: the rings of kind
//! "shm" or a raw transport.
//!
//! This file contains everything that does not depend on the link: operations and their queues,
//! matching, unexpected messages, messages of a rank to itself, probe, matched probe, cancellation,
//! and the failure of operations whose peer has failed. [`P2pLink`] is the link's part: it sends
//! eager messages, rendezvous requests, control messages and the data. [`P2pEngine`] is the
//! protocol. It is compiled for each link, without dynamic calls. No function blocks.
//!
//! The sender can cancel a rendezvous message until the receive of the message starts, even after a
//! matched probe. Then the receive of the message completes with CANCELED. So a sender can cancel
//! the message after a timeout, even if the receiver has probed the message and never receives it.

use super::match_queues::{Matcher, PostedReceive, UnexpectedMessage};
use super::op_table::{Operation, Operations, done, fitting, index_of, rank_of};
use crate::abi::comm::communicator::DTL_ANY_SOURCE;
use crate::abi::status::*;
use crate::error::{Error, Result, fail};
use crate::runtime::component::{Completion, Dest, Matched, OpId, Selector, SendMode};
use crate::sys::memory::buf::{Region, Scratch};
use std::collections::VecDeque;

/// Operation in flight over link `L`.
pub(crate) type LinkOperation<L> = Operation<Send<L>, Receive<L>, LinkArrival<L>>;
/// Unexpected message over link `L`.
pub(crate) type LinkArrival<L> = Arrival<<L as P2pLink>::Bytes, <L as P2pLink>::Offer>;

/// Send operation over link `L`.
pub(crate) struct Send<L: P2pLink> {
    pub(crate) dest: usize,
    pub(crate) word: u64,
    pub(crate) data: Region,
    pub(crate) mode: SendMode,
    pub(crate) stage: L::Stage,
    /// Write progress of `data`, if its bytes are still being written.
    pub(crate) filling: L::Filling,
}

/// Receive operation over link `L`.
pub(crate) struct Receive<L: P2pLink> {
    pub(crate) into: Region,
    /// Source that the receive names (a rank or DTL_ANY_SOURCE).
    pub(crate) source: i32,
    /// Rendezvous request that the receive has matched.
    pub(crate) taken: Option<L::Taken>,
    /// Use of the message by the link, other than storing.
    pub(crate) action: L::Action,
}

/// Unexpected message: no matching receive is posted yet.
pub(crate) enum Arrival<B, O> {
    /// A complete message: its bytes and their number.
    Held(B, usize),
    /// A rendezvous request.
    Offered(O),
    /// A message from this rank to itself, represented by the ID of its send.
    Own(OpId),
}

impl<L: P2pLink> LinkOperation<L> {
    /// Completes a receive with the message `data` from rank `source`, which is this rank if
    /// `is_own`.
    #[inline]
    pub(crate) fn deliver(&mut self, source: usize, word: u64, data: Region, is_own: bool) {
        if let Operation::Receive(receive) = self {
            L::store(receive, data, is_own);
            let size = data.len() as u64;
            *self = Operation::Done(done(source, fitting(size, receive.into), word, size));
        }
    }
}

/// Sends and control messages that wait for space on the link to one rank.
pub(crate) struct SendQueue<A> {
    /// Sends in posting order.
    pub(crate) starts: VecDeque<OpId>,
    /// Control messages, which are sent before the sends.
    pub(crate) answers: VecDeque<A>,
    /// True if the rank is in the list of ranks with work ([`P2pLink::listed`]).
    pub(crate) is_listed: bool,
}

impl<A> Default for SendQueue<A> {
    fn default() -> Self {
        SendQueue { starts: VecDeque::new(), answers: VecDeque::new(), is_listed: false }
    }
}

impl<A> SendQueue<A> {
    pub(crate) fn is_empty(&self) -> bool {
        self.starts.is_empty() && self.answers.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.starts.clear();
        self.answers.clear();
    }
}

/// Outcome of an attempt to send a message or a rendezvous request.
pub(crate) enum SendOutcome {
    Yes,
    /// There is no space now.
    NoRoom,
    Failed(Error),
}

/// Connection of a rank to the others of a communicator, and its queues.
pub(crate) trait P2pLink: Sized {
    /// Progress of a send. The default is a send that waits for space on the link or, if it is to
    /// this rank itself, for a matching receive.
    type Stage: Copy + Default;
    /// Write progress of the data of a send, which may begin before all bytes are available.
    type Filling: Default;
    /// Rendezvous request that a receive has matched, with the progress of its transfer.
    type Taken;
    /// Use of a message by its receive. The default stores the message.
    type Action: Default;
    /// Content of a rendezvous request.
    type Offer;
    /// Stored bytes of an unexpected message.
    type Bytes: From<Scratch>;
    /// Queued control message.
    type Answer: Copy;
    /// Maximum size of an eager message, in bytes.
    const EAGER: usize;

    /// Returns this rank, and the number of ranks.
    fn ranks(&self) -> (usize, usize);
    /// Returns the operations in flight and the queues of receives and messages.
    fn queues(&self) -> (&Operations<LinkOperation<Self>>, &Matcher<OpId, LinkArrival<Self>>);
    fn queues_mut(
        &mut self,
    ) -> (&mut Operations<LinkOperation<Self>>, &mut Matcher<OpId, LinkArrival<Self>>);
    fn operations(&mut self) -> &mut Operations<LinkOperation<Self>> {
        self.queues_mut().0
    }
    fn matcher(&mut self) -> &mut Matcher<OpId, LinkArrival<Self>> {
        self.queues_mut().1
    }
    /// Returns the queue of messages to `rank`, or `None` if there is none or the rank has failed.
    fn send_queue(&mut self, rank: usize) -> Option<&mut SendQueue<Self::Answer>>;
    /// Returns the list of ranks with queued work.
    fn listed(&mut self) -> &mut Vec<usize>;
    /// Returns `source` if that rank died or left, so that a receive from it cannot complete, else
    /// `None`. (The communicator decides whether a failure ends an any-source receive, because it
    /// has the member list.)
    fn gone(&self, source: i32) -> Option<usize>;
    /// Makes progress before a receive or a probe, if the link requires that. Fails if the link has
    /// failed.
    fn prepare(&mut self) -> Result<()> {
        Ok(())
    }
    /// Prepares a send to `dest`, another rank that has not failed. Returns true if the send must
    /// be queued, because it would overtake earlier ones.
    fn connect(&mut self, dest: usize) -> Result<bool>;
    /// Starts send `id`: sends the message or its rendezvous request.
    fn try_start(&mut self, dest: usize, id: OpId) -> SendOutcome;
    /// Sends a control message; returns false if there is no space for it now.
    fn try_answer(&mut self, dest: usize, answer: Self::Answer) -> bool;
    /// Starts the transfer of a message whose rendezvous request receive `id` has accepted. `place`
    /// is the receive's position in the posting order, if it was posted.
    fn transfer(
        &mut self,
        id: OpId,
        source: usize,
        word: u64,
        offer: Self::Offer,
        place: Option<PostedReceive<OpId>>,
    );
    /// Cancels send `id` to another rank, if that is still possible.
    fn cancel_send(&mut self, id: OpId, dest: usize, stage: Self::Stage) -> bool;
    /// Accepts a rendezvous request. Returns false if the sender has already canceled it; the
    /// sender can no longer cancel an accepted request.
    fn claim(&self, _source: usize, _offer: &Self::Offer) -> bool {
        true
    }
    /// Returns the size of the message of a rendezvous request, or `None` if the sender has
    /// canceled the request.
    fn size_of(&self, source: usize, offer: &Self::Offer) -> Option<u64>;
    /// Copies a message to the buffer of a receive. If the message is from this rank (`is_own`),
    /// `data` and the buffer may overlap.
    fn store(receive: &Receive<Self>, data: Region, _is_own: bool) {
        receive.into.copy_from(data);
    }
    /// Returns the `size` bytes of an unexpected message.
    fn region(bytes: &mut Self::Bytes, size: usize) -> Region;
    /// Releases the memory of an unexpected message.
    fn release(&mut self, _bytes: Self::Bytes) {}
    /// Notes that a receive was posted for a message from `source`, or that a probe found none.
    fn awaits(&mut self, _source: i32, _is_probe: bool) {}
}

/// Protocol over a [`P2pLink`].
pub(crate) trait P2pEngine: P2pLink {
    fn check_rank(&self, rank: i32) -> Result<usize> {
        let (_, ranks) = self.ranks();
        match usize::try_from(rank) {
            Ok(index) if index < ranks => Ok(index),
            _ => fail!(DTL_ERROR_INVALID_RANK, "rank {rank} is not in 0 … {}", ranks - 1),
        }
    }

    fn failed_ranks(&self) -> Vec<i32> {
        (0..rank_of(self.ranks().1)).filter(|rank| self.gone(*rank).is_some()).collect()
    }

    /// Completes operation `id` with an error status; `peer` is the completion's source.
    fn finish_failed(&mut self, id: OpId, peer: usize, status: dtl_status_t) {
        self.operations().finish(id, done(peer, status, 0, 0));
    }

    #[inline(never)] // keeps it out of the fast path of links
    fn isend(&mut self, data: Region, to: Dest, mode: SendMode) -> Result<OpId> {
        let (dest, word) = (self.check_rank(to.rank)?, to.word);
        let (stage, filling) = <(Self::Stage, Self::Filling)>::default();
        let send = Send { dest, word, data, mode, stage, filling };
        if dest == self.ranks().0 { self.send_to_self(send) } else { self.send_to(send) }
    }

    /// Starts a send to another rank, or queues it.
    fn send_to(&mut self, send: Send<Self>) -> Result<OpId> {
        let (dest, word) = (send.dest, send.word);
        if self.gone(rank_of(dest)).is_some() {
            let failed = done(dest, DTL_ERROR_RANK_FAILURE, word, 0);
            return self.operations().add(Operation::Done(failed));
        }
        let waits = self.connect(dest)?;
        let id = self.operations().add(Operation::Send(send))?;
        match if waits { SendOutcome::NoRoom } else { self.try_start(dest, id) } {
            SendOutcome::Yes => {}
            SendOutcome::NoRoom => {
                self.send_queue(dest).into_iter().for_each(|queue| queue.starts.push_back(id));
                self.list(dest);
            }
            SendOutcome::Failed(error) if error.status() == DTL_ERROR_RANK_FAILURE => {
                self.finish_failed(id, dest, DTL_ERROR_RANK_FAILURE);
            }
            SendOutcome::Failed(error) => {
                self.operations().remove(id);
                return Err(error);
            }
        }
        Ok(id)
    }

    fn send_to_self(&mut self, send: Send<Self>) -> Result<OpId> {
        let (rank, word, data) = (send.dest, send.word, send.data);
        let over = Operation::Done(done(rank, DTL_SUCCESS, word, data.len() as u64));
        if let Some(posted) = self.matcher().take_posted(rank_of(rank), word) {
            self.deliver(posted, rank, word, data);
            return self.operations().add(over);
        }
        let is_copied = data.len() <= Self::EAGER && send.mode != SendMode::Synchronous;
        let copy = if is_copied { Scratch::copy_of(data) } else { None };
        let (operations, matcher) = self.queues_mut();
        let (id, arrival) = match copy {
            Some(copy) => (operations.add(over)?, Arrival::Held(copy.into(), data.len())),
            None => {
                let id = operations.add(Operation::Send(send))?;
                (id, Arrival::Own(id))
            }
        };
        matcher.arrive(rank_of(rank), word, arrival);
        Ok(id)
    }

    /// Sends the queued control messages for `dest`, then starts the queued sends, until there is
    /// no space. Returns true if anything was sent.
    fn write_to(&mut self, dest: usize) -> bool {
        let mut moved = false;
        while let Some(&answer) = self.send_queue(dest).and_then(|queue| queue.answers.front()) {
            if !self.try_answer(dest, answer) {
                return moved;
            }
            moved = true;
            self.send_queue(dest).map(|queue| queue.answers.pop_front());
        }
        while let Some(&id) = self.send_queue(dest).and_then(|queue| queue.starts.front()) {
            match self.try_start(dest, id) {
                SendOutcome::Yes => {}
                SendOutcome::NoRoom => break,
                SendOutcome::Failed(error) => self.finish_failed(id, dest, error.status()),
            }
            moved = true;
            self.send_queue(dest).map(|queue| queue.starts.pop_front());
        }
        moved
    }

    /// Queues a control message.
    fn queue_answer(&mut self, dest: usize, answer: Self::Answer) {
        self.send_queue(dest).into_iter().for_each(|queue| queue.answers.push_back(answer));
        self.list(dest);
    }

    #[inline]
    fn list(&mut self, rank: usize) {
        if let Some(queue) = self.send_queue(rank).filter(|queue| !queue.is_listed) {
            queue.is_listed = true;
            self.listed().push(rank);
        }
    }

    fn irecv(&mut self, into: Region, select: Selector, action: Self::Action) -> Result<OpId> {
        if select.source != DTL_ANY_SOURCE {
            self.check_rank(select.source)?;
        }
        self.prepare()?;
        let receive = Receive { into, source: select.source, taken: None, action };
        let id = self.operations().add(Operation::Receive(receive))?;
        if self.gone(select.source).is_none() && self.matcher().post_first(select, id) {
            self.awaits(select.source, false);
        } else {
            let place = self.matcher().place(select, id);
            self.find_message(place);
        }
        Ok(id)
    }

    /// Starts the receive `place` if a matching unexpected message is queued. If there is no such
    /// message, fails the receive if its source has failed, and otherwise posts the receive at its
    /// position in the posting order.
    fn find_message(&mut self, place: PostedReceive<OpId>) {
        let (id, source) = (place.what, place.select.source);
        while let Some(message) = self.matcher().take_unexpected(&place.select) {
            // If the sender has canceled a rendezvous request, the search continues.
            if self.accepts(&message) {
                return self.give(id, message, Some(place));
            }
        }
        match self.gone(source) {
            Some(rank) => self.finish_failed(id, rank, DTL_ERROR_RANK_FAILURE),
            None => {
                self.matcher().put(place);
                self.awaits(source, false);
            }
        }
    }

    /// Accepts `message` for a receive; returns false if it is a rendezvous request that its sender
    /// has canceled.
    fn accepts(&self, message: &UnexpectedMessage<LinkArrival<Self>>) -> bool {
        match &message.what {
            Arrival::Offered(offer) => self.claim(index_of(message.source), offer),
            Arrival::Held(..) | Arrival::Own(_) => true,
        }
    }

    /// Starts the transfer of `message` into the buffer of receive `id`.
    fn give(
        &mut self,
        id: OpId,
        message: UnexpectedMessage<LinkArrival<Self>>,
        place: Option<PostedReceive<OpId>>,
    ) {
        let (source, word) = (index_of(message.source), message.match_bits);
        match message.what {
            Arrival::Held(mut bytes, size) => {
                self.deliver(id, source, word, Self::region(&mut bytes, size));
                self.release(bytes);
            }
            Arrival::Own(send) => {
                if let Some(&Operation::Send(Send { data, .. })) = self.queues().0.get(send) {
                    self.deliver(id, source, word, data);
                    let over = done(source, DTL_SUCCESS, word, data.len() as u64);
                    self.operations().finish(send, over);
                }
            }
            Arrival::Offered(offer) => self.transfer(id, source, word, offer, place),
        }
    }

    /// Copies a complete message to the buffer of receive `id`, and completes the receive.
    #[inline]
    fn deliver(&mut self, id: OpId, source: usize, word: u64, data: Region) {
        let is_own = source == self.ranks().0;
        let Some(operation) = self.operations().get_mut(id) else { return };
        operation.deliver(source, word, data, is_own);
    }

    /// Handles an eager message that has arrived from another rank: delivers it to the posted
    /// receive that matches it, or queues a copy. Returns false if there is no memory for a copy.
    #[inline(always)] // row: shm_message_8
    fn accept_message(&mut self, source: usize, word: u64, payload: Region) -> bool {
        let from = rank_of(source);
        if let Some(id) = self.matcher().take_posted(from, word) {
            self.deliver(id, source, word, payload);
            return true;
        }
        let Some(copy) = Scratch::copy_of(payload) else { return false };
        self.matcher().arrive(from, word, Arrival::Held(copy.into(), payload.len()));
        true
    }

    /// Returns the status of the message that a receive with selector `select` would match now;
    /// `None` if there is no such message. Drops rendezvous requests that were canceled.
    fn probe(&mut self, select: Selector) -> Result<Option<Completion>> {
        if select.source != DTL_ANY_SOURCE {
            self.check_rank(select.source)?;
        }
        self.prepare()?;
        loop {
            let (operations, matcher) = self.queues();
            let Some(message) = matcher.peek(&select) else { break };
            let source = index_of(message.source);
            let size = match &message.what {
                Arrival::Held(_, size) => Some(*size as u64),
                Arrival::Own(send) => match operations.get(*send) {
                    Some(Operation::Send(send)) => Some(send.data.len() as u64),
                    _ => None,
                },
                Arrival::Offered(offer) => self.size_of(source, offer),
            };
            if let Some(size) = size {
                return Ok(Some(done(source, DTL_SUCCESS, message.match_bits, size)));
            }
            // A refused claim gives the state word back to the sender.
            let canceled = self.matcher().take_unexpected(&select);
            canceled.map(|message| self.accepts(&message));
        }
        if let Some(rank) = self.gone(select.source) {
            return fail!(
                DTL_ERROR_RANK_FAILURE,
                "no message is there and none can come: rank {rank} has died or left"
            );
        }
        self.awaits(select.source, true);
        Ok(None)
    }

    /// Removes the message that a receive with selector `select` would match now and reserves that
    /// message for one receive; `None` if there is no such message.
    fn take(&mut self, select: Selector) -> Result<Option<Matched>> {
        let Some(done) = self.probe(select)? else { return Ok(None) };
        let (operations, matcher) = self.queues_mut();
        operations.take(matcher, &select, done).map(Some)
    }

    /// Starts the receive of `message`, which a matched probe has matched; the ID of the receive is
    /// `message`.
    fn receive_matched(&mut self, message: OpId, into: Region) -> Result<OpId> {
        self.prepare()?;
        let action = Self::Action::default();
        let receive = Receive { into, source: DTL_ANY_SOURCE, taken: None, action };
        let Some(taken) = self.operations().start_matched(message, receive)? else {
            return Ok(message);
        };
        let (source, word) = (index_of(taken.source), taken.match_bits);
        if matches!(taken.what, Arrival::Offered(_)) && self.gone(taken.source).is_some() {
            self.finish_failed(message, source, DTL_ERROR_RANK_FAILURE);
        } else if !self.accepts(&taken) {
            self.operations().finish(message, done(source, DTL_ERROR_CANCELED, word, 0));
        } else {
            self.give(message, taken, None);
        }
        Ok(message)
    }

    /// Cancels an operation if that is still possible; then the operation completes with CANCELED.
    /// Returns true if the operation was canceled.
    fn withdraw(&mut self, id: OpId) -> bool {
        let (rank, _) = self.ranks();
        let (operations, matcher) = self.queues_mut();
        let is_canceled = match operations.get(id) {
            Some(&Operation::Receive(Receive { source, taken: None, .. })) => {
                matcher.cancel(source, &id)
            }
            Some(&Operation::Send(Send { dest, .. })) if dest == rank => {
                let is = |what: &_| matches!(what, Arrival::Own(send) if *send == id);
                operations.cancel_message(matcher, rank_of(rank), is)
            }
            Some(&Operation::Send(Send { dest, stage, .. })) => self.cancel_send(id, dest, stage),
            _ => false,
        };
        if is_canceled {
            self.finish_failed(id, rank, DTL_ERROR_CANCELED);
        }
        is_canceled
    }

    /// Fails the receives that name `rank`, which has failed, and the operations for which
    /// `is_bound` returns true. Drops the rendezvous requests from that rank, whose messages can no
    /// longer be fetched; complete messages can still be received.
    fn fail_operations(&mut self, rank: usize, is_bound: impl Fn(&LinkOperation<Self>) -> bool) {
        let (operations, matcher) = self.queues_mut();
        matcher.retain_unexpected(rank_of(rank), |what| !matches!(what, Arrival::Offered(_)));
        let mut failed = matcher.take_posted_from(rank_of(rank));
        let bound = |(id, operation): (_, &mut _)| is_bound(operation).then_some(id);
        failed.extend(operations.iter_mut().filter_map(bound));
        failed.into_iter().for_each(|id| self.finish_failed(id, rank, DTL_ERROR_RANK_FAILURE));
    }
}

impl<L: P2pLink> P2pEngine for L {}
