//! Access epochs of a window, which determine the targets that a rank may access. Calls on this
//! rank open and close the epochs. Each operation checks them locally before it sends a message.
//!
//! A fence opens an epoch to all targets; a lock opens an epoch to its target. A fence epoch and
//! lock epochs are never open at the same time: a lock ends a fence epoch in which no operation was
//! started. Any thread may make any call. A thread that opens or ends an epoch first reserves the
//! epoch by a compare-and-swap, and then waits for other ranks. Therefore a call by a second thread
//! for the same epoch fails; it neither waits nor opens or ends the epoch a second time. Puts, gets
//! and accumulate operations check the state with one or two loads.

use crate::abi::status::DTL_ERROR_INVALID_STATE;
use crate::error::{Error, Result, fail, failure};
use crate::sys::sync::AtomicUpdate;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32};

/// State of the fence epoch: not open, because no fence has been called since the last lock, or
/// because the last fence has failed.
const NONE: u8 = 0;
/// State of the fence epoch: open, and no operation has run in it yet.
const OPEN: u8 = 1;
/// State of the fence epoch: open, and an operation has run in it.
const USED: u8 = 2;

/// Lock state: this rank does not hold the lock.
const FREE: u8 = 0;
/// Lock state: this rank holds the lock.
const HELD: u8 = 1;
/// Lock state: a call is acquiring or releasing the lock.
const MOVING: u8 = 2;

/// Value of `claimed` while this rank holds or is acquiring the locks of all targets
/// (dtl_win_lock_all). `FENCE` is the value during a fence. Smaller values are the number of
/// targets whose lock this rank holds or is acquiring.
const ALL: u32 = u32::MAX;
const FENCE: u32 = u32::MAX - 1;

pub(super) struct Epochs {
    fence: AtomicU8,
    /// True if a fence or the destruction of the window has failed, so that the ranks are no longer
    /// synchronized.
    is_broken: AtomicBool,
    /// True if the last unlock timed out.
    is_stuck: AtomicBool,
    claimed: AtomicU32,
    /// State of the lock that dtl_win_lock_all acquires on all targets.
    all: AtomicU8,
    /// State of the lock of each target, indexed by rank.
    locked: Vec<AtomicU8>,
}

impl Epochs {
    pub(super) fn new(ranks: usize) -> Epochs {
        Epochs {
            fence: AtomicU8::new(NONE),
            is_broken: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
            claimed: AtomicU32::new(0),
            all: AtomicU8::new(FREE),
            locked: (0..ranks).map(|_| AtomicU8::new(FREE)).collect(),
        }
    }

    fn slot(&self, target: i32) -> Option<&AtomicU8> {
        self.locked.get(usize::try_from(target).ok()?)
    }

    /// Returns the state of the lock of `target` or, if `target` is `None`, of the lock that
    /// dtl_win_lock_all acquires.
    fn lock(&self, target: Option<i32>) -> Option<&AtomicU8> {
        target.map_or(Some(&self.all), |target| self.slot(target))
    }

    /// Returns true if an access epoch to `target` is open, so that an operation on `target` is
    /// allowed. If it is a fence epoch, records that an operation runs in it.
    #[inline]
    pub(super) fn admits(&self, target: i32) -> bool {
        match self.fence.load(Relaxed) {
            NONE => self.has_lock(target),
            USED => true,
            _ => {
                self.fence.store(USED, Relaxed);
                true
            }
        }
    }

    /// Returns true if an access epoch to `target` is open. Unlike `admits`, does not change the
    /// state of a fence epoch.
    pub(super) fn would_admit(&self, target: i32) -> bool {
        self.fence.load(Relaxed) != NONE || self.has_lock(target)
    }

    /// Returns true if this rank holds a lock on `target` or on all targets.
    pub(super) fn has_lock(&self, target: i32) -> bool {
        let has = |lock: &AtomicU8| lock.load(Relaxed) == HELD;
        has(&self.all) || self.slot(target).is_some_and(has)
    }

    /// Checks that this rank may flush `target`, or all targets if `target` is `None`.
    pub(super) fn check_flush(&self, name: &str, target: Option<i32>) -> Result<()> {
        let is_open = match target {
            Some(target) => self.has_lock(target),
            None => !matches!(self.claimed.load(Relaxed), 0 | FENCE),
        };
        if is_open {
            return Ok(());
        }
        let whose =
            target.map_or_else(|| "any target".to_owned(), |target| format!("target {target}"));
        fail!(
            DTL_ERROR_INVALID_STATE,
            "{name}: this rank has no lock of {whose}; a flush belongs between dtl_win_lock and \
             dtl_win_unlock (a fence waits by itself)"
        )
    }

    /// Checks that this rank holds no lock and that no fence is in progress.
    pub(super) fn check_unlocked(&self, name: &str) -> Result<()> {
        match self.claimed.load(Acquire) {
            0 => Ok(()),
            claimed => Err(self.is_locked(name, claimed)),
        }
    }

    /// Returns the error for an attempt to execute a fence, acquire a lock or destroy the window
    /// while this rank holds a lock or another thread is executing a fence. `claimed` is the value
    /// of the field `claimed`.
    #[cold]
    fn is_locked(&self, name: &str, claimed: u32) -> Error {
        let text = match claimed {
            ALL => format!("{name} between dtl_win_lock_all and dtl_win_unlock_all: unlock first"),
            FENCE => {
                format!("{name} while dtl_win_fence of another thread lasts: call it after that")
            }
            _ => {
                let is_locked = |slot: &AtomicU8| slot.load(Relaxed) != FREE;
                let first = self.locked.iter().position(is_locked).unwrap_or(0);
                format!("{name} while this rank has a lock of target {first}: unlock it first")
            }
        };
        Error::new(DTL_ERROR_INVALID_STATE, text)
    }

    /// Checks that no operation has run since the last fence.
    pub(super) fn check_fence(&self, name: &str) -> Result<()> {
        if self.fence.load(Relaxed) == USED {
            return fail!(
                DTL_ERROR_INVALID_STATE,
                "{name}: operations since the last dtl_win_fence are not over: call dtl_win_fence \
                 (all ranks) first"
            );
        }
        Ok(())
    }

    /// Records that a fence or the window's destruction has failed. Afterwards locks are allowed,
    /// but not fences.
    pub(super) fn set_broken(&self) {
        self.is_broken.store(true, Release);
    }

    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Acquire)
    }

    /// Records whether the last unlock timed out. After a timeout, the window may be destroyed
    /// while this rank holds locks.
    pub(super) fn set_stuck(&self, is_stuck: bool) {
        self.is_stuck.store(is_stuck, Release);
    }

    pub(super) fn is_stuck(&self) -> bool {
        self.is_stuck.load(Acquire)
    }

    /// Begins a fence, and excludes locks and other fences until it ends. The caller must call
    /// `end_fence` afterwards.
    pub(super) fn begin_fence(&self, name: &str) -> Result<()> {
        let claimed = self.claimed.compare_exchange(0, FENCE, AcqRel, Acquire);
        claimed.map_err(|claimed| self.is_locked(name, claimed))?;
        if self.is_broken() {
            self.claimed.store(0, Release);
            return fail!(
                DTL_ERROR_INVALID_STATE,
                "{name}: an earlier one has failed, so the ranks are out of step: use locks, or \
                 destroy the window"
            );
        }
        Ok(())
    }

    /// Ends a fence. If the fence has succeeded, opens the next fence epoch. If it has failed, no
    /// fence epoch is open: operations in progress may continue, but new operations are not
    /// allowed.
    pub(super) fn end_fence(&self, is_well: bool) {
        if !is_well {
            self.set_broken();
        }
        self.fence.store(if is_well { OPEN } else { NONE }, Relaxed);
        self.claimed.store(0, Release);
    }

    /// Begins to acquire the lock of `target` (`None`: of all targets), before the lock is
    /// requested from the target. Fails if this rank already holds the lock or another thread is
    /// acquiring it. The caller must call `locked` or `unlocked` afterwards.
    pub(super) fn begin_lock(&self, name: &str, target: Option<i32>) -> Result<()> {
        self.check_fence(name)?;
        let is_claimed = match target {
            None => self.claimed.compare_exchange(0, ALL, AcqRel, Acquire).map(drop),
            Some(target) => self.claim(target),
        };
        is_claimed.map_err(|claimed| self.is_twice(name, target, claimed))?;
        self.lock(target).into_iter().for_each(|lock| lock.store(MOVING, Relaxed));
        Ok(())
    }

    /// Returns the error for a lock call that fails because of a fence, or because of a lock that
    /// this rank has or is acquiring. `claimed` identifies the conflict: `ALL` for
    /// dtl_win_lock_all, `FENCE` for a fence, any other value for the lock of a target.
    fn is_twice(&self, name: &str, target: Option<i32>, claimed: u32) -> Error {
        if claimed == FENCE {
            return self.is_locked(name, claimed);
        }
        let whose =
            target.map_or_else(|| "a target".to_owned(), |target| format!("target {target}"));
        failure!(
            DTL_ERROR_INVALID_STATE,
            "{name}: this rank has a lock of {whose} already, or a call of another thread asks \
             for it: unlock it first"
        )
    }

    /// Reserves the lock of one target for the calling thread. The error identifies the conflict:
    /// `ALL` for dtl_win_lock_all, `FENCE` for a fence, or 1 for the lock of the same target.
    fn claim(&self, target: i32) -> Result<(), u32> {
        let one_more = |claimed| if claimed < FENCE { Some(claimed + 1) } else { None };
        self.claimed.checked_update(AcqRel, Acquire, one_more)?;
        let is_free =
            |slot: &AtomicU8| slot.compare_exchange(FREE, MOVING, AcqRel, Relaxed).is_ok();
        if self.slot(target).is_some_and(is_free) {
            return Ok(());
        }
        self.claimed.fetch_sub(1, AcqRel);
        Err(1)
    }

    /// Ends the acquisition that `begin_lock` began, or the failed release that `begin_unlock`
    /// began. Records that this rank holds the lock.
    pub(super) fn locked(&self, target: Option<i32>) {
        // A fence epoch that another thread has used meanwhile stays open until the next fence.
        let _ = self.fence.compare_exchange(OPEN, NONE, Relaxed, Relaxed);
        self.lock(target).into_iter().for_each(|lock| lock.store(HELD, Release));
    }

    /// Ends the failed acquisition that `begin_lock` began, or the release that `begin_unlock`
    /// began. Records that this rank does not have the lock.
    pub(super) fn unlocked(&self, target: Option<i32>) {
        self.lock(target).into_iter().for_each(|lock| lock.store(FREE, Release));
        match target {
            None => self.claimed.store(0, Release),
            Some(_) => drop(self.claimed.fetch_sub(1, AcqRel)),
        }
    }

    /// Begins to release the lock of `target` (`None`: of all targets). Fails if this rank does not
    /// hold this lock. The caller must call `unlocked` or `locked` afterwards.
    pub(super) fn begin_unlock(&self, name: &str, target: Option<i32>) -> Result<()> {
        let is_held =
            |lock: &AtomicU8| lock.compare_exchange(HELD, MOVING, AcqRel, Relaxed).is_ok();
        if self.lock(target).is_some_and(is_held) {
            return Ok(());
        }
        let is_all = self.all.load(Relaxed) == HELD;
        match target {
            None => fail!(DTL_ERROR_INVALID_STATE, "{name} without dtl_win_lock_all before it"),
            Some(_) if is_all => fail!(
                DTL_ERROR_INVALID_STATE,
                "{name} after dtl_win_lock_all: call dtl_win_unlock_all"
            ),
            Some(target) => {
                fail!(DTL_ERROR_INVALID_STATE, "{name}: this rank has no lock of target {target}")
            }
        }
    }

    /// Calls `give_back` with the targets to release all locks that this rank holds. Called at
    /// finalize, or when the window is destroyed after an unlock has timed out.
    pub(super) fn take_all(&self, mut give_back: impl FnMut(std::ops::Range<i32>)) {
        let ranks = i32::try_from(self.locked.len()).unwrap_or(i32::MAX);
        if self.begin_unlock("", None).is_ok() {
            give_back(0..ranks);
            self.unlocked(None);
        }
        for target in (0..ranks).filter(|target| self.begin_unlock("", Some(*target)).is_ok()) {
            give_back(target..target + 1);
            self.unlocked(Some(target));
        }
    }
}

#[cfg(test)]
#[path = "tests/epoch.rs"]
mod tests;
