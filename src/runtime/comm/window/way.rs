//! How operations reach a target's memory: what a window asks of whoever carries them out.
//!
//! Not here: bounds, epochs, dtypes and their operations. A way is called with what `window` has checked.
//! Implemented by `direct` (loads and stores of memory that all ranks share) and `active` (messages that the target
//! serves, over any transport); which one is decided where a window is made (`window::choose`).

use crate::error::Result;
use crate::runtime::comm::types::Reduction;
use crate::sys::buf::Region;
use std::ops::Range;

/// Bytes at a target, inside of its part of the window.
#[derive(Clone, Copy, Debug)]
pub(in crate::runtime::comm) struct Spot {
    /// A rank of the window, this one included.
    pub(in crate::runtime::comm) target: i32,
    /// From the beginning of its memory.
    pub(in crate::runtime::comm) offset: usize,
    pub(in crate::runtime::comm) len: usize,
}

/// Names an operation that is not over locally, for who asks after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::runtime::comm) struct Ticket(pub(in crate::runtime::comm) u64);

/// How far an operation got before its call returned. Over locally: the caller's buffers are its own again, and what
/// was to be fetched is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::runtime::comm) enum Begun {
    Over,
    /// Over with the next flush of the target; asked after with the ticket only if the call said so.
    Pending(Ticket),
}

/// Whether somebody will ask after an operation by its ticket: else only flushes care.
pub(in crate::runtime::comm) type Asked = bool;

/// The buffers of a compare_and_swap, of one element each.
#[derive(Clone, Copy)]
pub(in crate::runtime::comm) struct Swap {
    /// What is stored if the target holds `expected`.
    pub(in crate::runtime::comm) value: Region,
    pub(in crate::runtime::comm) expected: Region,
    /// Gets what the target held.
    pub(in crate::runtime::comm) result: Region,
}

/// What a flush waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::runtime::comm) enum Reach {
    /// The caller's buffers.
    Local,
    /// The target's memory too.
    Target,
}

/// Operations on the memory of targets. Called by several threads at once. An operation fails at once, or with the
/// flush (or the question) that finds out. Waiting calls keep the communicator's time limit, end when it closes, and
/// make progress on everything.
///
/// Accumulating operations (the last three of the five) on one place happen one after the other, those of one origin in
/// the order of its calls. Puts and gets have no order but that of flushes.
pub(in crate::runtime::comm) trait Way: Send + Sync {
    /// How, for people.
    fn describe(&self) -> &'static str;
    /// Copies to the target. `from` has `to.len` bytes.
    fn put(&self, to: Spot, from: Region, asked: Asked) -> Result<Begun>;
    /// Copies from the target.
    fn get(&self, into: Region, from: Spot, asked: Asked) -> Result<Begun>;
    /// `target = target ∘ from`, element by element. A built-in dtype and operation.
    fn accumulate(&self, to: Spot, from: Region, by: &Reduction) -> Result<Begun>;
    /// The same, and what was there before goes to `result`. For NO_OP, `from` may be empty.
    fn get_accumulate(&self, to: Spot, from: Region, result: Region, by: &Reduction) -> Result<Begun>;
    /// One element of 1, 2, 4 or 8 bytes (the length of the spot).
    fn compare_and_swap(&self, to: Spot, swap: Swap) -> Result<Begun>;
    /// Waits for the locks of these targets, of which this rank has none.
    fn lock(&self, targets: Range<i32>, exclusive: bool) -> Result<()>;
    /// Flushes (`Reach::Target`) and gives the locks back. After TIMEOUT they are held still, after
    /// another failure none is: that of a rank, say, which has no locks any more.
    fn unlock(&self, targets: Range<i32>) -> Result<()>;
    /// Waits until this rank's operations on these targets are over.
    fn flush(&self, targets: Range<i32>, reach: Reach) -> Result<()>;
    /// Whether an operation that is asked after is over; after true or an error the ticket means nothing any more.
    fn is_over(&self, ticket: Ticket) -> Result<bool>;
    /// Ends an operation that is asked after, so that its buffer is not touched any more.
    fn withdraw(&self, ticket: Ticket) -> Result<()>;
    /// Does without waiting what others ask of this rank; true: there was something.
    fn serve(&self) -> bool {
        false
    }
    /// Whether a thread has to serve others while the program's are outside of the library.
    fn needs_thread(&self) -> bool {
        false
    }
    /// No call follows, and nothing touches the window's memory or a buffer any more.
    fn close(&self);
}
