//! A stream: a queue, and what `lanes` keeps beside it. OpenCL tells of a command's failure by that
//! command's event alone.
//!
//! Callbacks have a thread of their own, not a driver's: they may block. A barrier behind an event
//! of the host's holds the queue meanwhile. It is completed even if the callback failed: later work
//! runs.

use super::errors;
use super::kernel::Kernel;
use super::queue::{Mark, Queue};
use crate::abi::runtime::dtl_task_fn_t;
use crate::backend::driver::stream_callbacks::{Hold, Log, Piece, Task, Worker, collect};
use crate::error::{Error, Result, fail};
use crate::runtime::backend::ModuleLaunch;
use crate::sys::buf::{Addr, Region};
use crate::sys::lock::Mutex;
use std::sync::Arc;

/// One stream.
pub(super) struct Lane {
    queue: Queue,
    /// Whether the queue is the program's.
    pub(super) wrapped: bool,
    log: Arc<Mutex<Log<Work>>>,
    /// A marker for queries, and the number before it.
    probe: Mutex<Option<(Arc<Mark>, u64)>>,
    worker: Mutex<Option<Worker>>,
}

/// Work that can fail by itself.
enum Work {
    Copy(Mark),
    Fill(Mark),
    /// ... of the kernel of this name.
    Launch(Mark, Arc<str>),
    /// A barrier for another stream's record.
    Wait(Mark, Arc<Record>),
}

/// A point in a stream's work.
pub(super) struct Record {
    lane: Arc<Lane>,
    mark: Mark,
    /// Failures of work after this ...
    after: u64,
    /// ... and up to this are the record's.
    upto: u64,
}

/// The marker behind which the host works, and the one that the queue waits for.
struct Turn {
    before: Mark,
    done: Mark,
}

impl Hold for Turn {
    fn wait(&self) {
        let _ = self.before.wait(); // what failed is the work's before it
    }

    fn release(&self) {
        self.done.complete();
    }
}

impl Piece for Work {
    fn has_ended(&self) -> bool {
        match self {
            Work::Copy(mark) | Work::Fill(mark) | Work::Launch(mark, _) | Work::Wait(mark, _) => {
                mark.has_ended()
            }
        }
    }

    fn failure(&self) -> Option<Error> {
        match self {
            Work::Copy(mark) => errors::check(mark.code(), "a queued copy").err(),
            Work::Fill(mark) => errors::check(mark.code(), "a queued fill").err(),
            Work::Launch(mark, kernel) => {
                let code = mark.code();
                (code < 0).then(|| errors::error(code, &format!("kernel '{kernel}'")))
            }
            Work::Wait(mark, record) => record
                .failure()
                .or_else(|| errors::check(mark.code(), "waiting for an event").err()),
        }
    }
}

impl Record {
    /// Whether the work before it is done; its failure if it failed.
    pub(super) fn is_done(&self) -> Result<bool> {
        if !self.mark.has_ended() {
            return Ok(false);
        }
        self.failure().map_or(Ok(true), Err)
    }

    /// Waits for it.
    pub(super) fn wait(&self) -> Result<()> {
        self.mark.wait()?;
        self.failure().map_or(Ok(()), Err)
    }

    /// When it was reached, and on which device; `None`: not yet.
    pub(super) fn time(&self) -> Result<Option<(i32, u64)>> {
        if !self.mark.has_ended() {
            return Ok(None);
        }
        Ok(Some((self.lane.queue.device, self.mark.time()?)))
    }

    fn failure(&self) -> Option<Error> {
        collect(&self.lane.log, self.upto);
        let first = self.lane.log.lock().first_failure(self.after, self.upto);
        first.or_else(|| errors::check(self.mark.code(), "work before an event").err())
    }
}

impl Lane {
    /// A stream over a queue.
    #[must_use]
    pub(super) fn new(queue: Queue, wrapped: bool) -> Self {
        Lane {
            queue,
            wrapped,
            log: Arc::default(),
            probe: Mutex::new(None),
            worker: Mutex::new(None),
        }
    }

    /// The queue, to ask it what it is.
    #[must_use]
    pub(super) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Queues a copy.
    pub(super) fn copy(&self, dst: Region, src: Region) -> Result<()> {
        self.add(|queue| queue.copy(dst, src).map(Work::Copy))
    }

    /// Queues setting every byte.
    pub(super) fn fill(&self, dst: Region, value: u8) -> Result<()> {
        self.add(|queue| queue.fill(dst, value).map(Work::Fill))
    }

    fn add(&self, work: impl FnOnce(&Queue) -> Result<Work>) -> Result<()> {
        collect(&self.log, u64::MAX);
        let mut log = self.log.lock();
        log.add(work(&self.queue)?);
        self.queue.flush()
    }

    /// Queues a kernel.
    pub(super) fn launch(&self, kernel: &Kernel, launch: &ModuleLaunch<'_>) -> Result<()> {
        let ready = kernel.prepare(launch)?; // not under the lock: it is this thread's own
        self.add(|queue| {
            let mark = queue.launch(&ready, launch.shape.grid, launch.shape.block)?;
            Ok(Work::Launch(mark, Arc::clone(&kernel.shown)))
        })
    }

    /// Marks the present end.
    pub(super) fn record(self: &Arc<Self>) -> Result<Arc<Record>> {
        let log = self.log.lock();
        let mark = self.queue.marker()?;
        let (after, upto) = (log.told, log.last);
        self.queue.flush()?;
        drop(log);
        Ok(Arc::new(Record { lane: Arc::clone(self), mark, after, upto }))
    }

    /// Later work waits for the record; its failure is this stream's.
    pub(super) fn wait_for(&self, record: Arc<Record>) -> Result<()> {
        if record.lane.queue.platform != self.queue.platform {
            // A driver does not know another's events.
            return self.host_work(Task::Own(Box::new(move || record.wait())));
        }
        self.add(|queue| queue.barrier(&record.mark).map(|mark| Work::Wait(mark, record)))
    }

    /// Calls a function on a host thread in the stream's order.
    pub(super) fn call(&self, task: dtl_task_fn_t, user: Addr) -> Result<()> {
        self.host_work(Task::Call(task, user))
    }

    fn host_work(&self, task: Task) -> Result<()> {
        let mut worker = self.worker.lock();
        let worker = match worker.as_ref() {
            Some(worker) => worker,
            None => worker.insert(Worker::start("dtl-cl-stream", Arc::clone(&self.log))?),
        };
        let mut log = self.log.lock();
        let turn = Turn { before: self.queue.marker()?, done: self.queue.user()? };
        // Whatever fails from here on, the queue must not stay held.
        let held = self.queue.barrier(&turn.done).and_then(|_| self.queue.flush());
        held.inspect_err(|_| turn.release())?;
        worker.give(log.number(), Box::new(turn), task)
    }

    /// Waits for all work queued so far; its first failure, once.
    pub(super) fn synchronize(&self) -> Result<()> {
        if self.is_own_thread() {
            return fail!(
                DTL_ERROR_INVALID_STATE,
                "a stream's own work cannot wait for the stream; wait in another thread"
            );
        }
        let log = self.log.lock();
        let (mark, upto) = (self.queue.marker()?, log.last);
        drop(log);
        mark.wait()?; // hands the work to the device, too
        collect(&self.log, upto);
        self.log.lock().tell(upto)
    }

    /// Whether all work queued so far is done; its failure, which stays.
    pub(super) fn query(&self) -> Result<bool> {
        let mut probe = self.probe.lock();
        let log = self.log.lock();
        let last = log.last;
        // A program that queues on a stream of the library's by itself asks OpenCL for the end of
        // that.
        if log.ended == last && !self.wrapped {
            return log.untold(last).map(|()| true);
        }
        let (mark, upto) = match probe.as_ref().filter(|(_, upto)| *upto == last) {
            Some(probe) => probe.clone(),
            None => {
                let fresh = probe.insert((Arc::new(self.queue.marker()?), last)).clone();
                self.queue.flush()?;
                fresh
            }
        };
        drop(log);
        if !mark.has_ended() {
            return Ok(false);
        }
        *probe = None;
        drop(probe);
        collect(&self.log, upto);
        let mut log = self.log.lock();
        log.ended = log.ended.max(upto);
        log.untold(upto).map(|()| true)
    }

    /// Finishes what is queued, unless the stream's own work asks for it, and ends the thread.
    pub(super) fn close(&self) {
        if !self.is_own_thread() {
            // Nobody is left to be told of a failure.
            let _ = self.synchronize();
        }
        let worker = self.worker.lock().take();
        if let Some(worker) = worker {
            worker.end();
        }
    }

    fn is_own_thread(&self) -> bool {
        self.worker.lock().as_ref().is_some_and(Worker::is_calling)
    }
}
