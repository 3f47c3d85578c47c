//! Fences, locks and flushes: epoch checks, then the operation of the window's path.

use super::Window;
use crate::abi::comm::communicator::DTL_PROC_NULL;
use crate::abi::comm::window::{DTL_LOCK_EXCLUSIVE, DTL_LOCK_SHARED};
use crate::abi::status::DTL_ERROR_TIMEOUT;
use crate::error::{Result, fail};
use crate::runtime::comm::coll;
use crate::runtime::comm::op_desc::Kind;
use crate::runtime::comm::rma_path::FlushScope;
use crate::runtime::trace::{self, Args};
use std::ops::Range;

impl Window {
    fn all(&self) -> Range<i32> {
        0..self.comm.size
    }

    /// Returns the range of one target, or of all (`target` is `None`); `None` for DTL_PROC_NULL.
    fn targets(&self, name: &str, target: Option<i32>) -> Result<Option<Range<i32>>> {
        let Some(target) = target else {
            return self.comm.check_open().map(|()| Some(self.all()));
        };
        trace::about(|| Args::NONE.peer(target).comm(self.comm.handle().id));
        self.comm.check_open()?;
        if target == DTL_PROC_NULL {
            return Ok(None);
        }
        self.check_target(name, target)?;
        Ok(Some(target..target + 1))
    }

    /// Opens an access epoch to one target, or to all (`None`).
    pub fn lock(&self, name: &str, target: Option<i32>, exclusive: bool) -> Result<()> {
        let Some(targets) = self.targets(name, target)? else { return Ok(()) };
        self.epochs.begin_lock(name, target)?;
        let locked = self.path.lock(targets, exclusive);
        match locked {
            Ok(()) => self.epochs.locked(target),
            Err(_) => self.epochs.unlocked(target),
        }
        locked.map_err(|error| error.within(name))
    }

    /// Ends the access epoch to one target, or to all (`None`). All operations of the epoch are
    /// complete at the target.
    pub fn unlock(&self, name: &str, target: Option<i32>) -> Result<()> {
        let Some(targets) = self.targets(name, target)? else { return Ok(()) };
        self.epochs.begin_unlock(name, target)?;
        let unlocked = self.path.unlock(targets);
        let is_stuck = unlocked.as_ref().is_err_and(|error| error.status() == DTL_ERROR_TIMEOUT);
        self.epochs.set_stuck(is_stuck);
        if is_stuck {
            self.epochs.locked(target);
        } else {
            self.epochs.unlocked(target);
        }
        unlocked.map_err(|error| error.within(name))
    }

    /// Waits for this rank's operations on one target, or on all (`None`), to the extent `reach`.
    pub fn flush(&self, name: &str, target: Option<i32>, reach: FlushScope) -> Result<()> {
        let Some(targets) = self.targets(name, target)? else { return Ok(()) };
        self.epochs.check_flush(name, target)?;
        self.path.flush(targets, reach).map_err(|error| error.within(name))
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
    window.lock(NAME, Some(target), exclusive)
}
