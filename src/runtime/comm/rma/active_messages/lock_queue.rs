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
        let is_free = self.waiting.is_empty() && !self.is_exclusive();
        if is_free {
            self.holders.push(asker);
        }
        is_free
    }

    fn is_exclusive(&self) -> bool {
        self.holders.iter().any(|holder| holder.exclusive)
    }

    /// Grants the lock to the next waiting rank and returns it. Call until it returns `None`.
    pub(super) fn grant(&mut self) -> Option<LockRequester> {
        let next = *self.waiting.front()?;
        let is_free = self.holders.is_empty();
        let is_shared = !next.exclusive && !self.is_exclusive();
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
#[path = "tests/lock_queue.rs"]
mod tests;
