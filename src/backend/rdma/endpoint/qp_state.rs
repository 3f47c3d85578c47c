//! A queue pair of a peer's, what is under way on it, and how its work requests are named.

use crate::backend::rdma::protocol::eager_slots::LANES;
use crate::backend::rdma::verbs::qp::{Piece, QueuePair, WorkRequest};
use crate::backend::rdma::watchdog::WatchdogState;
use crate::runtime::component::OpId;
use crate::sys::memory::buf::Region;
use std::collections::VecDeque;

/// A queue pair and what is under way on it.
pub(in crate::backend::rdma) struct Lane {
    pub(in crate::backend::rdma) queue: QueuePair,
    /// Which rail it is on.
    pub(in crate::backend::rdma) rail: usize,
    /// Messages that used a receive of the peer's, and how many of them it has reported as
    /// consumed.
    pub(in crate::backend::rdma) sent: u32,
    pub(in crate::backend::rdma) told: u32,
    /// Messages of the peer's that were consumed here, and the count last reported to it.
    pub(in crate::backend::rdma) consumed: u32,
    pub(in crate::backend::rdma) said: u32,
    /// Messages of the peer's that have arrived here.
    pub(in crate::backend::rdma) received: u32,
    /// The number of the last work request.
    pub(in crate::backend::rdma) number: u32,
    /// Mask: of the work requests that need no completion, every (mask + 1)-th is posted signaled,
    /// to bound the send queue.
    quiet: u32,
    pub(in crate::backend::rdma) in_flight: VecDeque<InFlightWork>,
    pub(in crate::backend::rdma) mending: QpRecovery,
    pub(in crate::backend::rdma) watched: WatchdogState,
}

/// Small messages per signaled one.
const SIGNALS: u32 = 8;

/// What is kept of a lane while its queue pair is made anew.
#[derive(Default)]
pub(in crate::backend::rdma) struct QpRecovery {
    /// Receives that are not posted.
    pub(in crate::backend::rdma) idle: Vec<u32>,
    /// The number of the work request that ends last, and whether it has.
    pub(in crate::backend::rdma) last: Option<(u32, bool)>,
    /// Whether the new one is connected.
    pub(in crate::backend::rdma) is_connected: bool,
    /// Messages that the peer has received.
    pub(in crate::backend::rdma) arrived: u32,
    /// What had been received and was over when the last one was new, and whether something was
    /// sent again then.
    pub(in crate::backend::rdma) before: (u32, u32, bool),
}

impl Lane {
    /// With so many slots for what is sent.
    pub(in crate::backend::rdma) fn new(queue: QueuePair, rail: usize, slots: usize) -> Lane {
        // A power of two, and at most half of the slots and of the work requests that may be under
        // way.
        let every = SIGNALS.min(1 << (queue.room.min(slots) / 2).max(1).ilog2());
        Lane {
            rail,
            sent: 0,
            told: 0,
            consumed: 0,
            said: 0,
            received: 0,
            number: 0,
            quiet: every - 1,
            in_flight: VecDeque::with_capacity(queue.room),
            mending: QpRecovery::default(),
            watched: WatchdogState::default(),
            queue,
        }
    }

    /// Returns whether a work request is posted signaled.
    #[inline]
    pub(in crate::backend::rdma) fn is_signaled(&self, what: OnCompletion, number: u32) -> bool {
        match what {
            OnCompletion::Part(_)
            | OnCompletion::Mark
            | OnCompletion::Sent(..)
            | OnCompletion::Got(..)
            | OnCompletion::Answer(_) => true,
            OnCompletion::Slot(_) | OnCompletion::Nothing => number & self.quiet == 0,
        }
    }

    /// Records the peer's count of consumed messages, which never decreases.
    #[inline]
    pub(in crate::backend::rdma) fn add_credits(&mut self, consumed: u32) {
        if (consumed.wrapping_sub(self.told) as i32) > 0 {
            self.told = consumed;
        }
    }

    /// The number of the last work request that is over.
    pub(in crate::backend::rdma) fn over(&self) -> u32 {
        self.number.wrapping_sub(self.in_flight.len() as u32)
    }
}

/// A work request that is not known to be over, with all that is needed to start it again.
pub(in crate::backend::rdma) struct InFlightWork {
    pub(in crate::backend::rdma) number: u32,
    pub(in crate::backend::rdma) what: OnCompletion,
    pub(in crate::backend::rdma) work: WorkRequest,
    pub(in crate::backend::rdma) local: Piece,
}

impl InFlightWork {
    /// Returns whether it needs no replay: it only reported a count, which each connection reports
    /// again, or marked the completion of all before it.
    pub(in crate::backend::rdma) fn is_of_no_use_again(&self) -> bool {
        matches!(
            (self.what, self.work),
            (OnCompletion::Nothing | OnCompletion::Mark, WorkRequest::Write(_))
        )
    }
}

/// What to do when a work request is over.
#[derive(Clone, Copy, Debug)]
pub(in crate::backend::rdma) enum OnCompletion {
    Nothing,
    /// Nothing but a signaled completion, which completes all before it.
    Mark,
    /// This slot is free again.
    Slot(usize),
    /// A part of this operation is done.
    Part(OpId),
    /// A part of this operation is sent: its bytes were in this slot, which is free again.
    Sent(OpId, usize),
    /// A part of this operation has arrived in this slot: its bytes are to be copied to the
    /// program's memory.
    Got(OpId, usize, Region),
    /// What an element was is in this place.
    Answer(usize),
}

/// The identity of a work request: whose, of which lane, and which.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::backend::rdma) struct WorkId {
    pub(in crate::backend::rdma) is_receive: bool,
    pub(in crate::backend::rdma) rank: usize,
    pub(in crate::backend::rdma) lane: usize,
    /// A receive's slot, or a send's number.
    pub(in crate::backend::rdma) number: u32,
}

impl WorkId {
    const RECEIVE: u64 = 1 << 63;

    pub(in crate::backend::rdma) fn word(self) -> u64 {
        let kind = if self.is_receive { Self::RECEIVE } else { 0 };
        kind | (self.rank as u64 & 0x07FF_FFFF) << 36
            | (self.lane as u64 & 0xF) << 32
            | u64::from(self.number)
    }

    pub(in crate::backend::rdma) fn of(word: u64) -> Self {
        WorkId {
            is_receive: word & Self::RECEIVE != 0,
            rank: (word >> 36 & 0x07FF_FFFF) as usize,
            lane: (word >> 32 & 0xF) as usize,
            number: word as u32,
        }
    }
}

const _: () = assert!(LANES <= 16);
