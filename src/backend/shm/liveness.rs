//! Failure detection: finds ranks that have died or have closed the communicator, and completes the
//! operations that cannot finish without them.
//!
//! Process descriptors (`pidfd`) detect deaths. Unlike a process ID, a pidfd never refers to
//! another process later. Unlike a socket, it does not stay open in forked children. It reports a
//! zombie as dead and a stopped process as alive. One system call checks all ranks. It is made only
//! after polls without progress, and only every few milliseconds. The rank that detects a death
//! publishes it in the dead rank's state word in shared memory. Before Linux 5.3 there are no
//! pidfds: then each check reads the state of each rank's process in /proc.

use super::memory::segment::PeerState;
use super::protocol::engine::{Engine, Receive, ShmOperation};
use crate::abi::status::DTL_ERROR_RANK_FAILURE;
use crate::backend::p2p::P2pEngine;
use crate::runtime::component::OpId;
use crate::sys::sync::wait::now_ns;

/// Number of polls without progress between two clock reads.
const IDLE_POLLS: u32 = 16;
/// Interval between two liveness checks, in nanoseconds.
const LOOK_EVERY_NS: u64 = 5_000_000;

impl Engine {
    /// Counts polls without progress (`moved` is false). While there is no progress, checks at
    /// intervals of `LOOK_EVERY_NS` whether the other ranks are alive. Must be called after each
    /// poll.
    pub(super) fn note_idle(&mut self, moved: bool) {
        self.liveness.idle = if moved { 0 } else { self.liveness.idle + 1 };
        if self.liveness.idle < IDLE_POLLS {
            return;
        }
        self.liveness.idle = 0;
        let now = now_ns();
        if now.saturating_sub(self.liveness.looked_ns) >= LOOK_EVERY_NS {
            self.liveness.looked_ns = now;
            self.look();
        }
    }

    pub(super) fn look(&mut self) {
        // `mark` does not overwrite the state of a rank that closed before its process ended: the
        // first state published counts.
        match &self.liveness.poller {
            Some(poller) => loop {
                let exited = poller.ready(0);
                exited.numbers().for_each(|rank| self.segment.mark(rank as usize, PeerState::Dead));
                if !exited.there_may_be_more() {
                    break;
                }
            },
            None => {
                let exited = (0..self.peers.len()).filter(|&rank| self.peers.has_exited(rank));
                exited.for_each(|rank| self.segment.mark(rank, PeerState::Dead));
            }
        }
        self.settle_changes();
    }

    /// Handles all ranks that left or died since the last call.
    pub(super) fn settle_changes(&mut self) {
        let changes = self.segment.changes();
        if changes == self.liveness.settled {
            return;
        }
        let mut all = true;
        for rank in 0..self.peers.len() {
            let state = self.segment.state(rank);
            let is_new = self.peers.get(rank).is_some_and(|peer| peer.state != state);
            if is_new && rank != self.rank {
                all &= self.settle(rank, state);
            }
        }
        if all {
            self.liveness.settled = changes;
        }
    }

    /// Completes all operations that cannot finish without `rank`, which left or died. First reads
    /// all records in the ring from `rank` to this rank, so that the messages in the ring can still
    /// be received. Returns false if memory for these messages is exhausted; the caller must retry.
    fn settle(&mut self, rank: usize, state: PeerState) -> bool {
        self.catch_up(rank);
        if !self.is_read(rank) {
            return false;
        }
        let Some(peer) = self.peers.get_mut(rank) else { return true };
        peer.state = state;
        if let Some(link) = self.peers.link_mut(rank) {
            link.queue.clear();
            link.streams.clear();
            link.consumer = None;
            link.cells = None;
        }
        self.pool.iter_mut().flatten().for_each(|pool| pool.take_back_from(rank));
        self.incoming.retain(|source| *source != rank);
        self.liveness.deaths += usize::from(state == PeerState::Dead);
        self.finish_received(rank);
        self.fail_operations(rank, |operation| match operation {
            ShmOperation::Send(send) => send.dest == rank,
            ShmOperation::Receive(Receive { taken: Some(taken), .. }) => taken.source == rank,
            _ => false,
        });
        if let Some(id) = self.forsaken(rank) {
            self.finish_failed(id, rank, DTL_ERROR_RANK_FAILURE);
        }
        true
    }

    /// Reads records from the ring whose producer is `rank` until the ring is empty or memory is
    /// exhausted.
    pub(super) fn catch_up(&mut self, rank: usize) {
        self.find_rings();
        while self.read_ring(rank, usize::MAX) > 0 {}
    }

    fn is_read(&mut self, rank: usize) -> bool {
        let consumer = self.peers.consumer_mut(rank);
        // An invalid record cannot be read; the rest of its ring is lost.
        consumer.is_none_or(|consumer| !matches!(consumer.peek(), Ok(Some(_))))
    }

    /// Completes the receives from `rank` whose data has arrived completely: only their `Finish`
    /// record, which acknowledges the data to the sender, was still to be sent.
    fn finish_received(&mut self, rank: usize) {
        let complete = |(id, operation): (OpId, &mut ShmOperation)| match operation {
            ShmOperation::Receive(Receive { taken: Some(taken), .. }) => {
                (taken.source == rank && taken.is_complete()).then_some(id)
            }
            _ => None,
        };
        let complete: Vec<_> = self.operations.iter_mut().filter_map(complete).collect();
        complete.into_iter().for_each(|id| self.finish_receive(id));
    }
}
