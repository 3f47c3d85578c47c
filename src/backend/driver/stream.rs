//! A stream: a queue of the driver, the failures of its work, and a thread for its host callbacks.
//!
//! A driver may report a command's failure by that command's event alone, as OpenCL does, or let it
//! fail every later call, as CUDA does with a fault of the device. No driver has the status of a
//! callback, or the rule that a stream which waited for an event shares the failures before it. The
//! stream keeps those.
//!
//! Callbacks have a thread of the stream, not one of the driver's, which serves all streams and so
//! may not block. Meanwhile the queue is held. It is released even if the callback failed: later
//! work runs.

use super::stream_callbacks::{HostTask, Log, Piece, Worker, collect};
use super::{Driver, Event, Queue};
use crate::abi::runtime::dtl_task_fn_t;
use crate::error::{Error, Result, fail};
use crate::sys::memory::buf::Addr;
use crate::sys::sync::lock::Mutex;
use std::sync::Arc;

/// A stream.
pub struct Stream<D: Driver> {
    queue: D::Queue,
    log: Arc<Mutex<Log<QueuedWork<D>>>>,
    worker: Mutex<Option<Worker>>,
}

type EventOf<D> = <<D as Driver>::Queue as Queue>::Event;

/// A command that can fail by itself.
pub enum Command {
    /// A copy.
    Copy,
    /// A fill.
    Fill,
    /// A launch of the kernel of this name.
    Launch(Arc<str>),
}

/// Work that can fail by itself.
enum QueuedWork<D: Driver> {
    Command(EventOf<D>, Command),
    /// A wait for a record, with its own event if the driver has one.
    Wait(Option<EventOf<D>>, Arc<EventRecord<D>>),
}

/// A point in a stream's work.
pub struct EventRecord<D: Driver> {
    stream: Arc<Stream<D>>,
    event: EventOf<D>,
    /// The record has the failures of work after this number ...
    after: u64,
    /// ... and up to this one.
    upto: u64,
}

impl<D: Driver> Piece for QueuedWork<D> {
    fn has_ended(&self) -> bool {
        let event = match self {
            QueuedWork::Command(event, _) | QueuedWork::Wait(Some(event), _) => event,
            QueuedWork::Wait(None, record) => &record.event,
        };
        !matches!(event.is_reached(), Ok(false))
    }

    fn failure(&self) -> Option<Error> {
        match self {
            QueuedWork::Command(event, Command::Copy) => {
                event.failure(format_args!("a queued copy"))
            }
            QueuedWork::Command(event, Command::Fill) => {
                event.failure(format_args!("a queued fill"))
            }
            QueuedWork::Command(event, Command::Launch(kernel)) => {
                event.failure(format_args!("kernel '{kernel}'"))
            }
            QueuedWork::Wait(event, record) => record.failure().or_else(|| {
                event.as_ref().and_then(|event| event.failure(format_args!("waiting for an event")))
            }),
        }
    }
}

impl<D: Driver> EventRecord<D> {
    /// Records the present end of a stream.
    pub fn new(stream: &Arc<Stream<D>>, is_timed: bool) -> Result<Self> {
        let log = stream.log.lock();
        let event = stream.queue.record(is_timed)?;
        let (after, upto) = (log.reported, log.last);
        drop(log);
        Ok(EventRecord { stream: Arc::clone(stream), event, after, upto })
    }

    /// Moves the record to the present end of a stream. False if its event cannot be used there;
    /// then, and after an error, it is as it was.
    pub fn renew(&mut self, stream: &Arc<Stream<D>>) -> Result<bool> {
        let log = stream.log.lock();
        if !stream.queue.record_again(&self.event)? {
            return Ok(false);
        }
        (self.after, self.upto) = (log.reported, log.last);
        drop(log);
        self.stream = Arc::clone(stream);
        Ok(true)
    }

    /// Whether the work before it is done; its failure if it failed.
    pub fn is_done(&self) -> Result<bool> {
        if !self.event.is_reached()? {
            return Ok(false);
        }
        self.failure().map_or(Ok(true), Err)
    }

    /// Waits for the work before it.
    pub fn wait(&self) -> Result<()> {
        self.event.wait()?;
        self.failure().map_or(Ok(()), Err)
    }

    /// Nanoseconds from it to another one; `None` if one of them was not reached yet.
    pub fn nanoseconds_to(&self, stop: &EventRecord<D>) -> Result<Option<i64>> {
        self.event.nanoseconds_to(&stop.event)
    }

    /// Failure of the work before a record that was reached.
    fn failure(&self) -> Option<Error> {
        collect(&self.stream.log, self.upto);
        let first = self.stream.log.lock().first_failure(self.after, self.upto);
        first.or_else(|| self.event.failure(format_args!("work before an event")))
    }
}

impl<D: Driver> Stream<D> {
    /// A stream over a queue.
    #[must_use]
    pub fn new(queue: D::Queue) -> Arc<Self> {
        Arc::new(Stream { queue, log: Arc::default(), worker: Mutex::new(None) })
    }

    /// Its queue.
    #[inline]
    #[must_use]
    pub fn queue(&self) -> &D::Queue {
        &self.queue
    }

    /// The driver's handle of its queue.
    #[must_use]
    pub fn native(&self) -> Addr {
        self.queue.native()
    }

    /// Whether the program owns its queue.
    #[must_use]
    pub fn is_wrapped(&self) -> bool {
        self.queue.is_wrapped()
    }

    /// Queues a command whose failure only its event reports.
    pub fn enqueue(
        &self,
        command: Command,
        enqueue: impl FnOnce(&D::Queue) -> Result<EventOf<D>>,
    ) -> Result<()> {
        collect(&self.log, u64::MAX);
        let mut log = self.log.lock();
        log.add(QueuedWork::Command(enqueue(&self.queue)?, command));
        self.queue.flush()
    }

    /// Lets later work wait for a record, whose failure becomes this stream's.
    pub fn wait_for(&self, record: Arc<EventRecord<D>>) -> Result<()> {
        if !self.queue.can_wait_for(&record.stream.queue) {
            return self.run_on_host(HostTask::Own(Box::new(move || record.wait()))).map(drop);
        }
        collect(&self.log, u64::MAX);
        let mut log = self.log.lock();
        let event = self.queue.wait_event(&record.event)?;
        log.add(QueuedWork::Wait(event, record));
        self.queue.flush()
    }

    /// Calls a function on a host thread in the stream's order. `None` if the driver cannot hold
    /// the queue.
    pub fn call(&self, task: dtl_task_fn_t, user: Addr) -> Option<Result<()>> {
        let is_queued = self.run_on_host(HostTask::Call(task, user));
        is_queued.map(|is_queued| is_queued.then_some(())).transpose()
    }

    /// False if the driver cannot hold the queue.
    fn run_on_host(&self, task: HostTask) -> Result<bool> {
        let mut worker = self.worker.lock();
        if !self.queue.prepare_hold()? {
            return Ok(false);
        }
        let worker = match worker.as_ref() {
            Some(worker) => worker,
            None => worker.insert(Worker::start(D::CALLBACK_THREAD, Arc::clone(&self.log))?),
        };
        let mut log = self.log.lock();
        let Some(hold) = self.queue.hold()? else { return Ok(false) };
        worker.give(log.number(), hold, task).map(|()| true)
    }

    /// Waits for all work queued so far; returns its first failure, once. A lost device's is
    /// returned each time.
    pub fn synchronize(&self) -> Result<()> {
        if self.is_own_thread() {
            return fail!(
                DTL_ERROR_INVALID_STATE,
                "a stream's own work cannot wait for the stream; wait in another thread"
            );
        }
        let upto = self.log.lock().last;
        self.queue.synchronize()?;
        collect(&self.log, upto);
        self.log.lock().report(upto)
    }

    /// Whether all work queued so far is done; its failure, which stays.
    pub fn query(&self) -> Result<bool> {
        let log = self.log.lock();
        let (upto, ended) = (log.last, log.ended);
        drop(log);
        if !self.queue.is_idle(upto, ended)? {
            return Ok(false);
        }
        collect(&self.log, upto);
        let mut log = self.log.lock();
        log.ended = log.ended.max(upto);
        log.unreported(upto).map(|()| true)
    }

    /// Finishes the queued work, unless the stream's own work is the caller, and ends the thread.
    pub fn close(&self) {
        if !self.is_own_thread() {
            // No caller is left to receive a failure.
            let _ = self.synchronize();
            collect(&self.log, u64::MAX); // shares of other streams, which may have one of this
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
