//! Objects of a table (`slab`) in the hands of a call: for a short stay inside the epoch, or while
//! it waits outside.

use super::epoch::{Blocking, Guard, Holding, Running, Visit};
use crate::sys::sync::Arc;
use std::ptr;

/// An object for a short stay, which ends with this.
pub struct Visited<T> {
    pub(super) object: *const T,
    pub(super) stay: Visit,
}

impl<T> Visited<T> {
    /// The stay.
    #[must_use]
    #[inline(always)]
    pub fn inside(&self) -> &Guard {
        &self.stay
    }

    /// The object for a call that waits, without a share of it. `None`: a call further up this
    /// thread holds something already.
    #[must_use]
    #[inline(always)]
    pub fn keep(self) -> Option<Kept<T>> {
        let object = self.object;
        let noted = self.stay.into_holding(object.cast())?;
        Some(Kept { object, noted })
    }

    /// Ends the stay for a function of the program's that runs before the call is over.
    #[must_use]
    #[inline(always)]
    pub fn into_running(self) -> Running {
        self.stay.into_running()
    }

    /// A part of it.
    #[must_use]
    #[inline(always)]
    pub fn part<U>(self, of: impl FnOnce(&T) -> Option<&U>) -> Option<Visited<U>> {
        let object = ptr::from_ref(of(&self)?);
        Some(Visited { object, stay: self.stay })
    }
}

impl<T> std::ops::Deref for Visited<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: `slab::Table::visit` had a reference that lives as long as the stay, and `part`
        // one that lives as long as that.
        unsafe { &*self.object }
    }
}

/// An object that stays alive while its holder waits outside the epoch.
pub enum Held<T> {
    /// By the thread's note.
    Noted(Kept<T>),
    /// By a share of its own.
    Shared(Arc<T>, Blocking),
}

impl<T> std::ops::Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Held::Noted(kept) => kept,
            Held::Shared(share, _) => share,
        }
    }
}

/// The same by nothing but a note in the thread's record.
pub struct Kept<T> {
    pub(super) object: *const T,
    pub(super) noted: Holding,
}

impl<T> Kept<T> {
    /// The thread's (`epoch::thread_mark`).
    #[must_use]
    #[inline(always)]
    pub fn mark(&self) -> usize {
        self.noted.record.mark()
    }
}

impl<T> std::ops::Deref for Kept<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the thread's record names the object as held until `noted` is dropped, and
        // `epoch::retire` frees nothing that a record names.
        unsafe { &*self.object }
    }
}
