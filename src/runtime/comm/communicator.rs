//! [`Comm`], the communicator: its state, and the methods that all of its operations use.

use super::biased_trylock::BiasedTryLock;
use super::coll::algorithms::levels::Levels;
use super::comm_state::{CommState, StateWord};
use super::diagnostics::hang_report::{self, reports::Revocation};
use super::rank_map::Members;
use super::shared_transport::{Class, SharedTransport};
use crate::abi::comm::communicator::*;
use crate::abi::handle::dtl_comm_t;
use crate::abi::status::DTL_ERROR_RANK_FAILURE;
use crate::error::{Error, Result, fail, failure};
use crate::from_c::blank;
use crate::runtime::component::{
    Completion, Member, NativeCollectives, Reductions, Selector, Transport,
};
use crate::sys::compute::callback::ForeignTester;
use crate::sys::handles::epoch;
use crate::sys::handles::handle_table::{OwningRef, SlotRefCell};
use crate::sys::sync::lock::Mutex;
use crate::sys::sync::wait::{Backoff, Deadline};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32};

/// A communicator. Every message accesses one cache line of this struct: the fields from `link`
/// (pointer to the transport) up to the first list of `recorder` (flight recorder). Most calls also
/// access the preceding line.
#[repr(C, align(128))]
pub struct Comm {
    /// Handle of this communicator, and its slot in the handle table; empty until a handle is
    /// assigned.
    pub(super) slot: SlotRefCell<Comm>,
    pub(super) timeout_ns: u64,
    /// Number of ranks.
    pub size: i32,
    /// Rank of this process.
    pub rank: i32,
    /// Number of collectives started so far.
    pub(super) sequence: AtomicU32,
    /// State for collectives on device memory; `None` if the communicator does not support them.
    pub(super) device: Option<Box<super::coll::device_part::DeviceCommPart>>,
    /// Bit set of the methods of transferring device buffers (see `p2p_staging`) that are already
    /// recorded for `dtl_explain`.
    pub(super) explained: AtomicU8,
    pub(super) is_broken: AtomicBool,
    /// True if the transport may restrict which threads can call it; `ThreadCheck::admit` checks
    /// the calling thread.
    pub(super) is_for_some: bool,
    pub(super) link: OwningRef<dyn Transport, SharedTransport>,
    pub(super) context: u32,
    pub(super) standing: StateWord,
    /// Members of the communicator; `None` if they are all ranks of the transport, in order.
    pub(super) members: Option<Box<Members>>,
    /// Completion test that calls a function of another library, such as MPI_Test; `None` if the
    /// transport has no `foreign_test`.
    pub(super) asking: Option<Arc<ForeignTester>>,
    pub(super) recorder: super::flight_recorder::Recorder,
    /// Native collectives of the transport; `None` if it has none.
    pub(super) native_collectives: Option<OwningRef<dyn NativeCollectives, SharedTransport>>,
    pub(super) reductions: Option<&'static Reductions>,
    /// Lock that a thread holds while it is in a blocking collective.
    pub(super) in_collective: BiasedTryLock,
    /// Ranks grouped by node; `None` if the grouping does not make collectives faster.
    pub(super) levels: Option<Levels>,
    /// Mailboxes for small collectives; `None` if the ranks do not share memory or are too numerous
    /// for mailboxes.
    pub(super) mailboxes: Option<super::coll::mailboxes::Mailboxes>,
    /// Reason why further collectives fail; set once a collective has failed.
    pub(super) broken: Mutex<Option<String>>,
    /// Schedules (step lists) of completed collectives, for reuse.
    pub(super) spare: Mutex<Vec<super::coll::schedule::Schedule>>,
    pub(super) reports: Arc<super::diagnostics::hang_report::reports::Reports>,
    /// Parent communicator, and the collective on it that created this communicator; `None` if
    /// there is no parent.
    pub(super) origin: Option<Box<super::failure::missing_ranks::CommOrigin>>,
    pub(super) shrinking: Mutex<super::open::shrinking::Shrinking>,
    /// Handle of the communicator over which a window has been created that uses this communicator;
    /// `None` if no window uses it.
    pub(super) window_of: Option<u64>,
    /// Communicator whose revocation or destruction also ends the collectives of this one.
    pub(super) ends_with: Option<Arc<Comm>>,
    /// Bit sets of the algorithms used so far, one per kind of operation (for `dtl_explain`).
    pub(super) chosen: [AtomicU32; super::op_desc::KINDS.len()],
    /// Buffers that the program has registered.
    pub(super) buffers: Mutex<super::open::buffer_list::Buffers>,
    /// Attributes that a program has set.
    pub attributes: super::open::attribute::Attributes,
}

const _ONE_LINE: () = assert!(offset_of!(Comm, link) == 56 && offset_of!(Comm, recorder) == 104);

impl Comm {
    /// Creates a communicator on the transport `link`. `members` maps ranks of this communicator to
    /// ranks of the transport (`None`: all ranks, in order). `rank` is the rank of this process.
    pub(super) fn new(
        link: Arc<SharedTransport>,
        context: u32,
        members: Option<Members>,
        (rank, size): (i32, i32),
        timeout_ns: u64,
    ) -> Self {
        // They are collectives of all ranks of the transport, in its order.
        let native_collectives = OwningRef::find(Arc::clone(&link), |link| {
            link.transport.groups().native_collectives.filter(|_| members.is_none())
        });
        let mut comm = Comm {
            slot: SlotRefCell::default(),
            is_for_some: !link.transport.properties().allows_progress_thread,
            asking: link.foreign_test.as_ref().map(|test| test.part().foreign_tester()),
            reductions: native_collectives
                .as_ref()
                .and_then(|native| native.part().blocking()?.reductions()),
            native_collectives,
            link: OwningRef::new(link, |link| &*link.transport),
            context,
            standing: StateWord::new(size),
            members: members.map(Box::new),
            recorder: super::flight_recorder::Recorder::new(),
            size,
            rank,
            timeout_ns,
            levels: None,
            mailboxes: None,
            device: None,
            broken: Mutex::new(None),
            is_broken: AtomicBool::new(false),
            sequence: AtomicU32::new(0),
            in_collective: BiasedTryLock::default(),
            spare: Mutex::new(Vec::new()),
            reports: Arc::default(),
            origin: None,
            shrinking: Mutex::default(),
            window_of: None,
            ends_with: None,
            chosen: [const { AtomicU32::new(0) }; super::op_desc::KINDS.len()],
            explained: AtomicU8::new(0),
            buffers: Mutex::default(),
            attributes: super::open::attribute::Attributes::default(),
        };
        comm.levels = comm.nodes().and_then(|nodes| Levels::new(rank, nodes.into_iter()));
        comm
    }

    /// Opens the communicator's mailboxes if its transport supports mailboxes. `places` contains,
    /// in rank order, the index of the mailbox slot (area with one mailbox per rank) that each rank
    /// has reserved.
    pub(super) fn with_mailboxes(mut self, places: impl Iterator<Item = u32>) -> Result<Self> {
        if self.size > 1 {
            let member = |(rank, place)| Member { rank: self.to_world(rank), place };
            let members: Vec<Member> = (0..self.size).zip(places).map(member).collect();
            let shared = self.link.shared_memory.as_ref();
            let mailbox = shared.and_then(|shared| shared.part().mailbox(self.context, &members));
            self.mailboxes = mailbox
                .transpose()?
                .map(|mailbox| super::coll::mailboxes::Mailboxes::new(mailbox, self.size))
                .transpose()?;
        }
        Ok(self)
    }

    /// Returns the handle of this communicator.
    pub(super) fn handle(&self) -> dtl_comm_t {
        dtl_comm_t { id: self.slot.handle() }
    }

    /// Returns true if all ranks are known to run on one node.
    pub fn is_one_node(&self) -> bool {
        self.size == 1 || self.link.transport.properties().is_one_node
    }

    /// Returns the node number of each rank, in rank order; nodes are numbered in the order of
    /// their lowest ranks. Returns `None` if the transport does not report nodes, or if there is
    /// only one node.
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

    /// Returns the communicator's kind, for example "shm" or "mpi": the name of the backend of its
    /// device collectives, if it has any, else of its transport.
    pub fn kind_name(&self) -> std::borrow::Cow<'static, str> {
        self.kind().to_string_lossy()
    }

    pub(super) fn kind(&self) -> &'static CStr {
        self.device.as_ref().map_or(self.link.kind, |part| part.kind)
    }

    /// Returns the previous and the next rank in a ring of all ranks, or no rank if this is the
    /// only one.
    pub(super) fn next_ranks(&self) -> impl Iterator<Item = i32> {
        let next = [self.size - 1, 1].map(|distance| (self.rank + distance) % self.size);
        next.into_iter().filter(|rank| *rank != self.rank)
    }

    /// Returns the deadline of a blocking call that starts now.
    #[inline]
    pub(super) fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout_ns)
    }

    /// Pauses between two polls of an operation.
    pub(super) fn pause(&self, backoff: &mut Backoff) {
        self.link.pause(backoff);
    }

    /// Converts a rank of this communicator to the corresponding rank of the transport.
    pub(super) fn to_world(&self, rank: i32) -> i32 {
        self.members.as_ref().map_or(rank, |members| members.to_world(rank))
    }

    /// Returns the completion `done` with its source converted to a rank of this communicator.
    pub(super) fn localized(&self, mut done: Completion) -> Completion {
        self.localize(&mut done);
        done
    }

    /// Converts the source of the completion `done` to a rank of this communicator, in place.
    pub(super) fn localize(&self, done: &mut Completion) {
        if let Some(members) = &self.members {
            members.localize(done);
        }
    }

    pub(super) fn match_bits(&self, class: Class, tag: i32) -> u64 {
        super::shared_transport::match_bits(self.context, class, tag)
    }

    #[inline]
    pub(super) fn selector(&self, class: Class, source: i32, tag: i32) -> Selector {
        // DTL_ANY_SOURCE is no member, so `to_world` returns it unchanged.
        let ignore = if tag == DTL_ANY_TAG { super::shared_transport::TAG_BITS } else { 0 };
        Selector {
            source: self.to_world(source),
            match_bits: self.match_bits(class, tag.max(0)),
            ignore,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.standing.is_open()
    }

    /// Returns the error that names the rank which has revoked the communicator; `error` if no rank
    /// has. If `error` reports the failure of a rank, first receives the notices (internal
    /// messages) of the other ranks: the failed rank may have revoked the communicator before it
    /// left.
    pub(super) fn revoked_or(&self, error: Error) -> Error {
        if error.status() == DTL_ERROR_RANK_FAILURE {
            hang_report::serve(self);
        }
        match self.reports.revocation() {
            Some(Revocation::Rank(_)) => self.check_open().err().unwrap_or(error),
            _ => error,
        }
    }

    pub(super) fn check_open(&self) -> Result<()> {
        if self.is_open() { Ok(()) } else { Err(self.ended()) }
    }

    /// Returns the error for a call on a communicator that is closed or revoked.
    #[cold]
    pub(super) fn ended(&self) -> Error {
        if self.standing.state() != CommState::Revoked {
            return destroyed();
        }
        match self.reports.revocation() {
            Some(Revocation::Rank(rank)) => failure!(
                DTL_ERROR_REVOKED,
                "rank {rank} has revoked the communicator (dtl_comm_revoke): call dtl_comm_shrink \
                 to continue, or destroy it"
            ),
            _ => failure!(
                DTL_ERROR_RANK_FAILURE,
                "a rank has begun to shrink the communicator after a failure: call dtl_comm_shrink \
                 too"
            ),
        }
    }

    /// Returns the members that died or left, as ranks of this communicator.
    pub(super) fn failed_ranks(&self) -> Vec<i32> {
        let Some(liveness) = &self.link.liveness else { return Vec::new() };
        self.local_ranks(liveness.part().failed_ranks())
    }

    /// Converts ranks of the transport to ranks of this communicator. Ranks that are not members
    /// are dropped.
    pub(super) fn local_ranks(&self, outer: Vec<i32>) -> Vec<i32> {
        match &self.members {
            None => outer,
            Some(members) => outer.into_iter().filter_map(|rank| members.to_local(rank)).collect(),
        }
    }

    /// Returns the number of the transport's ranks that are known to have died.
    pub(super) fn failed_count(&self) -> usize {
        self.link.liveness.as_ref().map_or(0, |liveness| liveness.part().failed_count())
    }

    /// Returns true if a member is known to have died.
    pub(super) fn has_died(&self) -> bool {
        self.failed_count() > 0 && (self.members.is_none() || !self.failed_ranks().is_empty())
    }

    /// Returns the ranks that died or left, as a list for error messages; empty if no such rank is
    /// known.
    pub(super) fn failed_text(&self) -> String {
        rank_list(&self.failed_ranks())
    }

    /// Returns a phrase for error messages that names the possible kinds of failure of a rank.
    pub(super) fn failed_how(&self) -> &'static str {
        // The transport's failure text may state that a live rank is unreachable.
        if self.link.failure_text().is_some() { "died, left or cut off" } else { "died or left" }
    }

    /// Returns the transport's description of its latest failure, to append to an error message.
    pub(super) fn failed_why(&self) -> String {
        self.link.failure_text().map_or(String::new(), |text| format!(": {text}"))
    }

    /// Fails with BUSY if the current call is made from a user callback that a collective on this
    /// communicator has called. That collective cannot continue before the callback returns, so the
    /// call would disturb the collective or deadlock.
    #[inline]
    pub(super) fn check_outside(&self, name: &str) -> Result<()> {
        if self.in_collective.is_of(epoch::thread_mark()) {
            return fail!(
                DTL_ERROR_BUSY,
                "{name}: a collective on this communicator is further up this thread, and has \
                 called the function of the program that calls this: let that function return first"
            );
        }
        Ok(())
    }

    #[inline]
    pub(super) fn check_peer(&self, name: &str, rank: i32, any: bool) -> Result<()> {
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

/// Returns `ranks` as a comma-separated list for error messages.
pub(super) fn rank_list(ranks: &[i32]) -> String {
    let names: Vec<_> = ranks.iter().map(ToString::to_string).collect();
    names.join(", ")
}

#[cold]
pub(super) fn destroyed() -> Error {
    failure!(DTL_ERROR_CANCELED, "the communicator was destroyed by another thread")
}

/// Revokes a communicator. Local: does not wait for the other ranks.
pub fn revoke(comm: &Comm) -> Result<()> {
    const NAME: &str = "dtl_comm_revoke";
    if comm.standing.state() == CommState::Closed {
        return Err(destroyed());
    }
    comm.check_outside(NAME)?;
    if let Some(check) = comm.link.transport.groups().thread_check {
        check.admit().map_err(|error| error.within(NAME))?;
    }
    hang_report::revoke(comm, Revocation::Rank(comm.rank));
    Ok(())
}

/// Logs an error and exits this process with status `code`; the launcher then ends the other ranks.
pub fn abort(comm: &Comm, code: i32) -> ! {
    crate::runtime::log::error!(
        "rank {} of {} ends the job with code {code} (dtl_comm_abort)",
        comm.rank,
        comm.size
    );
    crate::runtime::log::deliver(u32::MAX);
    crate::sys::os::process::exit_now(code)
}

/// Returns the rank, size, time limit, kind, transport and failure count of `comm`.
pub fn info(comm: &Comm) -> Result<dtl_comm_info_t> {
    let mut out: dtl_comm_info_t = blank();
    (out.rank, out.size, out.timeout_ns) = (comm.rank, comm.size, comm.timeout_ns);
    out.failed_count = i32::try_from(comm.gone_count()).unwrap_or(i32::MAX);
    out.kind = comm.kind().as_ptr();
    let below = &comm.link.transport.properties().description;
    let text = comm.device.as_ref().map(|part| {
        format!("{}; else {}: {below}", part.comm.describe(), comm.link.kind.to_string_lossy())
    });
    crate::runtime::copy_text(&mut out.transport, text.as_deref().unwrap_or(below));
    Ok(out)
}
