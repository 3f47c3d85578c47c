//! Lock for critical sections of nanoseconds that run for every message. Its waiters never sleep,
//! so it is not for code that waits. `lock` has the locks whose waiters the kernel wakes.

use crate::sys::sync::{self, AtomicBool, Ordering, const_fn, yield_now};
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Mutual exclusion lock for critical sections that take nanoseconds and run for every message. It
/// costs one atomic read-modify-write (5 to 8 ns) where a [`Mutex`](super::lock::Mutex) costs two,
/// as no thread sleeps and would have to be woken. A waiter spins, then yields.
///
/// The acquire exchange of `lock` sees all earlier work under the lock, by the unlocking release
/// store.
pub struct SpinLock<T> {
    is_taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: only the one thread that holds the lock accesses the value.
unsafe impl<T: Send> Sync for SpinLock<T> {}

/// Number of checks of a locked lock before the first yield: the holder may not be running.
const SPINS: u32 = sync::size(100, 1) as u32;

impl<T> SpinLock<T> {
    const_fn! {
        /// Creates an unlocked lock around `value`.
        pub fn new(value: T) -> Self {
            SpinLock { is_taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
        }
    }

    /// Waits for the lock and returns its guard.
    pub fn lock(&self) -> SpinGuard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    /// Locks if the lock is free; returns `None` if it is in use.
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

/// Guard that gives access to the value of a [`SpinLock`] and unlocks when it is dropped. It stays
/// in its thread, like the guards of other locks.
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
