//! Table of a transport's operations in flight. Operation IDs are never reused.

use super::match_queues::{Matcher, UnexpectedMessage};
use crate::abi::status::*;
use crate::error::{Result, fail};
use crate::runtime::component::{Completion, Matched, OpId, Selector};
use crate::sys::memory::buf::Region;

/// Table of operations in flight. An ID has the slot index in its low 32 bits and the slot's
/// generation in its high 32 bits.
pub struct Operations<T> {
    slots: Vec<OpSlot<T>>,
    free: Vec<u32>,
}

struct OpSlot<T> {
    generation: u32,
    what: Option<T>,
}

impl<T> OpSlot<T> {
    /// Adds the slot, whose operation `id` has been removed, to the list of free slots.
    #[inline]
    fn recycle(&mut self, id: OpId, free: &mut Vec<u32>) {
        // A slot with exhausted generations is not reused.
        if let Some(generation) = self.generation.checked_add(1) {
            self.generation = generation;
            // `grow` reserved space in `free` for the index of every slot.
            free.push(id.0 as u32);
        }
    }
}

/// Initial capacity, in operations; beyond that the table grows.
const ROOM: usize = 256;

impl<T> Operations<T> {
    /// Adds an operation and returns its ID. Fails if memory is exhausted.
    #[inline(always)] // row: shm_message_8
    pub fn add(&mut self, what: T) -> Result<OpId> {
        if let Some(index) = self.free.pop() {
            if let Some(slot) = self.slots.get_mut(index as usize) {
                // Written in place, because a free slot has no operation to be dropped.
                slot.what.get_or_insert(what);
                return Ok(id_of(index, slot.generation));
            }
        }
        self.grow(what)
    }

    #[cold]
    fn grow(&mut self, what: T) -> Result<OpId> {
        let grown =
            self.slots.try_reserve(1).and_then(|()| self.free.try_reserve(self.slots.len() + 1));
        let (Ok(()), Ok(index)) = (grown, u32::try_from(self.slots.len())) else {
            return fail!(
                DTL_ERROR_OUT_OF_MEMORY,
                "no memory for one more operation beside {} in flight; wait for some of them",
                self.slots.len()
            );
        };
        self.slots.push(OpSlot { generation: 0, what: Some(what) });
        Ok(id_of(index, 0))
    }

    /// Returns the operation with ID `id`, or `None` if it was removed.
    pub fn get(&self, id: OpId) -> Option<&T> {
        let slot =
            self.slots.get(slot_of(id)).filter(|slot| slot.generation == generation_of(id))?;
        slot.what.as_ref()
    }

    /// Returns the operation with ID `id`, or `None` if it was removed.
    pub fn get_mut(&mut self, id: OpId) -> Option<&mut T> {
        let slot =
            self.slots.get_mut(slot_of(id)).filter(|slot| slot.generation == generation_of(id))?;
        slot.what.as_mut()
    }

    /// Removes and returns an operation and invalidates its ID; `None` if already removed.
    pub fn remove(&mut self, id: OpId) -> Option<T> {
        let slot =
            self.slots.get_mut(slot_of(id)).filter(|slot| slot.generation == generation_of(id))?;
        let what = slot.what.take()?;
        slot.recycle(id, &mut self.free);
        Some(what)
    }

    /// Iterates over all operations in flight, with their IDs.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (OpId, &mut T)> {
        (0_u32..).zip(&mut self.slots).filter_map(|(index, slot)| {
            let id = id_of(index, slot.generation);
            slot.what.as_mut().map(|what| (id, what))
        })
    }
}

/// An empty table.
impl<T> Default for Operations<T> {
    fn default() -> Self {
        Operations { slots: Vec::with_capacity(ROOM), free: Vec::with_capacity(ROOM) }
    }
}

/// In-flight operation of a transport that implements message matching itself. `S`, `R` and `U` are
/// the transport's descriptors of a send, a receive and an unexpected message.
pub enum Operation<S, R, U> {
    /// A send.
    Send(S),
    /// A receive.
    Receive(R),
    /// A message that a matched probe removed from the queue; it is received later.
    Taken(UnexpectedMessage<U>),
    /// A message that its sender canceled after a matched probe removed it from the queue. The
    /// value is the completion that a later receive of the message returns.
    Withdrawn(Completion),
    /// A collective that the raw transport executes.
    Collective,
    /// A completed operation.
    Done(Completion),
}

impl<S, R, U> Operations<Operation<S, R, U>> {
    /// Completes an operation.
    #[inline]
    pub fn finish(&mut self, id: OpId, done: Completion) {
        if let Some(operation) = self.get_mut(id) {
            *operation = Operation::Done(done);
        }
    }

    /// If an operation is complete, stores its completion, removes the operation and returns true.
    #[inline]
    pub fn test(&mut self, id: OpId, completion: &mut Completion) -> Result<bool> {
        let slot =
            self.slots.get_mut(slot_of(id)).filter(|slot| slot.generation == generation_of(id));
        match slot {
            Some(slot @ OpSlot { what: Some(Operation::Done(_)), .. }) => {
                // Not moved out by `remove`: a copy of the whole operation takes longer than the
                // rest of the test.
                if let Some(Operation::Done(done)) = slot.what {
                    *completion = done;
                }
                slot.what = None;
                slot.recycle(id, &mut self.free);
                Ok(true)
            }
            Some(OpSlot { what: Some(_), .. }) => Ok(false),
            _ => fail!(DTL_ERROR_INVALID_HANDLE, "operation {:#x} is over or never was", id.0),
        }
    }

    /// Implements a matched probe: removes the message that a receive with the selector `select`
    /// would match now, and reserves it for one later receive. `done` is the completion that a
    /// probe with the same selector has returned for the message.
    pub fn take<P: PartialEq>(
        &mut self,
        matcher: &mut Matcher<P, U>,
        select: &Selector,
        done: Completion,
    ) -> Result<Matched> {
        // The slot is allocated first, so that no message is lost if there is no memory.
        let message = self.add(Operation::Done(done))?;
        if let (Some(taken), Some(place)) = (matcher.take_unexpected(select), self.get_mut(message))
        {
            *place = Operation::Taken(taken);
        }
        Ok(Matched { message, done })
    }

    /// Starts the receive of a message that a matched probe has reserved. Replaces the message's
    /// entry in the table with `receive`, and returns the message. If the sender has canceled the
    /// message, completes the receive and returns `None`.
    pub fn start_matched(
        &mut self,
        message: OpId,
        receive: R,
    ) -> Result<Option<UnexpectedMessage<U>>> {
        match self.get_mut(message) {
            Some(place @ Operation::Taken(_)) => {
                match std::mem::replace(place, Operation::Receive(receive)) {
                    Operation::Taken(taken) => Ok(Some(taken)),
                    _ => Ok(None),
                }
            }
            Some(place @ &mut Operation::Withdrawn(done)) => {
                *place = Operation::Done(done);
                Ok(None)
            }
            _ => fail!(
                DTL_ERROR_INVALID_HANDLE,
                "message {:#x} was received or never taken",
                message.0
            ),
        }
    }

    /// Cancels the message from rank `from` for which `is` returns true, unless its receive has
    /// started. Returns true if the message was canceled.
    pub fn cancel_message<P: PartialEq>(
        &mut self,
        matcher: &mut Matcher<P, U>,
        from: i32,
        is: impl Fn(&U) -> bool,
    ) -> bool {
        matcher.remove_unexpected(from, &is).is_some() || self.cancel_taken(from, is)
    }

    /// Marks as canceled all messages from rank `from` that a matched probe has reserved and for
    /// which `is` returns true. Returns true if there was such a message.
    pub fn cancel_taken(&mut self, from: i32, is: impl Fn(&U) -> bool) -> bool {
        let mut found = false;
        for (_, operation) in self.iter_mut() {
            let Operation::Taken(taken) = operation else { continue };
            if taken.source == from && is(&taken.what) {
                let (status, match_bits) = (DTL_ERROR_CANCELED, taken.match_bits);
                *operation =
                    Operation::Withdrawn(Completion { source: from, status, match_bits, size: 0 });
                found = true;
            }
        }
        found
    }
}

/// Converts a rank to `i32`, the type that the component traits use.
pub fn rank_of(rank: usize) -> i32 {
    i32::try_from(rank).unwrap_or(i32::MAX)
}

/// Converts a rank to an index. A negative number becomes an index that no rank has.
pub fn index_of(rank: i32) -> usize {
    usize::try_from(rank).unwrap_or(usize::MAX)
}

/// Returns the completion of a receive of a message from rank `source`.
pub fn done(source: usize, status: dtl_status_t, word: u64, size: u64) -> Completion {
    Completion { source: rank_of(source), status, match_bits: word, size }
}

/// Returns DTL_ERROR_TRUNCATED if a message of `size` bytes does not fit into the receive buffer
/// `into`, else DTL_SUCCESS.
pub fn fitting(size: u64, into: Region) -> dtl_status_t {
    if size > into.len() as u64 { DTL_ERROR_TRUNCATED } else { DTL_SUCCESS }
}

fn id_of(index: u32, generation: u32) -> OpId {
    OpId(u64::from(generation) << 32 | u64::from(index))
}

fn slot_of(id: OpId) -> usize {
    (id.0 & 0xFFFF_FFFF) as usize
}

fn generation_of(id: OpId) -> u32 {
    (id.0 >> 32) as u32
}

#[cfg(test)]
#[path = "tests/op_table.rs"]
mod tests;
