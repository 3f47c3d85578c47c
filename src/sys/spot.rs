//! Where in its table (`slab`) an object stands: to find it again in fewer steps than by its handle.

use super::epoch::Guard;
use super::slab::Slot;
use crate::sys::sync::{AtomicPtr, AtomicU64, Ordering};
use std::ptr;

/// Where an object stands or stood, to look for it there again.
pub struct Spot<T: 'static> {
    slot: Option<&'static Slot<T>>,
    handle: u64,
}

impl<T> Clone for Spot<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Spot<T> {}

impl<T> Spot<T> {
    pub(super) fn new(slot: Option<&'static Slot<T>>, handle: u64) -> Self {
        Spot { slot, handle }
    }

    /// The handle.
    #[must_use]
    #[inline(always)]
    pub fn handle(self) -> u64 {
        self.handle
    }

    /// What stands there under the handle, if it is at that address.
    #[must_use]
    #[inline(always)]
    pub fn get(self, _inside: &Guard, address: usize) -> Option<&T> {
        let object = self.slot?.object_at(self.handle, address)?;
        // SAFETY: as in `Table::get`.
        Some(unsafe { &*object })
    }
}

/// A spot that is told later, and once, by who puts the object into the table to whom he gives the handle. Who finds the object
/// otherwise, and at that moment, may read one of the two words: that is nowhere, as no slot has the handle 0.
#[repr(C)]
pub struct SpotCell<T: 'static> {
    handle: AtomicU64,
    slot: AtomicPtr<Slot<T>>,
}

impl<T> Default for SpotCell<T> {
    fn default() -> Self {
        SpotCell { handle: AtomicU64::new(0), slot: AtomicPtr::new(ptr::null_mut()) }
    }
}

impl<T> SpotCell<T> {
    /// Tells it, before others ask.
    pub fn set(&self, spot: Spot<T>) {
        let slot = spot.slot.map_or(ptr::null(), ptr::from_ref);
        self.slot.store(slot.cast_mut(), Ordering::Relaxed);
        self.handle.store(spot.handle, Ordering::Relaxed);
    }

    /// What was told.
    #[must_use]
    #[inline(always)]
    pub fn get(&self) -> Spot<T> {
        // SAFETY: null, or a slot of a table that lives for ever (`Table::spot`).
        let slot = unsafe { self.slot.load(Ordering::Relaxed).as_ref() };
        Spot { slot, handle: self.handle.load(Ordering::Relaxed) }
    }
}
