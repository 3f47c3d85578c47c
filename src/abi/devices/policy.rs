//! Policies: resources, tasks, reports of their owners, tables.
//! dtl: section(ffi/dispatch/policy)

use crate::abi::handle::{dtl_backend_t, dtl_event_t, dtl_policy_t};
use crate::abi::status::dtl_status_t;
use std::ffi::{c_char, c_void};

/// Flag of `dtl_policy_create`: resources are given later, to dtl_policy_initialize.
pub const DTL_POLICY_DEFER: u64 = 1;

/// Resources are anything; a task does what it likes with the one that it is given. Nothing is
/// reported of tasks, so only policies that need no reports take them. For dtl_policy_opts_t::kind,
/// where 0 = CUSTOM if there is a table, GENERIC if there is a list, else STREAMS; with
/// DTL_POLICY_DEFER and no table 0 is refused, as there is no list yet.
pub const DTL_RESOURCES_GENERIC: u32 = 1;
/// Resources are anything on the host; a task has ended when its function returns, and what that
/// has left running is waited for by the submit.
pub const DTL_RESOURCES_INLINE: u32 = 2;
/// Resources are streams; a task queues work on its stream and has ended when that work has. As for
/// streams, a failure is that of the work behind it too, until dtl_policy_wait_all.
pub const DTL_RESOURCES_STREAMS: u32 = 3;
/// Resources are defined by the program's own table, dtl_policy_opts_t::ops.
pub const DTL_RESOURCES_CUSTOM: u32 = 4;

/// Information on tasks: when a task is submitted.
pub const DTL_INFO_TASK_SUBMISSION: u64 = 1;
/// When a task has ended.
pub const DTL_INFO_TASK_COMPLETION: u64 = 2;
/// How long a task took, in nanoseconds.
pub const DTL_INFO_TASK_TIME: u64 = 4;

/// One thing that tasks run on. The stride of arrays is fixed for ever.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_resource_t {
    /// What it is: a pointer (as uintptr_t), a handle's id, a number. With DTL_RESOURCES_STREAMS
    /// and no adapter the id of a dtl_stream_t.
    pub value: u64,
    /// The program's own; handed to every task of this resource.
    /// dtl: opaque until(destroy)
    pub user: *mut c_void,
}

/// Names a task to policies that learn how long it takes. {0, 0} = the address of its function.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_task_key_t {
    /// Which task.
    pub task: u64,
    /// Which variant of it: its size, for example. Each is tuned by itself.
    pub variant: u64,
}

/// Waits for what a task has started. `timeout_ns` 0 = only look. Returns DTL_SUCCESS or the task's
/// failure once that has ended, DTL_ERROR_TIMEOUT before. After any other status than that it is
/// not called again. Thread: any that submits or waits, one at a time. Locks held: none. It may
/// call dtl_ functions; it must not throw.
/// dtl:object opaque
pub type dtl_waitable_fn_t =
    Option<extern "C" fn(object: *mut c_void, timeout_ns: u64) -> dtl_status_t>;

/// What a task has left running when its function returns. All zero = nothing: the task is over.
/// Not looked at if the function returns a failure.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_waitable_t {
    /// Its record at this moment is waited for; a later record changes nothing for an event of the
    /// library's own.
    pub event: dtl_event_t,
    /// Or this is called until it reports that all has ended.
    /// dtl: opt
    pub wait: dtl_waitable_fn_t,
    /// For `wait`.
    /// dtl: opaque
    pub object: *mut c_void,
}

/// A task. `resource` is the element of the list that was selected (not what an adapter made of
/// it), valid during the call. `out_wait` is all zero; the task may say there what it has left
/// running. A status other than DTL_SUCCESS is the task's failure: it has ended all the same. A
/// number that is not a status makes calls that return the task's status return
/// DTL_ERROR_NATIVE_BACKEND; the text and dtl_submission_t have the number. Thread: the one that
/// submits; of a program's own table, whichever that chooses. Locks held: none. It may block, call
/// dtl_ functions and submit to the same policy; it must not throw.
/// dtl:arg opaque
/// dtl:out_wait inout
pub type dtl_policy_task_fn_t = Option<
    extern "C" fn(
        resource: *const dtl_resource_t,
        arg: *mut c_void,
        out_wait: *mut dtl_waitable_t,
    ) -> dtl_status_t,
>;

/// A task that was submitted: a value, nothing to be destroyed once it is complete.
/// dtl: section(ffi/dispatch/policy_submit)
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_submission_t {
    /// The policy it went through.
    /// dtl: borrowed
    pub policy: dtl_policy_t,
    /// 0 = complete: `status` is the task's. Else it is in flight, to be given to
    /// dtl_submission_wait, or to dtl_submission_release if nobody will wait.
    pub ticket: u64,
    /// Which resource: index into the policy's list.
    pub resource: u32,
    /// How the task ended, once it is complete.
    pub status: dtl_status_t,
}

/// A task on its way to a resource of a program's own table. May be copied; `dtl_selection_end`
/// takes any copy.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_selection_t {
    /// The policy.
    /// dtl: borrowed
    pub policy: dtl_policy_t,
    /// Names this selection in the policy; never 0.
    pub ticket: u64,
    /// The element of the list: what the task's function is given.
    pub resource: dtl_resource_t,
    /// What the adapter made of resource.value; the same without an adapter.
    pub core: u64,
    /// DTL_INFO_... that the policy wants to know of this task. TASK_TIME costs something: measure
    /// only if it is there.
    /// dtl: flags(DTL_INFO_)
    pub wanted_info: u64,
    /// scratch_bytes of memory for this selection, 16-byte aligned, until dtl_selection_end; NULL
    /// if none was requested. Not initialised: it may contain data of an earlier selection.
    /// dtl: inout len(?) opt until(call_of:dtl_selection_end)
    pub scratch: *mut c_void,
    /// Index of the resource.
    pub index: u32,
    /// 0.
    pub reserved: u32,
}

/// A program's own kind of resources. Start from DTL_RESOURCE_OPS_INIT. The table is copied, `self`
/// is not. Every slot: locks held: none; several threads at once; it may call dtl_ functions, but
/// not wait for the policy; it must not throw.
/// dtl: section(ffi/dispatch/policy)
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_resource_ops_t {
    /// sizeof(dtl_resource_ops_t), set by DTL_RESOURCE_OPS_INIT.
    pub struct_size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// DTL_INFO_... that it can report. TASK_SUBMISSION always works and need not be said.
    /// dtl: flags(DTL_INFO_)
    pub supported_info: u64,
    /// Optional. All resources there are: writes at most `cap` of them, and their number. Asked if
    /// a list is NULL.
    /// dtl: opt
    pub default_resources: Option<
        extern "C" fn(
            self_: *mut c_void,
            out: *mut dtl_resource_t,
            cap: u64,
            out_n: *mut u64,
        ) -> dtl_status_t,
    >,
    /// Optional. Whether a resource can be used where `needed_info` is to be reported; if not, why
    /// (`cap` bytes with NUL). Those that cannot are left out of the policy.
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
    /// Optional. Bytes of scratch memory for each selection in flight, where `needed_info` is to be
    /// reported.
    /// dtl: opt
    pub scratch_bytes: Option<extern "C" fn(self_: *mut c_void, needed_info: u64) -> u64>,
    /// Required. Runs task(&selection->resource, arg, &wait) now or later, here or in another
    /// thread; calls dtl_selection_end exactly once when it has ended. A status other than
    /// DTL_SUCCESS = it did not take the task and will not call dtl_selection_end;
    /// dtl_policy_submit returns that status.
    pub submit: Option<
        extern "C" fn(
            self_: *mut c_void,
            selection: *const dtl_selection_t,
            task: dtl_policy_task_fn_t,
            arg: *mut c_void,
        ) -> dtl_status_t,
    >,
    /// Optional. Waits for all that was submitted to a resource: called by dtl_policy_wait_all. May
    /// block.
    /// dtl: opt
    pub wait_resource: Option<extern "C" fn(self_: *mut c_void, core: u64) -> dtl_status_t>,
    /// Optional. For those that learn of ends by looking: looks, and calls dtl_selection_end for
    /// what has ended. Called before a selection that needs reports, and again and again while
    /// somebody waits. Must not block.
    /// dtl: opt
    pub lazy_report: Option<extern "C" fn(self_: *mut c_void) -> dtl_status_t>,
    /// Optional. Called once, after the policy's last user.
    /// dtl: opt
    pub destroy: Option<extern "C" fn(self_: *mut c_void)>,
}

/// A program's own policy. Start from DTL_POLICY_OPS_INIT. The table is copied, `self` is not.
/// Every slot: thread: the one that submits or reports, several at once; locks held: none; it must
/// not block or throw.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_policy_ops_t {
    /// sizeof(dtl_policy_ops_t), set by DTL_POLICY_OPS_INIT.
    pub struct_size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// DTL_INFO_... that `report` needs.
    /// dtl: flags(DTL_INFO_)
    pub needed_info: u64,
    /// Optional. The resources are known: called once, before the first select.
    /// dtl: opt
    pub initialize: Option<
        extern "C" fn(
            self_: *mut c_void,
            resources: *const dtl_resource_t,
            count: u64,
        ) -> dtl_status_t,
    >,
    /// Required. Chooses a resource. DTL_ERROR_BUSY = none is free now: dtl_policy_submit asks
    /// again until its time is over. Any other failure is the submit's.
    pub select: Option<
        extern "C" fn(self_: *mut c_void, key: dtl_task_key_t, out_index: *mut u32) -> dtl_status_t,
    >,
    /// Required if needed_info is not 0. One call for each bit of it, for each task: SUBMISSION
    /// with value 0, COMPLETION with the task's status, TIME with nanoseconds (-1 if it failed or
    /// was not taken).
    /// dtl: opt(needed_info==0)
    pub report: Option<
        extern "C" fn(self_: *mut c_void, index: u32, key: dtl_task_key_t, info: u64, value: i64),
    >,
    /// Optional. Called once, after the policy's last user.
    /// dtl: opt
    pub destroy: Option<extern "C" fn(self_: *mut c_void)>,
}

/// Makes of an element of the list what the kind of resources deals with: of a wrapper's pointer
/// the stream in it, for example. Called once for each resource, by the thread that creates or
/// initialises. It must not throw.
/// dtl:user opaque
pub type dtl_resource_adapter_fn_t =
    Option<extern "C" fn(user: *mut c_void, resource: *const dtl_resource_t) -> u64>;

/// How `dtl_policy_create` makes a policy. Start from DTL_POLICY_OPTS_INIT; 0 everywhere is the
/// default.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_policy_opts_t {
    /// sizeof(dtl_policy_opts_t), set by DTL_POLICY_OPTS_INIT.
    pub struct_size: u32,
    /// DTL_RESOURCES_...; 0 = see DTL_RESOURCES_GENERIC.
    /// dtl: values(DTL_RESOURCES_)
    pub kind: u32,
    /// 0, or DTL_POLICY_DEFER.
    /// dtl: flags(DTL_POLICY_)
    pub flags: u64,
    /// The program's own kind of resources; NULL = none.
    /// dtl: opt(kind!=DTL_RESOURCES_CUSTOM)
    pub ops: *const dtl_resource_ops_t,
    /// Handed to the slots of `ops`.
    /// dtl: opaque until(destroy)
    pub ops_self: *mut c_void,
    /// Streams: whose devices are meant by a NULL list; null = those of every backend that "auto"
    /// may choose.
    pub backend: dtl_backend_t,
    /// NULL = elements of the list are used as they are.
    /// dtl: opt until(call_of:dtl_policy_initialize)
    pub adapter: dtl_resource_adapter_fn_t,
    /// Handed to the adapter.
    /// dtl: opaque until(call_of:dtl_policy_initialize)
    pub adapter_user: *mut c_void,
    /// "fixed": which resource, an index into the list as it is given, also if others are left out
    /// of the policy.
    pub fixed_index: u32,
    /// "capacity": tasks in flight that each resource takes; 0 = 1.
    pub capacity: u32,
    /// "auto_tune": timings of each resource that count; 0 = 3.
    pub samples: u32,
    /// "auto_tune": runs on each resource before those, whose time is thrown away; UINT32_MAX =
    /// none, 0 = 1.
    pub warmups: u32,
    /// "auto_tune": after so many submits of a tuned task by one thread it is tuned anew; 0 =
    /// never.
    pub resample_submits: u64,
}

/// What is true of a policy. Start from DTL_POLICY_TRAITS_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_policy_traits_t {
    /// sizeof(dtl_policy_traits_t), set by DTL_POLICY_TRAITS_INIT.
    pub struct_size: u32,
    /// DTL_RESOURCES_....
    /// dtl: values(DTL_RESOURCES_)
    pub kind: u32,
    /// 1: a task may still run when submit returns. 0: it never does.
    /// dtl: bool
    pub has_wait_type: u32,
    /// 1: ends are learnt by looking, before selections that need them.
    /// dtl: bool
    pub lazy_report: u32,
    /// Memory for each selection in flight, in bytes.
    pub scratch_bytes: u64,
    /// DTL_INFO_... that its resources can report.
    /// dtl: flags(DTL_INFO_)
    pub supported_info: u64,
    /// DTL_INFO_... that the policy needs to choose.
    /// dtl: flags(DTL_INFO_)
    pub needed_info: u64,
    /// Resources; 0 = not initialised yet.
    pub resource_count: u64,
}

/// What happened on a resource. The stride of arrays is fixed for ever.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_policy_stats_t {
    /// Tasks for which it was selected.
    pub submitted: u64,
    /// Those of them that have failed, or were not taken.
    pub failed: u64,
    /// Tasks on it that are not known to have ended, in policies that count them (dynamic_load,
    /// capacity); else 0.
    pub load: u64,
    /// 0.
    pub reserved: u64,
}
