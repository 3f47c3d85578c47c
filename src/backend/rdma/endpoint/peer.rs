//! State for a peer with which this rank exchanges messages: queue pairs, slots (registered
//! buffers) for messages, and credits.
//!
//! A message needs a posted receive at the peer. The peer reports its count of consumed messages
//! (credits) in the header of each of its own messages. If it has no message to send, it writes the
//! count into this rank's registered memory (RDMA write). So a message never arrives at an empty
//! receive queue, and no message is sent only to return credits.

use super::qp_state::{InFlightWork, Lane, OnCompletion, Repair, WorkId};
use crate::backend::p2p_protocol::{FRAME_WORDS, eager_word};
use crate::backend::rdma::atomic_op::Results;
use crate::backend::rdma::config::Config;
use crate::backend::rdma::operation::RmaDirection;
use crate::backend::rdma::protocol::eager_slots::{EagerHeader, EagerKind, Note, Slab};
use crate::backend::rdma::protocol::header_cache::HeaderCache;
use crate::backend::rdma::verbs::qp::{MrRange, QueuePair, Remote, SENDS, Work, WorkRequest};
use crate::backend::rdma::verbs::rail::{Completions, Registration};
use crate::error::{Error, Result, fail, failure};
use crate::runtime::component::OpId;
use crate::sys::memory::buf::{Region, Scratch};
use std::collections::VecDeque;
use std::sync::Arc;

/// Stage of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum ConnectStage {
    /// Not requested.
    #[default]
    None,
    /// This side's queue pair attributes were sent, but the peer's have not arrived yet.
    Asked,
    /// Connected on this side, but perhaps not yet on the peer's side.
    Connected,
    /// Messages may be sent.
    Ready,
    /// An established connection has broken. Its queue pairs are drained, then recreated.
    Broken,
    /// The peer has failed or cannot be reached.
    Gone,
}

/// State of this rank's communication with a peer: queue pairs, slots (registered buffers) for
/// messages, and credits.
#[derive(Default)]
pub(crate) struct Peer {
    pub(crate) rank: usize,
    pub(crate) stage: ConnectStage,
    /// Queue pairs that are connected to the peer; the first one carries all messages.
    pub(crate) lanes: Vec<Lane>,
    /// Registration of `slab` (the memory for message buffers and counts of consumed messages),
    /// declared before `slab` so that it is dropped first.
    slab_keys: Option<Registration>,
    pub(crate) slab: Slab,
    free: Vec<usize>,
    /// Ring buffer with copies of inline payloads for retransmission, one copy for each receive
    /// that the peer posts.
    kept: Scratch,
    /// Size of a copy in `kept`, and the offset of the next copy, both in bytes.
    keep: (usize, usize),
    /// First of the words in the peer's memory to which this rank writes its counts of consumed
    /// messages, one per queue pair.
    pub(crate) tell: Option<Remote>,
    pub(crate) depth: u32,
    /// Match bits of recent messages, which both sides cache.
    pub(crate) heads: HeaderCache,
    /// Rendezvous control records to send, each in the header of one of the next messages.
    pub(crate) notes: VecDeque<Note>,
    /// Receive buffers that the peer has announced (CTS) and to which no payload has been sent yet.
    pub(crate) landings: Vec<Note>,
    /// Payloads that are awaited from the peer: tag and receive operation of each.
    pub(crate) awaited: Vec<(u32, OpId)>,
    /// Payloads announced to the peer (RTS): tag and send operation of each.
    pub(crate) offered: Vec<(u32, OpId)>,
    /// Result slots (words of registered memory) for the atomic operations on the peer's memory,
    /// and the elements on which no other operation may start yet.
    pub(crate) results: Results,
    /// True if the peer is in `RdmaEngine::listed`.
    pub(crate) is_listed: bool,
    /// Reason for the peer's failure. The connection to the peer is closed once all data that has
    /// arrived has been read.
    pub(crate) failing: Option<String>,
    pub(crate) repair: Repair,
}

/// Returns the number of send slots (registered buffers) for a peer that posts `depth` receives.
const fn sends(depth: u32) -> usize {
    if depth > 4 { depth as usize / 2 } else { 2 }
}

/// Returns the number of bytes registered per peer if `depth` receives are posted.
pub(crate) const fn registered(depth: u32) -> usize {
    Slab::bytes(depth as usize, sends(depth))
}

/// Returns the number of unregistered bytes per peer with `lanes` queue pairs and `depth` posted
/// receives.
pub(crate) const fn bytes(depth: u32, lanes: usize) -> usize {
    let lane = size_of::<Lane>() + (SENDS * depth) as usize * size_of::<InFlightWork>();
    let kept = depth * crate::backend::rdma::config::INLINE;
    size_of::<Peer>() + kept as usize + sends(depth) * size_of::<usize>() + lanes * lane
}

impl Peer {
    /// Creates the queue pairs for a peer and posts their receives.
    pub(crate) fn make(
        rank: usize,
        on: &[(usize, Arc<Completions>)],
        config: &Config,
    ) -> Result<Peer> {
        let depth = config.depth;
        let sends = sends(depth);
        let Some(slab) = Slab::new(depth as usize, sends) else {
            return fail!(DTL_ERROR_OUT_OF_MEMORY, "no memory for the slots of rank {rank}");
        };
        let Some((_, first)) = on.first() else {
            return fail!(DTL_ERROR_INTERNAL, "no rail to reach rank {rank}");
        };
        let slab_keys = first.rail.register(slab.region()).map_err(|error| {
            let advice = "; these are the slots of one peer: fewer with a lower DTL_RDMA_DEPTH; a \
                lower DTL_RDMA_CACHE_BYTES leaves more";
            Error::new(error.status(), format!("{}{advice}", error.text()))
        })?;
        let mut lanes = Vec::with_capacity(on.len());
        for (rail, completions) in on {
            lanes.push(Lane::new(QueuePair::make(completions, config)?, *rail, sends));
        }
        let inline = lanes.first().map_or(0, |lane| lane.queue.inline);
        let kept = Scratch::new(depth as usize * inline).ok_or_else(|| {
            failure!(DTL_ERROR_OUT_OF_MEMORY, "no memory for the small messages to rank {rank}")
        })?;
        let peer = Peer {
            rank,
            stage: ConnectStage::Asked,
            lanes,
            slab,
            slab_keys: Some(slab_keys),
            free: (0..sends).collect(),
            kept,
            keep: (inline, 0),
            depth,
            ..Peer::default()
        };
        for lane in 0..peer.lanes.len() {
            (0..depth).try_for_each(|slot| peer.post(lane, slot))?;
        }
        Ok(peer)
    }

    /// Returns the remote key (rkey) with which the peer accesses this rank's memory for the
    /// connection (`slab`).
    pub(crate) fn slab_key(&self) -> u32 {
        self.slab_keys.as_ref().map_or(0, |keys| keys.rkey)
    }

    pub(crate) fn lkey(&self) -> u32 {
        self.slab_keys.as_ref().map_or(0, |keys| keys.lkey)
    }

    /// Posts receive number `slot` on queue pair `lane`. Only receives on the first queue pair have
    /// a buffer.
    pub(crate) fn post(&self, lane: usize, slot: u32) -> Result<()> {
        let Some(of) = self.lanes.get(lane) else { return Ok(()) };
        let id = WorkId { is_receive: true, rank: self.rank, lane, number: slot };
        let into = (lane == 0).then(|| MrRange {
            region: self.slab.receive(slot as usize),
            lkey: self.lkey(),
            is_device: false,
        });
        of.queue.receive(id.word(), into)
    }

    /// Counts a consumed message and posts its receive again. On a broken connection the receive
    /// stays idle until the queue pair is recreated.
    pub(crate) fn consume(&mut self, lane: usize, slot: u32) -> Result<()> {
        let is_broken = self.stage == ConnectStage::Broken;
        let Some(of) = self.lanes.get_mut(lane) else { return Ok(()) };
        of.consumed = of.consumed.wrapping_add(1);
        if is_broken {
            of.mending.idle.push(slot);
            return Ok(());
        }
        self.post(lane, slot)
    }

    /// Records the peer's count of consumed messages, which never decreases.
    pub(crate) fn add_credits(&mut self, lane: usize, consumed: u32) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.add_credits(consumed);
        }
    }

    /// Returns true if the connection is ready, the send queue of `lane` has room for one more work
    /// request, and the peer has a posted receive left if the request consumes one (`notifies`).
    fn has_room(&mut self, lane: usize, notifies: bool) -> bool {
        let is_out = |of: &Lane, depth: u32| of.sent.wrapping_sub(of.peer_consumed) >= depth;
        let depth = self.depth;
        if notifies && self.lanes.get(lane).is_some_and(|of| is_out(of, depth)) {
            self.add_credits(lane, self.slab.read_credits(lane));
        }
        let Some(of) = self.lanes.get(lane) else { return false };
        self.stage == ConnectStage::Ready
            && of.in_flight.len() < of.queue.room
            && !(notifies && is_out(of, depth))
    }

    /// Posts a work request on queue pair `lane`; returns false if the request must be retried
    /// later.
    pub(crate) fn start(&mut self, lane: usize, work: Work, what: OnCompletion) -> Result<bool> {
        self.start_inline(lane, work, what)
    }

    /// Posts a work request on queue pair `lane`; returns false if the request must be retried
    /// later. The function is inlined so that the compiler specializes it for each kind of work
    /// request that carries a small message.
    fn start_inline(&mut self, lane: usize, work: Work, what: OnCompletion) -> Result<bool> {
        let (work, local) = work;
        let notifies = work.notifies();
        if !self.has_room(lane, notifies) {
            return Ok(false);
        }
        let Some(of) = self.lanes.get_mut(lane) else { return Ok(false) };
        let number = of.number.wrapping_add(1);
        let id = WorkId { is_receive: false, rank: self.rank, lane, number };
        let taken = match of.queue.start(id.word(), (work, local), of.is_signaled(what, number)) {
            Ok(taken) => taken,
            Err(error)
                if error.status() == crate::abi::status::DTL_ERROR_OUT_OF_MEMORY
                    && !of.in_flight.is_empty() =>
            {
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        of.number = number;
        of.sent = of.sent.wrapping_add(u32::from(notifies));
        let (what, local) = match what {
            OnCompletion::Slot(slot) if taken => {
                self.free.push(slot);
                (OnCompletion::Nothing, self.keep(local))
            }
            OnCompletion::Nothing if notifies => (what, self.keep(local)),
            what => (what, local),
        };
        if let Some(of) = self.lanes.get_mut(lane) {
            of.in_flight.push_back(InFlightWork { number, what, work, local });
        }
        Ok(true)
    }

    /// Copies the inline payload of a work request to the ring buffer `kept`, so that a payload
    /// that does not arrive can be sent again. The overwritten copy in the ring buffer belongs to a
    /// message that the peer has already consumed, because the ring buffer holds as many copies as
    /// the peer posts receives.
    fn keep(&mut self, local: MrRange) -> MrRange {
        let (each, at) = self.keep;
        let all = self.kept.region();
        let copy = all.part(at, local.region.len());
        copy.copy_from(local.region);
        self.keep.1 = if at + each < all.len() { at + each } else { 0 };
        MrRange { region: copy, lkey: 0, is_device: false }
    }

    /// Copies a message to a send slot (registered buffer) and sends it; returns false if the
    /// message must be sent later.
    pub(crate) fn send(
        &mut self,
        kind: EagerKind,
        word: u32,
        head: &[u64],
        data: Region,
    ) -> Result<bool> {
        // A frame may refer to an earlier note, so all notes but one are sent before the frame, and
        // the last note is sent with the frame.
        while kind == EagerKind::Frame && self.notes.len() > 1 {
            if !self.send(EagerKind::Note, 0, &[], Region::EMPTY)? {
                return Ok(false);
            }
        }
        if !self.has_room(0, true) {
            return Ok(false);
        }
        let Some(slot) = self.free.pop() else { return Ok(false) };
        let consumed = self.lanes.first().map_or(0, |lane| lane.consumed);
        let message = EagerHeader { consumed, kind, word, note: self.notes.front().copied() };
        let region = message.write(self.slab.send(slot), head, data);
        let sent = self.post_slot(slot, WorkRequest::Send, region, consumed)?;
        if sent {
            self.notes.pop_front();
        }
        Ok(sent)
    }

    /// Records the peer's count of consumed messages, given its low 16 bits.
    pub(crate) fn add_brief_credits(&mut self, consumed: u16) {
        let peer_consumed = self.lanes.first().map_or(0, |lane| lane.peer_consumed);
        let more = consumed.wrapping_sub(peer_consumed as u16) as i16;
        self.add_credits(0, peer_consumed.wrapping_add_signed(i32::from(more)));
    }

    /// Sends a frame; returns false if the frame must be sent later. An eager message whose match
    /// bits are cached at the peer is sent without its header words, so that a payload of one
    /// packet's size needs only one packet.
    pub(crate) fn send_frame(
        &mut self,
        head: &[u64; FRAME_WORDS],
        payload: Region,
    ) -> Result<bool> {
        let Some(word) = eager_word(head) else {
            return self.send(EagerKind::Frame, 0, head, payload);
        };
        let (place, is_known) = self.heads.place(word);
        if !is_known || !self.notes.is_empty() {
            let sent = self.send(EagerKind::Frame, place as u32 + 1, head, payload)?;
            if sent {
                self.heads.tell(place, word);
            }
            return Ok(sent);
        }
        if !self.has_room(0, true) {
            return Ok(false);
        }
        let consumed = self.lanes.first().map_or(0, |lane| lane.consumed);
        let number = (place as u32) << 16 | consumed & 0xFFFF;
        if payload.len() <= self.inline() {
            // The work request carries the bytes inline, so they may be in unregistered memory.
            let local = MrRange { region: payload, lkey: 0, is_device: false };
            let work = (WorkRequest::SendNotify(number), local);
            let sent = self.start_inline(0, work, OnCompletion::Nothing)?;
            if let (true, Some(lane)) = (sent, self.lanes.first_mut()) {
                lane.reported = consumed;
            }
            return Ok(sent);
        }
        let Some(slot) = self.free.pop() else { return Ok(false) };
        let region = self.slab.send(slot).part(0, payload.len());
        region.copy_from(payload);
        self.post_slot(slot, WorkRequest::SendNotify(number), region, consumed)
    }

    /// Posts the send of a message that has been written to a send slot (registered buffer); frees
    /// the slot if the message could not be posted.
    fn post_slot(
        &mut self,
        slot: usize,
        work: WorkRequest,
        region: Region,
        consumed: u32,
    ) -> Result<bool> {
        let local = MrRange { region, lkey: self.lkey(), is_device: false };
        let started = self.start(0, (work, local), OnCompletion::Slot(slot));
        match (&started, self.lanes.first_mut()) {
            (Ok(true), Some(lane)) => lane.reported = consumed,
            _ => self.free.push(slot),
        }
        started
    }

    /// Returns the maximum number of bytes that a work request carries inline.
    pub(crate) fn inline(&self) -> usize {
        self.lanes.first().map_or(0, |lane| lane.queue.inline)
    }

    /// Transfers data between the unregistered buffer `bytes` and the peer's memory `there` through
    /// a send slot (registered buffer). `path` determines the direction. Returns false if the
    /// request must be retried later, for example because no send slot is free.
    pub(crate) fn start_with_slot(
        &mut self,
        bytes: Region,
        path: RmaDirection,
        there: Remote,
        op: OpId,
    ) -> Result<bool> {
        let Some(slot) = self.free.pop() else { return Ok(false) };
        let region = self.slab.send(slot).part(0, bytes.len());
        let (work, what) = match path {
            RmaDirection::Put => {
                region.copy_from(bytes);
                (WorkRequest::Write(there), OnCompletion::Sent(op, slot))
            }
            RmaDirection::Get => (WorkRequest::Read(there), OnCompletion::Got(op, slot, bytes)),
        };
        let local = MrRange { region, lkey: self.lkey(), is_device: false };
        let started = self.start(0, (work, local), what);
        if !matches!(started, Ok(true)) {
            self.free.push(slot);
        }
        started
    }

    /// Sends all pending rendezvous control records (notes) as separate messages; returns true if
    /// none is left.
    pub(crate) fn send_notes(&mut self) -> Result<bool> {
        while !self.notes.is_empty() {
            if !self.send(EagerKind::Note, 0, &[], Region::EMPTY)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns true if at least half of the credits of any queue pair have not been returned to the
    /// peer.
    pub(crate) fn owes_credits(&self) -> bool {
        self.lanes.iter().any(|lane| lane.consumed.wrapping_sub(lane.reported) >= self.depth / 2)
    }

    /// Returns credits to the peer for each queue pair whose unreturned credits are at least half
    /// of `depth` (the number of posted receives); the result is false if one of the writes must be
    /// posted later.
    pub(crate) fn return_credits(&mut self) -> Result<bool> {
        let Some(tell) = self.tell.filter(|_| self.stage == ConnectStage::Ready) else {
            return Ok(true);
        };
        let mut all_told = true;
        for index in 0..self.lanes.len() {
            let Some(lane) = self.lanes.get(index) else { break };
            let consumed = lane.consumed;
            if consumed.wrapping_sub(lane.reported) < self.depth / 2 {
                continue;
            }
            let region = self.slab.write_credits(index, consumed);
            let local = MrRange { region, lkey: self.lkey(), is_device: false };
            let to = Remote { addr: tell.addr + 4 * index as u64, rkey: tell.rkey };
            if self.start(0, (WorkRequest::Write(to), local), OnCompletion::Nothing)? {
                if let Some(lane) = self.lanes.get_mut(index) {
                    lane.reported = consumed;
                }
            } else {
                all_told = false;
            }
        }
        Ok(all_told)
    }

    /// Removes the completed work requests of queue pair `lane`, that is, those up to request
    /// `number`. Calls `part` with the operation of each removed work request that was part of an
    /// operation.
    pub(crate) fn over(&mut self, lane: usize, number: u32, mut part: impl FnMut(OpId)) {
        loop {
            let Some(of) = self.lanes.get_mut(lane) else { return };
            let is_over = |next: &InFlightWork| (number.wrapping_sub(next.number) as i32) >= 0;
            if !of.in_flight.front().is_some_and(is_over) {
                return;
            }
            let Some(flying) = of.in_flight.pop_front() else { return };
            self.settle(flying.what, &mut part);
        }
    }

    /// Performs the completion action of a work request.
    pub(crate) fn settle(&mut self, what: OnCompletion, part: &mut impl FnMut(OpId)) {
        match what {
            OnCompletion::Nothing | OnCompletion::Mark => {}
            OnCompletion::Slot(slot) => self.free.push(slot),
            OnCompletion::Part(op) => part(op),
            OnCompletion::Answer(slot) => self.results.answered.push(slot),
            OnCompletion::Sent(op, slot) => {
                self.free.push(slot);
                part(op);
            }
            OnCompletion::Got(op, slot, into) => {
                into.copy_from(self.slab.send(slot));
                self.free.push(slot);
                part(op);
            }
        }
    }

    /// Destroys the queue pairs, so that no network card accesses the slots (registered buffers)
    /// for this peer any longer. Messages that have arrived stay readable.
    pub(crate) fn give_up(&mut self) {
        self.stage = ConnectStage::Gone;
        self.lanes.clear();
        self.slab_keys = None;
        self.notes.clear();
        self.landings.clear();
        self.results = Results::default();
        self.repair = Repair::default();
    }
}
