//! Failure detection for ranks from which a message is awaited. The watcher of such a rank (the
//! rank that monitors it in the heartbeat ring) reports the rank's failure, but only while the
//! watcher calls the library. So a rank that waits for longer than `MOMENT_NS` opens its own
//! connection to the rank from which it awaits the message. If that rank is alive but does not call
//! the library, the connection is completed later. Only a refused connection shows that a rank has
//! died or left; a full accept queue does not.
//!
//! A rank that awaits a message from any source opens these connections in batches of doubling size
//! while no event occurs.

use super::connection::Frame;
use super::{NEVER, Oob, PeerLiveness, Rank};
use crate::runtime::log;
use crate::sys::sync::wait::now_ns;

/// Time for which a rank awaits a message before it opens a connection to the source, in
/// nanoseconds.
const MOMENT_NS: u64 = 100_000_000;
/// Delay before a failed connection is retried, in nanoseconds.
const AGAIN_NS: u64 = 1_000_000_000;
/// Maximum number of connections that a rank has while it waits for a message from any source. The
/// number is limited because each connection uses one file descriptor on each side.
const MOST: usize = 256;

/// State of failure detection for the ranks from which this rank is waiting for a message.
pub(super) struct LivenessWaits {
    /// Ranks from which this rank is waiting for a message and to which it plans a connection.
    ranks: Vec<i32>,
    /// Time at which to connect to `ranks`, in nanoseconds; `NEVER` if `ranks` is empty.
    at: u64,
    /// State of a wait for a message from any source: last event count, time of the last change of
    /// this count in nanoseconds, and number of connections in the next batch.
    any: (u64, u64, usize),
}

impl LivenessWaits {
    pub(super) fn new() -> Self {
        LivenessWaits { ranks: Vec::new(), at: NEVER, any: (0, 0, 0) }
    }
}

impl Oob {
    /// Schedules failure detection for `rank`, from which the caller awaits a message.
    pub fn awaits(&mut self, rank: i32) {
        if self.is_to_be_awaited(rank) {
            self.await_from(rank, now_ns().saturating_add(MOMENT_NS));
        }
    }

    /// Schedules a connection to `rank` for time `at`. If other connections are already scheduled
    /// for an earlier time, the connection to `rank` is also scheduled for that earlier time.
    fn await_from(&mut self, rank: i32, at: u64) {
        if let Some(of) = self.rank_mut(rank) {
            of.is_awaited = true;
        }
        self.awaited.ranks.push(rank);
        self.awaited.at = self.awaited.at.min(at);
        self.alarm(self.awaited.at);
    }

    /// Schedules failure detection while the caller awaits a message from any source. `happened` is
    /// the number of events that the caller has counted so far; it must change with each event.
    pub fn awaits_any(&mut self, happened: u64) {
        let now = now_ns();
        let (before, since, count) = self.awaited.any;
        if before != happened {
            self.awaited.any = (happened, now, 1);
        }
        if before != happened || now < since.saturating_add(MOMENT_NS) {
            return;
        }
        self.awaited.any = (happened, now, 2 * count.min(MOST));
        let room = MOST.saturating_sub(self.connections.len() - self.free.len());
        let next: Vec<i32> = self
            .before()
            .filter(|rank| self.is_to_be_awaited(*rank))
            .take(count.min(room))
            .collect();
        for rank in next {
            self.await_from(rank, now);
        }
    }

    /// Returns true if this rank itself cannot detect a failure of `rank`, because `rank` counts as
    /// alive and this rank has no connection to it.
    pub(super) fn is_unknown(&self, rank: i32) -> bool {
        let is_unlinked = |of: &Rank| of.life == PeerLiveness::Here && of.link.is_none();
        rank != self.rank && self.known(rank).is_some_and(is_unlinked)
    }

    fn is_to_be_awaited(&self, rank: i32) -> bool {
        self.is_unknown(rank) && self.known(rank).is_some_and(|of| !of.is_awaited)
    }

    /// Opens the connections that are due at time `now`, in nanoseconds.
    pub(super) fn turn_awaited(&mut self, now: u64) {
        if now < self.awaited.at {
            return self.alarm(self.awaited.at);
        }
        self.awaited.at = NEVER;
        for rank in std::mem::take(&mut self.awaited.ranks) {
            let is_awaited = !self.is_leaving && self.is_unknown(rank) && !self.is_suspected(rank);
            if let Some(of) = self.rank_mut(rank) {
                of.is_awaited = is_awaited;
            }
            if !is_awaited {
                continue;
            }
            if let Err(error) = self.connect(rank, Vec::new(), false) {
                log::debug!("rank {rank} is not looked after for now: {}", error.text());
                self.await_from(rank, now.saturating_add(AGAIN_NS));
            }
        }
    }

    /// Returns true if a connection to `rank` serves only to detect the rank's failure.
    pub(super) fn is_idle(&self, rank: i32, to_send: &[Frame]) -> bool {
        let is_awaited = self.known(rank).is_some_and(|of| of.is_awaited);
        to_send.is_empty() && is_awaited && self.watched() != Some(rank)
    }

    /// Schedules a retry for a connection that serves only to detect a failure and that could not
    /// be established.
    pub(super) fn await_again(&mut self, rank: i32) {
        self.await_from(rank, now_ns().saturating_add(AGAIN_NS));
    }
}
