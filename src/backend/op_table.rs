//! Table of a transport's operations in flight. Operation IDs are never reused.

use crate::error::{Result, fail};
use crate::runtime::component::OpId;

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

/// Initial capacity, in operations; beyond that the table grows.
const ROOM: usize = 256;

impl<T> Operations<T> {
    /// Creates an empty table.
    pub fn new() -> Self {
        Operations { slots: Vec::with_capacity(ROOM), free: Vec::with_capacity(ROOM) }
    }

    /// Adds an operation and returns its ID. Fails if memory is exhausted.
    #[inline(always)] // row: shm_message_8
    pub fn add(&mut self, what: T) -> Result<OpId> {
        if let Some(index) = self.free.pop() {
            if let Some(slot) = self.slots.get_mut(index as usize) {
                slot.what = Some(what);
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
            self.slots.get(index_of(id)).filter(|slot| slot.generation == generation_of(id))?;
        slot.what.as_ref()
    }

    /// Returns the operation with ID `id`, or `None` if it was removed.
    #[must_use]
    pub fn get_mut(&mut self, id: OpId) -> Option<&mut T> {
        let slot =
            self.slots.get_mut(index_of(id)).filter(|slot| slot.generation == generation_of(id))?;
        slot.what.as_mut()
    }

    /// Removes and returns an operation and invalidates its ID; `None` if already removed.
    pub fn remove(&mut self, id: OpId) -> Option<T> {
        let index = index_of(id);
        let slot = self.slots.get_mut(index).filter(|slot| slot.generation == generation_of(id))?;
        let what = slot.what.take()?;
        // A slot with exhausted generations is not reused.
        if let Some(generation) = slot.generation.checked_add(1) {
            slot.generation = generation;
            // `grow` reserved space in `free` for the index of every slot.
            self.free.push(u32::try_from(index).ok()?);
        }
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

impl<T> Default for Operations<T> {
    fn default() -> Self {
        Self::new()
    }
}

fn id_of(index: u32, generation: u32) -> OpId {
    OpId(u64::from(generation) << 32 | u64::from(index))
}

fn index_of(id: OpId) -> usize {
    (id.0 & 0xFFFF_FFFF) as usize
}

fn generation_of(id: OpId) -> u32 {
    (id.0 >> 32) as u32
}

#[cfg(test)]
#[path = "tests/op_table.rs"]
mod tests;
