//! Shared reference to a whole of which one part is used all the time. A direct reference to the
//! part is stored beside the reference to the whole, so that no use needs to go through the whole.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// Shared reference (`Arc`) to a whole, together with a direct reference to one part of it.
#[repr(C)]
pub struct OwningRef<T: ?Sized, W: ?Sized> {
    whole: Arc<W>,
    part: NonNull<T>,
}

// SAFETY: the value is an `Arc<W>` and a `&T`. The bounds are those under which both are Send.
unsafe impl<T: ?Sized + Sync, W: ?Sized + Send + Sync> Send for OwningRef<T, W> {}
// SAFETY: the value is an `Arc<W>` and a `&T`. The bounds are those under which both are Sync.
unsafe impl<T: ?Sized + Sync, W: ?Sized + Send + Sync> Sync for OwningRef<T, W> {}

impl<T: ?Sized, W: ?Sized> OwningRef<T, W> {
    /// Creates a reference to the part that `part` returns.
    pub fn new(whole: Arc<W>, part: impl FnOnce(&W) -> &T) -> Self {
        let part = NonNull::from(part(&whole));
        OwningRef { whole, part }
    }

    /// Creates a reference to a part that the whole may lack; `None` if `part` returns `None`.
    pub fn find(whole: Arc<W>, part: impl FnOnce(&W) -> Option<&T>) -> Option<Self> {
        let part = NonNull::from(part(&whole)?);
        Some(OwningRef { whole, part })
    }

    /// Returns the part of the whole.
    #[inline]
    pub fn part(&self) -> &T {
        // SAFETY: the pointer came from a reference that is valid as long as one to the whole (or
        // forever). The whole does not move, and lives as long as this `Arc`. No code changes it,
        // since no exclusive reference to it can be obtained while this `Arc` exists.
        unsafe { self.part.as_ref() }
    }
}

impl<T: ?Sized, W: ?Sized> Deref for OwningRef<T, W> {
    type Target = Arc<W>;

    fn deref(&self) -> &Arc<W> {
        &self.whole
    }
}

#[cfg(test)]
#[path = "tests/owning_ref.rs"]
mod tests;
