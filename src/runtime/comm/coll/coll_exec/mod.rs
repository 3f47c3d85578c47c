//! A collective on its way: begun, moved on, waited for, given up.
//!
//! Every rank must make the same calls in the same order. A failure (time limit, death, mismatch)
//! leaves ranks at different points, so collectives are refused from then on.
//!
//! In reading order:
//! - `liveness_queries`: queries to ranks that are late
//! - `peer_failure`: collectives that were given up

mod liveness_queries;
mod peer_failure;

use self::liveness_queries::LivenessQueries;
use super::algorithms::Group;
use super::coll_staging::StagedBuffers;
use super::schedule::{Advance, Schedule};
use super::small_coll::{self, SmallColl};
use super::{CollArgs, StartedColl, coll_device, coll_native};
use crate::abi::status::*;
use crate::error::{Error, Result, fail};
use crate::runtime::comm::comm_handles::check_outside;
use crate::runtime::comm::diagnostics::hang_report::{self, DeadlineQuery};
use crate::runtime::comm::flight_recorder::Ticket;
use crate::runtime::comm::op_desc::OpDesc;
use crate::runtime::comm::p2p::cancel;
use crate::runtime::comm::peer_close::PollCounter;
use crate::runtime::comm::{Comm, progress};
use crate::runtime::component::OpId;
use crate::runtime::types::Reduction;
use crate::sys::handles::epoch;
use crate::sys::sync::backoff::Backoff;
use crate::sys::sync::biased_trylock::LockWord;
use crate::sys::sync::hints::usually;
use std::sync::atomic::Ordering;

/// Bits of a collective's number in its messages' tags; the others are its signature.
const NUMBER_BITS: u32 = 20;
/// Step lists kept for reuse, each with its scratch memory.
const SPARE: usize = 4;
/// A communicator of more ranks than this keeps only one list, of bounded memory: the size of a
/// list grows with the number of ranks, and a process may have thousands of lists. One more
/// allocation is cheap compared with a collective of so many ranks.
const MANY_RANKS: i32 = 64;

/// Bytes that the list of a communicator of more than [`MANY_RANKS`] ranks may keep: 2 MiB for 128
/// ranks, 16 KiB for more than 1408.
fn kept_bytes(ranks: i32) -> usize {
    let times = ranks.unsigned_abs().div_ceil(MANY_RANKS.unsigned_abs()).max(1) as usize;
    ((8 << 20) / (times * times)).max(16 << 10)
}

/// Work of a collective.
enum CollWork {
    /// Steps of the library's own algorithms.
    Steps(Schedule),
    /// One of the transport's own; `Some` once it is in flight.
    Native(CollArgs, Option<OpId>),
    /// Over the communicator's board.
    Flat(small_coll::Steps),
    /// On device memory; `Some` once it is started.
    Device(CollArgs, Option<u64>),
}

/// A collective that was started.
pub struct Run {
    work: CollWork,
    call: OpDesc,
    number: u64,
    tag: i32,
    ticket: Ticket,
    turn: LockWord,
    death_seen: Option<u64>,
    /// Turns of its polls as a request.
    turns: PollCounter,
    /// Buffers that the host cannot reach.
    stage: Option<Box<StagedBuffers>>,
}

/// A collective's number is taken, and it is noted.
pub(in crate::runtime::comm) struct CollSetup {
    pub(in crate::runtime::comm) ticket: Ticket,
    pub(in crate::runtime::comm) call: OpDesc,
    pub(in crate::runtime::comm) turn: LockWord,
}

impl CollSetup {
    /// The collective's number, which is unique among all that are in flight at once.
    fn number(&self) -> u32 {
        self.call.tag as u32
    }

    /// Returns the tag of the collective's messages.
    fn tag(&self) -> u32 {
        u32::from(self.call.signature()) << NUMBER_BITS | self.number() & ((1 << NUMBER_BITS) - 1)
    }

    fn run(self, work: CollWork) -> Run {
        let (tag, number) = (self.tag() as i32, u64::from(self.number()));
        let CollSetup { ticket, call, turn } = self;
        Run {
            work,
            number,
            tag,
            call,
            ticket,
            turn,
            death_seen: None,
            turns: PollCounter::default(),
            stage: None,
        }
    }

    /// Returns the run of a transport's own collective that has not started.
    pub(in crate::runtime::comm) fn native(self, args: CollArgs) -> Run {
        self.run(CollWork::Native(args, None))
    }
}

impl Comm {
    pub(in crate::runtime::comm) fn group(&self) -> Group {
        Group { rank: self.rank, size: self.size }
    }

    #[cold]
    pub(in crate::runtime::comm) fn refuse(&self, name: &str) -> Error {
        let why = self.broken.lock().clone().unwrap_or_default();
        Error::new(
            DTL_ERROR_INVALID_STATE,
            format!(
                "{name}: an earlier collective failed ({why}), so the ranks are out of step: \
                 dtl_comm_shrink it, or destroy it"
            ),
        )
    }

    /// Error of a collective begun after the one that failed first: with a death all fail alike.
    #[cold]
    pub(in crate::runtime::comm) fn fail_with_first(&self) -> Error {
        let error = self.refuse("it was begun, but cannot go on");
        if self.has_gone() { Error::new(DTL_ERROR_RANK_FAILURE, error.text()) } else { error }
    }

    /// Whether a collective has failed.
    pub(in crate::runtime::comm) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    fn set_broken(&self, why: &str) {
        let mut broken = self.broken.lock();
        if broken.is_none() {
            *broken = Some(why.to_owned());
        }
        self.is_broken.store(true, Ordering::Release);
    }

    /// Begins one collective by the library's own algorithms: `generate` appends its steps.
    pub(in crate::runtime::comm) fn prepare(
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

    /// Begins a collective over the board. A collective that is over at once never becomes a `Run`,
    /// which would take longer than the collective.
    #[inline]
    pub(in crate::runtime::comm) fn prepare_flat(
        &self,
        args: &CollArgs,
        flat: &SmallColl,
    ) -> Result<StartedColl> {
        let call = OpDesc::of(args);
        let turn = self.enter(&call)?;
        let begin = self.begin(call, turn);
        let mut steps = small_coll::Steps::new(self, flat, args, begin.tag());
        if let Ok(Advance::Done) = steps.advance(self, flat) {
            self.recorder.end(begin.ticket);
            self.leave(turn);
            return Ok(StartedColl::Over(call.kind));
        }
        // The call that moves the collective on will meet a failure again.
        Ok(StartedColl::Going(begin.run(CollWork::Flat(steps))))
    }

    /// Begins a collective on device memory.
    pub(in crate::runtime::comm) fn prepare_on_device(
        &self,
        args: CollArgs,
    ) -> Result<StartedColl> {
        let call = OpDesc::of(&args);
        let turn = self.enter(&call)?;
        Ok(StartedColl::Going(self.begin(call.on_device(), turn).run(CollWork::Device(args, None))))
    }

    /// Collectives are called one at a time, by threads that may call the transport.
    #[inline]
    pub(in crate::runtime::comm) fn enter(&self, call: &OpDesc) -> Result<LockWord> {
        self.try_enter().map_or_else(|| self.enter_checked(call.kind.name()), Ok)
    }

    /// Enters a collective while nothing is in the way. `None`: `enter_checked`.
    #[inline]
    pub(in crate::runtime::comm) fn try_enter(&self) -> Option<LockWord> {
        let is_well =
            self.is_open() && !self.is_broken.load(Ordering::Relaxed) && !self.is_for_some;
        if usually(is_well) { self.in_collective.try_take(epoch::thread_mark()) } else { None }
    }

    /// A thread that is refused has not begun one: those of the others are not disturbed.
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
        check_outside(self, name)?;
        match self.in_collective.try_take(epoch::thread_mark()) {
            Some(turn) => Ok(turn),
            None => fail!(
                DTL_ERROR_BUSY,
                "{name}: another thread is in a collective on this communicator; order the calls, \
                 or use two communicators"
            ),
        }
    }

    /// Others may call one.
    pub(in crate::runtime::comm) fn leave(&self, turn: LockWord) {
        self.in_collective.give_back(turn);
    }

    #[inline]
    pub(in crate::runtime::comm) fn begin(&self, call: OpDesc, turn: LockWord) -> CollSetup {
        let call = self.numbered(call);
        CollSetup { ticket: self.recorder.begin(call.words()), call, turn }
    }

    #[inline]
    fn numbered(&self, call: OpDesc) -> OpDesc {
        // One thread at a time is here (`enter`), so a load and a store are enough.
        let number = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(number.wrapping_add(1), Ordering::Relaxed);
        OpDesc { tag: (number & i32::MAX as u32) as i32, ..call }
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
    pub(in crate::runtime::comm) fn advance(&mut self, comm: &Comm) -> Result<Advance> {
        let advance = match &mut self.work {
            CollWork::Steps(schedule) => schedule.advance(comm, self.tag),
            CollWork::Native(args, op) => coll_native::advance(comm, args, op),
            CollWork::Device(args, started) => coll_device::advance(comm, args, started),
            CollWork::Flat(steps) => match &comm.flat {
                Some(flat) => steps.advance(comm, flat),
                None => Ok(Advance::Done),
            },
        };
        let advance = advance.map_err(|error| error.within(self.call.kind.name()))?;
        if advance == Advance::Done {
            comm.recorder.end(self.ticket);
        }
        Ok(advance)
    }

    /// For a request: moves it on, and fails it if it cannot come to its end any more.
    pub(in crate::runtime::comm) fn progress(&mut self, comm: &Comm) -> Result<Advance> {
        let advance = self
            .advance(comm)
            .map_err(|error| self.placed(comm, error, &DeadlineQuery::never()))?;
        if advance == Advance::Waiting {
            let looks = self.turns.is_turn();
            self.check_hope(comm, &DeadlineQuery::never(), looks)?;
            if let (CollWork::Flat(steps), Some(flat)) = (&self.work, &comm.flat) {
                steps.progress_others(comm, flat);
            }
        }
        Ok(advance)
    }

    pub(in crate::runtime::comm) fn start(mut self, comm: &Comm) -> Result<Option<Self>> {
        let advance = self.advance(comm);
        // Other collectives may be started while this one goes on.
        comm.leave(self.turn);
        match advance {
            Ok(Advance::Done) => {
                self.recycle(comm);
                self.deliver().map(|()| None)
            }
            Ok(_) => Ok(Some(self)),
            Err(error) => {
                let error = self.placed(comm, error, &DeadlineQuery::never());
                self.fail(comm, &error);
                Err(error)
            }
        }
    }

    /// Adds details to an error: to a mismatch where the ranks are, to a failed rank why another
    /// rank gave the collective up.
    fn placed(&self, comm: &Comm, error: Error, inquiry: &DeadlineQuery) -> Error {
        match error.status() {
            DTL_ERROR_INVALID_ARGUMENT => self.report(comm, &error, inquiry),
            DTL_ERROR_RANK_FAILURE => self.with_cause(comm, error),
            _ => error,
        }
    }

    /// It is over: buffers that the host cannot reach get their results.
    pub(in crate::runtime::comm) fn deliver(&mut self) -> Result<()> {
        if self.stage.is_none() { Ok(()) } else { self.deliver_stage() }
    }

    #[cold]
    fn deliver_stage(&mut self) -> Result<()> {
        let name = self.call.kind.name();
        self.stage
            .take()
            .map_or(Ok(()), |stage| stage.deliver().map_err(|error| error.within(name)))
    }

    pub(in crate::runtime::comm) fn call(&self) -> &OpDesc {
        &self.call
    }

    /// Returns the run with the staging of buffers that get their results when the run is over.
    pub(in crate::runtime::comm) fn with(self, stage: StagedBuffers) -> Run {
        Run { stage: Some(Box::new(stage)), ..self }
    }

    /// Keeps its lists' memory for the next one.
    pub(in crate::runtime::comm) fn recycle(&mut self, comm: &Comm) {
        if let CollWork::Steps(schedule) = &mut self.work {
            comm.put_back(std::mem::take(schedule));
        }
    }

    /// Whether it was passed to the transport, which cannot cancel it.
    pub(in crate::runtime::comm) fn is_irrevocable(&self) -> bool {
        matches!(self.work, CollWork::Native(_, Some(_)))
    }

    pub(in crate::runtime::comm) fn wait(mut self, comm: &Comm) -> Result<()> {
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
            (LivenessQueries::new(), DeadlineQuery::before(deadline, comm.timeout_ns));
        loop {
            match self.advance(comm) {
                Ok(Advance::Done) => return Ok(()),
                Ok(Advance::Moved) => backoff = Backoff::new(),
                Ok(Advance::Waiting) => {}
                Err(error) => return Err(self.placed(comm, error, &inquiry)),
            }
            match (&self.work, &comm.flat) {
                (CollWork::Flat(steps), Some(flat)) => steps.pause(comm, flat, &mut backoff),
                // No event of the transport ends it.
                (CollWork::Device(..), _) => backoff.pause(),
                _ => comm.pause(&mut backoff),
            }
            if backoff.is_long() {
                progress::others(comm);
                self.check_hope(comm, &inquiry, true)?;
                if deadline.passed() {
                    return Err(self.too_late(comm, &inquiry));
                }
                inquiry.send_when_due(comm, Some(self.call.tag));
                match (&self.work, &comm.flat) {
                    (CollWork::Steps(schedule), _) => {
                        questions.send_due(comm, &self.call, &inquiry, schedule.awaited())?;
                    }
                    (CollWork::Flat(steps), Some(flat)) => {
                        questions.send_due(
                            comm,
                            &self.call,
                            &inquiry,
                            steps.awaited(comm, flat),
                        )?;
                    }
                    (CollWork::Device(..), _) => {
                        questions.send_due(comm, &self.call, &inquiry, comm.next_ranks())?;
                    }
                    _ => {}
                }
            }
        }
    }

    #[cold]
    fn too_late(&self, comm: &Comm, inquiry: &DeadlineQuery) -> Error {
        let millis = comm.timeout_ns / 1_000_000;
        let text =
            format!("{} is not over after {millis} ms (the communicator's time limit)", self.call);
        self.report(comm, &Error::new(DTL_ERROR_TIMEOUT, text), inquiry)
    }

    /// An error with where the ranks are.
    fn report(&self, comm: &Comm, error: &Error, inquiry: &DeadlineQuery) -> Error {
        report_on(comm, error, Some(self.call.tag), inquiry)
    }

    /// Whether it has failed and the transport has kept operations of it.
    pub(in crate::runtime::comm) fn is_kept(&self) -> bool {
        matches!(&self.work, CollWork::Steps(schedule) if schedule.is_in_use())
    }

    /// Cancels what is in flight, and notifies the other ranks that this rank does not go on.
    pub(in crate::runtime::comm) fn fail(&mut self, comm: &Comm, error: &Error) {
        match &mut self.work {
            CollWork::Steps(schedule) => schedule.abandon(comm),
            CollWork::Device(..) => coll_device::give_up(comm),
            _ => {}
        }
        if self.is_kept() || self.is_irrevocable() {
            // The transport goes on with it, so its memory has to stay.
            std::mem::forget(self.stage.take());
        }
        comm.set_broken(error.text());
        hang_report::give_up(comm, self.number, error.status());
        comm.recorder.end(self.ticket);
    }
}

/// Returns an error that includes where the ranks are. They are queried after the first failure
/// only: failures that follow from it would wait for the same answers.
#[cold]
fn report_on(comm: &Comm, error: &Error, about: Option<i32>, inquiry: &DeadlineQuery) -> Error {
    if !comm.is_broken() {
        inquiry.end(comm, about);
    }
    hang_report::attach(comm, error, about)
}
