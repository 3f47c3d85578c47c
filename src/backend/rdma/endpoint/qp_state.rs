//! Queue pair of a peer, its work requests in flight, and the encoding of work request identifiers.

use crate::backend::rdma::protocol::eager_slots::LANES;
use crate::backend::rdma::verbs::qp::{Piece, QueuePair, WorkRequest};
use crate::runtime::component::OpId;
use crate::sys::memory::buf::Region;
use std::collections::VecDeque;

/// Queue pair and its work requests in flight.
pub(crate) struct Lane {
    pub(crate) queue: QueuePair,
    /// Index of the rail of the queue pair.
    pub(crate) rail: usize,
    /// Number of messages sent that used a receive of the peer. The next field is the number of
    /// these messages that the peer has reported as consumed.
    pub(crate) sent: u32,
    pub(crate) peer_consumed: u32,
    /// Number of the peer's messages consumed here; `reported` is the count most recently sent to
    /// the peer.
    pub(crate) consumed: u32,
    pub(crate) reported: u32,
    /// Number of the peer's messages that have arrived on this side.
    pub(crate) received: u32,
    /// Number of the last posted work request.
    pub(crate) number: u32,
    /// Mask: of the work requests that need no completion, every (mask + 1)-th is posted signaled,
    /// to bound the send queue.
    quiet: u32,
    pub(crate) in_flight: VecDeque<InFlightWork>,
    pub(crate) mending: QpRecovery,
    pub(crate) watched: WatchdogState,
}

/// Maximum number of small messages per signaled work request.
const SIGNALS: u32 = 8;

/// State of a lane that outlives its queue pair while the queue pair is recreated.
#[derive(Default)]
pub(crate) struct QpRecovery {
    /// Slots of receives that are not posted.
    pub(crate) idle: Vec<u32>,
    /// Number of the work request that completes last, and whether it has completed.
    pub(crate) last: Option<(u32, bool)>,
    /// True if the new queue pair is connected.
    pub(crate) is_connected: bool,
    /// Number of messages that the peer has received.
    pub(crate) arrived: u32,
    /// State when the queue pair was last recreated: the number of received messages, the number of
    /// the last completed work request, and whether work requests were posted again.
    pub(crate) before: (u32, u32, bool),
}

impl Lane {
    /// Creates the state of a lane for which the peer has `slots` send slots.
    pub(crate) fn new(queue: QueuePair, rail: usize, slots: usize) -> Lane {
        // Signals every n-th work request, where n is a power of two and at most half of the slots
        // and half of the work requests that may be in flight.
        let every = SIGNALS.min(1 << (queue.room.min(slots) / 2).max(1).ilog2());
        Lane {
            rail,
            sent: 0,
            peer_consumed: 0,
            consumed: 0,
            reported: 0,
            received: 0,
            number: 0,
            quiet: every - 1,
            in_flight: VecDeque::with_capacity(queue.room),
            mending: QpRecovery::default(),
            watched: WatchdogState::default(),
            queue,
        }
    }

    /// Returns true if a work request is posted signaled.
    pub(crate) fn is_signaled(&self, what: OnCompletion, number: u32) -> bool {
        let needs_none = matches!(what, OnCompletion::Slot(_) | OnCompletion::Nothing);
        !needs_none || number & self.quiet == 0
    }

    /// Records the peer's count of consumed messages, which never decreases.
    pub(crate) fn add_credits(&mut self, consumed: u32) {
        if (consumed.wrapping_sub(self.peer_consumed) as i32) > 0 {
            self.peer_consumed = consumed;
        }
    }

    /// Returns the number of the last completed work request.
    pub(crate) fn over(&self) -> u32 {
        self.number.wrapping_sub(self.in_flight.len() as u32)
    }
}

/// Work request that is not known to be completed, with all that is needed to post it again.
pub(crate) struct InFlightWork {
    pub(crate) number: u32,
    pub(crate) what: OnCompletion,
    pub(crate) work: WorkRequest,
    pub(crate) local: Piece,
}

impl InFlightWork {
    /// Returns true if the work request needs no replay: it only reported a count, which each
    /// connection reports again, or it only marked the completion of all requests before it.
    pub(crate) fn is_of_no_use_again(&self) -> bool {
        matches!(
            (self.what, self.work),
            (OnCompletion::Nothing | OnCompletion::Mark, WorkRequest::Write(_))
        )
    }
}

/// Action on the completion of a work request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OnCompletion {
    Nothing,
    /// No action: the signaled completion only completes all requests before this one.
    Mark,
    /// Frees this slot.
    Slot(usize),
    /// Completes a part of this operation.
    Part(OpId),
    /// Completes a sent part of this operation and frees the slot that its bytes were sent from.
    Sent(OpId, usize),
    /// Copies the bytes that have arrived in this slot to the program's memory, frees the slot and
    /// completes a part of this operation.
    Got(OpId, usize, Region),
    /// Reports the previous value of an element, which has arrived in this result slot.
    Answer(usize),
}

/// Identifier of a work request: kind, rank, lane and number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WorkId {
    pub(crate) is_receive: bool,
    pub(crate) rank: usize,
    pub(crate) lane: usize,
    /// Slot of a receive, or number of a send.
    pub(crate) number: u32,
}

impl WorkId {
    const RECEIVE: u64 = 1 << 63;

    pub(crate) fn word(self) -> u64 {
        let kind = if self.is_receive { Self::RECEIVE } else { 0 };
        kind | (self.rank as u64 & 0x07FF_FFFF) << 36
            | (self.lane as u64 & 0xF) << 32
            | u64::from(self.number)
    }

    pub(crate) fn of(word: u64) -> Self {
        WorkId {
            is_receive: word & Self::RECEIVE != 0,
            rank: (word >> 36 & 0x07FF_FFFF) as usize,
            lane: (word >> 32 & 0xF) as usize,
            number: word as u32,
        }
    }
}

const _: () = assert!(LANES <= 16);

/// Last observed progress of a lane.
#[derive(Default)]
pub(crate) struct WatchdogState {
    /// Number of the last completed work request. `since` is the time, in nanoseconds, at which
    /// this number was first seen.
    pub(crate) over: u32,
    pub(crate) since: u64,
    /// Number of requests that the watchdog has posted since then.
    pub(crate) prods: u32,
}

/// Progress of the re-establishment of a connection.
#[derive(Default)]
pub(crate) struct Repair {
    /// Number of repairs so far, which identifies the attributes that the peer has to send.
    pub(crate) generation: u32,
    /// Queue pair attributes of the peer, as received.
    pub(crate) answered: Option<Vec<u64>>,
    /// True if the peer is connected.
    pub(crate) is_other_ready: bool,
    /// Earliest time of the next step; `until` is the retry deadline, 0 before a failure.
    pub(crate) at: u64,
    pub(crate) until: u64,
    /// Time at which the connection last made progress, as far as known; 0 before the first repair.
    pub(crate) stuck_since: u64,
    pub(crate) pause: u64,
    /// Time when the connection last became ready.
    pub(crate) ready_at: u64,
}
