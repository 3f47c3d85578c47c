//! Sending side of the protocol: writes queued records to the ring of each rank as space permits.
//! The fragments of large messages are in `pipeline`.

use super::copy_method::{CopyMethod, LONG};
use super::engine::{ControlRecord, Engine, Receive, Send, SendStage, ShmOperation, done};
use super::rx::explain_copies;
use crate::abi::status::DTL_SUCCESS;
use crate::backend::p2p::P2pEngine;
use crate::backend::shm::memory::ring::{MAX_DATA, Payload, RecordKind};
use crate::runtime::component::{OpId, SendMode};
use crate::sys::{memory::buf::Region, sync::wait::now_ns};

impl Engine {
    /// Writes queued records to the ring of each rank until that ring is full: control records
    /// first (they free buffers of other ranks), then new messages, then fragments. Returns true if
    /// a record was written.
    pub(crate) fn write_on(&mut self) -> bool {
        let mut moved = false;
        let mut index = 0;
        while let Some(&dest) = self.outbound.get(index) {
            moved |= self.write_to(dest) | self.stream_to(dest);
            match self.peers.link_mut(dest) {
                Some(link) if link.has_work() => index += 1,
                Some(link) => {
                    link.queue.is_listed = false;
                    self.outbound.swap_remove(index);
                }
                None => index += 1,
            }
        }
        moved
    }

    pub(crate) fn push(&mut self, dest: usize, kind: RecordKind, key: u64, what: Payload) -> bool {
        let rank = self.rank;
        let Some(link) = self.peers.link_mut(dest) else { return false };
        if link.producer.is_none() {
            // For an answer: the ring has memory, because the sender of the message has committed
            // it.
            link.producer = self.segment.open_ring(rank, dest).ok();
        }
        link.producer.as_mut().is_some_and(|producer| producer.push(kind, key, what))
    }

    /// Sends the pending control record of receive `id`, if any; returns false if the ring has no
    /// space for it.
    pub(super) fn answer(&mut self, dest: usize, id: OpId) -> bool {
        let Some(&ShmOperation::Receive(Receive { taken: Some(taken), into, .. })) =
            self.operations.get(id)
        else {
            return true;
        };
        let (kind, words) = match taken.answer {
            ControlRecord::Clear => {
                let (into, method) = (into.addr().get() as u64, taken.help.method as u64);
                (RecordKind::Clear, [id.0, taken.want as u64, into, method])
            }
            ControlRecord::Finish => (RecordKind::Finish, [0; 4]),
            ControlRecord::None => return true,
        };
        if !self.push(dest, kind, taken.offer.send, Payload::Words(words)) {
            return false;
        }
        if taken.answer == ControlRecord::Finish {
            self.finish_receive(id);
        } else if let Some(ShmOperation::Receive(Receive { taken: Some(taken), .. })) =
            self.operations.get_mut(id)
        {
            taken.answer = ControlRecord::None;
        }
        true
    }

    /// Starts send `id`; returns false if the ring has no space, or if too many rendezvous requests
    /// are open.
    pub(crate) fn start(&mut self, dest: usize, id: OpId) -> bool {
        let Some(&ShmOperation::Send(Send { word, data, mode, ref filling, .. })) =
            self.operations.get(id)
        else {
            return true;
        };
        let is_there = filling.is_none();
        if is_there && data.len() <= MAX_DATA && mode != SendMode::Synchronous {
            let link = self.peers.link_mut(dest);
            let started = link.is_some_and(|link| link.push_eager(word, data, self.forced));
            if started {
                self.operations.finish(id, done(self.rank, DTL_SUCCESS, word, data.len() as u64));
            }
            return started;
        }
        let is_long = is_there && data.len() <= LONG && mode != SendMode::Synchronous;
        let cells = (CopyMethod::Cells, false);
        let (method, is_timed) = if is_there { self.method_to(dest, data.len()) } else { cells };
        let begun_ns = if is_timed { now_ns() } else { 0 };
        if is_long && method.uses_cells() && self.send_long(dest, word, data, (method, begun_ns)) {
            self.count_send(dest, data.len(), begun_ns);
            self.peers.link_mut(dest).into_iter().for_each(|link| link.transfers.count_sent());
            self.operations.finish(id, done(self.rank, DTL_SUCCESS, word, data.len() as u64));
            return true;
        }
        let started = self.offer(dest, id, word, (data, method), is_there);
        if started {
            self.count_send(dest, data.len(), begun_ns);
        }
        started
    }

    /// Sends a rendezvous request; returns false if too many requests are open or the ring has no
    /// space. `is_there` is true if all bytes are available: then the first fragments are sent
    /// immediately, and the receiver may read the sender's memory.
    fn offer(
        &mut self,
        dest: usize,
        id: OpId,
        word: u64,
        (data, method): (Region, CopyMethod),
        is_there: bool,
    ) -> bool {
        let is_early = is_there && method.uses_cells();
        let claim = self.peers.producer(dest).and_then(|producer| producer.offers.open());
        let Some(claim) = claim.or_else(|| self.more_claims(dest)) else { return false };
        let address = if self.lends && is_there { data.addr().get() as u64 } else { 0 };
        let (cells, count) = self.cells_for_first(dest, if is_early { data.len() } else { 0 });
        let early = self.announce(dest, count as u32, method);
        let words = [data.len() as u64, id.0, address, early];
        let started = self.push(dest, RecordKind::Offer, word, Payload::Offer(words, claim));
        if !started {
            // The ring had no room for one record, so no cells were allocated.
            if let Some(producer) = self.peers.producer(dest) {
                producer.offers.close(claim);
            }
            return false;
        }
        if let Some(ShmOperation::Send(send)) = self.operations.get_mut(id) {
            send.stage = SendStage::Offered { claim };
        }
        self.send_first(
            dest,
            (RecordKind::More, 0),
            word,
            (data, method),
            cells.into_iter().take(count),
        );
        true
    }

    /// Returns the current copy method for messages of `len` bytes to `dest`, and true if the start
    /// of the next one is to be timed.
    fn method_to(&mut self, dest: usize, len: usize) -> (CopyMethod, bool) {
        let is_lower = self.rank < dest;
        let can_read = self.peers.get(dest).is_some_and(|peer| peer.readable);
        let link = self.peers.link_mut(dest);
        let chosen = link.map(|link| link.chosen_for_send(len, is_lower, can_read));
        let forced = self.forced.map(|method| (method, false));
        let method = forced.or(chosen).filter(|(how, _)| self.lends || how.uses_cells());
        method.unwrap_or((CopyMethod::Cells, false))
    }

    /// Records that a large message of `len` bytes to `dest` has been started; `begun_ns` is the
    /// time when that began, or 0.
    fn count_send(&mut self, dest: usize, len: usize, begun_ns: u64) {
        let ns = if begun_ns > 0 { now_ns().saturating_sub(begun_ns) } else { 0 };
        let start = (begun_ns, ns);
        self.peers.link_mut(dest).into_iter().for_each(|link| link.exchange.send(len, start));
        self.pool.iter_mut().flatten().for_each(|pool| pool.count(len));
    }

    /// Allocates state words for a rendezvous request after all committed state words were found in
    /// use. Returns their index, or `None` if none can be freed or added now. Requests that the
    /// receiver release the state words of canceled requests or, if no request is canceled, commits
    /// memory for more state words.
    #[cold]
    fn more_claims(&mut self, dest: usize) -> Option<u16> {
        let (own, now) = (self.rank, now_ns());
        let offers = &self.peers.producer(dest)?.offers;
        let (should_request_sweep, can_grow) =
            (offers.should_request_sweep(), offers.can_grow(now));
        if should_request_sweep && !self.push(dest, RecordKind::Sweep, 0, Payload::Words([0; 4])) {
            return None;
        }
        let is_grown = can_grow && self.segment.commit_claims(own, dest).is_ok();
        let offers = &mut self.peers.producer(dest)?.offers;
        if should_request_sweep {
            offers.sweep_requested();
        }
        if is_grown {
            offers.grow();
        } else if can_grow {
            offers.refused(now);
        }
        offers.open()
    }

    pub(crate) fn finish_send(&mut self, id: OpId, claim: u16) {
        let Some(&ShmOperation::Send(Send { dest, word, data, .. })) = self.operations.get(id)
        else {
            return;
        };
        if let Some(link) = self.peers.link_mut(dest) {
            link.producer.iter_mut().for_each(|producer| producer.offers.close(claim));
            link.end_send().into_iter().for_each(|choice| explain_copies(dest, choice));
        }
        self.operations.finish(id, done(self.rank, DTL_SUCCESS, word, data.len() as u64));
    }
}
