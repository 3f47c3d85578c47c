//! Access epochs of a window: which targets a rank may access, as opened and closed by its own
//! calls. The rank checks this locally, before it sends anything.
//!
//! A fence opens an epoch to all targets; a lock opens an epoch to its target. Only one of the two
//! kinds is open at a time: a lock ends a fence epoch in which no operation ran. Any thread may
//! make any call. A thread that opens or ends an epoch first claims it (by compare-and-swap), then
//! waits for other ranks, so a second thread fails instead of waiting or repeating the call.
//! Operations only read the state, by one or two loads.

use crate::abi::status::DTL_ERROR_INVALID_STATE;
use crate::error::{Error, Result, fail, failure};
use crate::sys::sync::AtomicUpdate;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32};

/// No fence epoch: no fence was called since the last lock, or the last fence failed.
const NONE: u8 = 0;
/// Fence epoch in which no operation ran yet.
const OPEN: u8 = 1;
/// Fence epoch in which an operation ran.
const USED: u8 = 2;

/// Lock state: this rank does not have the lock.
const FREE: u8 = 0;
/// Lock state: this rank has the lock.
const HELD: u8 = 1;
/// Lock state: a call is acquiring or releasing the lock.
const MOVING: u8 = 2;

/// Value of `claimed` for dtl_win_lock_all; values below `FENCE` count claimed targets.
const ALL: u32 = u32::MAX;
const FENCE: u32 = u32::MAX - 1;

pub(super) struct Epochs {
    fence: AtomicU8,
    /// True if a fence or the destruction of the window has failed, so the ranks are out of step.
    is_broken: AtomicBool,
    /// True if the last unlock timed out.
    is_stuck: AtomicBool,
    claimed: AtomicU32,
    /// Lock state of dtl_win_lock_all.
    all: AtomicU8,
    /// Lock state of each target, by rank.
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

    /// Returns the state of the lock of `target`; `None`: of dtl_win_lock_all.
    fn lock(&self, target: Option<i32>) -> Option<&AtomicU8> {
        target.map_or(Some(&self.all), |target| self.slot(target))
    }

    /// Returns true if an operation on `target` is in an epoch, and marks a fence epoch as used.
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

    /// Returns true if an operation on `target` would be in an epoch. Does not change the epoch.
    pub(super) fn would_admit(&self, target: i32) -> bool {
        self.fence.load(Relaxed) != NONE || self.has_lock(target)
    }

    /// Returns true if this rank has a lock of `target`.
    pub(super) fn has_lock(&self, target: i32) -> bool {
        let has = |lock: &AtomicU8| lock.load(Relaxed) == HELD;
        has(&self.all) || self.slot(target).is_some_and(has)
    }

    /// Checks that this rank may flush `target`; `None`: all targets.
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

    /// Checks that this rank has no lock and that no fence is in progress.
    pub(super) fn check_unlocked(&self, name: &str) -> Result<()> {
        match self.claimed.load(Acquire) {
            0 => Ok(()),
            claimed => Err(self.is_locked(name, claimed)),
        }
    }

    /// Returns the error of a fence, or of the window's destruction, while `claimed` is claimed.
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

    /// Checks that no epoch is in use, before the window is destroyed.
    pub(super) fn check_ended(&self, name: &str) -> Result<()> {
        self.check_unlocked(name)?;
        self.check_fence(name)
    }

    fn check_fence(&self, name: &str) -> Result<()> {
        if self.fence.load(Relaxed) == USED {
            return fail!(
                DTL_ERROR_INVALID_STATE,
                "{name}: operations since the last dtl_win_fence are not over: call dtl_win_fence \
                 (all ranks) first"
            );
        }
        Ok(())
    }

    /// Records that a fence or the window's destruction has failed: only locks remain allowed.
    pub(super) fn set_broken(&self) {
        self.is_broken.store(true, Release);
    }

    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Acquire)
    }

    /// Records whether the last unlock timed out. If so, the window may be destroyed with locks.
    pub(super) fn set_stuck(&self, is_stuck: bool) {
        self.is_stuck.store(is_stuck, Release);
    }

    pub(super) fn is_stuck(&self) -> bool {
        self.is_stuck.load(Acquire)
    }

    /// Claims a fence. The caller must call `end_fence` afterwards.
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

    /// Ends a fence. After a failure its epoch ends too: operations in progress may continue, but
    /// no new operation is allowed.
    pub(super) fn end_fence(&self, is_well: bool) {
        if !is_well {
            self.set_broken();
        }
        self.fence.store(if is_well { OPEN } else { NONE }, Relaxed);
        self.claimed.store(0, Release);
    }

    /// Claims the lock of `target` (`None`: of all targets) before it is requested. The caller must
    /// call `locked` or `unlocked` afterwards.
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

    /// Returns the error of a lock that conflicts with the claim `claimed`.
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

    /// Claims one target. The error is the claim that was found.
    fn claim(&self, target: i32) -> std::result::Result<(), u32> {
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

    /// Ends a claim: this rank has the lock, because it was acquired or could not be released.
    pub(super) fn locked(&self, target: Option<i32>) {
        // A fence epoch that another thread has used meanwhile stays open until the next fence.
        let _ = self.fence.compare_exchange(OPEN, NONE, Relaxed, Relaxed);
        self.lock(target).into_iter().for_each(|lock| lock.store(HELD, Release));
    }

    /// Ends a claim: this rank does not have the lock.
    pub(super) fn unlocked(&self, target: Option<i32>) {
        self.lock(target).into_iter().for_each(|lock| lock.store(FREE, Release));
        match target {
            None => self.claimed.store(0, Release),
            Some(_) => drop(self.claimed.fetch_sub(1, AcqRel)),
        }
    }

    /// Claims the end of the epoch of `target` (`None`: of dtl_win_lock_all). The caller must call
    /// `unlocked` or `locked` afterwards.
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

    /// Releases all locks of this rank by `give_back`, because this rank leaves.
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
