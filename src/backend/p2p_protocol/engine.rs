//! Operations over a raw transport, which is the link of the protocol in `backend::p2p`.
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
use crate::backend::match_queues::{Matcher, PostedReceive};
use crate::backend::op_table::Operations;
use crate::backend::p2p::{
    self, LinkArrival, LinkOperation, P2pEngine, P2pLink, SendOutcome, SendQueue,
};
use crate::backend::peer_map::PeerMap;
use crate::error::{Error, Result};
use crate::runtime::comm::coll::{CollArgs, CollCall};
use crate::runtime::component::{Completion, Dest, MemoryPlace, OpId, SendMode};
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
    /// Control messages, and sends that are waiting for send resources.
    pub(super) queue: SendQueue<Control>,
    /// Frames whose send on the `Wire` is not complete.
    pub(super) in_flight: VecDeque<(OpId, Frame)>,
    /// Number of canceled rendezvous requests that the receiver has answered neither with a
    /// `Forgotten` frame (request dropped) nor with a `Clear` frame.
    pub(super) withdrawn: u32,
    pub(super) is_dead: bool,
}

impl PeerLink {
    pub(super) fn has_work(&self) -> bool {
        !(self.queue.is_empty() && self.in_flight.is_empty())
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
pub(super) type Operation = LinkOperation<Engine>;
pub(super) type Send = p2p::Send<Engine>;
pub(super) type Receive = p2p::Receive<Engine>;
pub(super) type Arrival = LinkArrival<Engine>;

#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum SendStage {
    /// Waiting for send resources, or (if the destination is this rank) for a matching receive.
    #[default]
    Queued,
    /// The rendezvous request has been sent to the receiver.
    Offered,
    /// The receiver has sent Clear; the payload is queued.
    Cleared,
    /// The payload transfer is in progress on the `Wire`.
    Moving,
}

/// Rendezvous request that a receive has matched.
#[derive(Clone, Copy)]
pub(super) struct TakenOffer {
    pub(super) source: usize,
    pub(super) word: u64,
    pub(super) offer: RndvOffer,
    /// Tag of the payload on the `Wire`; `None` until the receive for the payload is posted.
    pub(super) payload: Option<u32>,
    /// Position of the receive in the posting order, to which it returns if the sender cancels the
    /// request; `None` for the receive of a message that a matched probe has matched.
    pub(super) place: Option<PostedReceive<OpId>>,
}

/// Content of an Offer frame: message size and the sender's operation ID.
#[derive(Clone, Copy)]
pub(super) struct RndvOffer {
    pub(super) size: u64,
    pub(super) send: u64,
}

/// Stored bytes of an unexpected message.
pub(super) enum MessageBytes {
    Copied(Scratch),
    /// The received frame; used if no memory was available for a copy.
    Framed(Frame),
    /// A frame in the memory of the `Wire`; used if no memory was available for a copy.
    Lent(RxFrame),
}

impl From<Scratch> for MessageBytes {
    fn from(copy: Scratch) -> Self {
        MessageBytes::Copied(copy)
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

    #[inline]
    pub(super) fn check_working(&self) -> Result<()> {
        let Some(status) = self.broken else { return Ok(()) };
        let reason = self.reason.as_deref().unwrap_or("it gives no reason");
        Err(Error::new(
            status,
            format!("{}: the transport has failed: {reason}", self.wire.properties().description),
        ))
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

    /// Sends a short standard-mode message immediately if nothing is queued for `dest`; otherwise
    /// calls `isend`.
    #[inline]
    pub(super) fn start_send(&mut self, data: Region, to: Dest, mode: SendMode) -> Result<OpId> {
        let (rank, word) = (index_of(to.rank), to.word);
        let is_free = |link: &PeerLink| !link.is_dead && link.queue.is_empty();
        let is_quick = mode == SendMode::Standard && data.len() <= INLINE && self.broken.is_none();
        if is_quick && self.links.get(rank).is_some_and(is_free) {
            if let SendOutcome::Yes = self.send_message(rank, word, data) {
                return Ok(OpId::COMPLETED);
            }
        }
        self.check_working()?;
        self.isend(data, to, mode)
    }

    /// Cancels an operation if that is still possible; then the operation completes with CANCELED.
    pub(super) fn cancel(&mut self, id: OpId) {
        if let Some(Operation::Collective) = self.operations.get(id) {
            self.cancel_collective(id);
        } else if self.withdraw(id) {
            // Notifies the receiver soon. If this thread may not call the wire, a later call does
            // that.
            drop(self.progress());
        }
    }
}

impl P2pLink for Engine {
    type Stage = SendStage;
    type Filling = ();
    type Taken = TakenOffer;
    type Action = ();
    type Offer = RndvOffer;
    type Bytes = MessageBytes;
    type Answer = Control;
    const EAGER: usize = INLINE;

    fn ranks(&self) -> (usize, usize) {
        (self.rank, self.links.ranks())
    }

    fn queues(&self) -> (&Operations<Operation>, &Matcher<OpId, Arrival>) {
        (&self.operations, &self.matcher)
    }

    fn queues_mut(&mut self) -> (&mut Operations<Operation>, &mut Matcher<OpId, Arrival>) {
        (&mut self.operations, &mut self.matcher)
    }

    #[inline]
    fn send_queue(&mut self, rank: usize) -> Option<&mut SendQueue<Control>> {
        let link = self.links.make(rank).filter(|link| !link.is_dead);
        link.map(|link| &mut link.queue)
    }

    fn listed(&mut self) -> &mut Vec<usize> {
        &mut self.listed
    }

    fn gone(&self, source: i32) -> Option<usize> {
        self.links.get(index_of(source)).filter(|link| link.is_dead).map(|_| index_of(source))
    }

    /// If this thread may not call the wire, this fails before a receive is posted for which the
    /// thread could not wait.
    #[inline]
    fn prepare(&mut self) -> Result<()> {
        self.progress()?;
        self.check_working()
    }

    /// A send must overtake neither earlier messages nor the cancellation of a message.
    fn connect(&mut self, dest: usize) -> Result<bool> {
        let queued =
            |engine: &mut Engine| engine.send_queue(dest).is_some_and(|queue| !queue.is_empty());
        Ok(queued(self) && {
            self.progress()?;
            queued(self)
        })
    }

    fn try_start(&mut self, dest: usize, id: OpId) -> SendOutcome {
        self.start(dest, id)
    }

    fn try_answer(&mut self, dest: usize, answer: Control) -> bool {
        self.send_answer(dest, answer)
    }

    /// The next call to `progress` posts the receive for the payload and sends Clear (clear to
    /// send).
    fn transfer(
        &mut self,
        id: OpId,
        source: usize,
        word: u64,
        offer: RndvOffer,
        place: Option<PostedReceive<OpId>>,
    ) {
        if let Some(Operation::Receive(receive)) = self.operations.get_mut(id) {
            receive.taken = Some(TakenOffer { source, word, offer, payload: None, place });
            self.queue_answer(source, Control::Clear(id));
        }
    }

    fn cancel_send(&mut self, id: OpId, dest: usize, stage: SendStage) -> bool {
        let Some(link) = self.links.get_mut(dest) else { return false };
        match stage {
            SendStage::Queued => link.queue.starts.retain(|start| *start != id),
            SendStage::Offered => {
                link.withdrawn += 1;
                self.queue_answer(dest, Control::Tell(FrameKind::Withdraw, id.0));
            }
            SendStage::Cleared => {
                let mut answers = link.queue.answers.iter_mut();
                return answers.any(|answer| answer.cancel_payload(id));
            }
            SendStage::Moving => return false,
        }
        true
    }

    fn size_of(&self, _source: usize, offer: &RndvOffer) -> Option<u64> {
        Some(offer.size)
    }

    fn region(bytes: &mut MessageBytes, size: usize) -> Region {
        match bytes {
            MessageBytes::Copied(copy) => copy.region(),
            MessageBytes::Framed(frame) => frame.payload(size),
            MessageBytes::Lent(lent) => lent.bytes,
        }
    }

    fn release(&mut self, bytes: MessageBytes) {
        match bytes {
            MessageBytes::Copied(_) => {}
            MessageBytes::Framed(frame) => self.pool.push(frame),
            MessageBytes::Lent(lent) => self.give_back(&lent),
        }
    }

    /// The wire already connects to ranks to which messages were sent.
    fn awaits(&mut self, source: i32, is_probe: bool) {
        let is_new = source != DTL_ANY_SOURCE && self.links.get(index_of(source)).is_none();
        if is_probe || is_new {
            self.wire.awaits(source);
        }
    }
}
