//! References to slots of a handle table (`handle_table`): faster look-ups than by handle alone.

use super::epoch::Guard;
use super::handle_table::HandleSlot;
use crate::sys::sync::{AtomicPtr, AtomicU64, Ordering, hints};
use std::ptr;

/// Reference to a slot, for use with the handle of an object that is or was in the slot. Another
/// object may later be in this slot, even at an equal address.
pub struct SlotRef<T: 'static>(Option<&'static HandleSlot<T>>);

impl<T> Clone for SlotRef<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SlotRef<T> {}

impl<T> SlotRef<T> {
    pub(super) fn new(slot: Option<&'static HandleSlot<T>>) -> Self {
        SlotRef(slot)
    }

    /// Returns the object, or `None` if `handle` is stale.
    #[must_use]
    #[inline]
    pub fn get(self, _inside: &Guard, handle: u64) -> Option<&T> {
        let object = hints::usual(self.0)?.object_of(handle)?;
        // SAFETY: the pointer was in the slot while this thread was inside the epoch, and `remove`
        // clears it before it releases the object, so the object lives as long as the guard.
        Some(unsafe { &*object })
    }
}

/// Slot and handle of an object, stored in the object. Set once, by the thread that inserts the
/// object, before it passes the handle on. A thread that finds the object in another way at that
/// moment may read one word set and the other not.
pub struct SlotRefCell<T: 'static> {
    slot: AtomicPtr<HandleSlot<T>>,
    handle: AtomicU64,
}

impl<T> Default for SlotRefCell<T> {
    fn default() -> Self {
        SlotRefCell { slot: AtomicPtr::new(ptr::null_mut()), handle: AtomicU64::new(0) }
    }
}

impl<T> SlotRefCell<T> {
    /// Sets the slot and the handle.
    pub fn set(&self, slot: SlotRef<T>, handle: u64) {
        let slot = slot.0.map_or(ptr::null(), ptr::from_ref);
        self.slot.store(slot.cast_mut(), Ordering::Relaxed);
        self.handle.store(handle, Ordering::Relaxed);
    }

    /// Returns the slot; before `set`, a slot reference without an object.
    pub fn get(&self) -> SlotRef<T> {
        // SAFETY: null, or a slot of a table that lives forever (`HandleTable::slot_ref`).
        SlotRef(unsafe { self.slot.load(Ordering::Relaxed).as_ref() })
    }

    /// Returns the handle; 0 before `set`.
    pub fn handle(&self) -> u64 {
        self.handle.load(Ordering::Relaxed)
    }
}
