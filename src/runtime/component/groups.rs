//! Optional groups of transport methods. One call returns all groups of a transport. A transport
//! that provides a group implements all methods of the group.

use super::{
    Completion, CrossMemory, Direct, NativeCollectives, OpId, PipelinedSource, RecvReduction,
    Registration, Rma, Selector, SharedMemory,
};
use crate::error::Result;
use crate::sys::compute::callback::{ForeignTester, TestOutputs};
use crate::sys::memory::buf::Region;
use std::sync::Arc;
use std::time::Duration;

/// Optional group of methods: the transport as the trait object `T`, or `None` if the transport
/// does not implement the group.
type Group<'a, T> = Option<&'a T>;

/// Method groups of one transport. They do not change while the transport is open, so a
/// communicator may cache the groups that it often uses.
pub struct Groups<'a> {
    /// Detection of ranks that have died or disconnected.
    pub liveness: Group<'a, dyn Liveness>,
    /// Memory that the ranks of the transport access with loads and stores.
    pub shared_memory: Group<'a, dyn SharedMemory>,
    /// Copies from and to the memory of other processes on this node.
    pub cross_memory: Group<'a, dyn CrossMemory>,
    /// Native one-sided operations, or the reason why this rank has none. The transport creates a
    /// window only if all ranks have this group.
    pub rma: Result<&'a (dyn Rma + 'static), &'static str>,
    /// Native collectives of the transport. All ranks have this group, or none has it.
    pub native_collectives: Group<'a, dyn NativeCollectives>,
    /// Persistent operations. Without this group, each start creates a new nonpersistent operation.
    pub persistent: Group<'a, dyn PersistentOps>,
    /// Direct transfer of large messages from and to device memory, without staging in host memory.
    pub device_memory: Group<'a, dyn Direct>,
    /// Registration of the program's buffers. Without this group, it has no effect.
    pub registration: Group<'a, dyn Registration>,
    /// Pipelined messages: the caller fills the send buffer and reads the receive buffer while the
    /// transport transfers the message.
    pub pipeline: Group<'a, dyn Pipeline>,
    /// Receives that reduce a message as it arrives. Without this group, a message is reduced when
    /// all of it has arrived.
    pub reducing: Group<'a, dyn RecvReduce>,
    /// Blocking wait until an event occurs in the transport. Without this group, a waiting thread
    /// sleeps for fixed intervals.
    pub wakeup: Group<'a, dyn Wakeup>,
    /// Completion tests in which the waiting thread itself calls a function of another library
    /// (such as MPI_Test).
    pub foreign_test: Group<'a, dyn ForeignTest>,
    /// Check of whether the calling thread may call the transport. Without this group, all threads
    /// may call it.
    pub thread_check: Group<'a, dyn ThreadCheck>,
    /// Human-readable descriptions for error messages and reports.
    pub diagnostics: Group<'a, dyn Diagnostics>,
}

impl Groups<'_> {
    /// Value for a transport that provides only point-to-point messages and no optional method
    /// group.
    pub const NONE: Self = Groups {
        liveness: None,
        shared_memory: None,
        cross_memory: None,
        rma: Err("this kind reaches no other rank's memory by itself"),
        native_collectives: None,
        persistent: None,
        device_memory: None,
        registration: None,
        pipeline: None,
        reducing: None,
        wakeup: None,
        foreign_test: None,
        thread_check: None,
        diagnostics: None,
    };
}

/// Detection of ranks that have died or disconnected.
pub trait Liveness: Send + Sync {
    /// Returns the ranks known to have died or disconnected.
    fn failed_ranks(&self) -> Vec<i32>;
    /// Returns the number of ranks known to have died. Must be cheap, because waiting threads poll
    /// it.
    fn failed_count(&self) -> usize;
}

/// Persistent operations: created once, started repeatedly.
pub trait PersistentOps: Send + Sync {
    /// Creates an inactive standard send. Returns `None` if the transport cannot send a buffer of
    /// this length persistently; then each start is a new nonpersistent send.
    fn make_send(&self, data: Region, dest: i32, word: u64) -> Option<Result<OpId>>;
    /// Creates an inactive receive. Returns `None` if the transport cannot receive into a buffer of
    /// this length persistently; then each start is a new nonpersistent receive.
    fn make_recv(&self, data: Region, select: Selector) -> Option<Result<OpId>>;
    /// Starts an inactive operation. The operation completes through [`super::Transport::test`].
    /// Whatever the outcome, it is then inactive again, and its id stays valid.
    fn start(&self, op: OpId) -> Result<()>;
    /// Frees an operation. An active operation that cannot be canceled still runs to completion.
    fn end(&self, op: OpId) -> Result<()>;
}

/// Pipelined messages: the caller writes the bytes while the transport sends them, and reads the
/// bytes while the transport receives them.
pub trait Pipeline: Send + Sync {
    /// Starts a standard send of `data`, whose bytes are still being written from front to back.
    /// `by` contains the number of bytes written so far. Returns `None` if pipelined sends to
    /// `dest` are not possible.
    fn isend_pipelined(
        &self,
        data: Region,
        dest: i32,
        word: u64,
        by: &Arc<PipelinedSource>,
    ) -> Option<Result<OpId>>;
    /// Returns the number of bytes of the incomplete receive `op` that have arrived, counted from
    /// the front of the message. Bytes that have arrived do not change any more.
    fn arrived(&self, op: OpId) -> usize;
}

/// Receives that reduce a message as it arrives.
pub trait RecvReduce: Send + Sync {
    /// Starts a receive into `data` that reduces the message by `by`. The message is not
    /// necessarily stored in `data` if the result replaces the other operand.
    fn irecv_reduce(&self, data: Region, select: Selector, by: RecvReduction) -> Result<OpId>;
}

/// Blocking wait until an event occurs in the transport.
pub trait Wakeup: Send + Sync {
    /// Sleeps until an operation of this rank completes or a message arrives, for `limit` at most.
    /// `seen` is 0 for the first call and then the value that the previous call stored. Returns at
    /// once if an event has occurred since that call. Returns false at once if no event would wake
    /// the thread now: the caller then sleeps for a fixed interval.
    fn rest(&self, seen: &mut u64, limit: Duration) -> bool;
}

/// Completion tests in which the waiting thread itself calls a foreign function (a function of
/// another library, such as MPI_Test) instead of [`super::Transport::test`] (see
/// `sys::compute::callback` for the reason).
pub trait ForeignTest: Send + Sync {
    /// Returns the function that tests an operation's request in the other library (for example an
    /// MPI_Request), and the conditions under which the function may be called.
    fn foreign_tester(&self) -> Arc<ForeignTester>;
    /// Fills in the completion of operation `op` from the outputs of the call to another library
    /// (such as MPI_Test) that has completed `op`. The caller must call this function if the
    /// operation failed, or if it needs fields of the completion other than the status.
    fn fill_completion(&self, op: OpId, outputs: &TestOutputs, completion: &mut Completion);
}

/// Determines whether a thread may call the transport.
pub trait ThreadCheck: Send + Sync {
    /// Fails if the calling thread may not call the transport. Needed only if the library's own
    /// threads may not call the transport (see [`super::Properties::allows_progress_thread`]).
    fn admit(&self) -> Result<()>;
}

/// Human-readable descriptions that a transport provides.
pub trait Diagnostics: Send + Sync {
    /// Returns the error message of the transport or of its vendor library for the operation that
    /// has just failed; `None` if there is none.
    fn failure_text(&self) -> Option<String>;
    /// Returns a description of the current and peak memory use of the transport, not counting user
    /// buffers; `None` if the transport does not track its memory use.
    fn memory_text(&self) -> Option<String> {
        None
    }
}
