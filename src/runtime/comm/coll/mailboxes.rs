//! [`Mailboxes`]: one mailbox in shared memory per rank, for collectives of a few bytes
//! (`small_coll`).

use crate::error::{Result, failure};
use crate::runtime::component::CollMailbox;
use crate::sys::memory::buf::Scratch;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Mailboxes of a communicator, and the state of this rank's collectives that use them.
pub(crate) struct Mailboxes {
    pub(crate) mailbox: Box<dyn CollMailbox>,
    /// Maximum number of bytes that each rank can contribute to a collective. The number is limited
    /// because each rank reads the contributions of all ranks.
    pub(super) most: usize,
    begun: AtomicU64,
    pub(super) over: AtomicU64,
    /// True while a thread advances the collectives that precede the one that it polls.
    pub(super) is_moving: AtomicBool,
    /// Scratch memory for partial results. Only one collective uses it at a time, in the order of
    /// the collectives' numbers.
    pub(super) room: Scratch,
}

/// Maximum number of bytes that a rank reads in one collective.
const MOST_BYTES: usize = 32 << 10;

/// Size, in bytes, of the memory for the partial results of a reduction tree: one partial result
/// for each of its log2(ranks) levels. 16 ranks need all of it for the 2 KiB per rank that
/// [`MOST_BYTES`] allows (4 levels of 2 KiB); with more ranks, [`MOST_BYTES`] allows less data per
/// rank.
pub(super) const PARTIAL_BYTES: usize = 8 << 10;

/// Returns the maximum number of bytes of each rank's data in a small collective whose mailboxes
/// hold `room` bytes each.
pub(crate) fn most_bytes(room: usize, ranks: i32) -> usize {
    let ranks = ranks.unsigned_abs().max(1);
    let levels = ranks.ilog2().max(1) as usize;
    room.min(MOST_BYTES / ranks as usize).min(PARTIAL_BYTES / levels)
}

impl Mailboxes {
    pub(crate) fn new(mailbox: Box<dyn CollMailbox>, ranks: i32) -> Result<Self> {
        let room = Scratch::unwritten(PARTIAL_BYTES).ok_or_else(|| {
            failure!(DTL_ERROR_OUT_OF_MEMORY, "no memory for partial results of small collectives")
        })?;
        let most = most_bytes(mailbox.room(), ranks);
        let (begun, over) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Mailboxes { mailbox, most, begun, over, is_moving: AtomicBool::new(false), room })
    }

    /// Returns the number of the next small collective. Only one thread at a time may call this
    /// function.
    pub(super) fn next_number(&self) -> u64 {
        let number = self.begun.load(Ordering::Relaxed) + 1;
        self.begun.store(number, Ordering::Relaxed);
        number
    }
}
