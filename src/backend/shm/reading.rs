//! The protocol's receiving side: records that come out of rings, and copies from a sender's memory.

use super::engine::{Answer, Arrival, Engine, Offer, Operation, Receive, Send, SendStage, done, fitting};
use super::ring::{Kind, Record};
use super::segment::State;
use crate::runtime::backend::OpId;
use crate::runtime::log::warning;
use crate::sys::buf::Scratch;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes copied from another process in one step: others' progress does not wait longer than that.
const COPY_STEP: usize = 1 << 20;
/// Such steps in one round.
const COPIES: usize = 4;

/// Says, once, why nothing more arrives: messages wait in their ring until there is memory for them.
fn warn_of_memory(source: usize) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        warning!(
            "no memory to keep a message of rank {source} that nobody has asked for yet: it and all later ones \
             wait; post their receives earlier, or give the process more memory"
        );
    }
}

impl Engine {
    /// Reads up to `most` records from a rank; gives how many. What cannot be kept for want of
    /// memory stays in the ring.
    pub(super) fn read_ring(&mut self, source: usize, most: usize) -> usize {
        let mut count = 0;
        while count < most {
            let Some(consumer) = self.peers.link_mut(source).and_then(|link| link.consumer.as_mut()) else {
                break;
            };
            match consumer.peek() {
                Ok(Some(record)) => {
                    if !self.accept(source, &record) {
                        break;
                    }
                    if let Some(consumer) =
                        self.peers.link_mut(source).and_then(|link| link.consumer.as_mut())
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
        if let Some(consumer) = self.peers.link_mut(source).and_then(|link| link.consumer.as_mut()) {
            consumer.tell();
        }
        count
    }

    fn accept(&mut self, source: usize, record: &Record) -> bool {
        match record.kind {
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
        let Some(copy) = Scratch::copy_of(record.payload) else {
            warn_of_memory(source);
            return false;
        };
        self.matcher.arrive(from, record.key, Arrival::Copied(copy));
        true
    }

    fn accept_offer(&mut self, source: usize, record: &Record) {
        let from = i32::try_from(source).unwrap_or(i32::MAX);
        let [size, send, address] = record.words;
        let offer = Offer { size, send, address, claim: record.claim };
        if !self.matcher.is_wanted(from, record.key) {
            self.matcher.arrive(from, record.key, Arrival::Offered(offer));
        } else if self.claim_offer(source, offer) {
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
        if let Some(link) = self.peers.link_mut(source) {
            link.streams.push_back(id);
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

    /// Ends a receive that has all its bytes.
    pub(super) fn finish_receive(&mut self, id: OpId) {
        let Some(&Operation::Receive(Receive { into, taken: Some(taken), .. })) = self.operations.get(id)
        else {
            return;
        };
        let size = taken.offer.size;
        self.finish(id, done(taken.source, fitting(size, into), taken.word, size));
    }

    pub(super) fn copy_on(&mut self) -> bool {
        let turns = self.copying.len().min(COPIES);
        for _ in 0..turns {
            let Some(id) = self.copying.pop_front() else { break };
            if self.copy_step(id) {
                self.copying.push_back(id);
            }
        }
        turns > 0
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
}
