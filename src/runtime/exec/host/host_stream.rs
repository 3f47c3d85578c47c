//! The library's own in-order queue: a worker thread that runs tasks one after another.
//!
//! The worker is made by the first task and parks when there is none. A failing task does not stop
//! the queue: tasks behind it still run, so that a callback which a thread waits for always comes.
//! The first failure sticks: events recorded behind it carry it, and the next `synchronize` reports
//! it once and clears it (as CUDA reports an asynchronous error).
//!
//! Not here: what a task means to a user (`stream`, `executor`).

use crate::abi::runtime::dtl_task_fn_t;
use crate::error::{Error, Result, fail};
use crate::runtime::exec::fence::{Fence, WaitOutcome};
use crate::runtime::exec::kernel::Grid;
use crate::runtime::exec::{outcome, reentrancy};
use crate::runtime::lifecycle;
use crate::runtime::registry::Backend;
use crate::runtime::trace::{self, Args};
use crate::sys::handles::epoch;
use crate::sys::memory::buf::Addr;
use crate::sys::os::thread::spawn;
use crate::sys::sync::clock::Deadline;
use crate::sys::sync::lock::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle, ThreadId};

/// Tasks that fit before the queue's memory grows.
const CAPACITY: usize = 64;
/// Polls before the worker or a synchronizer parks: some 10 microseconds, the price of a wake-up.
const SPINS: u32 = 300;

/// What a queue does in its order.
#[allow(clippy::large_enum_variant, reason = "a boxed launch would allocate at each launch")]
pub enum StreamWork {
    /// Calls a user's function.
    Call(dtl_task_fn_t, Addr),
    /// Runs a kernel over its grid.
    Launch(Grid),
    /// Waits for another queue's work; its failure becomes this queue's.
    Await(Arc<Fence>),
    /// Anything else.
    Run(Box<dyn FnOnce() -> Result<()> + Send>),
}

#[allow(clippy::large_enum_variant, reason = "as above")]
enum StreamTask {
    Work(StreamWork),
    /// Completes a fence: everything before it is done.
    Mark(Arc<Fence>),
}

/// In-order task queue with one worker thread.
pub struct HostStream {
    shared: Arc<StreamShared>,
}

struct StreamShared {
    home: Arc<Backend>,
    device: i32,
    /// Tasks ever queued and ever finished: equal = idle. Written under the lock.
    submitted: AtomicU64,
    completed: AtomicU64,
    /// Whether `State::failure` is set.
    failed: AtomicBool,
    state: Mutex<StreamState>,
    /// The worker waits here for tasks.
    work: Condvar,
    /// Synchronizers wait here for progress.
    progress: Condvar,
}

struct StreamState {
    tasks: VecDeque<StreamTask>,
    failure: Option<Error>,
    worker: Option<JoinHandle<()>>,
    worker_id: Option<ThreadId>,
    parked: bool,
    closing: bool,
    /// The lowest count of finished tasks that a synchronizer waits for.
    wanted: u64,
}

impl HostStream {
    /// An empty queue; its worker will make `device` current before its first task.
    #[must_use]
    pub fn new(home: Arc<Backend>, device: i32) -> Self {
        let state = StreamState {
            tasks: VecDeque::with_capacity(CAPACITY),
            failure: None,
            worker: None,
            worker_id: None,
            parked: false,
            closing: false,
            wanted: u64::MAX,
        };
        HostStream {
            shared: Arc::new(StreamShared {
                home,
                device,
                submitted: AtomicU64::new(0),
                completed: AtomicU64::new(0),
                failed: AtomicBool::new(false),
                state: Mutex::new(state),
                work: Condvar::new(),
                progress: Condvar::new(),
            }),
        }
    }

    /// Appends work.
    pub fn push(&self, work: StreamWork) -> Result<()> {
        self.push_with(|| work)
    }

    /// Appends the work that `make` gives; `make` is called only if nothing can fail any more.
    pub(in crate::runtime::exec) fn push_with(
        &self,
        make: impl FnOnce() -> StreamWork,
    ) -> Result<()> {
        self.append(&mut self.shared.state.lock(), || StreamTask::Work(make()))
    }

    fn append(&self, state: &mut StreamState, make: impl FnOnce() -> StreamTask) -> Result<()> {
        if state.closing {
            return fail!(
                DTL_ERROR_CANCELED,
                "the stream is being destroyed and takes no more work"
            );
        }
        if state.worker_id.is_none() {
            self.start_worker(state)?;
        }
        state.tasks.push_back(make());
        self.shared.submitted.fetch_add(1, Ordering::Release);
        if state.parked {
            self.shared.work.notify_one();
        }
        Ok(())
    }

    fn start_worker(&self, state: &mut StreamState) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let id = self.id();
        match spawn("dtl-stream", move || reentrancy::during(id, || shared.work_off())) {
            Ok(worker) => {
                state.worker_id = Some(worker.thread().id());
                state.worker = Some(worker);
                Ok(())
            }
            Err(error) => {
                fail!(
                    DTL_ERROR_LIMIT,
                    "no thread for a stream ({error}); raise the limit on threads"
                )
            }
        }
    }

    /// Returns true if every task queued so far is done. May lag behind the last event.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.shared.is_idle()
    }

    /// Returns true if every task queued so far is done. Does not lag behind an event: after the
    /// last mark was seen complete, the queue is idle.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        if self.is_idle() {
            return true;
        }
        let _state = self.shared.state.lock(); // held while a mark is completed and counted
        self.is_idle()
    }

    /// The failure that waits to be reported.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        if !self.shared.failed.load(Ordering::Acquire) {
            return None;
        }
        self.shared.state.lock().failure.clone()
    }

    /// Marks the present end: `now` if the queue is idle, else the fence that `later` gives is
    /// completed by the worker.
    pub fn mark(
        &self,
        now: impl FnOnce(Option<Error>),
        later: impl FnOnce() -> Arc<Fence>,
    ) -> Result<()> {
        if self.is_idle() {
            now(self.failure());
            return Ok(());
        }
        let mut state = self.shared.state.lock();
        if self.is_idle() {
            let failure = state.failure.clone();
            drop(state);
            now(failure);
            return Ok(());
        }
        self.append(&mut state, || StreamTask::Mark(self.own(later())))
    }

    /// Makes a fence one of this queue's work.
    pub(in crate::runtime::exec) fn own(&self, fence: Arc<Fence>) -> Arc<Fence> {
        fence.belongs_to(self.id());
        fence
    }

    /// Id of the queue in `current`.
    fn id(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    /// Waits for all tasks queued so far; reports and clears the failure. `whose` queue this is,
    /// for the text.
    pub fn synchronize(&self, whose: &str) -> Result<()> {
        let shared = &self.shared;
        if self.is_idle() && !shared.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        spin_until(|| shared.is_idle());
        let mut state = shared.state.lock();
        let target = shared.submitted.load(Ordering::Relaxed);
        while shared.completed.load(Ordering::Relaxed) < target {
            if state.worker_id == Some(thread::current().id()) {
                return fail!(
                    DTL_ERROR_INVALID_STATE,
                    "{whose} cannot be waited for by its own work; wait on another thread"
                );
            }
            state.wanted = state.wanted.min(target);
            state = shared.progress.wait(state);
        }
        shared.failed.store(false, Ordering::Release);
        state.failure.take().map_or(Ok(()), Err)
    }

    /// Returns true if the calling thread is the worker.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.shared.state.lock().worker_id == Some(thread::current().id())
    }

    /// Takes no more tasks, finishes those queued and ends the worker. Called by the worker
    /// itself it does not wait: the worker ends after the last task.
    pub fn close(&self) {
        let mut state = self.shared.state.lock();
        state.closing = true;
        let worker = state.worker.take();
        let own = state.worker_id == Some(thread::current().id());
        self.shared.work.notify_one();
        drop(state);
        if let Some(worker) = worker.filter(|_| !own) {
            let _ = worker.join(); // the worker catches panics, so there is none to pass on
        }
    }
}

impl Drop for HostStream {
    fn drop(&mut self) {
        self.close();
    }
}

fn spin_until(ready: impl Fn() -> bool) {
    for _ in 0..SPINS {
        if ready() {
            return;
        }
        std::hint::spin_loop();
    }
}

impl StreamShared {
    fn is_idle(&self) -> bool {
        // In this order: tasks that finished before the first load were counted before the second.
        let completed = self.completed.load(Ordering::Acquire);
        completed == self.submitted.load(Ordering::Acquire)
    }

    /// The worker's life.
    fn work_off(&self) {
        lifecycle::enter_own_thread();
        let bound = crate::runtime::exec::bind(&self.home, self.device);
        let mut state = self.state.lock();
        if let Err(error) = bound {
            self.keep(&mut state, error);
        }
        loop {
            let Some(task) = state.tasks.pop_front() else {
                if state.closing {
                    return;
                }
                drop(state);
                spin_until(|| !self.is_idle());
                state = self.state.lock();
                if state.tasks.is_empty() && !state.closing {
                    state.parked = true;
                    state = self.work.wait(state);
                    state.parked = false;
                }
                continue;
            };
            let work = match task {
                StreamTask::Work(work) => work,
                StreamTask::Mark(fence) => {
                    // Under the lock, so that fence and count change together (see `is_finished`).
                    fence.complete(state.failure.clone());
                    drop(fence);
                    self.count(&mut state);
                    continue;
                }
            };
            drop(state);
            let result = run_caught(work);
            state = self.state.lock();
            if let Err(error) = result {
                self.keep(&mut state, error);
            }
            self.count(&mut state);
        }
    }

    /// One more task is done.
    fn count(&self, state: &mut StreamState) {
        let completed = self.completed.fetch_add(1, Ordering::Release) + 1;
        if completed >= state.wanted {
            state.wanted = u64::MAX;
            self.progress.notify_all();
        }
    }

    fn keep(&self, state: &mut StreamState, error: Error) {
        if state.failure.is_none() {
            state.failure = Some(error);
            self.failed.store(true, Ordering::Release);
        }
    }
}

fn run_caught(work: StreamWork) -> Result<()> {
    let _aside = epoch::aside();
    match catch_unwind(AssertUnwindSafe(|| run(work))) {
        Ok(result) => result,
        Err(_) => fail!(DTL_ERROR_INTERNAL, "a task of a stream panicked; please report this bug"),
    }
}

fn run(work: StreamWork) -> Result<()> {
    let name = match &work {
        StreamWork::Call(..) => "host callback",
        StreamWork::Launch(_) => "kernel",
        StreamWork::Await(_) => "wait for an event",
        StreamWork::Run(_) => "task",
    };
    let _span = trace::span("stream", name, || Args::NONE);
    match work {
        StreamWork::Call(Some(function), user) => {
            outcome(|| function(user.ptr()), || "a stream's host callback".to_owned())
        }
        StreamWork::Call(None, _) => Ok(()),
        StreamWork::Launch(grid) => grid.run(),
        StreamWork::Await(fence) => match fence.wait(Deadline::NEVER, &AtomicBool::new(false))? {
            WaitOutcome::Done | WaitOutcome::Canceled => fence.failure().map_or(Ok(()), Err),
        },
        StreamWork::Run(work) => work(),
    }
}
