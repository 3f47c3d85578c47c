//! State beside a driver's queue: numbers of the queued work, how it failed, and a thread for host
//! callbacks.
//!
//! A driver may report a failure by one command's event alone, and it never has the status of a
//! host callback. So each command that can fail has a number. Commands are kept in the order of
//! their numbers until a caller that waits takes out the ended ones and files their failures under
//! their numbers. A record has the range of numbers that lie before it.

use crate::abi::runtime::dtl_task_fn_t;
use crate::abi::status::*;
use crate::error::{Error, Result, fail};
use crate::last_error::Mark;
use crate::runtime::lifecycle;
use crate::sys::handles::epoch;
use crate::sys::memory::buf::Addr;
use crate::sys::os::thread::spawn;
use crate::sys::sync::lock::Mutex;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Arc, mpsc};
use std::thread::{JoinHandle, ThreadId};

/// How many failures a stream keeps for events that were recorded behind them.
const FAILURES_KEPT: usize = 64;

/// Work that can fail by itself.
pub trait Piece {
    /// Whether it has ended, well or not.
    fn has_ended(&self) -> bool;
    /// Of work that has ended.
    fn failure(&self) -> Option<Error>;
}

/// What has been queued and how it ended.
pub struct Log<P> {
    /// Number of the latest piece of work.
    pub last: u64,
    /// Work that was not seen to have ended.
    unfinished: VecDeque<(u64, Arc<P>)>,
    failures: VecDeque<Failure>,
    /// Failures up to this number were returned by a synchronize.
    pub reported: u64,
    /// Work up to this number has ended.
    pub ended: u64,
}

struct Failure {
    number: u64,
    /// Failure of a callback: the runtime has it, too, and returns it from synchronize.
    known: bool,
    error: Error,
}

impl<P> Default for Log<P> {
    fn default() -> Self {
        Log {
            last: 0,
            unfinished: VecDeque::new(),
            failures: VecDeque::new(),
            reported: 0,
            ended: 0,
        }
    }
}

impl<P: Piece> Log<P> {
    /// The number of a piece of work that has just been queued.
    pub fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Numbers and keeps a command whose end is queried later.
    pub fn add(&mut self, piece: P) {
        let number = self.number();
        self.unfinished.push_back((number, Arc::new(piece)));
    }

    fn fail(&mut self, number: u64, known: bool, error: Error) {
        if self.failures.len() == FAILURES_KEPT {
            self.failures.pop_front();
        }
        let place = self.failures.partition_point(|failure| failure.number <= number);
        self.failures.insert(place, Failure { number, known, error });
    }

    fn first(&self, after: u64, upto: u64) -> Option<&Failure> {
        self.failures.iter().find(|failure| failure.number > after && failure.number <= upto)
    }

    /// The first failure of the numbers after one and up to another.
    #[must_use]
    pub fn first_failure(&self, after: u64, upto: u64) -> Option<Error> {
        self.first(after, upto).map(|failure| failure.error.clone())
    }

    /// The first failure up to a number that no synchronize has returned and the runtime does not
    /// have.
    pub fn unreported(&self, upto: u64) -> Result<()> {
        match self.first(self.reported, upto) {
            Some(Failure { known: false, error, .. }) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Returns that failure once; the work up to the number has ended.
    pub fn report(&mut self, upto: u64) -> Result<()> {
        let result = self.unreported(upto);
        (self.reported, self.ended) = (self.reported.max(upto), self.ended.max(upto));
        result
    }
}

/// Takes work that has ended out of the list, up to a number, and notes its failures. Without the
/// lock while a piece is queried, which may query another stream, which may query this one.
pub fn collect<P: Piece>(log: &Mutex<Log<P>>, upto: u64) {
    loop {
        let first = log.lock().unfinished.front().cloned();
        let Some((number, piece)) =
            first.filter(|(number, piece)| *number <= upto && piece.has_ended())
        else {
            return;
        };
        let failure = piece.failure();
        let mut log = log.lock();
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

/// What holds a queue while the host works.
pub trait Hold: Send {
    /// Waits for what was queued before, however that ended.
    fn wait(&self);
    /// Lets the queue go on.
    fn release(&self);
}

/// What the host does in a queue's order.
pub enum HostTask {
    /// A callback.
    Call(dtl_task_fn_t, Addr),
    /// Work of the backend, whose failure the runtime does not have.
    Own(Box<dyn FnOnce() -> Result<()> + Send>),
}

struct CallbackJob {
    number: u64,
    hold: Box<dyn Hold>,
    task: HostTask,
}

/// A stream's thread for what the host does in its order: not a driver's, which may not block.
pub struct Worker {
    thread: ThreadId,
    handle: JoinHandle<()>,
    jobs: mpsc::Sender<CallbackJob>,
}

impl Worker {
    /// Starts it; failures go to the log.
    pub fn start<P: Piece + Send + Sync + 'static>(
        name: &str,
        log: Arc<Mutex<Log<P>>>,
    ) -> Result<Self> {
        let (jobs, queue) = mpsc::channel();
        match spawn(name, move || serve(&queue, &log)) {
            Ok(handle) => Ok(Worker { thread: handle.thread().id(), handle, jobs }),
            Err(error) => {
                fail!(DTL_ERROR_LIMIT, "no thread for a stream's host callbacks: {error}")
            }
        }
    }

    /// Whether the calling thread is it.
    #[must_use]
    pub fn is_calling(&self) -> bool {
        self.thread == std::thread::current().id()
    }

    /// Queues a task with its number in the log. The queue is held already.
    pub fn give(&self, number: u64, hold: Box<dyn Hold>, task: HostTask) -> Result<()> {
        self.jobs.send(CallbackJob { number, hold, task }).or_else(|mpsc::SendError(job)| {
            job.hold.release();
            fail!(DTL_ERROR_INTERNAL, "the thread of the stream's callbacks has ended")
        })
    }

    /// Ends it when its tasks are done, and waits for that unless it is the caller.
    pub fn end(self) {
        let is_calling = self.is_calling();
        drop(self.jobs); // the end of its loop
        if !is_calling {
            let _ = self.handle.join(); // it catches what callbacks do, so it has not panicked
        }
    }
}

/// The life of a stream's thread.
fn serve<P: Piece>(jobs: &mpsc::Receiver<CallbackJob>, log: &Mutex<Log<P>>) {
    lifecycle::enter_own_thread();
    for CallbackJob { number, hold, task } in jobs {
        // Failed or not: a callback is called, and what failed is the work's before it.
        hold.wait();
        let aside = epoch::aside();
        let (known, result) = match task {
            HostTask::Call(Some(function), user) => (true, outcome(function, user)),
            HostTask::Call(None, _) => (true, Ok(())),
            HostTask::Own(function) => (false, function()),
        };
        if let Err(error) = result {
            log.lock().fail(number, known, error);
        }
        drop(aside);
        hold.release();
    }
}

fn outcome(function: extern "C" fn(*mut c_void) -> dtl_status_t, user: Addr) -> Result<()> {
    let before = Mark::now();
    let status = function(user.ptr());
    if status == DTL_SUCCESS {
        return Ok(());
    }
    Err(before.explain(Error::told("a stream's host callback returned", status)))
}
