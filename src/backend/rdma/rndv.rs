//! Rendezvous: transfer of the payloads of large messages after both sides have agreed. A unique
//! word identifies each payload.
//!
//! If the memory is registered on both sides, the sender's device writes it and notifies the
//! receiver, or (if so configured) the receiver's device reads it. Every other payload is sent in
//! pieces through slots. A payload in device memory is first copied to the host memory that shadows
//! it, and its pieces are sent from and received into that host memory. An empty payload is sent as
//! a last piece without bytes.

use super::engine::RdmaEngine;
use super::operation::{PayloadPath, PayloadReceive, PayloadSend, RdmaOperation};
use super::protocol::eager_slots::{DATA, EagerKind, Note, NoteKind, RAILS};
use crate::abi::status::*;
use crate::backend::rdma::endpoint::peer::ConnectStage;
use crate::backend::rdma::endpoint::qp_state::OnCompletion;
use crate::backend::rdma::memory::device_mr::registration;
use crate::backend::rdma::memory::reg_cache::Registered;
use crate::backend::rdma::verbs::qp::{Piece, Remote, WorkRequest};
use crate::error::Result;
use crate::runtime::component::{Completion, DataLocation, HostShadow, OpId};
use crate::sys::memory::buf::Region;
use std::sync::Arc;

/// Minimum number of payload bytes per queue pair: smaller parts are not worth a second queue pair.
const STRIPE: usize = 64 << 10;

pub(crate) fn done(rank: usize, word: u32, size: usize) -> Completion {
    Completion {
        source: i32::try_from(rank).unwrap_or(-1),
        status: DTL_SUCCESS,
        match_bits: u64::from(word),
        size: size as u64,
    }
}

/// Removes the entry of `word` from a list; returns its operation, or `None`.
fn take(list: &mut Vec<(u32, OpId)>, word: u32) -> Option<OpId> {
    let at = list.iter().position(|(known, _)| *known == word)?;
    Some(list.swap_remove(at).1)
}

impl RdmaEngine {
    // ---- start of operations ----

    /// Posts the receive of a payload; announces a registered buffer to the sender.
    pub(crate) fn receive_payload(
        &mut self,
        into: Region,
        shadow: Option<&Arc<HostShadow>>,
        source: usize,
        word: u32,
    ) -> Result<OpId> {
        let place = place_of(into, shadow);
        let hold = if self.config.reads { None } else { self.hold_of(into, shadow) };
        let note = hold.as_ref().map(|hold| Note {
            about: NoteKind::Landing,
            word,
            addr: place.addr().get() as u64,
            len: into.len() as u64,
            keys: hold.rkeys(),
        });
        let shadow = shadow.cloned();
        let receive = PayloadReceive {
            source,
            word,
            into,
            place,
            shadow,
            got: 0,
            from: None,
            parts: 0,
            hold,
        };
        let op = self.operations.add(RdmaOperation::Receive(receive))?;
        if let Some(peer) = self.peers.get_mut(source) {
            peer.awaited.push((word, op));
            peer.notes.extend(note);
        }
        if note.is_some() {
            self.list(source);
        }
        Ok(op)
    }

    /// Sends a payload that its receiver has agreed to.
    pub(crate) fn send_payload(
        &mut self,
        data: Region,
        shadow: Option<&Arc<HostShadow>>,
        dest: usize,
        word: u32,
    ) -> Result<OpId> {
        let place = place_of(data, shadow);
        let landing = self.peers.get_mut(dest).and_then(|peer| {
            let at = peer.landings.iter().position(|note| note.word == word)?;
            Some(peer.landings.swap_remove(at))
        });
        let wants = !data.is_empty() && (landing.is_some() || self.config.reads);
        let hold = if wants { self.hold_of(data, shadow) } else { None };
        let (path, note) = match (&hold, landing) {
            (Some(_), Some(landing)) if landing.len == data.len() as u64 => {
                (PayloadPath::Write(landing), None)
            }
            (Some(hold), None) => {
                let (addr, len) = (place.addr().get() as u64, data.len() as u64);
                (
                    PayloadPath::Offered,
                    Some(Note { about: NoteKind::Offer, word, addr, len, keys: hold.rkeys() }),
                )
            }
            _ => (PayloadPath::Pieces, None),
        };
        let shadow = shadow.cloned();
        let send = PayloadSend { dest, word, data, place, shadow, begun: 0, parts: 0, path, hold };
        let op = self.operations.add(RdmaOperation::Send(send))?;
        if let Some(note) = note {
            if let Some(peer) = self.peers.get_mut(dest) {
                peer.notes.push_back(note);
                peer.offered.push((word, op));
            }
            self.list(dest);
        } else {
            self.start_more(op);
        }
        Ok(op)
    }

    /// Returns the registration of the payload's buffer; `None` if it is not registered.
    fn hold_of(
        &mut self,
        host: Region,
        shadow: Option<&Arc<HostShadow>>,
    ) -> Option<Arc<Registered>> {
        match shadow {
            Some(shadow) => registration(shadow),
            None => self.cache.get(host),
        }
    }

    // ---- continuation of operations ----

    /// Continues all operations that were stopped for lack of room.
    pub(crate) fn go_on(&mut self) {
        for op in std::mem::take(&mut self.unfinished) {
            self.start_more(op);
        }
    }

    /// Starts as many parts of an operation as there is room for; the others start later.
    pub(crate) fn start_more(&mut self, op: OpId) {
        let (rank, started) = match self.operations.get(op) {
            Some(RdmaOperation::Send(send)) => match send.path {
                PayloadPath::Pieces => (send.dest, self.start_pieces(op)),
                PayloadPath::Write(landing) => (send.dest, self.start_writes(op, landing)),
                PayloadPath::Offered => return,
            },
            Some(RdmaOperation::Receive(receive)) => match receive.from {
                Some(offer) => (receive.source, self.start_reads(op, offer)),
                None => return,
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

    /// Copies the payload of a send to slots; returns true if all of it has been sent.
    fn start_pieces(&mut self, op: OpId) -> Result<bool> {
        loop {
            let Some(RdmaOperation::Send(send)) = self.operations.get_mut(op) else {
                return Ok(true);
            };
            let Some(peer) = self.peers.get_mut(send.dest) else { return Ok(true) };
            let (mut piece, mut status) = (send.data.part(send.begun, DATA), DTL_SUCCESS);
            match send.shadow.as_ref().map(|shadow| shadow.bytes()) {
                None | Some(DataLocation::Host) => {}
                // No piece has been sent; a last piece without bytes cancels the message.
                Some(DataLocation::Stuck) => (piece, status) = (Region::EMPTY, DTL_ERROR_BACKEND),
                Some(_) => {
                    send.shadow.iter().for_each(|shadow| shadow.want());
                    return Ok(false);
                }
            }
            let is_last = status != DTL_SUCCESS || send.begun + piece.len() == send.data.len();
            let kind = if is_last { EagerKind::LastPiece } else { EagerKind::Piece };
            if !peer.send(send.dest, kind, send.word, &[], piece)? {
                return Ok(false);
            }
            send.begun += piece.len();
            if is_last {
                let over = done(send.dest, send.word, send.data.len());
                self.finish(op, Completion { status, ..over });
                return Ok(true);
            }
        }
    }

    /// Posts writes of the payload to the peer's memory; returns true if all were posted.
    fn start_writes(&mut self, op: OpId, landing: Note) -> Result<bool> {
        let longest = self.longest_of_all();
        let Some(RdmaOperation::Send(send)) = self.operations.get_mut(op) else { return Ok(true) };
        let (Some(peer), Some(hold)) = (self.peers.get_mut(send.dest), &send.hold) else {
            return Ok(true);
        };
        while send.begun < send.data.len() {
            let Some((lane, rail)) = quietest(peer) else { return Ok(true) };
            let len = part_len(send.data.len(), peer.lanes.len(), longest);
            let is_device = send.shadow.is_some();
            let local = Piece {
                region: send.place.part(send.begun, len),
                lkey: hold.lkey(rail),
                is_device,
            };
            let to = remote(&landing, send.begun, rail);
            if !peer.start(
                send.dest,
                lane,
                WorkRequest::WriteNotify(to, send.word),
                local,
                OnCompletion::Part(op),
            )? {
                return Ok(false);
            }
            send.begun += local.region.len();
            send.parts += 1;
        }
        Ok(true)
    }

    /// Posts reads of the payload from the peer's memory; returns true if all were posted.
    fn start_reads(&mut self, op: OpId, offer: Note) -> Result<bool> {
        let longest = self.longest_of_all();
        let Some(RdmaOperation::Receive(receive)) = self.operations.get_mut(op) else {
            return Ok(true);
        };
        let (Some(peer), Some(hold)) = (self.peers.get_mut(receive.source), &receive.hold) else {
            return Ok(true);
        };
        let len = (offer.len as usize).min(receive.into.len());
        while receive.got < len {
            let Some((lane, rail)) = quietest(peer) else { return Ok(true) };
            let part = part_len(len, peer.lanes.len(), longest);
            let local = Piece {
                region: receive.place.part(receive.got, part.min(len - receive.got)),
                lkey: hold.lkey(rail),
                is_device: receive.shadow.is_some(),
            };
            let from = remote(&offer, receive.got, rail);
            if !peer.start(
                receive.source,
                lane,
                WorkRequest::Read(from),
                local,
                OnCompletion::Part(op),
            )? {
                return Ok(false);
            }
            receive.got += local.region.len();
            receive.parts += 1;
        }
        Ok(true)
    }

    /// Completes an operation if the completed parts were all of its parts.
    pub(crate) fn all_parts_over(&mut self, op: OpId) {
        match self.operations.get(op) {
            Some(RdmaOperation::Send(send)) if send.begun == send.data.len() => {
                let over = done(send.dest, send.word, send.data.len());
                self.finish(op, over);
            }
            Some(RdmaOperation::OneSided(one_sided))
                if one_sided.begun == one_sided.local.len() =>
            {
                let over = done(one_sided.target, 0, 0);
                self.finish(op, over);
            }
            Some(RdmaOperation::Receive(receive)) => {
                let (rank, word, got) = (receive.source, receive.word, receive.got);
                if receive
                    .from
                    .is_some_and(|offer| (offer.len as usize).min(receive.into.len()) == got)
                {
                    receive.shadow.iter().for_each(|shadow| shadow.land());
                    self.finish(op, done(rank, word, got));
                    self.send_note(rank, NoteKind::Fetched, word);
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

    /// Counts `len` bytes that the sender's device wrote; the last byte completes the receive.
    pub(crate) fn landed(&mut self, rank: usize, word: u32, len: usize) {
        let Some(peer) = self.peers.get_mut(rank) else { return };
        let Some(&(_, op)) = peer.awaited.iter().find(|(known, _)| *known == word) else { return };
        let Some(RdmaOperation::Receive(receive)) = self.operations.get_mut(op) else { return };
        receive.got += len;
        if receive.got >= receive.into.len() {
            receive.shadow.iter().for_each(|shadow| shadow.land());
            let over = done(rank, word, receive.got);
            take(&mut peer.awaited, word);
            self.finish(op, over);
        }
    }

    pub(crate) fn piece(&mut self, rank: usize, word: u32, bytes: Region, kind: EagerKind) {
        let Some(peer) = self.peers.get_mut(rank) else { return };
        let Some(&(_, op)) = peer.awaited.iter().find(|(known, _)| *known == word) else { return };
        let Some(RdmaOperation::Receive(receive)) = self.operations.get_mut(op) else { return };
        receive.into.part(receive.got, bytes.len()).copy_from(bytes);
        receive.got += bytes.len();
        if kind == EagerKind::LastPiece {
            let over = done(rank, word, receive.got);
            take(&mut peer.awaited, word);
            self.finish(op, over);
        }
    }

    /// Handles the announcement (RTS) of a payload that can be read: starts the read, or requests
    /// pieces if the buffer is not registered.
    pub(crate) fn offered(&mut self, rank: usize, offer: Note) -> Result<()> {
        let awaited = self.peers.get(rank).map_or(&[][..], |peer| &peer.awaited);
        let Some(&(_, op)) = awaited.iter().find(|(known, _)| *known == offer.word) else {
            return Ok(());
        };
        let Some(RdmaOperation::Receive(receive)) = self.operations.get_mut(op) else {
            return Ok(());
        };
        let hold = match &receive.shadow {
            Some(shadow) => registration(shadow),
            None => self.cache.get(receive.into),
        };
        match hold {
            None => self.send_note(rank, NoteKind::InPieces, offer.word),
            hold => {
                (receive.hold, receive.from) = (hold, Some(offer));
                if let Some(peer) = self.peers.get_mut(rank) {
                    take(&mut peer.awaited, offer.word);
                }
                self.start_more(op);
            }
        }
        Ok(())
    }

    /// Completes the send of a payload that the receiver has read.
    pub(crate) fn fetched(&mut self, rank: usize, word: u32) -> Result<()> {
        let op = self.peers.get_mut(rank).and_then(|peer| take(&mut peer.offered, word));
        if let Some((op, RdmaOperation::Send(send))) =
            op.and_then(|op| Some((op, self.operations.get(op)?)))
        {
            let over = done(rank, word, send.data.len());
            self.finish(op, over);
        }
        Ok(())
    }

    /// Sends a payload in pieces because the receiver cannot read it.
    pub(crate) fn in_pieces(&mut self, rank: usize, word: u32) -> Result<()> {
        let op = self.peers.get_mut(rank).and_then(|peer| take(&mut peer.offered, word));
        if let Some((op, RdmaOperation::Send(send))) =
            op.and_then(|op| Some((op, self.operations.get_mut(op)?)))
        {
            send.path = PayloadPath::Pieces;
            self.start_more(op);
        }
        Ok(())
    }
}

/// Returns the buffer that devices access: the device memory that `host` shadows, else `host`.
fn place_of(host: Region, shadow: Option<&Arc<HostShadow>>) -> Region {
    shadow.map_or(host, |shadow| shadow.device.part(0, host.len()))
}

/// Returns the lane with the fewest work requests in flight, and its rail.
fn quietest(peer: &crate::backend::rdma::endpoint::peer::Peer) -> Option<(usize, usize)> {
    let lanes = peer.lanes.iter().enumerate();
    lanes.min_by_key(|(_, lane)| lane.in_flight.len()).map(|(index, lane)| (index, lane.rail))
}

/// Returns the number of payload bytes per work request.
fn part_len(all: usize, lanes: usize, longest: usize) -> usize {
    let share = all.div_ceil(lanes.max(1)).next_multiple_of(4096).max(STRIPE);
    share.min(longest)
}

fn remote(note: &Note, offset: usize, rail: usize) -> Remote {
    Remote { addr: note.addr + offset as u64, rkey: note.keys.get(rail).copied().unwrap_or(0) }
}
