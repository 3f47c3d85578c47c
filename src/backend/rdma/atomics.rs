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
use crate::sys::compute::reduce;
use crate::sys::compute::shared_atomics::{self, Update};
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
        match shared_atomics::update(dtype, op).filter(|update| update.size() == ELEMENT) {
            Some(_) if op == DTL_OP_NO_OP => Ok(How::Look),
            Some(_) if shared_atomics::is_counter(dtype, op) => Ok(How::Add),
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
        Ok(is_able && is_aligned && reduce::dtype_size(dtype) == Some(ELEMENT))
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
mod tests {
    use super::*;
    use crate::abi::word::*;
    use crate::sys::memory::buf::Scratch;

    const AT: Remote = Remote { addr: 4096, rkey: 7 };

    fn atomic(how: How, from: &Scratch) -> Atomic {
        let (from, result) = (from.region(), Region::EMPTY);
        Atomic { target: 0, window: 1, at: AT, how, from, result, count: 1, begun: 0, over: 0 }
    }

    /// Emulates a card: executes `work` on `element` and returns the previous value.
    fn card(element: &mut u64, work: WorkRequest) -> u64 {
        let was = *element;
        match work {
            WorkRequest::FetchAdd(_, add) => *element = was.wrapping_add(add),
            WorkRequest::CompareSwap(_, expected, made) if was == expected => *element = made,
            _ => {}
        }
        was
    }

    fn change(dtype: dtl_dtype_t, op: dtl_reduce_op_t) -> Change {
        let to = TargetRange { target: 0, offset: 0, len: 8 };
        Change { from: Region::EMPTY, result: Region::EMPTY, dtype, op, count: 1, to }
    }

    #[test]
    fn loops_end_with_what_the_library_computes() {
        let bits = f64::to_bits;
        let values = [0, 1, 5, u64::MAX, bits(1.5), bits(-0.0), bits(f64::NAN), 3 << 32 | 9];
        for dtype in DTL_DTYPE_INT8..=DTL_DTYPE_INT64_INT64 {
            for op in DTL_OP_SUM..=DTL_OP_NO_OP {
                let (Some(update), true) =
                    (shared_atomics::update(dtype, op), reduce::dtype_size(dtype) == Some(8))
                else {
                    assert!(How::of(&change(dtype, op)).is_err());
                    continue;
                };
                let how = How::of(&change(dtype, op)).expect("a way");
                assert_eq!(
                    matches!(how, How::Add | How::Look),
                    op == DTL_OP_NO_OP || shared_atomics::is_counter(dtype, op)
                );
                for (before, operand) in
                    values.iter().flat_map(|a| values.iter().map(move |b| (*a, *b)))
                {
                    let from = Scratch::of_words(&[operand]).expect("memory");
                    let atomic = atomic(how, &from);
                    // Another rank changes the element in the first rounds.
                    let (mut element, mut others) = (before, values.into_iter().take(3));
                    let mut work = atomic.first(0, (AT.addr, operand));
                    let found = loop {
                        element = if atomic.is_loop() {
                            others.next().unwrap_or(element)
                        } else {
                            element
                        };
                        let found = card(&mut element, work);
                        match atomic.next(0, work, found) {
                            Some(next) => work = next,
                            None => break found,
                        }
                    };
                    assert_eq!(
                        element,
                        update.made(found, from.region()),
                        "{dtype} {op} {found:x} {operand:x}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_guess_that_is_right_needs_one_round() {
        let from = Scratch::of_words(&[5]).expect("memory");
        let how = How::of(&change(DTL_DTYPE_UINT64, DTL_OP_PROD)).expect("a way");
        let (mut element, atomic, mut results) = (3, atomic(how, &from), Results::default());
        let work = atomic.first(0, (AT.addr, 3));
        let found = card(&mut element, work);
        assert!(atomic.next(0, work, found).is_none());
        results.end(0, true, work, found);
        assert_eq!((found, element, results.known), (3, 15, (AT.addr, 15)));
        // An unchanged value becomes the next guess too. No guess exists for other elements.
        let WorkRequest::CompareSwap(_, guess, _) = atomic.first(1, results.known) else {
            panic!("no loop")
        };
        assert_eq!(guess, 0);
        results.end(0, true, work, 77);
        assert_eq!(results.known, (AT.addr, 77));
    }

    #[test]
    fn who_swaps_tries_once() {
        let (from, expected) =
            (Scratch::of_words(&[5]).expect("memory"), Scratch::of_words(&[2]).expect("memory"));
        let atomic = atomic(How::Swap(expected.region()), &from);
        for (before, after) in [(2, 5), (3, 3)] {
            let (mut element, work) = (before, atomic.first(0, (AT.addr, before)));
            let found = card(&mut element, work);
            assert!(atomic.next(0, work, found).is_none());
            assert_eq!((found, element), (before, after));
        }
    }

    #[test]
    fn elements_are_held_and_places_are_few() {
        let mut results = Results::default();
        results.held.push((OpId(1), 64..80));
        results.held.push((OpId(2), 96..104));
        assert!(
            results.admits(&(56..64)) && results.admits(&(80..96)) && results.admits(&(104..112))
        );
        assert!(![56..72, 72..80, 0..200, 96..104].iter().any(|elements| results.admits(elements)));
        results.release(OpId(1));
        results.release(OpId(3));
        assert!(results.admits(&(56..96)) && !results.admits(&(56..97)));
        let one = Try { op: OpId(2), index: 0, work: WorkRequest::FetchAdd(AT, 1) };
        for slot in 0..RESULTS {
            assert_eq!(results.add(one), Some(slot));
        }
        assert!(results.add(one).is_none() && !results.admits(&(0..8)));
        results.end(9, false, one.work, 0);
        assert_eq!((results.add(one), results.known), (Some(9), (0, 0)));
    }
}
