//! Lock of this rank's window memory: the ranks that hold the lock, and the ranks that wait for it.
//! Requests are granted in the order of their arrival, so that a sequence of shared locks cannot
//! starve an exclusive lock.

use std::collections::VecDeque;

/// Lock request: the requesting rank, the tag of the reply that grants the lock, and the requested
/// mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LockRequester {
    pub(super) origin: i32,
    pub(super) tag: i32,
    pub(super) exclusive: bool,
}

#[derive(Default)]
pub(super) struct Locks {
    /// Holders of the lock: one rank with an exclusive lock, or any number of ranks with shared
    /// locks.
    holders: Vec<LockRequester>,
    waiting: VecDeque<LockRequester>,
}

impl Locks {
    pub(super) fn request(&mut self, asker: LockRequester) {
        self.waiting.push_back(asker);
    }

    /// If no rank has an exclusive lock or waits for a lock, grants a shared lock and returns true.
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

    /// Grants the lock to the next waiting rank, if possible, and returns that rank. The caller
    /// repeats the call until it returns `None`.
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

    /// Releases the lock that `origin` holds. Does nothing if `origin` does not hold a lock.
    pub(super) fn release(&mut self, origin: i32) {
        if let Some(at) = self.holders.iter().position(|holder| holder.origin == origin) {
            self.holders.swap_remove(at);
        }
    }

    /// Cancels the lock request from `origin` with the tag `tag`, or revokes the lock if it was
    /// granted. Returns true if the request was still waiting.
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

    /// Returns true if no rank holds the lock or waits for it.
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
