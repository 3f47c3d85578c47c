//! Receiving side of the protocol: handles records read from rings.

use super::copy_method::{CopyMethod, LONG};
use super::engine::{
    Arrival, CmaProgress, ControlRecord, Engine, Receive, RndvOffer, Send, SendStage, ShmOperation,
    done, fitting, rank_of,
};
use super::exchange::LargeHeader;
use super::pipeline::{FILLED_BIT, FRAGMENT, fragments_of};
use super::transfer_times::{EagerCopy, TransferEnd};
use crate::abi::status::DTL_ERROR_COMMUNICATION;
use crate::backend::p2p::P2pEngine;
use crate::backend::shm::memory::cells::CellMemory;
use crate::backend::shm::memory::ring::{ORDINARY, RecordKind, RingRecord};
use crate::backend::shm::memory::segment::PeerState;
use crate::error::is_status;
use crate::runtime::component::{OpId, RecvReduction};
use crate::runtime::explain;
use crate::runtime::log::warning;
use crate::sys::memory::buf::{Region, Scratch};
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of consecutive records of a ring that are read before later ones are prefetched.
pub(super) const PREFETCH_AFTER: usize = 3;

/// Logs once that messages stay in their ring because memory for storing them is exhausted.
fn warn_of_memory(source: usize) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        warning!(
            "no memory for an unexpected message from rank {source}: it and all later ones stay in \
             the ring; post receives earlier, or give the process more memory"
        );
    }
}

/// Records for `dtl_explain` by which method messages from rank `source` are copied.
#[cold]
pub(super) fn explain_copies(source: usize, (sizes, method): (String, String)) {
    explain::chose(&format!("copies of messages {sizes} from rank {source}"), &method);
}

/// Message that is being received in unrequested fragments, which the sender sends without a clear
/// to send (`Clear` record).
pub(crate) struct PipelineReceive {
    into: Into,
    word: u64,
    /// Number of bytes that have arrived; `size` is the number expected.
    have: usize,
    size: usize,
    /// Time at which the first fragment arrived, in nanoseconds; 0 if the message is not measured.
    begun_ns: u64,
    method: CopyMethod,
}

enum Into {
    /// A complete message for this posted receive.
    Posted(OpId),
    /// The first fragments of a message whose rendezvous request this receive has accepted.
    Taken(OpId),
    /// Memory that was allocated because no receive matched when the first fragment arrived. It is
    /// for a complete message, or for the first fragments of a message with a rendezvous request.
    Kept(Scratch, Option<RndvOffer>),
}

/// Stores or reduces `bytes`, which begin at offset `at` of the message.
fn store(receive: &Receive, at: usize, bytes: Region) {
    match &receive.action {
        Some(by) => by.reduce(receive.into, at, bytes),
        None => receive.into.part(at, bytes.len()).copy_across(bytes),
    }
}

/// Reduces the `len` bytes at offset `at` of the receive buffer if the message is reduced.
pub(super) fn reduce_stored(receive: &Receive, at: usize, len: usize) {
    let reduce = |by: &RecvReduction| by.reduce(receive.into, at, receive.into.part(at, len));
    receive.action.iter().for_each(reduce);
}

impl Engine {
    /// Reads up to `most` records from the ring of rank `source` and returns their number; written
    /// fragments count one by one. A message for which there is no memory stays in the ring.
    pub(crate) fn read_ring(&mut self, source: usize, most: usize) -> usize {
        let mut count = self.read_short(source, most);
        while count < most {
            let Some(consumer) = self.peers.consumer_mut(source) else { break };
            match consumer.peek() {
                Ok(Some(record)) => {
                    if !self.accept(source, &record) {
                        break;
                    }
                    if let Some(consumer) = self.peers.consumer_mut(source) {
                        consumer.pop(&record);
                        // After several records, there are probably more.
                        if count >= PREFETCH_AFTER {
                            consumer.will_read();
                        }
                    }
                    count += 1;
                    if self.ends_message(source, record.kind) {
                        break;
                    }
                    if record.kind == RecordKind::Written {
                        count = most.min(count + fragments_of(record.words[0] as usize) as usize);
                    }
                    count += self.read_short(source, most - count);
                }
                Ok(None) => break,
                Err(()) => {
                    // Invalid record: the rank that wrote it can no longer be trusted.
                    self.segment.mark(source, PeerState::Dead);
                    break;
                }
            }
        }
        if let Some(consumer) = self.peers.consumer_mut(source) {
            consumer.publish_free();
        }
        count
    }

    /// Returns true if a record of this kind was the last one of a message and no receive from
    /// `source` is posted. The next message then stays in its cells, so that it is not copied
    /// twice: the caller may be about to post a receive.
    fn ends_message(&self, source: usize, kind: RecordKind) -> bool {
        matches!(kind, RecordKind::Long | RecordKind::More)
            && self.peers.link(source).is_some_and(|link| link.long.is_none())
            && !self.matcher.has_posted(rank_of(source))
    }

    fn accept(&mut self, source: usize, record: &RingRecord) -> bool {
        match record.kind {
            RecordKind::Eager => return self.accept_eager(source, record),
            RecordKind::Offer => return self.accept_offer(source, record),
            RecordKind::Clear => self.accept_clear(source, record),
            RecordKind::Data => self.accept_fragment(source, OpId(record.key), record.payload),
            RecordKind::Cell => self.accept_cell(source, record),
            RecordKind::Long => return self.accept_long(source, record),
            RecordKind::More => self.accept_more(source, record),
            RecordKind::Finish => self.accept_finish(source, record),
            RecordKind::Sweep => self.drop_all_withdrawn(source),
            RecordKind::Broken => self.accept_broken(source, record),
            RecordKind::Written => self.accept_written(source, record),
        }
        true
    }

    fn accept_eager(&mut self, source: usize, record: &RingRecord) -> bool {
        let from = rank_of(source);
        if record.payload.len() > ORDINARY {
            if let Some(id) = self.matcher.take_posted(from, record.key) {
                self.deliver_measured(id, source, record);
                return true;
            }
        }
        if self.has_awaited() && !self.matcher.is_wanted(from, record.key) {
            return false;
        }
        let is_accepted = self.accept_message(source, record.key, record.payload);
        if !is_accepted {
            warn_of_memory(source);
        }
        is_accepted
    }

    /// Copies the eager message `record` to the buffer of receive `id`, and records the time if its
    /// copies are measured.
    #[inline(never)]
    fn deliver_measured(&mut self, id: OpId, source: usize, record: &RingRecord) {
        let consumer = self.peers.consumer(source);
        let measured = consumer.and_then(|consumer| EagerCopy::begin(consumer, record));
        self.deliver(id, source, record.key, record.payload);
        measured.iter().for_each(|copy| self.end_eager(source, copy));
    }

    /// Records that the copy of an eager message to its receive buffer has ended.
    #[cold]
    pub(super) fn end_eager(&mut self, source: usize, copy: &EagerCopy) {
        let shared = || self.segment.copy_times(source, self.rank);
        let link = self.peers.link_mut(source);
        let new_choice = link.and_then(|link| link.end_eager(copy, shared));
        new_choice.into_iter().for_each(|choice| explain_copies(source, choice));
    }

    fn accept_offer(&mut self, source: usize, record: &RingRecord) -> bool {
        let from = rank_of(source);
        let [size, send, address, word] = record.words;
        let header = LargeHeader::of(word);
        let (method, early) = (header.method, header.size.min(fragments_of(LONG)));
        let offer = RndvOffer { size, send, address, early, claim: record.claim, method };
        let size = usize::try_from(size).unwrap_or(usize::MAX).min(early as usize * FRAGMENT);
        let is_wanted = self.matcher.is_wanted(from, record.key);
        let memory = (early > 0 && !is_wanted).then(|| Scratch::unwritten(size));
        if matches!(memory, Some(None)) {
            warn_of_memory(source);
            return false;
        }
        self.peers.link_mut(source).into_iter().for_each(|link| link.arrive(header));
        let into = if is_wanted {
            let id =
                self.claim_offer(source, offer).then(|| self.matcher.take_posted(from, record.key));
            // The request is canceled: the fragments that follow are discarded.
            let Some(id) = id.flatten() else { return true };
            self.begin(id, source, record.key, offer, None);
            Into::Taken(id)
        } else if let Some(memory) = memory.flatten() {
            Into::Kept(memory, Some(offer))
        } else {
            self.matcher.arrive(from, record.key, Arrival::Offered((offer, None)));
            return true;
        };
        if let Some(link) = self.peers.link_mut(source).filter(|_| early > 0) {
            let (word, have, begun_ns) = (record.key, 0, 0);
            link.long = Some(PipelineReceive { into, word, have, size, begun_ns, method });
        }
        true
    }

    /// Drops all canceled rendezvous requests from rank `source` and releases their state words,
    /// which that rank needs for new requests.
    fn drop_all_withdrawn(&mut self, source: usize) {
        let Some(consumer) = self.peers.consumer(source) else { return };
        let from = rank_of(source);
        self.matcher.retain_unexpected(from, |what| match what {
            Arrival::Offered((offer, _)) => !consumer.offers.release_withdrawn(offer.claim),
            _ => true,
        });
        self.operations.cancel_taken(from, |what| match what {
            Arrival::Offered((offer, _)) => consumer.offers.release_withdrawn(offer.claim),
            _ => false,
        });
    }

    fn accept_clear(&mut self, source: usize, record: &RingRecord) {
        let id = OpId(record.key);
        let Some(ShmOperation::Send(send)) = self.operations.get_mut(id) else { return };
        let (SendStage::Offered { claim } | SendStage::Meeting { claim }) = send.stage else {
            return;
        };
        let [receiver, end, into, method] = record.words;
        let end = usize::try_from(end).unwrap_or(usize::MAX);
        if send.dest != source || end > send.data.len() {
            return;
        }
        let method = CopyMethod::of(method);
        send.stage = SendStage::Streaming { claim, receiver, end, into, method };
        if let Some(link) = self.peers.link_mut(source) {
            link.streams.push_back(id);
        }
        self.list(source);
    }

    fn accept_cell(&mut self, source: usize, record: &RingRecord) {
        let Some(bytes) = self.cell_of(source, record) else { return };
        self.accept_fragment(source, OpId(record.key), bytes);
        self.free_cell(source, record);
    }

    fn accept_long(&mut self, source: usize, record: &RingRecord) -> bool {
        let from = rank_of(source);
        let [.., len, all] = record.words;
        let header = LargeHeader::of(all);
        let (method, size) = (header.method, (header.size as usize).min(LONG));
        let into = match self.matcher.take_posted(from, record.key) {
            Some(id) => Into::Posted(id),
            None => match Scratch::unwritten(size) {
                Some(memory) => Into::Kept(memory, None),
                None => {
                    warn_of_memory(source);
                    return false;
                }
            },
        };
        let readable = self.peers.get(source).is_some_and(|peer| peer.readable);
        let is_free = readable && self.forced.is_none() && matches!(into, Into::Posted(_));
        if let Some(link) = self.peers.link_mut(source) {
            link.arrive(header);
            let shared = || self.segment.copy_times(source, self.rank);
            let is_measurable = is_free && (self.rank < source || !link.exchange.is_on);
            let filled_ns = Some(len >> FILLED_BIT).filter(|&ns| ns > 0);
            let begun_ns = link.begin_transfer(size, is_measurable, filled_ns, shared);
            let (word, have) = (record.key, 0);
            link.long = Some(PipelineReceive { into, word, have, size, begun_ns, method });
        }
        self.accept_more(source, record);
        true
    }

    fn accept_more(&mut self, source: usize, record: &RingRecord) {
        let Some(bytes) = self.cell_of(source, record) else { return };
        let long = self.peers.link_mut(source).and_then(|link| link.long.as_mut());
        if let Some(long) = long {
            let at = long.have;
            long.have += bytes.len();
            let is_last = long.have >= long.size;
            match &long.into {
                Into::Kept(memory, _) => memory.region().part(at, bytes.len()).copy_across(bytes),
                Into::Taken(id) => {
                    let id = *id;
                    self.accept_fragment(source, id, bytes);
                }
                Into::Posted(id) => {
                    if let Some(ShmOperation::Receive(receive)) = self.operations.get(*id) {
                        store(receive, at, bytes);
                    }
                }
            }
            if is_last {
                self.end_long(source);
            }
        }
        self.free_cell(source, record);
    }

    /// Ends the reception of the fragments that `source` sent without a clear to send (`Clear`
    /// record): completes the receive of a complete message, or queues the message if no receive
    /// matches it.
    fn end_long(&mut self, source: usize) {
        let from = rank_of(source);
        let Some(link) = self.peers.link_mut(source) else { return };
        let Some(long) = link.long.take() else { return };
        let PipelineReceive { into, word, size, begun_ns, method, .. } = long;
        if matches!(into, Into::Posted(_) | Into::Kept(_, None)) {
            let is_awaited = begun_ns != 0 && self.matcher.has_posted(from);
            let ended = TransferEnd { len: size, method, begun_ns, is_awaited };
            link.end_transfer(ended).into_iter().for_each(|choice| explain_copies(source, choice));
        }
        match into {
            Into::Taken(_) => {}
            Into::Posted(id) => {
                if let Some(&ShmOperation::Receive(Receive { into, .. })) = self.operations.get(id)
                {
                    self.operations
                        .finish(id, done(source, fitting(size as u64, into), word, size as u64));
                }
            }
            // A matching receive may have been posted since the first fragment arrived.
            Into::Kept(memory, None) => match self.matcher.take_posted(from, word) {
                Some(id) => self.deliver(id, source, word, memory.region()),
                None => self.matcher.arrive(from, word, Arrival::Held(memory, size)),
            },
            Into::Kept(memory, Some(offer)) => {
                if !self.matcher.is_wanted(from, word) {
                    self.matcher.arrive(from, word, Arrival::Offered((offer, Some(memory))));
                } else if self.claim_offer(source, offer) {
                    if let Some(id) = self.matcher.take_posted(from, word) {
                        self.begin(id, source, word, offer, Some(memory));
                    }
                }
            }
        }
    }

    /// Drops the incomplete message from `source`, which died or left before it sent the last
    /// fragment. If the message has no rendezvous request, returns the receive that was matched to
    /// the message, if any.
    pub(crate) fn forsaken(&mut self, source: usize) -> Option<OpId> {
        match self.peers.link_mut(source)?.long.take()?.into {
            Into::Posted(id) => Some(id),
            // Receives that have accepted a rendezvous request are completed by `bound_to`.
            Into::Taken(_) | Into::Kept(..) => None,
        }
    }

    /// Returns the bytes in the cell (shared buffer) that `record` refers to; `None` if the record
    /// is invalid.
    fn cell_of(&mut self, source: usize, record: &RingRecord) -> Option<Region> {
        let [cell, _, len, _] = record.words;
        self.cells_of(source)?.bytes(u16::try_from(cell).ok()?, len as u32 as usize)
    }

    fn free_cell(&mut self, source: usize, record: &RingRecord) {
        let [cell, number, ..] = record.words;
        if let (Some(cells), Ok(cell)) = (self.cells_of(source), u16::try_from(cell)) {
            cells.free(cell, number);
        }
    }

    fn cells_of(&mut self, source: usize) -> Option<&CellMemory> {
        let link = self.peers.link_mut(source)?;
        if link.cells.is_none() {
            link.cells = self.segment.read_cells(source).ok();
        }
        link.cells.as_ref()
    }

    /// Stores the next fragment of the message whose rendezvous request was accepted by receive
    /// `id`.
    pub(crate) fn accept_fragment(&mut self, source: usize, id: OpId, bytes: Region) {
        self.advance(source, id, bytes.len(), |receive, at, room| {
            store(receive, at, bytes.part(0, room));
        });
    }

    /// Records that the sender has copied the next bytes of a message to the receive buffer.
    fn accept_written(&mut self, source: usize, record: &RingRecord) {
        let count = usize::try_from(record.words[0]).unwrap_or(usize::MAX);
        self.advance(source, OpId(record.key), count, |receive, at, room| {
            reduce_stored(receive, at, count.min(room));
        });
    }

    /// Records the arrival of the next `count` bytes for receive `id`. `store` stores or reduces
    /// them; its arguments are their offset in the message and their maximum number.
    fn advance(
        &mut self,
        source: usize,
        id: OpId,
        count: usize,
        store: impl FnOnce(&Receive, usize, usize),
    ) {
        let Some(ShmOperation::Receive(receive)) = self.operations.get_mut(id) else { return };
        let Some(taken) = receive.taken.as_mut().filter(|taken| taken.source == source) else {
            return;
        };
        if taken.is_complete() {
            // The fragment is beyond the end of the receive buffer.
            return;
        }
        let room = taken.help.first.saturating_sub(taken.have);
        let at = taken.have;
        taken.have += count.min(room);
        let is_complete = taken.is_complete();
        store(receive, at, room);
        if is_complete {
            self.end_fragments(id);
        }
    }

    /// Fails a receive whose sender cannot send the remaining bytes.
    fn accept_broken(&mut self, source: usize, record: &RingRecord) {
        let (id, [status, ..]) = (OpId(record.key), record.words);
        let Some(ShmOperation::Receive(Receive { taken: Some(taken), .. })) =
            self.operations.get(id)
        else {
            return;
        };
        if taken.source == source {
            let (word, size) = (taken.word, taken.offer.size);
            if let Some(link) = self.peers.link_mut(source) {
                link.transfers.break_off();
            }
            let status = i32::try_from(status).ok().filter(|status| is_status(*status));
            self.operations
                .finish(id, done(source, status.unwrap_or(DTL_ERROR_COMMUNICATION), word, size));
        }
    }

    /// Returns the number of leading bytes that have arrived for unfinished receive `id`.
    pub(crate) fn arrived(&self, id: OpId) -> usize {
        match self.operations.get(id) {
            Some(ShmOperation::Receive(Receive { taken: Some(taken), .. })) => taken.have,
            _ => 0,
        }
    }

    fn accept_finish(&mut self, source: usize, record: &RingRecord) {
        let id = OpId(record.key);
        let Some(&ShmOperation::Send(Send { dest, stage, .. })) = self.operations.get(id) else {
            return;
        };
        match stage {
            SendStage::Offered { claim }
            | SendStage::Streaming { claim, .. }
            | SendStage::Meeting { claim }
                if dest == source =>
            {
                self.finish_send(id, claim);
            }
            _ => {}
        }
    }

    /// Ends the transfer of receive `id`, whose fragments have all arrived. If the receiver has
    /// read some fragments from the sender's memory, or if all fragments were sent without a clear
    /// to send (`Clear` record), the sender waits for the `Finish` record. In these cases the
    /// receive completes only after that record is sent.
    pub(crate) fn end_fragments(&mut self, id: OpId) {
        let Some(ShmOperation::Receive(Receive { taken: Some(taken), .. })) =
            self.operations.get_mut(id)
        else {
            return;
        };
        if taken.help.from == taken.want && !taken.is_early() {
            self.finish_receive(id);
        } else {
            taken.answer = ControlRecord::Finish;
            let source = taken.source;
            self.answer_or_queue(source, id);
        }
    }

    /// Completes receive `id`, whose bytes have all arrived.
    pub(crate) fn finish_receive(&mut self, id: OpId) {
        let Some(&ShmOperation::Receive(Receive { into, taken: Some(taken), .. })) =
            self.operations.get(id)
        else {
            return;
        };
        let size = taken.offer.size;
        if let Some(link) = self.peers.link_mut(taken.source) {
            let CmaProgress { method, begun_ns, .. } = taken.help;
            let is_awaited = begun_ns != 0 && self.matcher.has_posted(rank_of(taken.source));
            let ended = TransferEnd { len: taken.want, method, begun_ns, is_awaited };
            let new_choice = link.end_transfer(ended);
            new_choice.into_iter().for_each(|choice| explain_copies(taken.source, choice));
        }
        self.operations.finish(id, done(taken.source, fitting(size, into), taken.word, size));
    }
}
