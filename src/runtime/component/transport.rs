//! Transports, over which communicators are opened: point-to-point messages, which every transport
//! provides, and the optional groups of methods.

use super::{Completion, Dest, Groups, Matched, OpId, RecvMode, Selector, SendMode, Watch};
use crate::error::Result;
use crate::sys::memory::buf::Region;
use std::borrow::Cow;
use std::sync::Arc;
use std::task::Poll;

/// Set of ranks that exchange messages with 64-bit match bits (context: 32 bits, message class: 4
/// bits, tag: 28 bits). Messages from one source that match one receive are received in the order
/// sent. Only `close` (briefly) and, if permitted, `start_send` and `start_recv` block. `test`,
/// `probe` and `take` make progress on every operation. Several threads may call the transport at
/// once.
///
/// An operation that can no longer complete because a rank has died or disconnected ends with
/// RANK_FAILURE. `probe` and `take` return this error if no queued message matches their selector
/// and the selected source has failed (for DTL_ANY_SOURCE: if some rank has died).
pub trait Transport: Send + Sync {
    // The methods that every message calls come first: their addresses then share cache lines.
    /// Starts a send of `data`, which must stay valid and unchanged until the send is complete. If
    /// `may_block` is true, the call may block until the send is complete, however long that takes.
    /// Returns [`OpId::COMPLETED`] if the send has already completed successfully.
    fn start_send(&self, data: Region, to: Dest, mode: SendMode, may_block: bool) -> Result<OpId>;
    /// Starts a receive into `data`. Returns [`OpId::COMPLETED`] if the receive is already
    /// complete; the completion is then stored in the location that `mode` provides.
    fn start_recv(&self, data: Region, select: Selector, mode: RecvMode<'_>) -> Result<OpId>;
    /// Makes progress and tests operation `op`. If `op` is complete, returns `Ready` and fills in
    /// the completion; the id is not used again. Otherwise leaves the completion unchanged.
    fn test(&self, op: OpId, completion: &mut Completion) -> Poll<Result<()>>;
    /// Tests operation `op`, then those that `next` returns, until it returns `None`. The argument
    /// of `next` is the completion of the operation tested last, or `None` if it is incomplete.
    /// Makes progress if `op` is incomplete. Ends early after an operation whose test fails. `next`
    /// may be called with a lock of the transport held, so it must not wait, call the transport or
    /// call the program.
    fn test_in_order(
        &self,
        mut op: OpId,
        next: &mut dyn FnMut(Option<&Completion>) -> Option<OpId>,
    ) {
        let mut done = Completion::NOBODY;
        loop {
            let tested = self.test(op, &mut done);
            if matches!(tested, Poll::Ready(Err(_))) {
                return;
            }
            let Some(following) = next(tested.is_ready().then_some(&done)) else { return };
            op = following;
        }
    }
    /// Makes progress and returns the source, match bits and size of the message that a receive
    /// with `select` would match now; `None` if there is no such message. The message stays in the
    /// queue.
    fn probe(&self, select: Selector) -> Result<Option<Completion>>;
    /// Makes progress and removes from the queue the message that a receive with `select` would
    /// match now. Only `receive_matched` can receive this message.
    fn take(&self, select: Selector) -> Result<Option<Matched>>;
    /// Starts the receive of a message that `take` has returned.
    fn receive_matched(&self, message: OpId, data: Region) -> Result<OpId>;
    /// Makes progress without testing an operation. Called while a thread waits for an operation on
    /// another transport.
    fn progress(&self);
    /// Tries to cancel operation `op`. The operation then completes through `test`: with CANCELED
    /// or, if its message was already matched, with its normal result.
    fn cancel(&self, op: OpId) -> Result<()>;
    /// Returns the properties of the transport, which are constant from open to close.
    fn properties(&self) -> &Properties;
    /// Returns the optional method groups that the transport provides.
    fn groups(&self) -> Groups<'_>;
    /// Closes the transport. All operations must be complete, and the caller must not start further
    /// operations.
    fn close(&self) -> Result<()>;
}

impl dyn Transport + '_ {
    /// Returns this process' rank.
    pub fn rank(&self) -> i32 {
        self.properties().rank
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> i32 {
        self.properties().size
    }

    /// Starts a nonblocking send through [`Transport::start_send`].
    pub fn isend(&self, data: Region, dest: i32, word: u64, mode: SendMode) -> Result<OpId> {
        self.start_send(data, Dest { rank: dest, word }, mode, false)
    }

    /// Starts a nonblocking receive through [`Transport::start_recv`]: the receive always becomes
    /// an operation in flight.
    pub fn irecv(&self, data: Region, select: Selector) -> Result<OpId> {
        self.start_recv(data, select, RecvMode::Request)
    }

    /// Tests operation `op` with [`Transport::test`] and returns its completion; `None` if the
    /// operation is incomplete. `op` may be [`OpId::COMPLETED`].
    pub fn outcome(&self, op: OpId) -> Result<Option<Completion>> {
        let mut completion = Completion::NOBODY;
        if op == OpId::COMPLETED {
            return Ok(Some(completion));
        }
        match self.test(op, &mut completion)? {
            Poll::Ready(()) => Ok(Some(completion)),
            Poll::Pending => Ok(None),
        }
    }
}

/// Adds ranks to a transport. The library below the transport, such as MPI, starts their processes.
pub trait Grow: Send + Sync {
    /// Starts `count` processes of the program, for the ranks from `first` on of the new job `job`.
    /// They must begin to open the communicator within `limit_ns` nanoseconds.
    fn start(
        &self,
        job: &str,
        first: i32,
        count: i32,
        limit_ns: u64,
    ) -> Result<Box<dyn PendingRanks>>;
    /// Connects the ranks `ranks` of this transport, in this order, with the processes. Collective
    /// over these ranks and the processes. The first rank passes the result of
    /// [`PendingRanks::admit`]. Returns the identifier for
    /// [`OpenArgs::grown`](super::OpenArgs::grown).
    fn join(&self, ranks: &[i32], admitted: Option<u64>) -> Result<u64>;
}

/// New processes, each of which waits until all ranks open the communicator. If this value is
/// dropped before `settle` is called, the launcher ends the processes if it can.
pub trait PendingRanks: Send {
    /// Waits until all processes begin to open the communicator. Fails at the time limit, or if
    /// `watch` fails.
    fn gather(&mut self, watch: &Watch) -> Result<()>;
    /// Lets the processes open the communicator. Returns an identifier of the connection to them if
    /// [`Grow::join`] needs one.
    fn admit(&mut self) -> Result<Option<u64>>;
    /// Fails if the end of one of the processes has been reported. Does not wait.
    fn check(&mut self) -> Result<()> {
        Ok(())
    }
    /// Records that all ranks have opened the communicator, so the processes are not ended.
    fn settle(&mut self) {}
}

/// Properties of a transport, constant from open to close.
#[derive(Clone)]
pub struct Properties {
    /// This process' rank.
    pub rank: i32,
    /// Number of ranks.
    pub size: i32,
    /// Human-readable description of the data path.
    pub description: Cow<'static, str>,
    /// True if operations in flight make progress only while a thread calls the transport. It is
    /// nevertheless false if a call to any transport of the same backend makes progress on these
    /// operations and no other rank waits for them.
    pub needs_progress: bool,
    /// True if another rank may wait for this rank although all operations that this rank started
    /// are complete, for example because the connection broke and both ranks must re-establish it.
    pub answers_late: bool,
    /// True if a thread of the library may call the transport at any time, whatever functions (for
    /// example MPI functions) the user's threads call meanwhile.
    pub allows_progress_thread: bool,
    /// True if canceled operations may stay incomplete indefinitely, for reasons that the library
    /// does not control.
    pub may_keep_cancelled: bool,
    /// True if all ranks are known to run on one node.
    pub is_one_node: bool,
    /// Node number of each rank, in rank order. Node numbers start at 0. `None`: unknown, or all
    /// ranks are on one node.
    pub nodes: Option<Arc<[i32]>>,
    /// True if this node has more ranks than processors on which they may run. `None`: unknown.
    pub is_oversubscribed: Option<bool>,
    /// Starts further ranks; `None` if the library below the transport cannot start processes.
    pub grow: Option<Arc<dyn Grow>>,
    /// Name of the backend whose device memory the transport accepts as a message buffer without
    /// staging, provided that other processes can open the memory; `None`: no backend.
    pub device_memory_of: Option<&'static str>,
}

impl Properties {
    /// Creates default properties: operations make progress only during calls, a thread of the
    /// library may call the transport, and all other properties are false or unknown.
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
            grow: None,
            device_memory_of: None,
        }
    }
}
