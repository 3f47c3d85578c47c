//! Records of members that no longer take part: dead ranks, and absent ranks (`absence`).

use crate::sys::sync::lock::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Collective number in a notice of a rank that is absent from the notice's own communicator.
pub(crate) const HERE: u64 = u64::MAX;

/// Returns the number that stands for shrink `completed + 1` in a notice: the notice reports that a
/// rank is absent from the result of that shrink.
pub(crate) fn of_shrink(completed: u32) -> u64 {
    HERE - 1 - u64::from(completed)
}

/// Absences reported on one communicator.
#[derive(Default)]
pub(crate) struct Absences {
    /// Pairs of the collective's number and the absent rank, as the transport numbers ranks.
    list: Mutex<BTreeSet<(u64, i32)>>,
    /// Length of `list`; lets waiting calls read one word instead of locking `list`.
    count: AtomicUsize,
}

impl Absences {
    pub(crate) fn note(&self, number: u64, outer: i32) {
        let mut list = self.list.lock();
        list.insert((number, outer));
        self.count.store(list.len(), Ordering::Release);
    }

    /// Returns the ranks reported for collective `number`, as the transport numbers ranks.
    pub(crate) fn of(&self, number: u64) -> Vec<i32> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let list = self.list.lock();
        list.range((number, i32::MIN)..=(number, i32::MAX)).map(|(_, outer)| *outer).collect()
    }
}

/// Members that no longer take part, as ranks of the communicator.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct MissingRanks {
    /// Ranks that died or left.
    pub(crate) failed: Vec<i32>,
    /// Live ranks that are absent or known to have destroyed the communicator.
    pub(crate) absent: Vec<i32>,
}

impl MissingRanks {
    pub(crate) fn is_empty(&self) -> bool {
        self.failed.is_empty() && self.absent.is_empty()
    }

    /// Returns this set of ranks, or the result of `other` if this set is empty.
    pub(crate) fn or(self, other: impl FnOnce() -> MissingRanks) -> MissingRanks {
        if self.is_empty() { other() } else { self }
    }
}

/// Origin of a communicator: its parent and the collective of the parent that created it.
pub(crate) struct CommOrigin {
    /// Handle of the parent, which may have been destroyed.
    pub(crate) parent: u64,
    pub(crate) context: u32,
    /// Number of the collective, or the value of `of_shrink`.
    pub(crate) number: u64,
    pub(crate) absences: Arc<Absences>,
}

/// Contexts of the latest communicators of a transport that this rank has destroyed, each with its
/// absences; the oldest first (`hang_report::retire`).
#[derive(Default)]
pub(crate) struct Retired(pub(crate) Mutex<VecDeque<(u32, Arc<Absences>)>>);

#[cfg(test)]
#[path = "tests/missing_ranks.rs"]
mod tests;
