//! A lock for what takes nanoseconds and is done for every message, where nobody sleeps.
//!
//! Not for anything that waits: `lock` has the locks whose waiters the kernel wakes.

use crate::sys::sync::{self, AtomicBool, Ordering, const_fn, yield_now};
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Mutual exclusion for what takes nanoseconds and is done for every message: one atomic
/// read-modify-write (5 to 8 ns) where a [`Mutex`](super::lock::Mutex) has two, as no thread sleeps
/// and would have to be woken. A thread that finds it taken spins, then yields.
///
/// The acquire exchange that takes it sees all that was done under it before, by the release store
/// that gives it back.
pub struct SpinLock<T> {
    is_taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by the one thread that has the lock.
unsafe impl<T: Send> Sync for SpinLock<T> {}

/// Looks at a taken lock before the first yield: its holder may not be running.
const SPINS: u32 = sync::size(100, 1) as u32;

impl<T> SpinLock<T> {
    const_fn! {
        /// Free.
        #[must_use]
        pub fn new(value: T) -> Self {
            SpinLock { is_taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
        }
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    /// The lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        let taken =
            self.is_taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        // Not `then_some`: a guard that is made and dropped would give back what another thread
        // has.
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

/// The value of a [`SpinLock`], until it is dropped. It stays in its thread, as other locks' guards
/// do.
pub struct SpinGuard<'a, T>(&'a SpinLock<T>, PhantomData<*const ()>);

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this thread has the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread has the lock, and the guard is borrowed by nobody else.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    fn drop(&mut self) {
        self.0.is_taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_has_a_spin_lock() {
        const ROUNDS: u64 = if cfg!(miri) { 50 } else { 10_000 };
        let lock = SpinLock::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..ROUNDS).for_each(|_| *lock.lock() += 1));
            }
        });
        let held = lock.lock();
        assert_eq!(*held, 4 * ROUNDS);
        assert!((0..2).all(|_| lock.try_lock().is_none()), "an attempt leaves it taken");
        drop(held);
        assert!(lock.try_lock().is_some());
    }
}
