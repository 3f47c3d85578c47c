//! Locks that consist of atomics, and what other lock-free code needs besides atomics.
//!
//! - [`SpinLock`]: lock for critical sections of nanoseconds that run for every message. Its
//!   waiters never sleep. `lock` has the locks whose waiters the kernel wakes.
//! - [`BiasedTryLock`]: lock for calls that must not overlap; see below.
//! - [`RobustRwLock`]: read-write lock between processes; see below.
//! - [`AtomicUpdate`]: atomic read-modify-write by a closure.
//!
//! Lock for critical sections of nanoseconds that run for every message. Its waiters never sleep.
//!
//! It is not for code that waits. `lock` has the locks whose waiters the kernel wakes.
//!
//! Lock for calls that must not overlap. No thread waits: while it is in use, attempts fail at
//! once.
//!
//! In most programs, one thread makes all of these calls. The first thread that acquires the lock
//! therefore gets a word of its own, which it writes with plain stores; an atomic exchange costs as
//! much as ten of them. All other threads exchange a second word.
//!
//! Memory ordering. First thread: S1 `first_has = true`, light barrier, L1 loads `is_shared`.
//! Another thread: sets `taken` by an acquire exchange, S2 `is_shared = true` once and for all,
//! heavy barrier, L2 loads `first_has`. By the argument of `epoch`, either L1 sees S2, and the
//! first thread uses the second word, or L2 sees S1, and the attempt of the other thread fails. A
//! thread that sets `taken` later has acquired it from the thread that executed the heavy barrier,
//! so it sees no older value of `first_has` either. Both words are released by release stores, and
//! acquired by the next holder. The first thread uses its own word only while no other thread has
//! ever made an attempt, so there is no work of another holder that it would have to see.
//!
//! Locks in memory that processes share. They record their holders, so that a waiter can detect
//! that a holder has died, and take over the lock. No function here waits: the caller
//! (`runtime::comm::rma`) decides how to wait, and how to handle a failure.
//!
//! **Shared or exclusive.** One word holds the rank of the writer and the number of sharers. A rank
//! that shares the lock first sets a bit of its own and then increments the count (acquire and
//! release), so a rank that sees a count sees the bits too. To release, it decrements the count
//! (release) and then clears the bit. A rank that died between the two has a bit but holds no
//! share; that can only reveal a failure that has happened. Locking is an acquire, unlocking a
//! release, and changes of the word are read-modify-writes, so a rank that locks sees the work of
//! all earlier holders.
//!
//! **Wishes.** A rank that waits for exclusive access stores its name. Other ranks that want to
//! share then yield to it for a while, so that they cannot starve it by sharing in turns. A wish is
//! no guarantee: a rank whose while has passed shares the lock nevertheless and removes the name.
//! So the wish of a dead rank costs little, and no cycle of ranks can wait for each other because
//! of wishes. A rank that writes in quick succession can yield too (`polite`). Otherwise it locks
//! again before other ranks see the lock free.
//!
//! **Dead holders.** The word names a dead writer. If the word has a count, a waiter that then
//! reads the bits finds those of all ranks that are counted. If none of these ranks lives, and the
//! word is still unchanged, no other rank has locked since. Either way, one of the waiters replaces
//! the word.
//!
//! Zeroed memory is a valid array of free locks.
//!
//! Atomic read-modify-write with a function, for the integer atomics.
//!
//! The standard library deprecates `fetch_update` in favour of `try_update`, which the minimum
//! compiler (`rust-version` in Cargo.toml) does not have. Once the minimum compiler has
//! `try_update`, replace this trait by that method.

use crate::sys::sync::{
    self, AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{self, AcqRel, Acquire, Relaxed, Release},
    const_fn, hints, membarrier, yield_now,
};
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

/// Thread mark that no thread has.
const NOBODY: usize = 1;

/// Lock that is only tried, never waited for. It is cheap for the first thread that acquires it.
pub struct BiasedTryLock {
    /// Mark of the first thread (`epoch::thread_mark`), or [`NOBODY`].
    first: AtomicUsize,
    /// True while the first thread holds the lock by its own word.
    first_has: AtomicBool,
    /// True once a thread other than the first has made an attempt.
    is_shared: AtomicBool,
    /// True while a thread holds the lock by this shared word.
    taken: AtomicBool,
    /// Mark of the last thread that acquired the lock by the shared word.
    taker: AtomicUsize,
}

impl Default for BiasedTryLock {
    fn default() -> Self {
        let no = || AtomicBool::new(false);
        BiasedTryLock {
            first: AtomicUsize::new(NOBODY),
            first_has: no(),
            is_shared: no(),
            taken: no(),
            taker: AtomicUsize::new(0),
        }
    }
}

/// Word by which a thread holds the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum LockWord {
    /// Word of the first thread.
    First,
    /// Word that all other threads share.
    Shared,
}

impl BiasedTryLock {
    /// Tries to acquire the lock for the calling thread, whose mark is `mark`. Returns `None` if
    /// the lock is in use, perhaps by an outer call of this thread.
    pub fn try_take(&self, mark: usize) -> Option<LockWord> {
        if self.first.load(Ordering::Relaxed) == mark && !self.first_has.load(Ordering::Relaxed) {
            self.first_has.store(true, Ordering::Relaxed);
            membarrier::light();
            if !self.is_shared.load(Ordering::Relaxed) {
                return Some(LockWord::First);
            }
            self.first_has.store(false, Ordering::Release);
        }
        hints::rarely();
        self.try_take_shared(mark)
    }

    #[cold]
    #[inline(never)]
    fn try_take_shared(&self, mark: usize) -> Option<LockWord> {
        let is_within =
            self.first.load(Ordering::Relaxed) == mark && self.first_has.load(Ordering::Relaxed);
        if is_within
            || self
                .taken
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return None;
        }
        let is_shared = self.is_shared.load(Ordering::Relaxed);
        if mark != 0 && !is_shared && self.first.load(Ordering::Relaxed) == NOBODY {
            self.first.store(mark, Ordering::Relaxed);
            self.first_has.store(true, Ordering::Relaxed);
            self.taken.store(false, Ordering::Release);
            return Some(LockWord::First);
        }
        if !is_shared {
            self.is_shared.store(true, Ordering::Relaxed);
            membarrier::heavy();
        }
        if self.first_has.load(Ordering::Acquire) {
            self.taken.store(false, Ordering::Release);
            return None;
        }
        self.taker.store(mark, Ordering::Relaxed);
        Some(LockWord::Shared)
    }

    /// Returns true if the calling thread, whose mark is `mark`, holds the lock.
    pub fn is_of(&self, mark: usize) -> bool {
        let has = |has: &AtomicBool, who: &AtomicUsize| {
            has.load(Ordering::Relaxed) && who.load(Ordering::Relaxed) == mark
        };
        mark != 0 && (has(&self.first_has, &self.first) || has(&self.taken, &self.taker))
    }

    /// Releases the lock. `taken` is the result of [`BiasedTryLock::try_take`].
    pub fn give_back(&self, taken: LockWord) {
        let word = if taken == LockWord::First { &self.first_has } else { &self.taken };
        word.store(false, Ordering::Release);
    }
}

/// Number of low bits of the state word, which count sharers. The writer's rank + 1 is above them.
const WRITER: u32 = 32;
const STATE: usize = 0;
const WISH: usize = 1;
/// Index of the sharers' first bit word, outside the cache line of the state word that all change.
const BITS: usize = 16;

/// Returns the number of words that a lock for `ranks` ranks needs.
pub const fn words(ranks: usize) -> usize {
    BITS + ranks.div_ceil(64)
}

/// Robust lock for one writer or many sharers, in memory that processes share.
#[derive(Clone, Copy)]
pub struct SharedLock<'a> {
    state: &'a AtomicU64,
    wish: &'a AtomicU64,
    bits: &'a [AtomicU64],
}

fn name(rank: usize) -> u64 {
    rank as u64 + 1
}

impl<'a> SharedLock<'a> {
    /// Creates a view of the lock in `words`; returns `None` if there are too few words.
    pub fn new(words: &'a [AtomicU64]) -> Option<Self> {
        Some(SharedLock {
            state: words.get(STATE)?,
            wish: words.get(WISH)?,
            bits: words.get(BITS..)?,
        })
    }

    /// Tries to lock exclusively for `rank`; returns true on success. With `polite`, the attempt
    /// also fails if any rank wishes to lock exclusively.
    #[must_use]
    pub fn try_exclusive(&self, rank: usize, polite: bool) -> bool {
        let wish = self.wish.load(Relaxed);
        if polite && wish != 0 {
            return false;
        }
        let taken = self.state.compare_exchange(0, name(rank) << WRITER, Acquire, Relaxed).is_ok();
        if taken && wish != 0 {
            let _ = self.wish.compare_exchange(wish, 0, Relaxed, Relaxed);
        }
        taken
    }

    /// Publishes that `rank` waits for exclusive access. Call repeatedly, because other ranks
    /// remove the wish. Returns false if a wish is set already, of any rank; one wish is enough.
    pub fn wish(&self, rank: usize) -> bool {
        self.wish.compare_exchange(0, name(rank), Relaxed, Relaxed).is_ok()
    }

    /// Removes the wish of `rank`, which no longer waits for exclusive access.
    pub fn forget_wish(&self, rank: usize) {
        if self.wish.load(Relaxed) == name(rank) {
            let _ = self.wish.compare_exchange(name(rank), 0, Relaxed, Relaxed);
        }
    }

    /// Tries to lock shared for `rank`; returns true on success. Fails while a rank writes or, if
    /// `polite`, wishes to. After a failed attempt, call `leave_line` unless a later attempt
    /// succeeds.
    #[must_use]
    pub fn try_shared(&self, rank: usize, polite: bool) -> bool {
        let wish = self.wish.load(Relaxed);
        if polite && wish != 0 {
            return false;
        }
        let Some(bits) = self.bits.get(rank / 64) else { return false };
        // Sets the bit first, so that a rank that sees a count sees the bits too.
        bits.fetch_or(1 << (rank % 64), Relaxed);
        let count = |state: u64| if state >> WRITER == 0 { Some(state + 1) } else { None };
        let taken = self.state.checked_update(AcqRel, Relaxed, count).is_ok();
        if taken && wish != 0 {
            let _ = self.wish.compare_exchange(wish, 0, Relaxed, Relaxed);
        }
        taken
    }

    /// Clears the sharer bit of `rank`, which no longer waits for shared access.
    pub fn leave_line(&self, rank: usize) {
        if let Some(bits) = self.bits.get(rank / 64) {
            bits.fetch_and(!(1 << (rank % 64)), Relaxed);
        }
    }

    /// Unlocks what `try_exclusive` or `try_shared` locked for `rank`.
    pub fn leave(&self, rank: usize) {
        if self.state.load(Relaxed) >> WRITER == name(rank) {
            self.leave_exclusive();
        } else {
            self.leave_shared(rank);
        }
    }

    /// Unlocks what `try_exclusive` locked.
    pub fn leave_exclusive(&self) {
        self.state.store(0, Release);
    }

    /// Unlocks what `try_shared` locked for `rank`.
    pub fn leave_shared(&self, rank: usize) {
        self.state.fetch_sub(1, Release);
        self.leave_line(rank);
    }

    /// Takes the lock over for `rank` if all of its holders have died; returns true on success.
    /// Call after failed attempts.
    #[must_use]
    pub fn take_over(&self, rank: usize, exclusive: bool, is_dead: impl Fn(usize) -> bool) -> bool {
        let state = self.state.load(Acquire);
        let is_theirs = match (state >> WRITER) as usize {
            0 => exclusive && state != 0 && self.sharers().all(is_dead),
            writer => is_dead(writer - 1),
        };
        if !is_theirs {
            return false;
        }
        if let Some(bits) = self.bits.get(rank / 64).filter(|_| !exclusive) {
            bits.fetch_or(1 << (rank % 64), Relaxed);
        }
        let after = if exclusive { name(rank) << WRITER } else { 1 };
        self.state.compare_exchange(state, after, AcqRel, Relaxed).is_ok()
    }

    /// Returns the ranks that share the lock or are about to share it.
    fn sharers(&self) -> impl Iterator<Item = usize> {
        let of_word = |(index, word): (usize, &AtomicU64)| {
            let bits = word.load(Relaxed);
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| 64 * index + bit)
        };
        self.bits.iter().enumerate().flat_map(of_word)
    }

    /// Returns true if `rank` may be the holder that blocks a request for shared access or, with
    /// `exclusive`, for exclusive access. Call after the lock was found in use.
    pub fn is_in_the_way(&self, rank: usize, exclusive: bool) -> bool {
        let shares = || {
            self.bits.get(rank / 64).is_some_and(|bits| bits.load(Relaxed) >> (rank % 64) & 1 == 1)
        };
        let state = self.state.load(Acquire);
        state >> WRITER == name(rank) || (exclusive && state != 0 && shares())
    }
}

/// Conditional read-modify-write of an atomic integer: a closure computes the next value.
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

#[cfg(test)]
#[path = "tests/biased_trylock.rs"]
mod biased_trylock_tests;
#[cfg(test)]
#[path = "tests/robust_rwlock.rs"]
mod robust_rwlock_tests;
#[cfg(test)]
#[path = "tests/spinlock.rs"]
mod spinlock_tests;
