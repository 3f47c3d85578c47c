//! Fence: completion state of one piece of work, with the end time and the failure of the work.
//!
//! Events are in `event`. An event that is recorded again gets a new fence; threads that already
//! wait for the event keep the earlier fence.

use crate::error::{Error, Result, fail};
use crate::sys::sync::lock::{Condvar, Mutex};
use crate::sys::sync::wait::{Deadline, now_ns};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Number of polls before a waiting thread parks. The polls take a few microseconds.
const SPINS: u32 = 200;

/// Completion state of one piece of work: pending or done, with the end time and the failure of the
/// work.
#[derive(Default)]
pub struct Fence {
    done: AtomicBool,
    /// Id (see `reentrancy`) of the work queue whose work completes the fence; 0 = none.
    queue: AtomicUsize,
    end: Mutex<FenceOutcome>,
    changed: Condvar,
}

#[derive(Default)]
struct FenceOutcome {
    stamp_ns: u64,
    failure: Option<Error>,
    waiters: u32,
}

/// Outcome of a successful wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitOutcome {
    /// The work has completed.
    Done,
    /// The cancel flag was set.
    Canceled,
}

impl Fence {
    /// Creates a fence for pending work.
    pub fn pending() -> Self {
        Fence::default()
    }

    /// Creates a fence that is already completed, without a failure.
    pub fn done() -> Self {
        Fence { done: AtomicBool::new(true), ..Fence::pending() }
    }

    /// Makes the fence pending again. Requires that there is no other reference to it.
    pub fn reset(&mut self) {
        self.done = AtomicBool::new(false);
        self.queue = AtomicUsize::new(0);
        *self.end.get_mut() = FenceOutcome::default();
    }

    /// Sets the id of the queue whose work completes the fence. Must be called before the fence is
    /// shared.
    pub(super) fn belongs_to(&self, queue: usize) {
        self.queue.store(queue, Ordering::Relaxed);
    }

    /// Completes the fence, stores the failure of the work, if any, and wakes the waiting threads.
    pub fn complete(&self, failure: Option<Error>) {
        let mut end = self.end.lock();
        end.stamp_ns = now_ns();
        end.failure = failure;
        self.done.store(true, Ordering::Release);
        if end.waiters > 0 {
            self.changed.notify_all();
        }
    }

    /// Returns true if the work that the fence represents has ended.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Returns the result of the work that the fence represents. The work must have ended.
    pub fn result(&self) -> Result<()> {
        self.end.lock().failure.clone().map_or(Ok(()), Err)
    }

    /// Returns true if the work that the fence represents has ended. Fails if the work failed.
    pub fn query(&self) -> Result<bool> {
        if self.is_done() { self.result().map(|()| true) } else { Ok(false) }
    }

    /// Waits until the work that the fence represents has ended, and returns the result of the
    /// work. Fails as [`Fence::wait`] does.
    pub fn join(&self) -> Result<()> {
        self.wait(Deadline::NEVER, &AtomicBool::new(false))?;
        self.result()
    }

    /// Returns the time of the monotonic clock, in nanoseconds, at which the work ended.
    pub fn stamp_ns(&self) -> u64 {
        self.end.lock().stamp_ns
    }

    /// Waits until the work has ended, the deadline passes (TIMEOUT), or `canceled` is set and
    /// [`Fence::nudge`] is called. Fails with INVALID_STATE if the calling thread runs work of the
    /// queue that completes the fence.
    pub fn wait(&self, deadline: Deadline, canceled: &AtomicBool) -> Result<WaitOutcome> {
        if !self.is_done() && super::reentrancy::is(self.queue.load(Ordering::Relaxed)) {
            return super::reentrancy::refused();
        }
        for _ in 0..SPINS {
            if self.is_done() {
                return Ok(WaitOutcome::Done);
            }
            std::hint::spin_loop();
        }
        let mut end = self.end.lock();
        end.waiters += 1;
        let waited = loop {
            if self.is_done() {
                break Ok(WaitOutcome::Done);
            }
            if canceled.load(Ordering::Acquire) {
                break Ok(WaitOutcome::Canceled);
            }
            match deadline.left_ns() {
                0 => {
                    break timed_out("the event");
                }
                u64::MAX => end = self.changed.wait(end),
                left => end = self.changed.wait_for(end, Duration::from_nanos(left)),
            }
        };
        end.waiters -= 1;
        waited
    }

    /// Wakes the waiting threads, so that they check their cancel flags.
    pub fn nudge(&self) {
        let _end = self.end.lock(); // excludes a waiter between its check and its sleep
        self.changed.notify_all();
    }
}

/// Fails with TIMEOUT: the work of `whose` has not completed in time.
#[cold]
pub fn timed_out<T>(whose: &str) -> Result<T> {
    fail!(DTL_ERROR_TIMEOUT, "{whose} was not done in time; wait again or longer")
}

#[cfg(test)]
#[path = "tests/fence.rs"]
mod tests;
