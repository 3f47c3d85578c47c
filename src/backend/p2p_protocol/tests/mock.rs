//! Mock raw transport (`Wire`) for tests: ranks in one thread, with delayed messages, BUSY results,
//! rank failures and other faults.
//!
//! The mock is the strictest valid `Wire`: it reads the bytes of a send, and completes the send,
//! only when a receive matches. So a buffer that is released too early is detected.

use super::{Wire, WireWindows};
use crate::abi::comm::communicator::DTL_ANY_SOURCE;
use crate::abi::status::*;
use crate::error::{Error, Result, fail};
use crate::runtime::component::{Completion, OpId, Properties, Transport};
use crate::sys::memory::buf::Region;
use crate::sys::sync::lock::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// State that the ranks of the mock share.
pub(super) struct Net {
    sides: Vec<MockRank>,
    random: u64,
    next_op: u64,
    /// If true, calls return BUSY and messages are delayed, both at random.
    pub(super) is_slow: bool,
    pub(super) can_cancel: bool,
    /// Number of simulated events so far.
    pub(super) activity: u64,
    /// Error status that subsequent sends return; `None` if sends succeed.
    pub(super) refuse: Option<dtl_status_t>,
    pub(super) closed: Vec<i32>,
    /// Reason that the backend reports for each failure.
    pub(super) why: Option<&'static str>,
}

#[derive(Default)]
struct MockRank {
    is_dead: bool,
    /// Failed rank that no receive has reported yet.
    untold: Option<i32>,
    posted: Vec<MockReceive>,
    lanes: Vec<VecDeque<MockMessage>>,
    arrived: Vec<MockMessage>,
    over: HashMap<u64, Completion>,
}

struct MockReceive {
    op: u64,
    into: Region,
    source: i32,
    word: u64,
}

#[derive(Clone, Copy)]
struct MockMessage {
    source: i32,
    word: u64,
    data: Region,
    op: u64,
}

fn failed(source: i32, status: dtl_status_t) -> Completion {
    Completion { source, status, match_bits: 0, size: 0 }
}

impl Net {
    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        if self.is_slow { self.random % limit } else { limit - 1 }
    }

    fn op(&mut self) -> u64 {
        self.next_op += 1;
        self.activity += 1;
        self.next_op
    }

    fn end(&mut self, rank: usize, op: u64, done: Completion) {
        self.activity += 1;
        self.sides[rank].over.insert(op, done);
    }

    fn deliver(&mut self, rank: usize, posted: &MockReceive, message: MockMessage) {
        assert!(message.data.len() <= posted.into.len(), "nothing is ever too long");
        posted.into.copy_from(message.data);
        let size = message.data.len() as u64;
        self.end(
            rank,
            posted.op,
            Completion {
                source: message.source,
                status: DTL_SUCCESS,
                match_bits: message.word,
                size,
            },
        );
        self.end(message.source as usize, message.op, failed(0, DTL_SUCCESS));
    }

    fn arrive(&mut self, rank: usize, message: MockMessage) {
        let takes = |posted: &MockReceive| {
            posted.word == message.word && [message.source, DTL_ANY_SOURCE].contains(&posted.source)
        };
        match self.sides[rank].posted.iter().position(takes) {
            Some(index) => {
                let posted = self.sides[rank].posted.remove(index);
                self.deliver(rank, &posted, message);
            }
            None => {
                assert_eq!(message.word, 0, "payloads are expected");
                self.sides[rank].arrived.push(message);
            }
        }
    }

    fn advance(&mut self) {
        for rank in 0..self.sides.len() {
            for source in 0..self.sides.len() {
                while !self.sides[rank].lanes[source].is_empty() && self.below(3) > 0 {
                    self.activity += 1;
                    if let Some(message) = self.sides[rank].lanes[source].pop_front() {
                        self.arrive(rank, message);
                    }
                }
            }
        }
    }

    /// Simulates the failure of a rank: its messages that have arrived can still be received, and
    /// the others are lost.
    pub(super) fn kill(&mut self, dead: usize) {
        self.sides[dead].is_dead = true;
        self.sides[dead].posted.clear();
        let lost: Vec<MockMessage> = {
            let side = &mut self.sides[dead];
            side.lanes
                .iter_mut()
                .flat_map(|lane| lane.drain(..))
                .chain(side.arrived.drain(..))
                .collect()
        };
        for message in lost {
            self.end(message.source as usize, message.op, failed(0, DTL_ERROR_RANK_FAILURE));
        }
        let dead_rank = dead as i32;
        for rank in (0..self.sides.len()).filter(|rank| *rank != dead) {
            self.sides[rank].lanes[dead].clear();
            let mut any = true;
            let tells_all = self.below(2) == 0;
            let (doomed, kept) =
                std::mem::take(&mut self.sides[rank].posted).into_iter().partition(|posted| {
                    posted.source == dead_rank
                        || posted.source == DTL_ANY_SOURCE
                            && (tells_all || std::mem::take(&mut any))
                });
            self.sides[rank].posted = kept;
            let doomed: Vec<MockReceive> = doomed;
            let is_told = doomed.iter().any(|posted| posted.source == DTL_ANY_SOURCE);
            self.sides[rank].untold = (!is_told).then_some(dead_rank);
            doomed
                .iter()
                .for_each(|p| self.end(rank, p.op, failed(dead_rank, DTL_ERROR_RANK_FAILURE)));
        }
    }

    /// Ends the oldest posted receive of `rank` with the failed completion `done`.
    pub(super) fn fail_receive(&mut self, rank: usize, done: Completion) {
        let posted = self.sides[rank].posted.remove(0);
        self.end(rank, posted.op, done);
    }

    pub(super) fn posted(&self, rank: usize) -> usize {
        self.sides[rank].posted.len()
    }
}

/// Endpoint of one rank of the mock `Wire`.
struct MockWire {
    rank: usize,
    properties: Arc<Properties>,
    net: Arc<Mutex<Net>>,
}

impl Wire for MockWire {
    fn properties(&self) -> &Arc<Properties> {
        &self.properties
    }

    fn windows(&mut self) -> Result<&mut dyn WireWindows, &'static str> {
        Err("a mock has none")
    }

    fn isend(&mut self, data: Region, dest: i32, word: u64) -> Result<OpId> {
        assert!(word < 1 << 28);
        let mut net = self.net.lock();
        if let Some(status) = net.refuse {
            return Err(Error::new(status, "refused"));
        }
        if net.is_slow && net.below(4) == 0 {
            return fail!(DTL_ERROR_BUSY, "full");
        }
        let op = net.op();
        if net.sides[self.rank].is_dead {
            net.end(self.rank, op, failed(dest, DTL_ERROR_RANK_FAILURE));
        } else if net.sides[dest as usize].is_dead {
            if net.below(2) == 0 {
                return fail!(DTL_ERROR_RANK_FAILURE, "rank {dest} is dead");
            }
            net.end(self.rank, op, failed(dest, DTL_ERROR_RANK_FAILURE));
        } else {
            let message = MockMessage { source: self.rank as i32, word, data, op };
            net.sides[dest as usize].lanes[self.rank].push_back(message);
        }
        Ok(OpId(op))
    }

    fn irecv(&mut self, into: Region, source: i32, word: u64) -> Result<OpId> {
        let mut net = self.net.lock();
        if net.is_slow && net.below(4) == 0 {
            return fail!(DTL_ERROR_BUSY, "full");
        }
        let op = net.op();
        let posted = MockReceive { op, into, source, word };
        let takes =
            |m: &MockMessage| m.word == word && [m.source, DTL_ANY_SOURCE].contains(&source);
        if let Some(index) = net.sides[self.rank].arrived.iter().position(takes) {
            let message = net.sides[self.rank].arrived.remove(index);
            net.deliver(self.rank, &posted, message);
        } else if let (DTL_ANY_SOURCE, Some(dead)) = (source, net.sides[self.rank].untold) {
            net.sides[self.rank].untold = None;
            net.end(self.rank, op, failed(dead, DTL_ERROR_RANK_FAILURE));
        } else if source >= 0 && net.sides[source as usize].is_dead {
            net.end(self.rank, op, failed(source, DTL_ERROR_RANK_FAILURE));
        } else {
            net.sides[self.rank].posted.push(posted);
        }
        Ok(OpId(op))
    }

    fn test(&mut self, op: OpId) -> Result<Option<Completion>> {
        let mut net = self.net.lock();
        if net.sides[self.rank].is_dead {
            return fail!(DTL_ERROR_INVALID_STATE, "the dead do not ask");
        }
        net.advance();
        if net.is_slow && net.below(3) == 0 {
            return Ok(None);
        }
        let done = net.sides[self.rank].over.remove(&op.0);
        net.activity += u64::from(done.is_some());
        Ok(done)
    }

    fn can_cancel(&self) -> bool {
        self.net.lock().can_cancel
    }

    fn cancel(&mut self, op: OpId) -> Result<()> {
        let mut net = self.net.lock();
        let posted = &mut net.sides[self.rank].posted;
        if let Some(index) = posted.iter().position(|posted| posted.op == op.0) {
            posted.remove(index);
            net.end(self.rank, op.0, failed(0, DTL_ERROR_CANCELED));
        }
        Ok(())
    }

    fn failure_text(&self) -> Option<String> {
        self.net.lock().why.map(str::to_owned)
    }

    fn close(&mut self) -> Result<()> {
        self.net.lock().closed.push(self.rank as i32);
        Ok(())
    }
}

/// All ranks of a job, with transports over the mock `Wire`.
pub(super) struct World {
    pub(super) net: Arc<Mutex<Net>>,
    pub(super) ends: Vec<Box<dyn Transport>>,
}

impl World {
    pub(super) fn new(size: usize, seed: u64, is_slow: bool) -> World {
        let side = || MockRank {
            lanes: (0..size).map(|_| VecDeque::new()).collect(),
            ..MockRank::default()
        };
        let net = Arc::new(Mutex::new(Net {
            sides: (0..size).map(|_| side()).collect(),
            random: seed | 1,
            next_op: 0,
            is_slow,
            can_cancel: false,
            activity: 0,
            refuse: None,
            closed: Vec::new(),
            why: Some("the mock says why"),
        }));
        let wire = |rank| {
            let properties = Arc::new(Properties::new(rank as i32, size as i32, "mock"));
            Box::new(MockWire { rank, properties, net: Arc::clone(&net) })
        };
        let ends = (0..size).map(|rank| super::open(wire(rank)).expect("open")).collect();
        World { net, ends }
    }

    /// Makes progress on all live ranks until no more events occur.
    pub(super) fn settle(&self) {
        let (mut idle, mut seen) = (0, 0);
        while idle < 12 {
            for (rank, end) in self.ends.iter().enumerate() {
                if !self.net.lock().sides[rank].is_dead {
                    end.progress();
                }
            }
            let activity = self.net.lock().activity;
            idle = if activity == seen { idle + 1 } else { 0 };
            seen = activity;
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let mut net = self.net.lock();
        // Lets operations that tests leave unfinished complete quickly.
        (net.is_slow, net.can_cancel, net.refuse) = (false, true, None);
    }
}
