//! Atomics and locks for concurrent code. The atomics, fences, `Arc`, process-wide and thread-local
//! values are those of the standard library, re-exported at no cost.
//!
//! `tests/models` compiles the files that use this module a second time, with a module of equal
//! name and shape over loom. There, every interleaving is tried, and every value that the memory
//! model allows a load to return. docs/explanation/concurrency.md lists what each model covers.
//!
//! Mutexes, read-write locks and condition variables survive a fork. Each is a standard-library
//! lock, which waits on a futex word inside the object, so lock objects share no state. (A lock
//! with a process-wide table of waiting threads is broken in a forked child: the threads in the
//! table do not exist there. The observed failure was an endless loop.) A panic under a lock is
//! caught at the C boundary and reported, so locks ignore poisoning.
//!
//! [`OpenState`] is the state word of the library, in memory that a fork wipes.

use std::ptr;
use std::sync::{self, PoisonError, TryLockError};
use std::time::Duration;

pub use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence,
};
pub use std::sync::{Arc, MutexGuard, RwLockReadGuard, RwLockWriteGuard};
pub use std::thread::yield_now;
pub use std::thread_local;

/// Returns an array of `N` null pointers.
pub const fn nulls<T, const N: usize>() -> [AtomicPtr<T>; N] {
    [const { AtomicPtr::new(std::ptr::null_mut()) }; N]
}

/// Returns `real`. In a model, returns `_model`, which is small enough to reach every corner case.
pub const fn size(real: usize, _model: usize) -> usize {
    real
}

/// Declares a `const fn`. (A model declares a plain one: modelled atomics cannot be constants.)
macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis fn $($rest:tt)+) => { $(#[$meta])* $vis const fn $($rest)+ };
}

/// Declares a static. (A model re-creates the value for each of its runs.)
macro_rules! global {
    ($(#[$meta:meta])* $vis:vis static $name:ident: $of:ty = $value:expr;) => {
        $(#[$meta])* $vis static $name: $of = $value;
    };
}

pub(crate) use const_fn;
pub(crate) use global;

/// Conditional read-modify-write of an atomic integer: a closure computes the next value.
///
/// The standard library deprecates `fetch_update` in favor of `try_update`, which the minimum
/// compiler (`rust-version` in Cargo.toml) does not have. Once the minimum compiler has
/// `try_update`, replace this trait by that method.
pub trait AtomicUpdate {
    /// Integer type of the atomic.
    type Value;

    /// Replaces the value `v` by `next(v)` in one atomic step and returns `v`. If `next` returns
    /// `None`, stores nothing. `success` orders the read-modify-write, `failure` the loads before
    /// it.
    ///
    /// # Errors
    /// The current value, if `next` returned `None` for it.
    fn checked_update(
        &self,
        success: Ordering,
        failure: Ordering,
        next: impl FnMut(Self::Value) -> Option<Self::Value>,
    ) -> Result<Self::Value, Self::Value>;
}

macro_rules! checked_update {
    ($($atomic:ty: $value:ty),*) => { $(
        impl AtomicUpdate for $atomic {
            type Value = $value;

            fn checked_update(
                &self,
                success: Ordering,
                failure: Ordering,
                mut next: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut current = self.load(failure);
                while let Some(new) = next(current) {
                    match self.compare_exchange_weak(current, new, success, failure) {
                        Ok(old) => return Ok(old),
                        Err(seen) => current = seen,
                    }
                }
                Err(current)
            }
        }
    )* };
}

checked_update!(AtomicU32: u32, AtomicU64: u64, AtomicUsize: usize);

/// Mutual exclusion lock without poisoning.
#[derive(Default)]
pub struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates an unlocked mutex around `value`.
    pub const fn new(value: T) -> Self {
        Mutex(sync::Mutex::new(value))
    }

    /// Waits for the lock and returns its guard.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the mutex if it is free; returns `None` if it is locked.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns the value without locking; the exclusive borrow excludes all other users.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Consumes the mutex and returns its value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Read-write lock without poisoning: many readers or one writer.
#[derive(Default)]
pub struct RwLock<T>(sync::RwLock<T>);

impl<T> RwLock<T> {
    /// Creates an unlocked read-write lock around `value`.
    pub const fn new(value: T) -> Self {
        RwLock(sync::RwLock::new(value))
    }

    /// Waits for shared access and returns its guard.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for exclusive access and returns its guard.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Condition variable: waiting for a change of the data that a [`Mutex`] guards.
#[derive(Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// Creates a condition variable without waiters.
    pub const fn new() -> Self {
        Condvar(sync::Condvar::new())
    }

    /// Unlocks, waits until notified or woken spuriously, then locks again.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Unlocks, waits until notified, woken spuriously or `limit` has passed, then locks again.
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

/// Content of the page.
struct Page {
    state: AtomicU32,
    /// Pass of the open state; see [`OpenState::pass`].
    pass: AtomicU64,
}

/// State of the library that every call checks first, in a page that the kernel zeroes on fork.
///
/// `fork` copies the calling thread alone, so the child's copy of the state of worker threads,
/// sockets and shared memory does not describe the child. The kernel zeroes this page in the child
/// (MADV_WIPEONFORK, Linux 4.14), so the child detects the fork at its first call, with no handler.
pub struct OpenState {
    page: AtomicPtr<Page>,
}

/// Content of an open state that has no page.
static NEVER: Page = Page { state: AtomicU32::new(OpenState::UNOPENED), pass: AtomicU64::new(0) };

impl OpenState {
    /// State: nothing is initialized yet (or this is a forked child, see [`OpenState::state`]).
    pub const UNOPENED: u32 = 0;
    /// State: calls may pass.
    pub const OPEN: u32 = 1;
    /// State: the last finalize has run.
    pub const CLOSED: u32 = 2;
    /// State: this process is a fork of a process that had opened the library.
    pub const FORKED: u32 = 3;
    /// State: calls may pass, and each is recorded in a trace. This is a separate state, so that
    /// untraced calls need no second check.
    pub const TRACED: u32 = 4;

    /// Creates the state of a library that was never opened.
    pub const fn new() -> Self {
        OpenState { page: AtomicPtr::new((&raw const NEVER).cast_mut()) }
    }

    /// Returns the state: one of the constants of this type.
    pub fn state(&self) -> u32 {
        match self.page().state.load(Ordering::Acquire) {
            Self::UNOPENED if self.has_page() => Self::FORKED,
            state => state,
        }
    }

    fn page(&self) -> &Page {
        let page = self.page.load(Ordering::Acquire);
        // SAFETY: a static, or a page that is never unmapped.
        unsafe { &*page }
    }

    fn has_page(&self) -> bool {
        !ptr::eq(self.page.load(Ordering::Acquire), &raw const NEVER)
    }

    /// Returns the pass: a number that the shortest calls compare with a number of their own. Equal
    /// numbers mean that the library is open. 0 means that the library is not open, or that such
    /// calls are not allowed.
    pub fn pass(&self) -> u64 {
        self.page().pass.load(Ordering::Acquire)
    }

    /// Sets the state, without a pass. Returns false if there is no memory for the page.
    pub fn set(&self, state: u32) -> bool {
        self.set_with_pass(state, 0)
    }

    /// Sets the state and the pass. Returns false if there is no memory for the page.
    pub fn set_with_pass(&self, state: u32, pass: u64) -> bool {
        if !self.has_page() {
            let page = new_page();
            if page.is_null() {
                return false;
            }
            // The caller serializes `set`, so a plain store publishes the page.
            self.page.store(page, Ordering::Release);
        }
        let page = self.page();
        // A thread that reads the pass must find the state that the pass stands for: the pass is
        // cleared before the state changes, and set after the change.
        if pass == 0 {
            page.pass.store(0, Ordering::Release);
        }
        page.state.store(state, Ordering::Release);
        page.pass.store(pass, Ordering::Release);
        true
    }
}

impl Default for OpenState {
    fn default() -> Self {
        Self::new()
    }
}

fn new_page() -> *mut Page {
    const PAGE: usize = 4096;
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
    let page = unsafe {
        libc::mmap(
            ptr::null_mut(),
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return ptr::null_mut();
    }
    // SAFETY: `page` is the mapping just made. On a kernel without this advice the call fails, and
    // a forked child is not recognized; nothing else changes.
    let _ = unsafe { libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) };
    page.cast()
}
