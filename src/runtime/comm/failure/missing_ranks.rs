//! Lists of members of a communicator that no longer participate: ranks that have failed, and
//! absent ranks, which are alive but do not have the communicator open (`absence`).

use crate::sys::sync::lock::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Reserved collective number in a notice (internal message). It means that the sender is absent
/// from the communicator on which it sent the notice.
pub(crate) const HERE: u64 = u64::MAX;

/// Returns the reserved collective number that a notice (internal message) contains if its sender
/// is absent from the communicator that shrink `completed + 1` created.
pub(crate) fn of_shrink(completed: u32) -> u64 {
    HERE - 1 - u64::from(completed)
}

/// Absent ranks that notices (internal messages) on one communicator have reported.
#[derive(Default)]
pub(crate) struct Absences {
    /// Pairs of a collective number and a rank in the transport's numbering. The rank is absent
    /// from the communicator that this collective created.
    list: Mutex<BTreeSet<(u64, i32)>>,
    /// Length of `list`. While it is 0, readers need not lock `list`.
    count: AtomicUsize,
}

impl Absences {
    pub(crate) fn note(&self, number: u64, outer: i32) {
        let mut list = self.list.lock();
        list.insert((number, outer));
        self.count.store(list.len(), Ordering::Release);
    }

    /// Returns the ranks, in the transport's numbering, that are reported absent from the
    /// communicator that collective `number` created.
    pub(crate) fn of(&self, number: u64) -> Vec<i32> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let list = self.list.lock();
        list.range((number, i32::MIN)..=(number, i32::MAX)).map(|(_, outer)| *outer).collect()
    }
}

/// Members of a communicator that have died or do not take part in its operations, identified by
/// their ranks in this communicator.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct MissingRanks {
    /// Ranks that died or left.
    pub(crate) failed: Vec<i32>,
    /// Ranks that have not failed, but on which the creation of the communicator failed, or which
    /// are known to have destroyed it.
    pub(crate) absent: Vec<i32>,
}

impl MissingRanks {
    pub(crate) fn is_empty(&self) -> bool {
        self.failed.is_empty() && self.absent.is_empty()
    }

    /// Returns `self`, or the result of `other` if `self` is empty.
    pub(crate) fn or(self, other: impl FnOnce() -> MissingRanks) -> MissingRanks {
        if self.is_empty() { other() } else { self }
    }
}

/// Origin of a communicator: its parent, and the collective on the parent that created the
/// communicator.
pub(crate) struct CommOrigin {
    /// Handle of the parent, which may have been destroyed.
    pub(crate) parent: u64,
    pub(crate) context: u32,
    /// Number of the collective, executed on the parent, that created the communicator, or the
    /// value of `of_shrink` if a shrink created the communicator.
    pub(crate) number: u64,
    pub(crate) absences: Arc<Absences>,
}

/// Contexts of the communicators that this rank has destroyed most recently, among the
/// communicators that use one transport. Each context is stored with the list of absent ranks of
/// its communicator (`hang_report::retire`). The oldest comes first.
#[derive(Default)]
pub(crate) struct Retired(pub(crate) Mutex<VecDeque<(u32, Arc<Absences>)>>);

#[cfg(test)]
#[path = "tests/missing_ranks.rs"]
mod tests;
