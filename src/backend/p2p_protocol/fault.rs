//! Failure handling: failed ranks, and failures of the raw transport (`Wire`).

use super::engine::{Engine, Operation, Receive, SendStage, index_of, rank_of};
use crate::abi::status::*;
use crate::backend::p2p::P2pEngine;
use crate::error::status_name;
use crate::runtime::component::{Completion, OpId};

/// Maximum number of any-source frame receives that may fail because of one rank failure; if more
/// fail, the `Wire` counts as failed. This limit covers all posted frame receives and an equal
/// number of reposted receives that had begun to receive a message from the failed rank.
const LOST_BY_ONE_DEATH: usize = 2 * super::engine::RECEIVES;

impl Engine {
    /// Handles a failed receive of a frame.
    pub(super) fn receive_failed(&mut self, from: i32, status: dtl_status_t) {
        let source = index_of(from);
        if status != DTL_ERROR_RANK_FAILURE {
            let reason = self.reason("a receive", status);
            return self.break_down(status, Some(reason));
        }
        if !self.is_other(source) {
            let reason =
                self.wire.failure_text().map_or(String::new(), |reason| format!(": {reason}"));
            let text = format!(
                "{} reported a failed rank and named rank {from}, which is not another rank of the \
                 communicator{reason}",
                self.wire.completes()
            );
            return self.distrust(status, text);
        }
        if !self.is_dead(source) {
            self.note_failure(status, source);
        }
        self.lost_receives += 1;
        if self.lost_receives > LOST_BY_ONE_DEATH * (self.deaths + self.dying.len()) {
            let text =
                format!("receives from any source fail for ever since the death of rank {source}");
            self.break_down(DTL_ERROR_RANK_FAILURE, Some(text));
        }
    }

    /// Treats a rank on which dtl_comm_open failed as a failed rank.
    #[cold]
    pub(super) fn has_left(&mut self, rank: usize) {
        if !self.is_dead(rank) && !self.dying.contains(&rank) {
            self.dying.push(rank);
            self.set_reason(Some(rank), Some(format!("dtl_comm_open failed on rank {rank}")));
        }
    }

    /// Sets the error message of the last failure; `of` is the rank that has failed, if one has.
    pub(super) fn set_reason(&mut self, of: Option<usize>, reason: Option<String>) {
        (self.reason, self.reason_of) = (reason, of);
    }

    /// Returns the error message for the failed operation `what`: the error message of the `Wire`
    /// if it has one, else the operation and its status.
    #[cold]
    pub(super) fn reason(&mut self, what: &str, status: dtl_status_t) -> String {
        let nothing = || {
            let name = status_name(status).to_string_lossy();
            format!("{} ended {what} with {name}", self.wire.completes())
        };
        self.wire.failure_text().unwrap_or_else(nothing)
    }

    /// Returns true if `rank` is a valid rank other than this one; only such a rank can send frames
    /// to this rank.
    pub(super) fn is_other(&self, rank: usize) -> bool {
        rank < self.links.ranks() && rank != self.rank
    }

    /// Handles a completed receive whose `len` bytes are not a valid frame.
    #[cold]
    pub(super) fn no_frame(&mut self, source: i32, len: u64) {
        let who = self.wire.completes();
        let (status, text) = if self.is_other(index_of(source)) {
            let text = format!(
                "{who} completed a receive of {len} bytes from rank {source} that are not a frame \
                 of this library: the receive was reported complete before all of its bytes had \
                 arrived, or the bytes were changed"
            );
            (DTL_ERROR_COMMUNICATION, text)
        } else {
            let text = format!(
                "{who} named rank {source} as the source of a message, which is not another rank \
                 of the communicator"
            );
            (DTL_ERROR_NATIVE_BACKEND, text)
        };
        self.distrust(status, text);
    }

    /// Handles a frame receive that completed with a tag other than the tag for which it was
    /// posted.
    #[cold]
    pub(super) fn wrong_word(&mut self, expected: u64, got: u64) {
        let who = self.wire.completes();
        let text =
            format!("{who} completed a receive of match word {expected} with match word {got}");
        self.distrust(DTL_ERROR_NATIVE_BACKEND, text);
    }

    /// Returns an error message if payload receive `id` succeeded with a source or tag other than
    /// those for which it was posted, else `None`.
    pub(super) fn impossible(&self, id: OpId, got: &Completion) -> Option<String> {
        let Some(Operation::Receive(Receive { taken: Some(taken), .. })) = self.operations.get(id)
        else {
            return None;
        };
        let (source, word) = (rank_of(taken.source), u64::from(taken.payload.unwrap_or_default()));
        if got.status != DTL_SUCCESS || (got.source, got.match_bits) == (source, word) {
            return None;
        }
        let who = self.wire.completes();
        Some(format!(
            "{who} completed a receive from rank {source} of match word {word} with rank {} and \
             match word {}",
            got.source, got.match_bits
        ))
    }

    /// Completes all current and future operations with `status`, because the `Wire` has failed.
    /// The `Wire` must no longer access any buffer, unless `status` is NATIVE_BACKEND (see
    /// `distrust`).
    pub(super) fn break_down(&mut self, status: dtl_status_t, reason: Option<String>) {
        self.stop(status, reason, status != DTL_ERROR_NATIVE_BACKEND);
    }

    /// Stops all operations because the `Wire` reported an impossible result. The `Wire` may still
    /// access the buffers passed to it, so operations on these buffers do not complete, and testing
    /// them fails.
    fn distrust(&mut self, status: dtl_status_t, reason: String) {
        self.stop(status, Some(reason), false);
    }

    fn stop(&mut self, status: dtl_status_t, reason: Option<String>, gives_back: bool) {
        if self.broken.is_some() {
            return;
        }
        self.broken = Some(status);
        if reason.is_some() {
            self.set_reason(None, reason);
        }
        let own = self.rank;
        let unfinished = |(id, operation): (OpId, &mut Operation)| match operation {
            Operation::Done(_) => None,
            _ if !gives_back && is_with_wire(operation) => None,
            Operation::Send(send) => Some((id, send.dest)),
            Operation::Receive(_)
            | Operation::Taken(_)
            | Operation::Withdrawn(_)
            | Operation::Collective => Some((id, own)),
        };
        let all: Vec<_> = self.operations.iter_mut().filter_map(unfinished).collect();
        all.into_iter().for_each(|(id, peer)| self.finish_failed(id, peer, status));
    }

    /// If the `Wire` stores a failure reason for each rank, sets the error message to the reason
    /// why `rank` failed, even if other ranks have failed since.
    #[cold]
    pub(super) fn say_of(&mut self, rank: i32) {
        if let Some(reason) = self.wire.why_gone(rank) {
            self.set_reason(Some(index_of(rank)), Some(reason));
        }
    }

    pub(super) fn is_dead(&self, rank: usize) -> bool {
        self.links.get(rank).is_some_and(|link| link.is_dead)
    }

    /// Fails each operation that needs the failed rank, except those that the `Wire` is executing:
    /// the `Wire` completes these itself. The caller must have read all frames that the rank sent.
    pub(super) fn settle(&mut self, rank: usize) {
        let Some(link) = self.links.make(rank).filter(|link| !link.is_dead) else { return };
        link.is_dead = true;
        link.withdrawn = 0;
        link.queue.clear();
        self.deaths += 1;
        self.fail_operations(rank, |operation| match operation {
            Operation::Send(send) => send.dest == rank && send.stage != SendStage::Moving,
            Operation::Receive(Receive { taken: Some(taken), .. }) => {
                taken.source == rank && taken.payload.is_none()
            }
            _ => false,
        });
    }
}

/// Returns true if the operation's buffer is in use by the `Wire`.
fn is_with_wire(operation: &Operation) -> bool {
    match operation {
        Operation::Send(send) => send.stage == SendStage::Moving,
        Operation::Receive(receive) => receive.taken.is_some_and(|taken| taken.payload.is_some()),
        Operation::Collective => true,
        Operation::Taken(_) | Operation::Withdrawn(_) | Operation::Done(_) => false,
    }
}
