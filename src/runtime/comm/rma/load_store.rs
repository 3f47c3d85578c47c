//! RMA path that accesses window memory with loads and stores: every rank has mapped the window
//! memory of all other ranks.
//!
//! This path is for ranks of one node, and for memory that their transport makes accessible to all
//! of them (`runtime::component::SharedRegion`): memory that the library allocates for a window
//! and, within one process, also memory that the application has allocated. An operation is
//! complete when its call returns, and is visible to every rank that synchronizes with this rank
//! afterwards. The words of a target's locks are allocated together with the window memory of the
//! target. A rank that waits for a lock takes the lock over if all ranks that hold it have died. No
//! target has to execute requests from other ranks.

use crate::error::{Error, Result, fail, failure};
use crate::runtime::comm::rma::robust_rwlock::{self, SharedLock};
use crate::runtime::comm::rma_path::{
    FlushScope, RmaOp, RmaPath, RmaStart, Swap, TargetRange, Ticket, TicketRequest,
};
use crate::runtime::comm::{Comm, progress};
use crate::runtime::component::{PART_WORDS, PartKey, SharedRegion};
use crate::sys::compute::elements;
use crate::sys::memory::buf::Region;
use crate::sys::sync::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::sys::sync::wait::{self, Backoff, Deadline};
use crate::sys::sync::{AtomicU64, fence};
use std::ops::Range;
use std::sync::Arc;

/// Index, among the synchronization words of a target, of the first word of the element lock, which
/// provides atomicity for elements that have no lock-free atomic operations. The words before
/// `CLOSED` are the lock that dtl_win_lock acquires on the target.
const ELEMENTS: usize = 48;
/// Index of the synchronization word that a target sets when it destroys the window. Before that,
/// nothing writes to the cache line of this word.
const CLOSED: usize = ELEMENTS - 1;
const _: () = assert!(ELEMENTS + robust_rwlock::words(0) <= PART_WORDS);
/// Maximum number of bytes that an operation updates before it releases the element lock, so that
/// other ranks wait for less than a microsecond. It is a multiple of every element size.
const RUN: usize = 16 << 10;
/// Minimum size, in bytes, of a copy that first checks whether source and destination overlap.
const LONG: usize = 4096;
/// Number of polls for which a rank that waits for a lock yields to ranks that have requested
/// exclusive access.
const POLITE: u32 = 2_000;
/// Number of polls after which a waiting rank repeats its own request for exclusive access.
const WISH_EVERY: u32 = 32;
/// Minimum interval, in nanoseconds, between two checks for dead ranks.
const LOOK_EVERY_NS: u64 = 5_000_000;

/// RMA path of a window whose memory every rank can access with loads and stores.
pub(super) struct Direct {
    comm: Arc<Comm>,
    /// Window memory and locks of each rank, indexed by rank.
    targets: Vec<Target>,
    /// Time of this rank's last check for dead ranks, in nanoseconds of the coarse monotonic clock.
    looked_ns: AtomicU64,
}

struct Target {
    /// Window memory of the target, as mapped in this process.
    memory: Region,
    part: Box<dyn SharedRegion>,
}

impl Target {
    fn lock(&self) -> Option<SharedLock<'_>> {
        SharedLock::new(self.part.words().get(..CLOSED)?)
    }

    /// Returns the target's element lock, which protects updates of elements for which the
    /// processor has no lock-free atomics. A rank acquires the lock in exclusive mode, and holds it
    /// for at most one operation.
    fn elements(&self) -> Option<SharedLock<'_>> {
        SharedLock::new(self.part.words().get(ELEMENTS..)?)
    }

    /// Returns true if the target has destroyed the window.
    #[inline]
    fn is_closed(&self) -> bool {
        self.part.words().get(CLOSED).is_some_and(|word| word.load(Acquire) != 0)
    }
}

/// Returns true if the synchronization words that are allocated with a target's memory suffice for
/// the locks of a window with `ranks` ranks.
pub(super) fn has_room(ranks: usize) -> bool {
    robust_rwlock::words(ranks) <= CLOSED
}

/// Copies between a buffer of the caller and the memory of a target.
#[inline]
fn copy(into: Region, from: Region) {
    if from.len() < LONG || into.overlaps(from) {
        into.copy_from(from);
    } else {
        into.copy_across(from);
    }
}

impl Direct {
    /// Creates the RMA path. Maps the window memory of the other ranks, which `keys` identify.
    /// `own` is the window memory of this rank.
    pub(super) fn new(
        comm: Arc<Comm>,
        own: Box<dyn SharedRegion>,
        keys: &[PartKey],
    ) -> Result<Self> {
        let mut own = Some(own);
        let mut find = |(rank, key): (i32, &PartKey)| -> Result<Target> {
            let part = match own.take_if(|_| rank == comm.rank) {
                Some(own) => own,
                None => {
                    let shared = comm.link.shared_memory.as_ref().ok_or_else(|| {
                        failure!(DTL_ERROR_NOT_SUPPORTED, "the ranks share no memory")
                    })?;
                    shared.part().find_part(comm.to_world(rank), *key)?
                }
            };
            Ok(Target { memory: part.region(), part })
        };
        let targets = (0..).zip(keys).map(&mut find).collect::<Result<_>>()?;
        Ok(Direct { comm, targets, looked_ns: AtomicU64::new(0) })
    }

    #[inline]
    fn target(&self, rank: i32) -> Result<&Target> {
        let target = self.targets.get(rank as usize);
        target.ok_or_else(|| failure!(DTL_ERROR_INTERNAL, "the window has no rank {rank}"))
    }

    /// Returns the window memory of all ranks, in rank order.
    pub(super) fn memories(&self) -> impl Iterator<Item = Region> {
        self.targets.iter().map(|target| target.memory)
    }

    fn own(&self) -> usize {
        self.comm.rank.unsigned_abs() as usize
    }

    fn has_left(&self, rank: usize) -> bool {
        i32::try_from(rank).is_ok_and(|rank| self.comm.has_closed(rank))
    }

    /// Makes progress on all operations, which also detects dead ranks.
    fn look_around(&self) {
        self.comm.look_around();
        progress::others(&self.comm);
    }

    fn lock_one(&self, rank: i32, exclusive: bool, deadline: Deadline) -> Result<()> {
        let own = self.own();
        let lock = self.target(rank)?.lock().ok_or_else(no_words)?;
        let attempt = |polls: u32| match exclusive {
            true => lock.try_exclusive(own, false),
            false => lock.try_shared(own, polls < POLITE),
        };
        if attempt(0) {
            return Ok(());
        }
        let waited = self.wait_for(
            lock,
            exclusive,
            (&|| format!("the lock of target {rank}"), deadline),
            attempt,
        );
        if !exclusive && waited.is_err() {
            lock.leave_line(own);
        }
        waited
    }

    /// Waits for `lock`, which another rank holds: polls until `attempt` acquires it or, if all
    /// ranks that hold it have died or left, takes it over. In the error message, `what` names the
    /// lock.
    #[cold]
    fn wait_for(
        &self,
        lock: SharedLock<'_>,
        exclusive: bool,
        (what, deadline): (&dyn Fn() -> String, Deadline),
        attempt: impl Fn(u32) -> bool,
    ) -> Result<()> {
        let (own, mut is_next) = (self.own(), false);
        let (mut backoff, mut polls) = (Backoff::new(), 0_u32);
        let waited = loop {
            // No rank wakes a thread that waits for a lock word: it sleeps by the clock.
            self.comm.link.pause_with(&mut backoff, |_, _| false);
            polls = polls.saturating_add(1);
            if exclusive && polls % WISH_EVERY == 1 {
                is_next |= lock.wish(own);
            }
            // Other ranks yield to a rank that published its wish.
            if attempt(if is_next { POLITE } else { polls }) {
                break Ok(());
            }
            if !backoff.is_long() {
                continue;
            }
            if let Err(closed) = self.comm.check_open() {
                break Err(closed);
            }
            self.look_around();
            if lock.take_over(own, exclusive, |other| self.has_left(other)) {
                break Ok(());
            }
            if deadline.passed() {
                let holders =
                    (0..self.targets.len()).filter(|other| lock.is_in_the_way(*other, exclusive));
                break fail!(
                    DTL_ERROR_TIMEOUT,
                    "{} did not become free within {} ms (the communicator's time limit): {}",
                    what(),
                    self.comm.timeout_ns / 1_000_000,
                    who(holders)
                );
            }
        };
        if exclusive {
            lock.forget_wish(own);
        }
        waited
    }

    /// Calls `act` while this rank holds the element lock of the target `rank`.
    fn locked(&self, rank: i32, act: impl FnOnce()) -> Result<()> {
        let own = self.own();
        let lock = self.target(rank)?.elements().ok_or_else(no_words)?;
        if !lock.try_exclusive(own, true) {
            let what = || format!("the element lock of target {rank}");
            let attempt = |polls| lock.try_exclusive(own, polls < POLITE);
            self.wait_for(lock, true, (&what, self.comm.deadline()), attempt)?;
        }
        act();
        lock.leave_exclusive();
        Ok(())
    }

    /// Calls `act` while this rank holds the element lock of the target `rank`, provided that no
    /// other rank holds this lock or waits for it. Otherwise returns `None` without calling `act`.
    #[inline]
    pub(super) fn locked_at_once(&self, rank: i32, act: impl FnOnce()) -> Option<()> {
        let lock = self.target(rank).ok()?.elements();
        let lock = lock.filter(|lock| lock.try_exclusive(self.own(), true))?;
        act();
        lock.leave_exclusive();
        Some(())
    }

    /// Flushes one target on the fast path. Returns false if the caller must use the slow path,
    /// which checks whether the target is alive.
    #[inline]
    pub(super) fn flush_at_once(&self, target: i32) -> bool {
        fence(SeqCst);
        !self.is_due(wait::coarse_ns())
            && !self.comm.has_closed(target)
            && self.target(target).is_ok_and(|target| !target.is_closed())
    }

    fn is_due(&self, now: u64) -> bool {
        now.wrapping_sub(self.looked_ns.load(Relaxed)) >= LOOK_EVERY_NS
    }

    /// Fails if a target is known to have died, to have closed the transport, or to have destroyed
    /// the window. The window memory of such a target remains mapped.
    fn check_alive(&self, targets: &Range<i32>) -> Result<()> {
        let now = wait::coarse_ns();
        if self.is_due(now) {
            self.looked_ns.store(now, Relaxed);
            self.look_around();
        }
        for rank in targets.clone() {
            if self.comm.has_closed(rank) {
                return fail!(DTL_ERROR_RANK_FAILURE, "target {rank} has died or left");
            }
            if self.target(rank)?.is_closed() {
                return fail!(
                    DTL_ERROR_RANK_FAILURE,
                    "target {rank} has destroyed the window after a failure: destroy it here, too"
                );
            }
        }
        Ok(())
    }
}

/// Returns a string that lists the ranks that hold a lock, for error messages.
fn who(ranks: impl Iterator<Item = usize>) -> String {
    match ranks.map(|rank| rank.to_string()).collect::<Vec<_>>() {
        ranks if ranks.is_empty() => "another rank has it".to_owned(),
        ranks => format!("another rank has it: {}", ranks.join(", ")),
    }
}

#[cold]
fn no_words() -> Error {
    failure!(DTL_ERROR_INTERNAL, "a part of the window has too few words for its locks")
}

impl RmaPath for Direct {
    fn describe(&self) -> &'static str {
        "loads, stores and atomics on memory that all ranks share"
    }

    #[inline]
    fn start(&self, at: TargetRange, op: &RmaOp, wants_ticket: TicketRequest) -> Result<RmaStart> {
        let memory = self.target(at.target)?.memory.part(at.offset, at.len);
        match *op {
            RmaOp::Put(from) => copy(memory, from),
            RmaOp::Get(into) => copy(into, memory),
            RmaOp::Accumulate { from, result, by } if by.update.is_lock_free(memory) => {
                by.update.apply(memory, from, result);
            }
            RmaOp::Accumulate { from, result, by } => {
                for start in (0..at.len).step_by(RUN) {
                    let run = |all: Region| all.part(start, RUN);
                    let apply = || by.update.apply_locked(run(memory), run(from), run(result));
                    self.locked(at.target, apply)?;
                }
            }
            RmaOp::CompareAndSwap(Swap { value, expected, result, .. }) => {
                let swap = elements::Swap { value, expected, result };
                if elements::is_lock_free(memory, memory.len()) {
                    elements::compare_and_swap(memory, swap);
                } else {
                    let swap = || elements::compare_and_swap_locked(memory, swap);
                    self.locked(at.target, swap)?;
                }
            }
        }
        if wants_ticket {
            // No flush follows that would detect a dead target.
            self.check_alive(&(at.target..at.target + 1))?;
        }
        Ok(None)
    }

    fn lock(&self, targets: Range<i32>, exclusive: bool) -> Result<()> {
        self.check_alive(&targets)?;
        let deadline = self.comm.deadline();
        // One after the other: a waiting rank has locks of lower ranks only, so there is no
        // deadlock.
        for rank in targets.clone() {
            if let Err(error) = self.lock_one(rank, exclusive, deadline) {
                return self.leave(targets.start..rank).and(Err(error));
            }
        }
        Ok(())
    }

    fn leave(&self, targets: Range<i32>) -> Result<()> {
        let locks = targets.filter_map(|rank| self.target(rank).ok()?.lock());
        locks.for_each(|lock| lock.leave(self.own()));
        Ok(())
    }

    /// Executes a memory fence, which makes the effects of all operations visible to the other
    /// ranks, whichever locations those ranks read. The operations have already completed in the
    /// calls that started them.
    #[inline]
    fn flush(&self, targets: Range<i32>, reach: FlushScope) -> Result<()> {
        if reach == FlushScope::Local {
            return Ok(());
        }
        fence(SeqCst);
        self.check_alive(&targets)
    }

    fn is_over(&self, _ticket: Ticket) -> Result<bool> {
        Ok(true)
    }

    fn cancel(&self, _ticket: Ticket) -> Result<()> {
        Ok(())
    }

    /// Marks the window memory of this rank as closed, so that ranks that lock or flush this target
    /// after a failure receive an error. Owners of remaining references to the RMA path must not
    /// call its methods any more. The memory is released with the last reference.
    fn close(&self, _together: bool) {
        let own = self.targets.get(self.own());
        if let Some(word) = own.and_then(|own| own.part.words().get(CLOSED)) {
            word.store(1, Release);
        }
    }
}
