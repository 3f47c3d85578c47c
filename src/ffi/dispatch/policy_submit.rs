//! Policies: submit tasks, wait.
//!
//! A task that a thread runs itself takes the fast path: two short stays inside, the task between
//! them outside; everything else goes through a share of the policy.
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
use crate::sys::{
    handles::epoch::{CallbackGuard, Guard, Visit},
    memory::buf::Addr,
    sync::wait::{Deadline, TscTimer},
};
use std::ffi::c_void;
use std::sync::Arc;

/// What a submit is called with.
#[derive(Clone, Copy)]
struct SubmitArgs {
    policy: dtl_policy_t,
    key: dtl_task_key_t,
    function: dtl_policy_task_fn_t,
    arg: *mut c_void,
    out: *mut dtl_submission_t,
}

/// Submits a task: chooses a resource and hands the task to it. Generic, inline and stream
/// resources: the calling thread calls the task's function. Ended tasks are values: nothing is
/// allocated for a task that runs inline.
///
/// @param key         for policies that learn; {0, 0} = the function's address.
/// @param task        see dtl_policy_task_fn_t. What it returns is the task's status, not this
///                    call's.
/// @param timeout_ns  how long to wait for a resource, where the policy may have none free
///                    ("capacity"); 0 = not at all, DTL_TIMEOUT_INFINITE = no limit. Does not limit
///                    the task.
/// @param out         the submission; wait for it or release it, if its ticket is not 0. NULL = not
///                    wanted: a failure of the task is then returned by the next
///                    dtl_policy_wait_all.
/// @return DTL_ERROR_TIMEOUT: no resource became free. DTL_ERROR_INVALID_STATE: the policy has no
///         resources yet.
///         DTL_ERROR_LIMIT: too many keys. DTL_ERROR_CANCELED: the policy was released. Or the
///         status that the program's tables returned: the task was not accepted then, and no longer
///         counts as a task on its resource. DTL_ERROR_INVALID_HANDLE: `policy` is none; or the
///         task has run, and the event that it left in out_wait is none. The text names which; the
///         task counts as failed then, and nothing waits for the work that it left running.
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

/// As dtl_policy_submit, without waiting for a resource.
///
/// @return DTL_ERROR_BUSY: none is free. Else as dtl_policy_submit.
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

/// As dtl_policy_submit, and waits until the task has ended.
///
/// @param timeout_ns  for a resource and for the end together.
/// @return the task's status. DTL_ERROR_TIMEOUT: no resource became free (the task does not run),
///         or it has not ended (it goes on; its failure is the next dtl_policy_wait_all's). Else as
///         dtl_policy_submit.
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

/// Waits until a submission has ended; then it is complete, and `status` in it is the task's.
///
/// @param submission  [externally synchronised]; a complete one answers at once.
/// @param timeout_ns  0 = only look, DTL_TIMEOUT_INFINITE = no limit.
/// @return the task's status. DTL_ERROR_TIMEOUT: it has not ended; the submission is unchanged.
///         DTL_ERROR_INVALID_HANDLE: the policy is gone, or a copy of the submission was waited for
///         before.
///         DTL_ERROR_CANCELED: the policy was released while this call waited. What calls in the
///         task have said is not kept: dtl_policy_submit_and_wait and dtl_policy_wait_all tell
///         that.
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

/// Says that nobody will wait for a submission: its ticket becomes 0. The task goes on; its failure
/// is the next dtl_policy_wait_all's. A complete submission: nothing happens.
///
/// @return DTL_ERROR_INVALID_HANDLE: as for dtl_submission_wait.
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

/// The resource that a submission's task was given: the element of the policy's list.
///
/// @return DTL_ERROR_INVALID_HANDLE: the policy is gone.
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

/// Waits for everything that was submitted before; not for tasks that other threads' submits are
/// running now. Not to be called by a task.
///
/// @param timeout_ns  0 = only look, DTL_TIMEOUT_INFINITE = no limit. Only without a limit the
///                    table's wait_resource is called.
/// @return the first failure of a task whose submission nobody has, once, else of a stream or
///         wait_resource.
///         DTL_ERROR_TIMEOUT: something has not ended. DTL_ERROR_CANCELED: the policy was released
///         meanwhile.
/// Equivalent: oneDPL's wait(policy.get_submission_group()).
/// dtl:call blocks(timeout_ns)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_policy_wait_all(policy: dtl_policy_t, timeout_ns: u64) -> dtl_status_t {
    Entry("dtl_policy_wait_all")
        .wait(|inside| policy::pin(inside, policy.id), |policy| policy.wait_all(timeout_ns))
}

/// For a program's own kind of resources: a task has ended. Exactly once for each selection whose
/// submit succeeded, from any thread, also before that submit returns.
///
/// @param selection  what submit was given, or a copy.
/// @param status     the task's.
/// @param time_ns    how long it took, in nanoseconds, if wanted_info has DTL_INFO_TASK_TIME; else
///                   ignored.
/// @return DTL_ERROR_INVALID_HANDLE: reported before, or the policy is gone. Nothing happens then.
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

/// Writes a submission where it is wanted.
#[inline(always)] // row: select_fixed
fn give(out: *mut dtl_submission_t, submission: dtl_submission_t) {
    if !out.is_null() {
        // SAFETY: the caller's contract: an output, and both ways here have seen that it is
        // aligned.
        unsafe { out.write(submission) }
    }
}

/// A task that this thread runs, by a policy that has a resource at hand. `None`: it is not that,
/// and nothing happened.
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

/// Outside: the task, and what is to be done at its end.
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

/// A task's key: its function's address, if the caller gave none.
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
