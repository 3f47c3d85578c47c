//! A stream: a queue, the failures of its work, and a thread for its host callbacks.
//!
//! OpenCL tells of a command's failure by that command's event alone. So each piece of work has a number, events of
//! unfinished work are kept in the order of the numbers, and who waits takes the ended ones out of the list and notes
//! their failures under their numbers. A record knows which numbers lie before it.
//!
//! Callbacks have a thread of their own, not a driver's: they may block. A barrier behind an event of the host's holds
//! the queue meanwhile. It is completed even if the callback failed: later work runs.

use super::codes;
use super::queue::{Mark, Queue};
use crate::abi::runtime::dtl_task_fn_t;
use crate::abi::status::*;
use crate::error::{Error, Result, fail, status_name};
use crate::sys::buf::{Addr, Region};
use crate::sys::lock::Mutex;
use std::collections::VecDeque;
use std::sync::{Arc, mpsc};
use std::thread::{JoinHandle, ThreadId};

/// How many failures a stream keeps for events that were recorded behind them.
const FAILURES_KEPT: usize = 64;

/// One stream.
pub(super) struct Lane {
    queue: Queue,
    /// Whether the queue is the program's.
    pub(super) wrapped: bool,
    log: Arc<Mutex<Log>>,
    worker: Mutex<Option<Worker>>,
}

/// What has been queued and how it ended.
#[derive(Default)]
struct Log {
    /// Number of the latest piece of work.
    last: u64,
    /// Work that nobody has looked at since it ended, if it has.
    unfinished: VecDeque<(u64, Arc<Work>)>,
    failures: VecDeque<Failure>,
    /// Up to where failures were told by a synchronize.
    told: u64,
    /// Up to where work is known to have ended.
    ended: u64,
    /// A marker for queries, and the number before it.
    probe: Option<(Arc<Mark>, u64)>,
}

struct Failure {
    number: u64,
    /// It is a callback's: the runtime has it, too, and tells it to who synchronizes.
    known: bool,
    error: Error,
}

enum Work {
    Command(Mark, &'static str),
    /// A barrier for another stream's record.
    Wait(Mark, Arc<Record>),
}

/// A point in a stream's work.
pub(super) struct Record {
    lane: Arc<Lane>,
    mark: Mark,
    /// Failures of work after this …
    after: u64,
    /// … and up to this are the record's.
    upto: u64,
}

struct Worker {
    thread: ThreadId,
    handle: JoinHandle<()>,
    jobs: mpsc::Sender<Job>,
}

struct Job {
    number: u64,
    before: Mark,
    done: Mark,
    task: Task,
}

enum Task {
    Call(dtl_task_fn_t, Addr),
    Await(Arc<Record>),
}

impl Log {
    fn fail(&mut self, number: u64, known: bool, error: Error) {
        if self.failures.len() == FAILURES_KEPT {
            self.failures.pop_front();
        }
        let place = self.failures.partition_point(|failure| failure.number <= number);
        self.failures.insert(place, Failure { number, known, error });
    }

    fn first_failure(&self, after: u64, upto: u64) -> Option<&Failure> {
        self.failures.iter().find(|failure| failure.number > after && failure.number <= upto)
    }

    /// The first failure up to a number that no synchronize has told and the runtime does not know of.
    fn untold(&self, upto: u64) -> Result<()> {
        match self.first_failure(self.told, upto) {
            Some(Failure { known: false, error, .. }) => Err(error.clone()),
            _ => Ok(()),
        }
    }
}

impl Work {
    fn has_ended(&self) -> bool {
        match self {
            Work::Command(mark, _) | Work::Wait(mark, _) => mark.has_ended(),
        }
    }

    /// Of work that has ended.
    fn failure(&self) -> Option<Error> {
        match self {
            Work::Command(mark, what) => codes::check(mark.code(), what).err(),
            Work::Wait(mark, record) => {
                record.failure().or_else(|| codes::check(mark.code(), "waiting for an event").err())
            }
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
        self.lane.collect(self.upto);
        let log = self.lane.log.lock();
        let first = log.first_failure(self.after, self.upto).map(|failure| failure.error.clone());
        drop(log);
        first.or_else(|| codes::check(self.mark.code(), "work before an event").err())
    }
}

impl Lane {
    /// A stream over a queue.
    #[must_use]
    pub(super) fn new(queue: Queue, wrapped: bool) -> Self {
        Lane { queue, wrapped, log: Arc::default(), worker: Mutex::new(None) }
    }

    /// The queue, to ask it what it is.
    #[must_use]
    pub(super) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Queues a copy.
    pub(super) fn copy(&self, dst: Region, src: Region) -> Result<()> {
        self.collect(u64::MAX);
        let mut log = self.log.lock();
        let mark = self.queue.copy(dst, src)?;
        log.last += 1;
        let number = log.last;
        log.unfinished.push_back((number, Arc::new(Work::Command(mark, "a queued copy"))));
        self.queue.flush()
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
            return self.host_work(Task::Await(record)); // a driver does not know another's events
        }
        self.collect(u64::MAX);
        let mut log = self.log.lock();
        let mark = self.queue.barrier(&record.mark)?;
        log.last += 1;
        let number = log.last;
        log.unfinished.push_back((number, Arc::new(Work::Wait(mark, record))));
        self.queue.flush()
    }

    /// Calls a function on a host thread in the stream's order.
    pub(super) fn call(&self, task: dtl_task_fn_t, user: Addr) -> Result<()> {
        self.host_work(Task::Call(task, user))
    }

    fn host_work(&self, task: Task) -> Result<()> {
        let mut worker = self.worker.lock();
        let jobs = match worker.as_ref() {
            Some(worker) => &worker.jobs,
            None => &worker.insert(start(Arc::clone(&self.log))?).jobs,
        };
        let mut log = self.log.lock();
        let (before, done) = (self.queue.marker()?, self.queue.user()?);
        // Whatever fails from here on, the queue must not stay held.
        let held = self.queue.barrier(&done).and_then(|_| self.queue.flush());
        if let Err(error) = held {
            done.complete();
            return Err(error);
        }
        log.last += 1;
        let sent = jobs.send(Job { number: log.last, before, done, task });
        drop(log);
        sent.or_else(|mpsc::SendError(job)| {
            job.done.complete();
            fail!(DTL_ERROR_INTERNAL, "the thread of the stream's callbacks has ended")
        })
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
        self.collect(upto);
        let mut log = self.log.lock();
        let result = log.untold(upto);
        (log.told, log.ended) = (log.told.max(upto), log.ended.max(upto));
        result
    }

    /// Whether all work queued so far is done; its failure, which stays.
    pub(super) fn query(&self) -> Result<bool> {
        let mut log = self.log.lock();
        // A program that queues on a stream of the library's by itself asks OpenCL for the end of that.
        if log.ended == log.last && !self.wrapped {
            let upto = log.last;
            return log.untold(upto).map(|()| true);
        }
        let fresh = log.probe.as_ref().filter(|(_, upto)| *upto == log.last).cloned();
        let (mark, upto) = match fresh {
            Some(probe) => probe,
            None => {
                let probe = (Arc::new(self.queue.marker()?), log.last);
                log.probe = Some(probe.clone());
                self.queue.flush()?;
                probe
            }
        };
        if !mark.has_ended() {
            return Ok(false);
        }
        log.probe = None;
        drop(log);
        self.collect(upto);
        let mut log = self.log.lock();
        log.ended = log.ended.max(upto);
        log.untold(upto).map(|()| true)
    }

    /// Finishes what is queued, unless the stream's own work asks for it, and ends the thread.
    pub(super) fn close(&self) {
        let is_own = self.is_own_thread();
        if !is_own {
            // Nobody is left to be told of a failure.
            let _ = self.synchronize();
        }
        if let Some(Worker { handle, jobs, .. }) = self.worker.lock().take() {
            drop(jobs); // the end of its loop
            if !is_own {
                let _ = handle.join(); // it catches what callbacks do, so it has not panicked
            }
        }
    }

    fn is_own_thread(&self) -> bool {
        let own = std::thread::current().id();
        self.worker.lock().as_ref().is_some_and(|worker| worker.thread == own)
    }

    /// Takes work that has ended out of the list, up to a number, and notes its failures. Without the lock while
    /// another stream is asked, which may ask this one.
    fn collect(&self, upto: u64) {
        loop {
            let first = self.log.lock().unfinished.front().cloned();
            let Some((number, work)) = first.filter(|(number, work)| *number <= upto && work.has_ended())
            else {
                return;
            };
            let failure = work.failure();
            let mut log = self.log.lock();
            // Unless another thread was here first.
            if log.unfinished.front().is_some_and(|(front, _)| *front == number) {
                let seen = log.unfinished.pop_front();
                if let Some(error) = failure {
                    log.fail(number, false, error);
                }
                drop(log);
                drop(seen); // it may hold the last share of another stream
            }
        }
    }
}

fn start(log: Arc<Mutex<Log>>) -> Result<Worker> {
    let (jobs, queue) = mpsc::channel();
    let builder = std::thread::Builder::new().name("dtl-cl-stream".into());
    match builder.spawn(move || serve(&queue, &log)) {
        Ok(handle) => Ok(Worker { thread: handle.thread().id(), handle, jobs }),
        Err(error) => fail!(DTL_ERROR_LIMIT, "no thread for a stream's host callbacks: {error}"),
    }
}

/// The life of a stream's thread.
fn serve(jobs: &mpsc::Receiver<Job>, log: &Mutex<Log>) {
    crate::runtime::lifecycle::enter_own_thread();
    for Job { number, before, done, task } in jobs {
        // Failed or not: a callback is called, and the wait's failure is the work's before it.
        let _ = before.wait();
        let (known, result) = match task {
            Task::Call(Some(function), user) => (true, outcome(function(user.ptr()))),
            Task::Call(None, _) => (true, Ok(())),
            Task::Await(record) => (false, record.wait()),
        };
        if let Err(error) = result {
            log.lock().fail(number, known, error);
        }
        done.complete();
    }
}

fn outcome(status: dtl_status_t) -> Result<()> {
    if status == DTL_SUCCESS {
        return Ok(());
    }
    let name = status_name(status).to_string_lossy();
    Err(Error::new(status, format!("a stream's host callback returned {name} ({status})")))
}
