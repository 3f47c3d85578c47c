//! One-sided communication over a raw transport (`Wire`) that supports it: operations in flight on
//! each window, and flushes that complete after them.
//!
//! The `Wire` only starts operations and reports completion. This module queues them per target, in
//! the order of the calls: operations for which the `Wire` returned BUSY are retried later, and a
//! flush is queued behind the operations that it covers.

use super::Wire;
use super::engine::{Engine, index_of, rank_of};
use crate::abi::status::*;
use crate::abi::word::dtl_dtype_t;
use crate::backend::peer_map::PeerMap;
use crate::error::{self, Error, Result, fail};
use crate::runtime::component::{FlushScope, OpId, RmaOp, TargetRange};
use crate::sys::memory::buf::{Addr, Region};
use std::collections::VecDeque;

/// One-sided operations of a `Wire` on windows. A window is identified by the address that `create`
/// returned. One thread at a time calls these methods; BUSY means that the caller must retry later;
/// `Wire::test` tests for completion. Only `destroy` may block.
pub trait WireWindows {
    /// Creates a window on this rank's `memory`. Returns the window's identifier, and the key that
    /// other ranks use to access `memory`.
    fn create(&mut self, memory: Region) -> Result<(Addr, Vec<u8>)>;
    /// Sets the key of `rank`'s memory: the first `bytes` bytes of `key`.
    fn attach(&mut self, window: Addr, rank: i32, key: &[u64], bytes: usize) -> Result<()>;
    /// Destroys a window. Once this method returns, no rank accesses the window's memory, and this
    /// rank's operations on the window no longer access their buffers.
    fn destroy(&mut self, window: Addr) -> Result<()>;
    /// Returns true if `start` supports all accumulate operations and compare-and-swaps on `dtype`.
    fn has_atomics(&mut self, window: Addr, dtype: dtl_dtype_t) -> Result<bool>;
    /// Starts an operation.
    fn start(&mut self, window: Addr, begin: &Begin) -> Result<OpId>;
}

/// One-sided operation to be started.
#[derive(Clone, Copy)]
pub enum Begin {
    /// Operation on this range of a target.
    Op(TargetRange, RmaOp),
    /// Operation that completes once all earlier operations on the memory of this target are
    /// complete at the target.
    Flush(i32),
}

impl Begin {
    fn target(&self) -> i32 {
        match self {
            Begin::Op(at, _) => at.target,
            Begin::Flush(target) => *target,
        }
    }

    /// Returns the caller's buffers of the operation; they are empty for a flush.
    fn buffers(&self) -> [Region; 3] {
        match self {
            Begin::Op(_, op) => op.buffers(),
            Begin::Flush(_) => [Region::EMPTY; 3],
        }
    }

    fn start(&self, wire: &mut dyn Wire, window: Addr) -> Result<OpId> {
        wire.windows().map_err(|_| none())?.start(window, self)
    }
}

/// One-sided operation with its number, which is unique within the window.
#[derive(Clone, Copy)]
struct Under<T> {
    number: u64,
    wants_op: bool,
    /// Buffers of the caller, which the operation uses until it is complete.
    buffers: [Region; 3],
    what: T,
}

/// Operations on one target, oldest first. The operations in `in_flight` have been started on the
/// `Wire`. The operations in `waiting` returned BUSY or are queued behind an operation that did.
#[derive(Default)]
struct Lane {
    in_flight: VecDeque<Under<OpId>>,
    waiting: VecDeque<Under<Begin>>,
    /// True if an operation was started after the last flush of this target.
    is_dirty: bool,
    is_listed: bool,
    /// First failure that no flush has returned yet.
    failed: Option<Error>,
}

impl Lane {
    fn oldest(&self) -> Option<u64> {
        let waiting = self.waiting.front().map(|under| under.number);
        self.in_flight.front().map(|under| under.number).or(waiting)
    }

    /// Returns the caller's buffers of all operations that are not complete.
    fn buffers(&self) -> impl Iterator<Item = Region> + '_ {
        let waiting = self.waiting.iter().flat_map(|under| under.buffers);
        self.in_flight.iter().flat_map(|under| under.buffers).chain(waiting)
    }
}

/// Number of operations in flight per target above which the start of another operation also tests
/// the earlier ones for completion.
const UNASKED: usize = 16;

/// Pending flush of one target, or of all targets if `target` is `None`. It covers the operations
/// with numbers up to `upto`.
struct Waited {
    number: u64,
    target: Option<i32>,
    upto: u64,
}

/// An open window.
pub(super) struct OpenWindow {
    wire: Addr,
    lanes: PeerMap<Lane>,
    /// Targets with operations that are in flight or not flushed, or with a failure that is not
    /// reported yet.
    listed: Vec<usize>,
    last: u64,
    flushes: Vec<Waited>,
    /// Outcomes of completed operations that the caller tests individually, by operation number.
    ended: Vec<(u64, Result<()>)>,
}

/// Parts of the engine that a window operation may access.
pub(super) struct EngineParts<'a> {
    wire: &'a mut dyn Wire,
    /// Ranks that an operation has reported as failed.
    dead: Vec<usize>,
}

impl EngineParts<'_> {
    /// Records `rank` as failed if `status` is RANK_FAILURE.
    fn note(&mut self, rank: usize, status: dtl_status_t) {
        if status == DTL_ERROR_RANK_FAILURE && !self.dead.contains(&rank) {
            self.dead.push(rank);
        }
    }
}

impl OpenWindow {
    /// Starts queued operations as far as resources permit, and collects completed operations.
    fn move_on(&mut self, hand: &mut EngineParts) -> Result<()> {
        for index in 0..self.listed.len() {
            let Some(&rank) = self.listed.get(index) else { break };
            self.move_lane(rank, hand)?;
        }
        let lanes = &mut self.lanes;
        self.listed.retain(|rank| {
            let Some(lane) = lanes.get_mut(*rank) else { return false };
            lane.is_listed = lane.oldest().is_some() || lane.is_dirty || lane.failed.is_some();
            lane.is_listed
        });
        Ok(())
    }

    fn move_lane(&mut self, rank: usize, hand: &mut EngineParts) -> Result<()> {
        let Some(lane) = self.lanes.get_mut(rank) else { return Ok(()) };
        while let Some(&Under { number, wants_op, what, .. }) = lane.in_flight.front() {
            let Some(done) = hand.wire.test(what)? else { break };
            lane.in_flight.pop_front();
            let outcome = match done.status {
                DTL_SUCCESS => Ok(()),
                status => Err(failure(hand, rank, status)),
            };
            end(lane, &mut self.ended, number, wants_op, outcome);
        }
        while let Some(&Under { number, wants_op, buffers, what }) = lane.waiting.front() {
            match what.start(hand.wire, self.wire) {
                Ok(op) => lane.in_flight.push_back(Under { number, wants_op, buffers, what: op }),
                Err(error) if error.status() == DTL_ERROR_BUSY => break,
                Err(error) => {
                    hand.note(rank, error.status());
                    end(lane, &mut self.ended, number, wants_op, Err(error));
                }
            }
            lane.waiting.pop_front();
        }
        Ok(())
    }

    fn list(&mut self, rank: usize) {
        if let Some(lane) = self.lanes.make(rank).filter(|lane| !lane.is_listed) {
            lane.is_listed = true;
            self.listed.push(rank);
        }
    }

    /// Starts or queues an operation. Returns the operation number, which the caller uses to test
    /// the operation.
    fn begin(&mut self, begin: Begin, wants_op: bool, hand: &mut EngineParts) -> Result<u64> {
        let rank = index_of(begin.target());
        self.list(rank);
        let Some(lane) = self.lanes.get_mut(rank) else {
            return fail!(DTL_ERROR_INVALID_RANK, "target {} is no rank", begin.target());
        };
        let started = match lane.waiting.is_empty() {
            true => begin.start(hand.wire, self.wire),
            false => Err(Error::new(DTL_ERROR_BUSY, "others wait before it")),
        };
        self.last += 1;
        let (number, buffers) = (self.last, begin.buffers());
        match started {
            Ok(op) => lane.in_flight.push_back(Under { number, wants_op, buffers, what: op }),
            Err(error) if error.status() == DTL_ERROR_BUSY => {
                lane.waiting.push_back(Under { number, wants_op, buffers, what: begin });
            }
            Err(error) => {
                hand.note(rank, error.status());
                return Err(error);
            }
        }
        // Bytes of a get have arrived when it completes, so a get needs no flush.
        lane.is_dirty |= !matches!(begin, Begin::Op(_, RmaOp::Get(_)) | Begin::Flush(_));
        if wants_op || lane.in_flight.len() > UNASKED {
            // An error means that the wire could not be called. The operation has started
            // nevertheless, so its buffer is in use; the next test or flush reports the error.
            drop(self.move_lane(rank, hand));
        }
        Ok(number)
    }

    fn is_over(&self, target: Option<i32>, upto: u64) -> bool {
        let is_past = |lane: &Lane| lane.oldest().is_none_or(|oldest| oldest > upto);
        match target {
            Some(target) => self.lanes.get(index_of(target)).is_none_or(is_past),
            None => self.listed.iter().filter_map(|rank| self.lanes.get(*rank)).all(is_past),
        }
    }

    /// Returns the first unreported failure on `target` (`None`: all targets) and marks all
    /// failures of these targets as reported.
    fn failure(&mut self, target: Option<i32>) -> Result<()> {
        let targets = self.targets(target).into_iter();
        let failures: Vec<_> =
            targets.filter_map(|rank| self.lanes.get_mut(rank)?.failed.take()).collect();
        failures.into_iter().next().map_or(Ok(()), Err)
    }

    /// Returns the ranks that a flush of `target` (`None`: all targets) covers.
    fn targets(&self, target: Option<i32>) -> Vec<usize> {
        target.map_or_else(|| self.listed.clone(), |target| vec![index_of(target)])
    }

    pub(super) fn flush(
        &mut self,
        target: Option<i32>,
        reach: FlushScope,
        hand: &mut EngineParts,
    ) -> Result<Option<OpId>> {
        for rank in self.targets(target).into_iter().filter(|_| reach == FlushScope::Target) {
            let Some(lane) = self.lanes.get_mut(rank).filter(|lane| lane.is_dirty) else {
                continue;
            };
            lane.is_dirty = false;
            if let Err(error) = self.begin(Begin::Flush(rank_of(rank)), false, hand) {
                if let Some(lane) = self.lanes.get_mut(rank) {
                    lane.failed = Some(error);
                }
            }
        }
        let upto = self.last;
        self.move_on(hand).map_err(|error| in_use(&error))?;
        if self.is_over(target, upto) {
            return self.failure(target).map(|()| None);
        }
        self.last += 1;
        self.flushes.push(Waited { number: self.last, target, upto });
        Ok(Some(OpId(self.last)))
    }

    /// Returns true if an operation in flight uses memory of `buffer`.
    pub(super) fn uses(&self, buffer: Region) -> bool {
        let lanes = self.listed.iter().filter_map(|rank| self.lanes.get(*rank));
        lanes.flat_map(Lane::buffers).any(|area| area.overlaps(buffer))
    }

    fn test(&mut self, OpId(number): OpId) -> Result<bool> {
        if let Some(at) = self.flushes.iter().position(|flush| flush.number == number) {
            let Some(&Waited { target, upto, .. }) = self.flushes.get(at) else { return Ok(true) };
            if !self.is_over(target, upto) {
                return Ok(false);
            }
            self.flushes.swap_remove(at);
            return self.failure(target).map(|()| true);
        }
        match self.ended.iter().position(|(ended, _)| *ended == number) {
            Some(at) => self.ended.swap_remove(at).1.map(|()| true),
            None => Ok(false),
        }
    }
}

/// Returns a copy of `error` whose message also says that operations on the window are still in
/// progress.
fn in_use(error: &Error) -> Error {
    let text =
        "operations on the window go on: do not free or reuse their buffers before it is destroyed";
    Error::new(error.status(), format!("{}; {text}", error.text()))
}

/// Records the outcome of a completed operation.
fn end(
    lane: &mut Lane,
    ended: &mut Vec<(u64, Result<()>)>,
    number: u64,
    wants_op: bool,
    outcome: Result<()>,
) {
    if let (Err(error), true) = (&outcome, lane.failed.is_none()) {
        lane.failed = Some(error.clone());
    }
    if wants_op {
        ended.push((number, outcome));
    }
}

/// Converts the status of a failed operation on target `rank` to an error.
fn failure(hand: &mut EngineParts, rank: usize, status: dtl_status_t) -> Error {
    hand.note(rank, status);
    let reason = hand.wire.failure_text();
    let meaning = || error::status_message(status).to_string_lossy().into_owned();
    Error::new(status, format!("an operation on target {rank}: {}", reason.unwrap_or_else(meaning)))
}

impl Engine {
    /// Creates a window with number `number` on `memory`. Returns the key with which other ranks
    /// access `memory`.
    pub(super) fn open_window(&mut self, number: u64, memory: Region) -> Result<Vec<u8>> {
        self.check_working()?;
        let ranks = self.links.ranks();
        let Ok(windows) = self.wire.windows() else { return Err(none()) };
        let (wire, key) = windows.create(memory)?;
        let (lanes, listed, flushes, ended) =
            (PeerMap::new(ranks), Vec::new(), Vec::new(), Vec::new());
        self.windows.push((number, OpenWindow { wire, lanes, listed, last: 0, flushes, ended }));
        Ok(key)
    }

    /// Calls `ask` with the window methods of the `Wire` and the identifier of window `number`.
    /// Must not be used for a window that already has operations.
    pub(super) fn ask_windows<T>(
        &mut self,
        number: u64,
        ask: impl FnOnce(&mut dyn WireWindows, Addr) -> Result<T>,
    ) -> Result<T> {
        let mut windows = self.windows.iter();
        let (_, open) = windows.find(|(known, _)| *known == number).ok_or_else(none)?;
        ask(self.wire.windows().map_err(|_| none())?, open.wire)
    }

    /// Calls `act` on window `number`. Records as failed each rank whose failure an operation in
    /// `act` reports.
    pub(super) fn on_window<T>(
        &mut self,
        number: u64,
        act: impl FnOnce(&mut OpenWindow, &mut EngineParts) -> Result<T>,
    ) -> Result<T> {
        self.on_windows(|windows, hand| {
            let mut windows = windows.iter_mut();
            let (_, open) = windows.find(|(known, _)| *known == number).ok_or_else(none)?;
            act(open, hand)
        })
    }

    /// Calls `act` on all windows. If an operation in `act` reports that a rank has failed, records
    /// the failure of the rank.
    fn on_windows<T>(
        &mut self,
        act: impl FnOnce(&mut [(u64, OpenWindow)], &mut EngineParts) -> Result<T>,
    ) -> Result<T> {
        let mut hand = EngineParts { wire: &mut *self.wire, dead: Vec::new() };
        let acted = act(&mut self.windows, &mut hand);
        for rank in hand.dead {
            if rank != self.rank && !self.is_dead(rank) {
                self.note_failure(DTL_ERROR_RANK_FAILURE, rank);
            }
        }
        acted
    }

    pub(super) fn begin_on_window(
        &mut self,
        number: u64,
        begin: Begin,
        wants_op: bool,
    ) -> Result<Option<OpId>> {
        self.check_working()?;
        self.on_window(number, |open, hand| {
            let began = OpId(open.begin(begin, wants_op, hand)?);
            if !wants_op {
                return Ok(None);
            }
            open.test(began).map(|is_over| (!is_over).then_some(began))
        })
    }

    pub(super) fn test_window(&mut self, number: u64, op: OpId) -> Result<bool> {
        let moved = self.progress();
        match self.on_window(number, |open, _| open.test(op)) {
            Ok(false) => moved.map(|()| false).map_err(|error| in_use(&error)),
            over => over,
        }
    }

    /// Makes progress on the operations of all windows.
    pub(super) fn move_windows(&mut self) -> Result<()> {
        self.on_windows(|windows, hand| {
            windows.iter_mut().try_for_each(|(_, open)| open.move_on(hand))
        })
    }

    /// Closes window `number`; does nothing if it is already closed.
    pub(super) fn close_window(&mut self, number: u64) -> Result<()> {
        let Some(at) = self.windows.iter().position(|(known, _)| *known == number) else {
            return Ok(());
        };
        let (_, open) = self.windows.swap_remove(at);
        self.wire.windows().map_or(Ok(()), |windows| windows.destroy(open.wire))
    }
}

fn none() -> Error {
    Error::new(DTL_ERROR_INVALID_STATE, "the window is closed")
}
