//! Fences, locks and flushes: epochs checked, then what the window's way does.

use super::Window;
use super::way::Reach;
use crate::abi::comm::DTL_PROC_NULL;
use crate::abi::status::{DTL_ERROR_TIMEOUT, DTL_SUCCESS};
use crate::abi::window::{DTL_LOCK_EXCLUSIVE, DTL_LOCK_SHARED};
use crate::error::{Error, Result, fail};
use crate::runtime::comm::recorder::Kind;
use crate::runtime::comm::{collective, run};
use std::ops::Range;

impl Window {
    fn all(&self) -> Range<i32> {
        0..self.comm.size
    }

    /// A target as a range; `None`: nobody.
    fn one(&self, name: &str, target: i32) -> Result<Option<Range<i32>>> {
        self.comm.check_open()?;
        if target == DTL_PROC_NULL {
            return Ok(None);
        }
        self.check_target(name, target)?;
        Ok(Some(target..target + 1))
    }

    fn unlock(&self, name: &str, targets: Range<i32>, target: Option<i32>) -> Result<()> {
        let unlocked = self.way.unlock(targets);
        if unlocked.as_ref().map_or_else(Error::status, |()| DTL_SUCCESS) != DTL_ERROR_TIMEOUT {
            self.epochs.unlocked(target);
        }
        unlocked.map_err(|error| error.within(name))
    }
}

/// Ends the epoch of the fence before on all ranks and opens another.
pub fn fence(window: &Window) -> Result<()> {
    const NAME: &str = "dtl_win_fence";
    window.comm.check_open()?;
    window.epochs.check_unlocked(NAME)?;
    window.way.flush(window.all(), Reach::Target).map_err(|error| error.within(NAME))?;
    run::wait(&window.comm, collective::meet(&window.comm, Kind::Fence))
        .map_err(|error| error.within(NAME))?;
    window.epochs.fenced();
    Ok(())
}

/// Opens an epoch to one target.
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
    let Some(targets) = window.one(NAME, target)? else { return Ok(()) };
    window.epochs.check_lock(NAME, Some(target))?;
    window.way.lock(targets, exclusive).map_err(|error| error.within(NAME))?;
    window.epochs.locked(Some(target));
    Ok(())
}

/// Ends the epoch: all that was done in it is done at the target.
pub fn unlock(window: &Window, target: i32) -> Result<()> {
    const NAME: &str = "dtl_win_unlock";
    let Some(targets) = window.one(NAME, target)? else { return Ok(()) };
    window.epochs.check_unlock(NAME, Some(target))?;
    window.unlock(NAME, targets, Some(target))
}

/// Opens an epoch to all targets, by shared locks.
pub fn lock_all(window: &Window) -> Result<()> {
    const NAME: &str = "dtl_win_lock_all";
    window.comm.check_open()?;
    window.epochs.check_lock(NAME, None)?;
    window.way.lock(window.all(), false).map_err(|error| error.within(NAME))?;
    window.epochs.locked(None);
    Ok(())
}

/// Ends it.
pub fn unlock_all(window: &Window) -> Result<()> {
    const NAME: &str = "dtl_win_unlock_all";
    window.comm.check_open()?;
    window.epochs.check_unlock(NAME, None)?;
    window.unlock(NAME, window.all(), None)
}

/// Waits for this rank's operations on one target.
pub fn flush(window: &Window, target: i32, is_local: bool) -> Result<()> {
    let (name, reach) = of_flush(is_local);
    let Some(targets) = window.one(name, target)? else { return Ok(()) };
    window.epochs.check_flush(name, Some(target))?;
    window.way.flush(targets, reach).map_err(|error| error.within(name))
}

/// The same for all targets.
pub fn flush_all(window: &Window, is_local: bool) -> Result<()> {
    let (name, reach) = of_flush(is_local);
    window.comm.check_open()?;
    window.epochs.check_flush(name, None)?;
    window.way.flush(window.all(), reach).map_err(|error| error.within(name))
}

fn of_flush(is_local: bool) -> (&'static str, Reach) {
    if is_local { ("dtl_win_flush_local", Reach::Local) } else { ("dtl_win_flush", Reach::Target) }
}
