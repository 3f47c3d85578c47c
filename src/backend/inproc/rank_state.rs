//! One rank's side of a fabric: what it has in flight, what has come for it, and who sleeps until
//! something does.

use crate::abi::status::*;
use crate::backend::match_queues::{self, Matcher};
use crate::backend::op_table::Operations;
use crate::runtime::component::{Done, OpId};
use crate::sys::memory::buf::{Region, Scratch};
use crate::sys::sync::lock::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};

/// Far enough apart that two ranks never share a line (or a prefetched pair).
#[repr(align(128))]
pub(super) struct Side {
    pub(super) state: Mutex<State>,
    /// Notified of an event while a thread sleeps.
    pub(super) woken: Condvar,
    pub(super) left: AtomicBool,
    /// Whether an operation failed because this rank left.
    pub(super) blamed: AtomicBool,
}

pub(super) struct State {
    pub(super) operations: Operations<Operation>,
    pub(super) matcher: Matcher<OpId, Message>,
    /// Operations that have ended and unexpected messages that have come, so far.
    pub(super) events: u64,
    pub(super) sleepers: u32,
}

pub(super) enum Operation {
    Send {
        dest: i32,
    },
    Receive {
        into: Region,
        /// Whom it names.
        source: i32,
    },
    /// A receive whose message is being copied.
    Filling,
    /// A message that was taken for a receive to come.
    Taken(match_queues::Message<Message>),
    /// A taken message that its sender has withdrawn since. Holds the outcome of its receive.
    Withdrawn(Done),
    Done(Done),
}

/// An unexpected message: no receive matches it yet.
pub(super) enum Message {
    /// A copy of it; its send is over.
    Copied(Scratch),
    /// The sender's own bytes; its send ends when they are received.
    Lent(Region, OpId),
}

impl Side {
    pub(super) fn new(ranks: usize) -> Self {
        let state = State {
            operations: Operations::new(),
            matcher: Matcher::new(ranks),
            events: 0,
            sleepers: 0,
        };
        Side {
            state: Mutex::new(state),
            woken: Condvar::new(),
            left: AtomicBool::new(false),
            blamed: AtomicBool::new(false),
        }
    }

    pub(super) fn finish(&self, id: OpId, done: Done) {
        self.finish_locked(&mut self.state.lock(), id, done);
    }

    pub(super) fn finish_locked(&self, state: &mut State, id: OpId, done: Done) {
        if let Some(operation) = state.operations.get_mut(id) {
            *operation = Operation::Done(done);
        }
        self.wake(state);
    }

    /// Removes the message that `sender` sent by its operation `send`, if its receive has not
    /// started. Returns true if the caller must end the send.
    pub(super) fn withdraw(&self, sender: i32, send: OpId) -> bool {
        let is = |message: &Message| matches!(message, Message::Lent(_, by) if *by == send);
        let mut state = self.state.lock();
        if state.matcher.remove_unexpected(sender, is).is_some() {
            return true;
        }
        for (_, operation) in state.operations.iter_mut() {
            if let Operation::Taken(taken) = operation {
                if taken.source == sender && is(&taken.what) {
                    *operation = Operation::Withdrawn(canceled(sender, taken.word));
                    return true;
                }
            }
        }
        false
    }

    /// An operation has ended, or a message has come that a probe may wait for.
    pub(super) fn wake(&self, state: &mut State) {
        state.events += 1;
        if state.sleepers > 0 {
            self.woken.notify_all();
        }
    }

    pub(super) fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }
}

pub(super) fn sent(rank: i32, word: u64, data: Region) -> Done {
    Done { source: rank, status: DTL_SUCCESS, word, size: data.len() as u64 }
}

pub(super) fn failed(rank: i32, word: u64) -> Done {
    Done { source: rank, status: DTL_ERROR_RANK_FAILURE, word, size: 0 }
}

pub(super) fn canceled(rank: i32, word: u64) -> Done {
    Done { source: rank, status: DTL_ERROR_CANCELED, word, size: 0 }
}

/// Returns the completion of a receive of this message.
pub(super) fn found(message: &match_queues::Message<Message>) -> Done {
    let size = match &message.what {
        Message::Copied(copy) => copy.region().len(),
        Message::Lent(bytes, _) => bytes.len(),
    };
    Done { source: message.source, status: DTL_SUCCESS, word: message.word, size: size as u64 }
}

/// Copies what fits.
pub(super) fn received(into: Region, data: Region, source: i32, word: u64) -> Done {
    into.copy_from(data);
    let status = if data.len() > into.len() { DTL_ERROR_TRUNCATED } else { DTL_SUCCESS };
    Done { source, status, word, size: data.len() as u64 }
}
