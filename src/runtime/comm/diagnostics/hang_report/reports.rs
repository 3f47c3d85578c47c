//! [`Reports`]: the notices (internal messages) in which the other ranks of a communicator report
//! their operations.

use super::notice::Notice;
use crate::abi::status::dtl_status_t;
use crate::runtime::comm::failure::missing_ranks::{Absences, MissingRanks};
use crate::runtime::comm::posted::Posted;
use crate::sys::sync::lock::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Messages (notices) in which the ranks of a communicator report their operations: those received
/// from other ranks, and those that this rank is sending.
#[derive(Default)]
pub(crate) struct Reports {
    pub(super) notices: Mutex<Notices>,
    /// Number of notices (reports of other ranks' operations) received.
    pub(super) news: AtomicU64,
    /// Notices (reports of this rank's operations) whose sends are not complete.
    pub(super) sending: Mutex<Vec<Posted>>,
    pub(super) is_sending: AtomicBool,
    /// List of absent ranks (ranks that are alive but do not have the communicator), shared with
    /// the communicators that were created from this one.
    pub(crate) absences: Arc<Absences>,
}

#[derive(Default)]
pub(super) struct Notices {
    pub(super) latest: BTreeMap<i32, Notice>,
    pub(super) since_query: BTreeSet<i32>,
    /// Collective with the lowest number that another rank has reported as abandoned.
    pub(super) given_up: Option<CollFailure>,
    /// Number of the first collective that this rank has abandoned.
    pub(super) own: Option<u64>,
    /// Ranks whose failure or absence from the communicator makes this rank abandon a collective.
    pub(super) cause: Option<MissingRanks>,
}

/// Collective that a rank has abandoned.
#[derive(Clone)]
pub(crate) struct CollFailure {
    pub(crate) number: u64,
    pub(crate) rank: i32,
    pub(crate) status: dtl_status_t,
    /// Ranks whose failure or absence from the communicator made `rank` abandon the collective, as
    /// far as `rank` has reported them.
    pub(crate) gone: MissingRanks,
}

impl Reports {
    pub(crate) fn news(&self) -> u64 {
        self.news.load(Ordering::Relaxed)
    }

    /// Returns the abandoned collective with the lowest number, if that number is at most `number`.
    pub(crate) fn given_up(&self, number: u64) -> Option<CollFailure> {
        self.notices.lock().given_up.as_ref().filter(|first| first.number <= number).cloned()
    }

    /// Stores the failed and absent ranks that caused a failure, for the message that notifies the
    /// other ranks. They are stored when the failure is detected, because later the ranks that
    /// abandoned the collective and left may be missing too.
    pub(crate) fn note_cause(&self, gone: &MissingRanks) {
        self.notices.lock().cause.get_or_insert_with(|| gone.clone());
    }
}
