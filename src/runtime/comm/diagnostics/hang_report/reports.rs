//! [`Reports`]: what a communicator has received of the other ranks' operations.

use super::notice::Notice;
use crate::abi::status::dtl_status_t;
use crate::runtime::comm::failure::missing_ranks::{Absences, MissingRanks};
use crate::runtime::comm::posted::Posted;
use crate::sys::sync::lock::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Reports of the other ranks' operations on a communicator.
#[derive(Default)]
pub(crate) struct Reports {
    pub(super) notices: Mutex<Notices>,
    /// Number of notices received.
    pub(super) news: AtomicU64,
    /// Notices that are still being sent.
    pub(super) sending: Mutex<Vec<Posted>>,
    pub(super) is_sending: AtomicBool,
    /// Absences, shared with the communicators that were created from this one.
    pub(crate) absences: Arc<Absences>,
}

#[derive(Default)]
pub(super) struct Notices {
    pub(super) latest: BTreeMap<i32, Notice>,
    pub(super) since_query: BTreeSet<i32>,
    /// First collective that another rank abandoned.
    pub(super) given_up: Option<CollFailure>,
    /// Number of the first collective that this rank has abandoned.
    pub(super) own: Option<u64>,
    /// Failed and absent ranks because of which this rank abandons a collective.
    pub(super) cause: Option<MissingRanks>,
}

/// Collective that a rank has abandoned.
#[derive(Clone)]
pub(crate) struct CollFailure {
    pub(crate) number: u64,
    pub(crate) rank: i32,
    pub(crate) status: dtl_status_t,
    /// Failed and absent ranks because of which the collective was abandoned, as far as the
    /// abandoning rank knew them.
    pub(crate) gone: MissingRanks,
}

impl Reports {
    pub(crate) fn news(&self) -> u64 {
        self.news.load(Ordering::Relaxed)
    }

    /// Returns the notice that collective `number`, or an earlier collective, was abandoned.
    pub(crate) fn given_up(&self, number: u64) -> Option<CollFailure> {
        self.notices.lock().given_up.as_ref().filter(|first| first.number <= number).cloned()
    }

    /// Stores the failed and absent ranks that are the reason of a failure, for the notice to the
    /// other ranks. Later, more ranks may be missing, because they abandoned the collective and
    /// left.
    pub(crate) fn note_cause(&self, gone: &MissingRanks) {
        self.notices.lock().cause.get_or_insert_with(|| gone.clone());
    }
}
