//! The protocol: how sends and receives become records in rings, and back.
//!
//! Up to `FRAGMENT` bytes go as one Eager record; the send is over when it is in the ring. More,
//! and what is sent synchronously, is offered: the receiver, when it has a receive for it, takes
//! the offer and sends Clear. Then the sender copies piece after piece into its cells and announces
//! each with a Cell record (or, without cells, into the ring: Data), while the receiver copies out
//! of them. If the sender is away, the receiver takes pieces from the message's end and reads them
//! in the sender's memory, until both meet; then it sends Finish.
//!
//! Nothing ever waits: what finds no room in a ring is queued here and goes on with the next call
//! of `progress`. Rings are always read to the end, whatever is queued for writing, so two ranks
//! that flood each other cannot lock up. An operation of the receiver is over only when its answer
//! is in the ring; so a rank that closes has sent all its answers, and the others read its rings
//! also after it has gone.
//!
//! Here: what the operations are, and how they start and are withdrawn. `rx` handles what
//! comes out of rings, `tx` what goes in, `cma` the pieces that a receiver reads by
//! itself, `mprobe` messages that a program looks at before it receives them, `liveness` ranks that
//! are gone; locks are in `transport`.

use super::pipeline::pieces_of;
use crate::abi::comm::communicator::DTL_ANY_SOURCE;
use crate::abi::status::*;
use crate::backend::match_queues::{Matcher, UnexpectedMessage};
use crate::backend::op_table::Operations;
use crate::backend::shm::memory::cells::CellPool;
use crate::backend::shm::memory::ring::{FRAGMENT, Payload, RecordKind};
use crate::backend::shm::memory::segment::{PeerState, Segment};
use crate::backend::shm::peer::{Link, Peers};
use crate::error::{Result, fail};
use crate::runtime::component::{Completion, OpId, PipelinedSource, Selector, SendMode};
use crate::sys::memory::buf::{Region, Scratch};
use crate::sys::os::poller::Poller;
use std::collections::VecDeque;
use std::sync::Arc;

/// Records read from one ring before the next gets its turn.
const BUDGET: usize = 256;

/// Protocol engine of one rank: its operations, and the sends and receives that become records in
/// rings. Every method is short and none blocks.
pub(in crate::backend::shm) struct Engine {
    pub(in crate::backend::shm) rank: usize,
    pub(in crate::backend::shm) segment: Segment,
    pub(in crate::backend::shm) operations: Operations<ShmOperation>,
    pub(in crate::backend::shm) matcher: Matcher<OpId, Arrival>,
    pub(in crate::backend::shm) peers: Peers,
    /// Ranks whose rings to us have memory.
    pub(in crate::backend::shm) incoming: Vec<usize>,
    /// Ranks for which something is queued.
    pub(in crate::backend::shm) outbound: Vec<usize>,
    /// This rank's cells. `None`: not requested yet; `Some(None)`: no memory for them.
    pub(in crate::backend::shm) pool: Option<Option<CellPool>>,
    /// Receives that can read in their sender's memory.
    pub(in crate::backend::shm) helping: VecDeque<OpId>,
    /// Whether others may read this process' memory.
    pub(in crate::backend::shm) lends: bool,
    pub(in crate::backend::shm) liveness: Liveness,
    /// Messages that went the short way (`prompt`).
    pub(in crate::backend::shm) short_ways: u32,
}

/// What `liveness` keeps.
pub(in crate::backend::shm) struct Liveness {
    pub(in crate::backend::shm) poller: Poller,
    /// Changes of states that have been settled.
    pub(in crate::backend::shm) settled: u64,
    pub(in crate::backend::shm) idle: u32,
    pub(in crate::backend::shm) looked_ns: u64,
    pub(in crate::backend::shm) deaths: usize,
}

/// An operation in flight.
pub(in crate::backend::shm) enum ShmOperation {
    Send(Send),
    Receive(Receive),
    /// A message that was taken for a receive to come.
    Taken(UnexpectedMessage<Arrival>),
    /// A taken message that its sender has withdrawn since. Holds the outcome of its receive.
    Withdrawn(Completion),
    Done(Completion),
}

impl ShmOperation {
    /// Whether its message is on its way, piece by piece.
    pub(in crate::backend::shm) fn is_in_pieces(&self) -> bool {
        match self {
            ShmOperation::Send(send) => matches!(send.stage, SendStage::Streaming { .. }),
            ShmOperation::Receive(receive) => receive.taken.is_some(),
            _ => false,
        }
    }
}

pub(in crate::backend::shm) struct Send {
    pub(in crate::backend::shm) dest: usize,
    pub(in crate::backend::shm) word: u64,
    pub(in crate::backend::shm) data: Region,
    pub(in crate::backend::shm) mode: SendMode,
    pub(in crate::backend::shm) stage: SendStage,
    /// How much of `data` is there; `None`: all of it.
    pub(in crate::backend::shm) filling: Option<Arc<PipelinedSource>>,
}

#[derive(Clone, Copy)]
pub(in crate::backend::shm) enum SendStage {
    /// Waits for room, or (to itself) for a receive.
    Queued,
    /// The offer is in the receiver's ring.
    Offered { claim: u16 },
    /// The receiver wants so many bytes of it.
    Streaming { claim: u16, receiver: u64, end: usize },
    /// All pieces are copied or taken; the receiver reports when it has read its own.
    Meeting { claim: u16 },
}

pub(in crate::backend::shm) struct Receive {
    pub(in crate::backend::shm) into: Region,
    /// Whom it names.
    pub(in crate::backend::shm) source: i32,
    pub(in crate::backend::shm) taken: Option<TakenOffer>,
}

/// An offer that a receive has taken.
#[derive(Clone, Copy)]
pub(in crate::backend::shm) struct TakenOffer {
    pub(in crate::backend::shm) source: usize,
    pub(in crate::backend::shm) word: u64,
    pub(in crate::backend::shm) offer: RndvOffer,
    /// Bytes that have come through cells or the ring, from the front; bytes that fit.
    pub(in crate::backend::shm) have: usize,
    pub(in crate::backend::shm) want: usize,
    pub(in crate::backend::shm) answer: ControlRecord,
    pub(in crate::backend::shm) help: CmaProgress,
}

/// What a receive reads by itself, from the back.
#[derive(Clone, Copy)]
pub(in crate::backend::shm) struct CmaProgress {
    /// It has all bytes from here on.
    pub(in crate::backend::shm) from: usize,
    /// Of those before, it has taken the ones from here on ...
    pub(in crate::backend::shm) first: usize,
    /// ... and read them up to here.
    pub(in crate::backend::shm) next: usize,
    /// Records of the sender's when it last looked, fruitless looks since, and when it began to
    /// watch the clock.
    pub(in crate::backend::shm) seen: u64,
    pub(in crate::backend::shm) quiet: u32,
    pub(in crate::backend::shm) since_ns: u64,
}

impl TakenOffer {
    pub(in crate::backend::shm) fn is_complete(&self) -> bool {
        self.have == self.help.from
    }

    /// Pieces that fit.
    pub(in crate::backend::shm) fn pieces(&self) -> u32 {
        pieces_of(self.want)
    }

    /// Returns whether all of them come unrequested, so that the sender waits for a Finish.
    pub(in crate::backend::shm) fn is_early(&self) -> bool {
        self.pieces() <= self.offer.early
    }
}

/// The control record that a receive has to send.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::backend::shm) enum ControlRecord {
    None,
    Clear,
    Finish,
}

/// An unexpected message: no receive matches it yet.
pub(in crate::backend::shm) enum Arrival {
    Copied(Scratch),
    /// With the pieces that came behind the offer.
    Offered(RndvOffer, Option<Scratch>),
    /// From this rank to itself: its send operation.
    Own(OpId),
}

/// Content of an Offer record.
#[derive(Clone, Copy)]
pub(in crate::backend::shm) struct RndvOffer {
    pub(in crate::backend::shm) size: u64,
    pub(in crate::backend::shm) send: u64,
    pub(in crate::backend::shm) address: u64,
    /// Pieces that come right behind it.
    pub(in crate::backend::shm) early: u32,
    pub(in crate::backend::shm) claim: u16,
}

pub(in crate::backend::shm) fn done(
    source: usize,
    status: dtl_status_t,
    word: u64,
    size: u64,
) -> Completion {
    Completion { source: i32::try_from(source).unwrap_or(i32::MAX), status, match_bits: word, size }
}

pub(in crate::backend::shm) fn fitting(size: u64, into: Region) -> dtl_status_t {
    if size > into.len() as u64 { DTL_ERROR_TRUNCATED } else { DTL_SUCCESS }
}

impl Engine {
    pub(in crate::backend::shm) fn new(
        rank: usize,
        segment: Segment,
        peers: Peers,
        poller: Poller,
        lends: bool,
    ) -> Engine {
        Engine {
            rank,
            segment,
            operations: Operations::new(),
            matcher: Matcher::new(peers.len()),
            peers,
            incoming: Vec::new(),
            outbound: Vec::new(),
            pool: None,
            helping: VecDeque::new(),
            lends,
            liveness: Liveness { poller, settled: 0, idle: 0, looked_ns: 0, deaths: 0 },
            short_ways: 0,
        }
    }

    pub(in crate::backend::shm) fn own(&self) -> i32 {
        i32::try_from(self.rank).unwrap_or(i32::MAX)
    }

    pub(in crate::backend::shm) fn rank_of(&self, rank: i32) -> Result<usize> {
        match usize::try_from(rank) {
            Ok(index) if index < self.peers.len() => Ok(index),
            _ => {
                fail!(DTL_ERROR_INVALID_RANK, "rank {rank} is not in 0 … {}", self.peers.len() - 1)
            }
        }
    }

    pub(in crate::backend::shm) fn finish(&mut self, id: OpId, done: Completion) {
        if let Some(operation) = self.operations.get_mut(id) {
            *operation = ShmOperation::Done(done);
        }
    }

    /// Ends an operation because of a rank that is gone.
    pub(in crate::backend::shm) fn finish_failed(&mut self, id: OpId, peer: usize) {
        self.finish(id, done(peer, DTL_ERROR_RANK_FAILURE, 0, 0));
    }

    // ---- starting ----

    pub(in crate::backend::shm) fn isend(
        &mut self,
        data: Region,
        dest: i32,
        word: u64,
        mode: SendMode,
    ) -> Result<OpId> {
        let dest = self.rank_of(dest)?;
        if dest == self.rank {
            return self.send_to_self(data, word, mode);
        }
        self.send_to(dest, data, word, mode, None)
    }

    pub(in crate::backend::shm) fn send_to(
        &mut self,
        dest: usize,
        data: Region,
        word: u64,
        mode: SendMode,
        filling: Option<Arc<PipelinedSource>>,
    ) -> Result<OpId> {
        let rank = self.rank;
        if self.peers.get(dest).is_none_or(|peer| peer.state != PeerState::Present) {
            return self.operations.add(ShmOperation::Done(done(
                dest,
                DTL_ERROR_RANK_FAILURE,
                word,
                0,
            )));
        }
        let link = make_link(&mut self.peers, dest)?;
        if link.producer.is_none() {
            link.producer = Some(self.segment.open_ring(rank, dest)?);
        }
        let waits = !link.starts.is_empty();
        let send = Send { dest, word, data, mode, stage: SendStage::Queued, filling };
        let id = self.operations.add(ShmOperation::Send(send))?;
        if waits || !self.start(dest, id) {
            make_link(&mut self.peers, dest)?.starts.push_back(id);
            self.list(dest);
        }
        Ok(id)
    }

    /// Sends a short message to a rank that already has a link, if its ring has room and nothing
    /// waits for that. Everything else is for `isend`.
    #[inline]
    pub(in crate::backend::shm) fn send_at_once(
        &mut self,
        data: Region,
        dest: i32,
        word: u64,
    ) -> bool {
        if data.len() > FRAGMENT {
            return false;
        }
        let Ok(dest) = usize::try_from(dest) else { return false };
        self.progress_others();
        let is_present = self.peers.get(dest).is_some_and(|peer| peer.state == PeerState::Present);
        let link = self.peers.link_mut(dest).filter(|link| is_present && link.starts.is_empty());
        // No ring leads to this rank itself.
        let Some(producer) = link.and_then(|link| link.producer.as_mut()) else { return false };
        producer.push(RecordKind::Eager, 0, word, Payload::Bytes(data))
    }

    fn send_to_self(&mut self, data: Region, word: u64, mode: SendMode) -> Result<OpId> {
        let over = done(self.rank, DTL_SUCCESS, word, data.len() as u64);
        if let Some(posted) = self.matcher.take_posted(self.own(), word) {
            self.deliver(posted, self.rank, word, data);
            return self.operations.add(ShmOperation::Done(over));
        }
        let is_copied = data.len() <= FRAGMENT && mode != SendMode::Synchronous;
        let copy = if is_copied { Scratch::copy_of(data) } else { None };
        let (id, arrival) = match copy {
            Some(copy) => (self.operations.add(ShmOperation::Done(over))?, Arrival::Copied(copy)),
            None => {
                let (dest, stage) = (self.rank, SendStage::Queued);
                let send = Send { dest, word, data, mode, stage, filling: None };
                let id = self.operations.add(ShmOperation::Send(send))?;
                (id, Arrival::Own(id))
            }
        };
        self.matcher.arrive(self.own(), word, arrival);
        Ok(id)
    }

    pub(in crate::backend::shm) fn irecv(
        &mut self,
        into: Region,
        select: Selector,
    ) -> Result<OpId> {
        if select.source != DTL_ANY_SOURCE {
            self.rank_of(select.source)?;
        }
        let id = self.operations.add(ShmOperation::Receive(Receive {
            into,
            source: select.source,
            taken: None,
        }))?;
        while let Some(message) = self.matcher.take_unexpected(&select) {
            // An offer that its sender has withdrawn: look on.
            if self.claim(&message) {
                self.give(id, message);
                return Ok(id);
            }
        }
        match self.gone(select.source) {
            Some(peer) => self.finish_failed(id, peer),
            None => self.matcher.post(select, id),
        }
        Ok(id)
    }

    /// Starts what a receive has to do for its message.
    pub(in crate::backend::shm) fn give(&mut self, id: OpId, message: UnexpectedMessage<Arrival>) {
        let source = usize::try_from(message.source).unwrap_or(0);
        match message.what {
            Arrival::Copied(copy) => self.deliver(id, source, message.match_bits, copy.region()),
            Arrival::Own(send) => self.deliver_own(id, send),
            Arrival::Offered(offer, early) => {
                self.begin(id, source, message.match_bits, offer, early)
            }
        }
    }

    /// The rank because of which a receive from this source cannot complete. (The communicator
    /// decides whether a death ends one from any source, since it has the list of members.)
    pub(in crate::backend::shm) fn gone(&self, source: i32) -> Option<usize> {
        let rank = usize::try_from(source).ok()?;
        self.peers.get(rank).filter(|peer| peer.state != PeerState::Present).map(|_| rank)
    }

    pub(in crate::backend::shm) fn deliver(
        &mut self,
        id: OpId,
        source: usize,
        word: u64,
        data: Region,
    ) {
        if let Some(&ShmOperation::Receive(Receive { into, .. })) = self.operations.get(id) {
            // A rank may receive into what it sends to itself.
            if source == self.rank {
                into.copy_from(data)
            } else {
                into.copy_across(data)
            }
            let size = data.len() as u64;
            self.finish(id, done(source, fitting(size, into), word, size));
        }
    }

    fn deliver_own(&mut self, id: OpId, send: OpId) {
        if let Some(&ShmOperation::Send(Send { word, data, .. })) = self.operations.get(send) {
            self.deliver(id, self.rank, word, data);
            self.finish(send, done(self.rank, DTL_SUCCESS, word, data.len() as u64));
        }
    }

    /// Makes a message the receiver's: from here on its sender cannot withdraw it. False if it has.
    pub(in crate::backend::shm) fn claim(&self, message: &UnexpectedMessage<Arrival>) -> bool {
        let Arrival::Offered(offer, _) = &message.what else { return true };
        self.claim_offer(usize::try_from(message.source).unwrap_or(0), *offer)
    }

    pub(in crate::backend::shm) fn claim_offer(&self, source: usize, offer: RndvOffer) -> bool {
        let consumer = self.peers.link(source).and_then(|link| link.consumer.as_ref());
        consumer.is_some_and(|consumer| consumer.offers.take(offer.claim))
    }

    /// Starts to fetch an offer that was taken; `early`: its first pieces, if they came before.
    pub(in crate::backend::shm) fn begin(
        &mut self,
        id: OpId,
        source: usize,
        word: u64,
        offer: RndvOffer,
        early: Option<Scratch>,
    ) {
        let readable =
            offer.address != 0 && self.peers.get(source).is_some_and(|peer| peer.readable);
        let Some(ShmOperation::Receive(receive)) = self.operations.get_mut(id) else { return };
        let want = usize::try_from(offer.size).unwrap_or(usize::MAX).min(receive.into.len());
        let help =
            CmaProgress { from: want, first: want, next: want, seen: 0, quiet: 0, since_ns: 0 };
        let mut taken =
            TakenOffer { source, word, offer, have: 0, want, answer: ControlRecord::None, help };
        if want == 0 {
            taken.answer = ControlRecord::Finish;
        } else if !taken.is_early() {
            taken.answer = ControlRecord::Clear;
            let consumer = self.peers.link(source).and_then(|link| link.consumer.as_ref());
            consumer.inspect(|consumer| {
                consumer.offers.share(offer.claim, offer.early..taken.pieces())
            });
            if readable {
                self.helping.push_back(id);
            }
        }
        receive.taken = Some(taken);
        if taken.answer != ControlRecord::None {
            self.queue_answer(source, id);
        }
        if let Some(early) = early {
            self.accept_piece(source, id, early.region());
        }
    }

    pub(in crate::backend::shm) fn queue_answer(&mut self, source: usize, id: OpId) {
        if let Some(link) = self.peers.link_mut(source) {
            link.answers.push_back(id);
        }
        self.list(source);
    }

    pub(in crate::backend::shm) fn list(&mut self, rank: usize) {
        if let Some(link) = self.peers.link_mut(rank).filter(|link| !link.is_listed) {
            link.is_listed = true;
            self.outbound.push(rank);
        }
    }

    /// Tries to withdraw an operation.
    pub(in crate::backend::shm) fn cancel(&mut self, id: OpId) {
        let withdrawn = match self.operations.get(id) {
            Some(&ShmOperation::Receive(Receive { source, taken: None, .. })) => {
                self.matcher.cancel(source, &id)
            }
            Some(&ShmOperation::Send(Send { dest, stage: SendStage::Queued, .. }))
                if dest == self.rank =>
            {
                self.cancel_own(id)
            }
            Some(&ShmOperation::Send(Send { dest, stage, .. })) => {
                self.peers.link_mut(dest).is_some_and(|link| match stage {
                    SendStage::Queued => {
                        link.starts.retain(|start| *start != id);
                        true
                    }
                    SendStage::Offered { claim } => {
                        link.producer.as_mut().is_some_and(|p| p.offers.cancel(claim))
                    }
                    SendStage::Streaming { .. } | SendStage::Meeting { .. } => false,
                })
            }
            _ => false,
        };
        if withdrawn {
            self.finish(id, done(self.rank, DTL_ERROR_CANCELED, 0, 0));
        }
    }

    // ---- progress ----

    /// Moves everything on that can move; whether something did.
    pub(in crate::backend::shm) fn progress(&mut self) -> bool {
        self.settle_changes();
        self.find_rings();
        let mut moved = false;
        for index in 0..self.incoming.len() {
            let source = self.incoming.get(index).copied().unwrap_or(self.rank);
            moved |= self.read_ring(source, BUDGET) > 0;
        }
        moved |= self.help_on();
        moved |= self.write_on();
        self.note_idle(moved);
        moved
    }

    /// Looks for senders that have opened their ring to us.
    pub(in crate::backend::shm) fn find_rings(&mut self) {
        for group in 0..self.peers.len().div_ceil(64) {
            let mut bits = self.segment.ready(self.rank, group);
            while bits != 0 {
                let source = 64 * group + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let is_read = self.peers.link(source).is_some_and(|link| link.consumer.is_some());
                let is_present =
                    self.peers.get(source).is_some_and(|peer| peer.state == PeerState::Present);
                if !is_read && is_present {
                    self.read_from(source);
                }
            }
        }
    }

    fn read_from(&mut self, source: usize) {
        let Ok(consumer) = self.segment.read_ring(source, self.rank) else { return };
        if let Some(link) = self.peers.make_link(source) {
            link.consumer = Some(consumer);
            self.incoming.push(source);
        }
    }
}

fn make_link(peers: &mut Peers, rank: usize) -> Result<&mut Link> {
    match peers.make_link(rank) {
        Some(link) => Ok(link),
        None => fail!(DTL_ERROR_INTERNAL, "no peer {rank}"),
    }
}
