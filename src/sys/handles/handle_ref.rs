//! References to objects of a handle table (`handle_table`) that a call uses. Three states:
//!
//! - [`EpochRef`], or a plain reference that borrows a [`Guard`]: the thread is inside the epoch
//!   and must not wait.
//! - [`HazardRef`]: the thread is outside the epoch, and its record names the object. The thread
//!   may wait.
//! - `Arc`: an owned reference, by `HandleTable::pin`. It outlives the call.

use super::epoch::{Blocking, CallbackGuard, Guard, HazardPointer, Visit};
use crate::sys::sync::Arc;
use std::ops::Deref;
use std::ptr;

/// Reference to an object during a visit of the epoch. Dropping the reference ends the visit.
pub struct EpochRef<T> {
    pub(super) object: *const T,
    pub(super) visit: Visit,
}

impl<T> EpochRef<T> {
    /// Returns the guard of the visit that this reference belongs to.
    #[must_use]
    pub fn inside(&self) -> &Guard {
        &self.visit
    }

    /// Leaves the epoch with the object, for a call that may wait. Returns `None` if an outer call
    /// of this thread uses the hazard pointer.
    #[inline]
    pub fn into_hazard(self) -> Option<HazardRef<T>> {
        let object = self.object;
        let pointer = self.visit.into_hazard(object.cast())?;
        Some(HazardRef { object, _protection: Protection::Pointer { _pointer: pointer } })
    }

    /// Ends the visit to run a function of the program before the call ends.
    #[must_use]
    pub fn into_running(self) -> CallbackGuard {
        self.visit.into_running()
    }

    /// Narrows the reference to a part of the object; returns `None` if `part` returns `None`.
    #[inline]
    pub fn filter_map<U>(self, part: impl FnOnce(&T) -> Option<&U>) -> Option<EpochRef<U>> {
        let object = ptr::from_ref(part(&self)?);
        Some(EpochRef { object, visit: self.visit })
    }
}

impl<T> Deref for EpochRef<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `HandleTable::visit` had a reference that lives as long as the visit, and
        // `filter_map` had a reference that lives as long as the first one.
        unsafe { &*self.object }
    }
}

/// Reference to an object that stays alive while its user waits outside the epoch.
pub struct HazardRef<T> {
    object: *const T,
    /// Protection of the object; dropping it ends the protection.
    _protection: Protection<T>,
}

/// Protection that keeps the object of a [`HazardRef`] alive. A thread has one hazard pointer.
/// Calls nested in the call that uses it (from a function of the program) count references instead.
enum Protection<T> {
    Pointer { _pointer: HazardPointer },
    Count { _share: Arc<T>, _blocking: Blocking },
}

impl<T> HazardRef<T> {
    /// Leaves the epoch with an object. `pin` finds the object again for a counted reference.
    /// Returns `Err` with the guard if `pin` finds nothing.
    pub(super) fn new(
        inside: Guard,
        object: *const T,
        pin: impl FnOnce(&Guard) -> Option<Arc<T>>,
    ) -> Result<Self, Guard> {
        match inside.into_hazard(object.cast()) {
            Ok(pointer) => {
                Ok(HazardRef { object, _protection: Protection::Pointer { _pointer: pointer } })
            }
            Err(inside) => match pin(&inside) {
                Some(share) => {
                    let object = Arc::as_ptr(&share);
                    let _blocking = inside.into_blocking();
                    let _protection = Protection::Count { _share: share, _blocking };
                    Ok(HazardRef { object, _protection })
                }
                None => Err(inside),
            },
        }
    }

    /// Returns true if the object is kept alive by a counted reference.
    #[cfg(test)]
    pub(super) fn is_counted(&self) -> bool {
        matches!(self._protection, Protection::Count { .. })
    }
}

impl<T> Deref for HazardRef<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `_protection` keeps the object alive. With a hazard pointer, the thread's record
        // names the object until `_protection` is dropped, and `epoch::retire` frees no object that
        // a record names. Otherwise `_protection` has a counted reference to the object.
        unsafe { &*self.object }
    }
}
