//! State of one rank: operations in flight, matching queues, and threads that sleep until an event
//! occurs.

use super::transfer::{TRANSFERS, Transfer};
use crate::abi::status::*;
use crate::backend::match_queues::{self, Matcher};
use crate::backend::op_table::{Operation, Operations, fitting};
use crate::runtime::component::{Completion, OpId};
use crate::sys::memory::buf::{Region, Scratch};
use crate::sys::sync::lock::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};

/// State of one rank, aligned so that no two ranks share a cache line (or a pair of prefetched
/// lines).
#[repr(align(128))]
pub(super) struct RankSlot {
    pub(super) state: Mutex<RankState>,
    /// Condition variable that is signaled on each event while a thread of the rank sleeps.
    pub(super) woken: Condvar,
    pub(super) left: AtomicBool,
    /// True if an operation of another rank failed because this rank left.
    pub(super) blamed: AtomicBool,
}

pub(super) struct RankState {
    pub(super) operations: Operations<InprocOperation>,
    pub(super) matcher: Matcher<OpId, InprocMessage>,
    /// Matched messages that this rank waits for and that both ranks copy.
    pub(super) transfers: Vec<Transfer>,
    /// Number of events so far. An event is a completed operation or the arrival of an unexpected
    /// message.
    pub(super) events: u64,
    pub(super) sleepers: u32,
}

/// Operation in flight. A send stores its destination rank (`i32`).
pub(super) type InprocOperation = Operation<i32, Receive, InprocMessage>;

#[derive(Clone, Copy)]
pub(super) struct Receive {
    pub(super) into: Region,
    /// Source that the receive names (a rank or DTL_ANY_SOURCE).
    pub(super) source: i32,
}

/// Unexpected message: no matching receive is posted yet.
pub(super) enum InprocMessage {
    /// A copy of the message; the send is already complete.
    Copied(Scratch),
    /// The sender's buffer and send operation; the send completes when the message is received.
    Lent(Region, OpId),
}

impl RankSlot {
    pub(super) fn new(ranks: usize) -> Self {
        let state = RankState {
            operations: Operations::default(),
            matcher: Matcher::new(ranks),
            transfers: Vec::with_capacity(TRANSFERS),
            events: 0,
            sleepers: 0,
        };
        RankSlot {
            state: Mutex::new(state),
            woken: Condvar::new(),
            left: AtomicBool::new(false),
            blamed: AtomicBool::new(false),
        }
    }

    pub(super) fn finish(&self, id: OpId, done: Completion) {
        self.finish_locked(&mut self.state.lock(), id, done);
    }

    #[inline]
    pub(super) fn finish_locked(&self, state: &mut RankState, id: OpId, done: Completion) {
        state.operations.finish(id, done);
        self.wake(state);
    }

    /// Cancels operation `send` of rank `sender` by removing its message, if the receive of the
    /// message has not started. Returns true if the message was removed; the caller must then
    /// complete the send.
    pub(super) fn cancel_send(&self, sender: i32, send: OpId) -> bool {
        let is =
            |message: &InprocMessage| matches!(message, InprocMessage::Lent(_, by) if *by == send);
        let RankState { operations, matcher, .. } = &mut *self.state.lock();
        operations.cancel_message(matcher, sender, is)
    }

    /// Counts an event (the completion of an operation or the arrival of an unexpected message) and
    /// wakes all sleeping threads of the rank.
    pub(super) fn wake(&self, state: &mut RankState) {
        state.events += 1;
        if state.sleepers > 0 {
            self.woken.notify_all();
        }
    }

    pub(super) fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }
}

pub(super) fn sent(rank: i32, word: u64, data: Region) -> Completion {
    Completion { source: rank, status: DTL_SUCCESS, match_bits: word, size: data.len() as u64 }
}

pub(super) fn failed(rank: i32, word: u64) -> Completion {
    Completion { source: rank, status: DTL_ERROR_RANK_FAILURE, match_bits: word, size: 0 }
}

/// Returns the completion that a receive of `message` would have.
pub(super) fn found(message: &match_queues::UnexpectedMessage<InprocMessage>) -> Completion {
    let size = match &message.what {
        InprocMessage::Copied(copy) => copy.region().len(),
        InprocMessage::Lent(bytes, _) => bytes.len(),
    };
    Completion {
        source: message.source,
        status: DTL_SUCCESS,
        match_bits: message.match_bits,
        size: size as u64,
    }
}

/// Copies as many bytes of `data` as `into` can hold. Returns the completion of the receive.
pub(super) fn received(into: Region, data: Region, source: i32, word: u64) -> Completion {
    into.copy_from(data);
    Completion { status: fitting(data.len() as u64, into), ..sent(source, word, data) }
}
