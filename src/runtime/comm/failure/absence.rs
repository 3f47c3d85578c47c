//! Absent ranks: live members of a communicator that take no part in its operations.
//!
//! A rank is absent if the call that created the communicator failed on this rank alone, or if this
//! rank destroyed the communicator after a failure while other ranks still use it. The transport
//! reports neither case, because the rank has not died. Therefore the absent rank sends a notice
//! (internal message). Without the notice the other ranks would wait for the absent rank forever.
//!
//! A rank whose call failed has no context of the new communicator. It sends its notice on the
//! parent's context, with the number of the collective that created the communicator. Therefore the
//! new communicator shares the parent's list of absent ranks (`CommOrigin`). Once the parent is
//! destroyed, calls on the new communicator read these notices.

use super::missing_ranks::{CommOrigin, HERE, MissingRanks};
use crate::abi::comm::communicator::DTL_ANY_SOURCE;
use crate::abi::status::DTL_ERROR_RANK_FAILURE;
use crate::runtime::comm::Comm;
use crate::runtime::comm::communicator::rank_list;
use crate::runtime::component::Completion;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Comm {
    /// Records that collective `number` of `parent` created this communicator. Both communicators
    /// use the same transport.
    pub(crate) fn made_by(mut self, parent: &Comm, number: u64) -> Comm {
        let (context, absences) = (parent.context, Arc::clone(&parent.reports.absences));
        self.origin =
            Some(Box::new(CommOrigin { parent: parent.handle().id, context, number, absences }));
        self
    }

    /// Returns the number of the latest collective that this rank has started on this communicator.
    pub(crate) fn latest_number(&self) -> u64 {
        u64::from(self.sequence.load(Ordering::Relaxed).wrapping_sub(1) & i32::MAX as u32)
    }

    /// Returns the members that are known to be absent (alive, but not participating in the
    /// communicator).
    pub(crate) fn absent_ranks(&self) -> Vec<i32> {
        let mut absent = self.reports.absences.of(HERE);
        if let Some(origin) = &self.origin {
            absent.extend(origin.absences.of(origin.number));
        }
        self.local_ranks(absent)
    }

    /// Returns true if a member is known to have died, or to be absent (alive, but not
    /// participating in the communicator).
    pub(crate) fn has_gone(&self) -> bool {
        self.has_died() || !self.absent_ranks().is_empty()
    }

    /// Returns the members that are known to have failed, or to be absent (alive, but not
    /// participating in the communicator).
    pub(crate) fn gone(&self) -> MissingRanks {
        let failed = self.failed_ranks();
        let all: BTreeSet<_> = self.absent_ranks().into_iter().chain(self.left_ranks()).collect();
        let absent = all.into_iter().filter(|rank| !failed.contains(rank)).collect();
        MissingRanks { failed, absent }
    }

    /// Returns an error message with the reason why an operation with rank `peer` cannot complete.
    /// The message names other failed or absent ranks only if `peer` is not known to have failed or
    /// to be absent.
    pub(crate) fn peer_gone_text(&self, peer: i32) -> String {
        if self.failed_ranks().contains(&peer) {
            return format!("because of rank {peer} ({}){}", self.failed_how(), self.failed_why());
        }
        let mut gone = self.gone();
        if gone.absent.contains(&peer) {
            gone = MissingRanks { failed: Vec::new(), absent: vec![peer] };
        }
        self.gone_text_of(&gone)
    }

    /// Returns an error message that names the members `gone` as the reason why an operation cannot
    /// complete.
    pub(crate) fn gone_text_of(&self, gone: &MissingRanks) -> String {
        let failure = self.reports.failure_text(&gone.absent);
        let why = failure
            .as_deref()
            .unwrap_or("the call that made it failed there, or it was destroyed there");
        let absent = match &*gone.absent {
            [] => String::new(),
            [rank] => format!(
                "because rank {rank} does not take part in this communicator: {why}; \
                 dtl_comm_shrink leaves it out"
            ),
            ranks => format!(
                "because ranks {} do not take part in this communicator: {why}; \
                 dtl_comm_shrink leaves them out",
                rank_list(ranks)
            ),
        };
        match rank_list(&gone.failed) {
            failed if failed.is_empty() && absent.is_empty() => {
                format!("because a rank {}{}", self.failed_how(), self.failed_why())
            }
            failed if failed.is_empty() => absent,
            failed => {
                let (how, why) = (self.failed_how(), self.failed_why());
                let dead = format!("because of rank(s) {failed} ({how}){why}");
                if absent.is_empty() { dead } else { format!("{dead}; {absent}") }
            }
        }
    }

    /// Returns true if the member `rank` is known to be absent. For DTL_ANY_SOURCE, returns true if
    /// at least one member is absent and all other members are absent or failed.
    pub(crate) fn is_absent(&self, rank: i32) -> bool {
        if rank != DTL_ANY_SOURCE {
            return self.has_left(rank) || self.absent_ranks().contains(&rank);
        }
        let MissingRanks { failed, absent } = self.gone();
        if absent.is_empty() {
            return false;
        }
        let is_gone =
            |rank: i32| rank == self.rank || absent.contains(&rank) || failed.contains(&rank);
        (0..self.size).all(is_gone)
    }

    /// Receives the messages that rank `peer` has sent so far. Needed because this rank may detect
    /// a later action of `peer` in shared memory before it receives those messages. Does nothing on
    /// a transport without shared memory.
    pub(crate) fn receive_earlier(&self, peer: i32) {
        if let Some(shared) = &self.link.shared_memory {
            shared.part().catch_up(self.to_world(peer));
        }
    }

    /// Makes progress on the transport. If ranks communicate through shared memory, also checks for
    /// failed ranks.
    pub(crate) fn look_around(&self) {
        match &self.link.shared_memory {
            Some(shared) => shared.part().look_around(),
            None => self.link.transport.progress(),
        }
    }

    /// Returns true if the process of `rank` has died or closed the transport, according to the
    /// state in shared memory.
    pub(crate) fn has_closed(&self, rank: i32) -> bool {
        let shared = self.link.shared_memory.as_ref();
        shared.is_some_and(|shared| shared.part().has_left(self.to_world(rank)))
    }
}

/// Returns a completion with the status RANK_FAILURE, for an operation whose peer `peer` is absent
/// (alive, but not participating in the communicator).
pub(crate) fn failed(peer: i32) -> Completion {
    Completion { source: peer, status: DTL_ERROR_RANK_FAILURE, match_bits: 0, size: 0 }
}
