//! Examination of the thread records of `epoch` in a forked child: locks that another thread held
//! at the fork stay locked there.
//!
//! `sys::sync::lock::OpenState` detects a fork, and `runtime::lifecycle` discards state in the
//! child.

use super::{RECORDS, ThreadRecord, adopt_record, give_back, mine, prepare};
use crate::sys::sync::{Ordering, compiler_fence};
use std::ptr;

impl ThreadRecord {
    /// Returns true if the record's thread may hold a lock of the library.
    pub(super) fn may_hold_locks(&self) -> bool {
        self.is_in_call() || self.aside.load(Ordering::Acquire) > 0
    }
}

/// Marks the calling thread as running library code outside the epoch: functions that may be called
/// in every state of the library, deferred work, the thread's last destructors, or the work of a
/// thread that the library has created. Such code may take locks, so a forked child must be able to
/// detect the thread (see [`another_was_inside`]). The mark does not keep any object alive. It
/// makes finalize fail only if the marked thread itself calls finalize ([`is_aside`]).
///
/// Ordering: only the thread that owns the record writes the count `aside`, and only a forked
/// child, which has no other threads, reads it from outside. The child's memory is a snapshot that
/// respects the order of the owner's stores: each of them either came before the fork
/// write-protected its page, or waits in the page fault until the fork has completed. So a child
/// that finds a lock held also finds the count greater than 0, as long as the owner's stores stay
/// in program order: the release store to the count comes before the acquire exchange that takes
/// the lock, and the release store that unlocks it comes before the release store to the count at
/// the end.
#[must_use]
pub fn aside() -> ForkGuard {
    // SAFETY: the thread pointer is only ever null or a leaked, hence valid, record.
    ForkGuard::of(unsafe { mine().as_ref() }.unwrap_or_else(adopt_record))
}

/// Returns true if the calling thread is marked by [`aside`], which means that the thread is
/// running a user callback that marked library code has called.
pub fn is_aside() -> bool {
    // SAFETY: the thread pointer is only ever null or a leaked, hence valid, record.
    unsafe { mine().as_ref() }.is_some_and(|record| record.aside.load(Ordering::Relaxed) > 0)
}

/// Returns the number of library calls that the calling thread is in, one inside the other: calls
/// inside the epoch count once, and each call that waits outside it.
pub fn depth() -> u32 {
    // SAFETY: the thread pointer is only ever null or a leaked, hence valid, record.
    let Some(record) = (unsafe { mine().as_ref() }) else { return 0 };
    let is_holding = !record.held.load(Ordering::Relaxed).is_null();
    u32::from(super::is_inside()) + u32::from(is_holding) + record.blocked.load(Ordering::Relaxed)
}

/// Guard that [`aside`] returns. While it exists, a forked child can detect that the thread may
/// hold locks.
pub struct ForkGuard {
    record: &'static ThreadRecord,
}

impl ForkGuard {
    pub(super) fn of(record: &'static ThreadRecord) -> ForkGuard {
        record.aside.store(record.aside.load(Ordering::Relaxed) + 1, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
        ForkGuard { record }
    }
}

impl Drop for ForkGuard {
    fn drop(&mut self) {
        let aside = self.record.aside.load(Ordering::Relaxed);
        self.record.aside.store(aside - 1, Ordering::Release);
        give_back(self.record);
    }
}

/// Returns true in a forked child if another thread was in a call, or marked by [`aside`], at the
/// fork. Locks that such a thread held stay locked in the child.
pub fn another_was_inside() -> bool {
    // The list is locked: by a thread in its first call, or in a destroy.
    let Some(records) = RECORDS.try_lock() else { return true };
    records.iter().any(|record| !ptr::eq(*record, mine()) && record.may_hold_locks())
}

/// Resets, in a forked child, the records of the other threads, which do not exist in the child.
pub fn forget_other_threads() {
    for &record in RECORDS.lock().iter() {
        if !ptr::eq(record, mine()) {
            record
                .seq
                .store(record.seq.load(Ordering::Relaxed).next_multiple_of(2), Ordering::Relaxed);
            record.nested.store(0, Ordering::Relaxed);
            record.owned.store(false, Ordering::Relaxed);
            record.aside.store(0, Ordering::Relaxed);
            record.running.store(0, Ordering::Relaxed);
            record.spare.forget();
        }
        record.blocked.store(0, Ordering::Relaxed);
        record.held.store(ptr::null_mut(), Ordering::Relaxed);
    }
    prepare();
}

#[cfg(test)]
#[path = "tests/fork.rs"]
mod tests;
