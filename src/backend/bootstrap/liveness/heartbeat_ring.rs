//! Failure detector: assignment of a watcher to each rank, and notification of the other ranks.
//! Each rank watches the live rank before it in the ring (rank 0 watches the last rank) over a
//! connection to that rank. When the connection ends, the rank notifies all others and watches the
//! next live rank before it. So exactly one rank is responsible for each failed rank, even if other
//! ranks have also detected the failure. If a watcher dies or leaves, the rank that watches in its
//! place repeats the notifications, because the previous watcher may not have sent all of them.
//!
//! A leaving rank sends a farewell on its connections; its watcher waits briefly before it notifies
//! the others, since ranks often leave together. A rank that refuses connections is first only
//! suspected to have failed, because a notification that it has left or died may be in transit.

use super::connection::{ConnectFailure, kind};
use super::{ConnectionStage, NEVER, Oob, OobEvent, PeerLiveness};
use crate::error::Result;
use crate::runtime::log;
use crate::sys::sync::wait::now_ns;

/// Time, in nanoseconds, that a watcher (rank that monitors another rank) waits before it notifies
/// the other ranks that the monitored rank has sent a farewell.
const TOGETHER_NS: u64 = 100_000_000;
/// Time, in nanoseconds, after which a rank that refuses connections is considered failed by its
/// watcher (the rank that monitors it). Until then, the rank is only suspected. Ranks other than
/// the watcher wait twice as long.
const SUSPECT_NS: u64 = 200_000_000;
/// Delay, in nanoseconds, before retrying a connection that failed because this process had run out
/// of file descriptors.
const AGAIN_NS: u64 = 1_000_000_000;
/// Maximum number of notification connections that a rank establishes at the same time.
const TOLD_AT_ONCE: usize = 64;
/// Maximum number of ranges of ranks in a notification.
const RANGES: usize = 80;
/// Size of an encoded range of ranks, in bytes: first rank, number of ranks, and 1 if the ranks
/// have left or 0 if they have died.
const RANGE_BYTES: usize = 12;
/// Maximum size of the encoded ranges in a notification, in bytes.
pub(super) const MOST_BYTES: usize = RANGES * RANGE_BYTES;

/// State of this rank's failure detector. Each rank monitors the nearest live rank before it in the
/// heartbeat ring.
pub(super) struct HeartbeatRing {
    /// Time at which this rank connects to the rank that it watches, in nanoseconds; `NEVER` if no
    /// connection is due.
    watch_at: u64,
    /// Time at which this rank notifies the other ranks of dead or departed ranks, in nanoseconds;
    /// `NEVER` if no notification is due.
    tell_at: u64,
    /// Ranks that this rank has yet to notify.
    to_tell: Vec<i32>,
    pub(super) suspects: Vec<Suspect>,
}

/// A rank that has refused a connection and may have left or died.
pub(super) struct Suspect {
    pub(super) rank: i32,
    until_ns: u64,
    why: String,
}

impl HeartbeatRing {
    pub(super) fn new() -> Self {
        HeartbeatRing { watch_at: NEVER, tell_at: NEVER, to_tell: Vec::new(), suspects: Vec::new() }
    }
}

impl Oob {
    pub(super) fn watch_at(&mut self, at_ns: u64) {
        self.ring.watch_at = at_ns;
        self.alarm(at_ns);
    }

    pub(super) fn is_suspected(&self, rank: i32) -> bool {
        self.ring.suspects.iter().any(|suspect| suspect.rank == rank)
    }

    fn size(&self) -> i32 {
        i32::try_from(self.ranks.len()).unwrap_or(i32::MAX)
    }

    /// Iterates over the ranks before this rank in the ring, the nearest first.
    pub(super) fn before(&self) -> impl Iterator<Item = i32> + use<> {
        let (rank, size) = (self.rank, self.size());
        (1..size).map(move |back| (rank - back).rem_euclid(size))
    }

    /// Returns the rank that this rank watches: the nearest live rank before it in the ring.
    /// Returns `None` if no other rank is alive.
    pub(super) fn watched(&self) -> Option<i32> {
        self.before().find(|rank| self.life(*rank) == PeerLiveness::Here)
    }

    /// Returns this rank's watcher: the nearest live rank after it in the ring. Returns `None` if
    /// no other rank is alive.
    fn watcher(&self) -> Option<i32> {
        let (rank, size) = (self.rank, self.size());
        (1..size).map(|on| (rank + on) % size).find(|rank| self.life(*rank) == PeerLiveness::Here)
    }

    fn watch(&mut self) {
        self.ring.watch_at = NEVER;
        let Some(watched) = self.watched().filter(|_| !self.is_leaving) else { return };
        if self.link(watched).is_some() || self.is_suspected(watched) {
            return;
        }
        if let Err(error) = self.connect(watched, Vec::new(), false) {
            log::warning!("rank {watched} is not watched for now: {}", error.text());
            self.watch_at(now_ns().saturating_add(AGAIN_NS));
        }
    }

    /// Performs the actions of the failure detector that are due at time `now`, in nanoseconds.
    pub(super) fn turn_ring(&mut self, now: u64) {
        if now >= self.ring.watch_at {
            self.watch();
        }
        if now >= self.ring.tell_at {
            self.notify_all();
        }
        let (over, waiting): (Vec<_>, _) = std::mem::take(&mut self.ring.suspects)
            .into_iter()
            .partition(|suspect| suspect.until_ns <= now);
        self.ring.suspects = waiting;
        for suspect in over {
            // Ranks that leave together do not receive each other's farewell.
            let after = (suspect.rank + 1) % self.size().max(1);
            let life = if self.life(after) == PeerLiveness::Left {
                PeerLiveness::Left
            } else {
                PeerLiveness::Dead
            };
            self.is_gone(suspect.rank, life, &suspect.why);
        }
        let next = self.ring.suspects.iter().map(|suspect| suspect.until_ns).min().unwrap_or(NEVER);
        self.alarm(next.min(self.ring.watch_at).min(self.ring.tell_at));
    }

    /// Handles a rank that could not be reached at any address.
    pub(super) fn is_unreached(&mut self, rank: i32, is_brief: bool, what: &ConnectFailure) {
        if is_brief || self.life(rank) != PeerLiveness::Here || self.is_suspected(rank) {
            return; // the rank's watcher notifies this rank
        }
        let why = format!("it cannot be reached: {}", what.why);
        if !what.is_refused {
            return self.is_silent(rank, &why);
        }
        let times = if self.watched() == Some(rank) { 1 } else { 2 };
        let until_ns = now_ns().saturating_add(times * SUSPECT_NS);
        self.ring.suspects.push(Suspect { rank, until_ns, why });
        self.alarm(until_ns);
    }

    /// Handles a rank that does not reply. The whole machine of `rank` may have failed, so the
    /// calling rank also connects to the other ranks on that machine. Otherwise the failures of
    /// these ranks would be detected one after another.
    pub(super) fn is_silent(&mut self, rank: i32, why: &str) {
        self.is_gone(rank, PeerLiveness::Dead, why);
        for other in 0..self.size() {
            let is_there = || self.is_beside(rank, other) && !self.is_beside(rank, self.rank);
            if self.is_unknown(other) && is_there() {
                drop(self.connect(other, Vec::new(), false));
            }
        }
    }

    /// Records that a rank has died or disconnected, and queues an `OobEvent::Gone` event. Has no
    /// effect if the death or disconnection of the rank is already recorded.
    pub(super) fn is_gone(&mut self, rank: i32, life: PeerLiveness, why: &str) {
        if self.life(rank) != PeerLiveness::Here || rank == self.rank {
            return;
        }
        let was_watched = self.watched() == Some(rank);
        if let Some(rank) = self.rank_mut(rank) {
            (rank.life, rank.link) = (life, None);
        }
        self.cut_off(rank);
        self.ring.suspects.retain(|suspect| suspect.rank != rank);
        self.events.push_back(OobEvent::Gone(rank, life == PeerLiveness::Left, why.to_owned()));
        if was_watched && !self.is_leaving {
            let at =
                if life == PeerLiveness::Left { now_ns().saturating_add(TOGETHER_NS) } else { 0 };
            self.ring.tell_at = self.ring.tell_at.min(at);
            self.watch_at(at.min(self.ring.watch_at));
        }
    }

    /// Starts to notify all other live ranks that the ranks directly before this rank in the ring
    /// have died or left.
    fn notify_all(&mut self) {
        self.ring.tell_at = NEVER;
        self.ring.to_tell = (0..self.size())
            .filter(|rank| *rank != self.rank && self.life(*rank) == PeerLiveness::Here)
            .collect();
        self.continue_notifying();
    }

    /// Notifies more of the ranks in `to_tell`, while fewer than `TOLD_AT_ONCE` connections for
    /// notifications are being established.
    pub(super) fn continue_notifying(&mut self) {
        let is_telling =
            |one: &&super::Connection| one.is_brief && one.stage == ConnectionStage::Connecting;
        while !self.ring.to_tell.is_empty() && !self.is_leaving {
            if self.connections.iter().flatten().filter(is_telling).count() >= TOLD_AT_ONCE {
                return; // the end of one of these connections calls this function again
            }
            let Some(rank) = self.ring.to_tell.pop() else { return };
            if self.life(rank) == PeerLiveness::Here && self.notify_one(rank).is_err() {
                self.ring.to_tell.push(rank);
                self.ring.tell_at = now_ns().saturating_add(AGAIN_NS);
                return self.alarm(self.ring.tell_at);
            }
        }
    }

    /// Notifies `rank` that the ranks directly before this rank in the ring have died or left.
    fn notify_one(&mut self, rank: i32) -> Result<()> {
        let frame = (kind::GONE, self.run());
        match self.link(rank) {
            Some(_) => self.push(rank, frame),
            None => self.connect(rank, vec![frame], true),
        }
    }

    /// Sends a farewell on all connections. If this rank has no connection to its watcher, opens a
    /// connection for the farewell.
    pub(super) fn send_farewell(&mut self) {
        let (run, watcher) = (self.run(), self.watcher());
        let mut knows = false;
        // Includes connections on which no answer to the hello has arrived: the answer may be in
        // transit.
        let watched = |one: &&mut super::Connection| {
            !one.is_brief && matches!(one.stage, ConnectionStage::Open | ConnectionStage::Unwelcome)
        };
        for one in self.connections.iter_mut().flatten().filter(watched) {
            one.channel.queue(kind::BYE, &run);
            knows |= watcher == Some(one.peer);
        }
        (0..self.connections.len()).for_each(|index| self.flush(index));
        if let Some(watcher) = watcher.filter(|_| !knows) {
            drop(self.connect(watcher, vec![(kind::BYE, run)], true));
        }
    }

    /// Returns the ranks that directly precede this rank in the ring and have died or left, encoded
    /// as ranges.
    pub(super) fn run(&self) -> Vec<u8> {
        let mut ranges: Vec<[u32; 3]> = Vec::new();
        for rank in self.before().take_while(|rank| self.life(*rank) != PeerLiveness::Here) {
            let (rank, left) = (rank as u32, u32::from(self.life(rank) == PeerLiveness::Left));
            match ranges.last_mut() {
                Some([first, count, how]) if *first == rank + 1 && *how == left => {
                    (*first, *count) = (rank, *count + 1)
                }
                _ => ranges.push([rank, 1, left]),
            }
        }
        ranges.iter().take(RANGES).flatten().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Decodes the ranges of ranks that `run` has encoded on rank `from`, and records that these
    /// ranks have died or left. Returns an error message if the encoding is invalid.
    pub(super) fn handle_gone(&mut self, from: i32, bytes: &[u8]) -> Result<(), String> {
        let size = self.ranks.len() as u64;
        for range in bytes.chunks(RANGE_BYTES) {
            let words: Vec<u32> = range
                .chunks_exact(4)
                .map(|word| word.try_into().map_or(0, u32::from_le_bytes))
                .collect();
            let &[first, count, left] = words.as_slice() else {
                return Err("a range cut off".to_owned());
            };
            if u64::from(first) + u64::from(count) > size {
                return Err(format!("{count} ranks from {first} of {size}"));
            }
            for rank in (first..first + count).map(|rank| rank as i32) {
                let life = if left == 1 { PeerLiveness::Left } else { PeerLiveness::Dead };
                if rank == self.rank {
                    log::warning!(
                        "rank {from} takes this rank for dead, so they have no more to do with \
                         each other"
                    );
                    self.is_gone(from, PeerLiveness::Dead, "it takes this rank for dead");
                } else {
                    self.is_gone(rank, life, &format!("rank {from} says so"));
                }
            }
        }
        Ok(())
    }
}
