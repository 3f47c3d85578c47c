//! A pool of host threads that share loops with their callers.
//!
//! A loop is cut into pieces of one size; whoever is free takes the next one, the caller too. So a
//! loop always gets done, nested or not, whether or not a worker comes to help: the caller waits
//! only for pieces that a worker has already begun, and those wait at most for loops nested deeper.
//! Workers are made at first use and park when there is nothing to do.
//!
//! Not here: kinds of executors and what a user sees (`executor`).

use super::fence::Fence;
use super::outcome;
use crate::abi::status::*;
use crate::error::{Error, Result, fail};
use crate::sys::buf::Addr;
use crate::sys::lock::{Condvar, Mutex};
use crate::sys::machine;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, ThreadId};

/// Pieces per thread when the caller leaves the grain to us: enough to even out uneven pieces.
const PIECES_PER_THREAD: u64 = 4;
/// Polls before a caller parks while workers finish its last pieces.
const SPINS: u32 = 200;
/// Largest pool: beyond it a number is surely a mistake.
pub const LARGEST: u32 = 4096;

/// A user's loop body, never NULL.
pub type RangeFn = extern "C" fn(u64, u64, *mut c_void) -> dtl_status_t;

/// What a loop runs for each piece.
pub enum Body {
    /// A user's function and its pointer.
    User(RangeFn, Addr),
    /// The library's own.
    Shared(Arc<dyn Fn(u64, u64) -> Result<()> + Send + Sync>),
}

impl Body {
    /// Runs the iterations begin … end-1.
    pub fn call(&self, begin: u64, end: u64) -> Result<()> {
        match self {
            Body::User(function, user) => match function(begin, end, user.ptr()) {
                DTL_SUCCESS => Ok(()),
                status => outcome(status, &format!("the loop body for {begin}..{end}")),
            },
            Body::Shared(body) => body(begin, end),
        }
    }
}

/// The number of threads when nobody says one: OMP_NUM_THREADS, else what affinity and the control
/// group's quota allow.
#[must_use]
pub fn default_size() -> u32 {
    let wanted = std::env::var("OMP_NUM_THREADS").ok();
    let first = wanted.as_deref().and_then(|list| list.split(',').next()?.trim().parse::<u32>().ok());
    match first {
        Some(threads) if threads > 0 => threads.min(LARGEST),
        _ => machine::usable_cores().min(LARGEST),
    }
}

/// The pool that launches on the host share, made at the first launch that needs it.
#[must_use]
pub fn machine() -> Arc<Pool> {
    Arc::clone(MACHINE.lock().get_or_insert_with(|| Arc::new(Pool::new(default_size()))))
}

static MACHINE: Mutex<Option<Arc<Pool>>> = Mutex::new(None);

/// Ends the machine pool's threads; a later launch makes a new one.
pub fn close_machine() {
    let pool = MACHINE.lock().take();
    if let Some(pool) = pool {
        pool.close();
    }
}

/// In a forked child: the pool's threads are the parent's, so a new one is made when needed.
pub fn forget_machine() {
    if let Some(pool) = MACHINE.lock().take() {
        std::mem::forget(pool);
    }
}

/// See the module's text.
pub struct Pool {
    size: u32,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Workers wait here.
    work: Condvar,
    /// Callers wait here for helpers to leave; synchronizers for tasks.
    change: Condvar,
}

#[derive(Default)]
struct State {
    loops: Vec<Arc<Loop>>,
    tasks: VecDeque<Box<dyn FnOnce() -> Result<()> + Send>>,
    workers: Vec<JoinHandle<()>>,
    ids: Vec<ThreadId>,
    parked: usize,
    closing: bool,
    /// Tasks queued or running.
    unfinished: usize,
    failure: Option<Error>,
}

/// A loop in progress.
struct Loop {
    begin: u64,
    end: u64,
    grain: u64,
    pieces: u64,
    next: AtomicU64,
    helpers: AtomicUsize,
    body: Body,
    failure: Mutex<Option<Error>>,
}

impl Pool {
    /// A pool of `size` threads, callers included. Makes no thread yet.
    #[must_use]
    pub fn new(size: u32) -> Self {
        let shared =
            Shared { state: Mutex::new(State::default()), work: Condvar::new(), change: Condvar::new() };
        Pool { size: size.max(1), shared: Arc::new(shared) }
    }

    /// Number of threads, the caller included.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The grain of a loop that leaves it open.
    #[must_use]
    pub fn grain(&self, iterations: u64) -> u64 {
        let pieces = if self.size == 1 { 1 } else { u64::from(self.size) * PIECES_PER_THREAD };
        iterations.div_ceil(pieces).max(1)
    }

    /// Runs begin … end-1 (begin ≤ end) in pieces of `grain` (0 = choose); the caller takes part.
    pub fn run(&self, begin: u64, end: u64, grain: u64, body: Body) -> Result<()> {
        let iterations = end - begin;
        let grain = if grain == 0 { self.grain(iterations) } else { grain };
        let pieces = iterations.div_ceil(grain);
        if pieces <= 1 || self.size == 1 {
            return run_in_order(begin, end, grain, &body);
        }
        let work = Arc::new(Loop {
            begin,
            end,
            grain,
            pieces,
            next: AtomicU64::new(0),
            helpers: AtomicUsize::new(0),
            body,
            failure: Mutex::new(None),
        });
        self.invite(&work);
        work.take_part();
        self.part_with(&work);
        let failure = work.failure.lock().take();
        failure.map_or(Ok(()), Err)
    }

    /// Shows a loop to the workers.
    fn invite(&self, work: &Arc<Loop>) {
        let mut state = self.shared.state.lock();
        let wanted = usize::try_from(work.pieces - 1).unwrap_or(usize::MAX).min(self.size as usize - 1);
        while state.workers.len() < wanted && self.add_worker(&mut state).is_ok() {}
        state.loops.push(Arc::clone(work));
        if wanted >= state.parked {
            self.shared.work.notify_all();
        } else {
            for _ in 0..wanted {
                self.shared.work.notify_one();
            }
        }
    }

    /// Waits until no worker is inside the loop any more.
    fn part_with(&self, work: &Arc<Loop>) {
        let mut spins = 0;
        while work.helpers.load(Ordering::Acquire) > 0 && spins < SPINS {
            std::hint::spin_loop();
            spins += 1;
        }
        let mut state = self.shared.state.lock();
        state.loops.retain(|other| !Arc::ptr_eq(other, work));
        while work.helpers.load(Ordering::Acquire) > 0 {
            state = self.shared.change.wait(state);
        }
    }

    /// Queues a task that a worker runs; its failure is the next `synchronize`'s.
    pub fn spawn(&self, work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
        self.spawn_with(|| Box::new(work))
    }

    /// As `spawn`, for a task that completes the fence which `record` gives.
    pub fn spawn_marked(
        &self,
        work: impl FnOnce() -> Result<()> + Send + 'static,
        record: impl FnOnce() -> Arc<Fence>,
    ) -> Result<()> {
        self.spawn_with(|| {
            let fence = record();
            Box::new(move || {
                let result = work();
                fence.complete(result.clone().err());
                result
            })
        })
    }

    fn spawn_with(&self, make: impl FnOnce() -> Box<dyn FnOnce() -> Result<()> + Send>) -> Result<()> {
        let mut state = self.shared.state.lock();
        if state.closing {
            return fail!(DTL_ERROR_CANCELED, "the executor is being destroyed and takes no more work");
        }
        if state.unfinished >= state.workers.len() && state.workers.len() < self.size as usize {
            let added = self.add_worker(&mut state);
            if state.workers.is_empty() {
                return added;
            }
        }
        state.tasks.push_back(make());
        state.unfinished += 1;
        // All of them: a wake-up meant for a loop's helper must not be the only one.
        self.shared.work.notify_all();
        Ok(())
    }

    fn add_worker(&self, state: &mut State) -> Result<()> {
        if state.closing {
            return fail!(DTL_ERROR_CANCELED, "the executor is being destroyed");
        }
        let shared = Arc::clone(&self.shared);
        match thread::Builder::new().name("dtl-pool".into()).spawn(move || shared.work_off()) {
            Ok(worker) => {
                state.ids.push(worker.thread().id());
                state.workers.push(worker);
                Ok(())
            }
            Err(error) => {
                fail!(DTL_ERROR_LIMIT, "no thread for an executor ({error}); raise the limit on threads")
            }
        }
    }

    /// Waits until all spawned tasks have run; reports and clears the first failure.
    pub fn synchronize(&self) -> Result<()> {
        let mut state = self.shared.state.lock();
        while state.unfinished > 0 {
            if state.ids.contains(&thread::current().id()) {
                return fail!(
                    DTL_ERROR_INVALID_STATE,
                    "an executor cannot be waited for by its own work; wait on another thread"
                );
            }
            state = self.shared.change.wait(state);
        }
        state.failure.take().map_or(Ok(()), Err)
    }

    /// Finishes the tasks queued and ends the workers (without waiting, if called by one of them).
    pub fn close(&self) {
        let mut state = self.shared.state.lock();
        state.closing = true;
        let workers = std::mem::take(&mut state.workers);
        let own = state.ids.contains(&thread::current().id());
        self.shared.work.notify_all();
        drop(state);
        if !own {
            workers.into_iter().for_each(|worker| drop(worker.join()));
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    /// A worker's life.
    fn work_off(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(work) = state.loops.iter().find(|work| work.has_pieces()).cloned() {
                work.helpers.fetch_add(1, Ordering::Relaxed);
                drop(state);
                work.take_part();
                state = self.state.lock();
                if work.helpers.fetch_sub(1, Ordering::Release) == 1 {
                    self.change.notify_all();
                }
            } else if let Some(task) = state.tasks.pop_front() {
                drop(state);
                let result = caught(task);
                state = self.state.lock();
                state.unfinished -= 1;
                if let Err(error) = result {
                    state.failure.get_or_insert(error);
                }
                if state.unfinished == 0 {
                    self.change.notify_all();
                }
            } else if state.closing {
                return;
            } else {
                state.parked += 1;
                state = self.work.wait(state);
                state.parked -= 1;
            }
        }
    }
}

impl Loop {
    fn has_pieces(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.pieces
    }

    /// Takes pieces until none is left or one has failed.
    fn take_part(&self) {
        loop {
            let piece = self.next.fetch_add(1, Ordering::Relaxed);
            if piece >= self.pieces {
                return;
            }
            let begin = self.begin + piece * self.grain;
            let end = begin + self.grain.min(self.end - begin);
            if let Err(error) = caught(|| self.body.call(begin, end)) {
                self.next.fetch_max(self.pieces, Ordering::Relaxed);
                self.failure.lock().get_or_insert(error);
                return;
            }
        }
    }
}

fn caught(work: impl FnOnce() -> Result<()>) -> Result<()> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| fail!(DTL_ERROR_INTERNAL, "work of an executor panicked; please report this bug"))
}

/// The same loop by the calling thread alone.
pub fn run_in_order(begin: u64, end: u64, grain: u64, body: &Body) -> Result<()> {
    let mut at = begin;
    while at < end {
        let stop = at + grain.max(1).min(end - at);
        body.call(at, stop)?;
        at = stop;
    }
    Ok(())
}
