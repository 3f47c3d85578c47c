//! Pool of host threads that run loops together with the threads that start the loops.
//!
//! A loop is divided into pieces of equal size, and every thread gets a share of the pieces. A
//! thread that has finished its share steals pieces from the other shares. The calling thread also
//! executes pieces in this way. So every loop completes, even if it is nested or no worker helps.
//! The caller waits only for workers that run a piece of the loop, and these workers wait at most
//! for loops nested inside the piece. Workers are created at first use; idle workers soon sleep.
//!
//! `executor` defines the kinds of executors and their interface; `sys::compute::team` implements
//! the synchronization of threads and work stealing. docs/explanation/executor.md explains the
//! design.

use crate::abi::status::*;
use crate::error::{Error, Result, fail, failure};
use crate::runtime::exec::fence::{Fence, timed_out};
use crate::runtime::exec::outcome;
use crate::sys::compute::team::{self, PLACES, Shares, Team};
use crate::sys::handles::epoch;
use crate::sys::memory::buf::Addr;
use crate::sys::os::process::{self, spawn};
use crate::sys::sync::lock::{Condvar, Mutex};
use crate::sys::sync::wait::{Deadline, now_ns};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, ThreadId};

/// Number of pieces per thread if the caller passes no grain (number of iterations in a piece):
/// enough to balance pieces of different durations.
const PIECES_PER_THREAD: u64 = 4;
/// Minimum duration in nanoseconds of a worker's share of a loop. A worker that runs a shorter
/// share causes cache line transfers that take longer than the share.
const WORTH_HELPING_NS: u64 = 500;
/// Sampling interval: the duration of one of every SAMPLE loops is measured.
const SAMPLE: u32 = 4;
/// Maximum number of spin-wait pauses that a worker executes between two polls. Together they take
/// just under a microsecond.
const LAZIEST: u32 = 32;
/// Number of sleeping workers that a thread wakes at a time. A woken worker that finds more work
/// wakes further workers.
const WAKES: u32 = 2;
/// Maximum number of threads in a pool. A request for more threads fails.
pub const LARGEST: u32 = 4096;

/// User-defined loop body, never NULL.
pub type RangeFn = extern "C" fn(u64, u64, *mut c_void) -> dtl_status_t;

/// Loop body: function that is called for each piece (range of iterations) of a loop.
pub enum LoopBody {
    /// User-defined function and its user pointer.
    User(RangeFn, Addr),
    /// Closure created by the library.
    Shared(Arc<dyn Fn(u64, u64) -> Result<()> + Send + Sync>),
}

impl LoopBody {
    /// Runs the iterations begin ... end-1.
    pub fn call(&self, begin: u64, end: u64) -> Result<()> {
        match self {
            LoopBody::User(function, user) => outcome(
                || function(begin, end, user.ptr()),
                || format!("the loop body for {begin}..{end}"),
            ),
            LoopBody::Shared(body) => body(begin, end),
        }
    }
}

/// Returns the default number of threads: the first value of OMP_NUM_THREADS, else the number that
/// CPU affinity and the quota of the control group allow.
pub fn default_size() -> u32 {
    let wanted = std::env::var("OMP_NUM_THREADS").ok();
    let first =
        wanted.as_deref().and_then(|list| list.split(',').next()?.trim().parse::<u32>().ok());
    match first {
        Some(threads) if threads > 0 => threads.min(LARGEST),
        _ => process::usable_cores().min(LARGEST),
    }
}

/// Returns the pool that all kernel launches on the host share. Creates the pool at the first
/// launch that needs it.
pub fn machine() -> Arc<ThreadPool> {
    Arc::clone(MACHINE.lock().get_or_insert_with(|| Arc::new(ThreadPool::new(default_size()))))
}

static MACHINE: Mutex<Option<Arc<ThreadPool>>> = Mutex::new(None);

/// Ends the threads of the shared launch pool. A later launch creates a new pool.
pub fn close_machine() {
    let pool = MACHINE.lock().take();
    if let Some(pool) = pool {
        pool.close();
    }
}

/// Discards the shared launch pool in a forked child, where its threads do not exist. A later
/// launch creates a new pool.
pub fn forget_machine() {
    std::mem::forget(MACHINE.lock().take());
}

/// Pool of host threads that run loops together with the calling threads, and run queued tasks.
pub struct ThreadPool {
    shared: Arc<PoolShared>,
}

struct PoolShared {
    size: u32,
    team: Team<Loop>,
    /// For each loop in progress, the pieces (ranges of iterations) that no thread has taken yet.
    /// The index is the loop's position in `team`, which has one position for each concurrent loop.
    shares: Box<[Shares]>,
    /// Number of workers created.
    hired: AtomicUsize,
    /// Number of queued tasks. Workers read it without the lock to decide whether to check the
    /// queue.
    queued: AtomicUsize,
    closing: AtomicBool,
    state: Mutex<PoolState>,
    /// Condition variable on which synchronizing threads wait until all tasks have ended.
    change: Condvar,
}

#[derive(Default)]
struct PoolState {
    tasks: VecDeque<Box<dyn FnOnce() -> Result<()> + Send>>,
    workers: Vec<JoinHandle<()>>,
    ids: Vec<ThreadId>,
    /// Number of tasks queued or running.
    unfinished: usize,
    failure: Option<Error>,
}

/// Loop in progress; stored on the stack of the thread that started it.
struct Loop {
    begin: u64,
    end: u64,
    grain: u64,
    body: LoopBody,
    has_failed: AtomicBool,
    failure: Mutex<Option<Error>>,
}

impl ThreadPool {
    /// Creates a pool of `size` threads, including the caller. Does not start any threads yet.
    pub fn new(size: u32) -> Self {
        let size = size.max(1);
        let shared = PoolShared {
            size,
            team: Team::new(size > process::usable_cores()),
            shares: (0..PLACES).map(|_| Shares::new(size as usize)).collect(),
            hired: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
            state: Mutex::new(PoolState::default()),
            change: Condvar::new(),
        };
        ThreadPool { shared: Arc::new(shared) }
    }

    /// Returns the number of threads, including the caller.
    pub fn size(&self) -> u32 {
        self.shared.size
    }

    /// Returns the default grain of a loop with this number of iterations.
    pub fn grain(&self, iterations: u64) -> u64 {
        let pieces =
            if self.shared.size == 1 { 1 } else { u64::from(self.shared.size) * PIECES_PER_THREAD };
        iterations.div_ceil(pieces).max(1)
    }

    /// Runs the iterations begin ... end-1 (begin <= end) in pieces of `grain` iterations (0 =
    /// default grain), on the calling thread and on workers.
    pub fn run(&self, begin: u64, end: u64, grain: u64, body: LoopBody) -> Result<()> {
        let grain = if grain == 0 { self.grain(end - begin) } else { grain };
        if end - begin <= grain || self.shared.size == 1 {
            return run_in_order(begin, end, grain, &body);
        }
        // Seven concurrent loops are more than enough for the workers: a further caller runs its
        // loop alone.
        let place = self.shared.team.claim();
        let Some((mut place, shares)) =
            place.and_then(|it| self.shared.shares.get(it.index()).map(|s| (it, s)))
        else {
            return run_in_order(begin, end, grain, &body);
        };
        let round = grain.saturating_mul(team::MOST);
        let has_failed = AtomicBool::new(false);
        let mut work = Loop { begin, end, grain, body, has_failed, failure: Mutex::new(None) };
        while work.begin < end && !*work.has_failed.get_mut() {
            work.end = work.begin + round.min(end - work.begin);
            let pieces = (work.end - work.begin).div_ceil(grain);
            let helpers = self.hire(pieces - 1);
            shares.deal(pieces);
            place.open(&work, helpers.min(WAKES), || work.take_part(shares, 0));
            work.begin = work.end;
        }
        drop(place);
        work.failure.into_inner().map_or(Ok(()), Err)
    }

    /// Starts workers until there is one for each piece (range of iterations) of a loop, the pool
    /// has its full size, or no further thread can be created. Returns the number of workers
    /// requested for the loop, which may exceed the number of existing workers.
    fn hire(&self, pieces: u64) -> u32 {
        let wanted = u32::try_from(pieces).unwrap_or(u32::MAX).min(self.shared.size - 1);
        if self.shared.hired.load(Ordering::Relaxed) < wanted as usize {
            let mut state = self.shared.state.lock();
            while state.workers.len() < wanted as usize && self.add_worker(&mut state).is_ok() {}
        }
        wanted
    }

    /// Queues a task for a worker. When the task ends, the worker completes the fence (completion
    /// state) that `record` has returned. If the task fails, the next call to `synchronize` returns
    /// the error.
    pub fn enqueue(
        &self,
        work: impl FnOnce() -> Result<()> + Send + 'static,
        record: impl FnOnce() -> Arc<Fence>,
    ) -> Result<()> {
        let mut state = self.shared.state.lock();
        if self.shared.closing.load(Ordering::Relaxed) {
            return fail!(
                DTL_ERROR_CANCELED,
                "the executor is being destroyed and takes no more work"
            );
        }
        if state.unfinished >= state.workers.len()
            && state.workers.len() < self.shared.size as usize
        {
            let added = self.add_worker(&mut state);
            if state.workers.is_empty() {
                return added;
            }
        }
        let fence = record();
        state.tasks.push_back(Box::new(move || {
            let result = work();
            fence.complete(result.clone().err());
            result
        }));
        state.unfinished += 1;
        self.shared.queued.fetch_add(1, Ordering::Relaxed);
        drop(state);
        self.shared.team.announce(1);
        Ok(())
    }

    fn add_worker(&self, state: &mut PoolState) -> Result<()> {
        if self.shared.closing.load(Ordering::Relaxed) {
            return fail!(DTL_ERROR_CANCELED, "the executor is being destroyed");
        }
        let (shared, member) = (Arc::clone(&self.shared), state.workers.len() + 1);
        let worker = spawn("dtl-pool", move || shared.work_off(member)).map_err(|error| {
            failure!(
                DTL_ERROR_LIMIT,
                "no thread for an executor ({error}); raise the limit on threads"
            )
        })?;
        state.ids.push(worker.thread().id());
        state.workers.push(worker);
        self.shared.hired.store(state.workers.len(), Ordering::Relaxed);
        Ok(())
    }

    /// Waits until all queued tasks have ended. Returns and clears the first failure. Fails with
    /// TIMEOUT if they have not ended at the deadline.
    pub fn wait(&self, deadline: Deadline) -> Result<()> {
        let mut state = self.shared.state.lock();
        while state.unfinished > 0 {
            if state.ids.contains(&thread::current().id()) {
                return fail!(
                    DTL_ERROR_INVALID_STATE,
                    "an executor cannot be waited for by its own work; wait on another thread"
                );
            }
            let Some(woken) = self.shared.change.wait_until(state, deadline) else {
                return timed_out("an executor");
            };
            state = woken;
        }
        state.failure.take().map_or(Ok(()), Err)
    }

    /// Finishes the queued tasks and ends the workers. Does not wait if the caller is a worker.
    pub fn close(&self) {
        let mut state = self.shared.state.lock();
        self.shared.closing.store(true, Ordering::Release);
        let workers = std::mem::take(&mut state.workers);
        let own = state.ids.contains(&thread::current().id());
        drop(state);
        self.shared.team.announce(u32::MAX);
        if !own {
            workers.into_iter().for_each(|worker| drop(worker.join()));
        }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.close();
    }
}

impl PoolShared {
    /// Runs loops and tasks until the pool is closed. Main function of the worker with the index
    /// `member`.
    fn work_off(&self, member: usize) {
        crate::runtime::open_state::enter_own_thread();
        let mut zeal = Zeal::default();
        loop {
            let seen = self.team.news();
            let mut has_worked = false;
            self.team.visit(|place, work| {
                let Some(shares) = self.shares.get(place) else { return };
                if work.has_failed.load(Ordering::Relaxed) {
                    return;
                }
                let Some(first) = shares.take(member) else { return };
                self.pass_on(shares.is_any_left());
                zeal.measure(work, self.size, || work.run_piece(first));
                work.take_part(shares, member);
                has_worked = true;
            });
            if self.queued.load(Ordering::Relaxed) > 0 {
                self.run_task();
            } else if self.closing.load(Ordering::Acquire) {
                return;
            } else {
                self.team.rest(seen, zeal.pauses(has_worked));
            }
        }
    }

    /// Wakes sleeping workers if more pieces (ranges of iterations) of a loop (`is_more`) or queued
    /// tasks are available. Each worker that finds work calls this function, so one call needs to
    /// wake only a few workers.
    fn pass_on(&self, is_more: bool) {
        if self.team.has_sleepers() && (is_more || self.queued.load(Ordering::Relaxed) > 0) {
            self.team.wake(WAKES);
        }
    }

    fn run_task(&self) {
        let Some(task) = self.state.lock().tasks.pop_front() else { return };
        self.queued.fetch_sub(1, Ordering::Relaxed);
        self.pass_on(false);
        let aside = epoch::aside();
        let result = caught(task);
        drop(aside);
        let mut state = self.state.lock();
        state.unfinished -= 1;
        if let Err(error) = result {
            state.failure.get_or_insert(error);
        }
        if state.unfinished == 0 {
            self.change.notify_all();
        }
    }
}

impl Loop {
    /// Runs pieces (ranges of iterations) of the loop until all pieces have been taken or one has
    /// failed.
    fn take_part(&self, shares: &Shares, member: usize) {
        while !self.has_failed.load(Ordering::Relaxed) {
            match shares.take(member) {
                Some(piece) => self.run_piece(piece),
                None => return,
            }
        }
    }

    fn run_piece(&self, piece: u64) {
        let begin = self.begin + piece * self.grain;
        let end = begin + self.grain.min(self.end - begin);
        if let Err(error) = caught(|| self.body.call(begin, end)) {
            self.has_failed.store(true, Ordering::Relaxed);
            self.failure.lock().get_or_insert(error);
        }
    }
}

/// Polling interval of a worker. Every poll transfers a cache line away from the cores of the
/// calling threads, and the caller of a loop must wait until each worker that has joined the loop
/// leaves it. So a loop of less than a microsecond finishes sooner without workers. A worker
/// doubles its polling interval while it finds only such short loops, or no piece (range of
/// iterations) to run.
#[derive(Default)]
struct Zeal {
    visits: u32,
    is_wasted: bool,
    pauses: u32,
}

impl Zeal {
    /// Runs the first piece (range of iterations) of a loop in a worker. Measures the duration of
    /// the piece in one of every SAMPLE loops, or in every loop while the worker makes more than
    /// one pause between polls.
    fn measure(&mut self, work: &Loop, size: u32, run: impl FnOnce()) {
        self.visits = self.visits.wrapping_add(1);
        if self.pauses == 1 && self.visits % SAMPLE != 0 {
            return run();
        }
        let begin = now_ns();
        run();
        let shares = (work.end - work.begin) / work.grain / u64::from(size);
        self.is_wasted = (now_ns() - begin).saturating_mul(shares.max(1)) < WORTH_HELPING_NS;
    }

    /// Returns the number of pauses before the next poll. Doubles the number, up to LAZIEST, if the
    /// last poll found no useful work; otherwise resets it to 1.
    fn pauses(&mut self, has_worked: bool) -> u32 {
        let is_useful = has_worked && !self.is_wasted;
        self.pauses = if is_useful { 1 } else { (2 * self.pauses).clamp(1, LAZIEST) };
        self.pauses
    }
}

fn caught(work: impl FnOnce() -> Result<()>) -> Result<()> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        fail!(DTL_ERROR_INTERNAL, "work of an executor panicked; please report this bug")
    })
}

/// Runs a loop on the calling thread in ascending order, in pieces of `grain` iterations. The first
/// failure ends the loop.
pub fn run_in_order(begin: u64, end: u64, grain: u64, body: &LoopBody) -> Result<()> {
    let mut at = begin;
    while at < end {
        let stop = at + grain.max(1).min(end - at);
        body.call(at, stop)?;
        at = stop;
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests/thread_pool.rs"]
mod tests;
