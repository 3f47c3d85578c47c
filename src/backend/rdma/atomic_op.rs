//! Atomic operations in flight, and the result slots for the operations on a peer's memory: words
//! of registered memory to which the network card writes the results. `atomics` executes the
//! operations.

use crate::abi::word::{DTL_OP_NO_OP, dtl_dtype_t, dtl_reduce_op_t};
use crate::backend::rdma::protocol::eager_slots::RESULTS;
use crate::backend::rdma::verbs::qp::{Remote, WorkRequest};
use crate::error::{Result, fail};
use crate::runtime::component::OpId;
use crate::sys::compute::elements::{self, Update};
use crate::sys::memory::buf::Region;
use std::ops::Range;

/// Size of an element of an atomic operation, in bytes.
pub(crate) const ELEMENT: usize = 8;

/// Atomic operation in flight.
pub(crate) struct Atomic {
    pub(crate) target: usize,
    pub(crate) window: usize,
    /// Remote address of the first element, and the remote key (rkey) of its memory region.
    pub(crate) at: Remote,
    pub(crate) how: AtomicKind,
    pub(crate) from: Region,
    pub(crate) result: Region,
    pub(crate) count: usize,
    /// Number of elements whose first work request has been posted; `over` counts the completed
    /// elements.
    pub(crate) begun: usize,
    pub(crate) over: usize,
}

/// Method that an atomic operation uses to read or change an element.
#[derive(Clone, Copy)]
pub(crate) enum AtomicKind {
    Look,
    Add,
    /// Swaps in the new value if the element equals this expected value.
    Swap(Region),
    Loop(&'static Update),
}

/// Atomic work request in flight. The network card writes the previous value of the element to a
/// result slot (a word of registered memory).
#[derive(Clone, Copy)]
pub(crate) struct Try {
    pub(crate) op: OpId,
    /// Index of the element within the operation.
    pub(crate) index: usize,
    pub(crate) work: WorkRequest,
}

/// Result slots (words of registered memory) for the atomic operations on a peer's memory, and the
/// elements on which no further operation may start yet.
#[derive(Default)]
pub(crate) struct Results {
    pub(crate) tries: Vec<Try>,
    pub(crate) free: Vec<usize>,
    /// Indices of the result slots (words of registered memory) to which the network card has
    /// written a result.
    pub(crate) answered: Vec<usize>,
    /// Indices of the result slots (words of registered memory) whose work requests must be posted
    /// again because the send queue was full.
    pub(crate) again: Vec<usize>,
    /// Address ranges of elements on which no other operation may start, each with the operation
    /// that blocks it.
    pub(crate) held: Vec<(OpId, Range<u64>)>,
    /// Address of the element whose compare-and-swap loop completed last, and the value of the
    /// element after that loop.
    pub(crate) known: (u64, u64),
}

/// Returns the value of an element.
pub(crate) fn element_value(region: Region) -> u64 {
    let [word] = region.first_words();
    word
}

impl AtomicKind {
    pub(crate) fn of(dtype: dtl_dtype_t, op: dtl_reduce_op_t) -> Result<AtomicKind> {
        match elements::update(dtype, op).filter(|update| update.size() == ELEMENT) {
            Some(_) if op == DTL_OP_NO_OP => Ok(AtomicKind::Look),
            Some(_) if elements::is_counter(dtype, op) => Ok(AtomicKind::Add),
            Some(update) => Ok(AtomicKind::Loop(update)),
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
    pub(crate) fn operand(&self, index: usize) -> Region {
        self.from.part(index * ELEMENT, ELEMENT)
    }

    pub(crate) fn is_loop(&self) -> bool {
        matches!(self.how, AtomicKind::Loop(_))
    }

    /// Returns the first work request for element `index`; `known` is the address of an element and
    /// its last known value, from which a compare-and-swap loop starts.
    pub(crate) fn first(&self, index: usize, known: (u64, u64)) -> WorkRequest {
        let there = Remote { addr: self.at.addr + (index * ELEMENT) as u64, rkey: self.at.rkey };
        match self.how {
            AtomicKind::Look => WorkRequest::FetchAdd(there, 0),
            AtomicKind::Add => WorkRequest::FetchAdd(there, element_value(self.operand(index))),
            AtomicKind::Swap(expected) => {
                WorkRequest::CompareSwap(there, element_value(expected), element_value(self.from))
            }
            AtomicKind::Loop(update) => {
                let guess = if known.0 == there.addr { known.1 } else { 0 };
                WorkRequest::CompareSwap(there, guess, update.made(guess, self.operand(index)))
            }
        }
    }

    /// Returns the next work request for the element at `index` after `tried` returned the value
    /// `found`; `None` if the operation on this element is complete.
    pub(crate) fn next(&self, index: usize, tried: WorkRequest, found: u64) -> Option<WorkRequest> {
        let (AtomicKind::Loop(update), WorkRequest::CompareSwap(there, expected, _)) =
            (self.how, tried)
        else {
            return None;
        };
        let made = update.made(found, self.operand(index));
        // If the operation leaves the value unchanged, the value was correct when it was read.
        (found != expected && found != made).then_some(WorkRequest::CompareSwap(there, found, made))
    }
}

impl Results {
    pub(crate) fn has_place(&self) -> bool {
        !self.free.is_empty() || self.tries.len() < RESULTS
    }

    pub(crate) fn add(&mut self, one: Try) -> Option<usize> {
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

    /// Returns true if a result slot (word of registered memory) is free and no other operation
    /// blocks any element in the address range `elements`.
    pub(crate) fn admits(&self, elements: &Range<u64>) -> bool {
        let is_apart = |held: &Range<u64>| held.end <= elements.start || elements.end <= held.start;
        self.has_place() && self.held.iter().all(|(_, held)| is_apart(held))
    }

    /// Unblocks the elements of `op`, so that other operations on them may start.
    pub(crate) fn release(&mut self, op: OpId) {
        if let Some(at) = self.held.iter().position(|(held, _)| *held == op) {
            self.held.swap_remove(at);
        }
    }

    /// Frees all result slots (words of registered memory) of `op`, removes its pending retries and
    /// unblocks its elements.
    pub(crate) fn forget(&mut self, op: OpId) {
        self.again.retain(|slot| self.tries.get(*slot).is_none_or(|one| one.op != op));
        let slots = (0..self.tries.len()).filter(|slot| !self.free.contains(slot));
        let its: Vec<_> =
            slots.filter(|slot| self.tries.get(*slot).is_some_and(|one| one.op == op)).collect();
        self.free.extend(its);
        self.release(op);
    }

    /// Frees the result slot (word of registered memory) of a completed element; for a
    /// compare-and-swap loop, records the element's last value.
    pub(crate) fn end(&mut self, slot: usize, is_loop: bool, tried: WorkRequest, found: u64) {
        self.free.push(slot);
        if let (true, WorkRequest::CompareSwap(there, expected, made)) = (is_loop, tried) {
            self.known = (there.addr, if found == expected { made } else { found });
        }
    }
}

#[cfg(test)]
#[path = "tests/atomic_op.rs"]
mod tests;
