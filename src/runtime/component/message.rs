//! Matching and completion of messages: what a receive selects, and how an operation ended.

use crate::abi::comm::communicator::*;
use crate::abi::status::*;
use crate::error::Result;
use std::task::Poll;

/// Id that a transport gives to an operation in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct OpId(pub u64);

impl OpId {
    /// Stands for an operation that is complete already; no operation in flight has this id.
    pub const COMPLETED: OpId = OpId(u64::MAX);
}

/// How an operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// A receive: the sender's rank.
    pub source: i32,
    /// Success, TRUNCATED, CANCELED, RANK_FAILURE ...
    pub status: dtl_status_t,
    /// A receive: the message's match word.
    pub match_bits: u64,
    /// A receive: the message's true size.
    pub size: u64,
}

impl Completion {
    /// Completion of a receive from (or send to) DTL_PROC_NULL.
    pub const NOBODY: Completion =
        Completion { source: DTL_PROC_NULL, status: DTL_SUCCESS, match_bits: 0, size: 0 };
    /// Initial value for callers that need only failures: a transport may leave it unchanged if a
    /// receive has succeeded.
    pub const UNASKED: Completion =
        Completion { source: i32::MIN, status: DTL_SUCCESS, match_bits: 0, size: 0 };

    /// Returns true if it is `UNASKED`.
    #[must_use]
    pub fn is_unasked(&self) -> bool {
        self.source == i32::MIN
    }
}

/// What a receive takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selector {
    /// A rank or DTL_ANY_SOURCE.
    pub source: i32,
    /// The match word.
    pub match_bits: u64,
    /// Bits of it that do not matter.
    pub ignore: u64,
}

impl Selector {
    /// Returns true if it selects a message from this source with this match word.
    #[inline]
    #[must_use]
    pub fn takes(&self, source: i32, word: u64) -> bool {
        (self.source == source || self.source == DTL_ANY_SOURCE)
            && (self.match_bits ^ word) & !self.ignore == 0
    }
}

/// When a send is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendMode {
    /// When its buffer may be used again.
    Standard,
    /// When a receive has taken the message.
    Synchronous,
    /// When its buffer may be used again, for a message of a few bytes. If its receiver has left,
    /// the communicator does not fail.
    Notice,
}

/// How long the start of a receive may take, and where it reports a receive that is complete then.
/// (Filled in where it is: a value that is passed on is read in other pieces than it was written
/// in, which a processor delays until all its stores are done.)
pub enum RecvMode<'a> {
    /// No time: the receive is an operation.
    Request,
    /// Some hundred nanoseconds, for a message that is there or comes within that time.
    Poll(&'a mut Completion),
    /// Any time: nothing else needs progress.
    Block(&'a mut Completion),
}

impl<'a> RecvMode<'a> {
    /// The place for the completion of a receive that a short poll completes.
    #[inline]
    #[must_use]
    pub fn poll(self) -> Option<&'a mut Completion> {
        match self {
            RecvMode::Request => None,
            RecvMode::Poll(told) | RecvMode::Block(told) => Some(told),
        }
    }
}

/// A message that was taken out of the queue for one receive to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Matched {
    /// Id for [`super::Transport::receive_matched`].
    pub message: OpId,
    /// Its source, match word and true size; the status is success.
    pub done: Completion,
}

/// Converts the state of an operation to the result of [`super::Transport::test`]. (That type is
/// returned in two registers; `Result<bool>` would go through memory.)
#[inline]
pub fn poll_of(is_over: Result<bool>) -> Poll<Result<()>> {
    match is_over {
        Ok(false) => Poll::Pending,
        Ok(true) => Poll::Ready(Ok(())),
        Err(error) => Poll::Ready(Err(error)),
    }
}

/// Turns a transport's completion into what C sees.
#[must_use]
pub fn recv_info(done: &Completion) -> dtl_recv_info_t {
    // A receive from DTL_PROC_NULL has no match word.
    let tag = if done.source == DTL_PROC_NULL {
        DTL_ANY_TAG
    } else {
        (done.match_bits & 0x0FFF_FFFF) as i32
    };
    dtl_recv_info_t {
        source: done.source,
        tag,
        size_bytes: done.size,
        status: done.status,
        reserved0: 0,
        reserved1: 0,
    }
}
