//! Policies: submit tasks, wait.
//!
//! A task that a thread runs itself takes the fast path: two short visits to the epoch and the
//! task between them, outside. Everything else goes through a reference to the policy.
//! dtl: header(dtl_select.h)

use crate::abi::devices::policy::*;
use crate::abi::handle::dtl_policy_t;
use crate::abi::status::{DTL_ERROR_INVALID_STATE, DTL_SUCCESS, dtl_status_t};
use crate::error::{Result, fail};
use crate::ffi::args::{self, Out};
use crate::ffi::guard::{self, Entry, UNTRACED};
use crate::last_error::Mark;
use crate::runtime::policy::submit::{self, NOTHING_LEFT, Task, TaskFn, is_nothing};
use crate::runtime::policy::{self, FastPolicy, ListElement, Policy, ResourceChoice, Run, TaskEnd};
use crate::sys::handles::epoch::{CallbackGuard, Guard, Visit};
use crate::sys::memory::buf::Addr;
use crate::sys::sync::wait::{Deadline, TscTimer};
use std::ffi::c_void;
use std::sync::Arc;

/// Arguments of a submit.
#[derive(Clone, Copy)]
struct SubmitArgs {
    policy: dtl_policy_t,
    key: dtl_task_key_t,
    function: dtl_policy_task_fn_t,
    arg: *mut c_void,
    out: *mut dtl_submission_t,
}

/// Submits a task: selects a resource and passes the task to it.
///
/// For generic, inline and stream resources the calling thread calls the function of the task. For
/// inline resources the call also waits, without a limit, for work that the function left running.
/// Tasks that have ended need no cleanup, and a task that runs inline allocates nothing.
///
/// @param key         Key for policies that learn. {0, 0} = the address of the function.
/// @param task        Function of the task, see dtl_policy_task_fn_t. Its result is the status of
///                    the task, not of this call.
/// @param arg         Passed to `task`.
/// @param timeout_ns  Time limit in nanoseconds for a resource to become free ("capacity"). 0 = do
///                    not wait, DTL_TIMEOUT_INFINITE = no limit. It does not limit the task.
/// @param out         The submission. Unless its ticket is 0, pass it to dtl_submission_wait or
///                    dtl_submission_release. NULL = not wanted: a failure of the task is then
///                    returned by the next dtl_policy_wait_all.
/// @return The status of a table of the program that did not accept the task; the task no longer
///         counts on its resource. DTL_ERROR_TIMEOUT: no resource became free.
///         DTL_ERROR_INVALID_STATE: the policy has no resources yet.
///         DTL_ERROR_LIMIT: there are too many keys, or too many tasks in flight.
///         DTL_ERROR_CANCELED: the policy was released.
///         DTL_ERROR_INVALID_HANDLE: `policy` is not valid. Or the task has run, and the event in
///         its out_wait is not valid: the task counts as failed, and nothing waits for the work
///         that it left running. The text states which.
/// Equivalent: oneDPL's submit(policy, f).
/// dtl:arg opaque until(call_of:dtl_submission_wait|dtl_policy_wait_all)
/// dtl:out opt owned(dtl_submission_wait|dtl_submission_release)
/// dtl:task until(call_of:dtl_submission_wait|dtl_policy_wait_all)
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_policy_submit(
    policy: dtl_policy_t,
    key: dtl_task_key_t,
    task: dtl_policy_task_fn_t,
    arg: *mut c_void,
    timeout_ns: u64,
    out: *mut dtl_submission_t,
) -> dtl_status_t {
    /// By C's convention, so that it cannot unwind: the fast path jumps to it.
    #[cold]
    #[inline(never)]
    extern "C" fn general(
        policy: dtl_policy_t,
        key: dtl_task_key_t,
        task: dtl_policy_task_fn_t,
        arg: *mut c_void,
        timeout_ns: u64,
        out: *mut dtl_submission_t,
    ) -> dtl_status_t {
        let call = SubmitArgs { policy, key, function: task, arg, out };
        Entry("dtl_policy_submit").wait(
            |inside| call.pin(inside),
            |(task, policy)| {
                let submitted = policy.submit(&task, Some(Deadline::after(timeout_ns)));
                submitted.map(|submission| give(out, submission))
            },
        )
    }

    guard::quick(
        guard::is_open_for_quick,
        move |visit| quick(visit, SubmitArgs { policy, key, function: task, arg, out }),
        move || general(policy, key, task, arg, timeout_ns, out),
    )
}

/// Submits a task without waiting for a resource.
///
/// Otherwise it acts like dtl_policy_submit. In particular, for inline resources it waits for work
/// that the task left running.
///
/// @param key   Key for policies that learn. {0, 0} = the address of the function.
/// @param task  Function of the task, see dtl_policy_task_fn_t.
/// @param arg   Passed to `task`.
/// @param out   The submission; see dtl_policy_submit. NULL = not wanted.
/// @return The status of a table of the program that did not accept the task.
///         DTL_ERROR_BUSY: no resource is free.
///         DTL_ERROR_INVALID_STATE: the policy has no resources yet.
///         DTL_ERROR_LIMIT: there are too many keys, or too many tasks in flight.
///         DTL_ERROR_CANCELED: the policy was released.
///         DTL_ERROR_INVALID_HANDLE: `policy` is not valid, or the event that the task left is not.
/// Equivalent: oneDPL's try_submit.
/// dtl:arg opaque until(call_of:dtl_submission_wait|dtl_policy_wait_all)
/// dtl:out opt owned(dtl_submission_wait|dtl_submission_release)
/// dtl:task until(call_of:dtl_submission_wait|dtl_policy_wait_all)
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_policy_try_submit(
    policy: dtl_policy_t,
    key: dtl_task_key_t,
    task: dtl_policy_task_fn_t,
    arg: *mut c_void,
    out: *mut dtl_submission_t,
) -> dtl_status_t {
    /// By C's convention, so that it cannot unwind: the fast path jumps to it.
    #[cold]
    #[inline(never)]
    extern "C" fn general(
        policy: dtl_policy_t,
        key: dtl_task_key_t,
        task: dtl_policy_task_fn_t,
        arg: *mut c_void,
        out: *mut dtl_submission_t,
    ) -> dtl_status_t {
        let call = SubmitArgs { policy, key, function: task, arg, out };
        Entry("dtl_policy_try_submit").wait(
            |inside| call.pin(inside),
            |(task, policy)| policy.submit(&task, None).map(|submission| give(out, submission)),
        )
    }

    guard::quick(
        guard::is_open_for_quick,
        move |visit| quick(visit, SubmitArgs { policy, key, function: task, arg, out }),
        move || general(policy, key, task, arg, out),
    )
}

/// Submits a task and blocks until it has ended.
///
/// @param key         Key for policies that learn. {0, 0} = the address of the function.
/// @param task        Function of the task, see dtl_policy_task_fn_t.
/// @param arg         Passed to `task`.
/// @param timeout_ns  Time limit in nanoseconds for a resource and the end together. 0 = do not
///                    wait, DTL_TIMEOUT_INFINITE = no limit. It does not interrupt a function that
///                    the calling thread runs. For inline resources it does not limit the wait for
///                    work that the function left running.
/// @return The status of the task, or of a table of the program that did not accept it.
///         DTL_ERROR_TIMEOUT: no resource became free (the task does not run), or the task has not
///         ended (it continues, and the next dtl_policy_wait_all returns its failure).
///         DTL_ERROR_INVALID_STATE: the policy has no resources yet.
///         DTL_ERROR_LIMIT: there are too many keys, or too many tasks in flight.
///         DTL_ERROR_CANCELED: the policy was released.
///         DTL_ERROR_INVALID_HANDLE: `policy` is not valid, or the event that the task left is not.
/// Equivalent: oneDPL's submit_and_wait.
/// dtl:arg opaque until(call_of:dtl_policy_wait_all)
/// dtl:task until(call_of:dtl_policy_wait_all)
/// dtl:call blocks(timeout_ns)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_policy_submit_and_wait(
    policy: dtl_policy_t,
    key: dtl_task_key_t,
    task: dtl_policy_task_fn_t,
    arg: *mut c_void,
    timeout_ns: u64,
) -> dtl_status_t {
    const NAME: &str = "dtl_policy_submit_and_wait";
    let mut over = dtl_submission_t { policy, ticket: 0, resource: 0, status: DTL_SUCCESS };
    let call = SubmitArgs { policy, key, function: task, arg, out: &raw mut over };
    let before = Mark::now();
    let end = move |visit| {
        let status = quick(visit, call)?;
        // SAFETY: `over` outlives the call, and `quick` has written it for the last time.
        let over = unsafe { call.out.read() };
        let is_over = over.ticket == 0 && over.status == DTL_SUCCESS;
        if status != DTL_SUCCESS || is_over {
            return Some(status);
        }
        Some(Entry(NAME).wait(
            |inside| {
                Ok(if over.ticket == 0 { None } else { Some(policy::pin(inside, policy.id)?) })
            },
            |policy| match policy {
                Some(policy) => policy.wait_or_let_go(over.ticket, Deadline::after(timeout_ns)),
                None => submit::outcome(over.status, before),
            },
        ))
    };
    guard::quick(guard::is_open_for_quick, end, move || {
        Entry(NAME).wait(
            |inside| call.pin(inside),
            |(task, policy)| policy.submit_and_wait(&task, Deadline::after(timeout_ns)),
        )
    })
}

/// Blocks until a submission is complete; its `status` is then that of the task.
///
/// @param submission  The submission, updated. A complete one returns immediately. [externally
///                    synchronised]
/// @param timeout_ns  In nanoseconds; 0 polls once, DTL_TIMEOUT_INFINITE sets no limit.
/// @return The status of the task. Error texts of dtl_ calls inside the task are not preserved
///         here; use dtl_policy_submit_and_wait or dtl_policy_wait_all for that.
///         DTL_ERROR_TIMEOUT: the task has not ended. The submission is unchanged.
///         DTL_ERROR_INVALID_HANDLE: the policy was destroyed, or a copy of the submission was
///         waited for before. DTL_ERROR_CANCELED: the policy was released during the call.
/// dtl:submission inout
/// dtl:call blocks(timeout_ns) synchronised
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_submission_wait(
    submission: *mut dtl_submission_t,
    timeout_ns: u64,
) -> dtl_status_t {
    Entry("dtl_submission_wait").wait(
        |inside| {
            // SAFETY: the caller's contract: a submission.
            let known = unsafe { args::read(submission, "submission") }?;
            let policy =
                if known.ticket == 0 { None } else { Some(policy::pin(inside, known.policy.id)?) };
            Ok((Out::new(submission, "submission")?, known, policy))
        },
        |(out, known, policy)| {
            let before = Mark::now();
            let Some(policy) = policy else { return submit::outcome(known.status, before) };
            let status = policy.wait(known.ticket, timeout_ns)?;
            out.set(dtl_submission_t { ticket: 0, status, ..known });
            submit::outcome(status, before)
        },
    )
}

/// Releases a submission for which no call will wait; its ticket becomes 0.
///
/// The task continues, and the next dtl_policy_wait_all returns its failure. A complete submission
/// is not changed.
///
/// @param submission  The submission, updated. [externally synchronised]
/// @return DTL_ERROR_INVALID_HANDLE: the policy was destroyed, or a copy of the submission was
///         waited for or released before.
/// dtl:submission inout
/// dtl:call synchronised
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_submission_release(submission: *mut dtl_submission_t) -> dtl_status_t {
    Entry("dtl_submission_release").call(|inside| {
        // SAFETY: the caller's contract: a submission.
        let known = unsafe { args::read(submission, "submission") }?;
        if known.ticket != 0 {
            policy::find(inside, known.policy.id)?.let_go(known.ticket)?;
            Out::new(submission, "submission")?.set(dtl_submission_t { ticket: 0, ..known });
        }
        Ok(())
    })
}

/// Returns the resource that was selected for a submission.
///
/// @param out  The element of the list of the policy.
/// @return DTL_ERROR_INVALID_HANDLE: the policy was destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_submission_resource(
    submission: *const dtl_submission_t,
    out: *mut dtl_resource_t,
) -> dtl_status_t {
    Entry("dtl_submission_resource").call(|inside| {
        let out = Out::new(out, "out")?;
        // SAFETY: the caller's contract: a submission.
        let known = unsafe { args::read(submission, "submission") }?;
        out.put(policy::find(inside, known.policy.id)?.resource(known.resource))
    })
}

/// Blocks until everything that was submitted before has ended.
///
/// Does not wait for tasks that submits of other threads are running at the moment. A task must not
/// call it.
///
/// @param timeout_ns  In nanoseconds; 0 polls once, DTL_TIMEOUT_INFINITE sets no limit. The
///                    table's wait_resource is called only without a limit.
/// @return The first failure of a task whose submission is not owned by anyone, reported once;
///         otherwise that of a stream or of wait_resource. DTL_ERROR_TIMEOUT: a task has not ended.
///         DTL_ERROR_CANCELED: the policy was released during the call.
///         DTL_ERROR_INVALID_STATE: the policy has no resources yet.
/// Equivalent: oneDPL's wait(policy.get_submission_group()).
/// dtl:call blocks(timeout_ns)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_policy_wait_all(policy: dtl_policy_t, timeout_ns: u64) -> dtl_status_t {
    Entry("dtl_policy_wait_all")
        .wait(|inside| policy::pin(inside, policy.id), |policy| policy.wait_all(timeout_ns))
}

/// Reports that a task on a custom kind of resources has ended.
///
/// Call it exactly once for each selection whose submit succeeded, in any thread, even before that
/// submit returns.
///
/// @param selection  The selection passed to submit, or a copy of it.
/// @param status     Status of the task.
/// @param time_ns    Duration of the task in nanoseconds if wanted_info has DTL_INFO_TASK_TIME;
///                   otherwise ignored.
/// @return DTL_ERROR_INVALID_HANDLE: the end was reported before, or the policy was destroyed. The
///         call has no effect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_selection_end(
    selection: *const dtl_selection_t,
    status: dtl_status_t,
    time_ns: u64,
) -> dtl_status_t {
    Entry("dtl_selection_end").call(|inside| {
        // SAFETY: the caller's contract: a selection.
        let selection = unsafe { args::read(selection, "selection") }?;
        policy::find(inside, selection.policy.id)?.end(selection.ticket, status, time_ns)
    })
}

impl SubmitArgs {
    #[cold]
    fn pin(&self, inside: &Guard) -> Result<(Task, Arc<Policy>)> {
        let Some(function) = self.function else {
            return fail!(DTL_ERROR_NULL_POINTER, "task is NULL; pass the function to call");
        };
        let is_kept = Out::optional(self.out, "out")?.is_some();
        let (key, arg) = (key_of(self.key, function), Addr::new(self.arg));
        Ok((Task { key, function, arg, is_kept }, policy::pin(inside, self.policy.id)?))
    }
}

/// Writes a submission if the caller passed an output for it.
#[inline(always)] // row: select_fixed
fn give(out: *mut dtl_submission_t, submission: dtl_submission_t) {
    if !out.is_null() {
        // SAFETY: the caller's contract: an output, and both ways here have seen that it is
        // aligned.
        unsafe { out.write(submission) }
    }
}

/// Runs a task in this thread if its policy has a resource available. Returns `None`, without any
/// effect, if the fast path does not apply.
#[inline(always)] // row: select_fixed
fn quick(visit: Visit, call: SubmitArgs) -> Option<dtl_status_t> {
    let function = call.function.filter(|_| call.out.is_aligned())?;
    let policy = policy::quick(visit, call.policy.id)?;
    let Some((picked, given)) = policy.at_hand() else {
        return searched((call.policy, call.out), (function, call.arg), policy, call.key);
    };
    Some(run((call.policy, call.out), (function, call.arg), (picked, given), policy.into_running()))
}

/// Runs a task by a policy that has to search for a resource. A function of its own, so that the
/// path with a resource at hand keeps nothing in memory.
#[inline(never)]
fn searched(
    (id, out): (dtl_policy_t, *mut dtl_submission_t),
    (function, arg): (TaskFn, *mut c_void),
    policy: FastPolicy,
    key: dtl_task_key_t,
) -> Option<dtl_status_t> {
    let (picked, given) = policy.choose(key_of(key, function))?;
    Some(run((id, out), (function, arg), (picked, given), policy.into_running()))
}

/// Runs the task outside the epoch, and does the work that is due at its end.
#[inline(always)] // row: select_fixed
fn run(
    (policy, out): (dtl_policy_t, *mut dtl_submission_t),
    (function, arg): (TaskFn, *mut c_void),
    (ResourceChoice { index, end, started }, given): (ResourceChoice, ListElement),
    running: CallbackGuard,
) -> dtl_status_t {
    let (resource, mut left, before) = (given.plain(), NOTHING_LEFT, Mark::now());
    let status = function(&raw const resource, arg, &raw mut left);
    drop(running);
    let is_over = status == DTL_SUCCESS
        && is_nothing(&left)
        && match end {
            TaskEnd::Nothing => true,
            TaskEnd::Place => is_given_back(policy, index),
            TaskEnd::Timed(run) => is_timed(policy, index, run, started),
            TaskEnd::Told(_) => false,
        };
    if !is_over {
        return returned(
            (policy, out),
            ResourceChoice { index, end, started },
            (status, before),
            left,
        );
    }
    give(out, dtl_submission_t { policy, ticket: 0, resource: index, status });
    DTL_SUCCESS
}

/// Reports a task's success to the policy; false: the fast path does not apply.
#[inline(never)]
fn is_given_back(policy: dtl_policy_t, index: u32) -> bool {
    at_end(policy, |policy| policy.give_back(index))
}

/// Reports a task's success and duration to the policy; false: the fast path does not apply.
#[inline(never)]
fn is_timed(policy: dtl_policy_t, index: u32, run: Run, started: Option<TscTimer>) -> bool {
    at_end(policy, |policy| policy.timed(index, run, started))
}

/// Reports the end of a task to its policy; false: the fast path does not apply, and nothing was
/// done.
#[inline]
fn at_end(policy: dtl_policy_t, report: impl FnOnce(FastPolicy)) -> bool {
    let report = move |visit| policy::quick(visit, policy.id).map(report);
    guard::quick(guard::is_open_for_quick, report, move || DTL_ERROR_INVALID_STATE) == DTL_SUCCESS
}

/// Returns the key of a task: the address of its function if the caller passed none.
#[inline(always)] // row: select_tuned
fn key_of(key: dtl_task_key_t, function: TaskFn) -> dtl_task_key_t {
    let is_given = key.task != 0 || key.variant != 0;
    if is_given { key } else { dtl_task_key_t { task: function as usize as u64, variant: 0 } }
}

/// Ends a task that has failed, has left something running, or whose end the fast path cannot
/// report. Arguments are passed by value, so that they are in memory only in this case.
#[cold]
#[inline(never)]
fn returned(
    (policy, out): (dtl_policy_t, *mut dtl_submission_t),
    picked: ResourceChoice,
    (status, before): (dtl_status_t, Mark),
    left: dtl_waitable_t,
) -> dtl_status_t {
    UNTRACED.wait(
        |inside| match policy::pin(inside, policy.id) {
            Ok(policy) => Ok(Some(policy)),
            // Released by the task itself, or meanwhile: no policy is left to report to.
            Err(_) if status != DTL_SUCCESS || is_nothing(&left) => Ok(None),
            Err(gone) => Err(gone),
        },
        |found| {
            let submission = match found {
                Some(found) => found.returned(&picked, (status, before), &left, !out.is_null())?,
                None => dtl_submission_t { policy, ticket: 0, resource: picked.index, status },
            };
            give(out, submission);
            Ok(())
        },
    )
}
