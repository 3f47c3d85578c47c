//! Re-establishment of a connection that has broken although the peer is alive.
//!
//! Each side stops its queue pairs and polls all of their remaining completions, so that its count
//! of received messages is exact. Then each side creates new queue pairs and sends their attributes
//! over the control sockets as for a first connection (`connect`), with the count of the peer's
//! messages that it has received. When both sides are connected, each sends again, in order, the
//! messages that the other has not received. The payload comes from its original location or from
//! the copy of an inline payload. Reads, and writes that were not followed by a message, are
//! repeated as a whole: their source data is unchanged, because the source and the destination must
//! not be used for anything else until they complete. An atomic work request may have been executed
//! before the connection broke, so it is not repeated, and the operation to which it belongs
//! completes with CONNECTION_LOST.
//!
//! No data of the old connection arrives later: the requests in flight of a queue pair end when the
//! peer's queue pair stops, and that queue pair stops before the peer reports its count of received
//! messages.

use super::peer::{ConnectStage, Peer};
use super::qp_state::{InFlightWork, Lane, Repair, WatchdogState, WorkId};
use crate::abi::status::DTL_ERROR_OUT_OF_MEMORY;
use crate::backend::rdma::config::Config;
use crate::backend::rdma::engine::RdmaEngine;
use crate::backend::rdma::operation::part_over;
use crate::backend::rdma::verbs::errors::here;
use crate::backend::rdma::verbs::qp::{MrRange, QueuePair, Remote, WorkRequest};
use crate::error::{Result, fail};
use crate::runtime::component::OpId;
use crate::runtime::log;
use crate::sys::sync::wait::now_ns;
use std::sync::Arc;

/// Maximum time, in nanoseconds, that stopped queue pairs may take to complete their work requests.
const STOP_NS: u64 = 5_000_000_000;
/// Shortest pause, in nanoseconds, before a reconnection if no data has been transferred since the
/// previous reconnection.
const PAUSE_NS: u64 = 10_000_000;
const LONGEST_PAUSE_NS: u64 = 500_000_000;
/// Interval, in nanoseconds, between attempts to connect.
const AGAIN_NS: u64 = 20_000_000;

impl Repair {
    /// Schedules another attempt after a failure; returns false if the time `limit`, in nanoseconds
    /// since the first failure, would be exceeded.
    pub(crate) fn tries_again(&mut self, limit: u64) -> bool {
        let now = now_ns();
        if self.until == 0 {
            self.until = now.saturating_add(limit);
        }
        self.at = now.saturating_add(AGAIN_NS);
        self.at <= self.until
    }
}

impl RdmaEngine {
    /// Re-establishes a connection whose queue pairs failed for a reason that may be transient.
    pub(crate) fn broke(&mut self, rank: usize, why: &str) {
        self.make_anew(rank, why, false);
    }

    /// Re-establishes a connection that the peer has reported as broken. The peer's report is
    /// authoritative, because this side cannot observe whether the peer's own reads and writes
    /// succeed.
    pub(crate) fn broke_there(&mut self, rank: usize) {
        self.make_anew(rank, "it says that its end has broken", true);
    }

    fn make_anew(&mut self, rank: usize, why: &str, is_told: bool) {
        let limit = self.config.reconnect_ns();
        let Some(peer) = self.peers.get_mut(rank) else { return };
        if !matches!(
            peer.stage,
            ConnectStage::Asked | ConnectStage::Connected | ConnectStage::Ready
        ) || peer.failing.is_some()
        {
            return;
        }
        if limit == 0 {
            return self.fail(rank, why);
        }
        if !peer.may_be_repaired(limit, is_told) {
            let ms = self.config.reconnect_ms;
            let text = format!(
                "{why}; its connection was made anew, and for {ms} ms (DTL_RDMA_RECONNECT_MS) \
                 nothing has come through"
            );
            return self.fail(rank, &text);
        }
        log::warning!("rdma: the connection to rank {rank} has broken ({why}); it is made anew");
        self.connecting += usize::from(peer.stage == ConnectStage::Ready);
        peer.stage = ConnectStage::Broken;
        self.mending.push(rank);
        if let Err(error) = peer.stop() {
            self.fail_here(rank, error);
        }
    }

    /// Continues all reconnections, and retries failed connection attempts.
    pub(crate) fn mend(&mut self) {
        for rank in std::mem::take(&mut self.mending) {
            match self.mend_one(rank) {
                Ok(true) => {}
                Ok(false) => self.mending.push(rank),
                Err(error) => self.fail(rank, error.text()),
            }
        }
    }

    /// Continues the reconnection to `rank`; returns true if nothing remains to be done until the
    /// peer replies.
    fn mend_one(&mut self, rank: usize) -> Result<bool> {
        let now = now_ns();
        let Some(peer) = self.peers.get_mut(rank) else { return Ok(true) };
        match peer.stage {
            ConnectStage::Asked if now >= peer.repair.at => self.connect(rank).map(|()| true),
            ConnectStage::Asked => Ok(false),
            ConnectStage::Broken => {
                let has_stopped = peer.has_stopped().map_err(here)?;
                if !has_stopped && now >= peer.repair.until {
                    return fail!(
                        DTL_ERROR_CONNECTION_LOST,
                        "its queue pairs do not end what they have"
                    );
                }
                if !has_stopped || now < peer.repair.at {
                    return Ok(false);
                }
                peer.make_queues(&self.config).map_err(here)?;
                self.send_ends(rank)?;
                self.connect(rank).map(|()| true)
            }
            _ => Ok(true),
        }
    }

    /// Reposts all work requests whose messages the peer has not received.
    pub(crate) fn resume(&mut self, rank: usize) -> Result<()> {
        let Some(peer) = self.peers.get_mut(rank) else { return Ok(()) };
        let (mut ended, mut doubtful) = (Vec::new(), Vec::new());
        let operations = &mut self.operations;
        for lane in 0..peer.lanes.len() {
            let Some((over, again)) = peer.lanes.get_mut(lane).map(Lane::sort).transpose()? else {
                break;
            };
            let mut part = |op: OpId| {
                if part_over(operations, op) {
                    ended.push(op);
                }
            };
            over.into_iter().for_each(|flying| peer.settle(flying.what, &mut part));
            let before = peer.lanes.get(lane).map_or(0, Lane::over);
            for flying in again {
                match peer.answer_of(&flying, operations) {
                    Some(op) => doubtful.push(op),
                    None => peer.start_again(lane, flying).map_err(here)?,
                }
            }
            if let Some(of) = peer.lanes.get_mut(lane) {
                of.mending.before = (of.received, before, !of.in_flight.is_empty());
                of.watched = WatchdogState::default();
            }
        }
        peer.repair.ready_at = now_ns();
        log::info!("rdma: rank {rank} is connected again");
        ended.into_iter().for_each(|op| self.all_parts_over(op));
        self.end_doubtful(rank, &doubtful);
        Ok(())
    }
}

impl Peer {
    /// Prepares a reconnection and returns true if the peer reported the failure (`is_told`), if
    /// the connection has made progress since the last reconnection, or if less than `limit`
    /// nanoseconds have passed since the first reconnection without progress. Otherwise returns
    /// false.
    fn may_be_repaired(&mut self, limit: u64, is_told: bool) -> bool {
        let now = now_ns();
        let is_on = |of: &Lane| of.over() != of.mending.before.1;
        let has_come = |of: &Lane| of.received != of.mending.before.0;
        let mut again = self.lanes.iter().filter(|of| of.mending.before.2).peekable();
        let repair = &mut self.repair;
        // If work requests were posted again, one of them must have completed. If none was, any
        // completion, any arrival or a connection that was ready for `limit` is sufficient.
        let is_sound = match again.peek() {
            _ if is_told => true,
            Some(_) => again.any(is_on),
            None => {
                let stood = now.saturating_sub(repair.ready_at) >= limit;
                stood || self.lanes.iter().any(|of| is_on(of) || has_come(of))
            }
        };
        if repair.stuck_since == 0 || is_sound {
            (repair.stuck_since, repair.pause) = (now, 0);
        } else if now.saturating_sub(repair.stuck_since) >= limit {
            return false;
        } else {
            repair.pause = (2 * repair.pause).clamp(PAUSE_NS, LONGEST_PAUSE_NS);
        }
        (repair.at, repair.until) =
            (now.saturating_add(repair.pause), now.saturating_add(STOP_NS + repair.pause));
        (repair.answered, repair.is_other_ready) = (None, false);
        repair.generation = repair.generation.wrapping_add(1);
        true
    }

    /// Stops all queue pairs.
    fn stop(&mut self) -> Result<()> {
        self.lanes.iter_mut().try_for_each(|lane| {
            lane.mending.last = None;
            lane.queue.stop()
        })
    }

    /// Returns true if the queue pairs have reported all their completions. To detect this, posts
    /// one last work request to each queue pair; it completes after all earlier ones.
    fn has_stopped(&mut self) -> Result<bool> {
        let (mut all, depth, rank) = (true, self.depth, self.rank);
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            if lane.mending.last.is_none() {
                let number = lane.number.wrapping_add(1);
                let id = WorkId { is_receive: false, rank, lane: index, number };
                let nothing = WorkRequest::Write(Remote { addr: 0, rkey: 0 });
                match lane.queue.start_rarely(id.word(), (nothing, MrRange::EMPTY), true) {
                    Ok(_) => lane.mending.last = Some((number, false)),
                    Err(error) if error.status() == DTL_ERROR_OUT_OF_MEMORY => {}
                    Err(error) => return Err(error),
                }
            }
            let held = lane.received.wrapping_sub(lane.consumed) as usize;
            all &= matches!(lane.mending.last, Some((_, true)))
                && lane.mending.idle.len() + held >= depth as usize;
        }
        Ok(all)
    }

    /// Records the failed work request `id` while its queue pair is being drained.
    pub(crate) fn has_failed(&mut self, id: WorkId) {
        let Some(lane) = self.lanes.get_mut(id.lane) else { return };
        match &mut lane.mending.last {
            _ if id.is_receive => lane.mending.idle.push(id.number),
            Some((number, is_over)) if *number == id.number => *is_over = true,
            _ => {}
        }
    }

    /// Creates new queue pairs and posts on them all receives in `idle`, the list of receives that
    /// are not posted.
    fn make_queues(&mut self, config: &Config) -> Result<()> {
        let config = Config { depth: self.depth, ..config.clone() };
        for index in 0..self.lanes.len() {
            let Some(lane) = self.lanes.get_mut(index) else { break };
            let completions = Arc::clone(&lane.queue.completions);
            let queue = QueuePair::make(&completions, &config)?;
            if queue.inline < lane.queue.inline || queue.room < lane.queue.room {
                return fail!(DTL_ERROR_VERBS, "its new queue pair takes less than the one before");
            }
            lane.queue = queue;
            lane.mending.is_connected = false;
            let idle = std::mem::take(&mut lane.mending.idle);
            idle.into_iter().try_for_each(|slot| self.post(index, slot))?;
        }
        (self.stage, self.repair.until) = (ConnectStage::Asked, 0);
        Ok(())
    }

    /// Posts a work request of the old queue pair on the new one, with a new number.
    fn start_again(&mut self, lane: usize, flying: InFlightWork) -> Result<()> {
        let Some(of) = self.lanes.get_mut(lane) else { return Ok(()) };
        let number = of.number.wrapping_add(1);
        let id = WorkId { is_receive: false, rank: self.rank, lane, number };
        let is_told = of.is_signaled(flying.what, number);
        of.number = number;
        of.sent = of.sent.wrapping_add(u32::from(flying.work.notifies()));
        of.queue.start_rarely(id.word(), (flying.work, flying.local), is_told)?;
        of.in_flight.push_back(InFlightWork { number, ..flying });
        Ok(())
    }
}

impl Lane {
    /// Removes all work requests in flight and returns two lists: the requests that have completed,
    /// and those that must be posted again.
    fn sort(&mut self) -> Result<(Vec<InFlightWork>, Vec<InFlightWork>)> {
        let flying = std::mem::take(&mut self.in_flight);
        let notifying = flying.iter().filter(|flying| flying.work.notifies()).count() as u32;
        let arrived = self.mending.arrived.wrapping_sub(self.sent.wrapping_sub(notifying));
        if arrived > notifying {
            return fail!(
                DTL_ERROR_COMMUNICATION,
                "it has received {} messages of {}",
                self.mending.arrived,
                self.sent
            );
        }
        self.sent = self.mending.arrived;
        let mut left = arrived;
        let (mut over, mut again) = (Vec::new(), Vec::new());
        for one in flying {
            // Writes before a message that has arrived have arrived too. The counts were sent with
            // the queue pair attributes.
            let is_there = left > 0 && !one.work.has_response_data();
            left -= u32::from(left > 0 && one.work.notifies());
            if is_there || one.is_of_no_use_again() { over.push(one) } else { again.push(one) }
        }
        self.in_flight.reserve(self.queue.room);
        Ok((over, again))
    }
}
