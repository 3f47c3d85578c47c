//! Groups of methods that some transports have and others do not. A transport returns all of its
//! groups at once, and a group is complete: none of its methods means "not supported".

use super::{
    Completion, CrossMemory, Direct, NativeCollectives, OpId, PipelinedSource, Rma, Selector,
    SharedMemory,
};
use crate::error::Result;
use crate::sys::compute::foreign_test::{ForeignTester, TestOutputs};
use crate::sys::memory::buf::Region;
use std::sync::Arc;
use std::time::Duration;

/// One group: the transport as that trait, if it has it.
type Group<'a, T> = Option<&'a T>;

/// The groups of one transport. The same from its opening to its end, so that a communicator may
/// keep those that it needs often.
#[derive(Clone, Copy)]
pub struct Groups<'a> {
    /// Which ranks have died or left.
    pub liveness: Group<'a, dyn Liveness>,
    /// Memory that the ranks of the transport load and store.
    pub shared_memory: Group<'a, dyn SharedMemory>,
    /// Copies from and to the memory of other processes of the node.
    pub cross_memory: Group<'a, dyn CrossMemory>,
    /// One-sided operations, or the reason why there are none: on this rank. A window is made by
    /// the transport if all ranks have the group.
    pub rma: std::result::Result<&'a (dyn Rma + 'static), &'static str>,
    /// Collectives of the transport's own; on all ranks or on none.
    pub native_collectives: Group<'a, dyn NativeCollectives>,
    /// Persistent operations. Without the group each start is an operation of its own.
    pub persistent: Group<'a, dyn PersistentOps>,
    /// Large messages of device memory that do not go through host memory.
    pub device_memory: Group<'a, dyn Direct>,
    /// Messages whose bytes are copied while they are sent and received.
    pub pipeline: Group<'a, dyn Pipeline>,
    /// Sleep until something happens. Without the group a waiting thread sleeps by the clock.
    pub wakeup: Group<'a, dyn Wakeup>,
    /// Completion by a foreign function that the waiting thread itself calls.
    pub foreign_test: Group<'a, dyn ForeignTest>,
    /// Which threads may call the transport. Without the group: all.
    pub thread_check: Group<'a, dyn ThreadCheck>,
    /// Texts for error messages and reports.
    pub diagnostics: Group<'a, dyn Diagnostics>,
}

impl Groups<'_> {
    /// Point-to-point messages only.
    pub const NONE: Self = Groups {
        liveness: None,
        shared_memory: None,
        cross_memory: None,
        rma: Err("this kind reaches no other rank's memory by itself"),
        native_collectives: None,
        persistent: None,
        device_memory: None,
        pipeline: None,
        wakeup: None,
        foreign_test: None,
        thread_check: None,
        diagnostics: None,
    };
}

/// Detection of ranks that have died or left.
pub trait Liveness: Send + Sync {
    /// Ranks known to have died or left.
    fn failed_ranks(&self) -> Vec<i32>;
    /// How many ranks are known to have died (cheap: polled while waiting).
    fn failed_count(&self) -> usize;
}

/// Persistent operations: made once, started again and again.
pub trait PersistentOps: Send + Sync {
    /// Makes an inactive standard send. `None`: not of this buffer, whose length it cannot count;
    /// each start is a send of its own.
    fn make_send(&self, data: Region, dest: i32, word: u64) -> Option<Result<OpId>>;
    /// Makes an inactive receive. `None`: as for `make_send`.
    fn make_recv(&self, data: Region, select: Selector) -> Option<Result<OpId>>;
    /// Starts an inactive operation. It completes through [`super::Transport::test`], with any
    /// outcome, and is inactive then: its id stays valid.
    fn start(&self, op: OpId) -> Result<()>;
    /// Frees an operation. One that is active and cannot be cancelled completes by itself.
    fn end(&self, op: OpId) -> Result<()>;
}

/// Messages whose bytes are written while they are sent, and read while they are received.
pub trait Pipeline: Send + Sync {
    /// Starts a standard send of bytes that are still being written to the region, from the front.
    /// `None`: not to this rank.
    fn isend_pipelined(
        &self,
        data: Region,
        dest: i32,
        word: u64,
        by: &Arc<PipelinedSource>,
    ) -> Option<Result<OpId>>;
    /// Bytes of an incomplete receive that have arrived, from the front. They do not change any
    /// more.
    fn arrived(&self, op: OpId) -> usize;
}

/// Sleep of a thread that waits.
pub trait Wakeup: Send + Sync {
    /// Sleeps until an operation of this rank completes or a message arrives, `limit` at most, if
    /// nothing has happened since the call that set `seen` (0 at first). False, at once: nothing
    /// would wake the thread just now, sleep by the clock.
    fn rest(&self, seen: &mut u64, limit: Duration) -> bool;
}

/// Completion by a foreign function that the waiting thread calls itself, in the place of
/// [`super::Transport::test`] (see `sys::compute::foreign_test` for the reason).
pub trait ForeignTest: Send + Sync {
    /// The function, and when it may be called.
    fn foreign_tester(&self) -> Arc<ForeignTester>;
    /// Fills in the completion of an operation that the function has completed. Needed if it
    /// failed, or if the caller reads more than success.
    fn fill_completion(&self, op: OpId, heard: &TestOutputs, told: &mut Completion);
}

/// Restriction of a transport to some threads.
pub trait ThreadCheck: Send + Sync {
    /// Fails if the calling thread may not call the transport. Needed only where a thread of the
    /// library may not: [`super::Properties::allows_progress_thread`].
    fn admit(&self) -> Result<()>;
}

/// Texts for people.
pub trait Diagnostics: Send + Sync {
    /// The transport's own text about the operation that has just failed, the vendor's for
    /// example. `None`: there is none.
    fn failure_text(&self) -> Option<String>;
    /// The memory that it uses and has used beside the program's own. `None`: not counted.
    fn memory_text(&self) -> Option<String>;
}
