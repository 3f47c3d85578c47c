//! What a communicator is opened on: point-to-point messages, which every kind has, and the groups
//! of methods that some kinds have besides.

use super::{
    Board, Direct, Done, Filling, Groups, Matched, Member, Offer, OpId, Part, PartKey, Remote,
    Selector, SendMode, Window, WindowPart, Windows,
};
use crate::error::{Result, fail};
use crate::sys::asking::{Asking, Heard};
use crate::sys::buf::Region;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// A set of ranks that move bytes under 64-bit match words {context 32 | class 4 | tag 28}.
/// Messages of one source that a receive takes are received in the order sent. Nothing blocks but
/// `close`, which may wait for a moment; `test`, `probe` and `take` make progress on every
/// operation. Called by several threads at once.
///
/// What can no longer complete because a rank has died or left ends with RANK_FAILURE. For `probe`
/// and `take` that is an error: nothing that they select is queued, and its source is gone (any
/// source: some rank has died).
pub trait Transport: Send + Sync {
    // First what every message calls: their addresses then share lines of the cache.
    /// As `isend` (standard), for who does not ask after one that is over at once: [`OpId::OVER`].
    fn begin_send(&self, data: Region, dest: i32, word: u64) -> Result<OpId> {
        self.isend(data, dest, word, SendMode::Standard)
    }
    /// As `irecv`, from one rank and of one word.
    fn begin_recv(&self, data: Region, source: i32, word: u64) -> Result<OpId> {
        self.irecv(data, Selector { source, word, ignore: 0 })
    }
    /// Makes progress and asks after one operation. Ready: it is over and `told`, the id is not
    /// used again. Pending: `told` is as it was.
    fn test(&self, op: OpId, told: &mut Done) -> Poll<Result<()>>;
    /// How foreign code is asked after an operation by the very function that waits, instead of by
    /// `test`.
    fn asking(&self) -> Option<Arc<Asking>> {
        None
    }
    /// How an operation ended that is over by that, where it has failed or somebody wants to know.
    fn tell(&self, _op: OpId, _heard: &Heard, _told: &mut Done) {}
    /// Sends and returns when the buffer may be used again, however long that takes. `None`: not
    /// provided.
    fn send(&self, _data: Region, _dest: i32, _word: u64, _mode: SendMode) -> Option<Result<()>> {
        None
    }
    /// Receives, however long that takes. `select` in pieces: what it looks for, and last what of
    /// it does not matter.
    fn recv(
        &self,
        _data: Region,
        _source: i32,
        _word: u64,
        _told: &mut Done,
        _ignore: u64,
    ) -> Option<Result<()>> {
        None
    }
    /// The groups of methods that it has beside these.
    fn groups(&self) -> Groups<'_>;
    /// This process' rank.
    fn rank(&self) -> i32;
    /// Number of ranks.
    fn size(&self) -> i32;
    /// Starts a receive into the region.
    fn irecv(&self, data: Region, select: Selector) -> Result<OpId>;
    /// Starts a send; the region stays valid and unchanged until it is done.
    fn isend(&self, data: Region, dest: i32, word: u64, mode: SendMode) -> Result<OpId>;
    /// Receives a message that is there, or comes within some hundred nanoseconds, for who waits
    /// for nothing else. False: it did not, and nothing was started. (Told in its place: what is
    /// handed on is read back in other pieces than it was written in, and a processor lets that
    /// wait for all its stores.)
    fn recv_at_once(&self, _data: Region, _select: Selector, _told: &mut Done) -> Result<bool> {
        Ok(false)
    }
    /// Whether it provides `isend_filling` and `arrived`.
    fn sends_parts(&self) -> bool {
        false
    }
    /// Starts a standard send of bytes that are still being written to the region, from the front;
    /// `None`: not provided, or not for this rank.
    fn isend_filling(
        &self,
        _: Region,
        _dest: i32,
        _word: u64,
        _by: &Arc<Filling>,
    ) -> Option<Result<OpId>> {
        None
    }
    /// Of a receive that is not over: bytes that are there, from the front, and stay as they are.
    fn arrived(&self, _op: OpId) -> usize {
        0
    }
    /// The backend whose device memory messages may lie in as it is, if other processes can open
    /// it; `None`: no backend's.
    fn takes_memory_of(&self) -> Option<&'static str> {
        None
    }
    /// How large messages of memory of any device go as they are; `None`: not.
    fn direct(&self) -> Option<&dyn Direct> {
        None
    }
    /// Makes progress and looks for the message that a receive would take now; it stays.
    fn probe(&self, select: Selector) -> Result<Option<Done>>;
    /// The same, and takes it out: only `receive_matched` gets it.
    fn take(&self, select: Selector) -> Result<Option<Matched>>;
    /// Starts the receive of a taken message.
    fn receive_matched(&self, message: OpId, data: Region) -> Result<OpId>;
    /// [`Transport::test`] as a value.
    fn outcome(&self, op: OpId) -> Result<Option<Done>> {
        let mut told = Done::NOBODY;
        match self.test(op, &mut told)? {
            Poll::Ready(()) => Ok(Some(told)),
            Poll::Pending => Ok(None),
        }
    }
    /// Makes progress without asking after anything: called while a call waits on another
    /// transport.
    fn progress(&self);
    /// Sleeps until an operation of this rank ends or a message comes, `limit` at most, if nothing
    /// has happened since the call that set `seen` (0 at first). False, at once: nobody would wake
    /// it, sleep by the clock.
    fn rest(&self, _seen: &mut u64, _limit: Duration) -> bool {
        false
    }
    /// Tries to withdraw; the operation then completes through `test`, with CANCELED or, if it was
    /// matched already, as usual.
    fn cancel(&self, op: OpId) -> Result<()>;
    /// Makes a send (standard) that is started again and again, at rest. `None`: not provided, each
    /// start is an `isend`.
    fn make_send(&self, _data: Region, _dest: i32, _word: u64) -> Option<Result<OpId>> {
        None
    }
    /// The same for a receive.
    fn make_recv(&self, _data: Region, _select: Selector) -> Option<Result<OpId>> {
        None
    }
    /// Starts what one of those two made; it ends through `test`, however that is, and then rests:
    /// its id stays.
    fn start(&self, _op: OpId) -> Result<()> {
        fail!(DTL_ERROR_NOT_SUPPORTED, "the transport has no operations that are started again")
    }
    /// Ends what one of those two made. What has been started and cannot be withdrawn goes on by
    /// itself.
    fn end(&self, _op: OpId) -> Result<()> {
        Ok(())
    }
    /// Whether operations in flight move only while somebody calls. Not so where calls on one
    /// transport move all of the kind, and nobody else waits for them.
    fn needs_progress(&self) -> bool {
        true
    }
    /// Whether another rank may wait for this one although everything that was started here is
    /// over: because the connection broke, say, and is made anew by both.
    fn answers_late(&self) -> bool {
        false
    }
    /// Whether a thread of the library may call it while the program does something else, whatever
    /// that calls.
    fn may_be_served(&self) -> bool {
        true
    }
    /// Whether it may keep operations without end that were withdrawn, for reasons that the library
    /// cannot know.
    fn may_keep(&self) -> bool {
        false
    }
    /// Whether the calling thread may call it; asked where a thread of the library may not.
    fn admit(&self) -> Result<()> {
        Ok(())
    }
    /// Whether all ranks are known to run on one node.
    fn is_one_node(&self) -> bool {
        false
    }
    /// By rank: the number of its node, from 0 up. `None`: not known, or all on one.
    fn nodes(&self) -> Option<&[i32]> {
        None
    }
    /// Reserves a place (1 or more) for this rank's part of another communicator's board. No other
    /// caller gets that place until it is released, or until the board that took it is gone on all
    /// ranks. `None`: no place is left, or the transport has no boards.
    fn reserve_place(&self) -> Option<u32> {
        None
    }
    /// Releases a reserved place that no board took.
    fn release_place(&self, _place: u32) {}
    /// Makes the board of a communicator with this context and these members, in the communicator's
    /// order. Either all members have place 0 (the first communicator), or this rank has reserved
    /// its place, which the board takes over. `None`: the transport has no boards on any rank.
    fn board(&self, _context: u32, _members: &[Member]) -> Option<Result<Box<dyn Board>>> {
        None
    }
    /// Memory of this rank that the others load and store, found by its key. `None`: there is none
    /// such here.
    fn offer_part(&self, _offer: Offer) -> Option<Result<Box<dyn Part>>> {
        None
    }
    /// What a rank (of this transport) offered under a key.
    fn find_part(&self, _rank: i32, _key: PartKey) -> Result<Box<dyn Part>> {
        fail!(DTL_ERROR_NOT_SUPPORTED, "the ranks of this transport share no memory")
    }
    /// Opens a rank's memory for copies by the kernel. `None`: the rank is not another process of
    /// this node. RANK_FAILURE: that process has ended or runs another program. Any other error:
    /// the reason why the kernel does not copy its memory.
    fn remote(&self, _rank: i32) -> Option<Result<Arc<dyn Remote>>> {
        None
    }
    /// Whether it makes windows: on this rank, they are made if all ranks say so.
    fn windows(&self) -> Windows {
        Windows::None("this kind reaches no other rank's memory by itself")
    }
    /// Makes one; collective over all ranks.
    fn window(&self, _part: WindowPart<'_>) -> Result<Box<dyn Window>> {
        fail!(DTL_ERROR_NOT_SUPPORTED, "the transport makes no windows")
    }
    /// Whether the ranks of this node are more than the processors that they may run on. `None`:
    /// not known.
    fn is_crowded(&self) -> Option<bool> {
        None
    }
    /// Makes progress, and looks now whether ranks have died or left: that may take some
    /// microseconds.
    fn look_around(&self) {
        self.progress();
    }
    /// Whether a rank is known to have died or left (cheap while nobody has).
    fn has_left(&self, _rank: i32) -> bool {
        false
    }
    /// Takes in all messages that a rank had sent by now, if others can see more of it than its
    /// messages (a board).
    fn catch_up(&self, _rank: i32) {}
    /// Ranks known to have died or left.
    fn failed_ranks(&self) -> Vec<i32> {
        Vec::new()
    }
    /// How many ranks are known to have died (cheap: polled while waiting).
    fn failed_count(&self) -> usize {
        0
    }
    /// How the data moves, for people.
    fn describe(&self) -> String;
    /// What memory it has and had beside the program's own, for people; `None`: it does not count.
    fn memory(&self) -> Option<String> {
        None
    }
    /// What it says of the operation that has just failed (its vendor's text, say).
    fn failure_text(&self) -> Option<String> {
        None
    }
    /// Closes it. No operation is pending and none follows.
    fn close(&self) -> Result<()>;
}
