//! Interface of the paths by which one-sided operations on a window access a target's memory.
//!
//! A path does not check bounds, epochs, dtypes or reduction operations: `window` checks them
//! before it calls a path. The implementations are `load_store` (loads and stores of memory that
//! all ranks share), `backend_rma` (one-sided operations of the transport) and `active_messages`
//! (messages that the target serves, over any transport). `rma::select` chooses the path when a
//! window is created.

use crate::error::Result;
pub(crate) use crate::runtime::component::{Change, FlushScope, RmaOp, Swap, TargetRange};
use std::ops::Range;

/// Number of an operation that is not yet complete locally, used to poll the operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket(pub(crate) u64);

/// Result of starting a one-sided operation. `None`: the operation is complete locally, that is,
/// the caller may reuse its buffers, and all fetched data has arrived. `Some`: the ticket of the
/// operation, which the next flush of the target completes. The caller may poll the ticket only if
/// it requested one when it started the operation ([`TicketRequest`]).
pub(crate) type RmaStart = Option<Ticket>;

/// True if the caller will poll the operation through its ticket. Otherwise, only a flush reports
/// the completion of the operation.
pub(crate) type TicketRequest = bool;

/// Operations on the memory of targets. Several threads may call them at once. A failure is
/// returned by the call that starts the operation, or by the flush or poll that detects the
/// failure. Waiting calls observe the communicator's time limit, return when the communicator
/// closes, and make progress on all communicators.
///
/// Accumulate operations (including compare-and-swap) on the same location execute one after the
/// other; those from the same origin execute in call order. Only flushes order puts and gets.
pub(crate) trait RmaPath: Send + Sync {
    /// Returns a human-readable description of this implementation of one-sided operations.
    fn describe(&self) -> &'static str;
    /// Starts an operation on the target range `at`, which is not empty. Each nonempty buffer of
    /// the operation has as many bytes as `at`.
    fn start(&self, at: TargetRange, op: &RmaOp, wants_ticket: TicketRequest) -> Result<RmaStart>;
    /// Waits for the locks of `targets` and acquires them. This rank must hold none of them before
    /// the call.
    fn lock(&self, targets: Range<i32>, exclusive: bool) -> Result<()>;
    /// Releases the locks of `targets` without a flush or a wait. Returns the first failure. Even
    /// after a failure, this rank holds none of the locks (a failed target, for example, has no
    /// locks).
    fn leave(&self, targets: Range<i32>) -> Result<()>;
    /// Waits until this rank's operations on `targets` are complete at the level `reach` (locally
    /// or remotely).
    fn flush(&self, targets: Range<i32>, reach: FlushScope) -> Result<()>;
    /// Polls an operation. Returns true if it is complete; after true or an error the ticket is
    /// invalid.
    fn is_over(&self, ticket: Ticket) -> Result<bool>;
    /// Cancels an operation whose ticket the caller requested, so that its buffers are no longer
    /// accessed.
    fn cancel(&self, ticket: Ticket) -> Result<()>;
    /// Serves pending requests from other ranks, without blocking. Returns true if a request was
    /// served.
    fn serve(&self) -> bool {
        false
    }
    /// Returns true if a library thread has to serve other ranks while no user thread is in a
    /// library call.
    fn needs_thread(&self) -> bool {
        false
    }
    /// Returns true if no other calls, except polls of tickets, may be in progress during `close`.
    fn closes_alone(&self) -> bool {
        false
    }
    /// Closes this implementation of the window's one-sided operations. The caller must not make
    /// any further call. After this call has returned, neither the window's memory nor a buffer is
    /// accessed. If `together` is true, all ranks close the window now, and the call may wait for
    /// them. Otherwise the call does not wait for other ranks.
    fn close(&self, together: bool);
}
