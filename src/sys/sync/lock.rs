//! Atomics and locks for concurrent code. The atomics, fences, `Arc`, statics and thread-local
//! values are those of the standard library, re-exported at no cost.
//!
//! For tests with the model checker loom, `tests/models` recompiles the files that use this module,
//! with a module of the same name and interface that is based on loom. The tests (models) try every
//! interleaving, and every value that the memory model permits a load to return.
//! docs/explanation/concurrency.md lists what each model covers.
//!
//! Mutexes, read-write locks and condition variables are usable in a forked child. They are those
//! of the standard library, which wait on a futex word inside the object, so they have no shared
//! state. (A lock with a process-wide table of waiting threads fails in a forked child, because the
//! threads in the table do not exist there. The observed failure was an endless loop.) A panic of a
//! thread that holds a lock is caught and reported at the C interface, so locks ignore poisoning.
//!
//! [`OpenState`] is the state of the library (open, closed, forked), in memory that the kernel
//! zeroes in a forked child.

use std::ptr;
use std::sync::{self, PoisonError, TryLockError};
use std::time::Duration;

use super::wait::Deadline;

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

/// Returns `real`. In the loom tests, this function returns `_model` instead, a size small enough
/// to reach every corner case.
pub const fn size(real: usize, _model: usize) -> usize {
    real
}

/// Declares a `const fn`. (In the loom tests it declares a plain `fn`, because the atomics of loom
/// cannot be created in a constant.)
macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis fn $($rest:tt)+) => { $(#[$meta])* $vis const fn $($rest)+ };
}

/// Declares a static. (In the loom tests, the value is created again for each execution of a
/// model.)
macro_rules! global {
    ($(#[$meta:meta])* $vis:vis static $name:ident: $of:ty = $value:expr;) => {
        $(#[$meta])* $vis static $name: $of = $value;
    };
}

pub(crate) use const_fn;
pub(crate) use global;

/// Conditional read-modify-write of an atomic integer with a closure that computes the new value.
///
/// The standard library deprecates `fetch_update` in favor of `try_update`, which the oldest
/// supported compiler (`rust-version` in Cargo.toml) does not have. Replace this trait with
/// `try_update` once that compiler has it.
pub trait AtomicUpdate {
    /// Integer type of the atomic.
    type Value;

    /// Replaces the value `v` with `next(v)` in one atomic step and returns `v`. Does not store a
    /// value if `next` returns `None`. `success` is the memory ordering of the read-modify-write,
    /// `failure` that of the loads before it.
    ///
    /// # Errors
    /// The current value of the atomic, if `next` returned `None` for it.
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
    #[inline]
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

/// Condition variable, on which threads wait until the data that a [`Mutex`] protects changes.
#[derive(Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// Creates a condition variable without waiters.
    pub const fn new() -> Self {
        Condvar(sync::Condvar::new())
    }

    /// Unlocks the mutex, waits until this condition variable is notified or a spurious wake-up
    /// occurs, then locks the mutex again.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Unlocks the mutex, waits until this condition variable is notified, `limit` has passed or a
    /// spurious wake-up occurs, then locks the mutex again.
    pub fn wait_for<'a, T>(&self, guard: MutexGuard<'a, T>, limit: Duration) -> MutexGuard<'a, T> {
        self.0.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits as [`Condvar::wait`] does, until the deadline at the latest. Returns `None`, with the
    /// mutex unlocked, if the deadline has passed already.
    pub fn wait_until<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Deadline,
    ) -> Option<MutexGuard<'a, T>> {
        match deadline.left_ns() {
            0 => None,
            u64::MAX => Some(self.wait(guard)),
            left => Some(self.wait_for(guard, Duration::from_nanos(left))),
        }
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

/// Content of the page that an [`OpenState`] allocates.
struct Page {
    state: AtomicU32,
    /// Number that calls on the fast path check instead of the state; see [`OpenState::pass`].
    pass: AtomicU64,
}

/// State of the library (open, closed, forked), which every call checks first. It is in a page that
/// the kernel zeroes in a forked child.
///
/// Of all threads, only the one that calls `fork` exists in the child. So the data structures for
/// worker threads, sockets and shared memory that the child inherits are not valid there. The
/// kernel zeroes this page in the child (MADV_WIPEONFORK, Linux 4.14), so the child detects the
/// fork at its first call to the library, without a fork handler.
pub struct OpenState {
    page: AtomicPtr<Page>,
}

/// Initial content of [`OpenState`], before a page is allocated.
static NEVER: Page = Page { state: AtomicU32::new(OpenState::UNOPENED), pass: AtomicU64::new(0) };

impl OpenState {
    /// State: the library was never initialized. The zeroed page of a forked child contains this
    /// value too, but [`OpenState::state`] then returns FORKED.
    pub const UNOPENED: u32 = 0;
    /// State: the library is open, and calls are admitted.
    pub const OPEN: u32 = 1;
    /// State: the library has been finalized by all its users.
    pub const CLOSED: u32 = 2;
    /// State: this process was forked from a process that had opened the library.
    pub const FORKED: u32 = 3;
    /// State: the library is open, and each call is recorded in a trace. This is a separate state,
    /// so that calls need no second check while tracing is off.
    pub const TRACED: u32 = 4;

    /// Creates the state of a library that was never initialized.
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

    /// Returns the pass: a number that calls on the fast path (calls that take a few nanoseconds)
    /// check instead of the state. It is 0 if the library is not open or the fast path must not be
    /// used; any other value means that the library is open. The caller of
    /// [`OpenState::set_with_pass`] chooses the value.
    pub fn pass(&self) -> u64 {
        self.page().pass.load(Ordering::Acquire)
    }

    /// Sets the state, and sets the pass to 0 (see [`OpenState::pass`]). Returns false if there is
    /// no memory for the page of the state.
    pub fn set(&self, state: u32) -> bool {
        self.set_with_pass(state, 0)
    }

    /// Sets the state and the pass (see [`OpenState::pass`]). Returns false if there is no memory
    /// for the page of the state.
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
