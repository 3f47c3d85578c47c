//! Collective calls: arguments checked, steps generated, run under one time limit.
//!
//! Every rank must make the same calls in the same order. A failure (time limit, death, mismatch)
//! leaves ranks at different points, so collectives are refused from then on.

use super::Comm;
use super::algorithms::{self as algorithm, Group};
use super::schedule::Schedule;
use super::types::Reduction;
use crate::abi::comm::DTL_TAG_MAX;
use crate::error::{Result, fail};
use crate::sys::buf::Region;
use std::sync::atomic::Ordering;

impl Comm {
    fn group(&self) -> Group {
        Group { rank: self.rank, size: self.size }
    }

    fn check_root(&self, root: i32) -> Result<()> {
        if (0..self.size).contains(&root) {
            return Ok(());
        }
        fail!(DTL_ERROR_INVALID_RANK, "root {root}: the communicator has ranks 0 to {}", self.size - 1)
    }

    /// Runs one collective: `generate` appends its steps.
    fn collective(
        &self,
        name: &str,
        by: Option<Reduction>,
        generate: impl FnOnce(&mut Schedule, Group) -> Result<()>,
    ) -> Result<()> {
        self.check_open()?;
        let Some(mut schedule) = self.collective.try_lock() else {
            return fail!(
                DTL_ERROR_BUSY,
                "{name}: another thread is in a collective on this communicator; order the calls, or use two communicators"
            );
        };
        if self.is_broken.load(Ordering::Relaxed) {
            let why = self.broken.lock().clone().unwrap_or_default();
            return fail!(
                DTL_ERROR_INVALID_STATE,
                "{name}: an earlier collective failed ({why}), so the ranks are out of step: destroy the communicator"
            );
        }
        schedule.reset(by);
        generate(&mut schedule, self.group())?;
        let tag = (self.sequence.fetch_add(1, Ordering::Relaxed) & DTL_TAG_MAX as u32) as i32;
        let result = schedule.run(self, tag, self.deadline()).map_err(|error| error.within(name));
        if let Err(error) = &result {
            *self.broken.lock() = Some(error.to_string());
            self.is_broken.store(true, Ordering::Relaxed);
        }
        result
    }
}

fn check_disjoint(send: Region, recv: Region) -> Result<()> {
    if send.overlaps(recv) {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "the send and receive buffers overlap: use two buffers");
    }
    Ok(())
}

/// Returns once every rank has called it.
pub fn barrier(comm: &Comm) -> Result<()> {
    comm.collective("barrier", None, |s, g| {
        algorithm::barrier(s, g);
        Ok(())
    })
}

/// The root's data to all.
pub fn bcast(comm: &Comm, data: Region, root: i32) -> Result<()> {
    comm.check_root(root)?;
    comm.collective("bcast", None, |s, g| {
        algorithm::bcast(s, g, root, data);
        Ok(())
    })
}

/// Everybody's data folded, at the root.
pub fn reduce(comm: &Comm, send: Region, recv: Region, by: Reduction, root: i32) -> Result<()> {
    comm.check_root(root)?;
    check_disjoint(send, recv)?;
    comm.collective("reduce", Some(by), |s, g| {
        if by.commutes {
            algorithm::reduce(s, g, root, send, recv)
        } else {
            algorithm::reduce_in_order(s, g, root, send, recv)
        }
    })
}

/// Everybody's data folded, at everybody.
pub fn allreduce(comm: &Comm, send: Region, recv: Region, by: Reduction) -> Result<()> {
    check_disjoint(send, recv)?;
    comm.collective("allreduce", Some(by), |s, g| algorithm::allreduce(s, g, send, recv, &by))
}

/// Everybody's block, at the root.
pub fn gather(comm: &Comm, send: Region, recv: Region, root: i32) -> Result<()> {
    comm.check_root(root)?;
    check_disjoint(send, recv)?;
    comm.collective("gather", None, |s, g| {
        algorithm::gather(s, g, root, send, recv);
        Ok(())
    })
}

/// The root's blocks, one to each.
pub fn scatter(comm: &Comm, send: Region, recv: Region, root: i32) -> Result<()> {
    comm.check_root(root)?;
    check_disjoint(send, recv)?;
    comm.collective("scatter", None, |s, g| {
        algorithm::scatter(s, g, root, send, recv);
        Ok(())
    })
}

/// Everybody's block, at everybody.
pub fn allgather(comm: &Comm, send: Region, recv: Region) -> Result<()> {
    check_disjoint(send, recv)?;
    comm.collective("allgather", None, |s, g| {
        algorithm::allgather(s, g, send, recv);
        Ok(())
    })
}

/// Block r to rank r, and block r from rank r; blocks of `block` bytes.
pub fn alltoall(comm: &Comm, send: Region, recv: Region, block: usize) -> Result<()> {
    check_disjoint(send, recv)?;
    comm.collective("alltoall", None, |s, g| {
        algorithm::alltoall(s, g, send, recv, block);
        Ok(())
    })
}
