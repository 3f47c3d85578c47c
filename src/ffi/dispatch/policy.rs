//! Policies: select a resource for each task.
//! dtl: header(dtl_select.h)

use crate::abi::devices::policy::*;
use crate::abi::handle::dtl_policy_t;
use crate::abi::status::dtl_status_t;
use crate::error::{Result, fail};
use crate::ffi::args::{self, Out};
use crate::ffi::guard::Entry;
use crate::runtime::check_flags;
use crate::runtime::policy::{
    self, Adapter, CustomKind, CustomRule, Policy, PolicyArgs, ResourceKind, ResourceList, Rule,
};
use crate::sys::handles::epoch::Guard;
use crate::sys::memory::buf::Addr;
use std::ffi::{c_char, c_void};

/// Creates a policy, which selects one of its resources for each task. By its name it selects:
///
///     "fixed"         always opts.fixed_index
///     "round_robin"   one after another, for each thread: its counts differ by at most one
///     "dynamic_load"  the resource with the fewest tasks that have not ended
///     "auto_tune"     the resource on which this task was fastest, see dtl_task_key_t
///     "capacity"      one with fewer than opts.capacity tasks; if there is none, submits wait
///
/// With DTL_POLICY_DEFER, `resources` is NULL and `count` 0. dtl_policy_initialize sets the
/// resources later; until then submits return DTL_ERROR_INVALID_STATE. opts.kind or opts.ops sets
/// their kind now.
///
/// @param name       Name of the policy.
/// @param resources  `count` resources. Copied. NULL with count 0 = the defaults of the kind: new
///                   streams on all devices found (see opts.backend), one resource for inline,
///                   those of the table's default_resources.
/// @param count      Number of resources, at most 4096.
/// @param opts       Start from DTL_POLICY_OPTS_INIT. NULL = all defaults.
/// @param out        The policy. The caller owns it; release it with dtl_policy_release.
/// @return DTL_ERROR_NOT_FOUND: there is no policy of that name.
///         DTL_ERROR_INVALID_ARGUMENT: the list is empty, fixed_index is beyond the list, a flag or
///         the kind is unknown, or DTL_POLICY_DEFER is set without a kind or table.
///         DTL_ERROR_NOT_SUPPORTED: the policy needs information that the kind does not report.
///         DTL_ERROR_UNAVAILABLE: no resource, or not that of fixed_index, can be used. The text
///         has the reason. DTL_ERROR_INVALID_HANDLE: an element is not a stream.
///         DTL_ERROR_LIMIT: there are too many resources or policies.
/// Equivalent: oneDPL's experimental fixed_resource_policy, round_robin_policy,
/// dynamic_load_policy, auto_tune_policy.
/// dtl:resources len(count) opt(count==0)
/// dtl:opts opt
/// dtl:out owned(dtl_policy_release)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_policy_create(
    name: *const c_char,
    resources: *const dtl_resource_t,
    count: u64,
    opts: *const dtl_policy_opts_t,
    out: *mut dtl_policy_t,
) -> dtl_status_t {
    Entry("dtl_policy_create").call(|inside| {
        let out = Out::new(out, "out")?;
        // SAFETY: the caller's contract: a text.
        let name = unsafe { args::text(name, "name") }?;
        // SAFETY: the caller's contract: a struct as long as its struct_size.
        let opts = unsafe { options(opts) }?;
        let rule = Rule::named(name, &opts)?;
        // SAFETY: the caller's contract: `count` elements.
        out.put(unsafe { create(inside, rule, resources, count, &opts) })
    })
}

/// Creates a policy whose selections are made by a table of the program.
///
/// @param ops        The table. Start from DTL_POLICY_OPS_INIT. Copied. Its `destroy` is called
///                   after the last user of the policy, and not if this call fails.
/// @param self       Passed to the slots of `ops`. It must live until `destroy` is called.
/// @param resources  See dtl_policy_create.
/// @param count      Number of resources, at most 4096.
/// @param opts       Start from DTL_POLICY_OPTS_INIT. NULL = all defaults.
/// @param out        The policy. The caller owns it; release it with dtl_policy_release.
/// @return The status of the table's `initialize` if that fails.
///         DTL_ERROR_NULL_POINTER: a required slot is missing.
///         DTL_ERROR_INVALID_ARGUMENT: the list is empty, a flag, the kind or needed_info is
///         unknown, or DTL_POLICY_DEFER is set without a kind or table.
///         DTL_ERROR_NOT_SUPPORTED: the policy needs information that the kind does not report.
///         DTL_ERROR_UNAVAILABLE: no resource can be used. The text has the reason.
///         DTL_ERROR_INVALID_HANDLE: an element is not a stream.
///         DTL_ERROR_LIMIT: there are too many resources or policies.
/// dtl:self opaque until(destroy)
/// dtl:resources len(count) opt(count==0)
/// dtl:opts opt
/// dtl:out owned(dtl_policy_release)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_policy_create_custom(
    ops: *const dtl_policy_ops_t,
    self_: *mut c_void,
    resources: *const dtl_resource_t,
    count: u64,
    opts: *const dtl_policy_opts_t,
    out: *mut dtl_policy_t,
) -> dtl_status_t {
    Entry("dtl_policy_create_custom").call(|inside| {
        let out = Out::new(out, "out")?;
        // SAFETY: the caller's contract: a struct as long as its struct_size.
        let ops = unsafe { args::take(ops, "ops") }?;
        // SAFETY: as above.
        let opts = unsafe { options(opts) }?;
        args::check_reserved(ops.reserved, "ops.reserved")?;
        required(ops.select.is_some(), "ops.select")?;
        required(
            ops.report.is_some() || ops.needed_info == 0,
            "ops.report (needed_info is not 0)",
        )?;
        check_info(ops.needed_info, "ops.needed_info")?;
        let rule = Rule::Custom(CustomRule { ops, own: Addr::new(self_) });
        // SAFETY: the caller's contract: `count` elements.
        out.put(unsafe { create(inside, rule, resources, count, &opts) })
    })
}

/// Sets the resources of a policy that was created with DTL_POLICY_DEFER, once. After a failure the
/// call may be repeated.
///
/// @param resources  `count` resources. Copied. NULL with count 0 = the defaults of the kind, see
///                   dtl_policy_create.
/// @param count      Number of resources, at most 4096.
/// @param opts       Only its adapter is read. If that or `opts` is NULL, the adapter of
///                   dtl_policy_create is used.
/// @return The status of the policy table's `initialize` if that fails.
///         DTL_ERROR_INVALID_STATE: the policy has resources already.
///         DTL_ERROR_INVALID_ARGUMENT: the list is empty, fixed_index is beyond the list, or a flag
///         is unknown.
///         DTL_ERROR_NOT_SUPPORTED: the policy needs information that the kind does not report.
///         DTL_ERROR_UNAVAILABLE: no resource, or not that of fixed_index, can be used. The text
///         has the reason. DTL_ERROR_INVALID_HANDLE: an element is not a stream.
///         DTL_ERROR_LIMIT: there are too many resources.
/// dtl:resources len(count) opt(count==0)
/// dtl:opts opt
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_policy_initialize(
    policy: dtl_policy_t,
    resources: *const dtl_resource_t,
    count: u64,
    opts: *const dtl_policy_opts_t,
) -> dtl_status_t {
    Entry("dtl_policy_initialize").call(|inside| {
        let policy = policy::find(inside, policy.id)?;
        // SAFETY: the caller's contract: a struct as long as its struct_size, `count` elements.
        let opts = unsafe { options(opts) }?;
        // SAFETY: as above.
        let given = unsafe { list(resources, count) }?;
        policy.initialize(inside, &in_list(given, &opts))
    })
}

/// Adds a reference to a policy. The handle stays the same; each reference is released once more.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_policy_retain(policy: dtl_policy_t) -> dtl_status_t {
    Entry("dtl_policy_retain").call(|inside| policy::find(inside, policy.id)?.retain())
}

/// Releases a reference to a policy. The last one destroys the policy and its submissions.
///
/// Does not wait for tasks, except for work on streams that the policy created. Call
/// dtl_policy_wait_all before. Releasing DTL_POLICY_NULL succeeds.
///
/// Threads: any. Threads that wait in a call of the policy get DTL_ERROR_CANCELED when the last
/// reference is released.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_policy_release(policy: dtl_policy_t) -> dtl_status_t {
    Entry("dtl_policy_release").wait(
        |inside| policy::release(inside, policy.id),
        |last| {
            if let Some(policy) = last {
                policy.close();
            }
            Ok(())
        },
    )
}

/// Returns the resources from which a policy selects, in the order that the indices of submissions,
/// selections, statistics and custom policies refer to.
///
/// The order is that of the list that was passed. Resources that cannot be used (see
/// dtl_resource_ops_t::accept) are omitted, and later ones move up. Only opts.fixed_index refers to
/// the original list.
///
/// @param out      Array of `cap` resources. NULL with cap 0 to query only the number.
/// @param cap      Number of elements of `out`.
/// @param out_len  Number of resources; may be NULL.
/// @return DTL_ERROR_BUFFER_TOO_SMALL: `cap` is less than the number. Only *out_len was written.
///         DTL_ERROR_INVALID_STATE: the policy has no resources yet.
/// dtl:out len(cap) opt(cap==0)
/// dtl:out_len opt
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_policy_resources(
    policy: dtl_policy_t,
    out: *mut dtl_resource_t,
    cap: u64,
    out_len: *mut u64,
) -> dtl_status_t {
    // SAFETY: the caller's contract: room for `cap` elements.
    Entry("dtl_policy_resources").call(|inside| unsafe {
        give(&policy::find(inside, policy.id)?.resources()?, out, cap, out_len)
    })
}

/// Returns statistics for each resource of dtl_policy_resources. While other threads submit, the
/// numbers may lag behind.
///
/// @param out      Array of `cap` elements. NULL with cap 0 to query only the number.
/// @param cap      Number of elements of `out`.
/// @param out_len  Number of resources; may be NULL.
/// @return DTL_ERROR_BUFFER_TOO_SMALL: `cap` is less than the number. Only *out_len was written.
///         DTL_ERROR_INVALID_STATE: the policy has no resources yet.
/// dtl:out len(cap) opt(cap==0)
/// dtl:out_len opt
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_policy_stats(
    policy: dtl_policy_t,
    out: *mut dtl_policy_stats_t,
    cap: u64,
    out_len: *mut u64,
) -> dtl_status_t {
    // SAFETY: the caller's contract: room for `cap` elements.
    Entry("dtl_policy_stats").call(|inside| unsafe {
        give(&policy::find(inside, policy.id)?.stats()?, out, cap, out_len)
    })
}

/// Returns the properties of a policy and of its kind of resources.
///
/// @param out  Start from DTL_POLICY_TRAITS_INIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_policy_traits(
    policy: dtl_policy_t,
    out: *mut dtl_policy_traits_t,
) -> dtl_status_t {
    Entry("dtl_policy_traits").call(|inside| {
        let policy = policy::find(inside, policy.id)?;
        // SAFETY: the caller's contract: a writable struct as long as its struct_size.
        unsafe { args::fill(out, "out", || Ok(policy.traits())) }
    })
}

/// # Safety
/// `opts` is null or points to a struct as long as its struct_size.
unsafe fn options(opts: *const dtl_policy_opts_t) -> Result<dtl_policy_opts_t> {
    // SAFETY: passed on.
    let opts = unsafe { args::take_or_zero(opts) }?;
    check_flags("opts.flags", opts.flags, DTL_POLICY_DEFER, "DTL_POLICY_DEFER")?;
    Ok(opts)
}

/// # Safety
/// `resources` is null or has `count` elements; opts.ops is null or as long as its struct_size.
unsafe fn create(
    inside: &Guard,
    rule: Rule,
    resources: *const dtl_resource_t,
    count: u64,
    opts: &dtl_policy_opts_t,
) -> Result<dtl_policy_t> {
    // SAFETY: passed on.
    let given = unsafe { list(resources, count) }?;
    // SAFETY: passed on.
    let kind = unsafe { kind(given.is_some(), opts) }?;
    let is_later = opts.flags & DTL_POLICY_DEFER != 0;
    if is_later && given.is_some() {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "resources are given together with DTL_POLICY_DEFER: do one of the two"
        );
    }
    if is_later && opts.kind == 0 && opts.ops.is_null() {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "opts.kind is 0 with DTL_POLICY_DEFER, and whether a list will come is not known yet: \
             set it to DTL_RESOURCES_GENERIC, _INLINE or _STREAMS"
        );
    }
    let make = PolicyArgs { rule, kind, list: in_list(given, opts), is_later };
    Ok(dtl_policy_t { id: Policy::create(inside, make)? })
}

fn in_list<'a>(given: Option<&'a [dtl_resource_t]>, opts: &dtl_policy_opts_t) -> ResourceList<'a> {
    ResourceList {
        given,
        adapter: Adapter { function: opts.adapter, user: Addr::new(opts.adapter_user) },
    }
}

/// # Safety
/// `resources` is null or points to `count` elements that stay as they are during `'a`.
unsafe fn list<'a>(
    resources: *const dtl_resource_t,
    count: u64,
) -> Result<Option<&'a [dtl_resource_t]>> {
    policy::check_count(count)?;
    match count {
        0 if resources.is_null() => Ok(None),
        0 => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "count is 0, and resources is not NULL: pass at least one resource, or NULL for the \
             defaults"
        ),
        // SAFETY: the caller guarantees that `resources` is null or has `count` elements.
        _ => unsafe { args::slice(resources, count as usize, "resources") }.map(Some),
    }
}

/// # Safety
/// opts.ops is null or points to a struct as long as its struct_size.
unsafe fn kind(has_list: bool, opts: &dtl_policy_opts_t) -> Result<ResourceKind> {
    let has_table = !opts.ops.is_null();
    let usual = match (has_table, has_list) {
        (true, _) => DTL_RESOURCES_CUSTOM,
        (false, true) => DTL_RESOURCES_GENERIC,
        (false, false) => DTL_RESOURCES_STREAMS,
    };
    let number = if opts.kind == 0 { usual } else { opts.kind };
    if has_table && number != DTL_RESOURCES_CUSTOM {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "opts.ops is given, and opts.kind is {number}: set it to 0 or DTL_RESOURCES_CUSTOM"
        );
    }
    match number {
        DTL_RESOURCES_GENERIC => Ok(ResourceKind::Generic),
        DTL_RESOURCES_INLINE => Ok(ResourceKind::Inline),
        DTL_RESOURCES_STREAMS => Ok(ResourceKind::Streams(opts.backend)),
        DTL_RESOURCES_CUSTOM => {
            required(has_table, "opts.ops")?;
            // SAFETY: passed on.
            let ops = unsafe { args::take(opts.ops, "opts.ops") }?;
            args::check_reserved(ops.reserved, "opts.ops->reserved")?;
            required(ops.submit.is_some(), "opts.ops->submit")?;
            check_info(ops.supported_info, "opts.ops->supported_info")?;
            Ok(ResourceKind::Custom(CustomKind { ops, own: Addr::new(opts.ops_self) }))
        }
        _ => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "opts.kind {number} is unknown; use 0 or DTL_RESOURCES_GENERIC, _INLINE, _STREAMS or \
             _CUSTOM"
        ),
    }
}

fn check_info(info: u64, name: &str) -> Result<()> {
    if info & !policy::ALL_INFO != 0 {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{name} {info:#x} holds bits that are no DTL_INFO_…"
        );
    }
    Ok(())
}

fn required(is_there: bool, name: &str) -> Result<()> {
    if is_there { Ok(()) } else { fail!(DTL_ERROR_NULL_POINTER, "{name} is NULL") }
}

/// # Safety
/// `out` is null or room for `cap` elements, `out_len` is null or writable.
unsafe fn give<T: Copy>(from: &[T], out: *mut T, cap: u64, out_len: *mut u64) -> Result<()> {
    let count = from.len() as u64;
    let is_wanted = !(out.is_null() && cap == 0);
    if is_wanted {
        Out::new(out, "out")?;
    }
    if let Some(out_len) = Out::optional(out_len, "out_len")? {
        out_len.set(count);
    }
    if is_wanted {
        if cap < count {
            return fail!(
                DTL_ERROR_BUFFER_TOO_SMALL,
                "there are {count} resources, and cap is {cap}"
            );
        }
        // SAFETY: room for at least `count` elements, which nothing of ours overlaps.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), out, from.len()) };
    }
    Ok(())
}
