//! Accumulate and compare-and-swap on windows, executed by the target's network card on elements of
//! 8 bytes with fetch-and-add and compare-and-swap work requests.
//!
//! An integer sum is one fetch-and-add per element. Every other operation is a compare-and-swap
//! loop: the rank computes the new value of the element from a guess of the current value and swaps
//! it in if the guess is right. If the guess is wrong, the card returns the current value, which
//! becomes the next guess. A loop repeats only when another rank's operation on the element has
//! succeeded. The card writes the previous value of an element into a word of the library's
//! registered memory, because the program's memory is not necessarily registered.
//!
//! A card's atomic operations are atomic with respect to each other, but not with respect to those
//! of a processor (IBV_ATOMIC_HCA). So a rank also changes its own memory through its card, on a
//! queue pair that is connected to itself, and all ranks access a rank's memory through its first
//! rail. The program may load and store whole elements between a rank's RMA epochs, as with every
//! other kind of communicator, because the card writes the 8 bytes of an element at once.
//!
//! Order: a card executes the requests of a queue pair in order, but a loop may need several
//! requests. So no operation starts on elements of an unfinished loop or of an operation that has
//! started only some of its elements.

use super::atomic_op::{Atomic, AtomicKind, ELEMENT, Try, element_value};
use super::engine::RdmaEngine;
use super::operation::RdmaOperation;
use crate::abi::status::{DTL_ERROR_CONNECTION_LOST, DTL_SUCCESS};
use crate::backend::op_table::{Operations, done};
use crate::backend::rdma::endpoint::connect::busy;
use crate::backend::rdma::endpoint::peer::Peer;
use crate::backend::rdma::endpoint::qp_state::{InFlightWork, OnCompletion};
use crate::backend::rdma::verbs::qp::MrRange;
use crate::error::Result;
use crate::runtime::component::{OpId, TargetRange};
use crate::sys::memory::buf::{Addr, Region};

impl Peer {
    /// Returns the operation that waits for the result of a work request that may have changed an
    /// element; returns `None` if the work request is not atomic or only reads.
    pub(crate) fn answer_of(
        &self,
        flying: &InFlightWork,
        operations: &Operations<RdmaOperation>,
    ) -> Option<OpId> {
        let OnCompletion::Answer(slot) = flying.what else { return None };
        let op = self.results.tries.get(slot)?.op;
        let looks = matches!(
            operations.get(op),
            Some(RdmaOperation::Atomic(Atomic { how: AtomicKind::Look, .. }))
        );
        (!looks).then_some(op)
    }

    /// Posts the atomic work request whose result is written to result slot (registered word)
    /// `slot`; returns false if the request must be retried later.
    fn start_try(&mut self, slot: usize) -> Result<bool> {
        let Some(&Try { work, .. }) = self.results.tries.get(slot) else { return Ok(true) };
        let local = MrRange { region: self.slab.result(slot), lkey: self.lkey(), is_device: false };
        self.start(0, (work, local), OnCompletion::Answer(slot))
    }
}

impl RdmaEngine {
    pub(crate) fn begin_atomic(
        &mut self,
        window: Addr,
        to: TargetRange,
        how: AtomicKind,
        (from, result): (Region, Region),
    ) -> Result<OpId> {
        let (target, at) = self.place(window, to)?;
        self.reach(target)?;
        let Some(peer) = self.peers.get_mut(target) else { return Err(busy()) };
        let elements = at.addr..at.addr + to.len as u64;
        if !peer.results.admits(&elements) {
            return Err(busy());
        }
        let (window, count) = (window.get(), to.len / ELEMENT);
        let atomic = Atomic { target, window, at, how, from, result, count, begun: 0, over: 0 };
        let op = self.operations.add(RdmaOperation::Atomic(atomic))?;
        peer.results.held.push((op, elements));
        self.start_more(op);
        Ok(op)
    }

    /// Posts the work requests for the remaining elements of atomic operation `op`; returns true if
    /// all have been posted.
    pub(crate) fn start_atomics(&mut self, op: OpId) -> Result<bool> {
        let Some(RdmaOperation::Atomic(atomic)) = self.operations.get_mut(op) else {
            return Ok(true);
        };
        let Some(peer) = self.peers.get_mut(atomic.target) else { return Ok(true) };
        while let Some(slot) = peer.results.again.pop() {
            if !peer.start_try(slot)? {
                peer.results.again.push(slot);
                return Ok(false);
            }
        }
        while atomic.begun < atomic.count {
            let work = atomic.first(atomic.begun, peer.results.known);
            let one = Try { op, index: atomic.begun, work };
            let Some(slot) = peer.results.add(one) else { return Ok(false) };
            if !peer.start_try(slot)? {
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

    /// Completes with CONNECTION_LOST the operations whose atomic requests were in flight when the
    /// connection to `rank` broke.
    pub(crate) fn end_doubtful(&mut self, rank: usize, ops: &[OpId]) {
        for op in ops {
            let Some(peer) = self.peers.get_mut(rank) else { return };
            let Some(RdmaOperation::Atomic(_)) = self.operations.get(*op) else { continue };
            peer.results.forget(*op);
            self.failure = Some(format!(
                "rank {rank}: the connection broke while an element there was being changed: \
                 whether it was is not known (it is not changed \
                 any more); look at it, and change it again if it was not"
            ));
            self.finish(*op, done(rank, DTL_ERROR_CONNECTION_LOST, 0, 0));
        }
    }

    /// Processes the results that a peer's network card has returned.
    pub(crate) fn poll_results(&mut self, rank: usize) {
        while let Some(slot) = self.peers.get_mut(rank).and_then(|peer| peer.results.answered.pop())
        {
            if let Err(error) = self.hear_answer(rank, slot) {
                self.fail_here(rank, error);
            }
        }
    }

    fn hear_answer(&mut self, rank: usize, slot: usize) -> Result<()> {
        let Some(peer) = self.peers.get_mut(rank) else { return Ok(()) };
        let found = element_value(peer.slab.result(slot));
        let Some(one) = peer.results.tries.get_mut(slot) else { return Ok(()) };
        let Try { op, index, work } = *one;
        let Some(RdmaOperation::Atomic(atomic)) = self.operations.get_mut(op) else {
            return Ok(());
        };
        if let Some(next) = atomic.next(index, work, found) {
            one.work = next;
            if !peer.start_try(slot)? {
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
            self.finish(op, done(rank, DTL_SUCCESS, 0, 0));
        }
        Ok(())
    }
}
