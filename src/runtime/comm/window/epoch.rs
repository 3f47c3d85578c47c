//! When a rank may reach which targets: the epochs that its own calls open and close. Checked here, on the rank
//! itself, before anything is sent.
//!
//! A fence opens an epoch to all targets, a lock one to its target. Of the two kinds one is open at a time: a lock
//! ends the epoch of a fence in which nothing was done. Reading and changing the state is a few loads and stores: calls
//! that change it are not made by several threads at once.

use crate::error::{Result, fail};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// No fence was called since the last lock.
const NONE: u8 = 0;
/// A fence has opened an epoch, in which nothing was done yet.
const OPEN: u8 = 1;
/// The same, and something was done.
const USED: u8 = 2;

pub(super) struct Epochs {
    fence: AtomicU8,
    /// dtl_win_lock_all.
    all: AtomicBool,
    /// By target, 1: it is locked.
    locked: Vec<AtomicU8>,
    /// How many are.
    count: AtomicU32,
}

impl Epochs {
    pub(super) fn new(ranks: usize) -> Epochs {
        let locked = (0..ranks).map(|_| AtomicU8::new(0)).collect();
        Epochs { fence: AtomicU8::new(NONE), all: AtomicBool::new(false), locked, count: AtomicU32::new(0) }
    }

    fn slot(&self, target: i32) -> Option<&AtomicU8> {
        self.locked.get(usize::try_from(target).ok()?)
    }

    fn has(&self, target: i32) -> bool {
        self.slot(target).is_some_and(|slot| slot.load(Ordering::Relaxed) != 0)
    }

    fn is_locked(&self) -> bool {
        self.all.load(Ordering::Relaxed) || self.count.load(Ordering::Relaxed) != 0
    }

    /// Before an operation on a target.
    #[inline]
    pub(super) fn check_access(&self, name: &str, target: i32) -> Result<()> {
        match self.fence.load(Ordering::Relaxed) {
            USED => Ok(()),
            OPEN => {
                self.fence.store(USED, Ordering::Relaxed);
                Ok(())
            }
            _ if self.all.load(Ordering::Relaxed) || self.has(target) => Ok(()),
            _ => fail!(
                DTL_ERROR_INVALID_STATE,
                "{name}: no epoch is open for target {target}: call dtl_win_fence (all ranks), dtl_win_lock or dtl_win_lock_all first"
            ),
        }
    }

    /// Before a flush of a target; `None`: of all.
    pub(super) fn check_flush(&self, name: &str, target: Option<i32>) -> Result<()> {
        let is_open = match target {
            _ if self.all.load(Ordering::Relaxed) => true,
            Some(target) => self.has(target),
            None => self.is_locked(),
        };
        if is_open {
            return Ok(());
        }
        let whose = target.map_or_else(|| "any target".to_owned(), |target| format!("target {target}"));
        fail!(
            DTL_ERROR_INVALID_STATE,
            "{name}: this rank has no lock of {whose}; a flush belongs between dtl_win_lock and dtl_win_unlock (a fence waits by itself)"
        )
    }

    /// Before a fence, and before the end of the window.
    pub(super) fn check_unlocked(&self, name: &str) -> Result<()> {
        if self.all.load(Ordering::Relaxed) {
            return fail!(
                DTL_ERROR_INVALID_STATE,
                "{name} between dtl_win_lock_all and dtl_win_unlock_all: unlock first"
            );
        }
        if self.count.load(Ordering::Relaxed) != 0 {
            let is_locked = |slot: &AtomicU8| slot.load(Ordering::Relaxed) != 0;
            let first = self.locked.iter().position(is_locked).unwrap_or(0);
            return fail!(
                DTL_ERROR_INVALID_STATE,
                "{name} while this rank has a lock of target {first}: unlock it first"
            );
        }
        Ok(())
    }

    /// Before the end of the window.
    pub(super) fn check_ended(&self, name: &str) -> Result<()> {
        self.check_unlocked(name)?;
        self.check_fence(name)
    }

    fn check_fence(&self, name: &str) -> Result<()> {
        if self.fence.load(Ordering::Relaxed) == USED {
            return fail!(
                DTL_ERROR_INVALID_STATE,
                "{name}: operations since the last dtl_win_fence are not over: call dtl_win_fence (all ranks) first"
            );
        }
        Ok(())
    }

    /// Before a lock of a target; `None`: of all.
    pub(super) fn check_lock(&self, name: &str, target: Option<i32>) -> Result<()> {
        let is_twice = match target {
            _ if self.all.load(Ordering::Relaxed) => true,
            Some(target) => self.has(target),
            None => self.is_locked(),
        };
        if is_twice {
            let whose = target.map_or_else(|| "a target".to_owned(), |target| format!("target {target}"));
            return fail!(
                DTL_ERROR_INVALID_STATE,
                "{name}: this rank has a lock of {whose} already: unlock it first"
            );
        }
        self.check_fence(name)
    }

    /// Before an unlock of a target; `None`: of all.
    pub(super) fn check_unlock(&self, name: &str, target: Option<i32>) -> Result<()> {
        let is_all = self.all.load(Ordering::Relaxed);
        match target {
            None if is_all => Ok(()),
            None => fail!(DTL_ERROR_INVALID_STATE, "{name} without dtl_win_lock_all before it"),
            Some(target) if self.has(target) => Ok(()),
            Some(_) if is_all => {
                fail!(DTL_ERROR_INVALID_STATE, "{name} after dtl_win_lock_all: call dtl_win_unlock_all")
            }
            Some(target) => {
                fail!(DTL_ERROR_INVALID_STATE, "{name}: this rank has no lock of target {target}")
            }
        }
    }

    /// A fence is over.
    pub(super) fn fenced(&self) {
        self.fence.store(OPEN, Ordering::Relaxed);
    }

    /// A target was locked; `None`: all.
    pub(super) fn locked(&self, target: Option<i32>) {
        self.fence.store(NONE, Ordering::Relaxed);
        match target.map(|target| self.slot(target)) {
            None => self.all.store(true, Ordering::Relaxed),
            Some(slot) => {
                slot.into_iter().for_each(|slot| slot.store(1, Ordering::Relaxed));
                self.count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The reverse.
    pub(super) fn unlocked(&self, target: Option<i32>) {
        match target.map(|target| self.slot(target)) {
            None => self.all.store(false, Ordering::Relaxed),
            Some(slot) => {
                slot.into_iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
                self.count.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_opens_all_and_a_lock_one() {
        let epochs = Epochs::new(3);
        assert!(epochs.check_access("put", 1).is_err() && epochs.check_ended("destroy").is_ok());
        epochs.fenced();
        assert!(epochs.check_lock("lock", Some(0)).is_ok() && epochs.check_ended("destroy").is_ok());
        assert!(epochs.check_access("put", 2).is_ok() && epochs.check_ended("destroy").is_err());
        assert!(epochs.check_lock("lock", Some(0)).is_err() && epochs.check_flush("flush", None).is_err());
        epochs.fenced();
        epochs.locked(Some(1));
        assert!(epochs.check_access("put", 1).is_ok() && epochs.check_access("put", 2).is_err());
        assert!(epochs.check_lock("lock", Some(1)).is_err() && epochs.check_lock("lock", Some(2)).is_ok());
        assert!(epochs.check_lock("lock_all", None).is_err() && epochs.check_unlock("unlock", None).is_err());
        assert!(epochs.check_unlocked("fence").is_err() && epochs.check_unlock("unlock", Some(2)).is_err());
        assert!(
            epochs.check_flush("flush", Some(1)).is_ok() && epochs.check_flush("flush", Some(0)).is_err()
        );
        epochs.unlocked(Some(1));
        epochs.locked(None);
        assert!(epochs.check_access("put", 0).is_ok() && epochs.check_lock("lock", Some(0)).is_err());
        assert!(
            epochs.check_unlock("unlock", Some(0)).is_err() && epochs.check_unlock("unlock", None).is_ok()
        );
        epochs.unlocked(None);
        assert!(epochs.check_access("put", 0).is_err() && epochs.check_ended("destroy").is_ok());
    }
}
