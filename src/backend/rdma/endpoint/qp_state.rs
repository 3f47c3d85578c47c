//! Queue pair that connects to a peer, its work requests in flight, and the encoding of work
//! request identifiers.

use crate::backend::rdma::protocol::eager_slots::LANES;
use crate::backend::rdma::verbs::qp::{MrRange, QueuePair, WorkRequest};
use crate::runtime::component::OpId;
use crate::sys::memory::buf::Region;
use std::collections::VecDeque;

/// Queue pair and its work requests in flight.
pub(crate) struct Lane {
    pub(crate) queue: QueuePair,
    /// Index of the rail (local port) of the queue pair.
    pub(crate) rail: usize,
    /// Number of sent messages that each consume a receive posted by the peer.
    pub(crate) sent: u32,
    /// Number of sent messages that the peer has reported as consumed.
    pub(crate) peer_consumed: u32,
    /// Number of the peer's messages that this side has consumed; `reported` is the value most
    /// recently sent to the peer.
    pub(crate) consumed: u32,
    pub(crate) reported: u32,
    /// Number of the peer's messages that have arrived on this side.
    pub(crate) received: u32,
    /// Number of the last posted work request.
    pub(crate) number: u32,
    /// Bit mask. A work request that needs no completion is nevertheless posted signaled if its
    /// number has none of these bits set (one in mask + 1), so that send queue entries and send
    /// slots (registered buffers) are freed.
    quiet: u32,
    pub(crate) in_flight: VecDeque<InFlightWork>,
    pub(crate) mending: QpRecovery,
    pub(crate) watched: WatchdogState,
}

/// Maximum interval, in work requests, at which small messages are posted signaled.
const SIGNALS: u32 = 8;

/// State that is kept while a queue pair is destroyed and recreated.
#[derive(Default)]
pub(crate) struct QpRecovery {
    /// Numbers of the receives that are not posted.
    pub(crate) idle: Vec<u32>,
    /// Number of the last work request, which is posted to the stopped queue pair (error state) to
    /// detect when it has drained, and whether this request has completed.
    pub(crate) last: Option<(u32, bool)>,
    /// True if the new queue pair is connected.
    pub(crate) is_connected: bool,
    /// Number of this side's messages that the peer has received.
    pub(crate) arrived: u32,
    /// Values when the queue pair was last recreated: the number of received messages, the number
    /// of the last completed work request, and whether work requests were posted again.
    pub(crate) before: (u32, u32, bool),
}

impl Lane {
    /// Creates the state of a queue pair whose messages are sent from `slots` send slots
    /// (registered buffers).
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

    /// Returns true if work request `number` with completion action `what` is posted signaled.
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

/// Work request whose completion is not known yet, with all data that is needed to post it again.
pub(crate) struct InFlightWork {
    pub(crate) number: u32,
    pub(crate) what: OnCompletion,
    pub(crate) work: WorkRequest,
    pub(crate) local: MrRange,
}

impl InFlightWork {
    /// Returns true if the work request need not be posted again on a new connection: it only
    /// returned credits, which the setup message of each connection contains, or it only confirmed
    /// the completion of earlier requests.
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
    /// No action: the request serves only to confirm the completion of all earlier requests.
    Mark,
    /// Frees this slot.
    Slot(usize),
    /// Completes a part (one work request) of this operation.
    Part(OpId),
    /// Completes a part (one work request) of this operation and frees the send slot (registered
    /// buffer) from which the part was sent.
    Sent(OpId, usize),
    /// Copies the result of an RDMA read from this send slot (registered buffer) to the program's
    /// memory, frees the slot and completes a part (one work request) of this operation.
    Got(OpId, usize, Region),
    /// Processes the value that the network card has written to this result slot (a word of
    /// registered memory): the previous value of an element.
    Answer(usize),
}

/// Identifier of a work request: kind, rank, index of the queue pair, and number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WorkId {
    pub(crate) is_receive: bool,
    pub(crate) rank: usize,
    pub(crate) lane: usize,
    /// Index of a receive, or number of a work request in the send queue.
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

/// Progress of a queue pair at the last check by the watchdog.
#[derive(Default)]
pub(crate) struct WatchdogState {
    /// Number of the last completed work request. `since` is the time, in nanoseconds, from which
    /// the watchdog measures inactivity: first the time at which this number was first observed,
    /// later the time at which the watchdog posted its first work request.
    pub(crate) over: u32,
    pub(crate) since: u64,
    /// Number of work requests that the watchdog has posted since `over` last changed.
    pub(crate) prods: u32,
}

/// Progress of the re-establishment of a connection.
#[derive(Default)]
pub(crate) struct Repair {
    /// Number of times that this rank has started to re-establish this connection. Setup messages
    /// contain it, so that a setup message from an earlier re-establishment is recognized.
    pub(crate) generation: u32,
    /// Queue pair attributes that were received from the peer.
    pub(crate) answered: Option<Vec<u64>>,
    /// True if the peer has reported that its queue pairs are connected.
    pub(crate) is_other_ready: bool,
    /// Earliest time of the next step, in nanoseconds; `until` is the deadline for draining the
    /// queue pairs, then for repeated connection attempts (0 before the first failed attempt).
    pub(crate) at: u64,
    pub(crate) until: u64,
    /// Time, in nanoseconds, of the first reconnection since the connection last made progress; 0
    /// before the first reconnection.
    pub(crate) stuck_since: u64,
    pub(crate) pause: u64,
    /// Time, in nanoseconds, when the connection last became ready.
    pub(crate) ready_at: u64,
}
