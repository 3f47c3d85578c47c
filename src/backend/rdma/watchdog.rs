//! Watchdog for work requests that a device neither completes nor fails.
//!
//! A work request completes or fails once its packets have been retransmitted as often as `timeout`
//! and `retries` allow; the device counts the attempts. Soft-RoCE sometimes stops retransmitting
//! when its network interface comes up again: no packet is sent again, and no completion is
//! reported. Such a queue pair continues when the next request is posted, so the watchdog posts
//! one. If that does not help, the connection is re-established.

use super::engine::RdmaEngine;
use crate::backend::rdma::config::Config;
use crate::backend::rdma::endpoint::peer::{ConnectStage, Peer};
use crate::backend::rdma::endpoint::qp_state::{InFlightWork, Lane, OnCompletion, WatchdogState};
use crate::backend::rdma::verbs::qp::{MrRange, WorkRequest};
use crate::error::Result;
use crate::sys::sync::wait::now_ns;

/// Interval of the watchdog's checks, in nanoseconds.
const WATCH_NS: u64 = 100_000_000;
/// Time without a completion, in nanoseconds, after which the watchdog posts a request of its own.
/// The time doubles for each further request.
const PROD_NS: u64 = 500_000_000;
/// Time, in nanoseconds, that a busy device may need beyond its own timeouts.
const SLACK_NS: u64 = 1_000_000_000;
/// Factor by which devices may exceed their configured timeout.
const LENIENCE: u64 = 4;

impl Config {
    /// Returns the maximum time, in nanoseconds, that a device needs to complete a work request,
    /// successfully or with an error.
    fn patience_ns(&self) -> u64 {
        let once = 4096_u64 << self.timeout;
        (once * LENIENCE).saturating_mul(u64::from(self.retries) + 1).saturating_add(SLACK_NS)
    }
}

impl Lane {
    /// Returns the time, in nanoseconds, since a call to this function last observed a completion,
    /// or since the watchdog posted its first request after that completion; 0 if no work request
    /// is in flight.
    fn silent_ns(&mut self, now: u64) -> u64 {
        if self.in_flight.is_empty() || self.watched.since == 0 || self.watched.over != self.over()
        {
            self.watched = WatchdogState { over: self.over(), since: now, prods: 0 };
        }
        now.saturating_sub(self.watched.since)
    }
}

impl Peer {
    /// Returns true if work requests are in flight or rendezvous control records (notes) are
    /// pending. Posts a signaled request after unsignaled ones, so that their completion is
    /// reported.
    pub(crate) fn is_busy(&mut self) -> Result<bool> {
        if self.stage == ConnectStage::Ready {
            self.send_notes()?;
        }
        for index in 0..self.lanes.len() {
            let last = self.lanes.get(index).and_then(|lane| lane.in_flight.back());
            if let Some(InFlightWork {
                what: OnCompletion::Nothing | OnCompletion::Slot(_), ..
            }) = last
            {
                self.mark(index)?;
            }
        }
        Ok(!self.notes.is_empty() || self.lanes.iter().any(|lane| !lane.in_flight.is_empty()))
    }

    /// Posts a signaled RDMA write of length 0 to the peer. The completion of the write confirms
    /// that all earlier requests have completed. Returns false if the write cannot be posted now.
    fn mark(&mut self, lane: usize) -> Result<bool> {
        let Some(to) = self.tell else { return Ok(false) };
        self.start(lane, (WorkRequest::Write(to), MrRange::EMPTY), OnCompletion::Mark)
    }

    /// Returns true if a queue pair has reported no completion for `patience` nanoseconds. After
    /// `PROD_NS` without a completion, the function posts a signaled write and counts the time from
    /// that write. The time before it does not count: all requests may have completed without a
    /// signaled completion, and the program may not have called the library. The device may fail to
    /// transmit that write as well, so more signaled writes follow.
    fn is_stuck(&mut self, now: u64, patience: u64) -> Result<bool> {
        for index in 0..self.lanes.len() {
            let Some(lane) = self.lanes.get_mut(index) else { break };
            let silent = lane.silent_ns(now);
            let WatchdogState { since, prods, .. } = lane.watched;
            if silent >= PROD_NS << prods && self.mark(index)? {
                if let Some(lane) = self.lanes.get_mut(index) {
                    lane.watched.since = if prods == 0 { now } else { since };
                    lane.watched.prods = prods + 1;
                }
            } else if silent >= patience {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl RdmaEngine {
    /// Checks the progress of all connections at intervals of `WATCH_NS`.
    pub(crate) fn watch(&mut self) {
        let now = now_ns();
        if now < self.watch_at {
            return;
        }
        self.watch_at = now.saturating_add(WATCH_NS);
        let patience = self.config.patience_ns();
        for rank in 0..self.peers.ranks() {
            let Some(peer) =
                self.peers.get_mut(rank).filter(|peer| peer.stage == ConnectStage::Ready)
            else {
                continue;
            };
            match peer.is_stuck(now, patience) {
                Ok(false) => {}
                Ok(true) => {
                    let ms = patience / 1_000_000;
                    self.broke(
                        rank,
                        &format!(
                            "its queue pair has neither done nor given up anything for {ms} ms"
                        ),
                    );
                }
                Err(error) => self.fail_here(rank, error),
            }
        }
    }

    /// Returns the time until the next watchdog check, in nanoseconds; `u64::MAX` if no work
    /// request is in flight.
    pub(crate) fn watch_due_ns(&self) -> u64 {
        let mut lanes = self.peers.values().flat_map(|peer| &peer.lanes);
        match lanes.any(|lane| !lane.in_flight.is_empty()) {
            true => self.watch_at.saturating_sub(now_ns()),
            false => u64::MAX,
        }
    }
}
