//! What a backend is: a name and up to five components, each a trait that built-in backends
//! implement in Rust and registered ones through `backend::native`.
//!
//! A method that returns `Option` is an optional slot: `None` means "not provided", and the caller
//! (always in `runtime`) uses its generic version or answers NOT_SUPPORTED.

use crate::abi::comm::DTL_COMM_DETERMINISTIC;
use crate::abi::device::*;
use crate::abi::exec::{dtl_kernel_fn_t, dtl_launch_t, dtl_range_fn_t};
use crate::abi::runtime::dtl_task_fn_t;
use crate::error::{Result, fail};
use crate::sys::asking::{Asking, Heard};
use crate::sys::buf::{Addr, Region};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

mod collective;
mod device_comm;
mod direct;
mod exports;
mod filling;
mod memory;
mod message;
mod module;
mod near;
mod opening;
mod window;

pub use collective::{Collective, Named, Reductions};
pub use device_comm::{DeviceComm, DeviceComms, Invitation};
pub use direct::{Bytes, DeviceMemory, Direct, Hold, Twin};
pub use exports::{Exports, Extent, Ticket};
pub use filling::Filling;
pub use memory::{Found, Memory, Place, Transfer};
pub use message::{Done, Matched, OpId, Selector, SendMode, poll_of, recv_info};
pub use module::{Compiled, ModuleLaunch, Modules, Source, SourceFile, Wanted};
pub use near::{Board, Member, Offer, PART_WORDS, Part, PartKey, Post};
pub use opening::{Exchange, OpenArgs};
pub use window::{Copied, Reach, Remote, Spot, Swap, Window, WindowPart, Windows};

/// A backend's answer to "can you run here?": yes, or why not.
pub type Availability = std::result::Result<(), String>;

/// The component-independent part of a backend.
pub trait Presence: Send + Sync {
    /// Whether it can run here. Must not fail on a machine without the hardware.
    fn available(&self) -> Availability {
        Ok(())
    }
    /// The same for a backend whose answer may be invalid, which is the failure.
    fn asked(&self) -> Result<Availability> {
        Ok(self.available())
    }
    /// Why the automatic choice passes it over, although it might be able to run here.
    fn stands_aside(&self) -> Option<String> {
        None
    }
    /// Returns true if the program has initialised the backend's driver. Called often; must neither
    /// load nor initialise anything.
    fn is_in_use(&self) -> bool {
        false
    }
    /// Whether it has a feature beyond its components; `None` = it does not say.
    fn supports(&self, _feature: &str) -> Option<Result<bool>> {
        None
    }
}

/// Devices.
pub trait Device: Send + Sync {
    /// Number of devices.
    fn count(&self) -> Result<i32>;
    /// Makes a device the calling thread's current one.
    fn set(&self, device: i32) -> Result<()>;
    /// The calling thread's current device; asked only of a thread that never set one.
    fn get(&self) -> Result<i32>;
    /// Fills in what is known of a device.
    fn info(&self, _device: i32, _out: &mut dtl_device_info_t) -> Option<Result<()>> {
        None
    }
    /// Free and total bytes, 0 = unknown.
    fn memory_info(&self, _device: i32) -> Option<Result<(u64, u64)>> {
        None
    }
    /// Waits for all work on a device.
    fn synchronize(&self, _device: i32) -> Option<Result<()>> {
        None
    }
    /// DLPack's device type and id.
    fn dlpack(&self, _device: i32) -> Option<Result<(i32, i32)>> {
        None
    }
}

/// A backend's own pointer for a stream or event. Means nothing to anyone else.
pub type Token = Addr;

/// Which groups of slots an exec component provides; the library's own stand in for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecGroups {
    /// Streams of its own.
    pub streams: bool,
    /// Events of its own (only with streams).
    pub events: bool,
    /// Host execution of its own.
    pub host: bool,
}

/// Streams, events, launches, host loops. Methods of a group are called only if [`Exec::groups`]
/// says that the group is there.
pub trait Exec: Send + Sync {
    /// The groups provided.
    fn groups(&self) -> ExecGroups;

    /// streams: creates one on a device.
    fn stream_create(&self, device: i32, flags: u64) -> Result<Token>;
    /// streams: takes in one that the program made and goes on owning, on a device.
    fn stream_wrap(&self, _device: i32, native: Addr) -> Result<Token> {
        Ok(native)
    }
    /// streams: what the backend's own interface calls it.
    fn stream_native(&self, stream: Token) -> Addr {
        stream
    }
    /// streams: destroys one.
    fn stream_destroy(&self, stream: Token) -> Result<()>;
    /// streams: one that the program owns is used no more; its work may still run.
    fn stream_unwrap(&self, _stream: Token) {}
    /// streams: waits for all work in it.
    fn stream_synchronize(&self, stream: Token) -> Result<()>;
    /// Whether all work is done.
    fn stream_query(&self, _stream: Token) -> Option<Result<bool>> {
        None
    }
    /// Later work waits for the event.
    fn stream_wait_event(&self, _stream: Token, _event: Token) -> Option<Result<()>> {
        None
    }
    /// Calls a function on a host thread in the stream's order.
    fn stream_host_callback(
        &self,
        _stream: Token,
        _task: dtl_task_fn_t,
        _user: Addr,
    ) -> Option<Result<()>> {
        None
    }

    /// events: creates one.
    fn event_create(&self, flags: u64) -> Result<Token>;
    /// events: destroys one.
    fn event_destroy(&self, event: Token) -> Result<()>;
    /// events: marks the stream's present end.
    fn event_record(&self, event: Token, stream: Token) -> Result<()>;
    /// events: whether the work before the record is done.
    fn event_query(&self, event: Token) -> Result<bool>;
    /// Waits for the event.
    fn event_sync(&self, _event: Token) -> Option<Result<()>> {
        None
    }
    /// Nanoseconds between two completed events.
    fn event_elapsed(&self, _start: Token, _stop: Token) -> Option<Result<u64>> {
        None
    }

    /// Queues a kernel made from a function.
    fn launch(&self, _stream: Token, _launch: &Launch<'_>) -> Option<Result<()>> {
        None
    }

    /// host: runs a function and returns when it has run.
    fn execute(&self, _task: dtl_task_fn_t, _user: Addr) -> Result<()> {
        no_host_group()
    }
    /// host: runs a loop in pieces of at most `grain` and returns when all have run.
    fn parallel_for(
        &self,
        _range: (u64, u64),
        _grain: u64,
        _body: dtl_range_fn_t,
        _user: Addr,
    ) -> Result<()> {
        no_host_group()
    }
    /// host: most iterations that ever run at once.
    fn max_parallelism(&self) -> Result<u32> {
        no_host_group()
    }
    /// Into how many pieces a loop is best cut.
    fn suggested_parallelism(&self) -> Option<Result<u32>> {
        None
    }
}

/// What the group "host" does where a backend has none; not reached, since the library's own is
/// taken then.
fn no_host_group<T>() -> Result<T> {
    fail!(DTL_ERROR_NOT_SUPPORTED, "this backend runs nothing on the host")
}

/// A kernel launch as handed to a backend that queues kernels itself.
pub struct Launch<'a> {
    /// Grid and block.
    pub shape: &'a dtl_launch_t,
    /// The kernel.
    pub function: dtl_kernel_fn_t,
    /// Its user pointer.
    pub user: Addr,
    /// Address of each argument.
    pub args: &'a [Addr],
    /// Size of each argument in bytes.
    pub sizes: &'a [u64],
}

/// Communication: opens transports.
pub trait Comm: Send + Sync {
    /// The flags of `dtl_comm_desc_t` that it knows.
    fn flags(&self) -> u32 {
        DTL_COMM_DETERMINISTIC
    }
    /// Whether it reads `native`.
    fn takes_native(&self) -> bool {
        false
    }
    /// Opens one; collective over the ranks.
    fn open(&self, args: &OpenArgs) -> Result<Box<dyn Transport>>;
    /// Whether `open` is called also where the backend cannot run: it fails then, and tells the
    /// other ranks, which would wait for this one.
    fn tells_others(&self) -> bool {
        false
    }
    /// Why one would not be opened as the environment asks for it, as far as can be told without
    /// opening it.
    fn check_environment(&self) -> Result<()> {
        Ok(())
    }
    /// Whether its ranks can meet over another communicator: `OpenArgs::over`.
    fn meets_over(&self) -> bool {
        false
    }
    /// Instead, for a kind that does no more than collectives of device memory, beside a
    /// communicator of another kind.
    fn device_comms(&self) -> Option<&dyn DeviceComms> {
        None
    }
    /// Opens all ranks of a communicator within this process, in the order of their ranks. Such
    /// transports have nothing to move while nobody calls.
    fn open_ranks(&self, _size: i32) -> Option<Result<Vec<Box<dyn Transport>>>> {
        None
    }
}

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
    /// Whether the transport has collectives of its own for this communicator; all ranks say the
    /// same.
    fn has_collectives(&self) -> bool {
        false
    }
    /// Whether it has this one. Decided from what is equal on all ranks.
    fn takes(&self, _call: &Collective) -> bool {
        false
    }
    /// Runs one to its end, however long that takes. `None`: it has not this one, as `takes` says.
    fn collective(&self, _call: &Collective) -> Option<Result<()>> {
        None
    }
    /// The reductions that `allreduce` knows; all ranks say the same.
    fn reductions(&self) -> Option<&'static Reductions> {
        None
    }
    /// Folds everybody's `count` elements at `from` (null: at `into`) by one of those, into
    /// everybody's `into`, however long that takes.
    fn allreduce(&self, _from: Addr, _into: Addr, _count: i32, _by: Named) -> Result<()> {
        fail!(DTL_ERROR_NOT_SUPPORTED, "the transport has no reductions")
    }
    /// Starts one that it takes; it ends through `test`. It cannot be withdrawn.
    fn start_collective(&self, _call: &Collective) -> Result<OpId> {
        fail!(DTL_ERROR_NOT_SUPPORTED, "the transport has no collectives")
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
    /// A transport of its own for some ranks, which include this one, in this order; all of them,
    /// and nobody else, call it, with the same number. `None`: they share this one.
    fn subset(&self, _ranks: &[i32], _number: u32) -> Option<Result<Box<dyn Transport>>> {
        None
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
