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
//! no guarantee: a rank that has yielded long enough shares the lock nevertheless and removes the
//! name. So the wish of a dead rank costs little, and no cycle of ranks can wait for each other
//! because of wishes. A rank that writes in quick succession can yield too (`polite`). Otherwise it
//! locks again before other ranks see the lock free.
//!
//! **Dead holders.** The word names a dead writer. If the word has a count, a waiter that then
//! reads the bits finds those of all ranks that are counted. If none of these ranks lives, and the
//! word is still unchanged, no other rank has locked since. Either way, one of the waiters replaces
//! the word.
//!
//! Zeroed memory is a valid array of free locks.

use crate::sys::sync::{
    AtomicU64, AtomicUpdate,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

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

#[cfg(test)]
#[path = "tests/robust_rwlock.rs"]
mod tests;
