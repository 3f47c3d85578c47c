//! Mutexes, read-write locks and condition variables that survive a fork.
//!
//! The standard library's wait on a futex word inside the object: nothing is shared between objects.
//! (A lock with a process-wide table of waiting threads is left broken in a forked child, where the
//! threads in the table do not exist; seen as an endless loop.) A panic while a lock is held is
//! caught at the C boundary and reported, so poisoning is passed over.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{self, PoisonError, TryLockError};
use std::time::Duration;

pub use std::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// Mutual exclusion.
#[derive(Default)]
pub struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Unlocked.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Mutex(sync::Mutex::new(value))
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The value of a lock that nobody else can reach.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Mutual exclusion for what takes nanoseconds and is done for every message: one atomic read-modify-write (5 to 8 ns)
/// where a [`Mutex`] has two, as nobody sleeps who would have to be woken. Who finds it taken spins, then yields.
///
/// The acquire exchange that takes it sees all that was done under it before, by the release store that gives it back.
pub struct SpinLock<T> {
    is_taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by the one thread that has the lock.
unsafe impl<T: Send> Sync for SpinLock<T> {}

/// Looks at a taken lock before the first yield: its holder may not be running.
const SPINS: u32 = 100;

impl<T> SpinLock<T> {
    /// Free.
    #[must_use]
    pub const fn new(value: T) -> Self {
        SpinLock { is_taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock.
    #[inline(always)]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    /// The lock if it is free.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        let taken = self.is_taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        // Not `then_some`: a guard that is made and dropped would give back what another thread has.
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
                std::thread::yield_now();
            }
        }
    }
}

/// The value of a [`SpinLock`], until it is dropped. It stays in its thread, as other locks' guards do.
pub struct SpinGuard<'a, T>(&'a SpinLock<T>, PhantomData<*const ()>);

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: this thread has the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread has the lock, and the guard is borrowed by nobody else.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.is_taken.store(false, Ordering::Release);
    }
}

/// Many readers or one writer.
#[derive(Default)]
pub struct RwLock<T>(sync::RwLock<T>);

impl<T> RwLock<T> {
    /// Unlocked.
    #[must_use]
    pub const fn new(value: T) -> Self {
        RwLock(sync::RwLock::new(value))
    }

    /// Waits to read.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits to write.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waiting for a change of what a [`Mutex`] guards.
#[derive(Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// Nobody waits.
    #[must_use]
    pub const fn new() -> Self {
        Condvar(sync::Condvar::new())
    }

    /// Unlocks, waits to be notified (or for no reason), locks again.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// As `wait`, for a limited time.
    pub fn wait_for<'a, T>(&self, guard: MutexGuard<'a, T>, limit: Duration) -> MutexGuard<'a, T> {
        self.0.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_has_a_spin_lock() {
        let lock = SpinLock::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| *lock.lock() += 1));
            }
        });
        let held = lock.lock();
        assert_eq!(*held, 40_000);
        assert!((0..2).all(|_| lock.try_lock().is_none()), "an attempt leaves it taken");
        drop(held);
        assert!(lock.try_lock().is_some());
    }
}
