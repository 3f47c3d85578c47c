//! Events: the library's own events and backend events behind one interface.
//!
//! Each recording gives an event of the library a new fence: the completion state of the work that
//! precedes the event in the stream. A waiting thread uses the fence that is current when the wait
//! starts, so recording the event again neither prolongs nor deadlocks an earlier wait.
//!
//! `stream` records events, because it can access both the stream and the event.

use super::deferred_errors::{DeferredErrors, Mark};
use super::fence::{Fence, WaitOutcome, timed_out};
use super::{exec_of, reentrancy};
use crate::abi::devices::exec::DTL_EVENT_NO_TIMING;
use crate::error::{Error, Result, fail, failure};
use crate::hints;
use crate::runtime::component::{Exec, Token};
use crate::runtime::log;
use crate::runtime::registry::Backend;
use crate::sys::sync::lock::Mutex;
use crate::sys::sync::wait::{Backoff, Deadline};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Event: a point in the sequence of work in a stream. Threads can query whether the work before
/// this point is complete, and wait for it.
pub struct Event {
    backend: Arc<Backend>,
    timing: bool,
    destroyed: AtomicBool,
    pub(super) body: EventImpl,
}

pub(super) enum EventImpl {
    Own(HostEvent),
    Backend(Foreign),
}

/// Event of a backend, with a [`Mark`] for failures of the library's own work that was queued on
/// the stream before the event was recorded.
pub(super) struct Foreign {
    pub(super) token: Token,
    /// True if `mark` contains a [`Mark`]. Read before `mark` is locked, so that queries of events
    /// without a [`Mark`] do not take the lock.
    is_marked: AtomicBool,
    mark: Mutex<Option<Mark>>,
}

/// Event that the library implements.
pub(super) struct HostEvent(Mutex<HostEventState>);

struct HostEventState {
    fence: Arc<Fence>,
    recorded: bool,
    /// Fences that threads are waiting for, so that the destruction of the event can wake these
    /// threads.
    waiting: Vec<Arc<Fence>>,
}

impl Event {
    /// Creates an event that the backend `backend` implements if it provides events, otherwise an
    /// event that the library implements.
    pub fn create(backend: Arc<Backend>, flags: u64) -> Result<Self> {
        if flags & !DTL_EVENT_NO_TIMING != 0 {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "event flags {flags:#x} hold unknown bits; only DTL_EVENT_NO_TIMING is known"
            );
        }
        let body = match backend.exec.as_deref().filter(|exec| exec.groups().events) {
            Some(exec) => EventImpl::Backend(Foreign::new(exec.event_create(flags)?)),
            None => EventImpl::Own(HostEvent::new()),
        };
        let timing = flags & DTL_EVENT_NO_TIMING == 0;
        Ok(Event { backend, timing, destroyed: AtomicBool::new(false), body })
    }

    /// Returns the backend for which the event was created.
    pub fn backend(&self) -> &Arc<Backend> {
        &self.backend
    }

    /// Returns true if the event was never recorded, or if the work queued before it was last
    /// recorded is complete. Fails if that work failed.
    #[inline]
    pub fn query(&self) -> Result<bool> {
        match &self.body {
            EventImpl::Own(own) => hints::out_of_line(|| own.fence().query()),
            EventImpl::Backend(foreign) => {
                let done = exec_of(&self.backend)?.event_query(foreign.token)?;
                if done { foreign.result().map(|()| true) } else { Ok(false) }
            }
        }
    }

    /// Waits for the event as [`Event::wait`] does, without a time limit.
    pub fn sync(&self) -> Result<()> {
        self.wait(u64::MAX)
    }

    /// Waits until the work queued before the event was last recorded is complete, for at most
    /// `timeout_ns` nanoseconds; u64::MAX means no limit. Fails with TIMEOUT if the work is not
    /// complete by then, with CANCELED if the event is destroyed during the wait, and with
    /// INVALID_STATE if the calling thread is executing work that was queued before the event was
    /// recorded.
    pub fn wait(&self, timeout_ns: u64) -> Result<()> {
        let deadline = Deadline::after(timeout_ns);
        match &self.body {
            EventImpl::Own(own) => self.wait_own(own, deadline),
            EventImpl::Backend(foreign) => {
                let exec = exec_of(&self.backend)?;
                foreign.check_caller(exec)?;
                // The slot has no time limit.
                if deadline.is_finite() || exec.event_sync(foreign.token)?.is_none() {
                    self.poll(exec, foreign, deadline)?;
                }
                foreign.result()
            }
        }
    }

    fn wait_own(&self, own: &HostEvent, deadline: Deadline) -> Result<()> {
        let fence = own.fence();
        if !fence.is_done() {
            own.0.lock().waiting.push(Arc::clone(&fence));
            let waited = fence.wait(deadline, &self.destroyed);
            own.forget(&fence);
            if waited? == WaitOutcome::Canceled {
                return self.canceled();
            }
        }
        fence.result()
    }

    fn poll(&self, exec: &dyn Exec, foreign: &Foreign, deadline: Deadline) -> Result<()> {
        let mut backoff = Backoff::new();
        while !exec.event_query(foreign.token)? {
            if self.destroyed.load(Ordering::Acquire) {
                return self.canceled();
            }
            if deadline.passed() {
                return timed_out("the event");
            }
            backoff.pause();
        }
        Ok(())
    }

    fn canceled(&self) -> Result<()> {
        fail!(DTL_ERROR_CANCELED, "the event was destroyed while this thread waited for it")
    }

    /// Returns a gate, which opens when the work queued before the event was last recorded is
    /// complete. If a backend's event is recorded again, its existing gates refer to the new
    /// recording, because a backend's event stores only the latest one.
    pub fn gate(self: &Arc<Self>) -> EventGate {
        match &self.body {
            EventImpl::Own(own) => EventGate::Record(own.fence()),
            EventImpl::Backend(_) => EventGate::Latest(Arc::clone(self)),
        }
    }

    /// Returns the time in nanoseconds from the completion of this event to the completion of
    /// `stop`.
    pub fn elapsed_ns(&self, stop: &Event) -> Result<u64> {
        for (event, role) in [(self, "start"), (stop, "stop")] {
            if !event.timing {
                return fail!(
                    DTL_ERROR_INVALID_ARGUMENT,
                    "the {role} event was made with DTL_EVENT_NO_TIMING; make it without"
                );
            }
        }
        match (&self.body, &stop.body) {
            (EventImpl::Own(start), EventImpl::Own(stop)) => {
                let (start, stop) = (start.stamp("start")?, stop.stamp("stop")?);
                stop.checked_sub(start).map_or_else(
                    || {
                        fail!(
                            DTL_ERROR_INVALID_ARGUMENT,
                            "the stop event came before the start; swap them"
                        )
                    },
                    Ok,
                )
            }
            (EventImpl::Backend(start), EventImpl::Backend(end))
                if Arc::ptr_eq(&self.backend, &stop.backend) =>
            {
                exec_of(&self.backend)?.event_elapsed(start.token, end.token)?.ok_or_else(|| {
                    let name = self.backend.name();
                    failure!(DTL_ERROR_NOT_SUPPORTED, "backend '{name}' does not time its events")
                })
            }
            _ => fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "events of backends '{}' and '{}' have different clocks; use two of one backend",
                self.backend.name(),
                stop.backend.name()
            ),
        }
    }

    /// Wakes the threads that wait for the event; their waits fail with CANCELED. Called when the
    /// handle of the event is destroyed.
    pub fn cancel_waiters(&self) {
        self.destroyed.store(true, Ordering::Release);
        if let EventImpl::Own(own) = &self.body {
            let waiting = own.0.lock().waiting.clone();
            waiting.iter().for_each(|fence| fence.nudge());
        }
    }
}

/// Condition that becomes true (the gate opens) when the work queued before an event was recorded
/// is complete. Stays valid after the event is destroyed.
pub enum EventGate {
    /// The work queued before one particular recording of an event is complete.
    Record(Arc<Fence>),
    /// The work queued before the latest recording of the event is complete.
    Latest(Arc<Event>),
}

impl EventGate {
    /// Returns true if the work queued before the event was recorded is complete. Fails if the work
    /// failed.
    pub fn is_open(&self) -> Result<bool> {
        match self {
            EventGate::Record(fence) => fence.query(),
            EventGate::Latest(event) => event.query(),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let (EventImpl::Backend(foreign), Some(exec)) =
            (&self.body, self.backend.exec.as_deref())
        {
            log::failure("destroying an event", exec.event_destroy(foreign.token));
        }
    }
}

impl Foreign {
    fn new(token: Token) -> Self {
        Foreign { token, is_marked: AtomicBool::new(false), mark: Mutex::new(None) }
    }

    /// Stores the [`Mark`] that covers the library's own work queued before the event was recorded.
    /// Called after the event has been recorded. `trail` contains the failures of the library's own
    /// work in the stream.
    #[inline]
    pub(super) fn follow(&self, trail: &Arc<DeferredErrors>) {
        if trail.is_open() || self.is_marked.load(Ordering::Relaxed) {
            self.put(trail.mark());
        }
    }

    #[cold]
    fn put(&self, mark: Option<Mark>) {
        let mut place = self.mark.lock();
        self.is_marked.store(mark.is_some(), Ordering::Release);
        *place = mark;
    }

    /// Returns the [`Mark`] (position in the sequence of the library's own work in a stream) that
    /// covers the work queued before the event was last recorded.
    #[inline]
    pub(super) fn mark(&self) -> Option<Mark> {
        if self.is_marked.load(Ordering::Acquire) { self.mark.lock().clone() } else { None }
    }

    /// Returns the result of the library's own work queued before the event was last recorded.
    /// Valid once the event has completed.
    #[inline]
    fn result(&self) -> Result<()> {
        if !self.is_marked.load(Ordering::Acquire) {
            return Ok(());
        }
        hints::out_of_line(|| self.mark().map_or(Ok(()), |mark| mark.result()))
    }

    /// Fails with INVALID_STATE if a wait for the event would deadlock because the calling thread
    /// is executing work that was queued before the event was recorded.
    fn check_caller(&self, exec: &dyn Exec) -> Result<()> {
        match self.mark() {
            Some(mark) if mark.is_behind_caller() && !exec.event_query(self.token)? => {
                reentrancy::refused()
            }
            _ => Ok(()),
        }
    }
}

impl HostEvent {
    fn new() -> Self {
        let fence = Arc::new(Fence::done());
        HostEvent(Mutex::new(HostEventState { fence, recorded: false, waiting: Vec::new() }))
    }

    /// Returns the fence (completion state) of the latest recording of the event.
    pub(super) fn fence(&self) -> Arc<Fence> {
        Arc::clone(&self.0.lock().fence)
    }

    /// Records the event after work that is still pending. Returns the fence to complete when this
    /// work ends.
    pub(super) fn begin(&self) -> Arc<Fence> {
        let mut record = self.0.lock();
        Arc::clone(record.fresh())
    }

    /// Records the event after work that has already ended. `failure` is the failure of that work,
    /// if any.
    pub(super) fn complete(&self, failure: Option<Error>) {
        self.0.lock().fresh().complete(failure);
    }

    fn forget(&self, fence: &Arc<Fence>) {
        let mut record = self.0.lock();
        if let Some(at) = record.waiting.iter().position(|waiting| Arc::ptr_eq(waiting, fence)) {
            record.waiting.swap_remove(at);
        }
    }

    fn stamp(&self, role: &str) -> Result<u64> {
        let record = self.0.lock();
        if !record.recorded {
            return fail!(
                DTL_ERROR_INVALID_STATE,
                "the {role} event was never recorded; record it first"
            );
        }
        if !record.fence.is_done() {
            return fail!(
                DTL_ERROR_INVALID_STATE,
                "the {role} event is still pending; wait for it first"
            );
        }
        Ok(record.fence.stamp_ns())
    }
}

impl HostEventState {
    /// Replaces the fence with a pending fence for a new recording of the event, and returns the
    /// pending fence. Reuses the memory of the previous fence if there is no other reference to it.
    fn fresh(&mut self) -> &Arc<Fence> {
        self.recorded = true;
        match Arc::get_mut(&mut self.fence) {
            Some(fence) => fence.reset(),
            None => self.fence = Arc::new(Fence::pending()),
        }
        &self.fence
    }
}
