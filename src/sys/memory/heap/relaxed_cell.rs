//! Atomic numbers and pointers that one thread at a time writes and any thread may read.
//!
//! They are the fields of the descriptors of segments, slabs and heaps. Descriptors are reused but
//! never freed. So a pointer to a descriptor is a plain `&'static`, and a thread that still reads a
//! descriptor after it was reused may read outdated values but never accesses freed memory.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Number with one writer.
#[derive(Default)]
pub(super) struct Number(AtomicUsize);

impl Number {
    /// Returns the value.
    pub(super) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the value.
    pub(super) fn set(&self, value: usize) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds `value` with a separate load and store (no locked instruction). Only the single writer
    /// may call this.
    pub(super) fn add(&self, value: usize) {
        self.set(self.get().wrapping_add(value));
    }

    /// Subtracts `value` with a separate load and store (no locked instruction). Only the single
    /// writer may call this.
    pub(super) fn sub(&self, value: usize) {
        self.set(self.get().wrapping_sub(value));
    }

    /// Loads the value (acquire). All writes before the `publish` that stored this value are
    /// visible afterwards.
    pub(super) fn observe(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    /// Stores the value with release ordering. Earlier writes are visible to a thread that loads
    /// the value with `observe`.
    pub(super) fn publish(&self, value: usize) {
        self.0.store(value, Ordering::Release);
    }
}

/// Pointer to an object that lives forever, or null.
pub(super) struct RelaxedPtr<T: 'static>(AtomicPtr<T>);

impl<T> RelaxedPtr<T> {
    /// Creates a null pointer.
    pub(super) const fn none() -> Self {
        RelaxedPtr(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the target.
    pub(super) fn get(&self) -> Option<&'static T> {
        // SAFETY: null, or from a `&'static T` that was passed to `set`.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Sets the pointer to `target` with release ordering. Earlier writes to the target are visible
    /// to a thread that reads the pointer with `get`.
    pub(super) fn set(&self, target: Option<&'static T>) {
        self.0.store(
            target.map_or(ptr::null_mut(), |target| ptr::from_ref(target).cast_mut()),
            Ordering::Release,
        );
    }

    /// Returns true if the pointer refers to the object `target`.
    pub(super) fn is(&self, target: &T) -> bool {
        ptr::eq(self.0.load(Ordering::Relaxed), target)
    }
}
