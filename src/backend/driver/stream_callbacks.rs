//! State of a stream in addition to the driver's queue: numbers of the queued work, failures, and a
//! thread for host callbacks.
//!
//! Some drivers report the failure of a command only through the event of that command, and no
//! driver stores the status of a host callback. Therefore each command that can fail has a number.
//! Commands are stored in the order of their numbers. A waiting caller removes the commands that
//! have ended and stores their failures with their numbers. An event record stores the range of
//! command numbers that precede it.

use crate::abi::runtime::dtl_task_fn_t;
use crate::error::{Error, Result, fail, failure};
use crate::runtime::exec::host_callback;
use crate::runtime::open_state;
use crate::sys::{handles::epoch, memory::buf::Addr, os::process::spawn, sync::lock::Mutex};
use std::collections::VecDeque;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

/// Maximum number of failures that a stream stores; if a further failure occurs, the oldest is
/// dropped.
const FAILURES_KEPT: usize = 64;

/// Queued work that can fail without making later driver calls fail.
pub trait Piece: Send + Sync {
    /// Returns true if the work has ended, successfully or not.
    fn has_ended(&self) -> bool;
    /// Returns the error of the work; `None` if it succeeded. The work must have ended.
    fn failure(&self) -> Option<Error>;
}

/// Log of the work that is queued on a stream, and of the failures of this work.
#[derive(Default)]
pub struct Log {
    /// Number of the latest queued piece of work.
    pub last: u64,
    /// Pieces of work not yet known to have ended, each with its number.
    unfinished: VecDeque<(u64, Arc<dyn Piece>)>,
    failures: VecDeque<Failure>,
    /// Number of the last piece of work for which `Stream::synchronize` has reported success or
    /// failure.
    pub reported: u64,
    /// Number of a piece of work: this piece and all earlier ones are known to have ended.
    pub ended: u64,
}

struct Failure {
    number: u64,
    /// True for the failure of a user callback: the runtime stores such a failure too and returns
    /// it from synchronize.
    known: bool,
    error: Error,
}

impl Log {
    /// Assigns the next number to work that was just queued, and returns the number.
    pub fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Assigns the next number to a command and appends the command to the list of unfinished work.
    pub fn add(&mut self, piece: impl Piece + 'static) {
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

    /// Returns the first stored failure of a command whose number is greater than `after` and at
    /// most `upto`; `None` if there is none.
    pub fn first_failure(&self, after: u64, upto: u64) -> Option<Error> {
        self.first(after, upto).map(|failure| failure.error.clone())
    }

    /// Returns the first failure that `Stream::synchronize` has not returned yet, among the
    /// failures of commands with numbers up to `upto`. Returns `Ok` if there is no such failure or
    /// if the runtime stores that failure too.
    pub fn unreported(&self, upto: u64) -> Result<()> {
        match self.first(self.reported, upto) {
            Some(Failure { known: false, error, .. }) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Returns the first unreported failure of the commands with numbers up to `upto`, and marks
    /// these commands as ended and reported. They must have ended.
    pub fn report(&mut self, upto: u64) -> Result<()> {
        let result = self.unreported(upto);
        (self.reported, self.ended) = (self.reported.max(upto), self.ended.max(upto));
        result
    }
}

/// Removes from the front of the log the work that has ended, up to number `upto`, and stores its
/// failures. The log is not locked while the state of a piece of work is queried, because that
/// query may query another stream, and the latter query may in turn query this stream.
pub fn collect(log: &Mutex<Log>, upto: u64) {
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

/// Position at which a queue is blocked: commands queued later wait until `release` is called.
pub trait Hold: Send {
    /// Waits until the commands ahead of this position have ended, successfully or not.
    fn wait(&self);
    /// Unblocks the queue.
    fn release(&self);
}

/// Work that runs on a host thread, in order with the commands of a queue.
pub enum HostTask {
    /// User callback, with its argument.
    Call(dtl_task_fn_t, Addr),
    /// Internal work of the backend. If this work fails, the worker stores the failure in the
    /// stream's `Log`.
    Own(Box<dyn FnOnce() -> Result<()> + Send>),
}

struct CallbackJob {
    number: u64,
    hold: Box<dyn Hold>,
    task: HostTask,
}

/// Thread that runs the host work of one stream in stream order. The driver's callback thread
/// cannot run this work, because that thread must not block.
pub struct Worker {
    handle: JoinHandle<()>,
    jobs: mpsc::Sender<CallbackJob>,
}

impl Worker {
    /// Starts the thread, which stores the failures of its tasks in `log`.
    pub fn start(name: &str, log: Arc<Mutex<Log>>) -> Result<Self> {
        let (jobs, queue) = mpsc::channel();
        let handle = spawn(name, move || serve(&queue, &log)).map_err(|error| {
            failure!(DTL_ERROR_LIMIT, "no thread for a stream's host callbacks: {error}")
        })?;
        Ok(Worker { handle, jobs })
    }

    /// Returns true if the calling thread is this worker's thread.
    pub fn is_calling(&self) -> bool {
        self.handle.thread().id() == thread::current().id()
    }

    /// Sends `task` to the worker's thread, together with its number in the log. The thread
    /// releases `hold` after the task.
    pub fn give(&self, number: u64, hold: Box<dyn Hold>, task: HostTask) -> Result<()> {
        self.jobs.send(CallbackJob { number, hold, task }).or_else(|mpsc::SendError(job)| {
            job.hold.release();
            fail!(DTL_ERROR_INTERNAL, "the thread of the stream's callbacks has ended")
        })
    }

    /// Ends the worker's thread after the queued tasks have run. Waits until the thread has ended,
    /// unless this function is called on that thread.
    pub fn end(self) {
        let is_calling = self.is_calling();
        drop(self.jobs); // ends the loop of the thread
        if !is_calling {
            let _ = self.handle.join(); // C callbacks cannot unwind: the thread has not panicked
        }
    }
}

/// Main loop of a stream's callback thread.
fn serve(jobs: &mpsc::Receiver<CallbackJob>, log: &Mutex<Log>) {
    open_state::enter_own_thread();
    for CallbackJob { number, hold, task } in jobs {
        // The result of the preceding work does not matter here: a callback is called even after a
        // failure, which belongs to the preceding work.
        hold.wait();
        let aside = epoch::aside();
        let (known, result) = match task {
            HostTask::Call(function, user) => (true, host_callback(function, user)),
            HostTask::Own(function) => (false, function()),
        };
        if let Err(error) = result {
            log.lock().fail(number, known, error);
        }
        drop(aside);
        hold.release();
    }
}
