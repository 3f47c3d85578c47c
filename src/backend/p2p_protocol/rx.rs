//! Receiving side of the protocol: reads frames, in the posting order of their receives, and
//! completes payload transfers.

use super::engine::{
    Arrival, Control, Engine, MessageBytes, Operation, Payload, Receive, RndvOffer, Send,
    SendStage, TakenOffer, done, fitting, index_of, rank_of,
};
use super::frame::{FRAME, Frame, FrameKind, HEADER, Header};
use super::{FRAME_WORD, RxFrame, SleepMode, tx};
use crate::abi::comm::communicator::DTL_ANY_SOURCE;
use crate::abi::status::*;
use crate::backend::p2p::{P2pEngine, P2pLink};
use crate::error::Result;
use crate::runtime::component::{Completion, OpId};
use crate::sys::memory::buf::Region;

/// Maximum number of frames read per call to `progress`.
const FRAMES: usize = 64;
/// Maximum number of payload sends and receives that one call to `progress` tests for completion.
const PAYLOADS: usize = 64;

impl Engine {
    /// Advances all operations that can advance. Returns an error if a call to the `Wire` itself
    /// failed.
    pub(super) fn progress(&mut self) -> Result<()> {
        if !self.windows.is_empty() {
            self.move_windows()?;
        }
        if self.broken.is_some() {
            return Ok(());
        }
        if !self.collectives.is_empty() {
            self.move_collectives()?;
        }
        let all_read = if self.rounds > 0 { self.read_lent()? } else { self.read_frames()? };
        if self.incoming.len() < self.receives {
            if let Err(error) = self.post_receives() {
                self.break_down(error.status(), Some(error.text().to_owned()));
            }
        }
        if !self.payloads.is_empty() {
            self.ask_payloads()?;
        }
        self.write_on()?;
        if all_read && !self.dying.is_empty() {
            std::mem::take(&mut self.dying).into_iter().for_each(|rank| self.settle(rank));
        }
        Ok(())
    }

    /// Returns whether a waiting thread may sleep. It must not sleep while frames or payloads are
    /// queued in the engine, because only polling retries queued work.
    pub(super) fn doze(&mut self, seen: &mut u64) -> SleepMode {
        if self.matcher.waits_for_any() {
            self.wire.awaits(DTL_ANY_SOURCE);
        }
        if self.broken.is_some() || !self.listed.is_empty() || !self.dying.is_empty() {
            return SleepMode::No;
        }
        self.wire.doze(seen)
    }

    /// Posts frame receives until `self.receives` are posted or resources are exhausted.
    pub(super) fn post_receives(&mut self) -> Result<()> {
        while self.incoming.len() + self.unposted.len() < self.receives {
            let Some(frame) = self.pool.pop().or_else(Frame::new) else { break };
            self.unposted.push(frame);
        }
        while let Some(mut frame) = self.unposted.pop() {
            match self.wire.irecv(frame.region(FRAME), DTL_ANY_SOURCE, FRAME_WORD) {
                Ok(op) => self.incoming.push_back((op, frame)),
                Err(error) => {
                    self.unposted.push(frame);
                    if error.status() != DTL_ERROR_BUSY {
                        return Err(error);
                    }
                    break;
                }
            }
        }
        Ok(())
    }

    /// Reads frames that have arrived; returns true if none is left.
    fn read_frames(&mut self) -> Result<bool> {
        for _ in 0..FRAMES {
            let Some(&(op, _)) = self.incoming.front() else { return Ok(true) };
            let Some(done) = self.wire.test(op)? else { return Ok(true) };
            let Some((_, mut frame)) = self.incoming.pop_front() else { return Ok(true) };
            let kept = if done.status != DTL_SUCCESS {
                self.receive_failed(done.source, done.status);
                None
            } else if done.match_bits != FRAME_WORD {
                self.wrong_word(FRAME_WORD, done.match_bits);
                None
            } else {
                let header = frame.read(done.size);
                let payload = frame.payload(header.map_or(0, |header| header.size as usize));
                let word = self.accept(done.source, header, done.size, payload);
                word.map(|word| (word, payload.len()))
            };
            match kept {
                Some((word, len)) => {
                    let held = Arrival::Held(MessageBytes::Framed(frame), len);
                    self.matcher.arrive(done.source, word, held);
                }
                None => self.unposted.push(frame),
            }
            if self.broken.is_some() {
                return Ok(true);
            }
            if let Err(error) = self.post_receives() {
                self.break_down(error.status(), Some(error.text().to_owned()));
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads the frames that are in buffers of the `Wire`; returns true if no frame is left.
    fn read_lent(&mut self) -> Result<bool> {
        for round in 0..FRAMES {
            let Some(frames) = self.wire.frames() else { return Ok(true) };
            // Only the first call polls the wire: a caller that waits for the first frame is not
            // delayed by a poll for the next.
            let Some(lent) = frames.next(round == 0)? else { return Ok(true) };
            self.take_in(lent);
            if self.broken.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Handles a frame in a buffer of the `Wire`, or the notification that a rank failed or closed
    /// its `Wire`.
    pub(super) fn take_in(&mut self, lent: RxFrame) {
        let (source, len) = (lent.source, (HEADER + lent.bytes.len()) as u64);
        if lent.status != DTL_SUCCESS {
            self.receive_failed(source, lent.status);
        } else {
            let header = Header::of(lent.head, len);
            match self.accept(source, header, len, lent.bytes) {
                None => self.give_back(&lent),
                Some(word) => {
                    let size = lent.bytes.len();
                    let held = Arrival::Held(MessageBytes::Lent(lent), size);
                    self.matcher.arrive(source, word, held)
                }
            }
        }
    }

    /// Releases the buffer of a frame that has been read.
    pub(super) fn give_back(&mut self, lent: &RxFrame) {
        if let Some(frames) = self.wire.frames() {
            frames.give_back(lent);
        }
    }

    /// Handles a frame of `len` bytes. Returns the match bits if the caller must keep the frame,
    /// because it is an unexpected message and memory for a copy is exhausted. Otherwise returns
    /// `None`.
    fn accept(
        &mut self,
        source: i32,
        header: Option<Header>,
        len: u64,
        payload: Region,
    ) -> Option<u64> {
        let from = index_of(source);
        let Some(header) = header.filter(|_| self.is_other(from)) else {
            self.no_frame(source, len);
            return None;
        };
        match header.kind {
            FrameKind::Eager => {
                let is_kept = self.accept_message(from, header.word, payload);
                return (!is_kept).then_some(header.word);
            }
            FrameKind::Offer => self.accept_offer(from, &header),
            FrameKind::Clear => self.accept_clear(from, &header),
            FrameKind::Ack => self.accept_ack(from, OpId(header.id)),
            FrameKind::Withdraw => self.accept_withdraw(from, header.id),
            FrameKind::Forgotten => self.forgotten(from),
            FrameKind::Leave => self.has_left(from),
        }
        None
    }

    fn accept_offer(&mut self, source: usize, header: &Header) {
        if self.gone(rank_of(source)).is_some() {
            return; // the request cannot be fetched any more
        }
        let offer = RndvOffer { size: header.size, send: header.id };
        match self.matcher.take_placed(rank_of(source), header.word) {
            Some(place) => {
                self.transfer(place.what, source, header.word, offer, Some(place));
            }
            None => self.matcher.arrive(rank_of(source), header.word, Arrival::Offered(offer)),
        }
    }

    fn accept_clear(&mut self, source: usize, header: &Header) {
        let id = OpId(header.id);
        let mut answer = Control::Payload { send: None, word: header.payload, want: 0 };
        if let Some(Operation::Send(send)) = self.operations.get_mut(id) {
            if send.dest == source && send.stage == SendStage::Offered {
                send.stage = SendStage::Cleared;
                let want = usize::try_from(header.size).unwrap_or(0).min(send.data.len());
                answer = Control::Payload { send: Some(id), word: header.payload, want };
            }
        }
        if let Control::Payload { send: None, .. } = answer {
            self.forgotten(source);
        }
        self.queue_answer(source, answer);
    }

    fn accept_withdraw(&mut self, source: usize, id: u64) {
        let is = |what: &Arrival| matches!(what, Arrival::Offered(offer) if offer.send == id);
        // If the request is not found, a receive has accepted it, and the sender will get Clear.
        let from = rank_of(source);
        if self.operations.cancel_message(&mut self.matcher, from, is) {
            self.queue_answer(source, Control::Tell(FrameKind::Forgotten, id));
        }
    }

    /// Records that the receiver has dropped a canceled rendezvous request or answered it with
    /// Clear (clear to send).
    fn forgotten(&mut self, source: usize) {
        if let Some(link) = self.links.get_mut(source) {
            link.withdrawn = link.withdrawn.saturating_sub(1);
        }
    }

    fn accept_ack(&mut self, source: usize, id: OpId) {
        if let Some(&Operation::Send(Send {
            dest, word, data, stage: SendStage::Offered, ..
        })) = self.operations.get(id)
        {
            if dest == source {
                self.operations.finish(id, done(self.rank, DTL_SUCCESS, word, data.len() as u64));
            }
        }
    }

    // ---- payloads ----

    /// Tests payload transfers in flight, in round-robin order.
    fn ask_payloads(&mut self) -> Result<()> {
        for _ in 0..self.payloads.len().min(PAYLOADS) {
            let Some(payload) = self.payloads.pop_front() else { break };
            match self.wire.test(payload.op) {
                Ok(Some(done)) => self.payload_over(&payload, &done),
                Ok(None) => self.payloads.push_back(payload),
                Err(error) => {
                    self.payloads.push_back(payload);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn payload_over(&mut self, payload: &Payload, got: &Completion) {
        let Some(id) = payload.of else { return };
        if let Some(wrong) = self.impossible(id, got) {
            self.set_reason(None, Some(wrong));
            return self.finish_failed(id, self.rank, DTL_ERROR_NATIVE_BACKEND);
        }
        let (peer, outcome) = match self.operations.get(id) {
            Some(&Operation::Send(Send { dest, word, data, .. })) => {
                (dest, Some(done(self.rank, DTL_SUCCESS, word, data.len() as u64)))
            }
            Some(&Operation::Receive(Receive { into, taken: Some(taken), .. })) => {
                (taken.source, received(into.len(), &taken, got, fitting(taken.offer.size, into)))
            }
            _ => return,
        };
        match outcome {
            _ if got.status != DTL_SUCCESS => {
                self.note_failure(got.status, peer);
                self.finish_failed(id, peer, got.status);
            }
            Some(done) => self.operations.finish(id, done),
            None => self.put_back(id),
        }
    }

    /// Resets a receive to the state before it matched a rendezvous request, because the sender has
    /// canceled the request. If a matched probe had matched the message, completes the receive with
    /// CANCELED.
    fn put_back(&mut self, id: OpId) {
        let Some(Operation::Receive(receive)) = self.operations.get_mut(id) else { return };
        match receive.taken.take().and_then(|taken| taken.place) {
            Some(place) => self.find_message(place),
            None => self.finish_failed(id, self.rank, DTL_ERROR_CANCELED),
        }
    }

    /// Records the error message of the `Wire`'s last failed operation. If `status` is
    /// RANK_FAILURE, also records that `peer` has failed.
    pub(super) fn note_failure(&mut self, status: dtl_status_t, peer: usize) {
        let dead = (status == DTL_ERROR_RANK_FAILURE).then_some(peer);
        let text = self.wire.failure_text();
        // A backend may have passed the text with another operation that ended by this failure.
        if text.is_some() || dead.is_none() || self.reason_of != dead {
            self.set_reason(dead, text);
        }
        if dead.is_some() && !self.dying.contains(&peer) {
            self.dying.push(peer);
        }
    }
}

/// Returns the completion of a receive whose payload has arrived, or `None` if the payload is empty
/// because the sender canceled the rendezvous request.
fn received(
    room: usize,
    taken: &TakenOffer,
    got: &Completion,
    status: dtl_status_t,
) -> Option<Completion> {
    let wanted = tx::wanted(taken.offer.size, room) as u64;
    match got.size {
        0 => None,
        size if size == wanted => Some(done(taken.source, status, taken.word, taken.offer.size)),
        size => Some(done(taken.source, DTL_ERROR_COMMUNICATION, taken.word, size)),
    }
}
