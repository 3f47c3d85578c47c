//! Where in its table (`slab`) an object stands: to find it again in fewer steps than by its handle
//! alone.

use super::cache;
use super::epoch::Guard;
use super::slab::Slot;
use crate::sys::sync::{Arc, AtomicPtr, AtomicU64, Ordering};
use std::ptr;

/// Where an object stands or stood, and its handle: in the same place, and at the same address,
/// there may be another one later.
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
    #[inline(always)]
    pub(super) fn new(slot: Option<&'static Slot<T>>, handle: u64) -> Self {
        Spot { slot, handle }
    }

    /// The object's handle; 0: of a spot that is nowhere.
    #[must_use]
    #[inline(always)]
    pub fn handle(self) -> u64 {
        self.handle
    }

    /// The object, unless its handle is stale.
    #[must_use]
    #[inline(always)]
    pub fn get(self, _inside: &Guard) -> Option<&T> {
        let object = cache::usual(self.slot)?.object_of(self.handle)?;
        // SAFETY: as in `Table::get`.
        Some(unsafe { &*object })
    }

    /// Its place, where its handle is kept elsewhere.
    #[must_use]
    #[inline(always)]
    pub fn place(self) -> Place<T> {
        Place(self.slot)
    }

    /// A share of it.
    #[must_use]
    pub fn pin(self, _inside: &Guard) -> Option<Arc<T>> {
        let object = cache::usual(self.slot)?.object_of(self.handle)?;
        // SAFETY: as in `Table::pin`.
        unsafe { Arc::increment_strong_count(object) };
        // SAFETY: takes over the share made in the line above.
        Some(unsafe { Arc::from_raw(object) })
    }
}

/// A spot without its handle.
pub struct Place<T: 'static>(Option<&'static Slot<T>>);

impl<T> Place<T> {
    /// The spot.
    #[must_use]
    #[inline(always)]
    pub fn spot(&self, handle: u64) -> Spot<T> {
        Spot { slot: self.0, handle }
    }
}

/// A spot that is told later, and once, by who puts the object into the table to whom he gives the
/// handle. Who finds the object otherwise, and at that moment, may read one of the two words.
pub struct SpotCell<T: 'static> {
    slot: AtomicPtr<Slot<T>>,
    handle: AtomicU64,
}

impl<T> Default for SpotCell<T> {
    fn default() -> Self {
        SpotCell { slot: AtomicPtr::new(ptr::null_mut()), handle: AtomicU64::new(0) }
    }
}

impl<T> SpotCell<T> {
    /// Tells it, before others ask.
    pub fn set(&self, spot: Spot<T>) {
        let slot = spot.slot.map_or(ptr::null(), ptr::from_ref);
        self.slot.store(slot.cast_mut(), Ordering::Relaxed);
        self.handle.store(spot.handle, Ordering::Relaxed);
    }

    /// The spot; nowhere before it was told.
    #[must_use]
    pub fn get(&self) -> Spot<T> {
        // SAFETY: null, or a slot of a table that lives for ever (`Table::spot`).
        let slot = unsafe { self.slot.load(Ordering::Relaxed).as_ref() };
        Spot { slot, handle: self.handle() }
    }

    /// The handle; 0 before it was told.
    #[must_use]
    pub fn handle(&self) -> u64 {
        self.handle.load(Ordering::Relaxed)
    }
}
