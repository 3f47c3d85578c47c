//! Communicators: all that a C program calls on one, implemented by what a transport does.
//!
//! Here: the communicator itself, [`Comm`].
//!
//! In reading order:
//! - `shared_transport`: an open transport and the contexts on it
//! - `rank_map`: which ranks of a transport a communicator has
//! - `comm_state`: open or closed, and the size, in one word
//! - `comm_handles`: communicators by handle
//! - `op_desc`: what an operation is, for records and comparison
//! - `flight_recorder`: the last operations of each rank
//! - `absence`: live ranks that take no part
//! - `peer_close`: ranks that destroyed a communicator in use
//! - `rma_path`: interface of the paths of one-sided operations
//! - `progress`: progress of all communicators while a call waits
//! - `p2p`: messages and requests
//! - `diagnostics`: hang report, dry run
//! - `coll`: collectives
//! - `rma`: windows
//! - `open`: opening, groups, attributes

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
use crate::sys::compute::foreign_test::ForeignTester;
use crate::sys::handles::owning_ref::OwningRef;
use crate::sys::handles::slot_ref::SlotRefCell;
use crate::sys::sync::backoff::Backoff;
use crate::sys::sync::biased_trylock::BiasedTryLock;
use crate::sys::sync::clock::Deadline;
use crate::sys::sync::lock::Mutex;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32};

/// A communicator. Every message needs one cache line, from the way to the transport to the
/// recorder's first list; most calls need the line before as well.
#[repr(C, align(128))]
pub struct Comm {
    /// Where it stands, with its handle; nowhere until it has one.
    slot: SlotRefCell<Comm>,
    timeout_ns: u64,
    size: i32,
    rank: i32,
    /// Collectives so far.
    sequence: AtomicU32,
    /// Collectives of a device's memory, of a kind that has them.
    device: Option<Box<coll::coll_device::DeviceCommPart>>,
    /// Bits of what `dtl_explain` was already given on the path of device buffers (`staging`).
    explained: AtomicU8,
    is_broken: AtomicBool,
    /// Whether the transport may be for some threads only; `ThreadCheck::admit` decides which.
    is_for_some: bool,
    link: OwningRef<dyn Transport, SharedTransport>,
    context: u32,
    standing: StateWord,
    /// `None`: all ranks of the link, in their order.
    members: Option<Box<Members>>,
    /// How to poll the transport's operations directly (`foreign_test`), if it publishes that.
    asking: Option<Arc<ForeignTester>>,
    recorder: flight_recorder::Recorder,
    /// The transport's.
    native_collectives: Option<OwningRef<dyn NativeCollectives, SharedTransport>>,
    reductions: Option<&'static Reductions>,
    /// Held by the thread that is in a blocking collective.
    in_collective: BiasedTryLock,
    /// The ranks by node, where that makes collectives faster.
    levels: Option<Levels>,
    /// Where the ranks share memory, and are few: their board.
    flat: Option<coll::small_coll::SmallColl>,
    /// Why collectives are refused, once one has failed.
    broken: Mutex<Option<String>>,
    /// Step lists for reuse.
    spare: Mutex<Vec<coll::schedule::Schedule>>,
    reports: Arc<diagnostics::hang_report::Reports>,
    /// Parent and collective that made it, if another communicator did.
    origin: Option<Box<absence::CommOrigin>>,
    shrinking: Mutex<open::agree::Shrinking>,
    /// By kind of collective: a bit for each algorithm that was used (for `dtl_explain`).
    chosen: [AtomicU32; op_desc::KINDS.len()],
    attributes: open::attribute::Attributes,
}

const _ONE_LINE: () = assert!(offset_of!(Comm, link) == 56 && offset_of!(Comm, recorder) == 104);

impl Comm {
    /// `members`: the link's rank of each rank; `rank`: which one this process is.
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

    /// Gives it a board, if its transport has boards. `places`: the place that each rank has
    /// reserved, by rank.
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

    /// The handle that it was put under.
    fn handle(&self) -> dtl_comm_t {
        dtl_comm_t { id: self.slot.handle() }
    }

    /// This process' rank.
    #[must_use]
    pub fn rank(&self) -> i32 {
        self.rank
    }

    /// Number of ranks.
    #[must_use]
    pub fn size(&self) -> i32 {
        self.size
    }

    /// Whether all ranks are known to run on one node.
    #[must_use]
    pub fn is_one_node(&self) -> bool {
        self.size == 1 || self.link.transport.properties().is_one_node
    }

    /// By rank: the number of its node; nodes are numbered by their lowest ranks. `None`: the
    /// transport does not report them, or has one node.
    #[must_use]
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

    /// The kind's name.
    #[must_use]
    pub fn kind_name(&self) -> std::borrow::Cow<'static, str> {
        self.kind().to_string_lossy()
    }

    fn kind(&self) -> &'static CStr {
        self.device.as_ref().map_or(self.link.kind, |part| part.kind)
    }

    /// The ranks before and after this one in a ring, if there are others.
    fn next_ranks(&self) -> impl Iterator<Item = i32> {
        let next = [self.size - 1, 1].map(|distance| (self.rank + distance) % self.size);
        next.into_iter().filter(|rank| *rank != self.rank)
    }

    /// The time limit of a blocking call, from now.
    fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout_ns)
    }

    /// Between two polls of an operation.
    fn pause(&self, backoff: &mut Backoff) {
        self.link.pause(backoff);
    }

    /// The link's rank of one of ours.
    fn to_world(&self, rank: i32) -> i32 {
        self.members.as_ref().map_or(rank, |members| members.to_world(rank))
    }

    /// Returns a completion with its source as a rank of this communicator.
    #[inline]
    fn localized(&self, mut done: Completion) -> Completion {
        self.localize(&mut done);
        done
    }

    /// Changes a completion's source to a rank of this communicator, in place.
    #[inline]
    fn localize(&self, done: &mut Completion) {
        if let Some(members) = &self.members {
            members.localize(done);
        }
    }

    fn match_bits(&self, class: Class, tag: i32) -> u64 {
        shared_transport::match_bits(self.context, class, tag)
    }

    #[inline]
    fn selector(&self, class: Class, source: i32, tag: i32) -> Selector {
        // DTL_ANY_SOURCE is no member, so it stays.
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

    /// Why a call on a communicator that is not open fails.
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

    /// Our ranks that died or left.
    fn failed_ranks(&self) -> Vec<i32> {
        let Some(liveness) = &self.link.liveness else { return Vec::new() };
        let failed = liveness.part().failed_ranks();
        match &self.members {
            None => failed,
            Some(members) => failed.into_iter().filter_map(|rank| members.to_local(rank)).collect(),
        }
    }

    /// How many of the link's ranks are known to have died.
    fn failed_count(&self) -> usize {
        self.link.liveness.as_ref().map_or(0, |liveness| liveness.part().failed_count())
    }

    /// Whether one of our ranks is known to have died.
    fn has_died(&self) -> bool {
        match self.failed_count() {
            0 => false,
            _ if self.members.is_none() => true,
            _ => !self.failed_ranks().is_empty(),
        }
    }

    /// Ranks that died or left, as text for errors; empty if none is known.
    fn failed_text(&self) -> String {
        rank_list(&self.failed_ranks())
    }

    /// Returns how ranks may have failed, for error texts.
    fn failed_how(&self) -> &'static str {
        // The transport's text may be that it does not reach a rank that is alive.
        if self.link.failure_text().is_some() { "died, left or cut off" } else { "died or left" }
    }

    /// Returns the transport's text on the failure, to append to an error text.
    fn failed_why(&self) -> String {
        self.link.failure_text().map_or(String::new(), |said| format!(": {said}"))
    }

    #[inline]
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
        // Nobody uses it any more. None is left, unless a call was starting one for longer than
        // `destroy` waited.
        p2p::request::end_all(self);
        progress::remove(self);
    }
}

/// Ranks as text for errors.
fn rank_list(ranks: &[i32]) -> String {
    let names: Vec<_> = ranks.iter().map(ToString::to_string).collect();
    names.join(", ")
}

#[cold]
fn destroyed() -> Error {
    Error::new(DTL_ERROR_CANCELED, "the communicator was destroyed by another thread")
}

/// Ends this process with an exit code, saying so first: the launcher ends the other ranks.
pub fn abort(comm: &Comm, code: i32) -> ! {
    super::log::error!(
        "rank {} of {} ends the job with code {code} (dtl_comm_abort)",
        comm.rank,
        comm.size
    );
    crate::sys::os::process::exit_now(code)
}

/// Describes a communicator.
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
