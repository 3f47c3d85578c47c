//! Absent ranks: live members of a communicator that take no part in its operations.
//!
//! A rank is absent if the call that created the communicator failed on this rank alone, or if this
//! rank destroyed the communicator after a failure while other ranks still use it. The transport
//! reports neither case, because the rank has not died. Therefore the absent rank sends a notice.
//! Without the notice the other ranks would wait for the absent rank forever.
//!
//! A rank whose call failed has no context of the new communicator. It sends its notice on the
//! parent's context, with the number of the collective that created the communicator. Therefore the
//! new communicator shares the parent's list of absences (`CommOrigin`), and reads the notices
//! itself once the parent is destroyed.

use super::comm_handles::TABLE;
use super::comm_state::CommState;
use crate::abi::comm::communicator::DTL_ANY_SOURCE;
use crate::abi::status::DTL_ERROR_RANK_FAILURE;
use crate::error::Result;
use crate::runtime::comm::Comm;
use crate::runtime::comm::diagnostics::hang_report;
use crate::runtime::comm::p2p::send_recv::OpHandle;
use crate::runtime::component::Completion;
use crate::sys::handles::epoch;
use crate::sys::sync::lock::Mutex;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

/// Collective number in a notice of a rank that is absent from the notice's own communicator.
pub(in crate::runtime::comm) const HERE: u64 = u64::MAX;

/// Returns the value that replaces a collective's number in a notice: the rank is absent from the
/// result of shrink number `completed + 1`.
pub(in crate::runtime::comm) fn of_shrink(completed: u32) -> u64 {
    HERE - 1 - u64::from(completed)
}

/// Absences reported on one communicator.
#[derive(Default)]
pub(in crate::runtime::comm) struct Absences {
    /// Pairs of the collective's number and the absent rank, as the transport numbers ranks.
    list: Mutex<BTreeSet<(u64, i32)>>,
    /// Length of `list`; lets waiting calls read one word instead of locking `list`.
    count: AtomicUsize,
}

impl Absences {
    pub(in crate::runtime::comm) fn note(&self, number: u64, outer: i32) {
        let mut list = self.list.lock();
        list.insert((number, outer));
        self.count.store(list.len(), Ordering::Release);
    }

    fn of(&self, number: u64) -> Vec<i32> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let list = self.list.lock();
        list.range((number, i32::MIN)..=(number, i32::MAX)).map(|(_, outer)| *outer).collect()
    }
}

/// Members that no longer take part, as ranks of the communicator.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(in crate::runtime::comm) struct MissingRanks {
    /// Ranks that died or left.
    pub(in crate::runtime::comm) failed: Vec<i32>,
    /// Live ranks that are absent or known to have destroyed the communicator.
    pub(in crate::runtime::comm) absent: Vec<i32>,
}

impl MissingRanks {
    pub(in crate::runtime::comm) fn is_empty(&self) -> bool {
        self.failed.is_empty() && self.absent.is_empty()
    }

    /// Returns this set of ranks, or the result of `other` if this set is empty.
    pub(in crate::runtime::comm) fn or(self, other: impl FnOnce() -> MissingRanks) -> MissingRanks {
        if self.is_empty() { other() } else { self }
    }
}

/// Origin of a communicator: its parent and the collective of the parent that created it.
pub(in crate::runtime::comm) struct CommOrigin {
    /// Handle of the parent, which may have been destroyed.
    parent: u64,
    context: u32,
    /// Number of the collective, or the value of `of_shrink`.
    number: u64,
    absences: Arc<Absences>,
}

impl Comm {
    /// Records that collective `number` of `parent` created this communicator. Both are on one
    /// link.
    pub(in crate::runtime::comm) fn made_by(mut self, parent: &Comm, number: u64) -> Comm {
        let (context, absences) = (parent.context, Arc::clone(&parent.reports.absences));
        self.origin =
            Some(Box::new(CommOrigin { parent: parent.handle().id, context, number, absences }));
        self
    }

    /// Returns the number of the latest collective that was started.
    pub(in crate::runtime::comm) fn latest_number(&self) -> u64 {
        u64::from(self.sequence.load(Ordering::Relaxed).wrapping_sub(1) & i32::MAX as u32)
    }

    /// Returns the members that are known to be absent.
    pub(in crate::runtime::comm) fn absent_ranks(&self) -> Vec<i32> {
        let mut absent = self.reports.absences.of(HERE);
        if let Some(origin) = &self.origin {
            absent.extend(origin.absences.of(origin.number));
        }
        if let Some(members) = &self.members {
            absent = absent.into_iter().filter_map(|outer| members.to_local(outer)).collect();
        }
        absent
    }

    /// Returns true if a member is known to have died or to be absent.
    pub(in crate::runtime::comm) fn has_gone(&self) -> bool {
        self.has_died() || !self.absent_ranks().is_empty()
    }

    /// Returns the members that are known to have failed or to be absent.
    pub(in crate::runtime::comm) fn gone(&self) -> MissingRanks {
        let failed = self.failed_ranks();
        let all: BTreeSet<_> = self.absent_ranks().into_iter().chain(self.left_ranks()).collect();
        let absent = all.into_iter().filter(|rank| !failed.contains(rank)).collect();
        MissingRanks { failed, absent }
    }

    /// Returns the reason why an operation cannot complete: the members that failed or are absent.
    fn gone_text(&self) -> String {
        self.gone_text_of(&self.gone())
    }

    /// Returns the reason why an operation with rank `peer` cannot complete. Other failed or absent
    /// ranks are named only if nothing is recorded about `peer`.
    pub(in crate::runtime::comm) fn peer_gone_text(&self, peer: i32) -> String {
        if self.failed_ranks().contains(&peer) {
            return format!("because of rank {peer} ({}){}", self.failed_how(), self.failed_why());
        }
        match self.gone().absent.contains(&peer) {
            true => self.gone_text_of(&MissingRanks { failed: Vec::new(), absent: vec![peer] }),
            false => self.gone_text(),
        }
    }

    /// Returns the reason why an operation cannot complete because of the members `gone`.
    pub(in crate::runtime::comm) fn gone_text_of(&self, gone: &MissingRanks) -> String {
        let absent = match &*gone.absent {
            [] => String::new(),
            [rank] => format!(
                "because rank {rank} does not take part in this communicator: the call that made \
                 it failed there, \
                 or that rank destroyed it; dtl_comm_shrink leaves it out"
            ),
            ranks => format!(
                "because ranks {} do not take part in this communicator: the call that made it \
                 failed there, \
                 or these ranks destroyed it; dtl_comm_shrink leaves them out",
                crate::runtime::comm::communicator::rank_list(ranks)
            ),
        };
        match crate::runtime::comm::communicator::rank_list(&gone.failed) {
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

    /// Polls an operation with rank `peer`. If `peer` is absent, completes it as if `peer` had
    /// died.
    pub(in crate::runtime::comm) fn poll_peer(
        &self,
        started: OpHandle,
        peer: i32,
    ) -> Result<Option<Completion>> {
        match self.poll(started)? {
            None => self.end_if_absent(started, peer),
            done => Ok(done),
        }
    }

    /// If rank `peer` is absent, cancels and completes an operation as if `peer` had died.
    pub(in crate::runtime::comm) fn end_if_absent(
        &self,
        started: OpHandle,
        peer: i32,
    ) -> Result<Option<Completion>> {
        if !self.is_absent(peer) {
            return Ok(None);
        }
        self.catch_up(peer);
        // Pending: the message has been matched and will complete.
        Ok(match self.try_cancel_started(started)? {
            Poll::Ready(done) => done.or(Some(failed(peer))),
            Poll::Pending => None,
        })
    }

    /// Returns true if the member `rank` is known to be absent. For DTL_ANY_SOURCE, returns true if
    /// at least one member is absent and all other members are absent or failed.
    pub(in crate::runtime::comm) fn is_absent(&self, rank: i32) -> bool {
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

    /// Receives the notices that departed ranks sent before they destroyed this communicator.
    pub(in crate::runtime::comm) fn catch_up_with_left(&self) {
        self.left_ranks().into_iter().for_each(|rank| self.catch_up(rank));
        hang_report::serve(self);
    }

    /// Receives the earlier messages of rank `peer` if `peer` has destroyed this communicator.
    pub(in crate::runtime::comm) fn catch_up(&self, peer: i32) {
        if peer != DTL_ANY_SOURCE && self.has_left(peer) {
            self.receive_earlier(peer);
        }
    }

    /// Receives the messages that rank `peer` has sent so far. Needed because this rank may observe
    /// in shared memory a later action of `peer` before it receives those messages. Does nothing on
    /// a transport without shared memory.
    pub(in crate::runtime::comm) fn receive_earlier(&self, peer: i32) {
        if let Some(shared) = &self.link.shared_memory {
            shared.part().catch_up(self.to_world(peer));
        }
    }

    /// Makes progress. Also checks for failed ranks now if the transport does not detect them
    /// itself.
    pub(in crate::runtime::comm) fn look_around(&self) {
        match &self.link.shared_memory {
            Some(shared) => shared.part().look_around(),
            None => self.link.transport.progress(),
        }
    }

    /// Returns true if shared memory shows that a rank's process has died or closed the transport.
    pub(in crate::runtime::comm) fn has_closed(&self, rank: i32) -> bool {
        self.link
            .shared_memory
            .as_ref()
            .is_some_and(|shared| shared.part().has_left(self.to_world(rank)))
    }
}

/// Returns the completion of an operation with an absent rank: RANK_FAILURE.
pub(in crate::runtime::comm) fn failed(peer: i32) -> Completion {
    Completion { source: peer, status: DTL_ERROR_RANK_FAILURE, match_bits: 0, size: 0 }
}

/// Number of unsuccessful polls of a nonblocking call per thread between two reads of notices.
const LOOKS: u32 = 64;

thread_local! {
    static IN_VAIN: Cell<u32> = const { Cell::new(0) };
}

/// Counts an unsuccessful poll of a nonblocking call, which a program may repeat indefinitely. So
/// every `LOOKS`-th poll reads notices, as a waiting call does. Returns true if this poll did.
pub(in crate::runtime::comm) fn looked_in_vain(comm: &Comm) -> bool {
    let looks = IN_VAIN.try_with(|looks| looks.replace(looks.get().wrapping_add(1)));
    let is_due = looks.is_ok_and(|looks| looks % LOOKS == LOOKS - 1);
    if is_due {
        hang_report::serve(comm);
    }
    is_due
}

/// Reads the notices on the parent's context, for a communicator that a collective of the parent
/// created. Does nothing for a communicator without a parent.
pub(in crate::runtime::comm) fn read_notices(comm: &Comm) {
    let Some(origin) = &comm.origin else { return };
    let parent = TABLE.pin(&epoch::enter(), origin.parent);
    match parent {
        Some(parent) => hang_report::serve_own(&parent),
        None => hang_report::read_absences(comm, origin.context, &origin.absences),
    }
}

/// Returns true if the communicator has failed, so that its ranks may destroy it at different
/// times. Without a failure all ranks destroy the communicator collectively.
pub(in crate::runtime::comm) fn has_failed(comm: &Comm) -> bool {
    comm.standing.state() == CommState::Revoked || comm.is_broken() || comm.has_died()
}

/// Publishes to the other ranks that this rank destroys the communicator: by its mark in the
/// mailbox, and by a notice if the communicator has failed. After a completed shrink no rank waits
/// for this rank on the communicator any more, so no mark is set: a late rank that saw the mark
/// would exclude this rank from the shrunk communicator, of which this rank is a member.
pub(in crate::runtime::comm) fn leave(comm: &Comm, has_failed: bool) {
    let (completed, is_pending) = comm.shrinking.lock().state();
    if let Some(flat) = comm.flat.as_ref().filter(|_| completed == 0) {
        flat.leave();
    }
    if !has_failed {
        return;
    }
    if completed == 0 || is_pending {
        hang_report::absent(comm, HERE);
    }
    if is_pending {
        hang_report::absent(comm, of_shrink(completed));
    }
    hang_report::retire(comm);
}

#[cfg(test)]
#[path = "tests/absence.rs"]
mod tests;
