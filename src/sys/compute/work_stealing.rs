//! Work stealing: a loop's pieces are divided evenly; a member that has finished its own steals.
//!
//! Each member of a team has a share: a range of pieces in one word, `next << 32 | end`. It takes
//! pieces from the front. A member whose share is empty takes the back half of another member's
//! rest, runs the first piece, and makes the remainder its share. So no member takes another
//! member's pieces without need: the member that first wrote a part of an array works on it in the
//! next loop too.
//!
//! Memory ordering. A piece is removed from a share by a compare-exchange of the whole word, so
//! exactly one member gets it, whatever happened in between: if the word has the value that was
//! read again, then exactly these pieces are in the share again. Only the owner adds pieces to a
//! share, and only when the share is empty, when no other member writes it. So all accesses are
//! relaxed: pieces are numbers, and the work that they stand for is published by `team`, whose end
//! of a loop also follows all work on it. `tests/models` tries this.

use crate::sys::sync::{AtomicU64, Ordering};

/// Pieces of one member. Aligned so that two members never share a line (or a prefetched pair).
#[repr(align(128))]
struct Share(AtomicU64);

/// Shares of all members of a team.
pub struct Shares(Box<[Share]>);

/// Maximum number of pieces that can be dealt.
pub const MOST: u64 = 1 << 31;

fn pack(next: u64, end: u64) -> u64 {
    next << 32 | end
}

fn unpack(word: u64) -> (u64, u64) {
    (word >> 32, word & u64::from(u32::MAX))
}

impl Shares {
    /// Creates empty shares for `members` members.
    pub fn new(members: usize) -> Self {
        Shares((0..members).map(|_| Share(AtomicU64::new(0))).collect())
    }

    /// Deals the pieces 0 ... pieces-1 (at most [`MOST`]) evenly. No member may be taking pieces.
    pub fn deal(&self, pieces: u64) {
        let members = self.0.len() as u64;
        let (each, more) = (pieces / members, pieces % members);
        let mut next = 0;
        for (member, share) in (0..).zip(&self.0) {
            let end = next + each + u64::from(member < more);
            share.0.store(pack(next, end), Ordering::Relaxed);
            next = end;
        }
    }

    /// Takes a piece for `member`; returns `None` if all shares are empty.
    #[inline]
    pub fn take(&self, member: usize) -> Option<u64> {
        let own = self.0.get(member)?;
        let mut word = own.0.load(Ordering::Relaxed);
        loop {
            let (next, end) = unpack(word);
            if next >= end {
                return self.steal(member, own);
            }
            match exchange(own, word, pack(next + 1, end)) {
                Ok(_) => return Some(next),
                Err(now) => word = now,
            }
        }
    }

    /// Steals the back half of the first non-empty share, searched from the member's own place on.
    fn steal(&self, member: usize, own: &Share) -> Option<u64> {
        let (before, after) = self.0.split_at_checked(member)?;
        for victim in after.iter().chain(before) {
            let mut word = victim.0.load(Ordering::Relaxed);
            loop {
                let (next, end) = unpack(word);
                if next >= end {
                    break;
                }
                let middle = next + (end - next) / 2;
                match exchange(victim, word, pack(next, middle)) {
                    Ok(_) => {
                        if middle + 1 < end {
                            own.0.store(pack(middle + 1, end), Ordering::Relaxed);
                        }
                        return Some(middle);
                    }
                    Err(now) => word = now,
                }
            }
        }
        None
    }

    /// Returns true if any share has pieces at this moment.
    pub fn is_any_left(&self) -> bool {
        self.0.iter().any(|share| {
            let (next, end) = unpack(share.0.load(Ordering::Relaxed));
            next < end
        })
    }
}

fn exchange(share: &Share, from: u64, to: u64) -> Result<u64, u64> {
    share.0.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
}

#[cfg(test)]
#[path = "tests/work_stealing.rs"]
mod tests;
