//! Liveness of ranks from which a message is awaited. Their watchers report their deaths, but only
//! while the watchers make calls. So a rank that waits for longer than a moment opens its own
//! connection to the awaited rank. The connection to a rank that is alive but makes no call is
//! completed later. Only a refused connection shows that a rank has died or left; a full accept
//! queue does not.
//!
//! A rank that waits for any rank opens these connections in batches that double in size, as long
//! as nothing arrives.

use super::connection::Frame;
use super::{NEVER, Oob, PeerLiveness};
use crate::runtime::log;
use crate::sys::sync::clock::now_ns;

/// Time for which a message is awaited before a connection is opened, in nanoseconds.
const MOMENT_NS: u64 = 100_000_000;
/// Delay before a failed connection is retried, in nanoseconds.
const AGAIN_NS: u64 = 1_000_000_000;
/// Maximum number of connections of a rank that waits for any rank: each needs a file descriptor on
/// both sides.
const MOST: usize = 256;

/// Ranks from which a message is awaited and that have no connection yet, with the time to connect.
pub(super) struct LivenessWaits {
    /// Awaited ranks without a connection.
    ranks: Vec<i32>,
    /// Time at which to connect to the ranks of `ranks`, in nanoseconds.
    at: u64,
    /// For a wait for any rank: the last event count, the time since which it has not changed, and
    /// the size of the next batch.
    any: (u64, u64, usize),
}

impl LivenessWaits {
    pub(super) fn new() -> Self {
        LivenessWaits { ranks: Vec::new(), at: NEVER, any: (0, 0, 0) }
    }
}

impl Oob {
    /// Watches a rank from which a message is awaited.
    pub fn awaits(&mut self, rank: i32) {
        if self.is_to_be_awaited(rank) {
            self.await_from(rank, now_ns().saturating_add(MOMENT_NS));
        }
    }

    /// Schedules a connection to the rank at time `at`.
    fn await_from(&mut self, rank: i32, at: u64) {
        if let Some(of) = self.rank_mut(rank) {
            of.is_awaited = true;
        }
        self.awaited.ranks.push(rank);
        self.awaited.at = self.awaited.at.min(at);
        self.alarm(self.awaited.at);
    }

    /// Watches the ranks while a message of any rank is awaited. `happened` is an event count that
    /// has changed if something has arrived since the last call.
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

    /// Returns true if only its watcher reports this rank's end: the rank is alive, and has no
    /// connection with this rank.
    fn is_unknown(&self, rank: i32) -> bool {
        let of = usize::try_from(rank).ok().and_then(|rank| self.ranks.get(rank));
        rank != self.rank && of.is_some_and(|of| of.life == PeerLiveness::Here && of.link.is_none())
    }

    fn is_to_be_awaited(&self, rank: i32) -> bool {
        let of = usize::try_from(rank).ok().and_then(|rank| self.ranks.get(rank));
        self.is_unknown(rank) && of.is_some_and(|of| !of.is_awaited)
    }

    /// Opens the connections that are due.
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

    /// Returns true if a connection serves only to detect the rank's end.
    pub(super) fn is_idle(&self, rank: i32, to_send: &[Frame]) -> bool {
        let of = usize::try_from(rank).ok().and_then(|rank| self.ranks.get(rank));
        to_send.is_empty() && of.is_some_and(|of| of.is_awaited) && self.watched() != Some(rank)
    }

    /// Schedules another attempt for an idle connection that could not be established.
    pub(super) fn await_again(&mut self, rank: i32) {
        self.await_from(rank, now_ns().saturating_add(AGAIN_NS));
    }
}
