//! Execution of a collective: start, progress, wait, failure.
//!
//! Every rank must make the same calls in the same order. A failure (timeout, death of a rank,
//! mismatched calls) leaves ranks at different points, so later collectives on the communicator are
//! rejected.
//!
//! In reading order:
//! - `liveness_queries`: queries to ranks that are late
//! - `peer_failure`: collectives that other ranks abandoned

mod liveness_queries;
mod peer_failure;

use self::liveness_queries::LivenessQueries;
use super::CollArgs;
use super::algorithms::Group;
use super::coll_native::{self, Executor, OnDevice};
use super::coll_staging::StagedBuffers;
use super::mailboxes::Mailboxes;
use super::schedule::{Advance, Schedule};
use super::small_coll::SmallColl;
use crate::abi::status::*;
use crate::error::{Error, Result, failure};
use crate::hints::usually;
use crate::runtime::comm::biased_trylock::LockWord;
use crate::runtime::comm::diagnostics::hang_report::{self, DeadlineQuery};
use crate::runtime::comm::failure::peer_close::LOOK_EVERY;
use crate::runtime::comm::flight_recorder::Ticket;
use crate::runtime::comm::op_desc::{Kind, OpDesc};
use crate::runtime::comm::p2p::cancel;
use crate::runtime::comm::{Comm, progress};
use crate::runtime::component::OpId;
use crate::runtime::types::Reduction;
use crate::sys::{handles::epoch, sync::wait::Backoff};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// Way in which the caller waits for a collective.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CallMode {
    /// The call returns when the collective is complete.
    Blocking,
    /// The call returns a request.
    Request,
}

/// Collective that has been started.
#[allow(clippy::large_enum_variant, reason = "on the stack, and moved once")]
pub enum StartedColl {
    /// The collective is complete.
    Over(Kind),
    /// The collective is in progress.
    Going(Run),
}

impl StartedColl {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            StartedColl::Over(kind) => *kind,
            StartedColl::Going(run) => run.call().kind,
        }
    }

    /// Attaches the staging buffers of the collective. The results in these buffers are copied to
    /// device memory when the collective completes.
    pub(super) fn with(mut self, stage: StagedBuffers) -> Result<Self> {
        match &mut self {
            StartedColl::Over(kind) => {
                stage.deliver().map_err(|error| error.within(kind.name()))?
            }
            StartedColl::Going(run) => run.stage = Some(Box::new(stage)),
        }
        Ok(self)
    }
}

/// Number of bits in a message tag that contain the sequence number of the collective. The other
/// tag bits contain a hash of the arguments of the collective ([`OpDesc::signature`]).
const NUMBER_BITS: u32 = 20;
/// Maximum number of schedules that a communicator retains for reuse, each with its scratch memory.
const SPARE: usize = 4;
/// Number of ranks above which a communicator retains only one schedule, whose size is bounded. The
/// size of a schedule grows with the number of ranks, and a process may have thousands of
/// schedules. One more allocation is cheap compared with a collective of so many ranks.
const MANY_RANKS: i32 = 64;

/// Returns the maximum number of bytes of the schedule that a communicator of more than
/// [`MANY_RANKS`] ranks may retain: 2 MiB for 128 ranks, 16 KiB for more than 1408.
fn kept_bytes(ranks: i32) -> usize {
    let times = ranks.unsigned_abs().div_ceil(MANY_RANKS.unsigned_abs()).max(1) as usize;
    ((8 << 20) / (times * times)).max(16 << 10)
}

/// Method of executing a collective, with the state of the execution.
enum CollWork {
    /// Schedule of one of the library's own algorithms.
    Steps(Schedule),
    /// Native collective: `op` is `Some` while it is in flight.
    Native { args: CollArgs, by: Executor, memory: Option<Box<OnDevice>>, op: Option<OpId> },
    /// Small collective over the communicator's mailboxes in shared memory.
    Flat(SmallColl),
}

/// Collective in progress.
pub struct Run {
    work: CollWork,
    call: OpDesc,
    number: u64,
    tag: i32,
    ticket: Ticket,
    turn: LockWord,
    death_seen: Option<u64>,
    /// Number of polls of the request, modulo 256. Every `LOOK_EVERY`-th poll also checks whether
    /// ranks have destroyed the communicator.
    polls: u8,
    /// Staging buffers for buffers that the host cannot access; `None` if there are no such
    /// buffers.
    stage: Option<Box<StagedBuffers>>,
}

/// Collective that has been assigned a sequence number and an entry in the flight recorder, but has
/// not been started.
pub(crate) struct CollSetup {
    pub(crate) ticket: Ticket,
    pub(crate) call: OpDesc,
    pub(crate) turn: LockWord,
}

impl CollSetup {
    /// Returns the tag of the collective's messages.
    #[inline]
    fn tag(&self) -> u32 {
        // The number of the collective is unique among all collectives in flight.
        let number = self.call.tag as u32 & ((1 << NUMBER_BITS) - 1);
        u32::from(self.call.signature()) << NUMBER_BITS | number
    }

    #[inline]
    fn run(self, work: CollWork) -> Run {
        let (tag, number) = (self.tag() as i32, u64::from(self.call.tag as u32));
        let CollSetup { ticket, call, turn } = self;
        Run { work, number, tag, call, ticket, turn, death_seen: None, polls: 0, stage: None }
    }

    /// Returns the initial state (`Run`) of a native collective, without starting the collective.
    pub(crate) fn native(self, args: CollArgs, by: Executor, memory: Option<Box<OnDevice>>) -> Run {
        self.run(CollWork::Native { args, by, memory, op: None })
    }
}

impl Comm {
    pub(crate) fn group(&self) -> Group {
        Group { rank: self.rank, size: self.size }
    }

    #[cold]
    pub(crate) fn refuse(&self, name: &str) -> Error {
        let why = self.broken.lock().clone().unwrap_or_default();
        failure!(
            DTL_ERROR_INVALID_STATE,
            "{name}: an earlier collective failed ({why}), so the ranks are out of step: \
             dtl_comm_shrink it, or destroy it"
        )
    }

    /// Returns the error for a collective that was started after another collective on the
    /// communicator had failed. If a rank has died or does not participate in the communicator,
    /// both collectives fail with RANK_FAILURE.
    #[cold]
    pub(crate) fn fail_with_first(&self) -> Error {
        let error = self.refuse("it was begun, but cannot go on");
        if self.has_gone() { Error::new(DTL_ERROR_RANK_FAILURE, error.text()) } else { error }
    }

    /// Returns true if a collective on this communicator has failed.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    fn set_broken(&self, why: &str) {
        self.broken.lock().get_or_insert_with(|| why.to_owned());
        self.is_broken.store(true, Ordering::Release);
    }

    /// Starts a collective that uses the library's own algorithms; `generate` appends its steps.
    pub(crate) fn prepare(
        &self,
        call: OpDesc,
        reduction: Option<Reduction>,
        generate: impl FnOnce(&mut Schedule, Group) -> Result<()>,
    ) -> Result<StartedColl> {
        let turn = self.enter(&call)?;
        let mut schedule = self.spare.lock().pop().unwrap_or_default();
        schedule.reset(reduction);
        if let Err(error) = generate(&mut schedule, self.group()) {
            self.put_back(schedule);
            self.leave(turn);
            return Err(error.within(call.kind.name()));
        }
        Ok(StartedColl::Going(self.begin(call, turn).run(CollWork::Steps(schedule))))
    }

    /// Starts a small collective over the communicator's mailboxes in shared memory. No `Run`
    /// (state of a collective in progress) is created for a collective that completes at once,
    /// because creating it would take longer than the collective.
    pub(crate) fn prepare_flat(
        &self,
        args: &CollArgs,
        mailboxes: &Mailboxes,
    ) -> Result<StartedColl> {
        let call = OpDesc::of(args);
        let turn = self.enter(&call)?;
        let begin = self.begin(call, turn);
        let mut steps = SmallColl::new(self, mailboxes, args, begin.tag());
        if let Ok(Advance::Done) = steps.advance(self, mailboxes) {
            self.recorder.end(begin.ticket);
            self.leave(turn);
            return Ok(StartedColl::Over(call.kind));
        }
        // A failure here is dropped: the next call to `advance` finds it again.
        Ok(StartedColl::Going(begin.run(CollWork::Flat(steps))))
    }

    /// Enters a collective on this communicator: acquires the collective lock, which only one
    /// thread can hold at a time. Fails if a check in `enter_checked` fails, for example if the
    /// thread may not call the transport.
    #[inline]
    pub(crate) fn enter(&self, call: &OpDesc) -> Result<LockWord> {
        self.try_enter().map_or_else(|| self.enter_checked(call.kind.name()), Ok)
    }

    /// Enters a collective on the fast path. Returns `None` if a check in `enter_checked` might
    /// fail; the caller must then call `enter_checked`.
    #[inline]
    pub(crate) fn try_enter(&self) -> Option<LockWord> {
        let is_well =
            self.is_open() && !self.is_broken.load(Ordering::Relaxed) && !self.is_for_some;
        if usually(is_well) { self.in_collective.try_take(epoch::thread_mark()) } else { None }
    }

    /// Enters a collective on the slow path, which performs all checks; fails if one of them fails.
    /// A rejected call has not begun a collective and does not affect those of other threads.
    #[cold]
    #[inline(never)]
    fn enter_checked(&self, name: &str) -> Result<LockWord> {
        self.check_open()?;
        if self.is_broken.load(Ordering::Relaxed) {
            return Err(self.refuse(name));
        }
        if let Some(check) = self.link.transport.groups().thread_check {
            check.admit().map_err(|error| error.within(name))?;
        }
        self.check_outside(name)?;
        self.in_collective.try_take(epoch::thread_mark()).ok_or_else(|| {
            failure!(
                DTL_ERROR_BUSY,
                "{name}: another thread is in a collective on this communicator; order the calls, \
                 or use two communicators"
            )
        })
    }

    /// Releases the lock that `enter` acquired, so that other threads may enter a collective.
    pub(crate) fn leave(&self, turn: LockWord) {
        self.in_collective.give_back(turn);
    }

    #[inline]
    pub(crate) fn begin(&self, call: OpDesc, turn: LockWord) -> CollSetup {
        // Only one thread at a time runs this code (`enter`), so a load and a store are enough.
        let number = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(number.wrapping_add(1), Ordering::Relaxed);
        let call = OpDesc { tag: (number & i32::MAX as u32) as i32, ..call };
        CollSetup { ticket: self.recorder.begin(call.words()), call, turn }
    }

    fn put_back(&self, schedule: Schedule) {
        if schedule.is_in_use() {
            return;
        }
        let is_kept = self.size <= MANY_RANKS || schedule.bytes() <= kept_bytes(self.size);
        let most = if self.size <= MANY_RANKS { SPARE } else { 1 };
        let mut spare = self.spare.lock();
        if is_kept && spare.len() < most {
            spare.push(schedule);
        }
    }
}

impl Run {
    pub(crate) fn advance(&mut self, comm: &Comm) -> Result<Advance> {
        let advance = match &mut self.work {
            CollWork::Steps(schedule) => schedule.advance(comm, self.tag),
            CollWork::Native { args, by, memory, op } => {
                coll_native::advance(comm, args, *by, memory.as_deref(), op)
            }
            CollWork::Flat(steps) => match &comm.mailboxes {
                Some(mailboxes) => steps.advance(comm, mailboxes),
                None => Ok(Advance::Done),
            },
        };
        let advance = advance.map_err(|error| error.within(self.call.kind.name()))?;
        if advance == Advance::Done {
            comm.recorder.end(self.ticket);
        }
        Ok(advance)
    }

    /// Advances a collective that is polled as a request. Returns an error if the collective can no
    /// longer complete.
    pub(crate) fn progress(&mut self, comm: &Comm) -> Result<Advance> {
        let advance = self
            .advance(comm)
            .map_err(|error| self.placed(comm, error, &DeadlineQuery::never()))?;
        if advance == Advance::Waiting {
            self.polls = self.polls.wrapping_add(1);
            let looks = self.polls % LOOK_EVERY == 0;
            self.check_hope(comm, &DeadlineQuery::never(), looks)?;
            if let (CollWork::Flat(steps), Some(mailboxes)) = (&self.work, &comm.mailboxes) {
                steps.progress_others(comm, mailboxes);
            }
        }
        Ok(advance)
    }

    /// Starts the collective as a request (nonblocking). Returns true if it is complete.
    pub(crate) fn start(&mut self, comm: &Comm) -> Result<bool> {
        let advance = self.advance(comm);
        // Other collectives may start while this one is in progress.
        comm.leave(self.turn);
        match advance {
            Ok(Advance::Done) => {
                self.recycle(comm);
                self.deliver().map(|()| true)
            }
            Ok(_) => Ok(false),
            Err(error) => {
                let error = self.placed(comm, error, &DeadlineQuery::never());
                self.fail(comm, &error);
                Err(if self.is_kept() { cancel::kept(&error) } else { error })
            }
        }
    }

    /// Adds details to an error: for mismatched calls, the operation of each rank; for a rank
    /// failure, the reason why another rank abandoned the collective.
    fn placed(&self, comm: &Comm, error: Error, inquiry: &DeadlineQuery) -> Error {
        match error.status() {
            DTL_ERROR_INVALID_ARGUMENT => report_on(comm, &error, Some(self.call.tag), inquiry),
            DTL_ERROR_RANK_FAILURE => comm.revoked_or(self.with_cause(comm, error)),
            _ => error,
        }
    }

    /// Copies the results of a completed collective to buffers that the host cannot access.
    pub(crate) fn deliver(&mut self) -> Result<()> {
        if self.stage.is_none() { Ok(()) } else { self.deliver_stage() }
    }

    #[cold]
    fn deliver_stage(&mut self) -> Result<()> {
        let name = self.call.kind.name();
        let delivered = self.stage.take().map_or(Ok(()), |stage| stage.deliver());
        delivered.map_err(|error| error.within(name))
    }

    pub(crate) fn call(&self) -> &OpDesc {
        &self.call
    }

    /// Returns the schedule to the communicator for reuse by a later collective.
    #[inline]
    pub(crate) fn recycle(&mut self, comm: &Comm) {
        if let CollWork::Steps(schedule) = &mut self.work {
            comm.put_back(std::mem::take(schedule));
        }
    }

    /// Returns true if the collective was passed to the transport, which cannot cancel it.
    pub(crate) fn is_irrevocable(&self) -> bool {
        let by = Executor::Transport { can_cancel: false };
        matches!(&self.work, CollWork::Native { by: it, op: Some(_), .. } if *it == by)
    }

    #[inline(never)]
    pub(crate) fn wait(&mut self, comm: &Comm) -> Result<()> {
        let result = self.wait_in_turn(comm);
        if let Err(error) = &result {
            self.fail(comm, error);
        }
        let is_kept = self.is_kept();
        self.recycle(comm);
        comm.leave(self.turn);
        let result = result.and_then(|()| self.deliver());
        result.map_err(|error| if is_kept { cancel::kept(&error) } else { error })
    }

    fn wait_in_turn(&mut self, comm: &Comm) -> Result<()> {
        let deadline = comm.deadline();
        let mut backoff = Backoff::new();
        let (mut questions, mut inquiry) =
            (LivenessQueries::default(), DeadlineQuery::before(deadline, comm.timeout_ns));
        loop {
            match self.advance(comm) {
                Ok(Advance::Done) => return Ok(()),
                Ok(Advance::Moved) => backoff = Backoff::new(),
                Ok(Advance::Waiting) => {}
                Err(error) => return Err(self.placed(comm, error, &inquiry)),
            }
            match (&self.work, &comm.mailboxes) {
                (CollWork::Flat(steps), Some(mailboxes)) => {
                    steps.pause(comm, mailboxes, &mut backoff)
                }
                // No event of the transport completes it.
                (CollWork::Native { by: Executor::DeviceLibrary, .. }, _) => backoff.pause(),
                _ => comm.pause(&mut backoff),
            }
            if backoff.is_long() {
                progress::others(comm);
                self.check_hope(comm, &inquiry, true)?;
                if deadline.passed() {
                    return Err(self.too_late(comm, &inquiry));
                }
                inquiry.send_when_due(comm, Some(self.call.tag));
                if !matches!(self.work, CollWork::Native { by: Executor::Transport { .. }, .. }) {
                    questions.send_due(comm, &self.call, &inquiry, || self.awaited(comm))?;
                }
            }
        }
    }

    /// Returns the ranks that the collective currently waits for.
    fn awaited(&self, comm: &Comm) -> BTreeSet<i32> {
        match (&self.work, &comm.mailboxes) {
            (CollWork::Steps(schedule), _) => schedule.awaited().collect(),
            (CollWork::Flat(steps), Some(mailboxes)) => steps.awaited(comm, mailboxes).collect(),
            (CollWork::Native { by: Executor::DeviceLibrary, .. }, _) => {
                comm.next_ranks().collect()
            }
            _ => BTreeSet::new(),
        }
    }

    #[cold]
    fn too_late(&self, comm: &Comm, inquiry: &DeadlineQuery) -> Error {
        let millis = comm.timeout_ns / 1_000_000;
        let text =
            format!("{} is not over after {millis} ms (the communicator's time limit)", self.call);
        report_on(comm, &Error::new(DTL_ERROR_TIMEOUT, text), Some(self.call.tag), inquiry)
    }

    /// Returns true if the collective has failed with operations still in flight in the transport.
    pub(crate) fn is_kept(&self) -> bool {
        match &self.work {
            CollWork::Steps(schedule) => schedule.is_in_use(),
            CollWork::Native { op, .. } => op.is_some(),
            _ => false,
        }
    }

    /// Cancels the operations in flight, and notifies all other ranks that this rank abandons the
    /// collective.
    pub(crate) fn fail(&mut self, comm: &Comm, error: &Error) {
        match &mut self.work {
            CollWork::Steps(schedule) => schedule.abandon(comm),
            CollWork::Native { by: Executor::DeviceLibrary, op, .. } => {
                comm.device.iter().for_each(|part| part.comm.give_up());
                *op = None; // no buffer is accessed any more
            }
            CollWork::Native { by: Executor::Transport { can_cancel: true }, op, .. } => {
                *op = op.take().filter(|id| comm.link.cancel(*id).is_err());
            }
            _ => {}
        }
        if self.is_kept() {
            // The transport continues to use the staging memory, so the memory is leaked; device
            // memory stays registered.
            std::mem::forget(self.stage.take());
            if let CollWork::Native { memory, .. } = &mut self.work {
                std::mem::forget(memory.take());
            }
        }
        comm.set_broken(error.text());
        hang_report::give_up(comm, self.number, error.status());
        comm.recorder.end(self.ticket);
    }
}

/// Returns `error` with the hang report (the operation of each rank) appended to its message. The
/// ranks are queried only after the first failure on the communicator, because later failures would
/// wait for the same replies.
#[cold]
fn report_on(comm: &Comm, error: &Error, about: Option<i32>, inquiry: &DeadlineQuery) -> Error {
    if !comm.is_broken() {
        inquiry.end(comm, about);
    }
    hang_report::attach(comm, error, about)
}
