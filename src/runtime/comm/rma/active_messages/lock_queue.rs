//! Ranks that have the lock of this rank's part of a window, and ranks that wait for it. The queue
//! is first come, first served, so that a stream of shared locks cannot starve an exclusive lock.

use std::collections::VecDeque;

/// Rank that requested the lock, and the tag of the reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LockRequester {
    pub(super) origin: i32,
    pub(super) tag: i32,
    pub(super) exclusive: bool,
}

#[derive(Default)]
pub(super) struct Locks {
    /// One rank with an exclusive lock, or any number with shared locks.
    holders: Vec<LockRequester>,
    waiting: VecDeque<LockRequester>,
}

impl Locks {
    pub(super) fn request(&mut self, asker: LockRequester) {
        self.waiting.push_back(asker);
    }

    /// Grants a shared lock and returns true if no rank has an exclusive lock or waits.
    pub(super) fn share_if_free(&mut self, asker: LockRequester) -> bool {
        let is_free =
            self.waiting.is_empty() && self.holders.iter().all(|holder| !holder.exclusive);
        if is_free {
            self.holders.push(asker);
        }
        is_free
    }

    /// Grants the lock to the next waiting rank and returns it. Call until it returns `None`.
    pub(super) fn grant(&mut self) -> Option<LockRequester> {
        let next = *self.waiting.front()?;
        let is_free = self.holders.is_empty();
        let is_shared = !next.exclusive && self.holders.iter().all(|holder| !holder.exclusive);
        if !is_free && !is_shared {
            return None;
        }
        self.waiting.pop_front();
        self.holders.push(next);
        Some(next)
    }

    /// Releases the lock of `origin`. Does nothing if `origin` has no lock.
    pub(super) fn release(&mut self, origin: i32) {
        if let Some(at) = self.holders.iter().position(|holder| holder.origin == origin) {
            self.holders.swap_remove(at);
        }
    }

    /// Cancels the lock request of `origin` with this tag, or revokes the lock if it was granted.
    /// Returns true if the request was still waiting.
    pub(super) fn forget(&mut self, origin: i32, tag: i32) -> bool {
        let is_it = |asker: &LockRequester| asker.origin == origin && asker.tag == tag;
        let before = self.waiting.len();
        self.waiting.retain(|asker| !is_it(asker));
        self.holders.retain(|asker| !is_it(asker));
        self.waiting.len() < before
    }

    /// Returns the ranks that have the lock while other ranks wait for it.
    pub(super) fn in_the_way(&self) -> impl Iterator<Item = i32> {
        let holders = if self.waiting.is_empty() { &[][..] } else { &self.holders[..] };
        holders.iter().map(|holder| holder.origin)
    }

    /// Returns true if no rank has the lock or waits for it.
    pub(super) fn are_free(&self) -> bool {
        self.holders.is_empty() && self.waiting.is_empty()
    }

    /// Removes the locks and requests of dead ranks.
    pub(super) fn bury(&mut self, dead: &[i32]) {
        self.waiting.retain(|asker| !dead.contains(&asker.origin));
        self.holders.retain(|asker| !dead.contains(&asker.origin));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asker(origin: i32, exclusive: bool) -> LockRequester {
        LockRequester { origin, tag: origin + 1, exclusive }
    }

    fn granted(locks: &mut Locks) -> Vec<i32> {
        std::iter::from_fn(|| locks.grant()).map(|asker| asker.origin).collect()
    }

    #[test]
    fn shared_together_exclusive_alone_in_order() {
        let mut locks = Locks::default();
        for (origin, exclusive) in [(0, false), (1, false), (2, true), (3, false)] {
            locks.request(asker(origin, exclusive));
        }
        assert_eq!(granted(&mut locks), [0, 1]);
        locks.release(0);
        assert!(granted(&mut locks).is_empty());
        locks.release(1);
        assert_eq!(granted(&mut locks), [2]);
        locks.release(2);
        assert_eq!(granted(&mut locks), [3]);
        assert!(locks.share_if_free(asker(4, false)), "it is shared");
        assert_eq!(locks.in_the_way().count(), 0, "nobody waits");
        locks.request(asker(5, true));
        assert!(!locks.share_if_free(asker(6, false)), "one waits");
        assert_eq!(locks.in_the_way().collect::<Vec<_>>(), [3, 4]);
        [3, 4].into_iter().for_each(|origin| locks.release(origin));
        assert_eq!(granted(&mut locks), [5]);
        assert!(!locks.share_if_free(asker(6, false)), "one has it alone");
        locks.release(5);
        assert!(locks.are_free());
    }

    #[test]
    fn who_gives_up_or_dies_is_in_nobodys_way() {
        let mut locks = Locks::default();
        (0..5).for_each(|origin| locks.request(asker(origin, true)));
        assert_eq!(granted(&mut locks), [0]);
        assert!(locks.forget(1, 2) && !locks.forget(0, 1));
        assert_eq!(granted(&mut locks), [2]);
        locks.bury(&[2, 3]);
        assert_eq!(granted(&mut locks), [4]);
        locks.release(9);
        assert!(granted(&mut locks).is_empty());
        assert!(!locks.are_free());
    }
}
