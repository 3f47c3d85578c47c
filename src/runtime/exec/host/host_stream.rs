//! The library's own in-order queue: a worker thread that runs tasks one after another.
//!
//! The first task creates the worker. The worker parks while the queue is empty. A failing task
//! does not stop the queue: later tasks still run, so a callback for which a thread waits is always
//! called. The queue stores the first failure: events that are recorded after the failed task
//! report this failure, and the next `synchronize` returns and clears it.
//!
//! `stream` and `executor` use the queue.

use crate::abi::runtime::dtl_task_fn_t;
use crate::error::{Error, Result, fail, failure};
use crate::runtime::exec::fence::{Fence, timed_out};
use crate::runtime::exec::kernel::Grid;
use crate::runtime::exec::{host_callback, reentrancy};
use crate::runtime::open_state;
use crate::runtime::registry::Backend;
use crate::runtime::trace::{self, Args};
use crate::sys::handles::epoch;
use crate::sys::memory::buf::Addr;
use crate::sys::os::process::spawn;
use crate::sys::sync::lock::{Condvar, Mutex};
use crate::sys::sync::wait::Deadline;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle, ThreadId};

/// Initial capacity of a queue in tasks. A queue allocates memory again only when it contains more
/// tasks.
const CAPACITY: usize = 64;
/// Number of polls before the worker or a synchronizing thread parks. The polls take about 10
/// microseconds, as long as a wake-up.
const SPINS: u32 = 300;

/// Piece of work in a queue. The worker runs the pieces in the order in which they were queued.
#[allow(clippy::large_enum_variant, reason = "a boxed launch would allocate at each launch")]
pub enum StreamWork {
    /// Calls a user callback with its user pointer.
    Call(dtl_task_fn_t, Addr),
    /// Runs a kernel over its grid.
    Launch(Grid),
    /// Waits until work in another queue completes a fence. If that work fails, its error becomes
    /// an error of this queue.
    Await(Arc<Fence>),
    /// Runs a closure.
    Run(Box<dyn FnOnce() -> Result<()> + Send>),
}

#[allow(clippy::large_enum_variant, reason = "as above")]
enum StreamTask {
    Work(StreamWork),
    /// Completes a fence to signal that all preceding tasks have completed.
    Mark(Arc<Fence>),
}

/// In-order task queue with one worker thread.
pub struct HostStream {
    shared: Arc<StreamShared>,
}

struct StreamShared {
    backend: Arc<Backend>,
    device: i32,
    /// Number of tasks queued so far; equal to `completed` while the queue is idle. Written while
    /// `state` is locked.
    submitted: AtomicU64,
    completed: AtomicU64,
    /// True if `StreamState::failure` is set.
    failed: AtomicBool,
    state: Mutex<StreamState>,
    /// Condition variable on which the worker waits for new tasks.
    work: Condvar,
    /// Condition variable on which synchronizing threads wait for the completion of tasks.
    progress: Condvar,
}

#[derive(Default)]
struct StreamState {
    tasks: VecDeque<StreamTask>,
    failure: Option<Error>,
    worker: Option<JoinHandle<()>>,
    worker_id: Option<ThreadId>,
    parked: bool,
    closing: bool,
    /// Lowest value of `completed` for which any synchronizing thread waits.
    wanted: u64,
}

impl HostStream {
    /// Creates an empty queue. Its worker thread makes `device` current before it runs the first
    /// task.
    pub fn new(backend: Arc<Backend>, device: i32) -> Self {
        let tasks = VecDeque::with_capacity(CAPACITY);
        let state = StreamState { tasks, wanted: u64::MAX, ..StreamState::default() };
        HostStream {
            shared: Arc::new(StreamShared {
                backend,
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

    /// Appends work to the queue. Fails with CANCELED if the queue is closing.
    pub fn push(&self, work: StreamWork) -> Result<()> {
        self.push_with(|| work)
    }

    /// Appends the work that `make` returns to the queue. Calls `make` only when the append can no
    /// longer fail.
    pub(crate) fn push_with(&self, make: impl FnOnce() -> StreamWork) -> Result<()> {
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
        let worker = spawn("dtl-stream", move || reentrancy::during(id, || shared.work_off()));
        let worker = worker.map_err(|error| {
            failure!(
                DTL_ERROR_LIMIT,
                "no thread for a stream ({error}); raise the limit on threads"
            )
        })?;
        state.worker_id = Some(worker.thread().id());
        state.worker = Some(worker);
        Ok(())
    }

    /// Returns true if all tasks queued so far have completed. May return false shortly after the
    /// fence of the last task has completed, because the worker counts a task only after it
    /// completes the fence.
    pub fn is_idle(&self) -> bool {
        self.shared.is_idle()
    }

    /// Returns true if all tasks queued so far have completed. Unlike `is_idle`, always returns
    /// true if the last task completes a fence and a thread has observed that the fence is
    /// complete.
    pub fn is_finished(&self) -> bool {
        if self.is_idle() {
            return true;
        }
        // the worker holds this lock while it completes and counts a mark
        let _state = self.shared.state.lock();
        self.is_idle()
    }

    /// Returns the first failure that no call to `synchronize` has returned yet; `None` if there is
    /// none.
    pub fn failure(&self) -> Option<Error> {
        if !self.shared.failed.load(Ordering::Acquire) {
            return None;
        }
        self.shared.state.lock().failure.clone()
    }

    /// Marks the current end of the queue. If the queue is idle, calls `now` with the unreported
    /// failure, if any. Otherwise queues a task that completes the fence (completion state)
    /// returned by `later`.
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

    /// Records in `fence` that work of this queue completes it, so that a wait for the fence inside
    /// such work fails instead of deadlocking. Returns the fence.
    pub(crate) fn own(&self, fence: Arc<Fence>) -> Arc<Fence> {
        fence.belongs_to(self.id());
        fence
    }

    /// Returns the id of this queue for `reentrancy`: the address of the queue's shared state.
    fn id(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    /// Waits for all tasks queued so far. Returns and clears the first failure. Fails with TIMEOUT
    /// if the tasks have not completed at the deadline. `whose` names the owner of the queue in the
    /// error message.
    pub fn wait(&self, whose: &str, deadline: Deadline) -> Result<()> {
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
            let Some(woken) = shared.progress.wait_until(state, deadline) else {
                return timed_out(whose);
            };
            state = woken;
        }
        shared.failed.store(false, Ordering::Release);
        state.failure.take().map_or(Ok(()), Err)
    }

    /// Returns true if the calling thread is the worker thread of this queue.
    pub fn is_current(&self) -> bool {
        self.shared.state.lock().worker_id == Some(thread::current().id())
    }

    /// Closes the queue: rejects new tasks, finishes the queued tasks and ends the worker. If the
    /// caller is the worker itself, does not wait: the worker ends after the last task.
    pub fn close(&self) {
        let mut state = self.shared.state.lock();
        state.closing = true;
        let worker = state.worker.take();
        let own = state.worker_id == Some(thread::current().id());
        self.shared.work.notify_one();
        drop(state);
        if let Some(worker) = worker.filter(|_| !own) {
            let _ = worker.join(); // the worker catches panics, so `join` cannot fail
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
        // In this order: a task that counts as completed at the first load counts as submitted at
        // the second load.
        let completed = self.completed.load(Ordering::Acquire);
        completed == self.submitted.load(Ordering::Acquire)
    }

    /// Runs the tasks of the queue until the queue is closed and empty. Main function of the
    /// worker.
    fn work_off(&self) {
        open_state::enter_own_thread();
        let bound = crate::runtime::exec::bind(&self.backend, self.device);
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
                    // Under the lock, so that the fence and the count change together (see
                    // `is_finished`).
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

    /// Counts a completed task, and wakes the synchronizing threads if `completed` has reached
    /// `wanted`.
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
    catch_unwind(AssertUnwindSafe(|| run(work))).unwrap_or_else(|_| {
        fail!(DTL_ERROR_INTERNAL, "a task of a stream panicked; please report this bug")
    })
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
        StreamWork::Call(function, user) => host_callback(function, user),
        StreamWork::Launch(grid) => grid.run(),
        StreamWork::Await(fence) => fence.join(),
        StreamWork::Run(work) => work(),
    }
}
