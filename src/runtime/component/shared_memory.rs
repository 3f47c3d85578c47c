//! Shared memory of a transport's ranks: mailboxes for small collectives, and memory of each rank
//! that the others load and store. Used by `runtime::comm`.

use crate::error::Result;
use crate::sys::memory::buf::Region;
use crate::sys::sync::AtomicU64;
use std::time::Duration;

/// Data that a rank has posted for the others.
#[derive(Clone, Copy)]
pub struct Post {
    /// Tag that its maker gave it.
    pub what: u32,
    /// Its bytes.
    pub data: Region,
}

/// A rank of a communicator that has a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its rank in the transport.
    pub rank: i32,
    /// The place that it has reserved for its posts; 0 = the first communicator's.
    pub place: u32,
}

/// Where the ranks of a communicator that share memory put up a few bytes for each other. Each rank
/// posts under the numbers 1, 2, 3 ..., each one when it has finished the one before. Nothing waits
/// but `rest`.
pub trait CollMailbox: Send + Sync {
    /// The most bytes of a post.
    fn room(&self) -> usize;
    /// Posts under the next number. False: not now, a rank may still look at what was posted long
    /// before.
    fn post(&self, number: u64, what: u32, data: Region) -> bool;
    /// A rank's post of a number that this rank has not finished, if it is there. It stays until
    /// then, and is not written to.
    fn look(&self, rank: i32, number: u64) -> Option<Post>;
    /// This rank has done with a number; `met`: it has seen all other ranks' posts of it.
    fn finish(&self, number: u64, met: bool);
    /// Publishes that this rank leaves: it posts nothing more.
    fn leave(&self);
    /// Returns true if a rank has left. A caller that sees this also sees all that the rank posted
    /// before.
    fn has_left(&self, rank: i32) -> bool;
    /// Sleeps until that post is there, `limit` at most. False, at once: no rank would wake it.
    fn rest(&self, _rank: i32, _number: u64, _limit: Duration) -> bool {
        false
    }
}

/// Words beside the memory of a part.
pub const PART_WORDS: usize = 64;

/// Memory that a rank offers to the others.
#[derive(Clone, Copy, Debug)]
pub enum SharedOffer {
    /// So many bytes of the transport's own, all 0.
    Fresh(usize),
    /// Memory that the program has already; it stays valid until the last rank has let go of the
    /// part.
    Own(Region),
}

/// How other ranks find a part. Any bits are safe: what is no key finds nothing.
pub type PartKey = [u64; 2];

/// Memory of one rank that the ranks of its node load and store: its own, or another rank's as this
/// process sees it. It goes when the last of them lets go of it.
pub trait SharedRegion: Send + Sync {
    /// The bytes.
    fn region(&self) -> Region;
    /// Words beside them, all 0 at first, for what the ranks have to agree on: PART_WORDS.
    fn words(&self) -> &[AtomicU64];
    /// Returns the key for [`SharedMemory::find_part`].
    fn key(&self) -> PartKey;
}

/// Memory that the ranks of a transport load and store, and what they see of each other through it.
pub trait SharedMemory: Send + Sync {
    /// Reserves a place (1 or more) for this rank's part of another communicator's board. No other
    /// caller gets that place until it is released, or until the board that took it is gone on all
    /// ranks. `None`: no place is left.
    fn reserve_place(&self) -> Option<u32>;
    /// Releases a reserved place that no board took.
    fn release_place(&self, place: u32);
    /// Makes the board of a communicator with this context and these members, in the communicator's
    /// order. Either all members have place 0 (the first communicator), or this rank has reserved
    /// its place, which the board takes over. `None`: on no rank, for want of room.
    fn board(&self, context: u32, members: &[Member]) -> Option<Result<Box<dyn CollMailbox>>>;
    /// Offers memory of this rank that the others load and store, found by its key. `None`: such
    /// memory cannot be shared.
    fn offer_part(&self, offer: SharedOffer) -> Option<Result<Box<dyn SharedRegion>>>;
    /// Finds what a rank (of this transport) offered under a key.
    fn find_part(&self, rank: i32, key: PartKey) -> Result<Box<dyn SharedRegion>>;
    /// Returns true if a rank is known to have died or left (cheap while none has).
    fn has_left(&self, rank: i32) -> bool;
    /// Makes progress, and checks now whether ranks have died or left: that may take some
    /// microseconds.
    fn look_around(&self);
    /// Receives all messages that a rank had sent by now: others may have seen in the shared memory
    /// what it did after it had sent them.
    fn catch_up(&self, rank: i32);
}
