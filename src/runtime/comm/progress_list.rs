//! List of objects that need progress, served a few at a time in round-robin order.

use crate::sys::sync::lock::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Number of listed objects on which one call makes progress, in round-robin order.
pub(crate) const TURNS: usize = 4;

/// List of objects that need progress. Their number is stored outside the lock, so that a caller
/// can skip an empty list without locking it. Only [`ProgressList::live`] and
/// [`ProgressList::clear`] take time proportional to the number of objects.
pub(crate) struct ProgressList<T: ?Sized> {
    all: Mutex<Listed<T>>,
    count: AtomicUsize,
}

struct Listed<T: ?Sized> {
    /// Listed objects by address. The address of a listed object is not reused, because the weak
    /// reference keeps the object's allocation alive.
    by_address: BTreeMap<usize, Weak<T>>,
    /// Address of the object that was served last.
    last: usize,
}

impl<T: ?Sized> ProgressList<T> {
    pub(crate) const fn new() -> Self {
        ProgressList {
            all: Mutex::new(Listed { by_address: BTreeMap::new(), last: 0 }),
            count: AtomicUsize::new(0),
        }
    }

    /// Adds an object. [`ProgressList::remove`] must be called before the object's memory is freed.
    pub(crate) fn add(&self, what: &Arc<T>) {
        let mut all = self.all.lock();
        all.by_address.insert(Arc::as_ptr(what).addr(), Arc::downgrade(what));
        self.count.store(all.by_address.len(), Ordering::Relaxed);
    }

    /// Removes the object at `address`. Returns false if the object was not listed.
    pub(crate) fn remove(&self, address: usize) -> bool {
        let mut all = self.all.lock();
        let was_there = all.by_address.remove(&address).is_some();
        self.count.store(all.by_address.len(), Ordering::Relaxed);
        was_there
    }

    pub(crate) fn clear(&self) {
        self.all.lock().by_address.clear();
        self.count.store(0, Ordering::Relaxed);
    }

    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns all live objects. The caller drops the references after the lock is released,
    /// because `Drop` of `Comm` acquires the lock.
    pub(crate) fn live(&self) -> Vec<Arc<T>> {
        self.all.lock().by_address.values().filter_map(Weak::upgrade).collect()
    }

    /// Returns the next `TURNS` live objects in round-robin order; none if the list is locked.
    pub(crate) fn turns(&self) -> [Option<Arc<T>>; TURNS] {
        let mut next = [const { None }; TURNS];
        // If the list is locked, the thread that holds the lock does the work.
        let Some(mut all) = self.all.try_lock() else { return next };
        let Listed { by_address, last } = &mut *all;
        let before = *last;
        let rest = by_address.range((Bound::Excluded(before), Bound::Unbounded));
        for (slot, (address, known)) in next.iter_mut().zip(rest.chain(by_address.range(..=before)))
        {
            *slot = known.upgrade();
            *last = *address;
        }
        next
    }
}
