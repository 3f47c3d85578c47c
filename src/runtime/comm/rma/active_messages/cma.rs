//! Puts and gets whose data the OS kernel copies between the processes of a node (cross-memory
//! attach), without a request to the target.
//!
//! Puts and gets are unordered until a flush, so the kernel may copy while requests to the same
//! target are still in flight; a flush waits for those requests. Atomic operations are always sent
//! as requests, so that only the target executes them on its memory.

use crate::abi::status::DTL_ERROR_RANK_FAILURE;
use crate::error::{Error, Result, fail};
use crate::runtime::comm::Comm;
use crate::runtime::comm::rma_path::{RmaOp, TargetRange};
use crate::runtime::component::{CopyOutcome, Remote};
use crate::runtime::explain;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Targets on which the operating system's kernel executes puts and gets (cross memory attach).
pub(super) struct Copies {
    /// Targets, indexed by rank; empty if the kernel cannot execute puts and gets on any target.
    targets: Vec<CmaTarget>,
}

struct CmaTarget {
    /// Address of the target's part of the window, in the target's process.
    base: u64,
    /// Access to the target's memory, opened by the first operation on the target; `None` if the
    /// kernel denies it.
    memory: OnceLock<Option<Arc<dyn Remote>>>,
    is_gone: AtomicBool,
}

impl Copies {
    /// Empty list: the kernel executes no puts or gets.
    pub(super) const NONE: Copies = Copies { targets: Vec::new() };

    /// Determines whether the kernel permits copies between the processes of this node. `bases`
    /// contains the address of each rank's window memory, indexed by rank. Also returns the
    /// description for `dtl_explain`, which is empty if no target is another process of this node.
    pub(super) fn new(comm: &Comm, bases: &[u64]) -> (Copies, String) {
        let own = comm.rank;
        let near = (1..comm.size).map(|by| (own + by) % comm.size);
        let kernel = comm.link.transport.groups().cross_memory;
        let mut found = near.filter_map(|rank| kernel?.remote(comm.to_world(rank)));
        // A process that has ended does not show whether the kernel copies for other processes.
        let is_there = |found: &Result<_>| !matches!(found, Err(error) if is_gone(error));
        match found.find(is_there) {
            None => (Copies::NONE, String::new()),
            Some(Err(error)) => {
                (Copies::NONE, format!("; no copies by the kernel: {}", error.text()))
            }
            Some(Ok(_)) => {
                let target = |&base: &u64| CmaTarget {
                    base,
                    memory: OnceLock::new(),
                    is_gone: AtomicBool::new(false),
                };
                let targets = bases.iter().map(target).collect();
                (Copies { targets }, "; the kernel copies puts and gets within a node".to_owned())
            }
        }
    }

    pub(super) fn is_any(&self) -> bool {
        !self.targets.is_empty()
    }

    fn target(&self, rank: i32) -> Option<&CmaTarget> {
        usize::try_from(rank).ok().and_then(|rank| self.targets.get(rank))
    }

    /// Executes a put or get by having the operating system's kernel copy the data to or from the
    /// target's memory. Returns false if the operation must be sent as a request.
    pub(super) fn copy(&self, comm: &Comm, spot: TargetRange, op: &RmaOp) -> Result<bool> {
        let target = self.target(spot.target).filter(|target| target.base != 0);
        let Some(target) = target else { return Ok(false) };
        let memory = target.memory.get_or_init(|| target.find(comm, spot.target));
        let address = target.base + spot.offset as u64;
        let copied = match (memory, op) {
            (Some(memory), RmaOp::Put(from)) => memory.write(address, *from),
            (Some(memory), RmaOp::Get(into)) => memory.read(address, *into),
            _ => CopyOutcome::Refused,
        };
        match copied {
            CopyOutcome::All => return Ok(true),
            CopyOutcome::Refused => {}
            CopyOutcome::Gone => {
                target.is_gone.store(true, Ordering::Relaxed);
                comm.look_around();
            }
        }
        self.check_there(&(spot.target..spot.target + 1)).map(|()| false)
    }

    /// Fails if an earlier operation has detected that the process of one of the targets has
    /// exited.
    pub(super) fn check_there(&self, targets: &Range<i32>) -> Result<()> {
        let is_gone = |target: &CmaTarget| target.is_gone.load(Ordering::Relaxed);
        let gone = targets.clone().find(|rank| self.target(*rank).is_some_and(is_gone));
        gone.map_or(Ok(()), |rank| {
            fail!(DTL_ERROR_RANK_FAILURE, "target {rank} has ended or runs another program")
        })
    }
}

fn is_gone(error: &Error) -> bool {
    error.status() == DTL_ERROR_RANK_FAILURE
}

impl CmaTarget {
    fn find(&self, comm: &Comm, rank: i32) -> Option<Arc<dyn Remote>> {
        let kernel = comm.link.transport.groups().cross_memory?;
        let error = match kernel.remote(comm.to_world(rank))? {
            Ok(memory) => return Some(memory),
            Err(error) => error,
        };
        self.is_gone.store(is_gone(&error), Ordering::Relaxed);
        explain::chose("window: a target by messages", error.text());
        None
    }
}
