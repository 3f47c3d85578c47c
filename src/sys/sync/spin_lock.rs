//! Spin lock for critical sections of a few nanoseconds, such as those that run for every message.
//! Waiting threads never sleep, so a critical section must not block. Locks whose waiting threads
//! sleep until they are woken are in `lock`.

use crate::sys::sync::{self, AtomicBool, Ordering, const_fn, yield_now};
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Mutual exclusion lock for critical sections of a few nanoseconds. Locking and unlocking take one
/// atomic read-modify-write (5 to 8 ns), while a [`Mutex`](super::lock::Mutex) needs two, because
/// it must wake sleeping threads. A waiting thread spins, then yields.
///
/// The compare-and-swap of `lock` (acquire) synchronizes with the store that unlocks (release), so
/// all writes of earlier critical sections are visible to the new holder.
pub struct SpinLock<T> {
    is_taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: only the one thread that holds the lock accesses the value.
unsafe impl<T: Send> Sync for SpinLock<T> {}

/// Number of times that a waiting thread checks the lock before it yields for the first time. It
/// must yield because the thread that holds the lock may be waiting for a processor.
const SPINS: u32 = sync::size(100, 1) as u32;

impl<T> SpinLock<T> {
    const_fn! {
        /// Creates an unlocked lock around `value`.
        pub fn new(value: T) -> Self {
            SpinLock { is_taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
        }
    }

    /// Waits for the lock and returns its guard.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    /// Acquires the lock if it is free and returns its guard; returns `None` if it is locked.
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        let taken =
            self.is_taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        // Not `then_some`: a guard created and dropped would release the lock of another thread.
        taken.is_ok().then(|| SpinGuard(self, PhantomData))
    }

    #[cold]
    fn wait(&self) -> SpinGuard<'_, T> {
        let mut looks = 0_u32;
        loop {
            if !self.is_taken.load(Ordering::Relaxed) {
                if let Some(guard) = self.try_lock() {
                    return guard;
                }
            }
            looks = looks.saturating_add(1);
            if looks < SPINS {
                std::hint::spin_loop();
            } else {
                yield_now();
            }
        }
    }
}

/// Guard that gives access to the value of a locked [`SpinLock`] and unlocks it when dropped. Like
/// the guards of other locks, it cannot be sent to another thread.
pub struct SpinGuard<'a, T>(&'a SpinLock<T>, PhantomData<*const ()>);

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this thread holds the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread holds the lock, and the guard is borrowed exclusively.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    fn drop(&mut self) {
        self.0.is_taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
#[path = "tests/spin_lock.rs"]
mod tests;
