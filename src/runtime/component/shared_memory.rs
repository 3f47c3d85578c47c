//! Shared memory of a transport's ranks: mailboxes for small collectives, and memory of each rank
//! that the other ranks access with loads and stores. Used by `runtime::comm`.

use crate::error::{Error, Result, failure};
use crate::sys::memory::buf::Region;
use crate::sys::sync::AtomicU64;
use std::time::Duration;

/// Message in a rank's mailbox: data of one collective for the other ranks.
#[derive(Clone, Copy)]
pub struct Post {
    /// Tag that the sending rank assigned to the data.
    pub what: u32,
    /// Payload of the message.
    pub data: Region,
}

/// Member of a communicator: its rank, and the number of its mailbox slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Rank in the transport.
    pub rank: i32,
    /// Number of the slot in shared memory that the rank has reserved for its mailbox; 0 = slot of
    /// the transport's first communicator.
    pub place: u32,
}

/// Mailboxes for small collectives of ranks that share memory: each rank writes a short message for
/// the other ranks to its own mailbox. The messages of each rank are numbered 1, 2, 3 and so on. A
/// rank writes a message only after it has called `finish` for the previous number. Only `rest`
/// blocks.
pub trait CollMailbox: Send + Sync {
    /// Returns the maximum size of a message in bytes.
    fn room(&self) -> usize;
    /// Writes a message with `data` to this rank's mailbox; `number` is one greater than the number
    /// of this rank's previous message. Returns false if this is not possible yet because another
    /// rank may still read a much older message in the same memory.
    fn post(&self, number: u64, what: u32, data: Region) -> bool;
    /// Returns the message from `rank` with the number `number`, if it has arrived. The calling
    /// rank must not have called `finish` for `number` yet. The message stays valid and unchanged
    /// until the calling rank makes that call.
    fn look(&self, rank: i32, number: u64) -> Option<Post>;
    /// Declares that this rank no longer reads the messages with the number `number`. `met` is true
    /// if this rank has found the messages with this number from all other ranks.
    fn finish(&self, number: u64, met: bool);
    /// Marks this rank in shared memory as disconnected. The rank will not write any further
    /// messages.
    fn leave(&self);
    /// Returns true if `rank` has disconnected. In this case all messages that the rank has written
    /// are visible.
    fn has_left(&self, rank: i32) -> bool;
    /// Sleeps until the message from `_rank` with the number `_number` has arrived, but for at most
    /// `_limit`. Returns false at once if no rank would wake the calling thread.
    fn rest(&self, _rank: i32, _number: u64, _limit: Duration) -> bool {
        false
    }
}

/// Number of 64-bit synchronization words that are allocated with each memory region that a rank
/// shares.
pub const PART_WORDS: usize = 64;

/// Memory that a rank shares with the other ranks.
#[derive(Clone, Copy, Debug)]
pub enum SharedOffer {
    /// New memory of this size in bytes, allocated by the transport and initialized to 0.
    Fresh(usize),
    /// Existing memory that the user provides. It must stay valid until the last rank has released
    /// it.
    Own(Region),
}

/// Key by which other ranks find the memory that a rank shares. Any bit pattern is safe: an invalid
/// key finds no memory.
pub type PartKey = [u64; 2];

/// Returns the error for a key that does not identify any memory shared by `rank`.
pub fn part_is_gone(rank: i32) -> Error {
    failure!(
        DTL_ERROR_NOT_FOUND,
        "rank {rank} shares no memory under this key (any more): it was let go of, or the key \
         is another job's"
    )
}

/// Memory of one rank, which all ranks on its node access with loads and stores: this rank's own
/// memory, or another rank's memory mapped into this process. The memory is freed when the last of
/// these ranks releases it.
pub trait SharedRegion: Send + Sync {
    /// Returns the bytes of the memory.
    fn region(&self) -> Region;
    /// Returns the [`PART_WORDS`] synchronization words that are allocated in addition to the
    /// memory. They are initially 0.
    fn words(&self) -> &[AtomicU64];
    /// Returns the key for [`SharedMemory::find_part`].
    fn key(&self) -> PartKey;
}

/// Shared memory of the ranks of a transport, and the state of other ranks that is visible in it.
pub trait SharedMemory: Send + Sync {
    /// Reserves a slot in shared memory for this rank's collective mailbox and returns the slot
    /// number (1 or more). The transport's first communicator uses slot 0, which is not reserved.
    /// No other caller gets that slot until it is released, or until all ranks have dropped the
    /// mailbox that uses it. Returns `None` if no slot is free.
    fn reserve_place(&self) -> Option<u32>;
    /// Releases a slot that `reserve_place` returned and that no mailbox uses.
    fn release_place(&self, place: u32);
    /// Creates the collective mailbox of the communicator with the context id `context`. The
    /// members are in the rank order of the communicator. Either the mailbox slots of all members
    /// are 0 (as for the transport's first communicator), or this rank has reserved a mailbox slot,
    /// of which the mailbox takes ownership. Returns `None` on all ranks if there is no space for
    /// another mailbox.
    fn mailbox(&self, context: u32, members: &[Member]) -> Option<Result<Box<dyn CollMailbox>>>;
    /// Shares memory of this rank. The other ranks then find the memory by its key and access it
    /// with loads and stores. Returns `None` if such memory cannot be shared.
    fn offer_part(&self, offer: SharedOffer) -> Option<Result<Box<dyn SharedRegion>>>;
    /// Finds the memory that `rank` (a rank of this transport) shares under `key`.
    fn find_part(&self, rank: i32, key: PartKey) -> Result<Box<dyn SharedRegion>>;
    /// Returns true if `rank` is known to have died or disconnected. The call is cheap while all
    /// ranks are connected.
    fn has_left(&self, rank: i32) -> bool;
    /// Makes progress, and checks without waiting for the next periodic check whether ranks have
    /// died or disconnected. Takes a few microseconds.
    fn look_around(&self);
    /// Receives all messages that `rank` has sent so far. Needed because stores that the rank made
    /// to the shared memory after it sent the messages may already be visible.
    fn catch_up(&self, rank: i32);
}
