//! State of a stream beside the driver's queue: numbers of the queued work, failures, and a thread
//! for host callbacks.
//!
//! A driver may report the failure of a command only by that command's event, and it never has the
//! status of a host callback. Therefore each command that can fail has a number. Commands are
//! stored in the order of their numbers. A waiting caller removes the commands that have ended and
//! stores their failures with their numbers. An event record has the range of the numbers that
//! precede it.

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

/// Maximum number of failures that a stream stores for events recorded after them.
const FAILURES_KEPT: usize = 64;

/// Queued work that can fail without failing later calls.
pub trait Piece {
    /// Returns true if the work has ended, successfully or not.
    fn has_ended(&self) -> bool;
    /// Returns the failure of the work, which has ended; `None` if it succeeded.
    fn failure(&self) -> Option<Error>;
}

/// Log of the queued work and its failures.
pub struct Log<P> {
    /// Number of the latest queued piece of work.
    pub last: u64,
    /// Work whose end has not been observed.
    unfinished: VecDeque<(u64, Arc<P>)>,
    failures: VecDeque<Failure>,
    /// Number up to which a synchronize has returned the failures.
    pub reported: u64,
    /// Number up to which all work is known to have ended.
    pub ended: u64,
}

struct Failure {
    number: u64,
    /// True for the failure of a callback: the runtime stores such a failure too and returns it
    /// from synchronize.
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
    /// Assigns a number to a piece of work that was just queued.
    pub fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Assigns a number to a command and stores the command, whose end is queried later.
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

    /// Returns the first failure whose number is greater than `after` and at most `upto`.
    #[must_use]
    pub fn first_failure(&self, after: u64, upto: u64) -> Option<Error> {
        self.first(after, upto).map(|failure| failure.error.clone())
    }

    /// Returns the first failure up to the number `upto` that no synchronize has returned, unless
    /// the runtime stores that failure too.
    pub fn unreported(&self, upto: u64) -> Result<()> {
        match self.first(self.reported, upto) {
            Some(Failure { known: false, error, .. }) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Returns the first unreported failure up to the number `upto` and marks all failures up to
    /// `upto` as reported. The work up to `upto` has ended.
    pub fn report(&mut self, upto: u64) -> Result<()> {
        let result = self.unreported(upto);
        (self.reported, self.ended) = (self.reported.max(upto), self.ended.max(upto));
        result
    }
}

/// Removes the work that has ended from the log, up to the number `upto`, and stores its failures.
/// The lock is not held while a piece of work is queried: the query may query another stream, which
/// may query this one.
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
        // Skip if another thread has removed this piece meanwhile.
        if log.unfinished.front().is_some_and(|(front, _)| *front == number) {
            let seen = log.unfinished.pop_front();
            if let Some(error) = failure {
                log.fail(number, false, error);
            }
            drop(log);
            drop(seen); // may own the last reference to another stream
        }
    }
}

/// Hold of a queue while the host works.
pub trait Hold: Send {
    /// Waits until the commands queued before the hold have ended, successfully or not.
    fn wait(&self);
    /// Lets the queue continue.
    fn release(&self);
}

/// Work of the host in the order of a queue.
pub enum HostTask {
    /// Callback of the program, with its argument.
    Call(dtl_task_fn_t, Addr),
    /// Work of the backend, whose failure the runtime does not store.
    Own(Box<dyn FnOnce() -> Result<()> + Send>),
}

struct CallbackJob {
    number: u64,
    hold: Box<dyn Hold>,
    task: HostTask,
}

/// Thread of one stream for host work in stream order. A thread of the driver is not used, because
/// it must not block.
pub struct Worker {
    thread: ThreadId,
    handle: JoinHandle<()>,
    jobs: mpsc::Sender<CallbackJob>,
}

impl Worker {
    /// Starts the thread. Failures of its tasks are stored in `log`.
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

    /// Returns true if the calling thread is this worker's thread.
    #[must_use]
    pub fn is_calling(&self) -> bool {
        self.thread == std::thread::current().id()
    }

    /// Passes a task to the thread, with the task's number in the log. The queue is already held.
    pub fn give(&self, number: u64, hold: Box<dyn Hold>, task: HostTask) -> Result<()> {
        self.jobs.send(CallbackJob { number, hold, task }).or_else(|mpsc::SendError(job)| {
            job.hold.release();
            fail!(DTL_ERROR_INTERNAL, "the thread of the stream's callbacks has ended")
        })
    }

    /// Ends the thread after its queued tasks, and waits for the thread unless it is the caller.
    pub fn end(self) {
        let is_calling = self.is_calling();
        drop(self.jobs); // ends the loop of the thread
        if !is_calling {
            let _ = self.handle.join(); // C callbacks cannot unwind: the thread has not panicked
        }
    }
}

/// Main loop of a stream's callback thread.
fn serve<P: Piece>(jobs: &mpsc::Receiver<CallbackJob>, log: &Mutex<Log<P>>) {
    lifecycle::enter_own_thread();
    for CallbackJob { number, hold, task } in jobs {
        // The result of the preceding work does not matter here: a callback is called even after a
        // failure, which belongs to the preceding work.
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
