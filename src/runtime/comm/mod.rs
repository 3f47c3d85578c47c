//! Communicators: implements the C calls on a communicator by the operations of its transport.
//!
//! This module defines the communicator itself, [`Comm`].
//!
//! In reading order:
//! - `shared_transport`: an open transport and the contexts on it
//! - `rank_map`: the transport's ranks that a communicator consists of
//! - `comm_state`: state (open, closed, revoked) and size, in one word
//! - `comm_handles`: handle table of communicators
//! - `op_desc`: descriptions of operations, for the recorder and for comparison between ranks
//! - `flight_recorder`: the last operations of each rank
//! - `absence`: live ranks that take no part
//! - `peer_close`: ranks that destroyed a communicator that other ranks still use
//! - `rma_path`: interface of the paths of one-sided operations
//! - `progress`: progress of all communicators while a call waits
//! - `p2p`: messages and requests
//! - `diagnostics`: hang report, dry run
//! - `coll`: collectives
//! - `rma`: windows
//! - `open`: opening communicators, groups, attributes

mod absence;
pub mod coll;
mod comm_handles;
mod comm_state;
pub mod diagnostics;
mod flight_recorder;
mod op_desc;
pub mod open;
pub mod p2p;
mod peer_close;
mod progress;
mod rank_map;
pub mod rma;
mod rma_path;
mod shared_transport;
use self::coll::algorithms::levels::Levels;
use self::comm_handles::TABLE;
pub use self::comm_handles::{
    TAG, destroy, destroy_all, forget_all, get, hold, insert, is_live, keep, pin, pin_to_destroy,
    visit,
};
use self::comm_state::{CommState, StateWord};
use self::rank_map::Members;
use self::shared_transport::{Class, SharedTransport};
use super::component::{Completion, Member, NativeCollectives, Reductions, Selector, Transport};
use crate::abi::comm::communicator::*;
use crate::abi::handle::dtl_comm_t;
use crate::abi::status::*;
use crate::error::{Error, Result, fail};
use crate::sys::{
    compute::callback::ForeignTester,
    handles::{handle_table::SlotRefCell, owning_ref::OwningRef},
    sync::{
        atomic_lock::BiasedTryLock,
        lock::Mutex,
        wait::{Backoff, Deadline},
    },
};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32};

/// A communicator. Every message accesses one cache line of this struct, from the pointer to the
/// transport (`link`) to the recorder's first list. Most calls also access the preceding line.
#[repr(C, align(128))]
pub struct Comm {
    /// Slot of the handle table and handle of this communicator; empty until a handle is assigned.
    slot: SlotRefCell<Comm>,
    timeout_ns: u64,
    size: i32,
    rank: i32,
    /// Number of collectives started so far.
    sequence: AtomicU32,
    /// Part that runs collectives on device memory; `None` for kinds without such collectives.
    device: Option<Box<coll::coll_device::DeviceCommPart>>,
    /// Bit set of the buffer paths already reported to `dtl_explain` (`p2p_staging`).
    explained: AtomicU8,
    is_broken: AtomicBool,
    /// True if the transport may restrict its callers; `ThreadCheck::admit` checks a thread.
    is_for_some: bool,
    link: OwningRef<dyn Transport, SharedTransport>,
    context: u32,
    standing: StateWord,
    /// Members of the communicator; `None` if they are all ranks of the link, in order.
    members: Option<Box<Members>>,
    /// Direct tester of the transport's operations (`foreign_test`), if the transport publishes it.
    asking: Option<Arc<ForeignTester>>,
    recorder: flight_recorder::Recorder,
    /// Native collectives of the transport; `None` if it has none.
    native_collectives: Option<OwningRef<dyn NativeCollectives, SharedTransport>>,
    reductions: Option<&'static Reductions>,
    /// Lock that a thread holds while it is in a blocking collective.
    in_collective: BiasedTryLock,
    /// Ranks grouped by node; `None` where the grouping does not make collectives faster.
    levels: Option<Levels>,
    /// Mailboxes for small collectives; `None` unless the ranks share memory and are few.
    flat: Option<coll::small_coll::SmallColl>,
    /// Reason for which further collectives fail; set once a collective has failed.
    broken: Mutex<Option<String>>,
    /// Schedules (step lists) for reuse.
    spare: Mutex<Vec<coll::schedule::Schedule>>,
    reports: Arc<diagnostics::hang_report::Reports>,
    /// Parent communicator, and its collective that created this communicator, if any.
    origin: Option<Box<absence::CommOrigin>>,
    shrinking: Mutex<open::agree::Shrinking>,
    /// Per kind of collective: bit set of the algorithms used so far (for `dtl_explain`).
    chosen: [AtomicU32; op_desc::KINDS.len()],
    attributes: open::attribute::Attributes,
}

const _ONE_LINE: () = assert!(offset_of!(Comm, link) == 56 && offset_of!(Comm, recorder) == 104);

impl Comm {
    /// Creates a communicator on `link`. `members` maps ranks of this communicator to ranks of the
    /// link (`None`: all ranks, in order). `rank` is the rank of this process.
    fn new(
        link: Arc<SharedTransport>,
        context: u32,
        members: Option<Members>,
        (rank, size): (i32, i32),
        timeout_ns: u64,
    ) -> Self {
        let native_collectives =
            OwningRef::find(Arc::clone(&link), |link| link.transport.groups().native_collectives);
        let mut comm = Comm {
            slot: SlotRefCell::default(),
            is_for_some: !link.transport.properties().allows_progress_thread,
            asking: link.foreign_test.as_ref().map(|test| test.part().foreign_tester()),
            reductions: native_collectives.as_ref().and_then(|native| native.part().reductions()),
            native_collectives,
            link: OwningRef::new(link, |link| &*link.transport),
            context,
            standing: StateWord::new(size),
            members: members.map(Box::new),
            recorder: flight_recorder::Recorder::new(),
            size,
            rank,
            timeout_ns,
            levels: None,
            flat: None,
            device: None,
            broken: Mutex::new(None),
            is_broken: AtomicBool::new(false),
            sequence: AtomicU32::new(0),
            in_collective: BiasedTryLock::default(),
            spare: Mutex::new(Vec::new()),
            reports: Arc::default(),
            origin: None,
            shrinking: Mutex::default(),
            chosen: [const { AtomicU32::new(0) }; op_desc::KINDS.len()],
            explained: AtomicU8::new(0),
            attributes: open::attribute::Attributes::default(),
        };
        comm.levels = comm.nodes().and_then(|nodes| Levels::new(rank, nodes.into_iter()));
        comm
    }

    /// Opens the communicator's mailboxes if its transport supports mailboxes. `places`: the
    /// mailbox slot that each rank has reserved, in rank order.
    fn with_board(mut self, places: impl Iterator<Item = u32>) -> Result<Self> {
        if self.size > 1 {
            let member = |(rank, place)| Member { rank: self.to_world(rank), place };
            let members: Vec<Member> = (0..self.size).zip(places).map(member).collect();
            let shared = self.link.shared_memory.as_ref();
            let board = shared.and_then(|shared| shared.part().board(self.context, &members));
            self.flat = board
                .transpose()?
                .map(|board| coll::small_coll::SmallColl::new(board, self.size))
                .transpose()?;
        }
        Ok(self)
    }

    /// Returns the handle of this communicator.
    fn handle(&self) -> dtl_comm_t {
        dtl_comm_t { id: self.slot.handle() }
    }

    /// Returns this process' rank.
    pub fn rank(&self) -> i32 {
        self.rank
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> i32 {
        self.size
    }

    /// Returns true if all ranks are known to run on one node.
    pub fn is_one_node(&self) -> bool {
        self.size == 1 || self.link.transport.properties().is_one_node
    }

    /// Returns the node number of each rank, in rank order; nodes are numbered by their lowest
    /// ranks. Returns `None` if the transport does not report nodes, or if there is one node only.
    pub fn nodes(&self) -> Option<Vec<i32>> {
        let nodes = self.link.transport.properties().nodes.as_ref()?;
        let of =
            |rank| usize::try_from(self.to_world(rank)).ok().and_then(|outer| nodes.get(outer));
        let mut numbers = BTreeMap::new();
        let numbered = (0..self.size).map(|rank| {
            let next = numbers.len();
            i32::try_from(*numbers.entry(of(rank)).or_insert(next)).unwrap_or(i32::MAX)
        });
        Some(numbered.collect())
    }

    /// Returns the name of the communicator's kind.
    pub fn kind_name(&self) -> std::borrow::Cow<'static, str> {
        self.kind().to_string_lossy()
    }

    fn kind(&self) -> &'static CStr {
        self.device.as_ref().map_or(self.link.kind, |part| part.kind)
    }

    /// Returns the previous and the next rank in a ring of all ranks, excluding this rank.
    fn next_ranks(&self) -> impl Iterator<Item = i32> {
        let next = [self.size - 1, 1].map(|distance| (self.rank + distance) % self.size);
        next.into_iter().filter(|rank| *rank != self.rank)
    }

    /// Returns the deadline of a blocking call that starts now.
    fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout_ns)
    }

    /// Pauses between two polls of an operation.
    fn pause(&self, backoff: &mut Backoff) {
        self.link.pause(backoff);
    }

    /// Converts a rank of this communicator to the link's rank.
    fn to_world(&self, rank: i32) -> i32 {
        self.members.as_ref().map_or(rank, |members| members.to_world(rank))
    }

    /// Returns the completion `done` with its source converted to a rank of this communicator.
    fn localized(&self, mut done: Completion) -> Completion {
        self.localize(&mut done);
        done
    }

    /// Converts the source of the completion `done` to a rank of this communicator, in place.
    fn localize(&self, done: &mut Completion) {
        if let Some(members) = &self.members {
            members.localize(done);
        }
    }

    fn match_bits(&self, class: Class, tag: i32) -> u64 {
        shared_transport::match_bits(self.context, class, tag)
    }

    fn selector(&self, class: Class, source: i32, tag: i32) -> Selector {
        // DTL_ANY_SOURCE is no member, so `to_world` returns it unchanged.
        let ignore = if tag == DTL_ANY_TAG { shared_transport::TAG_BITS } else { 0 };
        Selector {
            source: self.to_world(source),
            match_bits: self.match_bits(class, tag.max(0)),
            ignore,
        }
    }

    fn is_open(&self) -> bool {
        self.standing.is_open()
    }

    fn check_open(&self) -> Result<()> {
        if self.is_open() { Ok(()) } else { Err(self.ended()) }
    }

    /// Returns the error of a call on a communicator that is closed or revoked.
    #[cold]
    fn ended(&self) -> Error {
        if self.standing.state() == CommState::Revoked {
            return Error::new(
                DTL_ERROR_RANK_FAILURE,
                "a rank has begun to shrink the communicator after a failure: call dtl_comm_shrink \
                 too",
            );
        }
        destroyed()
    }

    /// Returns the members that died or left, as ranks of this communicator.
    fn failed_ranks(&self) -> Vec<i32> {
        let Some(liveness) = &self.link.liveness else { return Vec::new() };
        let failed = liveness.part().failed_ranks();
        match &self.members {
            None => failed,
            Some(members) => failed.into_iter().filter_map(|rank| members.to_local(rank)).collect(),
        }
    }

    /// Returns the number of the link's ranks that are known to have died.
    fn failed_count(&self) -> usize {
        self.link.liveness.as_ref().map_or(0, |liveness| liveness.part().failed_count())
    }

    /// Returns true if a member is known to have died.
    fn has_died(&self) -> bool {
        match self.failed_count() {
            0 => false,
            _ if self.members.is_none() => true,
            _ => !self.failed_ranks().is_empty(),
        }
    }

    /// Returns the ranks that died or left as text for errors; empty if none is known.
    fn failed_text(&self) -> String {
        rank_list(&self.failed_ranks())
    }

    /// Returns the ways in which ranks may have failed, for error texts.
    fn failed_how(&self) -> &'static str {
        // The transport's failure text may state that a live rank is unreachable.
        if self.link.failure_text().is_some() { "died, left or cut off" } else { "died or left" }
    }

    /// Returns the transport's text about the failure, to append to an error text.
    fn failed_why(&self) -> String {
        self.link.failure_text().map_or(String::new(), |said| format!(": {said}"))
    }

    fn check_peer(&self, name: &str, rank: i32, any: bool) -> Result<()> {
        if (0..self.size).contains(&rank)
            || rank == DTL_PROC_NULL
            || (any && rank == DTL_ANY_SOURCE)
        {
            return Ok(());
        }
        fail!(
            DTL_ERROR_INVALID_RANK,
            "{name} {rank}: the communicator has ranks 0 to {}",
            self.size - 1
        )
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        // No thread uses the communicator any more. No request is left, unless a call was starting
        // an operation for longer than `destroy` waited.
        p2p::request::end_all(self);
        progress::remove(self);
    }
}

/// Returns `ranks` as a comma-separated text for errors.
fn rank_list(ranks: &[i32]) -> String {
    let names: Vec<_> = ranks.iter().map(ToString::to_string).collect();
    names.join(", ")
}

#[cold]
fn destroyed() -> Error {
    Error::new(DTL_ERROR_CANCELED, "the communicator was destroyed by another thread")
}

/// Logs an error and exits this process with status `code`; the launcher then ends the other ranks.
pub fn abort(comm: &Comm, code: i32) -> ! {
    super::log::error!(
        "rank {} of {} ends the job with code {code} (dtl_comm_abort)",
        comm.rank,
        comm.size
    );
    crate::sys::os::process::exit_now(code)
}

/// Fills `out` with the communicator's rank, size, time limit, kind, transport and failure count.
pub fn info(comm: &Comm, out: &mut dtl_comm_info_t) -> Result<()> {
    (out.rank, out.size, out.timeout_ns) = (comm.rank, comm.size, comm.timeout_ns);
    out.failed_count = i32::try_from(comm.gone_count()).unwrap_or(i32::MAX);
    out.kind = comm.kind().as_ptr();
    let below = &comm.link.transport.properties().description;
    match &comm.device {
        None => super::copy_text(&mut out.transport, below),
        Some(part) => super::copy_text(
            &mut out.transport,
            &format!("{}; else {}: {below}", part.describe(), comm.link.kind.to_string_lossy()),
        ),
    }
    Ok(())
}
