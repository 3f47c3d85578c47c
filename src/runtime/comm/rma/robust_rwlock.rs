//! Locks in memory that processes share. They record their holders, so that a waiting rank can
//! detect that a holder has died, and take over the lock. All functions are nonblocking: the caller
//! (`runtime::comm::rma`) determines how to wait, and how to handle a failure.
//!
//! **Shared or exclusive.** One word holds the rank of the writer or the number of ranks that share
//! the lock. A rank that shares the lock first sets a bit of its own and then increments the count
//! (acquire and release), so a rank that reads the count also observes the bits. To unlock, the
//! rank decrements the count (release) and then clears the bit. If the rank dies between these two
//! steps, its bit is set although it no longer shares the lock. Such a bit does no harm, because it
//! names a rank that has in fact died. Locking is an acquire and unlocking a release. All changes
//! to the word are read-modify-writes, except the store that unlocks exclusive access. Therefore a
//! rank that acquires the lock observes the writes of all earlier holders.
//!
//! **Waiting writers.** A rank that waits for exclusive access publishes its rank number in a
//! second word, the waiting-writer word. Ranks that request shared access then yield to it for a
//! while, so that they cannot starve it by holding the lock alternately. Yielding is limited: a
//! rank that has yielded long enough acquires the lock nevertheless and clears the waiting-writer
//! word. Therefore the waiting-writer word of a dead rank costs little time, and no ranks can wait
//! for each other in a cycle because of it. A rank that locks exclusively many times in quick
//! succession can yield too (`polite`). Otherwise it locks again before other ranks find the lock
//! free.
//!
//! **Dead holders.** If a writer has died, the word names it. If ranks share the lock, a waiting
//! rank reads the word and then the bits, and finds the bits of all ranks that are counted. If all
//! ranks whose bits are set have died and the word is still unchanged, no other rank has acquired
//! the lock since. In both cases one of the waiting ranks replaces the word.
//!
//! Zeroed memory is a valid array of free locks.

use crate::sys::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sys::sync::{AtomicU64, AtomicUpdate};

/// Number of low bits of the state word that count the ranks that hold the lock in shared mode. The
/// bits above them hold the writer's rank + 1, or 0 if there is no writer.
const WRITER: u32 = 32;
const STATE: usize = 0;
const WISH: usize = 1;
/// Index of the first word of the bitmap of the ranks that hold the lock in shared mode. The bitmap
/// is outside the cache line of the state word, which every rank changes.
const BITS: usize = 16;

/// Returns the number of 64-bit words that a lock for `ranks` ranks needs.
pub const fn words(ranks: usize) -> usize {
    BITS + ranks.div_ceil(64)
}

/// Robust reader-writer lock in memory that processes share.
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
    /// Creates a view of the lock that `words` contains; returns `None` if there are too few words.
    pub fn new(words: &'a [AtomicU64]) -> Option<Self> {
        Some(SharedLock {
            state: words.get(STATE)?,
            wish: words.get(WISH)?,
            bits: words.get(BITS..)?,
        })
    }

    /// Tries to acquire the lock exclusively for `rank`; returns true on success. If `polite` is
    /// true, the attempt also fails if any rank has announced that it is waiting for exclusive
    /// access.
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

    /// Stores `rank` in the waiting-writer word, so that other ranks detect that `rank` waits for
    /// exclusive access. Must be called repeatedly, because other ranks clear the waiting-writer
    /// word. Returns false, without a change, if the waiting-writer word already contains a rank.
    pub fn wish(&self, rank: usize) -> bool {
        self.wish.compare_exchange(0, name(rank), Relaxed, Relaxed).is_ok()
    }

    /// Clears the waiting-writer word if it contains `rank`, which no longer waits for exclusive
    /// access.
    pub fn forget_wish(&self, rank: usize) {
        if self.wish.load(Relaxed) == name(rank) {
            let _ = self.wish.compare_exchange(name(rank), 0, Relaxed, Relaxed);
        }
    }

    /// Tries to acquire shared access for `rank`; returns true on success. Fails while a rank has
    /// exclusive access or, if `polite` is true, has announced that it is waiting for exclusive
    /// access. After a failed attempt, the caller must call `leave_line` unless a later attempt
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

    /// Clears the bit of `rank` in the bitmap of sharers. Called when `rank` no longer waits for
    /// shared access or no longer has it.
    pub fn leave_line(&self, rank: usize) {
        if let Some(bits) = self.bits.get(rank / 64) {
            bits.fetch_and(!(1 << (rank % 64)), Relaxed);
        }
    }

    /// Releases the exclusive or shared lock that `rank` holds.
    pub fn leave(&self, rank: usize) {
        if self.state.load(Relaxed) >> WRITER == name(rank) {
            self.leave_exclusive();
        } else {
            self.leave_shared(rank);
        }
    }

    /// Releases exclusive access.
    pub fn leave_exclusive(&self) {
        self.state.store(0, Release);
    }

    /// Releases the shared lock that `rank` holds.
    pub fn leave_shared(&self, rank: usize) {
        self.state.fetch_sub(1, Release);
        self.leave_line(rank);
    }

    /// Transfers the lock to `rank` if all ranks that hold it have died; returns true on success.
    /// Called after failed attempts to acquire the lock.
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

    /// Returns the ranks that hold the lock in shared mode or are acquiring it in shared mode.
    fn sharers(&self) -> impl Iterator<Item = usize> {
        let of_word = |(index, word): (usize, &AtomicU64)| {
            let bits = word.load(Relaxed);
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| 64 * index + bit)
        };
        self.bits.iter().enumerate().flat_map(of_word)
    }

    /// Returns true if `rank` may be a holder of the lock that blocks a request for exclusive
    /// access (`exclusive` is true) or shared access. Called after an attempt to acquire the lock
    /// has failed.
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
