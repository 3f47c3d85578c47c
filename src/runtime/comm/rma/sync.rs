//! Fences, locks and flushes: epoch checks, then the operation of the window's path.

use super::Window;
use crate::abi::comm::communicator::DTL_PROC_NULL;
use crate::abi::comm::window::{DTL_LOCK_EXCLUSIVE, DTL_LOCK_SHARED};
use crate::abi::status::{DTL_ERROR_TIMEOUT, DTL_SUCCESS};
use crate::error::{Error, Result, fail};
use crate::runtime::comm::coll;
use crate::runtime::comm::op_desc::Kind;
use crate::runtime::comm::rma_path::FlushScope;
use crate::runtime::trace::{self, Args};
use std::ops::Range;

impl Window {
    fn all(&self) -> Range<i32> {
        0..self.comm.size
    }

    /// Returns the range of one target; `None` for DTL_PROC_NULL.
    fn one(&self, name: &str, target: i32) -> Result<Option<Range<i32>>> {
        trace::about(|| Args::NONE.peer(target).comm(self.comm.handle().id));
        self.comm.check_open()?;
        if target == DTL_PROC_NULL {
            return Ok(None);
        }
        self.check_target(name, target)?;
        Ok(Some(target..target + 1))
    }

    fn lock(&self, name: &str, target: Option<i32>, exclusive: bool) -> Result<()> {
        self.epochs.begin_lock(name, target)?;
        let targets = target.map_or_else(|| self.all(), |target| target..target + 1);
        let locked = self.path.lock(targets, exclusive);
        match locked {
            Ok(()) => self.epochs.locked(target),
            Err(_) => self.epochs.unlocked(target),
        }
        locked.map_err(|error| error.within(name))
    }

    fn unlock(&self, name: &str, target: Option<i32>) -> Result<()> {
        self.epochs.begin_unlock(name, target)?;
        let targets = target.map_or_else(|| self.all(), |target| target..target + 1);
        let unlocked = self.path.unlock(targets);
        let is_stuck =
            unlocked.as_ref().map_or_else(Error::status, |()| DTL_SUCCESS) == DTL_ERROR_TIMEOUT;
        self.epochs.set_stuck(is_stuck);
        if is_stuck {
            self.epochs.locked(target);
        } else {
            self.epochs.unlocked(target);
        }
        unlocked.map_err(|error| error.within(name))
    }
}

/// Ends the current fence epoch on all ranks and opens the next. Collective.
pub fn fence(window: &Window) -> Result<()> {
    const NAME: &str = "dtl_win_fence";
    window.comm.check_open()?;
    window.epochs.begin_fence(NAME)?;
    let flushed = window.path.flush(window.all(), FlushScope::Target);
    let met =
        flushed.and_then(|()| coll::wait(&window.comm, coll::meet(&window.comm, Kind::Fence)));
    window.epochs.end_fence(met.is_ok());
    met.map_err(|error| error.within(NAME))
}

/// Opens an access epoch to one target.
pub fn lock(window: &Window, how: i32, target: i32) -> Result<()> {
    const NAME: &str = "dtl_win_lock";
    let exclusive = match how {
        DTL_LOCK_SHARED => false,
        DTL_LOCK_EXCLUSIVE => true,
        _ => {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "{NAME}: type {how}: use DTL_LOCK_SHARED or DTL_LOCK_EXCLUSIVE"
            );
        }
    };
    match window.one(NAME, target)? {
        Some(_) => window.lock(NAME, Some(target), exclusive),
        None => Ok(()),
    }
}

/// Ends the access epoch to a target. All operations of the epoch are complete at the target.
pub fn unlock(window: &Window, target: i32) -> Result<()> {
    const NAME: &str = "dtl_win_unlock";
    match window.one(NAME, target)? {
        Some(_) => window.unlock(NAME, Some(target)),
        None => Ok(()),
    }
}

/// Opens an access epoch to all targets, by shared locks.
pub fn lock_all(window: &Window) -> Result<()> {
    window.comm.check_open()?;
    window.lock("dtl_win_lock_all", None, false)
}

/// Flushes all targets and releases their shared locks.
pub fn unlock_all(window: &Window) -> Result<()> {
    window.comm.check_open()?;
    window.unlock("dtl_win_unlock_all", None)
}

/// Waits for this rank's operations on one target; `is_local`: only for their local completion.
pub fn flush(window: &Window, target: i32, is_local: bool) -> Result<()> {
    let (name, reach) = match is_local {
        true => ("dtl_win_flush_local", FlushScope::Local),
        false => ("dtl_win_flush", FlushScope::Target),
    };
    let Some(targets) = window.one(name, target)? else { return Ok(()) };
    window.epochs.check_flush(name, Some(target))?;
    window.path.flush(targets, reach).map_err(|error| error.within(name))
}

/// Waits for this rank's operations on all targets; `is_local`: only for their local completion.
pub fn flush_all(window: &Window, is_local: bool) -> Result<()> {
    let (name, reach) = match is_local {
        true => ("dtl_win_flush_local_all", FlushScope::Local),
        false => ("dtl_win_flush_all", FlushScope::Target),
    };
    window.comm.check_open()?;
    window.epochs.check_flush(name, None)?;
    window.path.flush(window.all(), reach).map_err(|error| error.within(name))
}
