//! Transports, on which communicators are opened: point-to-point messages, which every kind has,
//! and the groups of methods that some kinds have besides.

use super::{Completion, Groups, Matched, OpId, RecvMode, Selector, SendMode};
use crate::error::Result;
use crate::sys::memory::buf::Region;
use std::borrow::Cow;
use std::sync::Arc;
use std::task::Poll;

/// A set of ranks that move bytes under 64-bit match words {context 32 | class 4 | tag 28}.
/// Messages of one source that a receive takes are received in the order sent. Nothing blocks but
/// `close`, which may wait for a moment; `test`, `probe` and `take` make progress on every
/// operation. Called by several threads at once.
///
/// An operation that can no longer complete because a rank has died or left ends with RANK_FAILURE.
/// For `probe` and `take` that is an error: nothing that they select is queued, and its source is
/// gone (any source: some rank has died).
pub trait Transport: Send + Sync {
    // First what every message calls: their addresses then share lines of the cache.
    /// Starts a send; the region stays valid and unchanged until it is complete. With `may_block`
    /// the call may also wait until then, however long that takes. [`OpId::COMPLETED`]: it is
    /// complete, with success.
    fn start_send(
        &self,
        data: Region,
        dest: i32,
        word: u64,
        mode: SendMode,
        may_block: bool,
    ) -> Result<OpId>;
    /// Starts a receive into the region. [`OpId::COMPLETED`]: it is complete, and what `mode` has
    /// a place for is filled in.
    fn start_recv(&self, data: Region, select: Selector, mode: RecvMode<'_>) -> Result<OpId>;
    /// Makes progress and tests one operation. Ready: it is complete and `told` is filled in; the
    /// id is not used again. Pending: `told` is unchanged.
    fn test(&self, op: OpId, told: &mut Completion) -> Poll<Result<()>>;
    /// Makes progress and looks for the message that a receive would take now; it stays.
    fn probe(&self, select: Selector) -> Result<Option<Completion>>;
    /// Makes progress and takes out the message that a receive would take now: only
    /// `receive_matched` gets it.
    fn take(&self, select: Selector) -> Result<Option<Matched>>;
    /// Starts the receive of a taken message.
    fn receive_matched(&self, message: OpId, data: Region) -> Result<OpId>;
    /// Makes progress without testing an operation. Called while a call waits on another transport.
    fn progress(&self);
    /// Tries to cancel; the operation then completes through `test`, with CANCELED or, if it was
    /// matched already, as usual.
    fn cancel(&self, op: OpId) -> Result<()>;
    /// Returns its properties, which stay equal from its opening to its end.
    fn properties(&self) -> &Properties;
    /// The groups of methods that it has beside these.
    fn groups(&self) -> Groups<'_>;
    /// Closes it. No operation is pending and none follows.
    fn close(&self) -> Result<()>;
}

impl dyn Transport + '_ {
    /// This process' rank.
    #[must_use]
    pub fn rank(&self) -> i32 {
        self.properties().rank
    }

    /// Number of ranks.
    #[must_use]
    pub fn size(&self) -> i32 {
        self.properties().size
    }

    /// [`Transport::start_send`] without waiting.
    pub fn isend(&self, data: Region, dest: i32, word: u64, mode: SendMode) -> Result<OpId> {
        self.start_send(data, dest, word, mode, false)
    }

    /// [`Transport::start_recv`] without waiting: always an operation.
    pub fn irecv(&self, data: Region, select: Selector) -> Result<OpId> {
        self.start_recv(data, select, RecvMode::Request)
    }

    /// [`Transport::test`] as a value, also of [`OpId::COMPLETED`]; `None`: the operation is
    /// incomplete.
    pub fn outcome(&self, op: OpId) -> Result<Option<Completion>> {
        let mut told = Completion::NOBODY;
        if op == OpId::COMPLETED {
            return Ok(Some(told));
        }
        match self.test(op, &mut told)? {
            Poll::Ready(()) => Ok(Some(told)),
            Poll::Pending => Ok(None),
        }
    }
}

/// Properties of a transport, fixed from its opening to its end.
#[derive(Clone, Debug)]
pub struct Properties {
    /// This process' rank.
    pub rank: i32,
    /// Number of ranks.
    pub size: i32,
    /// How the data moves, for people.
    pub description: Cow<'static, str>,
    /// Whether operations in flight make progress only while a thread calls the transport. Not so
    /// where calls on one transport make progress on all of the kind, and no other rank waits for
    /// them.
    pub needs_progress: bool,
    /// Whether another rank may wait for this one although everything that was started here is
    /// complete: because the connection broke, for example, and both re-establish it.
    pub answers_late: bool,
    /// Whether a thread of the library may call it while the program does something else, whatever
    /// that calls.
    pub allows_progress_thread: bool,
    /// Whether it may keep cancelled operations without end, for reasons outside the library.
    pub may_keep_cancelled: bool,
    /// Whether all ranks are known to run on one node.
    pub is_one_node: bool,
    /// By rank: the number of its node, from 0 up. `None`: not known, or all on one.
    pub nodes: Option<Arc<[i32]>>,
    /// Whether the ranks of this node are more than the processors that they may run on. `None`:
    /// not known.
    pub is_oversubscribed: Option<bool>,
    /// The backend whose device memory may be a message's buffer as it is, if other processes can
    /// open it; `None`: no backend's.
    pub device_memory_of: Option<&'static str>,
}

impl Properties {
    /// A rank whose calls make all the progress there is, and of which no more is known.
    #[must_use]
    pub fn new(rank: i32, size: i32, description: impl Into<Cow<'static, str>>) -> Self {
        Properties {
            rank,
            size,
            description: description.into(),
            needs_progress: true,
            answers_late: false,
            allows_progress_thread: true,
            may_keep_cancelled: false,
            is_one_node: false,
            nodes: None,
            is_oversubscribed: None,
            device_memory_of: None,
        }
    }
}
