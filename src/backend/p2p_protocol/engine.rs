//! Start and cancellation of operations.
//!
//! Up to `INLINE` bytes are sent in an Eager frame; the send completes once they are copied to the
//! frame. Larger and synchronous messages use rendezvous: the sender sends an Offer frame (RTS).
//! When the receiver has a matching receive, it posts a receive on the raw transport (`Wire`) for
//! the payload, into the user's buffer, and sends Clear (CTS). The sender then sends as many bytes
//! as fit into that buffer. So no large message is ever unexpected on the `Wire`, and a truncated
//! message transfers only the bytes that fit.
//!
//! An empty payload means that the rendezvous request was canceled; for an empty message, one byte
//! is sent.
//!
//! Cancellation is local and immediate. A send can be canceled until its payload is passed to the
//! `Wire`. The receiver is notified of a canceled request and drops it. If the receiver has already
//! sent Clear, it gets an empty payload, and the receive returns to its original position in the
//! posting order. A later receive may meanwhile have matched a message that the returned receive
//! would have matched. A receive that has already received its message completes normally.

use super::frame::{Frame, FrameKind, INLINE};
use super::rma::OpenWindow;
use super::{RxFrame, Wire, recv_fast};
use crate::abi::comm::communicator::DTL_ANY_SOURCE;
use crate::abi::status::*;
use crate::backend::match_queues::{Matcher, PostedReceive, UnexpectedMessage};
use crate::backend::op_table::{self, Operations};
use crate::backend::peer_map::PeerMap;
use crate::error::{Error, Result, fail};
use crate::runtime::comm::coll::{CollArgs, CollCall};
use crate::runtime::component::{Completion, Dest, MemoryPlace, OpId, Selector, SendMode};
use crate::sys::memory::buf::{Region, Scratch};
use std::collections::VecDeque;

pub(super) use crate::backend::op_table::{done, fitting, index_of, rank_of};

/// Number of receives that are kept posted for incoming frames.
pub(super) const RECEIVES: usize = 8;

/// Protocol engine over a raw transport (`Wire`): starts, progresses and cancels operations. No
/// method blocks.
pub(super) struct Engine {
    pub(super) wire: Box<dyn Wire>,
    /// Number of rounds in which `receive_at_once` polls the `Wire`; 0 if the `Wire` does not
    /// provide the frame buffers.
    pub(super) rounds: u32,
    pub(super) rank: usize,
    pub(super) operations: Operations<Operation>,
    pub(super) matcher: Matcher<OpId, Arrival>,
    /// State per peer, created with the first message to or from the peer or when the peer fails.
    pub(super) links: PeerMap<PeerLink>,
    /// Ranks for which frames are queued or in flight.
    pub(super) listed: Vec<usize>,
    /// Posted frame receives and their buffers, in posting order.
    pub(super) incoming: VecDeque<(OpId, Frame)>,
    /// Frame buffers whose receive could not be posted, because the `Wire` was out of resources.
    pub(super) unposted: Vec<Frame>,
    /// Number of frame receives to be kept posted. Some are not posted while the `Wire` is out of
    /// resources or memory for their frames is exhausted.
    pub(super) receives: usize,
    pub(super) pool: Vec<Frame>,
    pub(super) payloads: VecDeque<Payload>,
    pub(super) last_payload: u32,
    /// `HostShadow` of each message in device memory, by operation. It records whether the bytes
    /// are in device or host memory. The code that waits for the operation owns the `HostShadow`;
    /// this list only has a weak reference.
    pub(super) twins: super::device_mem::HostShadows,
    /// Failed ranks whose failure has not been handled yet, because the frames that they sent
    /// before the failure are read first.
    pub(super) dying: Vec<usize>,
    pub(super) deaths: usize,
    /// Number of frame receives that failed because a rank failed.
    pub(super) lost_receives: usize,
    /// Status with which all operations fail; `None` while the `Wire` works.
    pub(super) broken: Option<dtl_status_t>,
    /// Error message of the last failure.
    pub(super) reason: Option<String>,
    /// Rank whose failure `reason` describes; `None` if it describes no failure of a rank.
    pub(super) reason_of: Option<usize>,
    /// Collectives in flight, in the order of their start.
    pub(super) collectives: Vec<Collective>,
    /// Open windows, each with its number.
    pub(super) windows: Vec<(u64, OpenWindow)>,
}

/// Queued and in-flight messages to one rank.
#[derive(Default)]
pub(super) struct PeerLink {
    pub(super) answers: VecDeque<Control>,
    /// Sends that are waiting for send resources, in posting order.
    pub(super) starts: VecDeque<OpId>,
    /// Frames whose send on the `Wire` is not complete.
    pub(super) in_flight: VecDeque<(OpId, Frame)>,
    /// Number of canceled rendezvous requests that the receiver has answered neither with a
    /// `Forgotten` frame (request dropped) nor with a `Clear` frame.
    pub(super) withdrawn: usize,
    pub(super) is_listed: bool,
    pub(super) is_dead: bool,
}

impl PeerLink {
    pub(super) fn has_work(&self) -> bool {
        !(self.answers.is_empty() && self.starts.is_empty() && self.in_flight.is_empty())
    }
}

/// Control frame or rendezvous payload that is queued for a rank.
#[derive(Clone, Copy)]
pub(super) enum Control {
    /// Control frame of this kind for the send with this ID, which was started by this rank or by
    /// the peer.
    Tell(FrameKind, u64),
    /// Clear frame: the receive with this ID is ready for its payload.
    Clear(OpId),
    /// Payload of a send: `want` bytes, sent with tag `word`. If `send` is `None`, the rendezvous
    /// request was canceled and the payload is empty.
    Payload { send: Option<OpId>, word: u32, want: usize },
}

/// Payload transfer in progress on the `Wire`.
pub(super) struct Payload {
    pub(super) op: OpId,
    /// Send or receive operation that the payload belongs to; `None` for the empty payload of a
    /// canceled rendezvous request.
    pub(super) of: Option<OpId>,
    /// One-byte buffer that replaces an empty message or an empty receive buffer in the transfer.
    #[allow(dead_code, reason = "the wire accesses it")]
    pub(super) stand_in: Option<Scratch>,
}

/// Operation in flight.
pub(super) type Operation = op_table::Operation<Send, Receive, Arrival>;

#[derive(Clone, Copy)]
pub(super) struct Send {
    pub(super) dest: usize,
    pub(super) word: u64,
    pub(super) data: Region,
    pub(super) mode: SendMode,
    pub(super) stage: SendStage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SendStage {
    /// Waiting for send resources, or (if the destination is this rank) for a matching receive.
    Queued,
    /// The rendezvous request has been sent to the receiver.
    Offered,
    /// The receiver has sent Clear; the payload is queued.
    Cleared,
    /// The payload transfer is in progress on the `Wire`.
    Moving,
}

pub(super) struct Receive {
    pub(super) into: Region,
    /// Source specified for the receive (a rank or DTL_ANY_SOURCE).
    pub(super) source: i32,
    /// Position in the posting order, stored when the receive matches a message, so that the
    /// receive can return to it. `None` before the match, and for the receive of a message that a
    /// matched probe has matched.
    pub(super) place: Option<PostedReceive<OpId>>,
    pub(super) taken: Option<TakenOffer>,
}

/// Rendezvous request that a receive has matched.
#[derive(Clone, Copy)]
pub(super) struct TakenOffer {
    pub(super) source: usize,
    pub(super) word: u64,
    pub(super) offer: RndvOffer,
    /// Tag of the payload on the `Wire`; `None` until the receive for the payload is posted.
    pub(super) payload: Option<u32>,
}

/// Content of an Offer frame: message size and the sender's operation ID.
#[derive(Clone, Copy)]
pub(super) struct RndvOffer {
    pub(super) size: u64,
    pub(super) send: u64,
}

/// Unexpected message: no matching receive is posted yet.
pub(super) enum Arrival {
    /// A complete message with its bytes.
    Held(MessageBytes),
    Offered(RndvOffer),
    /// A message from this rank to itself, represented by the ID of its send.
    Own(OpId),
}

/// Stored bytes of an unexpected message.
pub(super) enum MessageBytes {
    Copied(Scratch),
    /// The received frame and the message size; used if no memory was available for a copy.
    Framed(Frame, usize),
    /// A frame in the memory of the `Wire`; used if no memory was available for a copy.
    Lent(RxFrame),
}

impl MessageBytes {
    pub(super) fn region(&mut self) -> Region {
        match self {
            MessageBytes::Copied(copy) => copy.region(),
            MessageBytes::Framed(frame, size) => frame.payload(*size),
            MessageBytes::Lent(lent) => lent.bytes,
        }
    }
}

/// Collective in flight.
pub(super) struct Collective {
    pub(super) id: OpId,
    /// Operation on the `Wire`; `None` if the `Wire` had no room for it, or for one before it.
    pub(super) op: Option<OpId>,
    /// Call of a collective that is not started.
    pub(super) call: Option<Box<PendingCall>>,
    /// Areas of the buffers to send and to receive; `None`: empty.
    pub(super) areas: [Option<Region>; 2],
}

/// Call of a collective that the `Wire` had no room for.
pub(super) struct PendingCall {
    pub(super) args: CollArgs,
    pub(super) context: u32,
    pub(super) is_deterministic: bool,
    pub(super) place: Option<MemoryPlace>,
}

impl PendingCall {
    pub(super) fn call(&self) -> CollCall<'_> {
        let &PendingCall { ref args, context, is_deterministic, place } = self;
        CollCall { args, context, is_deterministic, place }
    }
}

/// Outcome of an attempt to start an operation on the `Wire`.
pub(super) enum SendOutcome {
    Yes,
    NoRoom,
    Failed(Error),
}

impl Engine {
    pub(super) fn new(mut wire: Box<dyn Wire>) -> Engine {
        let ranks = usize::try_from(wire.properties().size).unwrap_or(0);
        let rounds = recv_fast::rounds(&mut *wire);
        Engine {
            rank: index_of(wire.properties().rank),
            wire,
            rounds,
            operations: Operations::default(),
            matcher: Matcher::new(ranks),
            links: PeerMap::new(ranks),
            listed: Vec::new(),
            incoming: VecDeque::with_capacity(RECEIVES),
            unposted: Vec::with_capacity(RECEIVES),
            // A single rank sends nothing over the wire.
            receives: if ranks > 1 && rounds == 0 { RECEIVES } else { 0 },
            pool: Vec::new(),
            payloads: VecDeque::new(),
            last_payload: 0,
            twins: Vec::new(),
            dying: Vec::new(),
            deaths: 0,
            lost_receives: 0,
            broken: None,
            reason: None,
            reason_of: None,
            collectives: Vec::new(),
            windows: Vec::new(),
        }
    }

    pub(super) fn check_working(&self) -> Result<()> {
        let Some(status) = self.broken else { return Ok(()) };
        let reason = self.reason.as_deref().unwrap_or("it gives no reason");
        Err(Error::new(
            status,
            format!("{}: the transport has failed: {reason}", self.wire.properties().description),
        ))
    }

    pub(super) fn check_rank(&self, rank: i32) -> Result<usize> {
        match usize::try_from(rank) {
            Ok(index) if index < self.links.ranks() => Ok(index),
            _ => fail!(
                DTL_ERROR_INVALID_RANK,
                "rank {rank} is not in 0 … {}",
                self.links.ranks() - 1
            ),
        }
    }

    /// Completes operation `id` with an error status; `peer` is the completion's source.
    pub(super) fn finish_failed(&mut self, id: OpId, peer: usize, status: dtl_status_t) {
        self.operations.finish(id, done(peer, status, 0, 0));
    }

    /// If an operation is complete, stores its completion, removes the operation and returns true.
    #[inline]
    pub(super) fn test(&mut self, id: OpId, completion: &mut Completion) -> Result<bool> {
        let is_over = self.operations.test(id, completion)?;
        if is_over && completion.status == DTL_ERROR_RANK_FAILURE {
            self.say_of(completion.source);
        }
        Ok(is_over)
    }

    // ---- starting ----

    pub(super) fn isend(&mut self, data: Region, to: Dest, mode: SendMode) -> Result<OpId> {
        self.check_working()?;
        let (dest, word) = (self.check_rank(to.rank)?, to.word);
        if dest == self.rank {
            return self.send_to_self(data, word, mode);
        }
        let Some(link) = self.links.make(dest).filter(|link| !link.is_dead) else {
            let failed = done(dest, DTL_ERROR_RANK_FAILURE, word, 0);
            return self.operations.add(Operation::Done(failed));
        };
        // The send must not overtake earlier messages, nor the cancellation of a message.
        let queued = |link: &PeerLink| !link.starts.is_empty() || !link.answers.is_empty();
        let waits = queued(link) && {
            self.progress()?;
            self.links.get(dest).is_some_and(queued)
        };
        let send = Send { dest, word, data, mode, stage: SendStage::Queued };
        let id = self.operations.add(Operation::Send(send))?;
        match if waits { SendOutcome::NoRoom } else { self.start(dest, id) } {
            SendOutcome::Yes => {}
            SendOutcome::NoRoom => {
                if let Some(link) = self.links.get_mut(dest) {
                    link.starts.push_back(id);
                }
                self.list(dest);
            }
            SendOutcome::Failed(error) if error.status() == DTL_ERROR_RANK_FAILURE => {
                self.finish_failed(id, dest, DTL_ERROR_RANK_FAILURE);
            }
            SendOutcome::Failed(error) => {
                self.operations.remove(id);
                return Err(error);
            }
        }
        Ok(id)
    }

    /// Sends a short standard-mode message immediately if nothing is queued for `dest`; otherwise
    /// calls `isend`.
    #[inline]
    pub(super) fn start_send(&mut self, data: Region, to: Dest, mode: SendMode) -> Result<OpId> {
        let (rank, word) = (index_of(to.rank), to.word);
        let is_free =
            |link: &PeerLink| !link.is_dead && link.starts.is_empty() && link.answers.is_empty();
        let is_quick = mode == SendMode::Standard && data.len() <= INLINE && self.broken.is_none();
        if is_quick && self.links.get(rank).is_some_and(is_free) {
            if let SendOutcome::Yes = self.send_message(rank, word, data) {
                return Ok(OpId::COMPLETED);
            }
        }
        self.isend(data, to, mode)
    }

    fn send_to_self(&mut self, data: Region, word: u64, mode: SendMode) -> Result<OpId> {
        let over = done(self.rank, DTL_SUCCESS, word, data.len() as u64);
        if let Some(posted) = self.matcher.take_posted(rank_of(self.rank), word) {
            self.deliver(posted, self.rank, word, data);
            return self.operations.add(Operation::Done(over));
        }
        let is_copied = data.len() <= INLINE && mode != SendMode::Synchronous;
        let copy = if is_copied { Scratch::copy_of(data) } else { None };
        let (id, arrival) = match copy {
            Some(copy) => (
                self.operations.add(Operation::Done(over))?,
                Arrival::Held(MessageBytes::Copied(copy)),
            ),
            None => {
                let send = Send { dest: self.rank, word, data, mode, stage: SendStage::Queued };
                let id = self.operations.add(Operation::Send(send))?;
                (id, Arrival::Own(id))
            }
        };
        self.matcher.arrive(rank_of(self.rank), word, arrival);
        Ok(id)
    }

    pub(super) fn irecv(&mut self, into: Region, select: Selector) -> Result<OpId> {
        if select.source != DTL_ANY_SOURCE {
            self.check_rank(select.source)?;
        }
        // If this thread may not call the wire, this fails before a receive is posted for which the
        // thread could not wait.
        self.progress()?;
        self.check_working()?;
        let receive = Receive { into, source: select.source, place: None, taken: None };
        let id = self.operations.add(Operation::Receive(receive))?;
        let place = self.matcher.place(select, id);
        self.find_message(place);
        Ok(id)
    }

    /// Starts the receive `place` if a matching unexpected message is queued. If there is no such
    /// message, fails the receive if its source has failed, and otherwise posts the receive at its
    /// position in the posting order.
    pub(super) fn find_message(&mut self, place: PostedReceive<OpId>) {
        let id = place.what;
        if let Some(message) = self.matcher.take_unexpected(&place.select) {
            self.keep_place(place);
            self.give(id, message);
        } else if let Some(rank) = self.gone(place.select.source) {
            self.finish_failed(id, rank, DTL_ERROR_RANK_FAILURE);
        } else {
            let source = place.select.source;
            self.matcher.put(place);
            // The wire already connects to ranks to which messages were sent.
            if source != DTL_ANY_SOURCE && self.links.get(index_of(source)).is_none() {
                self.wire.awaits(source);
            }
        }
    }

    pub(super) fn keep_place(&mut self, place: PostedReceive<OpId>) {
        if let Some(Operation::Receive(receive)) = self.operations.get_mut(place.what) {
            receive.place = Some(place);
        }
    }

    /// Returns `source` if that rank failed, so that a receive from it cannot complete, else
    /// `None`. (The communicator decides whether a failure ends an any-source receive, because it
    /// has the member list.)
    pub(super) fn gone(&self, source: i32) -> Option<usize> {
        self.links.get(index_of(source)).filter(|link| link.is_dead).map(|_| index_of(source))
    }

    /// Starts the transfer of `message` into the buffer of receive `id`.
    pub(super) fn give(&mut self, id: OpId, message: UnexpectedMessage<Arrival>) {
        let source = index_of(message.source);
        match message.what {
            Arrival::Held(mut bytes) => {
                self.deliver(id, source, message.match_bits, bytes.region());
                match bytes {
                    MessageBytes::Copied(_) => {}
                    MessageBytes::Framed(frame, _) => self.pool.push(frame),
                    MessageBytes::Lent(lent) => self.give_back(&lent),
                }
            }
            Arrival::Own(send) => self.deliver_own(id, send),
            Arrival::Offered(offer) => self.begin(id, source, message.match_bits, offer),
        }
    }

    pub(super) fn deliver(&mut self, id: OpId, source: usize, word: u64, data: Region) {
        if let Some(&Operation::Receive(Receive { into, .. })) = self.operations.get(id) {
            into.copy_from(data);
            let size = data.len() as u64;
            self.operations.finish(id, done(source, fitting(size, into), word, size));
        }
    }

    fn deliver_own(&mut self, id: OpId, send: OpId) {
        if let Some(&Operation::Send(Send { word, data, .. })) = self.operations.get(send) {
            self.deliver(id, self.rank, word, data);
            self.operations.finish(send, done(self.rank, DTL_SUCCESS, word, data.len() as u64));
        }
    }

    /// Matches a rendezvous request with receive operation `id`. The next call to `progress` posts
    /// the receive for the payload and sends Clear (clear to send).
    pub(super) fn begin(&mut self, id: OpId, source: usize, word: u64, offer: RndvOffer) {
        if let Some(Operation::Receive(receive)) = self.operations.get_mut(id) {
            receive.taken = Some(TakenOffer { source, word, offer, payload: None });
            self.answer(source, Control::Clear(id));
        }
    }

    pub(super) fn answer(&mut self, dest: usize, answer: Control) {
        if let Some(link) = self.links.make(dest).filter(|link| !link.is_dead) {
            link.answers.push_back(answer);
            self.list(dest);
        }
    }

    pub(super) fn list(&mut self, rank: usize) {
        if let Some(link) = self.links.get_mut(rank).filter(|link| !link.is_listed) {
            link.is_listed = true;
            self.listed.push(rank);
        }
    }

    /// Cancels an operation if that is still possible; then the operation completes with CANCELED.
    pub(super) fn cancel(&mut self, id: OpId) {
        let own = rank_of(self.rank);
        let withdrawn = match self.operations.get(id) {
            Some(&Operation::Receive(Receive { source, taken: None, .. })) => {
                self.matcher.cancel(source, &id)
            }
            Some(&Operation::Send(Send { dest, .. })) if dest == self.rank => {
                let is = |what: &Arrival| matches!(what, Arrival::Own(send) if *send == id);
                self.operations.cancel_message(&mut self.matcher, own, is)
            }
            Some(&Operation::Send(send)) => self.cancel_send(id, &send),
            Some(Operation::Collective) => return self.cancel_collective(id),
            _ => false,
        };
        if withdrawn {
            self.operations.finish(id, done(self.rank, DTL_ERROR_CANCELED, 0, 0));
            // Notifies the receiver soon. If this thread may not call the wire, a later call does
            // that.
            drop(self.progress());
        }
    }

    fn cancel_send(&mut self, id: OpId, send: &Send) -> bool {
        let Some(link) = self.links.get_mut(send.dest) else { return false };
        match send.stage {
            SendStage::Queued => link.starts.retain(|start| *start != id),
            SendStage::Offered => {
                link.withdrawn += 1;
                self.answer(send.dest, Control::Tell(FrameKind::Withdraw, id.0));
            }
            SendStage::Cleared => {
                return link.answers.iter_mut().any(|answer| answer.cancel_payload(id));
            }
            SendStage::Moving => return false,
        }
        true
    }
}
