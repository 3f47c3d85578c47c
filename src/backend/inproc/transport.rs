//! Messages between ranks of one process. A message is copied once, from the sender's buffer to the
//! receiver's, unless it is small and is sent before its receive is posted.
//!
//! Each rank has a `RankSlot` with its operations, its posted receives, the messages that arrived
//! for it, and a lock for all three. No call holds the locks of two ranks, so no lock order is
//! needed, and ranks that do not communicate never contend.
//!
//! The side that arrives second, sender or receiver, copies the message to the receive buffer.
//! Small messages are copied under the receiver's lock. A large message is copied without a lock,
//! and a rank that waits for it takes part in the copy (`transfer`). Matching removes the receive
//! from the posted receives (or the message from the unexpected or probed messages), so `cancel`
//! finds neither of the two operations, and both stay unfinished until the copy is complete. By the
//! transport's contract the buffer of an unfinished operation is valid, so both buffers are valid.
//! A wait that times out first cancels its operation, and so waits for the copy.

use super::coll_mailbox::Mailboxes;
use super::rank_state::{
    InprocMessage, InprocOperation, RankSlot, RankState, Receive, failed, found, received, sent,
};
use super::shared_region::Parts;
use super::transfer::{TRANSFERS, Transfer};
use crate::abi::comm::communicator::DTL_ANY_SOURCE;
use crate::abi::status::DTL_ERROR_CANCELED;
use crate::backend::coll_mailbox::Places;
use crate::backend::match_queues;
use crate::backend::op_table::fitting;
use crate::backend::peer_map::BYTES_PER_RANK;
use crate::error::{Result, fail, failure};
use crate::runtime::component::{
    CollMailbox, Completion, Dest, Groups, Liveness, Matched, Member, OpId, PartKey, Properties,
    RecvMode, Selector, SendMode, SharedMemory, SharedOffer, SharedRegion, Transport, Wakeup,
    poll_of,
};
use crate::sys::memory::buf::{Region, Scratch};
use crate::sys::os::process;
use crate::sys::sync::lock::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

/// Maximum size, in bytes, of a small message. If no posted receive matches a small message, the
/// message is copied and its send completes at once.
pub(super) const EAGER: usize = 4096;

/// Creates the transports of `count` ranks of this process, in rank order.
pub(super) fn endpoints(count: i32) -> Result<Vec<InprocTransport>> {
    let ranks = usize::try_from(count).unwrap_or(0);
    check_room(ranks)?;
    let sides = (0..ranks).map(|_| RankSlot::new(ranks)).collect();
    let is_oversubscribed = ranks > process::affinity().len();
    let mailboxes = Mailboxes::new(ranks);
    let (blamed, parts) = (AtomicUsize::new(0), Parts::default());
    let fabric = Arc::new(InprocShared { size: count, sides, blamed, mailboxes, parts });
    let endpoint = |rank| InprocTransport {
        rank,
        fabric: Arc::clone(&fabric),
        places: Mutex::default(),
        properties: Properties {
            needs_progress: false,
            is_one_node: true,
            is_oversubscribed: Some(is_oversubscribed),
            ..Properties::new(rank, count, "copies within this process")
        },
    };
    Ok((0..count).map(endpoint).collect())
}

/// Checks that memory for the tables of all ranks is available. Each rank has a table with an entry
/// per rank, so with thousands of ranks the tables may exceed a memory limit. Allocates the total
/// in a single allocation and frees it again, so that the error message can state the total.
fn check_room(ranks: usize) -> Result<()> {
    let bytes = ranks * (ranks * BYTES_PER_RANK + size_of::<RankSlot>());
    if Vec::<u8>::new().try_reserve_exact(bytes).is_err() {
        return fail!(DTL_ERROR_OUT_OF_MEMORY, "no {bytes} bytes for the tables of {ranks} ranks");
    }
    Ok(())
}

/// Transport of one rank.
pub(super) struct InprocTransport {
    rank: i32,
    fabric: Arc<InprocShared>,
    places: Mutex<Places>,
    properties: Properties,
}

struct InprocShared {
    size: i32,
    sides: Vec<RankSlot>,
    /// Number of ranks that left and thereby caused an operation of another rank to fail.
    blamed: AtomicUsize,
    mailboxes: Mailboxes,
    parts: Parts,
}

impl InprocShared {
    fn side(&self, rank: i32) -> Result<&RankSlot> {
        usize::try_from(rank).ok().and_then(|rank| self.sides.get(rank)).ok_or_else(|| {
            failure!(DTL_ERROR_INVALID_RANK, "rank {rank} is not in 0 … {}", self.size - 1)
        })
    }

    /// Iterates over all ranks, each with its state (`RankSlot`).
    fn all(&self) -> impl Iterator<Item = (i32, &RankSlot)> {
        (0..self.size).zip(&self.sides)
    }

    /// Records that an operation failed because the rank with state `side` had left.
    fn blame(&self, side: &RankSlot) {
        if !side.blamed.swap(true, Ordering::Relaxed) {
            self.blamed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl InprocTransport {
    fn own(&self) -> Result<&RankSlot> {
        self.fabric.side(self.rank)
    }

    /// Delivers a small message. Returns false if memory for the message is exhausted, or its
    /// receiver has left.
    fn send_small(&self, target: &RankSlot, data: Region, word: u64) -> bool {
        let mut state = target.state.lock();
        if target.has_left() {
            return false;
        }
        if let Some(posted) = state.matcher.take_posted(self.rank, word) {
            if let Some(&InprocOperation::Receive(receive)) = state.operations.get(posted) {
                let done = received(receive.into, data, self.rank, word);
                target.finish_locked(&mut state, posted, done);
            }
            return true;
        }
        let Some(copy) = Scratch::copy_of(data) else { return false };
        state.matcher.arrive(self.rank, word, InprocMessage::Copied(copy));
        target.wake(&mut state);
        true
    }

    /// Sends a large message: copies it into the buffer of the matching posted receive if there is
    /// one. Otherwise queues a reference to the sender's buffer for a later receive.
    fn send_large(
        &self,
        target: &RankSlot,
        data: Region,
        (dest, word): (i32, u64),
        (id, mode): (OpId, SendMode),
    ) -> Result<()> {
        let mut state = target.state.lock();
        if target.has_left() {
            drop(state);
            return self.send_to_nobody(target, word, (id, mode));
        }
        let Some(posted) = state.matcher.take_posted(self.rank, word) else {
            state.matcher.arrive(self.rank, word, InprocMessage::Lent(data, id));
            target.wake(&mut state);
            return Ok(());
        };
        let into = match state.operations.get(posted) {
            Some(InprocOperation::Receive(receive)) => receive.into,
            _ => Region::EMPTY,
        };
        let receiver = (dest, posted);
        self.copy(target, Some(state), Transfer::new((self.rank, id), (data, word), receiver, into))
    }

    /// Copies a matched message whose other rank, with state `side`, waits for it. `state` is that
    /// state if the caller has locked it.
    ///
    /// Neither operation can be canceled now, because matching removed both from the queues that
    /// `cancel` searches. Both are unfinished, so both buffers are valid.
    fn copy<'a>(
        &self,
        side: &'a RankSlot,
        state: Option<MutexGuard<'a, RankState>>,
        transfer: Transfer,
    ) -> Result<()> {
        let lock = || state.unwrap_or_else(|| side.state.lock());
        // With more ranks than processors, the other rank takes the processor of a third one.
        let has_processors = self.properties.is_oversubscribed == Some(false);
        let state = (has_processors && transfer.is_shared()).then(lock);
        let Some(mut state) = state.filter(|state| state.transfers.len() < TRANSFERS) else {
            transfer.into.copy_from(transfer.data);
            return self.finish_both(&transfer);
        };
        let sender = transfer.sender;
        state.transfers.push(transfer);
        side.wake(&mut state);
        let mut next = Some(state);
        while let Some(state) = next {
            next = self.copy_piece(side, state, |transfer| transfer.sender == sender)?;
        }
        Ok(())
    }

    /// Claims and copies a piece of one of the messages that the rank with state `side` waits for
    /// and for which `is` returns true. Returns the locked state again; `None` if there is no
    /// unclaimed piece, or if this was the end of a message, whose operations are then complete.
    fn copy_piece<'a>(
        &self,
        side: &'a RankSlot,
        mut state: MutexGuard<'a, RankState>,
        is: impl Fn(&Transfer) -> bool,
    ) -> Result<Option<MutexGuard<'a, RankState>>> {
        let mut transfers = state.transfers.iter_mut();
        let Some(transfer) = transfers.find(|transfer| transfer.has_left() && is(transfer)) else {
            return Ok(None);
        };
        let (sender, (into, data)) = (transfer.sender, transfer.claim(self.rank));
        drop(state);
        into.copy_from(data);
        let mut state = side.state.lock();
        let index = state.transfers.iter().position(|transfer| transfer.sender == sender);
        let Some(index) = index else { return Ok(None) };
        if !state.transfers.get_mut(index).is_some_and(Transfer::end_piece) {
            return Ok(Some(state));
        }
        let transfer = state.transfers.swap_remove(index);
        drop(state);
        self.finish_both(&transfer).map(|()| None)
    }

    /// Completes the send and the receive of a copied message.
    fn finish_both(&self, transfer: &Transfer) -> Result<()> {
        let &Transfer { data, into, sender: (source, send), match_bits, .. } = transfer;
        let (dest, receive) = transfer.receiver;
        let sent = sent(source, match_bits, data);
        let received = Completion { status: fitting(sent.size, into), ..sent };
        self.fabric.side(dest)?.finish(receive, received);
        self.fabric.side(source)?.finish(send, sent);
        Ok(())
    }

    /// Completes a send to a rank that has disconnected, with the status DTL_ERROR_RANK_FAILURE.
    fn send_to_nobody(
        &self,
        target: &RankSlot,
        word: u64,
        (id, mode): (OpId, SendMode),
    ) -> Result<()> {
        // A notice does not count: otherwise a query to a rank that left after finishing its part
        // would fail a collective that succeeds.
        if mode != SendMode::Notice {
            self.fabric.blame(target);
        }
        self.own()?.finish(id, failed(self.rank, word));
        Ok(())
    }

    #[inline]
    fn named(&self, select: Selector) -> Result<Option<&RankSlot>> {
        if select.source == DTL_ANY_SOURCE {
            Ok(None)
        } else {
            self.fabric.side(select.source).map(Some)
        }
    }

    /// Returns the result of a probe that did not find a message: `None` if a message can still
    /// arrive, or an error if rank `source` has left.
    fn nothing_from<T>(&self, source: Option<&RankSlot>) -> Result<Option<T>> {
        let Some(source) = source.filter(|source| source.has_left()) else { return Ok(None) };
        self.fabric.blame(source);
        fail!(
            DTL_ERROR_RANK_FAILURE,
            "no message is left from a rank that has left the communicator"
        )
    }

    /// Completes receive `id` (which must be `InprocOperation::Receive`) with `message`, and
    /// completes the send of the message if it is still pending.
    fn give(
        &self,
        own: &RankSlot,
        mut state: MutexGuard<'_, RankState>,
        id: OpId,
        message: match_queues::UnexpectedMessage<InprocMessage>,
    ) -> Result<()> {
        let Some(&InprocOperation::Receive(Receive { into, .. })) = state.operations.get(id) else {
            return Ok(());
        };
        match message.what {
            InprocMessage::Copied(copy) => {
                let done = received(into, copy.region(), message.source, message.match_bits);
                own.finish_locked(&mut state, id, done);
            }
            InprocMessage::Lent(bytes, send) => {
                drop(state);
                let (sender, data) = ((message.source, send), (bytes, message.match_bits));
                let side = self.fabric.side(message.source)?;
                let transfer = Transfer::new(sender, data, (self.rank, id), into);
                self.copy(side, None, transfer)?;
            }
        }
        Ok(())
    }

    /// Fails the receives that other ranks have posted for messages from this rank, which is
    /// leaving. Messages from this rank that have already been copied can still be received.
    fn end_others(&self) {
        let mut was_needed = false;
        for (_, side) in self.fabric.all().filter(|(rank, _)| *rank != self.rank) {
            let mut state = side.state.lock();
            state.matcher.retain_unexpected(self.rank, |message| {
                matches!(message, InprocMessage::Copied(_))
            });
            for receive in state.matcher.take_posted_from(self.rank) {
                was_needed = true;
                side.finish_locked(&mut state, receive, failed(self.rank, 0));
            }
        }
        if let (true, Ok(own)) = (was_needed, self.own()) {
            self.fabric.blame(own);
        }
    }
}

impl Transport for InprocTransport {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn groups(&self) -> Groups<'_> {
        Groups {
            liveness: Some(self),
            shared_memory: Some(self),
            wakeup: Some(self),
            ..Groups::NONE
        }
    }

    fn start_send(&self, data: Region, to: Dest, mode: SendMode, _may_block: bool) -> Result<OpId> {
        let (target, own, word) = (self.fabric.side(to.rank)?, self.own()?, to.word);
        let is_small = data.len() <= EAGER && mode != SendMode::Synchronous;
        if is_small && self.send_small(target, data, word) {
            return Ok(OpId::COMPLETED);
        }
        // The receiver has left, or there was no memory for a copy, in which case the receiver
        // reads the sender's buffer, as for large messages. The operation is added first, because
        // the receiver of the message completes it, perhaps immediately.
        let id = own.state.lock().operations.add(InprocOperation::Send(to.rank))?;
        self.send_large(target, data, (to.rank, word), (id, mode))?;
        Ok(id)
    }

    fn start_recv(&self, data: Region, select: Selector, _mode: RecvMode<'_>) -> Result<OpId> {
        let named = self.named(select)?;
        let own = self.own()?;
        let mut state = own.state.lock();
        let receive = Receive { into: data, source: select.source };
        let id = state.operations.add(InprocOperation::Receive(receive))?;
        let Some(message) = state.matcher.take_unexpected(&select) else {
            match named {
                // A rank marks itself as left before it searches this rank's posted receives under
                // this lock.
                Some(source) if source.has_left() => {
                    own.finish_locked(&mut state, id, failed(select.source, 0));
                    self.fabric.blame(source);
                }
                _ => state.matcher.post(select, id),
            }
            return Ok(id);
        };
        self.give(own, state, id, message)?;
        Ok(id)
    }

    fn probe(&self, select: Selector) -> Result<Option<Completion>> {
        let source = self.named(select)?;
        let state = self.own()?.state.lock();
        match state.matcher.peek(&select) {
            Some(message) => Ok(Some(found(message))),
            None => self.nothing_from(source),
        }
    }

    fn take(&self, select: Selector) -> Result<Option<Matched>> {
        let source = self.named(select)?;
        let mut state = self.own()?.state.lock();
        let Some(done) = state.matcher.peek(&select).map(found) else {
            return self.nothing_from(source);
        };
        let RankState { operations, matcher, .. } = &mut *state;
        operations.take(matcher, &select, done).map(Some)
    }

    fn receive_matched(&self, message: OpId, data: Region) -> Result<OpId> {
        let own = self.own()?;
        let mut state = own.state.lock();
        let receive = Receive { into: data, source: DTL_ANY_SOURCE };
        if let Some(taken) = state.operations.start_matched(message, receive)? {
            self.give(own, state, message, taken)?;
        }
        Ok(message)
    }

    fn test(&self, op: OpId, completion: &mut Completion) -> Poll<Result<()>> {
        poll_of(self.own().and_then(|own| {
            let mut state = own.state.lock();
            if state.operations.test(op, completion)? {
                return Ok(true);
            }
            if state.transfers.is_empty() {
                return Ok(false);
            }
            let state = self.copy_piece(own, state, |_| true)?;
            state.unwrap_or_else(|| own.state.lock()).operations.test(op, completion)
        }))
    }

    /// Does nothing: the side that matches a message also copies it.
    fn progress(&self) {}

    fn cancel(&self, op: OpId) -> Result<()> {
        let own = self.own()?;
        let done = Completion { status: DTL_ERROR_CANCELED, ..failed(self.rank, 0) };
        let mut state = own.state.lock();
        let dest = match state.operations.get(op) {
            Some(&InprocOperation::Receive(Receive { source, .. })) => {
                if state.matcher.cancel(source, &op) {
                    own.finish_locked(&mut state, op, done);
                }
                return Ok(());
            }
            Some(&InprocOperation::Send(dest)) => dest,
            _ => return Ok(()),
        };
        drop(state);
        if self.fabric.side(dest)?.cancel_send(self.rank, op) {
            own.finish(op, done);
        }
        Ok(())
    }

    /// Leaves the communicator: operations of other ranks that need this rank complete with
    /// DTL_ERROR_RANK_FAILURE.
    fn close(&self) -> Result<()> {
        let own = self.own()?;
        let mut state = own.state.lock();
        if own.left.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // No rank will receive these messages.
        let everything = Selector { source: DTL_ANY_SOURCE, match_bits: 0, ignore: u64::MAX };
        let mut lost = Vec::new();
        while let Some(message) = state.matcher.take_unexpected(&everything) {
            if let InprocMessage::Lent(_, send) = message.what {
                lost.push((message.source, message.match_bits, send));
            }
        }
        drop(state);
        for (source, word, send) in lost.into_iter().filter(|(source, ..)| *source != self.rank) {
            self.fabric.blame(own);
            self.fabric.side(source)?.finish(send, failed(source, word));
        }
        self.end_others();
        Ok(())
    }
}

impl Liveness for InprocTransport {
    fn failed_ranks(&self) -> Vec<i32> {
        self.fabric.all().filter(|(_, side)| side.has_left()).map(|(rank, _)| rank).collect()
    }

    /// Returns the number of ranks that left although an operation still needed them. A rank that
    /// left after its operations had completed does not count. A rank that was needed counts as
    /// failed for all ranks, including those that depend on it only through other ranks.
    fn failed_count(&self) -> usize {
        self.fabric.blamed.load(Ordering::Relaxed)
    }
}

impl SharedMemory for InprocTransport {
    fn reserve_place(&self) -> Option<u32> {
        let has_left = |rank: usize| self.fabric.sides.get(rank).is_none_or(RankSlot::has_left);
        self.fabric.mailboxes.reserve(&mut self.places.lock(), has_left)
    }

    fn release_place(&self, place: u32) {
        self.places.lock().release(place);
    }

    fn mailbox(&self, context: u32, members: &[Member]) -> Option<Result<Box<dyn CollMailbox>>> {
        let own = self.rank.unsigned_abs() as usize;
        self.fabric.mailboxes.open(&mut self.places.lock(), own, context, members)
    }

    fn offer_part(&self, offer: SharedOffer) -> Option<Result<Box<dyn SharedRegion>>> {
        Some(self.fabric.parts.offer(self.rank, offer))
    }

    fn find_part(&self, rank: i32, key: PartKey) -> Result<Box<dyn SharedRegion>> {
        self.fabric.parts.find(rank, key)
    }

    fn has_left(&self, rank: i32) -> bool {
        self.fabric.side(rank).is_ok_and(RankSlot::has_left)
    }

    /// Does nothing: when a rank leaves, it completes the operations of other ranks that depend on
    /// it.
    fn look_around(&self) {}

    /// Does nothing: senders put messages directly into the receiver's queues.
    fn catch_up(&self, _rank: i32) {}
}

impl Wakeup for InprocTransport {
    fn rest(&self, seen: &mut u64, limit: Duration) -> bool {
        let Ok(own) = self.own() else { return false };
        let mut state = own.state.lock();
        if state.events == *seen && !state.transfers.iter().any(Transfer::has_left) {
            state.sleepers += 1;
            state = own.woken.wait_for(state, limit);
            state.sleepers -= 1;
        }
        *seen = state.events;
        true
    }
}
