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

use crate::hints;
use crate::sys::handles::epoch;
use crate::sys::sync::{AtomicBool, AtomicUsize, Ordering};

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

#[cfg(test)]
#[path = "tests/biased_trylock.rs"]
mod tests;
