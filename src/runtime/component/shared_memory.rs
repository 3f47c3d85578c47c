//! Shared memory of a transport's ranks: mailboxes for small collectives, and memory of each rank
//! that the other ranks load and store. Used by `runtime::comm`.

use crate::error::{Error, Result, failure};
use crate::sys::memory::buf::Region;
use crate::sys::sync::AtomicU64;
use std::time::Duration;

/// Data that a rank has posted for the other ranks.
#[derive(Clone, Copy)]
pub struct Post {
    /// Tag that the posting rank assigned to the data.
    pub what: u32,
    /// Bytes of the post.
    pub data: Region,
}

/// Rank of a communicator that has a collective mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Rank in the transport.
    pub rank: i32,
    /// Slot that the rank has reserved for its posts; 0 = slot of the first communicator.
    pub place: u32,
}

/// Collective mailbox: the ranks of a communicator that share memory post a few bytes in it for
/// each other. Each rank posts under the numbers 1, 2, 3 and so on, and posts a number after it has
/// finished the previous number. Only `rest` blocks.
pub trait CollMailbox: Send + Sync {
    /// Returns the maximum size of a post in bytes.
    fn room(&self) -> usize;
    /// Posts `data` under `number`, the next number. Returns false if the post is not possible yet,
    /// because a rank may still read a much older post.
    fn post(&self, number: u64, what: u32, data: Region) -> bool;
    /// Returns the post of `rank` under `number`, which this rank has not finished, if the post has
    /// arrived. The post stays valid and unchanged until this rank finishes the number.
    fn look(&self, rank: i32, number: u64) -> Option<Post>;
    /// Marks `number` as finished by this rank. `met` is true if this rank has seen the posts of
    /// all other ranks under the number.
    fn finish(&self, number: u64, met: bool);
    /// Publishes that this rank disconnects: it posts nothing more.
    fn leave(&self);
    /// Returns true if `rank` has disconnected; its earlier posts are then visible, too.
    fn has_left(&self, rank: i32) -> bool;
    /// Sleeps until the post of `_rank` under `_number` has arrived, for `_limit` at most. Returns
    /// false at once if no rank would wake this rank.
    fn rest(&self, _rank: i32, _number: u64, _limit: Duration) -> bool {
        false
    }
}

/// Number of words beside the memory of a shared part.
pub const PART_WORDS: usize = 64;

/// Memory that a rank shares with the other ranks.
#[derive(Clone, Copy, Debug)]
pub enum SharedOffer {
    /// New memory of the transport, of this number of bytes, initialized to 0.
    Fresh(usize),
    /// Existing memory of the program. It stays valid until the last rank has released the part.
    Own(Region),
}

/// Key by which other ranks find a shared part. Any bits are safe: invalid keys find no part.
pub type PartKey = [u64; 2];

/// Returns the error for a key under which `rank` shares no memory.
pub fn part_is_gone(rank: i32) -> Error {
    failure!(
        DTL_ERROR_NOT_FOUND,
        "rank {rank} shares no memory under this key (any more): it was let go of, or the key \
         is another job's"
    )
}

/// Memory of one rank that the ranks of its node load and store: this rank's own memory, or another
/// rank's as mapped in this process. It is freed when the last of these ranks releases it.
pub trait SharedRegion: Send + Sync {
    /// Returns the bytes of the memory.
    fn region(&self) -> Region;
    /// Returns the [`PART_WORDS`] words beside the memory, initially 0, for agreement of the ranks.
    fn words(&self) -> &[AtomicU64];
    /// Returns the key for [`SharedMemory::find_part`].
    fn key(&self) -> PartKey;
}

/// Shared memory of the ranks of a transport, and the state of other ranks that is visible in it.
pub trait SharedMemory: Send + Sync {
    /// Reserves a slot (1 or more) for this rank's posts in the collective mailbox of another
    /// communicator. No other caller gets that slot until it is released, or until all ranks have
    /// dropped the mailbox that uses it. Returns `None` if no slot is free.
    fn reserve_place(&self) -> Option<u32>;
    /// Releases a reserved slot that no mailbox uses.
    fn release_place(&self, place: u32);
    /// Creates the collective mailbox of a communicator with this context and these members, in the
    /// communicator's order. Either all members have slot 0 (the first communicator), or this rank
    /// has reserved its slot, which the mailbox takes over. Returns `None` on all ranks if no room
    /// is left.
    fn mailbox(&self, context: u32, members: &[Member]) -> Option<Result<Box<dyn CollMailbox>>>;
    /// Shares memory of this rank, which the other ranks then find by its key and access with loads
    /// and stores.
    /// Returns `None` if such memory cannot be shared.
    fn offer_part(&self, offer: SharedOffer) -> Option<Result<Box<dyn SharedRegion>>>;
    /// Finds the memory that `rank` (a rank of this transport) shares under `key`.
    fn find_part(&self, rank: i32, key: PartKey) -> Result<Box<dyn SharedRegion>>;
    /// Returns true if `rank` is known to have died or disconnected (cheap while no rank has).
    fn has_left(&self, rank: i32) -> bool;
    /// Makes progress, and checks now whether ranks died or disconnected (some microseconds).
    fn look_around(&self);
    /// Receives all messages that `rank` has sent so far. Needed because other ranks may have seen,
    /// in the shared memory, later actions of that rank.
    fn catch_up(&self, rank: i32);
}
