//! Where in its table (`slab`) an object stands: to find it again in fewer steps than by its handle.

use super::cache;
use super::epoch::Guard;
use super::slab::Slot;
use crate::sys::sync::{Arc, AtomicPtr, AtomicU64, Ordering};
use std::num::NonZero;
use std::ptr;

/// Where an object stands or stood, to look for it there again.
pub struct Spot<T: 'static>(Option<&'static Slot<T>>);

impl<T> Clone for Spot<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Spot<T> {}

impl<T> Spot<T> {
    #[inline(always)]
    pub(super) fn new(slot: Option<&'static Slot<T>>) -> Self {
        Spot(slot)
    }

    /// What stands there, if it is at that address.
    #[must_use]
    #[inline(always)]
    pub fn get(self, _inside: &Guard, address: NonZero<usize>) -> Option<&T> {
        let object = cache::usual(self.0)?.object_at(address)?;
        // SAFETY: as in `Table::get`.
        Some(unsafe { &*object })
    }

    /// A share of that.
    #[must_use]
    pub fn pin(self, inside: &Guard, address: NonZero<usize>) -> Option<Arc<T>> {
        let object: *const T = self.get(inside, address)?;
        // SAFETY: `object` came from Arc::into_raw, and the table's own share is alive as long as the guard.
        unsafe { Arc::increment_strong_count(object) };
        // SAFETY: takes over the share made in the line above.
        Some(unsafe { Arc::from_raw(object) })
    }
}

/// A spot and a handle that are told later, and once, by who puts the object into the table to whom he gives the handle. Who finds
/// the object otherwise, and at that moment, may read one of the two words.
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
    /// Tells them, before others ask.
    pub fn set(&self, spot: Spot<T>, handle: u64) {
        let slot = spot.0.map_or(ptr::null(), ptr::from_ref);
        self.slot.store(slot.cast_mut(), Ordering::Relaxed);
        self.handle.store(handle, Ordering::Relaxed);
    }

    /// The spot; nowhere before it was told.
    #[must_use]
    pub fn get(&self) -> Spot<T> {
        // SAFETY: null, or a slot of a table that lives for ever (`Table::spot`).
        Spot(unsafe { self.slot.load(Ordering::Relaxed).as_ref() })
    }

    /// The handle; 0 before it was told.
    #[must_use]
    pub fn handle(&self) -> u64 {
        self.handle.load(Ordering::Relaxed)
    }
}
