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
//! This file makes the rings the link of the protocol in `backend::p2p`, which matches, probes and
//! cancels messages. `rx` handles records read from rings, `tx` records written to rings, `cma` the
//! fragments that a receiver reads directly, `liveness` ranks that died or left; locks are in
//! `transport`.

use super::copy_method::CopyMethod;
use super::pipeline::fragments_of;
use crate::backend::match_queues::{Matcher, PostedReceive};
use crate::backend::op_table::Operations;
use crate::backend::p2p::{
    self, LinkArrival, LinkOperation, P2pEngine, P2pLink, SendOutcome, SendQueue,
};
use crate::backend::shm::memory::cells::CellPool;
use crate::backend::shm::memory::ring::MAX_DATA;
use crate::backend::shm::memory::segment::{PeerState, Segment};
use crate::backend::shm::peer::{Mode, Peers};
use crate::error::{Result, failure};
use crate::runtime::component::{Dest, OpId, PipelinedSource, RecvReduction};
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
    /// Reports the ranks whose process has exited; `None` without pidfds.
    pub(crate) poller: Option<Poller>,
    /// Number of rank state changes that have been handled.
    pub(crate) settled: u64,
    pub(crate) idle: u32,
    pub(crate) looked_ns: u64,
    pub(crate) deaths: usize,
}

/// Operation in flight.
pub(crate) type ShmOperation = LinkOperation<Engine>;
pub(crate) type Send = p2p::Send<Engine>;
pub(crate) type Receive = p2p::Receive<Engine>;
/// Unexpected message. A rendezvous request is stored with the bytes of the fragments that were
/// sent immediately after it, if any.
pub(crate) type Arrival = LinkArrival<Engine>;

#[derive(Clone, Copy, Default)]
pub(crate) enum SendStage {
    /// Waiting for space in the ring, or (if the destination is this rank) for a matching receive.
    #[default]
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
        poller: Option<Poller>,
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

    /// Sends a short message if a ring to `dest` exists and has space, and no send to `dest` is
    /// queued. Otherwise returns false, and the caller must use `isend`.
    pub(crate) fn send_at_once(&mut self, data: Region, to: Dest) -> bool {
        if data.len() > MAX_DATA {
            return false;
        }
        let Ok(dest) = usize::try_from(to.rank) else { return false };
        self.progress_others();
        let is_present = self.peers.is_present(dest);
        let link =
            self.peers.link_mut(dest).filter(|link| is_present && link.queue.starts.is_empty());
        // There is no ring from this rank to itself.
        link.is_some_and(|link| link.push_eager(to.word, data, self.forced))
    }

    /// Returns true if the message of operation `id` is being transferred in fragments.
    pub(crate) fn is_fragmented(&self, id: OpId) -> bool {
        match self.operations.get(id) {
            Some(ShmOperation::Send(send)) => matches!(send.stage, SendStage::Streaming { .. }),
            Some(ShmOperation::Receive(receive)) => receive.taken.is_some(),
            _ => false,
        }
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
            let is_exchange = link.exchange.is_on;
            let is_measurable = is_free && (is_lower || !is_exchange);
            let filled_ns = link.is_timed(size).then_some(0);
            (method, is_exchange, link.begin_transfer(size, is_measurable, filled_ns, shared))
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
        let is_first = self.send_queue(source).is_some_and(|queue| queue.answers.is_empty());
        if !(is_first && self.answer(source, id)) {
            self.queue_answer(source, id);
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

impl P2pLink for Engine {
    type Stage = SendStage;
    type Filling = Option<Arc<PipelinedSource>>;
    type Taken = TakenOffer;
    /// Reduction of the message.
    type Action = Option<RecvReduction>;
    type Offer = (RndvOffer, Option<Scratch>);
    type Bytes = Scratch;
    /// Receive whose control record is to be sent.
    type Answer = OpId;
    const EAGER: usize = MAX_DATA;

    fn ranks(&self) -> (usize, usize) {
        (self.rank, self.peers.len())
    }

    fn queues(&self) -> (&Operations<ShmOperation>, &Matcher<OpId, Arrival>) {
        (&self.operations, &self.matcher)
    }

    fn queues_mut(&mut self) -> (&mut Operations<ShmOperation>, &mut Matcher<OpId, Arrival>) {
        (&mut self.operations, &mut self.matcher)
    }

    fn send_queue(&mut self, rank: usize) -> Option<&mut SendQueue<OpId>> {
        self.peers.link_mut(rank).map(|link| &mut link.queue)
    }

    fn listed(&mut self) -> &mut Vec<usize> {
        &mut self.outbound
    }

    fn gone(&self, source: i32) -> Option<usize> {
        let rank = index_of(source);
        self.peers.get(rank).filter(|peer| peer.state != PeerState::Present).map(|_| rank)
    }

    fn connect(&mut self, dest: usize) -> Result<bool> {
        let link = self.peers.make_link(dest);
        let link = link.ok_or_else(|| failure!(DTL_ERROR_INTERNAL, "no peer {dest}"))?;
        if link.producer.is_none() {
            link.producer = Some(self.segment.open_ring(self.rank, dest)?);
        }
        Ok(!link.queue.starts.is_empty())
    }

    fn try_start(&mut self, dest: usize, id: OpId) -> SendOutcome {
        if self.start(dest, id) { SendOutcome::Yes } else { SendOutcome::NoRoom }
    }

    fn try_answer(&mut self, dest: usize, id: OpId) -> bool {
        self.answer(dest, id)
    }

    fn transfer(
        &mut self,
        id: OpId,
        source: usize,
        word: u64,
        (offer, early): Self::Offer,
        _place: Option<PostedReceive<OpId>>,
    ) {
        self.begin(id, source, word, offer, early);
    }

    fn cancel_send(&mut self, id: OpId, dest: usize, stage: SendStage) -> bool {
        let Some(link) = self.peers.link_mut(dest) else { return false };
        match stage {
            SendStage::Queued => {
                link.queue.starts.retain(|start| *start != id);
                true
            }
            SendStage::Offered { claim } => {
                link.producer.as_mut().is_some_and(|producer| producer.offers.cancel(claim))
            }
            SendStage::Streaming { .. } | SendStage::Meeting { .. } => false,
        }
    }

    fn claim(&self, source: usize, (offer, _): &Self::Offer) -> bool {
        self.claim_offer(source, *offer)
    }

    fn size_of(&self, source: usize, (offer, _): &Self::Offer) -> Option<u64> {
        let consumer = self.peers.consumer(source)?;
        consumer.offers.is_open(offer.claim).then_some(offer.size)
    }

    fn region(bytes: &mut Scratch, _size: usize) -> Region {
        bytes.region()
    }

    fn store(receive: &Receive, data: Region, is_own: bool) {
        match &receive.action {
            Some(by) => by.reduce(receive.into, 0, data),
            None if is_own => receive.into.copy_from(data),
            None => receive.into.copy_across(data),
        }
    }
}
