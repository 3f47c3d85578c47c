//! How operations reach a target's memory: the interface of a window to its implementations.
//!
//! Not here: bounds, epochs, dtypes and their operations. A way is called with what `window` has
//! checked. Implemented by `load_store` (loads and stores of memory that all ranks share),
//! `backend_rma` (what the transport does itself) and `active_messages` (messages that the target
//! serves, over any transport); which one is decided where a window is made (`rma::select`).

use crate::abi::word::{dtl_dtype_t, dtl_reduce_op_t};
use crate::error::Result;
pub(in crate::runtime::comm) use crate::runtime::component::{FlushScope, Swap, TargetRange};
use crate::sys::compute::shared_atomics::Update;
use crate::sys::memory::buf::Region;
use std::ops::Range;

/// Number of an operation that is not over locally, for its polls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::runtime::comm) struct Ticket(pub(in crate::runtime::comm) u64);

/// How far an operation got before its call returned. Over locally: the caller's buffers are its
/// own again, and what was to be fetched is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::runtime::comm) enum RmaStart {
    Over,
    /// Over with the next flush of the target. The ticket is polled only if the call requested that
    /// ([`TicketRequest`]).
    Pending(Ticket),
}

/// Whether a caller will poll an operation by its ticket. Otherwise only flushes use its outcome.
pub(in crate::runtime::comm) type TicketRequest = bool;

/// How elements are changed: a built-in dtype and an operation that goes with it.
#[derive(Clone, Copy)]
pub struct Change {
    pub(in crate::runtime::comm) dtype: dtl_dtype_t,
    pub(in crate::runtime::comm) op: dtl_reduce_op_t,
    /// The atomic update that the processor executes.
    pub(in crate::runtime::comm) update: &'static Update,
}

impl Change {
    /// Bytes of an element.
    #[must_use]
    pub fn size(&self) -> usize {
        self.update.size()
    }
}

/// Operations on the memory of targets. Called by several threads at once. An operation fails at
/// once, or with the flush (or the poll) that finds out. Waiting calls keep the communicator's time
/// limit, end when it closes, and make progress on everything.
///
/// Accumulating operations (the last three of the five) on one place happen one after the other,
/// those of one origin in the order of its calls. Puts and gets have no order but that of flushes.
pub(in crate::runtime::comm) trait RmaPath: Send + Sync {
    /// Describes the way for people.
    fn describe(&self) -> &'static str;
    /// Copies to the target. `from` has `to.len` bytes.
    fn put(&self, to: TargetRange, from: Region, asked: TicketRequest) -> Result<RmaStart>;
    /// Copies from the target.
    fn get(&self, into: Region, from: TargetRange, asked: TicketRequest) -> Result<RmaStart>;
    /// `target = target op from`, element by element.
    fn accumulate(&self, to: TargetRange, from: Region, by: &Change) -> Result<RmaStart>;
    /// `target = target op from`; the previous elements go to `result`. NO_OP: `from` may be empty.
    fn get_accumulate(
        &self,
        to: TargetRange,
        from: Region,
        result: Region,
        by: &Change,
    ) -> Result<RmaStart>;
    /// Compares and swaps one element of 1, 2, 4 or 8 bytes (the length of the spot).
    fn compare_and_swap(&self, to: TargetRange, swap: Swap) -> Result<RmaStart>;
    /// Waits for the locks of these targets, of which this rank has none.
    fn lock(&self, targets: Range<i32>, exclusive: bool) -> Result<()>;
    /// Flushes (`Reach::Target`) and gives the locks back. After TIMEOUT they are held still, after
    /// another failure none is: for example that of a rank, which has no locks any more.
    fn unlock(&self, targets: Range<i32>) -> Result<()>;
    /// Gives the locks back, without a flush and without waiting: this rank goes.
    fn leave(&self, targets: Range<i32>);
    /// Waits until this rank's operations on these targets are over.
    fn flush(&self, targets: Range<i32>, reach: FlushScope) -> Result<()>;
    /// Polls an operation by its ticket: true if it is over. After true or an error the ticket is
    /// invalid.
    fn is_over(&self, ticket: Ticket) -> Result<bool>;
    /// Ends an operation that would be polled, so that its buffer is not touched any more.
    fn cancel(&self, ticket: Ticket) -> Result<()>;
    /// Serves requests of other ranks without waiting; true: there was something.
    fn serve(&self) -> bool {
        false
    }
    /// Whether a thread has to serve others while the program's are outside of the library.
    fn needs_thread(&self) -> bool {
        false
    }
    /// Whether no other call may be under way when it is closed, except polls of tickets.
    fn closes_alone(&self) -> bool {
        false
    }
    /// No call follows, and nothing touches the window's memory or a buffer any more. Nobody waits
    /// for other ranks, but for those that close it `together` now, all of them.
    fn close(&self, together: bool);
}
