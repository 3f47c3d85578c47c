//! Value that is read often and replaced rarely: readers take no lock and write no shared memory.
//!
//! A reader holds an [`epoch`] guard, so the value that it has obtained stays until that guard is
//! dropped. A writer allocates a new value, swaps the pointer and retires the old value. Memory
//! ordering: the swap releases the contents of the new value, and the reader's load acquires them.
//! That the old value outlives its readers follows from the argument of `epoch`, with the swap as
//! the unlinking. Writers must exclude each other (`runtime::dispatch` has a lock for them).

use super::epoch::{self, Guard};
use crate::sys::sync::{AtomicPtr, Ordering};

/// Read-copy-update cell with the current value.
pub struct Rcu<T> {
    now: AtomicPtr<T>,
}

impl<T: Send + Sync + 'static> Rcu<T> {
    /// Creates a cell with its first value.
    pub fn new(value: T) -> Self {
        Rcu { now: AtomicPtr::new(Box::into_raw(Box::new(value))) }
    }

    /// Returns the current value, valid for as long as the guard lives.
    #[must_use]
    #[inline]
    pub fn get<'g>(&'g self, _inside: &'g Guard) -> &'g T {
        let now = self.now.load(Ordering::Acquire);
        // SAFETY: the pointer comes from a box and is never null. While this thread is inside the
        // epoch, `replace` keeps the value that it has unlinked.
        unsafe { &*now }
    }

    /// Replaces the current value. The old value is dropped once its last reader has left.
    ///
    /// Consumes the guard, so that the caller has no reference to the old value by that guard.
    pub fn replace(&self, value: T, inside: Guard) {
        let before = self.now.swap(Box::into_raw(Box::new(value)), Ordering::AcqRel);
        // SAFETY: the pointer comes from a box, and the swap made this call its only owner.
        let before = unsafe { Box::from_raw(before) };
        let place = std::ptr::from_ref::<T>(&before).cast();
        epoch::retire(place, move || drop(before));
        drop(inside);
    }
}

impl<T> Drop for Rcu<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer comes from a box, and no other thread can access this cell any more.
        drop(unsafe { Box::from_raw(self.now.load(Ordering::Acquire)) });
    }
}
