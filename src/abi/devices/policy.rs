//! Policies: resources, tasks, reports of their owners, tables.
//! dtl: section(ffi/dispatch/policy)

use crate::abi::handle::{dtl_backend_t, dtl_event_t, dtl_policy_t};
use crate::abi::status::dtl_status_t;
use std::ffi::{c_char, c_void};

/// Flag of `dtl_policy_create`: dtl_policy_initialize sets the resources later.
pub const DTL_POLICY_DEFER: u64 = 1;

/// Kind of resources: any value, whose use is up to the task.
///
/// Nothing is reported about tasks, so only policies that need no reports accept this kind. In
/// dtl_policy_opts_t::kind 0 means CUSTOM if there is a table, GENERIC if there is a list,
/// otherwise STREAMS. With DTL_POLICY_DEFER and no table 0 is refused, because there is no list
/// yet.
pub const DTL_RESOURCES_GENERIC: u32 = 1;
/// Kind of resources: anything on the host. A task ends when its function returns; the submit waits
/// for work that the function left running.
pub const DTL_RESOURCES_INLINE: u32 = 2;
/// Kind of resources: streams. A task queues work on its stream and ends when that work does. As on
/// any stream, tasks queued behind a failure report it too, until dtl_policy_wait_all.
pub const DTL_RESOURCES_STREAMS: u32 = 3;
/// Kind of resources: defined by a table of the program, dtl_policy_opts_t::ops.
pub const DTL_RESOURCES_CUSTOM: u32 = 4;

/// Information on a task: its submission.
pub const DTL_INFO_TASK_SUBMISSION: u64 = 1;
/// Information on a task: its end.
pub const DTL_INFO_TASK_COMPLETION: u64 = 2;
/// Information on a task: its duration in nanoseconds.
pub const DTL_INFO_TASK_TIME: u64 = 4;

/// Resource on which tasks run. It is an element of an array, so it never grows.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_resource_t {
    /// Value of the resource: a pointer (as uintptr_t), the id of a handle, a number. With
    /// DTL_RESOURCES_STREAMS and no adapter, the id of a dtl_stream_t.
    pub value: u64,
    /// Private data of the program, passed to every task on this resource.
    /// dtl: opaque until(destroy)
    pub user: *mut c_void,
}

/// Key that identifies a task in policies that learn its duration. {0, 0} = the address of its
/// function.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_task_key_t {
    /// Number of the task.
    pub task: u64,
    /// Variant of the task, such as its size. Each variant is tuned separately.
    pub variant: u64,
}

/// Waits for work that a task left running, for at most `timeout_ns` nanoseconds; 0 = only check.
///
/// Returns DTL_ERROR_TIMEOUT while the work is in progress, then DTL_SUCCESS or the failure of the
/// task. After any status but DTL_ERROR_TIMEOUT it is not called again. Thread: any that submits or
/// waits, one at a time. Locks held: none. It may call dtl_ functions. It must not throw.
/// dtl:object opaque
pub type dtl_waitable_fn_t =
    Option<extern "C" fn(object: *mut c_void, timeout_ns: u64) -> dtl_status_t>;

/// Work that a task left running when its function returned. All zero = none: the task has ended.
/// Ignored if the function returns a failure.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_waitable_t {
    /// Event to wait for, at its current record. For an event that the library implements, a later
    /// record changes nothing.
    pub event: dtl_event_t,
    /// Function to call instead, until it reports that all work has ended.
    /// dtl: opt
    pub wait: dtl_waitable_fn_t,
    /// Passed to `wait`.
    /// dtl: opaque
    pub object: *mut c_void,
}

/// Function of a task.
///
/// `resource` is the selected element of the list (not the result of an adapter), valid during the
/// call. `out_wait` is all zero; the task may describe there the work that it left running. A
/// status other than DTL_SUCCESS is the failure of the task, which has ended anyway. If the number
/// is not a status, calls that return the status of the task return DTL_ERROR_NATIVE_BACKEND; the
/// text and dtl_submission_t have the number. Thread: the one that submits, or, with a table of the
/// program, any thread that the table chooses. Locks held: none. It may block, call dtl_ functions
/// and submit to the same policy. It must not throw.
/// dtl:arg opaque
/// dtl:out_wait inout
pub type dtl_policy_task_fn_t = Option<
    extern "C" fn(
        resource: *const dtl_resource_t,
        arg: *mut c_void,
        out_wait: *mut dtl_waitable_t,
    ) -> dtl_status_t,
>;

/// Submitted task. It is a plain value: once it is complete, there is nothing to destroy.
/// dtl: section(ffi/dispatch/policy_submit)
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_submission_t {
    /// Policy to which the task was submitted.
    /// dtl: borrowed
    pub policy: dtl_policy_t,
    /// 0 = complete, and `status` is that of the task. Otherwise in flight: pass the submission to
    /// dtl_submission_wait, or to dtl_submission_release if no call will wait.
    pub ticket: u64,
    /// Selected resource: index into the list of the policy.
    pub resource: u32,
    /// Status of the task, once it is complete.
    pub status: dtl_status_t,
}

/// Task that is passed to a custom kind of resources. May be copied; `dtl_selection_end` accepts
/// any copy.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_selection_t {
    /// The policy.
    /// dtl: borrowed
    pub policy: dtl_policy_t,
    /// Identifies this selection in the policy; never 0.
    pub ticket: u64,
    /// Element of the list, which the function of the task receives.
    pub resource: dtl_resource_t,
    /// Result of the adapter for the resource; without an adapter, resource.value.
    pub core: u64,
    /// DTL_INFO_... that the policy needs about this task, ORed. TASK_TIME has a cost: measure only
    /// if it is set.
    /// dtl: flags(DTL_INFO_)
    pub wanted_info: u64,
    /// Memory of scratch_bytes for this selection, aligned to 16 bytes, valid until
    /// dtl_selection_end; NULL if none was requested. Not initialised: it may contain data of an
    /// earlier selection.
    /// dtl: inout len(?) opt until(call_of:dtl_selection_end)
    pub scratch: *mut c_void,
    /// Index of the resource.
    pub index: u32,
    /// Always 0.
    pub reserved: u32,
}

/// Table of a custom kind of resources. Start from DTL_RESOURCE_OPS_INIT. The table is copied,
/// `self` is not.
///
/// For every slot: several threads may call it at once. Locks held: none. It may call dtl_
/// functions, except to wait for the policy. It must not throw.
/// dtl: section(ffi/dispatch/policy)
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_resource_ops_t {
    /// sizeof(dtl_resource_ops_t), set by DTL_RESOURCE_OPS_INIT.
    pub struct_size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// DTL_INFO_... that it can report, ORed. TASK_SUBMISSION always works and need not be set.
    /// dtl: flags(DTL_INFO_)
    pub supported_info: u64,
    /// Optional. Writes at most `cap` existing resources to `out`, and the number of all to
    /// `out_n`. Called if a list is NULL.
    /// dtl: opt
    pub default_resources: Option<
        extern "C" fn(
            self_: *mut c_void,
            out: *mut dtl_resource_t,
            cap: u64,
            out_n: *mut u64,
        ) -> dtl_status_t,
    >,
    /// Optional. Checks whether a resource (`core`, see dtl_selection_t) can be used if
    /// `needed_info` is to be reported. If not, writes the reason to `why` (`cap` bytes with NUL),
    /// and the policy omits the resource.
    /// dtl: opt
    pub accept: Option<
        extern "C" fn(
            self_: *mut c_void,
            core: u64,
            needed_info: u64,
            out_yes: *mut i32,
            why: *mut c_char,
            cap: u64,
        ) -> dtl_status_t,
    >,
    /// Optional. Returns the scratch memory in bytes for each selection in flight if `needed_info`
    /// is to be reported.
    /// dtl: opt
    pub scratch_bytes: Option<extern "C" fn(self_: *mut c_void, needed_info: u64) -> u64>,
    /// Required. Runs task(&selection->resource, arg, &wait) now or later, in this or another
    /// thread, and calls dtl_selection_end exactly once when it has ended. A status other than
    /// DTL_SUCCESS means that it did not accept the task and will not call dtl_selection_end;
    /// dtl_policy_submit returns that status.
    pub submit: Option<
        extern "C" fn(
            self_: *mut c_void,
            selection: *const dtl_selection_t,
            task: dtl_policy_task_fn_t,
            arg: *mut c_void,
        ) -> dtl_status_t,
    >,
    /// Optional. Waits for everything submitted to a resource. Called by dtl_policy_wait_all. May
    /// block.
    /// dtl: opt
    pub wait_resource: Option<extern "C" fn(self_: *mut c_void, core: u64) -> dtl_status_t>,
    /// Optional. Polls for tasks that have ended and calls dtl_selection_end for them. Called
    /// before a selection that needs reports, and repeatedly while a thread waits. Must not block.
    /// dtl: opt
    pub lazy_report: Option<extern "C" fn(self_: *mut c_void) -> dtl_status_t>,
    /// Optional. Called once, after the last user of the policy.
    /// dtl: opt
    pub destroy: Option<extern "C" fn(self_: *mut c_void)>,
}

/// Table of a custom policy. Start from DTL_POLICY_OPS_INIT. The table is copied, `self` is not.
///
/// For every slot: it runs in the thread that submits or reports, in several at once. Locks held:
/// none. It must not block or throw.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_policy_ops_t {
    /// sizeof(dtl_policy_ops_t), set by DTL_POLICY_OPS_INIT.
    pub struct_size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// DTL_INFO_... that `report` needs, ORed.
    /// dtl: flags(DTL_INFO_)
    pub needed_info: u64,
    /// Optional. Receives the resources. Called once, before the first `select`.
    /// dtl: opt
    pub initialize: Option<
        extern "C" fn(
            self_: *mut c_void,
            resources: *const dtl_resource_t,
            count: u64,
        ) -> dtl_status_t,
    >,
    /// Required. Selects a resource. DTL_ERROR_BUSY = none is free now: dtl_policy_submit calls
    /// again until its time limit. Any other failure is that of the submit.
    pub select: Option<
        extern "C" fn(self_: *mut c_void, key: dtl_task_key_t, out_index: *mut u32) -> dtl_status_t,
    >,
    /// Required if needed_info is not 0. Called once for each bit of it and each task: SUBMISSION
    /// with value 0, COMPLETION with the status of the task, TIME with nanoseconds (-1 if the task
    /// failed or was not accepted).
    /// dtl: opt(needed_info==0)
    pub report: Option<
        extern "C" fn(self_: *mut c_void, index: u32, key: dtl_task_key_t, info: u64, value: i64),
    >,
    /// Optional. Called once, after the last user of the policy.
    /// dtl: opt
    pub destroy: Option<extern "C" fn(self_: *mut c_void)>,
}

/// Converts an element of the list to the value that the kind of resources uses: the pointer of a
/// wrapper to the stream in it, for example.
///
/// Called once for each resource, by the thread that creates or initialises the policy. It must not
/// throw.
/// dtl:user opaque
pub type dtl_resource_adapter_fn_t =
    Option<extern "C" fn(user: *mut c_void, resource: *const dtl_resource_t) -> u64>;

/// Options of `dtl_policy_create`. Start from DTL_POLICY_OPTS_INIT; 0 everywhere is the default.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_policy_opts_t {
    /// sizeof(dtl_policy_opts_t), set by DTL_POLICY_OPTS_INIT.
    pub struct_size: u32,
    /// DTL_RESOURCES_...; 0 = see DTL_RESOURCES_GENERIC.
    /// dtl: values(DTL_RESOURCES_)
    pub kind: u32,
    /// 0 or DTL_POLICY_DEFER.
    /// dtl: flags(DTL_POLICY_)
    pub flags: u64,
    /// Table of a custom kind of resources; NULL = none.
    /// dtl: opt(kind!=DTL_RESOURCES_CUSTOM)
    pub ops: *const dtl_resource_ops_t,
    /// Passed to the slots of `ops`.
    /// dtl: opaque until(destroy)
    pub ops_self: *mut c_void,
    /// Streams: backend whose devices a NULL list refers to; null = those of every backend that
    /// "auto" may choose.
    pub backend: dtl_backend_t,
    /// Adapter; NULL = elements of the list are used unchanged.
    /// dtl: opt until(call_of:dtl_policy_initialize)
    pub adapter: dtl_resource_adapter_fn_t,
    /// Passed to the adapter.
    /// dtl: opaque until(call_of:dtl_policy_initialize)
    pub adapter_user: *mut c_void,
    /// "fixed": index of the resource in the list as it is passed, even if the policy omits others.
    pub fixed_index: u32,
    /// "capacity": maximum number of tasks in flight on each resource; 0 = 1.
    pub capacity: u32,
    /// "auto_tune": number of timed runs on each resource; 0 = 3.
    pub samples: u32,
    /// "auto_tune": number of untimed runs on each resource before those; UINT32_MAX = none, 0 = 1.
    pub warmups: u32,
    /// "auto_tune": number of submits of a tuned task by one thread after which it is tuned again;
    /// 0 = never.
    pub resample_submits: u64,
}

/// Properties of a policy, see `dtl_policy_traits`. Start from DTL_POLICY_TRAITS_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_policy_traits_t {
    /// sizeof(dtl_policy_traits_t), set by DTL_POLICY_TRAITS_INIT.
    pub struct_size: u32,
    /// DTL_RESOURCES_....
    /// dtl: values(DTL_RESOURCES_)
    pub kind: u32,
    /// 1 = a task may still run when submit returns, 0 = it never does.
    /// dtl: bool
    pub has_wait_type: u32,
    /// 1 = ends are detected by polling, before selections that need them.
    /// dtl: bool
    pub lazy_report: u32,
    /// Scratch memory for each selection in flight, in bytes.
    pub scratch_bytes: u64,
    /// DTL_INFO_... that its resources can report, ORed.
    /// dtl: flags(DTL_INFO_)
    pub supported_info: u64,
    /// DTL_INFO_... that the policy needs to select, ORed.
    /// dtl: flags(DTL_INFO_)
    pub needed_info: u64,
    /// Number of resources; 0 = not initialised yet.
    pub resource_count: u64,
}

/// Statistics of a resource of a policy. It is an element of an array, so it never grows.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_policy_stats_t {
    /// Number of tasks for which it was selected.
    pub submitted: u64,
    /// Number of those that failed or were not accepted.
    pub failed: u64,
    /// Number of tasks on it whose end has not been detected, in policies that count them
    /// (dynamic_load, capacity); otherwise 0.
    pub load: u64,
    /// Always 0.
    pub reserved: u64,
}
