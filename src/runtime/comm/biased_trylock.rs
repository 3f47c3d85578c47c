//! Lock for calls that must not overlap. No thread waits: while the lock is in use, attempts fail
//! at once.
//!
//! In most programs, one thread makes all of these calls. Therefore the first thread that acquires
//! the lock gets a flag of its own (`first_has`), which it writes with plain stores. (An atomic
//! exchange costs as much as ten plain stores.) All other threads acquire the lock by a
//! compare-exchange of a second flag (`taken`).
//!
//! Memory ordering. First thread: S1 stores `first_has = true`, light fence, L1 loads `is_shared`.
//! Another thread: sets `taken` by a compare-exchange with acquire ordering, S2 stores `is_shared =
//! true` once and for all, heavy fence, L2 loads `first_has`. By the properties of the light and
//! heavy fences (`epoch`), either L1 reads the value of S2, and the first thread uses `taken`, or
//! L2 reads the value of S1, and the attempt of the other thread fails. A thread that sets `taken`
//! later has acquired it from the thread that executed the heavy fence, so it reads no older value
//! of `first_has` either. Both flags are cleared by release stores, and read with acquire ordering
//! by the next holder. The first thread uses `first_has` only while no other thread has ever made
//! an attempt, so no other holder has made writes that the first thread would have to observe.

use crate::hints;
use crate::sys::handles::epoch;
use crate::sys::sync::{AtomicBool, AtomicUsize, Ordering};

/// Value of `first` before any thread has acquired the lock; no thread has this
/// `epoch::thread_mark`.
const NOBODY: usize = 1;

/// Lock that has only a try operation: an attempt to acquire the lock fails at once if the lock is
/// held. Acquisition is cheap for the first thread that ever acquired the lock.
pub struct BiasedTryLock {
    /// `epoch::thread_mark` of the first thread that acquired the lock, or [`NOBODY`] before that.
    first: AtomicUsize,
    /// True while the first thread holds the lock. Only the first thread writes this flag.
    first_has: AtomicBool,
    /// True once a thread other than the first has tried to acquire the lock.
    is_shared: AtomicBool,
    /// True while a thread holds the lock, or tries to acquire it, through this flag. The first
    /// thread uses this flag for its first acquisition, and for later ones only if `is_shared` is
    /// true; all other threads always use it.
    taken: AtomicBool,
    /// `epoch::thread_mark` of the last thread that acquired the lock through `taken`.
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

/// Flag that a thread has set to acquire the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum LockWord {
    /// `first_has`, the flag of the first thread.
    First,
    /// `taken`, the flag that every other thread sets and, once `is_shared` is true, the first
    /// thread sets too.
    Shared,
}

impl BiasedTryLock {
    /// Tries to acquire the lock for the calling thread, whose `epoch::thread_mark` is `mark`.
    /// Returns `None` if the lock is in use, perhaps by an enclosing call in this thread.
    #[inline]
    pub fn try_take(&self, mark: usize) -> Option<LockWord> {
        if self.first.load(Ordering::Relaxed) == mark && !self.first_has.load(Ordering::Relaxed) {
            self.first_has.store(true, Ordering::Relaxed);
            epoch::light_fence();
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
            epoch::heavy_fence();
        }
        if self.first_has.load(Ordering::Acquire) {
            self.taken.store(false, Ordering::Release);
            return None;
        }
        self.taker.store(mark, Ordering::Relaxed);
        Some(LockWord::Shared)
    }

    /// Returns true if the calling thread, whose `epoch::thread_mark` is `mark`, holds the lock.
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

#[cfg(test)]
#[path = "tests/biased_trylock.rs"]
mod tests;
