//! Matching and completion of messages: the selectors by which receives match messages, and the
//! results of operations.

use crate::abi::comm::communicator::*;
use crate::abi::status::*;
use crate::error::Result;
use crate::runtime::types::Kernel;
use crate::sys::memory::buf::Region;
use std::task::Poll;

/// Id that a transport assigns to an operation in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct OpId(pub u64);

impl OpId {
    /// Id of an operation that is already complete; no operation in flight has this id.
    pub const COMPLETED: OpId = OpId(u64::MAX);
}

/// Result of a completed operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Rank of the sender (receives only).
    pub source: i32,
    /// Status of the operation: success, TRUNCATED, CANCELED, RANK_FAILURE or another error.
    pub status: dtl_status_t,
    /// Match bits of the message (receives only).
    pub match_bits: u64,
    /// Size in bytes of the message as sent, which may exceed the receive buffer (receives only).
    pub size: u64,
}

impl Completion {
    /// Completion of a receive from (or send to) DTL_PROC_NULL.
    pub const NOBODY: Completion =
        Completion { source: DTL_PROC_NULL, status: DTL_SUCCESS, match_bits: 0, size: 0 };
    /// Initial value that a caller passes if it reads the completion only after a failure. If a
    /// receive succeeds, the transport may leave this value unchanged.
    pub const UNASKED: Completion =
        Completion { source: i32::MIN, status: DTL_SUCCESS, match_bits: 0, size: 0 };

    /// Returns true if the completion is still [`Completion::UNASKED`].
    pub fn is_unasked(&self) -> bool {
        self.source == i32::MIN
    }
}

/// Selector of the messages that a receive matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selector {
    /// Source rank or DTL_ANY_SOURCE.
    pub source: i32,
    /// Match word.
    pub match_bits: u64,
    /// Mask of the match bits that are ignored.
    pub ignore: u64,
}

impl Selector {
    /// Returns true if the selector matches a message from `source` with the match bits `word`.
    pub fn takes(&self, source: i32, word: u64) -> bool {
        (self.source == source || self.source == DTL_ANY_SOURCE)
            && (self.match_bits ^ word) & !self.ignore == 0
    }
}

/// Destination of a message.
#[derive(Clone, Copy)]
pub struct Dest {
    /// Rank that receives the message.
    pub rank: i32,
    /// Match bits of the message.
    pub word: u64,
}

/// Condition under which a send is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendMode {
    /// The send buffer may be reused.
    Standard,
    /// A receive has matched the message.
    Synchronous,
    /// The send buffer may be reused. Used for notifications of a few bytes: the communicator does
    /// not fail if the receiver has disconnected.
    Notice,
}

/// Time for which the start of a receive may block, and the location to which the transport writes
/// the completion if the receive completes during that time. (The completion is not returned by
/// value: the caller would read the returned value with loads whose sizes differ from those of the
/// stores that wrote it, and the processor delays such loads until the stores have retired.)
pub enum RecvMode<'a> {
    /// Does not wait: the receive becomes an operation in flight.
    Request,
    /// Waits for the message for a few hundred nanoseconds at most.
    Poll(&'a mut Completion),
    /// Waits for the message without a time limit. Used if no other operation needs progress.
    Block(&'a mut Completion),
}

impl<'a> RecvMode<'a> {
    /// Returns the location for the completion of a receive that completes during the start call;
    /// `None` for [`RecvMode::Request`].
    pub fn poll(self) -> Option<&'a mut Completion> {
        match self {
            RecvMode::Request => None,
            RecvMode::Poll(completion) | RecvMode::Block(completion) => Some(completion),
        }
    }
}

/// Reduction of a message with another operand of equal size. The result replaces the message, in
/// the receive buffer, or the other operand. Elements have at most 16 bytes.
#[derive(Clone, Copy)]
pub struct RecvReduction {
    /// Kernel of a built-in operation.
    pub kernel: Kernel,
    /// Operand that is not the message.
    pub other: Region,
    /// True if the message is the left operand.
    pub is_left: bool,
    /// True if the result replaces `other`.
    pub replaces_other: bool,
}

impl RecvReduction {
    /// Reduces the elements that begin at offset `at` of a message to the receive buffer `data`.
    /// They are now in `bytes`.
    pub fn reduce(&self, data: Region, at: usize, bytes: Region) {
        let other = self.other.part(at, bytes.len());
        let into = if self.replaces_other { other } else { data.part(at, bytes.len()) };
        let (left, right) = if self.is_left { (bytes, other) } else { (other, bytes) };
        (self.kernel)(into, left, right);
    }
}

/// Message that [`super::Transport::take`] has matched and removed from the queue. Only
/// [`super::Transport::receive_matched`] can receive it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Matched {
    /// Id for [`super::Transport::receive_matched`].
    pub message: OpId,
    /// Source and match bits of the message, and its size as sent. The status is success.
    pub done: Completion,
}

/// Converts `is_over` (true if an operation is complete) to the return type of
/// [`super::Transport::test`]. A value of that type is returned in two registers; a `Result<bool>`
/// would be returned through memory.
pub fn poll_of(is_over: Result<bool>) -> Poll<Result<()>> {
    match is_over {
        Ok(false) => Poll::Pending,
        Ok(true) => Poll::Ready(Ok(())),
        Err(error) => Poll::Ready(Err(error)),
    }
}

/// Converts a completion from a transport to the `dtl_recv_info_t` of the C interface.
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
