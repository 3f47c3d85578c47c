//! Protocol engine: converts sends and receives to records in rings, and back.
//!
//! Up to `MAX_DATA` bytes are sent as one Eager record; the send is complete once the record is in
//! the ring. Larger and synchronous messages use rendezvous. The sender writes an Offer record
//! (RTS). When the receiver has a matching receive, it accepts the request and sends Clear (CTS).
//! Then the sender copies fragment after fragment into its cells (shared buffers) and announces
//! each fragment with a Cell record (or, without cells, copies it into the ring: Data), while the
//! receiver copies out of the cells. If the sender is not running, the receiver claims fragments
//! from the end of the message and reads them from the sender's memory until the two sides meet.
//! Then the receiver sends Finish.
//!
//! No function blocks: an operation that finds no space in a ring is queued and continues in the
//! next call to `progress`. Rings are read to the end, or until the operation that a caller waits
//! for is complete, regardless of what is queued for writing. So two ranks that flood each other
//! cannot deadlock: a rank that waits reads. A receive is complete only once its control record is
//! in the ring. So a rank that closes has sent all its control records, and the other ranks read
//! its rings even after it has left.
//!
//! This file defines the operations, and starts and cancels them. `rx` handles records read from
//! rings, `tx` records written to rings, `cma` the fragments that a receiver reads directly,
//! `mprobe` messages that the application probes before it receives them, `liveness` ranks that
//! died or left; locks are in `transport`.

use super::copy_choice::CopyMethod;
use super::pipeline::fragments_of;
use crate::abi::comm::communicator::DTL_ANY_SOURCE;
use crate::abi::status::*;
use crate::backend::match_queues::{Matcher, UnexpectedMessage};
use crate::backend::op_table::{Operation, Operations};
use crate::backend::shm::memory::cells::CellPool;
use crate::backend::shm::memory::ring::MAX_DATA;
use crate::backend::shm::memory::segment::{PeerState, Segment};
use crate::backend::shm::peer::{Mode, Peers};
use crate::error::{Result, fail, failure};
use crate::runtime::component::{OpId, PipelinedSource, Selector, SendMode};
use crate::sys::memory::buf::{Region, Scratch};
use crate::sys::os::poller::Poller;
use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) use crate::backend::op_table::{done, fitting, index_of, rank_of};

/// Maximum number of records read from one ring before the next ring is served.
const BUDGET: usize = 256;

/// Protocol engine of one rank: turns sends and receives into records in rings. Every method is
/// short and none blocks.
pub(crate) struct Engine {
    pub(crate) rank: usize,
    pub(crate) segment: Segment,
    pub(crate) operations: Operations<ShmOperation>,
    pub(crate) matcher: Matcher<OpId, Arrival>,
    pub(crate) peers: Peers,
    /// Ranks whose ring to this rank is open.
    pub(crate) incoming: Vec<usize>,
    /// Ranks for which records are queued.
    pub(crate) outbound: Vec<usize>,
    /// Cells (buffers for large messages) of this rank; `None` before they are allocated,
    /// `Some(None)` if the allocation failed.
    pub(crate) pool: Option<Option<CellPool>>,
    /// Receives for which this rank may read the sender's memory.
    pub(crate) helping: VecDeque<OpId>,
    /// True if other ranks may read this process' memory.
    pub(crate) lends: bool,
    /// Copy method of all large messages; `None` if it is chosen by measured times.
    pub(crate) forced: Option<CopyMethod>,
    pub(crate) liveness: Liveness,
    /// Operation for which `progress_for` makes progress, while it does.
    pub(crate) awaited: Option<OpId>,
    /// Number of sends and receives that tried the fast path (wraps around).
    pub(crate) short_ways: u32,
}

/// State of the failure detector in `liveness`.
pub(crate) struct Liveness {
    pub(crate) poller: Poller,
    /// Number of rank state changes that have been handled.
    pub(crate) settled: u64,
    pub(crate) idle: u32,
    pub(crate) looked_ns: u64,
    pub(crate) deaths: usize,
}

/// Operation in flight.
pub(crate) type ShmOperation = Operation<Send, Receive, Arrival>;

pub(crate) struct Send {
    pub(crate) dest: usize,
    pub(crate) word: u64,
    pub(crate) data: Region,
    pub(crate) mode: SendMode,
    pub(crate) stage: SendStage,
    /// Write progress of `data`, whose bytes another thread is still writing while the message is
    /// being sent; `None` if all bytes were available when the send was started.
    pub(crate) filling: Option<Arc<PipelinedSource>>,
}

#[derive(Clone, Copy)]
pub(crate) enum SendStage {
    /// Waiting for space in the ring, or (if the destination is this rank) for a matching receive.
    Queued,
    /// The rendezvous request is in the receiver's ring.
    Offered { claim: u16 },
    /// The receiver has requested the bytes up to `end`. `into` is the address of the receive
    /// buffer, to which the sender copies them with method `Split`.
    Streaming { claim: u16, receiver: u64, end: usize, into: u64, method: CopyMethod },
    /// The sender copies each fragment that the receiver has not claimed. The receiver reads the
    /// claimed fragments from the sender's memory. The send waits for the `Finish` record, which
    /// the receiver sends once it has read the claimed fragments.
    Meeting { claim: u16 },
}

pub(crate) struct Receive {
    pub(crate) into: Region,
    /// Source that the receive names (a rank or DTL_ANY_SOURCE).
    pub(crate) source: i32,
    pub(crate) taken: Option<TakenOffer>,
}

/// Rendezvous request (RTS) that is matched to a receive.
#[derive(Clone, Copy)]
pub(crate) struct TakenOffer {
    pub(crate) source: usize,
    pub(crate) word: u64,
    pub(crate) offer: RndvOffer,
    /// Number of leading bytes of the message that have arrived through cells or the ring, or that
    /// the sender has written. `want` is the number of bytes that fit into the receive buffer.
    pub(crate) have: usize,
    pub(crate) want: usize,
    pub(crate) answer: ControlRecord,
    pub(crate) help: CmaProgress,
}

/// Progress of a receive that reads fragments of the message from the sender's memory, starting at
/// the end.
#[derive(Clone, Copy)]
pub(crate) struct CmaProgress {
    /// Offset in the message. All bytes at or after this offset that fit into the receive buffer
    /// have been read.
    pub(crate) from: usize,
    pub(crate) method: CopyMethod,
    /// True if the receiver reads all fragments, so the sender gets no Clear record (CTS).
    pub(crate) is_alone: bool,
    /// Time at which the transfer began, in nanoseconds; 0 if it is not measured.
    pub(crate) begun_ns: u64,
    /// Start of the range that the receiver has claimed and is reading; equal to `from` if there is
    /// no such range.
    pub(crate) first: usize,
    /// Offset up to which the range that begins at `first` has been read.
    pub(crate) next: usize,
    /// Number of records from the sender that had been consumed at the last poll. `quiet` counts
    /// the subsequent polls without a new record; `since_ns` is the time from which the sender's
    /// inactivity is measured.
    pub(crate) seen: u64,
    pub(crate) quiet: u32,
    pub(crate) since_ns: u64,
}

impl TakenOffer {
    pub(crate) fn is_complete(&self) -> bool {
        self.have == self.help.from
    }

    /// Returns the number of fragments of the message that fit into the receive buffer.
    pub(crate) fn fragments(&self) -> u32 {
        fragments_of(self.want)
    }

    /// Returns true if the sender sends all fragments before the receiver requests any; the sender
    /// then waits for the `Finish` record.
    pub(crate) fn is_early(&self) -> bool {
        self.fragments() <= self.offer.early
    }
}

/// Control record that a receive must still send.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ControlRecord {
    None,
    Clear,
    Finish,
}

/// Unexpected message: no matching receive is posted yet.
pub(crate) enum Arrival {
    Copied(Scratch),
    /// A rendezvous request, with the bytes of the fragments that were sent immediately after the
    /// request, if any.
    Offered(RndvOffer, Option<Scratch>),
    /// A message from this rank to itself, represented by the ID of its send.
    Own(OpId),
}

/// Content of an Offer record (rendezvous request).
#[derive(Clone, Copy)]
pub(crate) struct RndvOffer {
    pub(crate) size: u64,
    pub(crate) send: u64,
    pub(crate) address: u64,
    /// Number of fragments that the sender sends directly after the `Offer` record, before the
    /// receiver requests any.
    pub(crate) early: u32,
    pub(crate) claim: u16,
    /// Method by which those fragments are copied.
    pub(crate) method: CopyMethod,
}

impl Engine {
    pub(crate) fn new(
        rank: usize,
        segment: Segment,
        peers: Peers,
        poller: Poller,
        mode: Mode,
    ) -> Engine {
        Engine {
            rank,
            segment,
            operations: Operations::default(),
            matcher: Matcher::new(peers.len()),
            peers,
            incoming: Vec::new(),
            outbound: Vec::new(),
            pool: None,
            helping: VecDeque::new(),
            lends: mode != Mode::Cells,
            forced: mode.method(),
            liveness: Liveness { poller, settled: 0, idle: 0, looked_ns: 0, deaths: 0 },
            awaited: None,
            short_ways: 0,
        }
    }

    pub(crate) fn rank_of(&self, rank: i32) -> Result<usize> {
        match usize::try_from(rank) {
            Ok(index) if index < self.peers.len() => Ok(index),
            _ => {
                fail!(DTL_ERROR_INVALID_RANK, "rank {rank} is not in 0 … {}", self.peers.len() - 1)
            }
        }
    }

    /// Completes operation `id` with RANK_FAILURE, because rank `peer` died or left.
    pub(crate) fn finish_failed(&mut self, id: OpId, peer: usize) {
        self.operations.finish(id, done(peer, DTL_ERROR_RANK_FAILURE, 0, 0));
    }

    // ---- starting ----

    pub(crate) fn isend(
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

    pub(crate) fn send_to(
        &mut self,
        dest: usize,
        data: Region,
        word: u64,
        mode: SendMode,
        filling: Option<Arc<PipelinedSource>>,
    ) -> Result<OpId> {
        let rank = self.rank;
        if !self.peers.is_present(dest) {
            let failed = done(dest, DTL_ERROR_RANK_FAILURE, word, 0);
            return self.operations.add(ShmOperation::Done(failed));
        }
        let link = self.peers.make_link(dest);
        let link = link.ok_or_else(|| failure!(DTL_ERROR_INTERNAL, "no peer {dest}"))?;
        if link.producer.is_none() {
            link.producer = Some(self.segment.open_ring(rank, dest)?);
        }
        let waits = !link.starts.is_empty();
        let send = Send { dest, word, data, mode, stage: SendStage::Queued, filling };
        let id = self.operations.add(ShmOperation::Send(send))?;
        if waits || !self.start(dest, id) {
            if let Some(link) = self.peers.link_mut(dest) {
                link.starts.push_back(id);
            }
            self.list(dest);
        }
        Ok(id)
    }

    /// Sends a short message if a ring to `dest` exists and has space, and no send to `dest` is
    /// queued. Otherwise returns false, and the caller must use `isend`.
    pub(crate) fn send_at_once(&mut self, data: Region, dest: i32, word: u64) -> bool {
        if data.len() > MAX_DATA {
            return false;
        }
        let Ok(dest) = usize::try_from(dest) else { return false };
        self.progress_others();
        let is_present = self.peers.is_present(dest);
        let link = self.peers.link_mut(dest).filter(|link| is_present && link.starts.is_empty());
        // There is no ring from this rank to itself.
        link.is_some_and(|link| link.push_eager(word, data, self.forced))
    }

    fn send_to_self(&mut self, data: Region, word: u64, mode: SendMode) -> Result<OpId> {
        let over = done(self.rank, DTL_SUCCESS, word, data.len() as u64);
        if let Some(posted) = self.matcher.take_posted(rank_of(self.rank), word) {
            self.deliver(posted, self.rank, word, data);
            return self.operations.add(ShmOperation::Done(over));
        }
        let is_copied = data.len() <= MAX_DATA && mode != SendMode::Synchronous;
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
        self.matcher.arrive(rank_of(self.rank), word, arrival);
        Ok(id)
    }

    pub(crate) fn irecv(&mut self, into: Region, select: Selector) -> Result<OpId> {
        let source = usize::try_from(select.source);
        let is_present = source.is_ok_and(|source| self.peers.is_present(source));
        if !is_present && select.source != DTL_ANY_SOURCE {
            self.rank_of(select.source)?;
        }
        let receive = Receive { into, source: select.source, taken: None };
        let id = self.operations.add(ShmOperation::Receive(receive))?;
        if is_present && self.matcher.post_first(select, id) {
            return Ok(id);
        }
        while let Some(message) = self.matcher.take_unexpected(&select) {
            // The sender has canceled this rendezvous request: the search continues.
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

    /// Starts the transfer of `message` into the buffer of receive `id`.
    pub(crate) fn give(&mut self, id: OpId, message: UnexpectedMessage<Arrival>) {
        let source = index_of(message.source);
        match message.what {
            Arrival::Copied(copy) => self.deliver(id, source, message.match_bits, copy.region()),
            Arrival::Own(send) => self.deliver_own(id, send),
            Arrival::Offered(offer, early) => {
                self.begin(id, source, message.match_bits, offer, early)
            }
        }
    }

    /// Returns true if the message of operation `id` is being transferred in fragments.
    pub(crate) fn is_fragmented(&self, id: OpId) -> bool {
        match self.operations.get(id) {
            Some(ShmOperation::Send(send)) => matches!(send.stage, SendStage::Streaming { .. }),
            Some(ShmOperation::Receive(receive)) => receive.taken.is_some(),
            _ => false,
        }
    }

    /// Returns `source` if that rank died or left, so that a receive from it cannot complete, else
    /// `None`. (The communicator decides whether a death ends an any-source receive, because it has
    /// the member list.)
    pub(crate) fn gone(&self, source: i32) -> Option<usize> {
        let rank = usize::try_from(source).ok()?;
        self.peers.get(rank).filter(|peer| peer.state != PeerState::Present).map(|_| rank)
    }

    pub(crate) fn deliver(&mut self, id: OpId, source: usize, word: u64, data: Region) {
        let Some(operation) = self.operations.get_mut(id) else { return };
        operation.deliver(source, word, data, source == self.rank);
    }

    fn deliver_own(&mut self, id: OpId, send: OpId) {
        if let Some(&ShmOperation::Send(Send { word, data, .. })) = self.operations.get(send) {
            self.deliver(id, self.rank, word, data);
            self.operations.finish(send, done(self.rank, DTL_SUCCESS, word, data.len() as u64));
        }
    }

    /// Accepts `message` for a receive. Returns false if the message is a rendezvous request that
    /// the sender has already canceled. The sender can no longer cancel an accepted request.
    /// Messages that are not rendezvous requests are always accepted.
    pub(crate) fn claim(&self, message: &UnexpectedMessage<Arrival>) -> bool {
        let Arrival::Offered(offer, _) = &message.what else { return true };
        self.claim_offer(index_of(message.source), *offer)
    }

    pub(crate) fn claim_offer(&self, source: usize, offer: RndvOffer) -> bool {
        self.peers.consumer(source).is_some_and(|consumer| consumer.offers.take(offer.claim))
    }

    /// Starts the transfer of the message whose rendezvous request was accepted by receive `id`.
    /// `early` contains the bytes of the fragments that were sent directly after the request, if
    /// they have arrived.
    pub(crate) fn begin(
        &mut self,
        id: OpId,
        source: usize,
        word: u64,
        offer: RndvOffer,
        early: Option<Scratch>,
    ) {
        let readable =
            offer.address != 0 && self.peers.get(source).is_some_and(|peer| peer.readable);
        let size = usize::try_from(offer.size).unwrap_or(usize::MAX);
        let (is_lower, is_free) = (self.rank < source, readable && self.forced.is_none());
        let shared = || self.segment.copy_times(source, self.rank);
        let link = self.peers.link_mut(source);
        let (method, is_exchange, begun_ns) = link.map_or((CopyMethod::Cells, false, 0), |link| {
            let chosen = link.chosen(size, is_lower);
            let method = match self.forced {
                _ if offer.early > 0 => offer.method,
                Some(forced) if readable || forced.uses_cells() => forced,
                None if readable => chosen,
                _ => CopyMethod::Cells,
            };
            let is_measurable = is_free && (is_lower || !link.is_exchange);
            (method, link.is_exchange, link.begin_transfer(size, is_measurable, shared))
        });
        let is_alone = method == CopyMethod::Get || (method == CopyMethod::Split && is_exchange);
        let Some(ShmOperation::Receive(receive)) = self.operations.get_mut(id) else { return };
        let want = size.min(receive.into.len());
        let help = CmaProgress {
            from: want,
            method,
            is_alone,
            begun_ns,
            first: want,
            next: want,
            seen: 0,
            quiet: 0,
            since_ns: 0,
        };
        let mut taken =
            TakenOffer { source, word, offer, have: 0, want, answer: ControlRecord::None, help };
        if want == 0 {
            taken.answer = ControlRecord::Finish;
        } else if !taken.is_early() {
            if !is_alone {
                taken.answer = ControlRecord::Clear;
            }
            if let Some(consumer) = self.peers.consumer(source) {
                consumer.offers.share(offer.claim, offer.early..taken.fragments());
            }
            if readable {
                self.helping.push_back(id);
            }
        }
        receive.taken = Some(taken);
        if taken.answer != ControlRecord::None {
            self.answer_or_queue(source, id);
        }
        if let Some(early) = early {
            self.accept_fragment(source, id, early.region());
        }
    }

    /// Sends the pending control record of receive `id`, or queues it if it cannot be sent now.
    pub(crate) fn answer_or_queue(&mut self, source: usize, id: OpId) {
        let is_first = self.peers.link(source).is_some_and(|link| link.answers.is_empty());
        if is_first && self.answer(source, id) {
            return;
        }
        if let Some(link) = self.peers.link_mut(source) {
            link.answers.push_back(id);
        }
        self.list(source);
    }

    pub(crate) fn list(&mut self, rank: usize) {
        if let Some(link) = self.peers.link_mut(rank).filter(|link| !link.is_listed) {
            link.is_listed = true;
            self.outbound.push(rank);
        }
    }

    /// Cancels an operation if that is still possible; then the operation completes with CANCELED.
    pub(crate) fn cancel(&mut self, id: OpId) {
        let own = rank_of(self.rank);
        let withdrawn = match self.operations.get(id) {
            Some(&ShmOperation::Receive(Receive { source, taken: None, .. })) => {
                self.matcher.cancel(source, &id)
            }
            Some(&ShmOperation::Send(Send { dest, stage: SendStage::Queued, .. }))
                if dest == self.rank =>
            {
                let is = |what: &Arrival| matches!(what, Arrival::Own(send) if *send == id);
                self.operations.cancel_message(&mut self.matcher, own, is)
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
            self.operations.finish(id, done(self.rank, DTL_ERROR_CANCELED, 0, 0));
        }
    }

    // ---- progress ----

    /// Advances all operations that can advance; returns true if at least one did.
    pub(crate) fn progress(&mut self) -> bool {
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

    /// Finds senders that have opened their ring to this rank.
    pub(crate) fn find_rings(&mut self) {
        for group in 0..self.peers.len().div_ceil(64) {
            let mut bits = self.segment.ready(self.rank, group);
            while bits != 0 {
                let source = 64 * group + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if self.peers.consumer(source).is_some() || !self.peers.is_present(source) {
                    continue;
                }
                let Ok(consumer) = self.segment.read_ring(source, self.rank) else { continue };
                if let Some(link) = self.peers.make_link(source) {
                    link.consumer = Some(consumer);
                    self.incoming.push(source);
                }
            }
        }
    }
}
