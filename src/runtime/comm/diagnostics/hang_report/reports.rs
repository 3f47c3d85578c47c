//! [`Reports`]: the notices (internal messages) in which the other ranks of a communicator report
//! their operations.

use super::notice::Notice;
use crate::abi::status::{DTL_ERROR_RANK_FAILURE, dtl_status_t};
use crate::error::status_name;
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
    /// Notices (reports of this rank's operations) whose sends are not complete. Not locked while
    /// the transport is called.
    pub(super) sending: Mutex<Vec<PostedNotice>>,
    pub(super) is_sending: AtomicBool,
    /// List of absent ranks (ranks that are alive but do not have the communicator), shared with
    /// the communicators that were created from this one.
    pub(crate) absences: Arc<Absences>,
}

/// Notice that this rank sends.
pub(super) struct PostedNotice {
    pub(super) rank: i32,
    pub(super) message: Posted,
    /// True until the transport has accepted the send; it may be busy.
    pub(super) is_unsent: bool,
}

#[derive(Default)]
pub(super) struct Notices {
    pub(super) latest: BTreeMap<i32, Notice>,
    pub(super) since_query: BTreeSet<i32>,
    /// Collective with the lowest number that another rank has reported as abandoned.
    pub(super) given_up: Option<CollFailure>,
    /// Number and status of the first collective that failed on each of the other ranks.
    pub(super) failures: BTreeMap<i32, (u64, dtl_status_t)>,
    /// Number of the first collective that this rank has abandoned.
    pub(super) own: Option<u64>,
    /// Ranks whose failure or absence from the communicator makes this rank abandon a collective.
    pub(super) cause: Option<MissingRanks>,
    /// Why the communicator is revoked; `None` if it is not.
    pub(super) revocation: Option<Revocation>,
}

/// Reason why a communicator is revoked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Revocation {
    /// A rank has called `shrink`.
    Shrink,
    /// This rank of the communicator has called `revoke`.
    Rank(i32),
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

impl Notices {
    /// Describes the failure that `rank` has reported; `None` if it has reported none. A failure
    /// because of another rank is not described.
    pub(super) fn failure_of(&self, rank: i32) -> Option<String> {
        let (number, status) = *self.failures.get(&rank)?;
        let name = status_name(status).to_string_lossy();
        (status != DTL_ERROR_RANK_FAILURE)
            .then(|| format!("collective #{number} ended there with {name}"))
    }
}

impl Reports {
    /// Describes the first failure that one of `ranks` has reported, with the rank.
    pub(crate) fn failure_text(&self, ranks: &[i32]) -> Option<String> {
        let notices = self.notices.lock();
        ranks
            .iter()
            .find_map(|rank| Some(format!("rank {rank} failed ({})", notices.failure_of(*rank)?)))
    }

    pub(crate) fn news(&self) -> u64 {
        self.news.load(Ordering::Relaxed)
    }

    /// Returns the abandoned collective with the lowest number, if that number is at most `number`.
    pub(crate) fn given_up(&self, number: u64) -> Option<CollFailure> {
        self.notices.lock().given_up.as_ref().filter(|first| first.number <= number).cloned()
    }

    /// Returns the reason why the communicator is revoked; `None` if it is not revoked.
    pub(crate) fn revocation(&self) -> Option<Revocation> {
        self.notices.lock().revocation
    }

    /// Records a revocation. Returns false if the other ranks have already been notified of it, or
    /// of one that a call to `revoke` has caused.
    pub(super) fn note_revocation(&self, new: Revocation) -> bool {
        let mut notices = self.notices.lock();
        let is_news = match notices.revocation {
            None => true,
            Some(Revocation::Shrink) => new != Revocation::Shrink,
            Some(Revocation::Rank(_)) => false,
        };
        if is_news {
            notices.revocation = Some(new);
        }
        is_news
    }

    /// Stores the failed and absent ranks that caused a failure, for the message that notifies the
    /// other ranks. They are stored when the failure is detected, because later the ranks that
    /// abandoned the collective and left may be missing too.
    pub(crate) fn note_cause(&self, gone: &MissingRanks) {
        self.notices.lock().cause.get_or_insert_with(|| gone.clone());
    }
}
