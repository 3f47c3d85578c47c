//! Fences, locks and flushes: each call checks the access epochs, then calls the RMA path of the
//! window.

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

    /// Returns the range that consists of `target`, or the range of all ranks if `target` is
    /// `None`. Returns `None` if the target is DTL_PROC_NULL.
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

    /// Opens an access epoch to `target`, or to all targets if `target` is `None`, by acquiring an
    /// exclusive or shared lock.
    pub fn lock(&self, name: &str, target: Option<i32>, exclusive: bool) -> Result<()> {
        let Some(targets) = self.targets(name, target)? else { return Ok(()) };
        self.epochs.begin_lock(name, target)?;
        let locked = self.path.lock(targets, exclusive);
        match locked {
            Ok(()) => self.epochs.locked(target),
            Err(_) => self.epochs.unlocked(target),
        }
        locked.map_err(|error| self.failed(name, error))
    }

    /// Ends the access epoch to `target`, or to all targets if `target` is `None`, by releasing the
    /// lock. On success, all operations of the epoch are complete at the target.
    pub fn unlock(&self, name: &str, target: Option<i32>) -> Result<()> {
        let Some(targets) = self.targets(name, target)? else { return Ok(()) };
        self.epochs.begin_unlock(name, target)?;
        let is_late = |done: &Result<()>| {
            done.as_ref().is_err_and(|error| error.status() == DTL_ERROR_TIMEOUT)
        };
        let mut unlocked = self.path.flush(targets.clone(), FlushScope::Target);
        if !is_late(&unlocked) {
            unlocked = unlocked.and(self.path.leave(targets));
        }
        let is_stuck = is_late(&unlocked);
        self.epochs.set_stuck(is_stuck);
        if is_stuck {
            self.epochs.locked(target);
        } else {
            self.epochs.unlocked(target);
        }
        unlocked.map_err(|error| self.failed(name, error))
    }

    /// Waits until this rank's operations on `target`, or on all targets if `target` is `None`, are
    /// complete. `reach` selects local completion or completion at the target.
    pub fn flush(&self, name: &str, target: Option<i32>, reach: FlushScope) -> Result<()> {
        let Some(targets) = self.targets(name, target)? else { return Ok(()) };
        self.epochs.check_flush(name, target)?;
        self.path.flush(targets, reach).map_err(|error| self.failed(name, error))
    }
}

/// Ends the current fence epoch on all ranks and opens the next. Collective.
pub fn fence(window: &Window) -> Result<()> {
    const NAME: &str = "dtl_win_fence";
    window.comm.check_open()?;
    window.epochs.begin_fence(NAME)?;
    let flushed = window.path.flush(window.all(), FlushScope::Target);
    let met = flushed
        .and_then(|()| coll::wait(&window.comm, coll::start_barrier(&window.comm, Kind::Fence)));
    window.epochs.end_fence(met.is_ok());
    met.map_err(|error| window.failed(NAME, error))
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
