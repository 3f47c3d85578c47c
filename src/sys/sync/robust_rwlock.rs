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

use super::atomic_update::AtomicUpdate;
use crate::sys::sync::AtomicU64;
use crate::sys::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Number of low bits of the state word, which count sharers. The writer's rank + 1 is above them.
const WRITER: u32 = 32;
const STATE: usize = 0;
const WISH: usize = 1;
/// Index of the sharers' first bit word, outside the cache line of the state word that all change.
const BITS: usize = 16;

/// Returns the number of words that a lock for `ranks` ranks needs.
#[must_use]
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
    #[must_use]
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
    #[inline]
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
    #[must_use]
    pub fn is_in_the_way(&self, rank: usize, exclusive: bool) -> bool {
        let shares = || {
            self.bits.get(rank / 64).is_some_and(|bits| bits.load(Relaxed) >> (rank % 64) & 1 == 1)
        };
        let state = self.state.load(Acquire);
        state >> WRITER == name(rank) || (exclusive && state != 0 && shares())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(ranks: usize) -> Vec<AtomicU64> {
        (0..words(ranks)).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn many_share_or_one_writes() {
        let words = fresh(130);
        let lock = SharedLock::new(&words).expect("words");
        assert!(lock.try_shared(0, true) && lock.try_shared(129, true));
        assert!(!lock.try_exclusive(5, false));
        let in_the_way = |exclusive| -> Vec<usize> {
            (0..130).filter(|rank| lock.is_in_the_way(*rank, exclusive)).collect()
        };
        assert_eq!((in_the_way(true), in_the_way(false)), (vec![0, 129], vec![]));
        lock.leave(0);
        assert_eq!(in_the_way(true), [129]);
        lock.leave_shared(129);
        assert!(in_the_way(true).is_empty());
        assert!(
            lock.try_exclusive(5, false)
                && !lock.try_exclusive(6, false)
                && !lock.try_shared(7, true)
        );
        assert_eq!((in_the_way(true), in_the_way(false)), (vec![5, 7], vec![5]));
        lock.leave_line(7);
        assert_eq!(in_the_way(true), [5]);
        lock.leave(5);
        assert!(lock.try_shared(7, true));
        assert!(SharedLock::new(&words[..3]).is_none(), "too few words");
    }

    #[test]
    fn wishes_are_minded_for_a_while() {
        let words = fresh(4);
        let lock = SharedLock::new(&words).expect("words");
        assert!(lock.try_shared(0, true));
        assert!(lock.wish(1) && !lock.wish(2));
        assert!(!lock.try_shared(3, true), "1 wishes to write");
        assert!(lock.try_shared(3, false), "who has waited long shares");
        assert!(lock.try_shared(2, true), "and took the wish away");
        [0, 2, 3].into_iter().for_each(|rank| lock.leave_shared(rank));
        assert!(lock.wish(1));
        assert!(lock.try_exclusive(1, false), "its wish has come true");
        lock.leave_exclusive();
        assert!(lock.try_shared(0, true));
    }

    #[test]
    fn who_writes_again_and_again_gives_way() {
        let words = fresh(0);
        let lock = SharedLock::new(&words).expect("words");
        assert!(lock.try_exclusive(0, true));
        assert!(lock.wish(1));
        lock.leave_exclusive();
        assert!(!lock.try_exclusive(0, true) && lock.try_exclusive(1, false), "1 waits");
        lock.leave_exclusive();
        assert!(lock.try_exclusive(0, true), "its wish has come true");
        assert!(lock.wish(2));
        lock.leave_exclusive();
        assert!(lock.try_exclusive(1, false), "who has waited long takes it");
        lock.leave_exclusive();
        assert!(lock.try_exclusive(0, true), "and took the wish away");
    }

    #[test]
    fn locks_of_the_dead_are_taken_over() {
        let words = fresh(100);
        let lock = SharedLock::new(&words).expect("words");
        let dead = |rank: usize| rank >= 90;
        assert!(!lock.take_over(0, true, dead), "nobody has it");
        assert!(lock.try_exclusive(90, false) && !lock.try_shared(1, true));
        assert!(!lock.take_over(1, false, |_| false), "it lives");
        assert!(lock.take_over(1, false, dead) && lock.is_in_the_way(1, true));
        assert!(lock.try_shared(91, true) && !lock.take_over(0, true, dead), "1 lives");
        lock.leave(1);
        assert!(lock.take_over(0, true, dead) && !lock.take_over(2, true, dead));
        lock.leave(0);
        assert!(lock.try_exclusive(2, false), "nothing of the dead is left");
    }

    #[test]
    fn what_is_written_alone_is_seen() {
        const ROUNDS: u64 = if cfg!(miri) { 30 } else { 2000 };
        let words = fresh(6);
        let data = std::cell::UnsafeCell::new([0_u64; 2]);
        struct Shared<'a>(&'a std::cell::UnsafeCell<[u64; 2]>);
        // SAFETY: the data is accessed only under the lock, which is the subject of the test.
        unsafe impl Sync for Shared<'_> {}
        let data = &Shared(&data);
        let take = |mut attempt: Box<dyn FnMut() -> bool + '_>| {
            while !attempt() {
                std::thread::yield_now()
            }
        };
        std::thread::scope(|scope| {
            for rank in 0..6 {
                let words = &words;
                scope.spawn(move || {
                    let lock = SharedLock::new(words).expect("words");
                    for _ in 0..ROUNDS {
                        if rank < 2 {
                            take(Box::new(|| lock.try_exclusive(rank, false)));
                            // SAFETY: this thread holds the lock exclusively.
                            let both = unsafe { &mut *data.0.get() };
                            both[0] += 1;
                            both[1] += 1;
                            lock.leave_exclusive();
                        } else {
                            take(Box::new(|| lock.try_shared(rank, false)));
                            // SAFETY: this thread shares the lock, so no thread writes.
                            let both = unsafe { &*data.0.get() };
                            assert_eq!(both[0], both[1]);
                            lock.leave_shared(rank);
                        }
                    }
                });
            }
        });
        // SAFETY: the threads have ended.
        assert_eq!(unsafe { *data.0.get() }, [2 * ROUNDS; 2]);
        assert!(words.iter().all(|word| word.load(Relaxed) == 0));
    }
}
