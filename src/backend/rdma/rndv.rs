//! Rendezvous: transfer of the payloads of large messages after both sides have agreed. The tag
//! that `p2p_protocol` assigns to a payload (`word`) identifies it.
//!
//! If the memory is registered on both sides, the sender's network card writes the payload and
//! notifies the receiver, or (if so configured) the receiver's network card reads the payload.
//! Every other payload is copied to send slots (registered buffers) and sent in fragments. If such
//! a payload is in device memory, it is staged through host memory of the same size. An empty
//! payload is sent as a last fragment without bytes.

use super::engine::RdmaEngine;
use super::operation::{Payload, PayloadPath, RdmaOperation};
use super::protocol::eager_slots::{DATA, EagerKind, Note, NoteKind, RAILS};
use crate::abi::status::*;
use crate::backend::op_table::done;
use crate::backend::rdma::endpoint::peer::ConnectStage;
use crate::backend::rdma::endpoint::qp_state::OnCompletion;
use crate::backend::rdma::memory::device_mr::PayloadBuffer;
use crate::backend::rdma::memory::reg_cache::Registered;
use crate::backend::rdma::verbs::qp::{MrRange, Remote, WorkRequest};
use crate::error::Result;
use crate::runtime::component::{Completion, DataLocation, OpId};
use crate::sys::memory::buf::Region;

/// Minimum number of payload bytes per queue pair. A payload is not split into smaller parts,
/// because the overhead of a further queue pair would exceed the gain.
const STRIPE: usize = 64 << 10;

/// Returns the completion of the transfer of `size` bytes of payload `word`.
fn transferred(rank: usize, word: u32, size: usize) -> Completion {
    done(rank, DTL_SUCCESS, u64::from(word), size as u64)
}

/// Removes the entry with payload tag `word` from a list; returns the operation in the entry, or
/// `None` if there is no such entry.
fn take(list: &mut Vec<(u32, OpId)>, word: u32) -> Option<OpId> {
    let at = list.iter().position(|(known, _)| *known == word)?;
    Some(list.swap_remove(at).1)
}

impl RdmaEngine {
    // ---- start of operations ----

    /// Posts the receive of a payload; announces the receive buffer to the sender if the buffer is
    /// registered. Returns BUSY while the connection is being established.
    pub(crate) fn receive_payload(
        &mut self,
        buffer: PayloadBuffer<'_>,
        rank: usize,
        word: u32,
    ) -> Result<OpId> {
        self.reach(rank)?;
        let place = place_of(buffer);
        let hold = if self.config.reads { None } else { self.cache.hold_of(buffer) };
        let note = hold.as_ref().map(|hold| note_of(NoteKind::Landing, word, place, hold));
        let (host, shadow, path) = (buffer.0, buffer.1.cloned(), PayloadPath::Awaited);
        let payload = Payload { rank, word, host, place, shadow, moved: 0, parts: 0, path, hold };
        let op = self.operations.add(RdmaOperation::Payload(payload))?;
        if let Some(peer) = self.peers.get_mut(rank) {
            peer.awaited.push((word, op));
            peer.notes.extend(note);
        }
        if note.is_some() {
            self.list(rank);
        }
        Ok(op)
    }

    /// Sends a payload that the peer has agreed to receive. Returns BUSY while the connection is
    /// being established.
    pub(crate) fn send_payload(
        &mut self,
        (host, shadow): PayloadBuffer<'_>,
        rank: usize,
        word: u32,
    ) -> Result<OpId> {
        self.reach(rank)?;
        let place = place_of((host, shadow));
        let landing = self.peers.get_mut(rank).and_then(|peer| {
            let at = peer.landings.iter().position(|note| note.word == word)?;
            Some(peer.landings.swap_remove(at))
        });
        let wants = !host.is_empty() && (landing.is_some() || self.config.reads);
        let hold = if wants { self.cache.hold_of((host, shadow)) } else { None };
        let (path, note) = match (&hold, landing) {
            (Some(_), Some(landing)) if landing.len == host.len() as u64 => {
                (PayloadPath::Write(landing), None)
            }
            (Some(hold), None) => {
                (PayloadPath::Offered, Some(note_of(NoteKind::Offer, word, place, hold)))
            }
            _ => (PayloadPath::Fragments, None),
        };
        let shadow = shadow.cloned();
        let payload = Payload { rank, word, host, place, shadow, moved: 0, parts: 0, path, hold };
        let op = self.operations.add(RdmaOperation::Payload(payload))?;
        if let Some(note) = note {
            if let Some(peer) = self.peers.get_mut(rank) {
                peer.notes.push_back(note);
                peer.offered.push((word, op));
            }
            self.list(rank);
        } else {
            self.start_more(op);
        }
        Ok(op)
    }

    // ---- continuation of operations ----

    /// Continues all operations that have parts (work requests) which could not be posted earlier.
    pub(crate) fn go_on(&mut self) {
        for op in std::mem::take(&mut self.unfinished) {
            self.start_more(op);
        }
    }

    /// Posts as many parts (work requests) of an operation as possible now; `go_on` posts the
    /// remaining parts later.
    pub(crate) fn start_more(&mut self, op: OpId) {
        let (rank, started) = match self.operations.get(op) {
            Some(RdmaOperation::Payload(payload)) => match payload.path {
                PayloadPath::Fragments => (payload.rank, self.start_fragments(op)),
                PayloadPath::Write(there) | PayloadPath::Read(there) => {
                    (payload.rank, self.start_parts(op, there))
                }
                PayloadPath::Offered | PayloadPath::Awaited => return,
            },
            Some(RdmaOperation::OneSided(one_sided)) => (one_sided.target, self.start_copies(op)),
            Some(RdmaOperation::Atomic(atomic)) => (atomic.target, self.start_atomics(op)),
            _ => return,
        };
        match started {
            Ok(true) => {}
            Ok(false) => self.unfinished.push(op),
            Err(error) => self.fail_here(rank, error),
        }
    }

    /// Copies the payload of a send to send slots (registered buffers) and posts them; returns true
    /// if the whole payload has been posted.
    fn start_fragments(&mut self, op: OpId) -> Result<bool> {
        loop {
            let Some(RdmaOperation::Payload(send)) = self.operations.get_mut(op) else {
                return Ok(true);
            };
            let Some(peer) = self.peers.get_mut(send.rank) else { return Ok(true) };
            let (mut bytes, mut status) = (send.host.part(send.moved, DATA), DTL_SUCCESS);
            match send.shadow.as_ref().map(|shadow| shadow.bytes()) {
                None | Some(DataLocation::Host) => {}
                // No fragment has been sent; a last fragment without bytes cancels the message.
                Some(DataLocation::Stuck) => (bytes, status) = (Region::EMPTY, DTL_ERROR_BACKEND),
                Some(_) => {
                    send.shadow.iter().for_each(|shadow| shadow.want());
                    return Ok(false);
                }
            }
            let is_last = status != DTL_SUCCESS || send.moved + bytes.len() == send.host.len();
            let kind = if is_last { EagerKind::LastFragment } else { EagerKind::Fragment };
            if !peer.send(kind, send.word, &[], bytes)? {
                return Ok(false);
            }
            send.moved += bytes.len();
            if is_last {
                let over = transferred(send.rank, send.word, send.host.len());
                self.finish(op, Completion { status, ..over });
                return Ok(true);
            }
        }
    }

    /// Posts writes of the payload to the peer's memory `there`, or reads from it; returns true if
    /// all were posted.
    fn start_parts(&mut self, op: OpId, there: Note) -> Result<bool> {
        let longest = self.longest_of_all();
        let Some(RdmaOperation::Payload(payload)) = self.operations.get_mut(op) else {
            return Ok(true);
        };
        let (Some(peer), Some(hold)) = (self.peers.get_mut(payload.rank), &payload.hold) else {
            return Ok(true);
        };
        let len = payload.direct_len(&there);
        while payload.moved < len {
            let Some((lane, rail)) = quietest(peer) else { return Ok(true) };
            let part = part_len(len, peer.lanes.len(), longest);
            let local = MrRange {
                region: payload.place.part(payload.moved, part.min(len - payload.moved)),
                lkey: hold.lkey(rail),
                is_device: payload.shadow.is_some(),
            };
            let remote = remote(&there, payload.moved, rail);
            let work = match payload.path {
                PayloadPath::Write(_) => WorkRequest::WriteNotify(remote, payload.word),
                _ => WorkRequest::Read(remote),
            };
            if !peer.start(lane, (work, local), OnCompletion::Part(op))? {
                return Ok(false);
            }
            payload.moved += local.region.len();
            payload.parts += 1;
        }
        Ok(true)
    }

    /// Completes an operation if all of its parts (work requests) have been posted. No part may be
    /// in flight.
    pub(crate) fn all_parts_over(&mut self, op: OpId) {
        match self.operations.get(op) {
            Some(RdmaOperation::OneSided(one_sided))
                if one_sided.begun == one_sided.local.len() =>
            {
                let over = done(one_sided.target, DTL_SUCCESS, 0, 0);
                self.finish(op, over);
            }
            Some(RdmaOperation::Payload(payload)) => {
                let &Payload { rank, word, moved, .. } = payload;
                match payload.path {
                    PayloadPath::Write(there) if payload.direct_len(&there) == moved => {
                        self.finish(op, transferred(rank, word, moved));
                    }
                    PayloadPath::Read(there) if payload.direct_len(&there) == moved => {
                        payload.shadow.iter().for_each(|shadow| shadow.land());
                        self.finish(op, transferred(rank, word, moved));
                        self.send_note(rank, NoteKind::Fetched, word);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    // ---- notes from and to the peer ----

    fn send_note(&mut self, rank: usize, about: NoteKind, word: u32) {
        if let Some(peer) = self.peers.get_mut(rank).filter(|peer| peer.stage != ConnectStage::Gone)
        {
            peer.notes.push_back(Note { about, word, addr: 0, len: 0, keys: [0; RAILS] });
            self.list(rank);
        }
    }

    /// Counts `len` bytes that the sender's network card has written; completes the receive when
    /// all bytes have arrived.
    pub(crate) fn landed(&mut self, rank: usize, word: u32, len: usize) {
        let Some(peer) = self.peers.get_mut(rank) else { return };
        let Some(&(_, op)) = peer.awaited.iter().find(|(known, _)| *known == word) else { return };
        let Some(RdmaOperation::Payload(receive)) = self.operations.get_mut(op) else { return };
        receive.moved += len;
        if receive.moved >= receive.host.len() {
            receive.shadow.iter().for_each(|shadow| shadow.land());
            let over = transferred(rank, word, receive.moved);
            take(&mut peer.awaited, word);
            self.finish(op, over);
        }
    }

    pub(crate) fn fragment(&mut self, rank: usize, word: u32, bytes: Region, kind: EagerKind) {
        let Some(peer) = self.peers.get_mut(rank) else { return };
        let Some(&(_, op)) = peer.awaited.iter().find(|(known, _)| *known == word) else { return };
        let Some(RdmaOperation::Payload(receive)) = self.operations.get_mut(op) else { return };
        receive.host.part(receive.moved, bytes.len()).copy_from(bytes);
        receive.moved += bytes.len();
        if kind == EagerKind::LastFragment {
            let over = transferred(rank, word, receive.moved);
            take(&mut peer.awaited, word);
            self.finish(op, over);
        }
    }

    /// Handles the announcement (RTS) of a payload that this rank can read by RDMA: starts the
    /// read, or requests the payload in fragments if the receive buffer is not registered.
    pub(crate) fn offered(&mut self, rank: usize, offer: Note) {
        let Some(peer) = self.peers.get_mut(rank) else { return };
        let known = peer.awaited.iter().find(|(known, _)| *known == offer.word);
        let Some(&(_, op)) = known else { return };
        let Some(RdmaOperation::Payload(receive)) = self.operations.get_mut(op) else { return };
        match self.cache.hold_of((receive.host, receive.shadow.as_ref())) {
            None => self.send_note(rank, NoteKind::Fragmented, offer.word),
            hold => {
                (receive.hold, receive.path) = (hold, PayloadPath::Read(offer));
                take(&mut peer.awaited, offer.word);
                self.start_more(op);
            }
        }
    }

    /// Handles the answer to an announced payload: completes the send of a payload that the
    /// receiver has read, or sends the payload in fragments because the receiver cannot read it.
    pub(crate) fn answered(&mut self, rank: usize, Note { about, word, .. }: Note) {
        let op = self.peers.get_mut(rank).and_then(|peer| take(&mut peer.offered, word));
        let Some(op) = op else { return };
        let Some(RdmaOperation::Payload(send)) = self.operations.get_mut(op) else { return };
        if about == NoteKind::Fetched {
            let over = transferred(rank, word, send.host.len());
            self.finish(op, over);
        } else {
            send.path = PayloadPath::Fragments;
            self.start_more(op);
        }
    }
}

/// Returns the buffer that the network card accesses: the device memory of `shadow` if there is
/// one, otherwise `host`.
fn place_of((host, shadow): PayloadBuffer<'_>) -> Region {
    shadow.map_or(host, |shadow| shadow.device.part(0, host.len()))
}

/// Returns the rendezvous control record (note) of kind `about` for payload `word`, whose buffer is
/// `place`.
fn note_of(about: NoteKind, word: u32, place: Region, hold: &Registered) -> Note {
    let (addr, len) = (place.addr().get() as u64, place.len() as u64);
    Note { about, word, addr, len, keys: hold.rkeys() }
}

/// Returns the index of the queue pair (lane) with the fewest work requests in flight, and the
/// index of its rail.
fn quietest(peer: &crate::backend::rdma::endpoint::peer::Peer) -> Option<(usize, usize)> {
    let lanes = peer.lanes.iter().enumerate();
    lanes.min_by_key(|(_, lane)| lane.in_flight.len()).map(|(index, lane)| (index, lane.rail))
}

/// Returns the number of bytes per work request for a payload of `all` bytes over `lanes` queue
/// pairs; at most `longest`.
fn part_len(all: usize, lanes: usize, longest: usize) -> usize {
    let share = all.div_ceil(lanes.max(1)).next_multiple_of(4096).max(STRIPE);
    share.min(longest)
}

fn remote(note: &Note, offset: usize, rail: usize) -> Remote {
    Remote { addr: note.addr + offset as u64, rkey: note.keys.get(rail).copied().unwrap_or(0) }
}
