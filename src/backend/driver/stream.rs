//! Stream: a queue of the driver, the failures of the queued work, and a thread for the host
//! callbacks of the queue.
//!
//! A driver reports the failure of a command either by that command's event alone (OpenCL), or by
//! failing every later call (CUDA, after a device fault). No driver stores the status of a
//! callback, and in no driver does a stream that waits for an event inherit the failures that
//! precede the event. [`Stream`] does both.
//!
//! Callbacks run on a thread of the stream, because the driver's callback thread serves all streams
//! and must not block. The queue is blocked while a callback runs. It is released even if the
//! callback fails, so that later work runs.

use super::stream_callbacks::{HostTask, Log, Piece, Worker, collect};
use super::{Driver, Event, Queue};
use crate::abi::runtime::dtl_task_fn_t;
use crate::error::{Error, Result, fail};
use crate::sys::memory::buf::Addr;
use crate::sys::sync::lock::Mutex;
use std::sync::Arc;

/// Stream of a driver backend.
pub struct Stream<D: Driver> {
    /// Queue of the driver, on which the stream executes its work.
    pub queue: D::Queue,
    log: Arc<Mutex<Log>>,
    worker: Mutex<Option<Worker>>,
}

type EventOf<D> = <<D as Driver>::Queue as Queue>::Event;

/// Kind of a queued command, named in error messages.
pub enum Command {
    /// Copy of memory.
    Copy,
    /// Fill of memory with a byte value.
    Fill,
    /// Kernel launch, with the kernel's name.
    Launch(Arc<str>),
}

/// Queued work whose failure is reported only by its event.
enum QueuedWork<D: Driver> {
    Command(EventOf<D>, Command),
    /// Command that waits for an event record. Contains the event of this command; `None` if the
    /// driver does not create one.
    Wait(Option<EventOf<D>>, Arc<EventRecord<D>>),
}

/// Event recorded at a position in a stream, with the range of queued work whose failures the event
/// reports.
pub struct EventRecord<D: Driver> {
    stream: Arc<Stream<D>>,
    /// Native event that was recorded.
    pub event: EventOf<D>,
    /// Number of the last piece of queued work before the range whose failures this event reports.
    after: u64,
    /// Number of the last piece of queued work whose failure this event reports.
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
            QueuedWork::Command(event, command) => match command {
                Command::Copy => event.failure(format_args!("a queued copy")),
                Command::Fill => event.failure(format_args!("a queued fill")),
                Command::Launch(kernel) => event.failure(format_args!("kernel '{kernel}'")),
            },
            QueuedWork::Wait(event, record) => record.failure().or_else(|| {
                event.as_ref().and_then(|event| event.failure(format_args!("waiting for an event")))
            }),
        }
    }
}

impl<D: Driver> EventRecord<D> {
    /// Records an event after all work queued on `stream`, with a timestamp if `is_timed`.
    pub fn new(stream: &Arc<Stream<D>>, is_timed: bool) -> Result<Self> {
        let log = stream.log.lock();
        let event = stream.queue.record(is_timed)?;
        let (after, upto) = (log.reported, log.last);
        drop(log);
        Ok(EventRecord { stream: Arc::clone(stream), event, after, upto })
    }

    /// Records this event again, after all work queued on `stream`. Returns false if the native
    /// event cannot be recorded on `stream`. `self` is unchanged if the function returns false or
    /// an error.
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

    /// Returns true if all work queued before this event has ended. Returns an error if the device
    /// has faulted or if work queued before the event failed.
    pub fn is_done(&self) -> Result<bool> {
        if !self.event.is_reached()? {
            return Ok(false);
        }
        self.failure().map_or(Ok(true), Err)
    }

    /// Waits for the work queued before this event. Returns the first failure of that work as an
    /// error.
    pub fn wait(&self) -> Result<()> {
        self.event.wait()?;
        self.failure().map_or(Ok(()), Err)
    }

    /// Returns the first failure that this event reports, or `None` if there is none. The event
    /// must have completed.
    fn failure(&self) -> Option<Error> {
        collect(&self.stream.log, self.upto);
        let first = self.stream.log.lock().first_failure(self.after, self.upto);
        first.or_else(|| self.event.failure(format_args!("work before an event")))
    }
}

impl<D: Driver> Stream<D> {
    /// Creates a stream over `queue`.
    pub fn new(queue: D::Queue) -> Arc<Self> {
        Arc::new(Stream { queue, log: Arc::default(), worker: Mutex::new(None) })
    }

    /// Queues `command` by calling `enqueue`, which returns the event that reports whether the
    /// command has failed.
    pub fn enqueue(
        &self,
        command: Command,
        enqueue: impl FnOnce(&D::Queue) -> Result<EventOf<D>>,
    ) -> Result<()> {
        collect(&self.log, u64::MAX);
        let mut log = self.log.lock();
        log.add(QueuedWork::<D>::Command(enqueue(&self.queue)?, command));
        self.queue.flush()
    }

    /// Makes work queued later wait for the event `record`. This stream inherits the failures of
    /// the work queued before the event.
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

    /// Queues a call to `task` with argument `user` on a host thread, in stream order. Returns
    /// `None` if the driver cannot block the queue.
    pub fn call(&self, task: dtl_task_fn_t, user: Addr) -> Result<Option<()>> {
        self.run_on_host(HostTask::Call(task, user)).map(|is_queued| is_queued.then_some(()))
    }

    /// Queues `task` for the stream's callback thread. Returns false if the driver cannot block the
    /// queue.
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

    /// Waits for all work queued so far. Returns the first failure of this work that no earlier
    /// call has returned. A failure is returned once; the loss of the device is returned by every
    /// call. Returns DTL_ERROR_INVALID_STATE if called on the stream's callback thread.
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

    /// Returns true if all work queued so far has ended. If some of that work failed and the
    /// failure has not been reported, returns the first such failure as an error instead of true.
    /// `synchronize` will return the same error.
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

    /// Waits for the queued work (unless called on the stream's callback thread), and then ends the
    /// stream.
    pub fn close(&self) {
        self.settle();
        self.end();
    }

    /// Waits for the queued work, unless called on the stream's callback thread.
    pub fn settle(&self) {
        if !self.is_own_thread() {
            // No caller remains to receive a failure.
            let _ = self.synchronize();
        }
    }

    /// Ends the callback thread of a stream whose work is complete. Does not use the native stream.
    pub fn end(&self) {
        if !self.is_own_thread() {
            collect(&self.log, u64::MAX); // drops references to other streams, breaking cycles
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
