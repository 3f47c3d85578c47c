//! Executors run host functions and loops: inline, on one thread, on a thread pool or through a
//! backend.
//!
//! `thread_pool` distributes a loop among threads; `reduce` makes reductions deterministic.

use super::event::{Event, EventImpl as EventBody};
use super::fence::Fence;
use super::host::closure_table;
use super::host::host_stream::{HostStream, StreamWork};
use super::host::thread_pool::{self, LoopBody, ThreadPool, run_in_order};
use super::{host_of, outcome};
use crate::abi::devices::exec::*;
use crate::abi::status::*;
use crate::error::{Error, Result, fail};
use crate::from_c::blank;
use crate::runtime::registry::Backend;
use crate::sys::memory::buf::Addr;
use crate::sys::sync::lock::Mutex;
use crate::sys::sync::wait::Deadline;
use std::ffi::c_void;
use std::sync::Arc;

/// User-defined task function, never NULL.
pub type TaskFn = extern "C" fn(*mut c_void) -> dtl_status_t;

/// Execution resource that runs functions and loops on the host.
pub struct Executor {
    backend: Arc<Backend>,
    body: ExecutorKind,
}

enum ExecutorKind {
    /// Runs functions on the calling thread. Stores the first failure of a function passed to
    /// `run_async` until `synchronize` reports it.
    Inline(Mutex<Option<Error>>),
    Sequential(HostStream),
    Pool(ThreadPool),
    /// Runs functions through the host execution functions of the backend. These functions are
    /// synchronous, so a queue of the library runs the functions passed to `run_async`.
    Backend(HostStream),
}

impl Executor {
    /// Creates an executor of the given kind (0 = the backend's host execution if the backend
    /// implements it, else a thread pool). `threads` is the number of threads of the pool (0 =
    /// default).
    pub fn create(backend: Arc<Backend>, kind: u32, threads: u32) -> Result<Self> {
        let hosts = backend.exec.as_deref().is_some_and(|exec| exec.host().is_some());
        let queue = || HostStream::new(Arc::clone(&backend), 0);
        let body = match kind {
            DTL_EXECUTOR_INLINE => ExecutorKind::Inline(Mutex::new(None)),
            DTL_EXECUTOR_SEQUENTIAL => ExecutorKind::Sequential(queue()),
            DTL_EXECUTOR_BACKEND if !hosts => {
                return fail!(
                    DTL_ERROR_NOT_SUPPORTED,
                    "backend '{}' has no host execution of its own; use DTL_EXECUTOR_POOL",
                    backend.name()
                );
            }
            0 | DTL_EXECUTOR_BACKEND if hosts => ExecutorKind::Backend(queue()),
            0 | DTL_EXECUTOR_POOL => ExecutorKind::Pool(ThreadPool::new(pool_size(threads)?)),
            _ => {
                return fail!(
                    DTL_ERROR_INVALID_ARGUMENT,
                    "executor kind {kind} is unknown; use DTL_EXECUTOR_INLINE \
                     ({DTL_EXECUTOR_INLINE}), DTL_EXECUTOR_SEQUENTIAL ({DTL_EXECUTOR_SEQUENTIAL}), \
                     DTL_EXECUTOR_POOL ({DTL_EXECUTOR_POOL}), DTL_EXECUTOR_BACKEND \
                     ({DTL_EXECUTOR_BACKEND}), or 0: the backend's own, else POOL"
                );
            }
        };
        Ok(Executor { backend, body })
    }

    /// Runs a function, waits for its end and returns its status as the result.
    pub fn run(&self, function: TaskFn, user: Addr) -> Result<()> {
        match &self.body {
            ExecutorKind::Inline(_) | ExecutorKind::Pool(_) => call(function, user),
            ExecutorKind::Sequential(queue) => on_worker(queue, move || call(function, user)),
            ExecutorKind::Backend(_) => host_of(&self.backend)?.execute((Some(function), user)),
        }
    }

    /// Runs a function asynchronously. `event`, if passed, completes when the function has ended,
    /// and then reports the failure of the function, if any. `synchronize` also reports the
    /// failure.
    pub fn run_async(&self, function: TaskFn, user: Addr, event: Option<&Event>) -> Result<()> {
        let own = match event.map(|event| (&event.body, event)) {
            None => None,
            Some((EventBody::Own(own), _)) => Some(own),
            Some((EventBody::Backend(_), event)) => {
                return fail!(
                    DTL_ERROR_INVALID_ARGUMENT,
                    "events of backend '{}' follow its own streams only; make the event for \
                     backend 'host'",
                    event.backend().name()
                );
            }
        };
        let fence = || own.map_or_else(|| Arc::new(Fence::pending()), |own| own.begin());
        match &self.body {
            ExecutorKind::Inline(failure) => {
                let fence = fence();
                let result = call(function, user);
                fence.complete(result.clone().err());
                if let Err(error) = result {
                    failure.lock().get_or_insert(error);
                }
                Ok(())
            }
            ExecutorKind::Sequential(queue) => {
                queue.push_with(|| marked(queue.own(fence()), move || call(function, user)))
            }
            ExecutorKind::Pool(pool) => pool.enqueue(move || call(function, user), fence),
            ExecutorKind::Backend(queue) => {
                let backend = Arc::clone(&self.backend);
                let work = move || host_of(&backend)?.execute((Some(function), user));
                queue.push_with(|| marked(queue.own(fence()), work))
            }
        }
    }

    /// Runs a loop over `range` in pieces of `grain` iterations (0 = the executor chooses the
    /// number) and waits until all iterations have run.
    pub fn parallel_for(
        &self,
        range: (u64, u64),
        grain: u64,
        body: thread_pool::RangeFn,
        user: Addr,
    ) -> Result<()> {
        let (begin, end) = range;
        check_range(begin, end)?;
        if begin == end {
            return Ok(());
        }
        if let ExecutorKind::Backend(_) = &self.body {
            let host = host_of(&self.backend)?;
            let grain = self.backend_grain(end - begin, grain)?;
            return host.parallel_for(range, grain, (Some(body), user));
        }
        self.run_loop(begin, end, grain, LoopBody::User(body, user))
    }

    /// Runs a loop body over `begin..end`; the caller must have checked the range. `grain` is the
    /// number of iterations in a piece; if it is 0, the executor chooses the number.
    pub fn run_loop(&self, begin: u64, end: u64, grain: u64, body: LoopBody) -> Result<()> {
        let whole = if grain == 0 { end - begin } else { grain };
        match &self.body {
            ExecutorKind::Inline(_) => run_in_order(begin, end, whole, &body),
            ExecutorKind::Pool(pool) => pool.run(begin, end, grain, body),
            ExecutorKind::Sequential(queue) => {
                on_worker(queue, move || run_in_order(begin, end, whole, &body))
            }
            ExecutorKind::Backend(_) => {
                self.run_by_backend(begin, end, self.backend_grain(end - begin, grain)?, body)
            }
        }
    }

    /// Runs a loop body through the backend's `parallel_for`. That function accepts only C
    /// functions, so the body is registered in `closure_table`.
    fn run_by_backend(&self, begin: u64, end: u64, grain: u64, body: LoopBody) -> Result<()> {
        let failure = Arc::new(Mutex::new(None));
        let keep = Arc::clone(&failure);
        let piece = closure_table::RegisteredBody::new(Arc::new(move |from, to| {
            match body.call(from, to) {
                Ok(()) => DTL_SUCCESS,
                Err(error) => {
                    let status = error.status();
                    keep.lock().get_or_insert(error);
                    status
                }
            }
        }));
        let host = host_of(&self.backend)?;
        let result =
            host.parallel_for((begin, end), grain, (Some(closure_table::piece), piece.user()));
        let failure = failure.lock().take();
        failure.map_or(result, Err)
    }

    fn backend_grain(&self, iterations: u64, grain: u64) -> Result<u64> {
        if grain > 0 {
            return Ok(grain);
        }
        let pieces = u64::from(self.info()?.suggested_parallelism).max(1);
        Ok(iterations.div_ceil(pieces))
    }

    /// Waits for all functions started by `run_async`. Returns the first failure of these
    /// functions, if any, and clears it. Fails with TIMEOUT if they have not ended at the deadline.
    pub fn wait(&self, deadline: Deadline) -> Result<()> {
        match &self.body {
            ExecutorKind::Inline(failure) => failure.lock().take().map_or(Ok(()), Err),
            ExecutorKind::Sequential(queue) | ExecutorKind::Backend(queue) => {
                queue.wait("an executor", deadline)
            }
            ExecutorKind::Pool(pool) => pool.wait(deadline),
        }
    }

    /// Returns the kind of the executor, and its maximum and suggested parallelism.
    pub fn info(&self) -> Result<dtl_executor_info_t> {
        let (kind, max_parallelism, suggested_parallelism) = match &self.body {
            ExecutorKind::Inline(_) => (DTL_EXECUTOR_INLINE, 1, 1),
            ExecutorKind::Sequential(_) => (DTL_EXECUTOR_SEQUENTIAL, 1, 1),
            ExecutorKind::Pool(pool) => (DTL_EXECUTOR_POOL, pool.size(), pool.size()),
            ExecutorKind::Backend(_) => {
                let host = host_of(&self.backend)?;
                let most = host.max_parallelism()?;
                (DTL_EXECUTOR_BACKEND, most, host.suggested_parallelism()?.unwrap_or(most))
            }
        };
        Ok(dtl_executor_info_t { kind, max_parallelism, suggested_parallelism, ..blank() })
    }

    /// Closes the executor: rejects new work, finishes the queued work and ends the threads. Called
    /// after the handle is destroyed.
    pub fn close(&self) {
        match &self.body {
            ExecutorKind::Inline(_) => {}
            ExecutorKind::Sequential(queue) | ExecutorKind::Backend(queue) => queue.close(),
            ExecutorKind::Pool(pool) => pool.close(),
        }
    }
}

/// Fails if `begin` is greater than `end`.
pub fn check_range(begin: u64, end: u64) -> Result<()> {
    if begin > end {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "the range {begin}..{end} ends before it begins; pass begin <= end"
        );
    }
    Ok(())
}

fn pool_size(threads: u32) -> Result<u32> {
    if threads > thread_pool::LARGEST {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "a pool of {threads} threads is larger than the {} allowed; 0 chooses a size",
            thread_pool::LARGEST
        );
    }
    Ok(if threads == 0 { thread_pool::default_size() } else { threads })
}

fn call(function: TaskFn, user: Addr) -> Result<()> {
    outcome(|| function(user.ptr()), || "an executor's task".to_owned())
}

/// Wraps `work` in a work item for a queue. The item runs `work`, then completes the fence with the
/// result, and also returns the result to the queue.
fn marked(fence: Arc<Fence>, work: impl FnOnce() -> Result<()> + Send + 'static) -> StreamWork {
    StreamWork::Run(Box::new(move || {
        let result = work();
        fence.complete(result.clone().err());
        result
    }))
}

/// Runs `work` on the worker thread of `queue` and waits for it. If the caller is that thread, runs
/// `work` directly.
fn on_worker(queue: &HostStream, work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    if queue.is_current() {
        return work();
    }
    let fence = Arc::new(Fence::pending());
    let done = Arc::clone(&fence);
    queue.push(StreamWork::Run(Box::new(move || {
        // the caller reports the failure, so the queue must not report it again
        done.complete(work().err());
        Ok(())
    })))?;
    fence.join()
}
