//! A value that is read often and replaced now and then, as a whole: readers take no lock and write
//! nothing shared.
//!
//! A reader holds an [`epoch`] guard, so what it has got stays until that is gone. A writer makes a
//! new value, swaps the pointer and retires the old one. Memory ordering: the swap releases what
//! the new value is made of, and the reader's load acquires it; that the old value outlives its
//! readers is the epoch's argument, with the swap as the unlinking. Writers keep themselves apart
//! (`runtime::dispatch` has a lock for them).

use super::epoch::{self, Guard};
use crate::sys::sync::{AtomicPtr, Ordering};

/// The value in force.
pub struct Rcu<T> {
    now: AtomicPtr<T>,
}

impl<T: Send + Sync + 'static> Rcu<T> {
    /// The first value.
    #[must_use]
    pub fn new(value: T) -> Self {
        Rcu { now: AtomicPtr::new(Box::into_raw(Box::new(value))) }
    }

    /// The value in force, for as long as the guard lives.
    #[must_use]
    #[inline]
    pub fn get<'g>(&'g self, _inside: &'g Guard) -> &'g T {
        let now = self.now.load(Ordering::Acquire);
        // SAFETY: from a box, never null; while this thread is inside, `replace` keeps what it has
        // unlinked.
        unsafe { &*now }
    }

    /// Puts another value in its place. The old one goes once its last reader has left.
    ///
    /// Takes the guard, so that the caller has no reference to the old value by it.
    pub fn replace(&self, value: T, inside: Guard) {
        let before = self.now.swap(Box::into_raw(Box::new(value)), Ordering::AcqRel);
        // SAFETY: from a box, and the swap made this call the only one to have it.
        let before = unsafe { Box::from_raw(before) };
        let place = std::ptr::from_ref::<T>(&before).cast();
        epoch::retire(place, move || drop(before));
        drop(inside);
    }
}

impl<T> Drop for Rcu<T> {
    fn drop(&mut self) {
        // SAFETY: from a box, and nobody else has this any more.
        drop(unsafe { Box::from_raw(self.now.load(Ordering::Acquire)) });
    }
}
