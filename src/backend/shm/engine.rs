//! The protocol: how sends and receives become records in rings, and back.
//!
//! Up to `FRAGMENT` bytes go as one Eager record; the send is over when it is in the ring. More is
//! offered: the receiver, when it has a receive for it, takes the offer and then either copies from
//! the sender's memory and says Finish, or says Clear and gets the bytes as Data records.
//!
//! Nothing ever waits: what finds no room in a ring is queued here and goes on with the next call of
//! `progress`. Rings are always read to the end, whatever is queued for writing, so two ranks that
//! flood each other cannot lock up. An operation of the receiver is over only when its answer is in
//! the ring; so a rank that closes has said everything, and its rings are read by the others also
//! after it has gone.
//!
//! Not here: noticing that ranks are gone (`liveness`), locks (`transport`).

use super::peer::Peer;
use super::ring::{FRAGMENT, Kind, Payload, Record};
use super::segment::{Segment, State};
use crate::abi::comm::DTL_ANY_SOURCE;
use crate::abi::status::*;
use crate::backend::matching::Matcher;
use crate::backend::operations::Operations;
use crate::error::{Result, fail};
use crate::runtime::backend::{Done, OpId, Selector};
use crate::sys::buf::{Region, Scratch};
use crate::sys::process::Watch;

/// Records read from one ring before the next gets its turn.
const BUDGET: usize = 256;
/// Bytes copied from another process in one step: others' progress does not wait longer than that.
const COPY_STEP: usize = 1 << 20;

/// See the module's text. Every method is short and none blocks.
pub(super) struct Engine {
    pub(super) rank: usize,
    pub(super) segment: Segment,
    pub(super) operations: Operations<Operation>,
    pub(super) matcher: Matcher<OpId, Arrival>,
    pub(super) peers: Vec<Peer>,
    /// Ranks whose rings to us have memory.
    pub(super) incoming: Vec<usize>,
    /// Ranks for which something is queued.
    outbound: Vec<usize>,
    /// Receives that copy from their sender's memory.
    copying: Vec<OpId>,
    /// Whether others may read this process' memory.
    pub(super) lends: bool,
    pub(super) liveness: Liveness,
}

/// What `liveness` keeps.
pub(super) struct Liveness {
    pub(super) watch: Watch,
    /// Changes of states that have been settled.
    pub(super) settled: u64,
    pub(super) idle: u32,
    pub(super) looked_ns: u64,
    pub(super) deaths: usize,
}

/// An operation in flight.
pub(super) enum Operation {
    Send(Send),
    Receive(Receive),
    Done(Done),
}

pub(super) struct Send {
    pub(super) dest: usize,
    word: u64,
    data: Region,
    stage: SendStage,
}

#[derive(Clone, Copy)]
enum SendStage {
    /// Waits for room, or (to itself) for a receive.
    Queued,
    /// The receiver knows of it.
    Offered { claim: usize },
    /// The receiver wants it through the ring.
    Streaming { claim: usize, receiver: u64, next: usize, end: usize },
}

pub(super) struct Receive {
    into: Region,
    pub(super) taken: Option<Taken>,
}

/// An offer that a receive has taken.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    pub(super) source: usize,
    word: u64,
    offer: Offer,
    /// Bytes that have come, and that fit.
    have: usize,
    want: usize,
    answer: Answer,
}

impl Taken {
    pub(super) fn is_complete(&self) -> bool {
        self.have == self.want
    }
}

/// The control record that a receive has to send.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    None,
    Clear,
    Finish,
}

/// A message that nobody has asked for yet.
pub(super) enum Arrival {
    Copied(Scratch),
    Offered(Offer),
    /// From this rank to itself: its send operation.
    Own(OpId),
}

/// What an Offer record says.
#[derive(Clone, Copy)]
pub(super) struct Offer {
    size: u64,
    send: u64,
    address: u64,
    claim: usize,
}

fn done(source: usize, status: dtl_status_t, word: u64, size: u64) -> Done {
    Done { source: i32::try_from(source).unwrap_or(i32::MAX), status, word, size }
}

fn fitting(size: u64, into: Region) -> dtl_status_t {
    if size > into.len() as u64 { DTL_ERROR_TRUNCATED } else { DTL_SUCCESS }
}

impl Engine {
    pub(super) fn new(rank: usize, segment: Segment, peers: Vec<Peer>, lends: bool) -> Engine {
        let mut watch = Watch::new();
        peers.iter().for_each(|peer| watch.add(peer.process()));
        let ranks = peers.len();
        Engine {
            rank,
            segment,
            operations: Operations::new(),
            matcher: Matcher::new(ranks),
            peers,
            incoming: Vec::with_capacity(ranks),
            outbound: Vec::with_capacity(ranks),
            copying: Vec::new(),
            lends,
            liveness: Liveness { watch, settled: 0, idle: 0, looked_ns: 0, deaths: 0 },
        }
    }

    fn own(&self) -> i32 {
        i32::try_from(self.rank).unwrap_or(i32::MAX)
    }

    fn rank_of(&self, rank: i32) -> Result<usize> {
        match usize::try_from(rank) {
            Ok(index) if index < self.peers.len() => Ok(index),
            _ => fail!(DTL_ERROR_INVALID_RANK, "rank {rank} is not in 0 … {}", self.peers.len() - 1),
        }
    }

    pub(super) fn finish(&mut self, id: OpId, done: Done) {
        if let Some(operation) = self.operations.get_mut(id) {
            *operation = Operation::Done(done);
        }
    }

    /// Ends an operation because of a rank that is gone.
    pub(super) fn finish_failed(&mut self, id: OpId, peer: usize) {
        self.finish(id, done(peer, DTL_ERROR_RANK_FAILURE, 0, 0));
    }

    // ---- starting ----

    pub(super) fn isend(&mut self, data: Region, dest: i32, word: u64) -> Result<OpId> {
        let dest = self.rank_of(dest)?;
        if dest == self.rank {
            return self.send_to_self(data, word);
        }
        let rank = self.rank;
        let peer = peer_mut(&mut self.peers, dest)?;
        if peer.state != State::Present {
            return self.operations.add(Operation::Done(done(dest, DTL_ERROR_RANK_FAILURE, word, 0)));
        }
        if peer.producer.is_none() {
            peer.producer = Some(self.segment.open_ring(rank, dest)?);
        }
        let waits = !peer.starts.is_empty();
        let id = self.operations.add(Operation::Send(Send { dest, word, data, stage: SendStage::Queued }))?;
        if waits || !self.start(dest, id) {
            peer_mut(&mut self.peers, dest)?.starts.push_back(id);
            self.list(dest);
        }
        Ok(id)
    }

    fn send_to_self(&mut self, data: Region, word: u64) -> Result<OpId> {
        let over = done(self.rank, DTL_SUCCESS, word, data.len() as u64);
        if let Some(posted) = self.matcher.take_posted(self.own(), word) {
            self.deliver(posted, self.rank, word, data);
            return self.operations.add(Operation::Done(over));
        }
        let copy = if data.len() <= FRAGMENT { Scratch::copy_of(data) } else { None };
        let (id, arrival) = match copy {
            Some(copy) => (self.operations.add(Operation::Done(over))?, Arrival::Copied(copy)),
            None => {
                let send = Send { dest: self.rank, word, data, stage: SendStage::Queued };
                let id = self.operations.add(Operation::Send(send))?;
                (id, Arrival::Own(id))
            }
        };
        self.matcher.arrive(self.own(), word, arrival);
        Ok(id)
    }

    pub(super) fn irecv(&mut self, into: Region, select: Selector) -> Result<OpId> {
        if select.source != DTL_ANY_SOURCE {
            self.rank_of(select.source)?;
        }
        let id = self.operations.add(Operation::Receive(Receive { into, taken: None }))?;
        while let Some(message) = self.matcher.take_unexpected(&select) {
            let source = usize::try_from(message.source).unwrap_or(0);
            match message.what {
                Arrival::Copied(copy) => self.deliver(id, source, message.word, copy.region()),
                Arrival::Own(send) => self.deliver_own(id, send),
                Arrival::Offered(offer) if self.take(source, offer) => {
                    self.begin(id, source, message.word, offer)
                }
                // Withdrawn by its sender: look on.
                Arrival::Offered(_) => continue,
            }
            return Ok(id);
        }
        match self.gone(select.source) {
            Some(peer) => self.finish_failed(id, peer),
            None => self.matcher.post(select, id),
        }
        Ok(id)
    }

    /// The rank because of which a receive from this source cannot complete.
    fn gone(&self, source: i32) -> Option<usize> {
        if source == DTL_ANY_SOURCE {
            return self.peers.iter().position(|peer| peer.state == State::Dead);
        }
        let rank = usize::try_from(source).ok()?;
        self.peers.get(rank).filter(|peer| peer.state != State::Present).map(|_| rank)
    }

    fn deliver(&mut self, id: OpId, source: usize, word: u64, data: Region) {
        if let Some(&Operation::Receive(Receive { into, .. })) = self.operations.get(id) {
            into.copy_from(data);
            let size = data.len() as u64;
            self.finish(id, done(source, fitting(size, into), word, size));
        }
    }

    fn deliver_own(&mut self, id: OpId, send: OpId) {
        if let Some(&Operation::Send(Send { word, data, .. })) = self.operations.get(send) {
            self.deliver(id, self.rank, word, data);
            self.finish(send, done(self.rank, DTL_SUCCESS, word, data.len() as u64));
        }
    }

    fn take(&self, source: usize, offer: Offer) -> bool {
        let consumer = self.peers.get(source).and_then(|peer| peer.consumer.as_ref());
        consumer.is_some_and(|consumer| consumer.take(offer.claim))
    }

    /// Starts to fetch an offer that was taken.
    fn begin(&mut self, id: OpId, source: usize, word: u64, offer: Offer) {
        let readable = offer.address != 0 && self.peers.get(source).is_some_and(|peer| peer.readable);
        let Some(Operation::Receive(receive)) = self.operations.get_mut(id) else { return };
        let want = usize::try_from(offer.size).unwrap_or(usize::MAX).min(receive.into.len());
        let answer = match want {
            0 => Answer::Finish,
            _ if readable => Answer::None,
            _ => Answer::Clear,
        };
        receive.taken = Some(Taken { source, word, offer, have: 0, want, answer });
        if answer == Answer::None {
            self.copying.push(id);
        } else {
            self.queue_answer(source, id);
        }
    }

    fn queue_answer(&mut self, source: usize, id: OpId) {
        if let Some(peer) = self.peers.get_mut(source) {
            peer.answers.push_back(id);
        }
        self.list(source);
    }

    fn list(&mut self, rank: usize) {
        if let Some(peer) = self.peers.get_mut(rank).filter(|peer| !peer.is_listed) {
            peer.is_listed = true;
            self.outbound.push(rank);
        }
    }

    /// Tries to withdraw an operation.
    pub(super) fn cancel(&mut self, id: OpId) {
        let own = self.own();
        let withdrawn = match self.operations.get(id) {
            Some(Operation::Receive(Receive { taken: None, .. })) => self.matcher.withdraw(&id),
            Some(&Operation::Send(Send { dest, stage: SendStage::Queued, .. })) if dest == self.rank => {
                let is = |what: &Arrival| matches!(what, Arrival::Own(send) if *send == id);
                self.matcher.remove_unexpected(own, is).is_some()
            }
            Some(&Operation::Send(Send { dest, stage, .. })) => {
                self.peers.get_mut(dest).is_some_and(|peer| match stage {
                    SendStage::Queued => {
                        peer.starts.retain(|start| *start != id);
                        true
                    }
                    SendStage::Offered { claim } => peer.producer.as_mut().is_some_and(|p| p.withdraw(claim)),
                    SendStage::Streaming { .. } => false,
                })
            }
            _ => false,
        };
        if withdrawn {
            self.finish(id, done(self.rank, DTL_ERROR_CANCELED, 0, 0));
        }
    }

    // ---- progress ----

    /// Moves everything on that can move.
    pub(super) fn progress(&mut self) {
        self.settle_changes();
        self.find_rings();
        let mut moved = false;
        for index in 0..self.incoming.len() {
            let source = self.incoming.get(index).copied().unwrap_or(self.rank);
            moved |= self.read_ring(source, BUDGET) > 0;
        }
        moved |= self.copy_on();
        moved |= self.write_on();
        self.note_idle(moved);
    }

    /// Looks for senders that have opened their ring to us.
    pub(super) fn find_rings(&mut self) {
        for group in 0..self.peers.len().div_ceil(64) {
            let mut bits = self.segment.ready(self.rank, group);
            while bits != 0 {
                let source = 64 * group + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let Some(peer) = self.peers.get_mut(source) else { continue };
                if peer.consumer.is_none() && peer.state == State::Present {
                    if let Ok(consumer) = self.segment.read_ring(source, self.rank) {
                        peer.consumer = Some(consumer);
                        self.incoming.push(source);
                    }
                }
            }
        }
    }

    /// Reads up to `most` records from a rank; gives how many. What cannot be kept for want of
    /// memory stays in the ring.
    pub(super) fn read_ring(&mut self, source: usize, most: usize) -> usize {
        let mut count = 0;
        while count < most {
            let Some(consumer) = self.peers.get_mut(source).and_then(|peer| peer.consumer.as_mut()) else {
                break;
            };
            match consumer.peek() {
                Ok(Some(record)) => {
                    if !self.accept(source, &record) {
                        break;
                    }
                    if let Some(consumer) = self.peers.get_mut(source).and_then(|peer| peer.consumer.as_mut())
                    {
                        consumer.pop(&record);
                    }
                    count += 1;
                }
                Ok(None) => break,
                Err(()) => {
                    // No record of ours: whoever writes there is not to be trusted any more.
                    self.segment.mark(source, State::Dead);
                    break;
                }
            }
        }
        if let Some(consumer) = self.peers.get_mut(source).and_then(|peer| peer.consumer.as_mut()) {
            consumer.tell();
        }
        count
    }

    fn accept(&mut self, source: usize, record: &Record) -> bool {
        match record.kind {
            Kind::Pad => {}
            Kind::Eager => return self.accept_eager(source, record),
            Kind::Offer => self.accept_offer(source, record),
            Kind::Clear => self.accept_clear(source, record),
            Kind::Data => self.accept_data(source, record),
            Kind::Finish => self.accept_finish(source, record),
        }
        true
    }

    fn accept_eager(&mut self, source: usize, record: &Record) -> bool {
        let from = i32::try_from(source).unwrap_or(i32::MAX);
        if let Some(id) = self.matcher.take_posted(from, record.key) {
            self.deliver(id, source, record.key, record.payload);
            return true;
        }
        let Some(copy) = Scratch::copy_of(record.payload) else { return false };
        self.matcher.arrive(from, record.key, Arrival::Copied(copy));
        true
    }

    fn accept_offer(&mut self, source: usize, record: &Record) {
        let from = i32::try_from(source).unwrap_or(i32::MAX);
        let [size, send, address] = record.words;
        let offer = Offer { size, send, address, claim: record.claim };
        if !self.matcher.is_wanted(from, record.key) {
            self.matcher.arrive(from, record.key, Arrival::Offered(offer));
        } else if self.take(source, offer) {
            if let Some(id) = self.matcher.take_posted(from, record.key) {
                self.begin(id, source, record.key, offer);
            }
        }
    }

    fn accept_clear(&mut self, source: usize, record: &Record) {
        let id = OpId(record.key);
        let Some(Operation::Send(send)) = self.operations.get_mut(id) else { return };
        let SendStage::Offered { claim } = send.stage else { return };
        let [receiver, first, end] = record.words.map(|word| usize::try_from(word).unwrap_or(usize::MAX));
        if send.dest != source || first > end || end > send.data.len() {
            return;
        }
        send.stage = SendStage::Streaming { claim, receiver: receiver as u64, next: first, end };
        if let Some(peer) = self.peers.get_mut(source) {
            peer.streams.push_back(id);
        }
        self.list(source);
    }

    fn accept_data(&mut self, source: usize, record: &Record) {
        let id = OpId(record.key);
        let Some(Operation::Receive(receive)) = self.operations.get_mut(id) else { return };
        let Some(taken) = receive.taken.as_mut().filter(|taken| taken.source == source) else { return };
        receive.into.part(taken.have, taken.want - taken.have).copy_from(record.payload);
        taken.have = taken.want.min(taken.have + record.payload.len());
        if taken.have == taken.want {
            self.finish_receive(id);
        }
    }

    fn accept_finish(&mut self, source: usize, record: &Record) {
        let id = OpId(record.key);
        if let Some(&Operation::Send(Send { dest, stage: SendStage::Offered { claim }, .. })) =
            self.operations.get(id)
        {
            if dest == source {
                self.finish_send(id, claim);
            }
        }
    }

    fn finish_send(&mut self, id: OpId, claim: usize) {
        let Some(&Operation::Send(Send { dest, word, data, .. })) = self.operations.get(id) else { return };
        if let Some(producer) = self.peers.get_mut(dest).and_then(|peer| peer.producer.as_mut()) {
            producer.release(claim);
        }
        self.finish(id, done(self.rank, DTL_SUCCESS, word, data.len() as u64));
    }

    /// Ends a receive that has all its bytes.
    pub(super) fn finish_receive(&mut self, id: OpId) {
        let Some(&Operation::Receive(Receive { into, taken: Some(taken) })) = self.operations.get(id) else {
            return;
        };
        let size = taken.offer.size;
        self.finish(id, done(taken.source, fitting(size, into), taken.word, size));
    }

    // ---- copying from the sender's memory ----

    fn copy_on(&mut self) -> bool {
        let mut moved = false;
        let mut index = 0;
        while let Some(&id) = self.copying.get(index) {
            moved = true;
            if self.copy_step(id) {
                index += 1;
            } else {
                self.copying.swap_remove(index);
            }
        }
        moved
    }

    /// Copies the next piece; false if this receive copies no more.
    fn copy_step(&mut self, id: OpId) -> bool {
        let Some(Operation::Receive(receive)) = self.operations.get_mut(id) else { return false };
        let (into, Some(taken)) = (receive.into, receive.taken.as_mut()) else { return false };
        let Some(peer) = self.peers.get_mut(taken.source) else { return false };
        let piece = into.part(taken.have, COPY_STEP.min(taken.want - taken.have));
        match peer.read(taken.offer.address.wrapping_add(taken.have as u64), piece) {
            // The sender's process has ended; the next round settles that.
            Ok(0) => {
                self.segment.mark(taken.source, State::Dead);
                return true;
            }
            Ok(count) => taken.have += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return true,
            // Not possible after all (or not from that memory): the rest goes through the ring.
            Err(error) => {
                peer.readable &= error.raw_os_error() != Some(libc::EPERM);
                taken.answer = Answer::Clear;
            }
        }
        if taken.have == taken.want {
            taken.answer = Answer::Finish;
        }
        let (source, copies_on) = (taken.source, taken.answer == Answer::None);
        if !copies_on {
            self.queue_answer(source, id);
        }
        copies_on
    }

    // ---- writing what is queued ----

    fn write_on(&mut self) -> bool {
        let mut moved = false;
        let mut index = 0;
        while let Some(&dest) = self.outbound.get(index) {
            moved |= self.write_to(dest);
            match self.peers.get_mut(dest) {
                Some(peer) if peer.has_work() => index += 1,
                Some(peer) => {
                    peer.is_listed = false;
                    self.outbound.swap_remove(index);
                }
                None => index += 1,
            }
        }
        moved
    }

    /// Writes to one rank until nothing is left or its ring is full: answers first (they free
    /// others' buffers), then new messages, then pieces of large ones.
    fn write_to(&mut self, dest: usize) -> bool {
        let mut moved = false;
        while let Some(id) = self.peers.get(dest).and_then(|peer| peer.answers.front().copied()) {
            if !self.answer(dest, id) {
                return moved;
            }
            moved = true;
            self.peers.get_mut(dest).map(|peer| peer.answers.pop_front());
        }
        while let Some(id) = self.peers.get(dest).and_then(|peer| peer.starts.front().copied()) {
            if !self.start(dest, id) {
                break;
            }
            moved = true;
            self.peers.get_mut(dest).map(|peer| peer.starts.pop_front());
        }
        while let Some(id) = self.peers.get_mut(dest).and_then(|peer| peer.streams.pop_front()) {
            let (wrote, is_over) = self.stream(dest, id);
            moved |= wrote;
            let Some(peer) = self.peers.get_mut(dest).filter(|_| !is_over) else { continue };
            if !wrote {
                peer.streams.push_front(id);
                break;
            }
            peer.streams.push_back(id);
        }
        moved
    }

    fn push(&mut self, dest: usize, kind: Kind, claim: usize, key: u64, payload: Payload) -> bool {
        let rank = self.rank;
        let Some(peer) = self.peers.get_mut(dest) else { return false };
        if peer.producer.is_none() {
            // For an answer: the memory is there, the sender of the message has seen to it.
            peer.producer = self.segment.open_ring(rank, dest).ok();
        }
        peer.producer.as_mut().is_some_and(|producer| producer.push(kind, claim, key, payload))
    }

    /// Sends a receive's answer; false if there is no room.
    fn answer(&mut self, dest: usize, id: OpId) -> bool {
        let Some(&Operation::Receive(Receive { taken: Some(taken), .. })) = self.operations.get(id) else {
            return true;
        };
        let (kind, words) = match taken.answer {
            Answer::Clear => (Kind::Clear, [id.0, taken.have as u64, taken.want as u64]),
            Answer::Finish => (Kind::Finish, [0; 3]),
            Answer::None => return true,
        };
        if !self.push(dest, kind, 0, taken.offer.send, Payload::Words(words)) {
            return false;
        }
        if taken.answer == Answer::Finish {
            self.finish_receive(id);
        } else if let Some(Operation::Receive(Receive { taken: Some(taken), .. })) =
            self.operations.get_mut(id)
        {
            taken.answer = Answer::None;
        }
        true
    }

    /// Starts a send; false if there is no room.
    fn start(&mut self, dest: usize, id: OpId) -> bool {
        let Some(&Operation::Send(Send { word, data, .. })) = self.operations.get(id) else { return true };
        if data.len() <= FRAGMENT {
            let started = self.push(dest, Kind::Eager, 0, word, Payload::Bytes(data));
            if started {
                self.finish(id, done(self.rank, DTL_SUCCESS, word, data.len() as u64));
            }
            return started;
        }
        let producer = self.peers.get_mut(dest).and_then(|peer| peer.producer.as_mut());
        let Some(claim) = producer.and_then(|producer| producer.offer()) else { return false };
        let address = if self.lends { data.addr().get() as u64 } else { 0 };
        let started =
            self.push(dest, Kind::Offer, claim, word, Payload::Words([data.len() as u64, id.0, address]));
        if !started {
            if let Some(producer) = self.peers.get_mut(dest).and_then(|peer| peer.producer.as_mut()) {
                producer.release(claim);
            }
        } else if let Some(Operation::Send(send)) = self.operations.get_mut(id) {
            send.stage = SendStage::Offered { claim };
        }
        started
    }

    /// Sends one piece of a large message: whether there was room, whether it was the last.
    fn stream(&mut self, dest: usize, id: OpId) -> (bool, bool) {
        let Some(&Operation::Send(Send { data, stage, .. })) = self.operations.get(id) else {
            return (false, true);
        };
        let SendStage::Streaming { claim, receiver, next, end } = stage else { return (false, true) };
        let piece = data.part(next, FRAGMENT.min(end - next));
        if !self.push(dest, Kind::Data, 0, receiver, Payload::Bytes(piece)) {
            return (false, false);
        }
        let next = next + piece.len();
        if next == end {
            self.finish_send(id, claim);
        } else if let Some(Operation::Send(send)) = self.operations.get_mut(id) {
            send.stage = SendStage::Streaming { claim, receiver, next, end };
        }
        (true, next == end)
    }
}

fn peer_mut(peers: &mut [Peer], rank: usize) -> Result<&mut Peer> {
    match peers.get_mut(rank) {
        Some(peer) => Ok(peer),
        None => fail!(DTL_ERROR_INTERNAL, "no peer {rank}"),
    }
}
