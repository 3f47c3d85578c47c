//! Table of objects that are identified by small numbers (user-defined dtypes and reduction
//! operations). A number is never reused and always identifies the same object, so a lookup takes
//! no lock. Objects whose handles contain a generation number are in `sys::handles::handle_table`.

use crate::runtime::append_only_table::{AppendOnlyTable, CHUNK};
use crate::sys::sync::AtomicUpdate;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// First number that is assigned to user-defined objects.
pub(super) const FIRST: i32 = 4096;
/// Maximum number of objects that can be added to a table during the life of the process.
pub(super) const LIMIT: usize = 1 << 16;

struct IdSlot<T> {
    value: T,
    destroyed: AtomicBool,
}

/// Result of looking up a number.
pub(super) enum IdLookup<'a, T> {
    Live(&'a T),
    Destroyed,
    Never,
}

/// Table of values that are identified by consecutive numbers, starting at `first`. Values stay in
/// memory after they are destroyed.
pub(super) struct IdTable<T: 'static> {
    first: i32,
    next: AtomicUsize,
    slots: AppendOnlyTable<IdSlot<T>, { LIMIT / CHUNK }>,
}

impl<T> IdTable<T> {
    /// Creates an empty table. Tables whose `first` values differ by [`LIMIT`] or more share no
    /// numbers.
    pub(super) const fn new(first: i32) -> Self {
        IdTable { first, next: AtomicUsize::new(0), slots: AppendOnlyTable::new() }
    }

    /// Adds a value and returns its number; `None` if all numbers are used up.
    pub(super) fn add(&self, value: T) -> Option<i32> {
        let more = |next| (next < LIMIT).then_some(next + 1);
        let index = self.next.checked_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        self.slots.set(index, IdSlot { value, destroyed: AtomicBool::new(false) })?;
        Some(self.first + index as i32)
    }

    fn slot(&self, number: i32) -> Option<&IdSlot<T>> {
        self.slots.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    pub(super) fn find(&self, number: i32) -> IdLookup<'_, T> {
        match self.slot(number) {
            Some(slot) if slot.destroyed.load(Ordering::Acquire) => IdLookup::Destroyed,
            Some(slot) => IdLookup::Live(&slot.value),
            None => IdLookup::Never,
        }
    }

    /// Returns the value with the given number, even if the value was destroyed.
    pub(super) fn ever(&self, number: i32) -> Option<&T> {
        self.slot(number).map(|slot| &slot.value)
    }

    /// Destroys the object with the given number. If two threads destroy the same object
    /// concurrently, one of the calls returns `Destroyed`.
    pub(super) fn destroy(&self, number: i32) -> IdLookup<'_, T> {
        match self.slot(number) {
            Some(slot) if slot.destroyed.swap(true, Ordering::AcqRel) => IdLookup::Destroyed,
            Some(slot) => IdLookup::Live(&slot.value),
            None => IdLookup::Never,
        }
    }

    pub(super) fn destroy_all(&self) {
        let given = self.next.load(Ordering::Relaxed);
        for slot in (0..given).filter_map(|index| self.slots.get(index)) {
            slot.destroyed.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
#[path = "tests/id_table.rs"]
mod tests;
