//! Sending side of the protocol: sends frames and payloads as far as send resources permit.

use super::FRAME_WORD;
use super::engine::{Control, Engine, Operation, Payload, Receive, Send, SendStage, done, rank_of};
use super::frame::{Frame, FrameKind, Header, INLINE};
use crate::abi::status::*;
use crate::backend::p2p::{P2pEngine, SendOutcome};
use crate::error::{Error, Result};
use crate::runtime::component::{DeviceBuffer, OpId, SendMode};
use crate::sys::memory::buf::{Region, Scratch};

/// Maximum number of frames in flight per rank; further sends are queued.
const WINDOW: usize = 64;
/// Bit that is set in the tag of every payload and clear in the tag of every frame. The other 27
/// bits are a counter. A receiver reuses a tag after 2^27 payloads, long after the earlier payload
/// with this tag has arrived.
const PAYLOAD: u32 = 1 << 27;

impl Control {
    /// If this is the queued payload of send `id`, replaces it with an empty payload, which cancels
    /// the send, and returns true.
    pub(super) fn cancel_payload(&mut self, id: OpId) -> bool {
        match self {
            Control::Payload { send, want, .. } if *send == Some(id) => {
                (*send, *want) = (None, 0);
                true
            }
            _ => false,
        }
    }
}

impl Engine {
    /// Sends the queued frames and payloads to all ranks, as far as resources permit.
    pub(super) fn write_on(&mut self) -> Result<()> {
        let mut index = 0;
        while let Some(&dest) = self.listed.get(index) {
            self.reap(dest)?;
            self.write_to(dest);
            match self.links.get_mut(dest) {
                Some(link) if !link.has_work() => {
                    link.queue.is_listed = false;
                    self.listed.swap_remove(index);
                }
                _ => index += 1,
            }
        }
        Ok(())
    }

    /// Reclaims the frames to `dest` whose sends are complete.
    fn reap(&mut self, dest: usize) -> Result<()> {
        while let Some(&(op, _)) = self.links.get(dest).and_then(|link| link.in_flight.front()) {
            let Some(done) = self.wire.test(op)? else { break };
            if let Some((_, frame)) =
                self.links.get_mut(dest).and_then(|link| link.in_flight.pop_front())
            {
                self.pool.push(frame);
            }
            match done.status {
                DTL_SUCCESS => {}
                DTL_ERROR_RANK_FAILURE => self.note_failure(done.status, dest),
                // A send that was reported as complete is lost: no later message may arrive.
                status => {
                    let reason = self.reason("a send", status);
                    self.break_down(status, Some(reason));
                }
            }
        }
        Ok(())
    }

    fn is_full(&self, dest: usize) -> bool {
        self.links.get(dest).is_none_or(|link| link.in_flight.len() >= WINDOW)
    }

    /// Sends one frame to `dest`.
    fn send_frame(&mut self, dest: usize, header: &Header, payload: Region) -> SendOutcome {
        if self.is_full(dest) && (self.reap(dest).is_err() || self.is_full(dest)) {
            return SendOutcome::NoRoom;
        }
        if let Some(frames) = self.wire.frames() {
            return match frames.send(&header.words(), payload, rank_of(dest)) {
                Ok(()) => SendOutcome::Yes,
                Err(error) => self.not_sent(error, dest),
            };
        }
        let Some(mut frame) = self.pool.pop().or_else(Frame::new) else {
            return SendOutcome::NoRoom;
        };
        let bytes = frame.write(header, payload);
        match self.wire.isend(bytes, rank_of(dest), FRAME_WORD) {
            Ok(op) => {
                if let Some(link) = self.links.get_mut(dest) {
                    link.in_flight.push_back((op, frame));
                }
                self.list(dest);
                SendOutcome::Yes
            }
            Err(error) => {
                self.pool.push(frame);
                self.not_sent(error, dest)
            }
        }
    }

    /// Sends an eager message to `dest`.
    #[inline]
    pub(super) fn send_message(&mut self, dest: usize, word: u64, data: Region) -> SendOutcome {
        self.send_frame(dest, &Header::eager(word, data.len()), data)
    }

    fn not_sent(&mut self, error: Error, dest: usize) -> SendOutcome {
        if error.status() == DTL_ERROR_BUSY {
            return SendOutcome::NoRoom;
        }
        self.note_failure(error.status(), dest);
        self.reason = Some(error.text().to_owned());
        SendOutcome::Failed(error)
    }

    /// Starts send `id` with an eager frame, which contains the whole message, or with a rendezvous
    /// request.
    pub(super) fn start(&mut self, dest: usize, id: OpId) -> SendOutcome {
        let Some(&Operation::Send(Send { word, data, mode, .. })) = self.operations.get(id) else {
            return SendOutcome::Yes;
        };
        let (kind, payload) = match mode {
            SendMode::Standard | SendMode::Notice if data.len() <= INLINE => {
                (FrameKind::Eager, data)
            }
            _ => (FrameKind::Offer, Region::EMPTY),
        };
        let size = data.len() as u64;
        let sent =
            self.send_frame(dest, &Header { kind, payload: 0, word, size, id: id.0 }, payload);
        match (&sent, kind, self.operations.get_mut(id)) {
            (SendOutcome::Yes, FrameKind::Eager, _) => {
                self.operations.finish(id, done(self.rank, DTL_SUCCESS, word, size))
            }
            (SendOutcome::Yes, _, Some(Operation::Send(send))) => send.stage = SendStage::Offered,
            _ => {}
        }
        sent
    }

    /// Sends a control message to `dest`; returns false if there is no room for it now.
    pub(super) fn send_answer(&mut self, dest: usize, answer: Control) -> bool {
        let sent = match answer {
            Control::Tell(kind, id) => {
                let header = Header { kind, payload: 0, word: 0, size: 0, id };
                self.send_frame(dest, &header, Region::EMPTY)
            }
            Control::Clear(id) => self.send_clear(dest, id),
            Control::Payload { send, word, want } => self.send_payload(dest, send, word, want),
        };
        match sent {
            SendOutcome::NoRoom => false,
            SendOutcome::Failed(error) if error.status() != DTL_ERROR_RANK_FAILURE => {
                // A waiting operation of the receiver would never complete, so the wire counts as
                // failed.
                self.break_down(error.status(), Some(error.text().to_owned()));
                false
            }
            SendOutcome::Yes | SendOutcome::Failed(_) => true,
        }
    }

    /// Posts a receive for the payload of receive operation `id`, then sends a Clear frame (clear
    /// to send) to request the payload.
    fn send_clear(&mut self, dest: usize, id: OpId) -> SendOutcome {
        let Some(&Operation::Receive(Receive { into, taken: Some(taken), .. })) =
            self.operations.get(id)
        else {
            return SendOutcome::Yes;
        };
        let payload = match taken.payload {
            Some(word) => word,
            None => match self.post_payload(dest, id, into, taken.offer.size) {
                Ok(word) => word,
                Err(error) => {
                    if let SendOutcome::NoRoom = self.not_sent(error.clone(), dest) {
                        return SendOutcome::NoRoom;
                    }
                    // The receive has failed; an Ack prevents that its sender waits forever.
                    self.finish_failed(id, dest, error.status());
                    self.queue_answer(dest, Control::Tell(FrameKind::Ack, taken.offer.send));
                    return SendOutcome::Yes;
                }
            },
        };
        let size = wanted(taken.offer.size, into.len()) as u64;
        let header =
            Header { kind: FrameKind::Clear, payload, word: 0, size, id: taken.offer.send };
        self.send_frame(dest, &header, Region::EMPTY)
    }

    fn post_payload(&mut self, source: usize, id: OpId, into: Region, size: u64) -> Result<u32> {
        // A message of no bytes arrives as one byte, which must not be written to the buffer.
        let stand_in = if into.is_empty() || size == 0 { Scratch::new(1) } else { None };
        let room =
            stand_in.as_ref().map_or(into, Scratch::region).part(0, wanted(size, into.len()));
        self.last_payload = (self.last_payload + 1) & (PAYLOAD - 1);
        let word = self.last_payload | PAYLOAD;
        let shadow = if stand_in.is_none() { self.shadow_of(id) } else { None };
        let op = match (&shadow, shadow.as_ref().and_then(|_| self.wire.devices())) {
            (Some(shadow), Some(devices)) => devices.irecv(
                DeviceBuffer { host: room, shadow },
                rank_of(source),
                u64::from(word),
            )?,
            _ => self.wire.irecv(room, rank_of(source), u64::from(word))?,
        };
        self.payloads.push_back(Payload { op, of: Some(id), stand_in });
        if let Some(Operation::Receive(Receive { taken: Some(taken), .. })) =
            self.operations.get_mut(id)
        {
            taken.payload = Some(word);
        }
        Ok(word)
    }

    fn send_payload(
        &mut self,
        dest: usize,
        send: Option<OpId>,
        word: u32,
        want: usize,
    ) -> SendOutcome {
        let data = match send.and_then(|id| self.operations.get(id)) {
            Some(Operation::Send(send)) => send.data.part(0, want),
            _ => Region::EMPTY,
        };
        // An empty payload would mean that the rendezvous request was canceled.
        let stand_in = if send.is_some() && data.is_empty() { Scratch::new(1) } else { None };
        let data = stand_in.as_ref().map_or(data, Scratch::region);
        let shadow = if stand_in.is_none() { send.and_then(|id| self.shadow_of(id)) } else { None };
        let sent = match (&shadow, shadow.as_ref().and_then(|_| self.wire.devices())) {
            (Some(shadow), Some(devices)) => {
                devices.isend(DeviceBuffer { host: data, shadow }, rank_of(dest), u64::from(word))
            }
            _ => self.wire.isend(data, rank_of(dest), u64::from(word)),
        };
        match sent {
            Ok(op) => {
                self.payloads.push_back(Payload { op, of: send, stand_in });
                if let Some(Operation::Send(send)) = send.and_then(|id| self.operations.get_mut(id))
                {
                    send.stage = SendStage::Moving;
                }
                SendOutcome::Yes
            }
            Err(error) => match (self.not_sent(error, dest), send) {
                // The send has failed; an empty payload returns its receive.
                (SendOutcome::Failed(error), Some(id)) => {
                    self.finish_failed(id, dest, error.status());
                    self.queue_answer(dest, Control::Payload { send: None, word, want: 0 });
                    SendOutcome::Yes
                }
                (sent, _) => sent,
            },
        }
    }
}

/// Returns the number of bytes that a receive requests: as many bytes of the message as fit into
/// its buffer, but at least 1, because an empty payload means that the rendezvous request was
/// canceled.
pub(super) fn wanted(size: u64, room: usize) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX).min(room).max(1)
}
