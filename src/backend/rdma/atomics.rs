//! Accumulate and compare-and-swap on windows, executed by the target's network card on elements of
//! 8 bytes with fetch-and-add and compare-and-swap work requests.
//!
//! An integer sum is one fetch-and-add per element. Every other operation is a compare-and-swap
//! loop: the rank computes the new value of the element from a guess of the current value and swaps
//! it in if the guess is right. If the guess is wrong, the card returns the current value, which
//! becomes the next guess. A loop repeats only when another rank's operation on the element has
//! succeeded. The card writes the previous value of an element into a word of the slab, because the
//! program's memory may not be registered.
//!
//! A card's atomic operations are atomic with respect to each other, but not with respect to those
//! of a processor (IBV_ATOMIC_HCA). So a rank also changes its own memory through its card, on a
//! queue pair that is connected to itself, and all ranks access a rank's memory through its first
//! rail. The program may load and store whole elements between the epochs of a rank as with every
//! other kind, because the card writes 8 bytes at once.
//!
//! Order: a card executes the requests of a queue pair in order, but a loop may need several
//! requests. So no operation starts on elements of an unfinished loop or of an operation that has
//! started only some of its elements.

use super::engine::RdmaEngine;
use super::operation::RdmaOperation;
use super::rndv::done;
use crate::abi::status::DTL_ERROR_CONNECTION_LOST;
use crate::abi::word::{DTL_OP_NO_OP, dtl_dtype_t};
use crate::backend::op_table::Operations;
use crate::backend::p2p_protocol::Change;
use crate::backend::rdma::endpoint::connect::busy;
use crate::backend::rdma::endpoint::peer::Peer;
use crate::backend::rdma::endpoint::qp_state::{InFlightWork, OnCompletion};
use crate::backend::rdma::protocol::eager_slots::RESULTS;
use crate::backend::rdma::verbs::functions::ATOMIC_NONE;
use crate::backend::rdma::verbs::qp::{Piece, Remote, WorkRequest};
use crate::error::{Result, fail};
use crate::runtime::component::{Completion, OpId, Swap, TargetRange};
use crate::sys::compute::elements::{self, Update};
use crate::sys::memory::buf::{Addr, Region};
use std::ops::Range;

/// Size of an element in bytes.
const ELEMENT: usize = 8;

/// Atomic operation in flight.
pub(in crate::backend::rdma) struct Atomic {
    pub(in crate::backend::rdma) target: usize,
    pub(in crate::backend::rdma) window: usize,
    /// Remote address and key of the first element.
    at: Remote,
    how: How,
    from: Region,
    result: Region,
    count: usize,
    /// Number of elements that have been tried at least once; `over` counts the completed elements.
    begun: usize,
    over: usize,
}

/// Method of changing an element.
#[derive(Clone, Copy)]
enum How {
    Look,
    Add,
    /// Swaps in the new value if the element equals this expected value.
    Swap(Region),
    Loop(&'static Update),
}

/// Work request in flight whose result arrives in a result slot.
#[derive(Clone, Copy)]
struct Try {
    op: OpId,
    /// Index of the element within the operation.
    index: usize,
    work: WorkRequest,
}

/// Result slots of a peer, and the order of operations on the peer's elements.
#[derive(Default)]
pub(in crate::backend::rdma) struct Results {
    tries: Vec<Try>,
    free: Vec<usize>,
    /// Result slots whose results have arrived.
    pub(in crate::backend::rdma) heard: Vec<usize>,
    /// Result slots whose work requests must be posted again because the queue pair had no room.
    again: Vec<usize>,
    /// Element addresses on which no other operation may start, with the blocking operation.
    held: Vec<(OpId, Range<u64>)>,
    /// Address of the element whose loop completed last, and its value afterwards.
    known: (u64, u64),
}

fn word(region: Region) -> u64 {
    let [word] = region.first_words();
    word
}

impl How {
    fn of(change: &Change) -> Result<How> {
        let (dtype, op) = (change.dtype, change.op);
        match elements::update(dtype, op).filter(|update| update.size() == ELEMENT) {
            Some(_) if op == DTL_OP_NO_OP => Ok(How::Look),
            Some(_) if elements::is_counter(dtype, op) => Ok(How::Add),
            Some(update) => Ok(How::Loop(update)),
            None => {
                fail!(
                    DTL_ERROR_NOT_SUPPORTED,
                    "the device does not apply operation {op} to dtype {dtype}"
                )
            }
        }
    }
}

impl Atomic {
    fn operand(&self, index: usize) -> Region {
        self.from.part(index * ELEMENT, ELEMENT)
    }

    fn is_loop(&self) -> bool {
        matches!(self.how, How::Loop(_))
    }

    /// Returns the first work request for element `index`; `known` is an address and its value.
    fn first(&self, index: usize, known: (u64, u64)) -> WorkRequest {
        let there = Remote { addr: self.at.addr + (index * ELEMENT) as u64, rkey: self.at.rkey };
        match self.how {
            How::Look => WorkRequest::FetchAdd(there, 0),
            How::Add => WorkRequest::FetchAdd(there, word(self.operand(index))),
            How::Swap(expected) => WorkRequest::CompareSwap(there, word(expected), word(self.from)),
            How::Loop(update) => {
                let guess = if known.0 == there.addr { known.1 } else { 0 };
                WorkRequest::CompareSwap(there, guess, update.made(guess, self.operand(index)))
            }
        }
    }

    /// Returns the next work request for the element at `index` after `tried` returned the value
    /// `found`; `None` if the element is completed.
    fn next(&self, index: usize, tried: WorkRequest, found: u64) -> Option<WorkRequest> {
        let (How::Loop(update), WorkRequest::CompareSwap(there, expected, _)) = (self.how, tried)
        else {
            return None;
        };
        let made = update.made(found, self.operand(index));
        // If the operation leaves the value unchanged, the value was correct when it was read.
        (found != expected && found != made).then_some(WorkRequest::CompareSwap(there, found, made))
    }
}

impl Results {
    fn has_place(&self) -> bool {
        !self.free.is_empty() || self.tries.len() < RESULTS
    }

    fn add(&mut self, one: Try) -> Option<usize> {
        if !self.has_place() {
            return None;
        }
        let slot = self.free.pop().unwrap_or(self.tries.len());
        match self.tries.get_mut(slot) {
            Some(known) => *known = one,
            None => self.tries.push(one),
        }
        Some(slot)
    }

    /// Returns true if a result slot is free and no other operation blocks any of `elements`.
    fn admits(&self, elements: &Range<u64>) -> bool {
        let is_apart = |held: &Range<u64>| held.end <= elements.start || elements.end <= held.start;
        self.has_place() && self.held.iter().all(|(_, held)| is_apart(held))
    }

    /// Allows later operations on the elements of `op`.
    fn release(&mut self, op: OpId) {
        if let Some(at) = self.held.iter().position(|(held, _)| *held == op) {
            self.held.swap_remove(at);
        }
    }

    /// Frees all result slots of `op`, removes its pending retries and unblocks its elements.
    fn forget(&mut self, op: OpId) {
        self.again.retain(|slot| self.tries.get(*slot).is_none_or(|one| one.op != op));
        let slots = (0..self.tries.len()).filter(|slot| !self.free.contains(slot));
        let its: Vec<_> =
            slots.filter(|slot| self.tries.get(*slot).is_some_and(|one| one.op == op)).collect();
        self.free.extend(its);
        self.release(op);
    }

    /// Frees the result slot of a completed element; for a loop, records the element's last value.
    fn end(&mut self, slot: usize, is_loop: bool, tried: WorkRequest, found: u64) {
        self.free.push(slot);
        if let (true, WorkRequest::CompareSwap(there, expected, made)) = (is_loop, tried) {
            self.known = (there.addr, if found == expected { made } else { found });
        }
    }
}

impl Peer {
    /// Returns the operation that waits for the result of a work request that may have changed an
    /// element; returns `None` if the work request is not atomic or only reads.
    pub(in crate::backend::rdma) fn answer_of(
        &self,
        flying: &InFlightWork,
        operations: &Operations<RdmaOperation>,
    ) -> Option<OpId> {
        let OnCompletion::Answer(slot) = flying.what else { return None };
        let op = self.results.tries.get(slot)?.op;
        let looks = matches!(
            operations.get(op),
            Some(RdmaOperation::Atomic(Atomic { how: How::Look, .. }))
        );
        (!looks).then_some(op)
    }

    /// Posts the work request of a result slot; returns false if the queue pair has no room.
    fn start_try(&mut self, rank: usize, slot: usize) -> Result<bool> {
        let Some(&Try { work, .. }) = self.results.tries.get(slot) else { return Ok(true) };
        let local = Piece { region: self.slab.result(slot), lkey: self.lkey(), is_device: false };
        self.start(rank, 0, work, local, OnCompletion::Answer(slot))
    }
}

impl RdmaEngine {
    /// Returns true if devices execute all operations on elements of `dtype` in this rank's memory.
    pub(in crate::backend::rdma) fn has_atomics(
        &self,
        window: Addr,
        dtype: dtl_dtype_t,
    ) -> Result<bool> {
        let memory = self.window(window)?.memory;
        let is_able = self.rails.first().is_some_and(|rail| {
            let limits = &rail.limits;
            limits.atomic_cap != ATOMIC_NONE
                && limits.max_qp_rd_atom > 0
                && limits.max_qp_init_rd_atom > 0
        });
        let is_aligned = memory.is_empty() || memory.addr().get() % ELEMENT == 0;
        Ok(is_able && is_aligned && elements::dtype_size(dtype) == Some(ELEMENT))
    }

    pub(in crate::backend::rdma) fn accumulate(
        &mut self,
        window: Addr,
        change: &Change,
    ) -> Result<OpId> {
        self.begin_atomic(window, change.to, How::of(change)?, (change.from, change.result))
    }

    pub(in crate::backend::rdma) fn compare_and_swap(
        &mut self,
        window: Addr,
        swap: Swap,
        to: TargetRange,
    ) -> Result<OpId> {
        self.begin_atomic(window, to, How::Swap(swap.expected), (swap.value, swap.result))
    }

    fn begin_atomic(
        &mut self,
        window: Addr,
        to: TargetRange,
        how: How,
        (from, result): (Region, Region),
    ) -> Result<OpId> {
        let (target, place) = self.place(window, to)?;
        self.reach(target)?;
        let Some(peer) = self.peers.get_mut(target) else { return Err(busy()) };
        let elements = place.addr..place.addr + to.len as u64;
        if !peer.results.admits(&elements) {
            return Err(busy());
        }
        let at = Remote { addr: place.addr, rkey: place.keys.first().copied().unwrap_or(0) };
        let (window, count) = (window.get(), to.len / ELEMENT);
        let atomic = Atomic { target, window, at, how, from, result, count, begun: 0, over: 0 };
        let op = self.operations.add(RdmaOperation::Atomic(atomic))?;
        peer.results.held.push((op, elements));
        self.start_more(op);
        Ok(op)
    }

    /// Starts the remaining elements of `op`; returns true if all of them have been started.
    pub(in crate::backend::rdma) fn start_atomics(&mut self, op: OpId) -> Result<bool> {
        let Some(RdmaOperation::Atomic(atomic)) = self.operations.get_mut(op) else {
            return Ok(true);
        };
        let Some(peer) = self.peers.get_mut(atomic.target) else { return Ok(true) };
        while let Some(slot) = peer.results.again.pop() {
            if !peer.start_try(atomic.target, slot)? {
                peer.results.again.push(slot);
                return Ok(false);
            }
        }
        while atomic.begun < atomic.count {
            let work = atomic.first(atomic.begun, peer.results.known);
            let one = Try { op, index: atomic.begun, work };
            let Some(slot) = peer.results.add(one) else { return Ok(false) };
            if !peer.start_try(atomic.target, slot)? {
                peer.results.free.push(slot);
                return Ok(false);
            }
            atomic.begun += 1;
        }
        if !atomic.is_loop() {
            peer.results.release(op);
        }
        Ok(true)
    }

    /// Completes operations with CONNECTION_LOST whose atomic requests were in flight when the
    /// connection to `rank` broke.
    pub(in crate::backend::rdma) fn end_doubtful(&mut self, rank: usize, ops: &[OpId]) {
        let source = i32::try_from(rank).unwrap_or(-1);
        for op in ops {
            let Some(peer) = self.peers.get_mut(rank) else { return };
            let Some(RdmaOperation::Atomic(_)) = self.operations.get(*op) else { continue };
            peer.results.forget(*op);
            self.said = Some(format!(
                "rank {rank}: the connection broke while an element there was being changed: \
                 whether it was is not known (it is not changed \
                 any more); look at it, and change it again if it was not"
            ));
            self.finish(
                *op,
                Completion { source, status: DTL_ERROR_CONNECTION_LOST, match_bits: 0, size: 0 },
            );
        }
    }

    /// Processes the results that a peer's card has returned.
    pub(in crate::backend::rdma) fn poll_results(&mut self, rank: usize) {
        while let Some(slot) = self.peers.get_mut(rank).and_then(|peer| peer.results.heard.pop()) {
            if let Err(error) = self.hear_answer(rank, slot) {
                self.fail_here(rank, error);
            }
        }
    }

    fn hear_answer(&mut self, rank: usize, slot: usize) -> Result<()> {
        let Some(peer) = self.peers.get_mut(rank) else { return Ok(()) };
        let found = word(peer.slab.result(slot));
        let Some(one) = peer.results.tries.get_mut(slot) else { return Ok(()) };
        let Try { op, index, work } = *one;
        let Some(RdmaOperation::Atomic(atomic)) = self.operations.get_mut(op) else {
            return Ok(());
        };
        if let Some(next) = atomic.next(index, work, found) {
            one.work = next;
            if !peer.start_try(rank, slot)? {
                peer.results.again.push(slot);
                if !self.unfinished.contains(&op) {
                    self.unfinished.push(op);
                }
            }
            return Ok(());
        }
        atomic.result.part(index * ELEMENT, ELEMENT).put_words(&[found]);
        peer.results.end(slot, atomic.is_loop(), work, found);
        atomic.over += 1;
        if atomic.over == atomic.count {
            peer.results.release(op);
            self.finish(op, done(rank, 0, 0));
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "tests/atomics.rs"]
mod tests;
