//! Submission of a task: select a resource (waiting for a free resource if necessary), run the task
//! on it, and detect the end of the task. This module also implements the functions that wait for
//! tasks.
//!
//! All functions here run outside of the epoch (the critical section of the epoch-based
//! reclamation) and with a reference to the policy, so tasks and the functions of a user-defined
//! function table may block and may call the library. No lock is held while code of the application
//! or of a backend runs.

use super::in_flight::{TaskCompletion, TaskOutcome, Watch, time_since};
use super::resources::{CustomKind, ListElement, Resource, ResourceKind, slot, slot_failed};
use super::selector::ResourceChoice;
use super::{Policy, ReadyPolicy};
use crate::abi::devices::policy::*;
use crate::abi::handle::{dtl_event_t, dtl_policy_t};
use crate::abi::status::*;
use crate::error::{Error, Result, fail};
use crate::last_error::Mark;
use crate::runtime::exec::event::Event;
use crate::runtime::exec::handles;
use crate::runtime::exec::stream::Stream;
use crate::runtime::trace::{self, Args};
use crate::sys::handles::epoch;
use crate::sys::memory::buf::Addr;
use crate::sys::sync::wait::{Backoff, Deadline, TscTimer};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Function of a task, never NULL.
pub type TaskFn = extern "C" fn(
    *const dtl_resource_t,
    *mut std::ffi::c_void,
    *mut dtl_waitable_t,
) -> dtl_status_t;

/// Maximum number of off-stream tasks that a submission polls on the selected resource. Off-stream
/// tasks are tasks in flight whose end is not detected through the resource's stream. A submission
/// adds only one such task, so the number of these tasks stays small even if the policy needs no
/// reports about tasks.
const LOOKS: usize = 2;
/// If the policy needs no reports about tasks, a submission collects ended tasks only when its own
/// task raises the number of tasks in flight to a multiple of LOOK_EVERY. Applies to user-defined
/// resource kinds.
const LOOK_EVERY: usize = 64;
/// Maximum timeout in nanoseconds that is passed to a wait function that a task returned.
const WAIT_NS: u64 = 1_000_000;

/// Task to be submitted.
pub struct Task {
    /// Key that identifies the task in policies that use the results of earlier runs.
    pub key: dtl_task_key_t,
    /// Function of the task.
    pub function: TaskFn,
    /// Argument that is passed to the function of the task.
    pub arg: Addr,
    /// True if the caller will query the status of the task.
    pub is_kept: bool,
}

/// Value that a task returns if none of its work is still running.
pub const NOTHING_LEFT: dtl_waitable_t = dtl_waitable_t {
    event: crate::abi::handle::dtl_event_t { id: 0 },
    wait: None,
    object: std::ptr::null_mut(),
};

/// Returns true if `left` contains neither an event nor a wait function, which means that no work
/// of the task is still running.
pub fn is_nothing(left: &dtl_waitable_t) -> bool {
    left.event.id == 0 && left.wait.is_none()
}

/// Converts the status of a task to a result whose error message describes the failure. `before` is
/// the number of library calls that had failed, in all threads, before the task ran in this thread,
/// or the current number if the task ran elsewhere.
pub fn outcome(status: dtl_status_t, before: Mark) -> Result<()> {
    if status == DTL_SUCCESS { Ok(()) } else { Err(before.explain(task_failed(status))) }
}

#[cold]
fn task_failed(status: dtl_status_t) -> Error {
    Error::of_status("a task ended with", status)
}

impl Policy {
    /// Submits `task`. If no resource is free, waits for one until the deadline `patience`. Fails
    /// with BUSY instead of waiting if `patience` is `None`.
    pub fn submit(&self, task: &Task, patience: Option<Deadline>) -> Result<dtl_submission_t> {
        let ready = self.ready()?;
        let picked = self.pick(ready, task, patience)?;
        ready.chooser.submitted(&picked);
        let Some(resource) = ready.resources.get(picked.index as usize) else {
            return self.no_resource(&picked);
        };
        let _span = trace::span("selection", "task", || {
            Args::NONE.what(format_args!("{}: resource {}", self.rule.name(), picked.index))
        });
        match &self.kind {
            ResourceKind::Generic | ResourceKind::Inline => {
                let (given, mut left) = (resource.given.plain(), NOTHING_LEFT);
                let before = Mark::now();
                let status = (task.function)(&raw const given, task.arg.ptr(), &raw mut left);
                self.returned(&picked, (status, before), &left, task.is_kept)
            }
            ResourceKind::Streams(_) => match &resource.stream {
                Some(stream) => self.on_stream(ready, &picked, (resource.given, stream), task),
                None => self.no_resource(&picked),
            },
            ResourceKind::Custom(custom) => self.by_table(ready, &picked, resource, custom, task),
        }
    }

    fn pick(
        &self,
        ready: &ReadyPolicy,
        task: &Task,
        patience: Option<Deadline>,
    ) -> Result<ResourceChoice> {
        let thread = epoch::enter().thread_number();
        let mut backoff = Backoff::new();
        loop {
            if ready.chooser.needs_reports() || self.is_due(ready) {
                self.look(ready)?;
            }
            let (index, end) = match ready.chooser.choose(&ready.counts, task.key, thread) {
                Err(error) if error.status() == DTL_ERROR_BUSY => {
                    let Some(deadline) = patience else { return Err(error) };
                    self.is_closed()?;
                    if deadline.passed() {
                        return fail!(
                            DTL_ERROR_TIMEOUT,
                            "no resource became free in time: {}",
                            error.text()
                        );
                    }
                    backoff.pause();
                    continue;
                }
                found => found?,
            };
            let count = ready.resources.len();
            if index >= count {
                return fail!(
                    DTL_ERROR_OUT_OF_BOUNDS,
                    "select of the program's policy gave resource {index}, and there are {count} \
                     (counted from 0)"
                );
            }
            let started = ready.chooser.times(end).then(TscTimer::start);
            return Ok(ResourceChoice { index: index as u32, end, started });
        }
    }

    /// Returns true if ended tasks must be collected now, although the policy needs no reports
    /// about tasks. A user-defined resource kind needs this periodic collection: without it, tasks
    /// are collected only when the application waits for tasks.
    fn is_due(&self, ready: &ReadyPolicy) -> bool {
        matches!(self.kind, ResourceKind::Custom(_))
            && ready.flights.running() % LOOK_EVERY == LOOK_EVERY - 1
    }

    fn no_resource<T>(&self, picked: &ResourceChoice) -> Result<T> {
        fail!(DTL_ERROR_INTERNAL, "policy '{}' lost resource {}", self.rule.name(), picked.index)
    }

    /// Processes the status that a task's function has returned in the submitting thread, and
    /// returns the task's submission. `before` is the number of library calls that had failed, in
    /// all threads, before the function was called.
    pub fn returned(
        &self,
        picked: &ResourceChoice,
        (status, before): (dtl_status_t, Mark),
        left: &dtl_waitable_t,
        is_kept: bool,
    ) -> Result<dtl_submission_t> {
        let ready = self.ready()?;
        if status != DTL_SUCCESS || is_nothing(left) {
            return Ok(self.over(ready, picked, (status, before), is_kept));
        }
        let watch = watch(left).map_err(|error| self.given_up(ready, picked, error))?;
        let is_inline = matches!(self.kind, ResourceKind::Inline);
        let submission = self.fly(ready, picked, watch, is_kept || is_inline)?;
        if !is_inline {
            return Ok(submission);
        }
        let before = Mark::now();
        let status = self.wait_for(ready, submission.ticket, Deadline::NEVER)?;
        if !is_kept {
            self.remember(ready, status, before);
        }
        Ok(dtl_submission_t { ticket: 0, status, ..submission })
    }

    /// Reports a completed task to the policy. Returns the `dtl_submission_t` of the task, with
    /// ticket 0 (no ticket).
    fn over(
        &self,
        ready: &ReadyPolicy,
        picked: &ResourceChoice,
        (status, before): (dtl_status_t, Mark),
        is_kept: bool,
    ) -> dtl_submission_t {
        let ended = TaskOutcome { status, time_ns: None, before };
        let is_unheard = !is_kept && status != DTL_SUCCESS;
        self.landed(ready, &TaskCompletion { picked: *picked, ended, is_unheard });
        self.submission(picked, 0, status)
    }

    fn submission(
        &self,
        picked: &ResourceChoice,
        ticket: u64,
        status: dtl_status_t,
    ) -> dtl_submission_t {
        let policy = dtl_policy_t { id: self.id.load(Ordering::Acquire) };
        dtl_submission_t { policy, ticket, resource: picked.index, status }
    }

    /// Adds a running task to the table of tasks in flight and returns its `dtl_submission_t`.
    fn fly(
        &self,
        ready: &ReadyPolicy,
        picked: &ResourceChoice,
        watch: Watch,
        is_kept: bool,
    ) -> Result<dtl_submission_t> {
        self.look_at_some(ready, picked.index as usize, LOOKS);
        let begun = ready.flights.begin(*picked, watch, is_kept);
        let (ticket, _) = begun.map_err(|error| self.given_up(ready, picked, error))?;
        Ok(self.submission(picked, ticket, DTL_SUCCESS))
    }

    fn on_stream(
        &self,
        ready: &ReadyPolicy,
        picked: &ResourceChoice,
        (given, stream): (ListElement, &Stream),
        task: &Task,
    ) -> Result<dtl_submission_t> {
        let Some(events) = ready.flights.events(picked.index) else {
            return self.no_resource(picked);
        };
        let give_up = |error| self.given_up(ready, picked, error);
        let start = picked.started.map(|_| events.recorded(stream)).transpose().map_err(give_up)?;
        let (given, mut left, before) = (given.plain(), NOTHING_LEFT, Mark::now());
        let status = (task.function)(&raw const given, task.arg.ptr(), &raw mut left);
        if status != DTL_SUCCESS {
            start.into_iter().for_each(|event| events.keep(event));
            return Ok(self.over(ready, picked, (status, before), task.is_kept));
        }
        if left.wait.is_some() {
            start.into_iter().for_each(|event| events.keep(event));
            let watch = Watch::Call(left.wait, Addr::new(left.object));
            return self.fly(ready, picked, watch, task.is_kept);
        }
        if left.event.id != 0 {
            let event = event_left(left.event).map_err(give_up)?;
            stream.wait_event(&event).map_err(refused).map_err(give_up)?;
        } else if !task.is_kept && !picked.has_end() {
            // no caller will query the end of the task
            return Ok(self.submission(picked, 0, DTL_SUCCESS));
        }
        let stop = events.recorded(stream).map_err(give_up)?;
        self.fly(ready, picked, Watch::Stream { start, stop }, task.is_kept)
    }

    fn by_table(
        &self,
        ready: &ReadyPolicy,
        picked: &ResourceChoice,
        resource: &Resource,
        custom: &CustomKind,
        task: &Task,
    ) -> Result<dtl_submission_t> {
        let begun = ready.flights.begin(*picked, Watch::Told, task.is_kept);
        let (ticket, scratch) = begun.map_err(|error| self.given_up(ready, picked, error))?;
        let wanted = if picked.has_end() { self.needed_info } else { 0 };
        let selection = dtl_selection_t {
            policy: dtl_policy_t { id: self.id.load(Ordering::Acquire) },
            ticket,
            resource: resource.given.plain(),
            core: resource.core,
            wanted_info: wanted,
            scratch: scratch.ptr(),
            index: picked.index,
            reserved: 0,
        };
        let Some(submit) = custom.ops.submit else {
            return fail!(DTL_ERROR_INTERNAL, "the table lost its submit");
        };
        let before = Mark::now();
        let status =
            submit(custom.own.ptr(), &raw const selection, Some(task.function), task.arg.ptr());
        if status != DTL_SUCCESS {
            let error = slot_failed(status, "submit", before);
            if ready.flights.cancel(ticket).is_some() {
                self.not_taken(ready, picked, status);
            } else {
                // the failed slot had reported the end of the task
                let _ = ready.flights.take(ticket);
            }
            return Err(error);
        }
        // If the task has already completed, the submission carries its status.
        let over = if task.is_kept { ready.flights.take(ticket).unwrap_or(None) } else { None };
        Ok(match over {
            Some(status) => self.submission(picked, 0, status),
            None => self.submission(picked, if task.is_kept { ticket } else { 0 }, DTL_SUCCESS),
        })
    }

    /// Reports to the policy that a task, for which a resource was selected, failed with `error`
    /// because it was not started or its end cannot be detected. Returns the error.
    fn given_up(&self, ready: &ReadyPolicy, picked: &ResourceChoice, error: Error) -> Error {
        self.not_taken(ready, picked, error.status());
        error
    }

    /// Reports to the policy that a task, for which a resource was selected, failed with `status`.
    /// The caller returns the failure to the application.
    fn not_taken(&self, ready: &ReadyPolicy, picked: &ResourceChoice, status: dtl_status_t) {
        let ended = TaskOutcome { status, time_ns: None, before: Mark::now() };
        self.landed(ready, &TaskCompletion { picked: *picked, ended, is_unheard: false });
    }

    /// Reports the end of a task to the selection rule of the policy. If the task failed, counts
    /// the failure.
    fn landed(&self, ready: &ReadyPolicy, landed: &TaskCompletion) {
        let TaskCompletion { picked, ended: TaskOutcome { status, time_ns, before }, is_unheard } =
            landed;
        if *status != DTL_SUCCESS {
            if let Some(failed) = ready.failed.get(picked.index as usize) {
                failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        ready.chooser.ended(picked, *status, time_ns.or_else(|| time_since(picked)));
        if *is_unheard {
            self.remember(ready, *status, *before);
        }
    }

    fn remember(&self, ready: &ReadyPolicy, status: dtl_status_t, before: Mark) {
        if let Err(error) = outcome(status, before) {
            ready.failure.lock().get_or_insert(error);
        }
    }

    /// Implements dtl_selection_end: reports the end of a task on a resource of a user-defined
    /// kind. Fails if no task with this ticket is in flight.
    pub fn end(&self, ticket: u64, status: dtl_status_t, time_ns: u64) -> Result<()> {
        let ready = self.ready()?;
        let ended = TaskOutcome { status, time_ns: Some(time_ns), before: Mark::now() };
        let Some(landed) = ready.flights.end(ticket, ended) else {
            return fail!(
                DTL_ERROR_INVALID_HANDLE,
                "no task of this policy with ticket {ticket:#x} is in flight: dtl_selection_end \
                 once for each"
            );
        };
        self.landed(ready, &landed);
        Ok(())
    }

    /// Collects tasks that have ended, if tasks on this kind of resource must be polled.
    fn look(&self, ready: &ReadyPolicy) -> Result<()> {
        match &self.kind {
            ResourceKind::Custom(CustomKind { ops, own }) => {
                if let Some(look) = ops.lazy_report {
                    slot(|| look(own.ptr()), "lazy_report")?;
                }
            }
            ResourceKind::Streams(_) | ResourceKind::Generic => {
                for index in 0..ready.resources.len() {
                    self.look_at_some(ready, index, ready.flights.others(index));
                }
            }
            ResourceKind::Inline => {}
        }
        Ok(())
    }

    fn look_at_some(&self, ready: &ReadyPolicy, index: usize, others: usize) {
        ready.flights.look_at_some(index, others, &mut |landed| self.landed(ready, &landed));
    }

    /// Waits until the task `ticket` has ended and returns its status. Fails at the deadline, or if
    /// the status was already returned or discarded.
    fn wait_for(
        &self,
        ready: &ReadyPolicy,
        ticket: u64,
        deadline: Deadline,
    ) -> Result<dtl_status_t> {
        let mut backoff = Backoff::new();
        loop {
            match ready.flights.take(ticket) {
                Ok(Some(status)) => return Ok(status),
                Ok(None) => {}
                Err(()) => return self.no_such_task(ticket),
            }
            let limit = if backoff.is_long() { deadline.left_ns().min(WAIT_NS) } else { 0 };
            if let Some(landed) = ready.flights.look(ticket, limit) {
                self.landed(ready, &landed);
                continue;
            }
            self.is_closed()?;
            if deadline.passed() {
                return fail!(
                    DTL_ERROR_TIMEOUT,
                    "the task has not ended in time; wait again or longer"
                );
            }
            if matches!(self.kind, ResourceKind::Custom(_)) {
                self.look(ready)?;
            }
            backoff.pause();
        }
    }

    fn no_such_task<T>(&self, ticket: u64) -> Result<T> {
        fail!(
            DTL_ERROR_INVALID_HANDLE,
            "no submission with ticket {ticket:#x} is in flight: it was waited for or released \
             before"
        )
    }

    /// Waits at most `timeout_ns` nanoseconds for the submitted task `ticket` to end, and returns
    /// the status of the task.
    pub fn wait(&self, ticket: u64, timeout_ns: u64) -> Result<dtl_status_t> {
        self.wait_for(self.ready()?, ticket, Deadline::after(timeout_ns))
    }

    /// Discards the status of the submitted task `ticket`: no call will wait for the task.
    pub fn let_go(&self, ticket: u64) -> Result<()> {
        if self.ready()?.flights.let_go(ticket) { Ok(()) } else { self.no_such_task(ticket) }
    }

    /// Submits a task, waits for it until the deadline, and returns its status as a result.
    pub fn submit_and_wait(&self, task: &Task, deadline: Deadline) -> Result<()> {
        let before = Mark::now();
        let submission = self.submit(task, Some(deadline))?;
        if submission.ticket == 0 {
            return outcome(submission.status, before);
        }
        self.wait_or_let_go(submission.ticket, deadline)
    }

    /// Waits until the submitted task `ticket` has ended, and returns its status as a result. If
    /// the wait fails, discards the status.
    pub fn wait_or_let_go(&self, ticket: u64, deadline: Deadline) -> Result<()> {
        let before = Mark::now();
        let ended = self.wait_for(self.ready()?, ticket, deadline);
        let status = ended.inspect_err(|_| {
            let _ = self.let_go(ticket);
        })?;
        outcome(status, before)
    }

    /// Waits for all submitted tasks. Returns the first unreported failure.
    pub fn wait_all(&self, timeout_ns: u64) -> Result<()> {
        let ready = self.ready()?;
        let deadline = Deadline::after(timeout_ns);
        let mut result = Ok(());
        for resource in &ready.resources {
            let waited = match (&self.kind, &resource.stream) {
                (ResourceKind::Streams(_), Some(stream)) => wait_for_stream(stream, deadline),
                (ResourceKind::Custom(CustomKind { ops, own }), _) if !deadline.is_finite() => {
                    ops.wait_resource.map_or(Ok(()), |wait| {
                        slot(|| wait(own.ptr(), resource.core), "wait_resource")
                    })
                }
                _ => Ok(()),
            };
            if let Err(error) = waited {
                if error.status() == DTL_ERROR_TIMEOUT && deadline.passed() {
                    return Err(error);
                }
                result = result.and(Err(error));
            }
        }
        let mut backoff = Backoff::new();
        loop {
            self.look(ready)?;
            if ready.flights.running() == 0 {
                break;
            }
            self.is_closed()?;
            if deadline.passed() {
                let left = ready.flights.running();
                return fail!(
                    DTL_ERROR_TIMEOUT,
                    "{left} tasks have not ended in time; wait again or longer"
                );
            }
            backoff.pause();
        }
        let failure = ready.failure.lock().take();
        failure.map_or(result, Err)
    }
}

/// Returns the method for detecting the end of the work that is still running after a task's
/// function has returned.
fn watch(left: &dtl_waitable_t) -> Result<Watch> {
    if left.wait.is_some() {
        return Ok(Watch::Call(left.wait, Addr::new(left.object)));
    }
    Ok(Watch::Record(event_left(left.event)?.gate()))
}

fn event_left(event: dtl_event_t) -> Result<Arc<Event>> {
    handles::pin::<Event>(&epoch::enter(), event.id).map_err(refused)
}

#[cold]
fn refused(error: Error) -> Error {
    error.within("the task has run, and what it left in out_wait->event is refused")
}

fn wait_for_stream(stream: &Stream, deadline: Deadline) -> Result<()> {
    let mut backoff = Backoff::new();
    while deadline.is_finite() {
        // A stream that cannot be queried, or that has failed, is synchronized after the loop.
        if stream.query().unwrap_or(true) {
            break;
        }
        if deadline.passed() {
            return fail!(
                DTL_ERROR_TIMEOUT,
                "tasks on a stream have not ended in time; wait again or longer"
            );
        }
        backoff.pause();
    }
    stream.synchronize()
}
