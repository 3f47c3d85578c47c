//! Windows: put, get, accumulate, atomic operations.

use crate::abi::handle::{dtl_request_t, dtl_win_t};
use crate::abi::status::dtl_status_t;
use crate::abi::word::{DTL_OP_NO_OP, dtl_dtype_t, dtl_reduce_op_t};
use crate::error::{Error, Result};
use crate::ffi::args::Out;
use crate::ffi::elements::elements;
use crate::ffi::guard::{self, Entry};
use crate::hints::out_of_line;
use crate::runtime::comm::rma::rma_ops::{self, RmaOp, TargetAddr};
use crate::runtime::comm::rma::{self, fast};
use crate::runtime::component::Swap;
use crate::sys::compute::elements::dtype_size;
use crate::sys::handles::epoch::Visit;
use crate::sys::memory::buf::{Addr, Region};
use std::ffi::c_void;

/// Elements of a call that is well, for `quick`, which looks at how many bytes they have; `None`:
/// not seen at a glance.
#[inline]
fn few(buf: *const c_void, count: u64, dtype: dtl_dtype_t) -> Option<Region> {
    let bytes = usize::try_from(count).ok()?.checked_mul(dtype_size(dtype)?)?;
    Addr::new(buf.cast_mut()).some(bytes)
}

/// Runs an operation on a target's part of a window.
#[inline]
fn run(
    entry: Entry,
    win: dtl_win_t,
    place: TargetAddr,
    op: impl FnOnce() -> Result<RmaOp>,
) -> dtl_status_t {
    entry.hold(rma::hold, win, |window| {
        let op = op().map_err(|error| error.within(entry.0))?;
        rma_ops::run(window, entry.0, place, op)
    })
}

/// Runs an operation on a target's part of a window: `fast`, or [`run`] if the fast path does not
/// apply.
#[inline]
fn quick(
    entry: Entry,
    (win, place): (dtl_win_t, TargetAddr),
    fast: impl FnOnce(&Visit) -> Option<()>,
    op: impl FnOnce() -> Result<RmaOp>,
) -> dtl_status_t {
    guard::quick(
        guard::is_open_for_quick,
        move |visit| fast(&visit),
        move || out_of_line(move || run(entry, win, place, op)),
    )
}

/// Starts an operation on a target's part of a window, and writes its request.
fn start(
    entry: Entry,
    win: dtl_win_t,
    place: TargetAddr,
    out: *mut dtl_request_t,
    op: impl FnOnce() -> Result<RmaOp>,
) -> dtl_status_t {
    entry.hold(rma::hold, win, |window| {
        let within = |error: Error| error.within(entry.0);
        let out = Out::new(out, "out").map_err(within)?;
        out.put(rma_ops::run_as_request(window, entry.0, place, op().map_err(within)?))
    })
}

/// Returns an accumulate that fetches what was there before. DTL_OP_NO_OP reads no operands.
///
/// # Safety
/// The `count` elements of `operands` and `result` stay valid until the operation has ended.
#[inline]
unsafe fn fetch(
    (operands, name): (*const c_void, &str),
    result: *mut c_void,
    (count, dtype, op): (u64, dtl_dtype_t, dtl_reduce_op_t),
) -> Result<RmaOp> {
    let by = rma_ops::change(dtype, op)?;
    let from = match op {
        DTL_OP_NO_OP => Region::EMPTY,
        // SAFETY: the caller keeps the elements valid until the operation has ended.
        _ => unsafe { elements(operands, count, dtype, name) }?,
    };
    // SAFETY: the caller keeps the elements valid until the operation has ended.
    let result = unsafe { elements(result, count, dtype, "out_result") }?;
    Ok(RmaOp::Accumulate { from, result, by })
}

/// Copies elements to a target's part of a window. Returns at once, or when there is room for one
/// more operation. `buf` must stay unchanged until dtl_win_flush_local, dtl_win_flush,
/// dtl_win_unlock or dtl_win_fence.
///
/// @param buf     `count` elements; NULL only for count 0.
/// @param dtype   Any dtype, built-in or user-defined. It determines the size of an element.
/// @param target  A rank, which may be this one, or DTL_PROC_NULL (no effect).
/// @param disp    Offset in the target's part, in steps of the target's disp_unit.
/// @return DTL_ERROR_OUT_OF_BOUNDS: the target's part does not have these bytes.
///         DTL_ERROR_INVALID_STATE: no epoch is open for the target. DTL_ERROR_INVALID_RANK:
///         `target` is not in the window. DTL_ERROR_NULL_POINTER: `buf` is NULL.
///         DTL_ERROR_INVALID_ARGUMENT: `dtype` does not exist, `buf` is DTL_IN_PLACE, or `count` is
///         more than memory can hold. DTL_ERROR_NOT_SUPPORTED: `buf` is device memory that the host
///         cannot access. If one of these is returned, no data has moved. DTL_ERROR_RANK_FAILURE:
///         the target died or left. DTL_ERROR_TIMEOUT: no room for the operation within the time
///         limit. The flush, unlock or fence returns a later failure.
/// Threads: any, several at once. Equivalent: MPI_Put.
/// dtl:buf len(count*dtype) opt(count==0) until(flush)
/// dtl:target rank(null)
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_win_put(
    win: dtl_win_t,
    buf: *const c_void,
    count: u64,
    dtype: dtl_dtype_t,
    target: i32,
    disp: u64,
) -> dtl_status_t {
    let place = TargetAddr { target, disp };
    quick(
        Entry("dtl_win_put"),
        (win, place),
        move |visit| fast::put(visit, win, few(buf, count, dtype)?, place),
        // SAFETY: the caller keeps the elements valid until the operation has ended.
        move || unsafe { elements(buf, count, dtype, "buf") }.map(RmaOp::Put),
    )
}

/// Copies elements from a target's part of a window. They are available after dtl_win_flush_local,
/// dtl_win_flush, dtl_win_unlock or dtl_win_fence. Until then `buf` must not be accessed.
///
/// @param buf     Room for `count` elements; NULL only for count 0.
/// @param dtype   Any dtype, built-in or user-defined.
/// @param target  A rank, which may be this one, or DTL_PROC_NULL (no effect).
/// @param disp    Offset in the target's part, in steps of the target's disp_unit.
/// @return DTL_ERROR_INVALID_ARGUMENT: `buf`, `count` or `dtype` is invalid.
///         DTL_ERROR_OUT_OF_BOUNDS, DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_RANK,
///         DTL_ERROR_NOT_SUPPORTED, DTL_ERROR_RANK_FAILURE, DTL_ERROR_TIMEOUT: see dtl_win_put.
/// Threads: any, several at once. Equivalent: MPI_Get.
/// dtl:buf out len(count*dtype) opt(count==0) until(flush)
/// dtl:target rank(null)
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_win_get(
    win: dtl_win_t,
    buf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    target: i32,
    disp: u64,
) -> dtl_status_t {
    let place = TargetAddr { target, disp };
    quick(
        Entry("dtl_win_get"),
        (win, place),
        move |visit| fast::get(visit, win, few(buf, count, dtype)?, place),
        // SAFETY: the caller keeps the elements valid until the operation has ended.
        move || unsafe { elements(buf, count, dtype, "buf") }.map(RmaOp::Get),
    )
}

/// Copies elements to a target's part of a window, like dtl_win_put, and returns a request. The
/// request is complete when `buf` may be reused. At the target the operation is complete after a
/// flush, unlock or fence. Also allowed between fences, where MPI requires a lock.
///
/// @param buf     `count` elements; NULL only for count 0.
/// @param dtype   Any dtype, built-in or user-defined.
/// @param target  A rank, which may be this one, or DTL_PROC_NULL (no effect).
/// @param disp    Offset in the target's part, in steps of the target's disp_unit.
/// @param out     The request. Complete it with dtl_request_wait or a similar call before the
///                window is destroyed. While active it can be neither cancelled
///                (DTL_ERROR_NOT_SUPPORTED) nor destroyed (DTL_ERROR_BUSY). If memory is accessed
///                by loads and stores, the request is complete when this call returns. Its
///                dtl_recv_info_t has no information.
/// @return DTL_ERROR_INVALID_ARGUMENT: `buf`, `count` or `dtype` is invalid. DTL_ERROR_LIMIT: too
///         many requests in flight. DTL_ERROR_OUT_OF_BOUNDS, DTL_ERROR_INVALID_STATE,
///         DTL_ERROR_INVALID_RANK, DTL_ERROR_NOT_SUPPORTED, DTL_ERROR_RANK_FAILURE,
///         DTL_ERROR_TIMEOUT: see dtl_win_put.
/// Threads: any, several at once. Equivalent: MPI_Rput.
/// dtl:buf len(count*dtype) opt(count==0) until(request)
/// dtl:target rank(null)
/// dtl:out owned(dtl_request_wait|dtl_request_test)
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_win_rput(
    win: dtl_win_t,
    buf: *const c_void,
    count: u64,
    dtype: dtl_dtype_t,
    target: i32,
    disp: u64,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    // SAFETY: the caller keeps the elements valid until the operation has ended.
    let op = || unsafe { elements(buf, count, dtype, "buf") }.map(RmaOp::Put);
    start(Entry("dtl_win_rput"), win, TargetAddr { target, disp }, out, op)
}

/// Copies elements from a target's part of a window, like dtl_win_get, and returns a request. The
/// request is complete when the elements are available.
///
/// @param buf     Room for `count` elements; NULL only for count 0.
/// @param dtype   Any dtype, built-in or user-defined.
/// @param target  A rank, which may be this one, or DTL_PROC_NULL (no effect).
/// @param disp    Offset in the target's part, in steps of the target's disp_unit.
/// @param out     The request, with the same rules as for dtl_win_rput.
/// @return DTL_ERROR_INVALID_ARGUMENT: `buf`, `count` or `dtype` is invalid. DTL_ERROR_LIMIT: too
///         many requests in flight. DTL_ERROR_OUT_OF_BOUNDS, DTL_ERROR_INVALID_STATE,
///         DTL_ERROR_INVALID_RANK, DTL_ERROR_NOT_SUPPORTED, DTL_ERROR_RANK_FAILURE,
///         DTL_ERROR_TIMEOUT: see dtl_win_put.
/// Threads: any, several at once. Equivalent: MPI_Rget.
/// dtl:buf out len(count*dtype) opt(count==0) until(request)
/// dtl:target rank(null)
/// dtl:out owned(dtl_request_wait|dtl_request_test)
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_win_rget(
    win: dtl_win_t,
    buf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    target: i32,
    disp: u64,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    // SAFETY: the caller keeps the elements valid until the operation has ended.
    let op = || unsafe { elements(buf, count, dtype, "buf") }.map(RmaOp::Get);
    start(Entry("dtl_win_rget"), win, TargetAddr { target, disp }, out, op)
}

/// Combines elements with those of a target: target[i] = target[i] op buf[i]. Each element is
/// updated atomically with respect to other accumulate operations on it (dtl_win_accumulate,
/// dtl_win_get_accumulate, dtl_win_fetch_op, dtl_win_compare_and_swap) with the same dtype.
/// Operations of one rank on one element of a target happen in the order of the calls.
///
/// @param buf     `count` elements; NULL only for count 0. Must stay unchanged as for dtl_win_put.
/// @param dtype   A built-in dtype.
/// @param target  A rank, which may be this one, or DTL_PROC_NULL (no effect).
/// @param disp    Offset in the target's part, in steps of the target's disp_unit.
/// @param op      A built-in operation for `dtype`, see the table at dtl_reduce_op_t.
///                DTL_OP_REPLACE is an atomic put.
/// @return DTL_ERROR_INVALID_ARGUMENT: `buf`, `count`, `dtype` or `op` is invalid; or this rank is
///         the target and `buf` overlaps the elements there. DTL_ERROR_TYPE: `op` does not support
///         `dtype`, or one of them is user-defined. DTL_ERROR_OUT_OF_BOUNDS,
///         DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_RANK, DTL_ERROR_NOT_SUPPORTED,
///         DTL_ERROR_RANK_FAILURE, DTL_ERROR_TIMEOUT: see dtl_win_put.
/// Threads: any, several at once. Equivalent: MPI_Accumulate.
/// dtl:buf len(count*dtype) opt(count==0) until(flush)
/// dtl:target rank(null)
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_win_accumulate(
    win: dtl_win_t,
    buf: *const c_void,
    count: u64,
    dtype: dtl_dtype_t,
    target: i32,
    disp: u64,
    op: dtl_reduce_op_t,
) -> dtl_status_t {
    let place = TargetAddr { target, disp };
    quick(
        Entry("dtl_win_accumulate"),
        (win, place),
        move |visit| fast::accumulate(visit, win, few(buf, count, dtype)?, (dtype, op), place),
        move || {
            let by = rma_ops::change(dtype, op)?;
            // SAFETY: the caller keeps the elements valid until the operation has ended.
            let from = unsafe { elements(buf, count, dtype, "buf") }?;
            Ok(RmaOp::Accumulate { from, result: Region::EMPTY, by })
        },
    )
}

/// Combines elements with those of a target, like dtl_win_accumulate, and fetches the previous
/// values, in one atomic step per element.
///
/// @param buf         `count` elements. With DTL_OP_NO_OP, an atomic get, it is not read and may be
///                    NULL.
/// @param out_result  Room for `count` elements, separate from `buf`. They are available after a
///                    flush (dtl_win_flush_local is sufficient), unlock or fence; until then the
///                    buffer must not be accessed.
/// @param dtype       A built-in dtype.
/// @param target      A rank, which may be this one, or DTL_PROC_NULL (no effect).
/// @param disp        Offset in the target's part, in steps of the target's disp_unit.
/// @param op          A built-in operation for `dtype`, see the table at dtl_reduce_op_t.
/// @return DTL_ERROR_INVALID_ARGUMENT: `count`, `dtype`, `op` or a buffer is invalid; the buffers
///         overlap; or this rank is the target and one of them overlaps the elements there.
///         DTL_ERROR_TYPE: `op` does not support `dtype`, or one of them is user-defined.
///         DTL_ERROR_OUT_OF_BOUNDS, DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_RANK,
///         DTL_ERROR_NOT_SUPPORTED, DTL_ERROR_RANK_FAILURE, DTL_ERROR_TIMEOUT: see dtl_win_put.
/// Threads: any, several at once. Equivalent: MPI_Get_accumulate.
/// dtl:buf len(count*dtype) opt(count==0||op==DTL_OP_NO_OP) until(flush)
/// dtl:out_result len(count*dtype) opt(count==0) until(flush)
/// dtl:target rank(null)
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_win_get_accumulate(
    win: dtl_win_t,
    buf: *const c_void,
    out_result: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    target: i32,
    disp: u64,
    op: dtl_reduce_op_t,
) -> dtl_status_t {
    // SAFETY: the caller keeps the elements valid until the operation has ended.
    let op = || unsafe { fetch((buf, "buf"), out_result, (count, dtype, op)) };
    run(Entry("dtl_win_get_accumulate"), win, TargetAddr { target, disp }, op)
}

/// Combines one element with that of a target and fetches the previous value in one atomic step,
/// for counters and queues. Like dtl_win_get_accumulate with count 1. If memory is accessed by
/// loads and stores (`way` of dtl_win_info), the value is available when this call returns.
///
/// @param value       One element; not read with DTL_OP_NO_OP, and may then be NULL.
/// @param out_result  Room for one element, separate from `value`; available after a flush, unlock
///                    or fence.
/// @param dtype       A built-in dtype.
/// @param target      A rank, which may be this one, or DTL_PROC_NULL (no effect).
/// @param disp        Offset in the target's part, in steps of the target's disp_unit.
/// @param op          A built-in operation for `dtype`, see the table at dtl_reduce_op_t.
/// @return DTL_ERROR_INVALID_ARGUMENT: `dtype`, `op` or a buffer is invalid; the buffers overlap;
///         or this rank is the target and one of them overlaps the element there. DTL_ERROR_TYPE:
///         `op` does not support `dtype`, or one of them is user-defined. DTL_ERROR_OUT_OF_BOUNDS,
///         DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_RANK, DTL_ERROR_NOT_SUPPORTED,
///         DTL_ERROR_RANK_FAILURE, DTL_ERROR_TIMEOUT: see dtl_win_put.
/// Threads: any, several at once. Equivalent: MPI_Fetch_and_op.
/// dtl:value len(1*dtype) opt(op==DTL_OP_NO_OP) until(flush)
/// dtl:out_result len(1*dtype) until(flush)
/// dtl:target rank(null)
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_win_fetch_op(
    win: dtl_win_t,
    value: *const c_void,
    out_result: *mut c_void,
    dtype: dtl_dtype_t,
    target: i32,
    disp: u64,
    op: dtl_reduce_op_t,
) -> dtl_status_t {
    let place = TargetAddr { target, disp };
    let buffers = (Addr::new(value.cast_mut()), Addr::new(out_result));
    quick(
        Entry("dtl_win_fetch_op"),
        (win, place),
        move |visit| fast::fetch_op(visit, win, buffers, (dtype, op), place),
        // SAFETY: the caller keeps the elements valid until the operation has ended.
        move || unsafe { fetch((value, "value"), out_result, (1, dtype, op)) },
    )
}

/// Stores `value` in a target's element if the element equals `expected`, in one atomic step, and
/// fetches the previous value. The store was done if the fetched value equals `expected`. Elements
/// are equal if their bytes are equal; so two BOOLs that are both true may differ.
///
/// @param value       One element; must stay unchanged until a flush, unlock or fence.
/// @param expected    One element; must stay unchanged until a flush, unlock or fence.
/// @param out_result  Room for one element, separate from the other two; available after a flush,
///                    unlock or fence.
/// @param dtype       An integer dtype, BYTE or BOOL.
/// @param target      A rank, which may be this one, or DTL_PROC_NULL (no effect).
/// @param disp        Offset in the target's part, in steps of the target's disp_unit.
/// @return DTL_ERROR_TYPE: `dtype` is not an integer, BYTE or BOOL. DTL_ERROR_INVALID_ARGUMENT: a
///         buffer is invalid, `out_result` overlaps another one, or this rank is the target and one
///         of them overlaps the element there. DTL_ERROR_OUT_OF_BOUNDS, DTL_ERROR_INVALID_STATE,
///         DTL_ERROR_INVALID_RANK, DTL_ERROR_NOT_SUPPORTED, DTL_ERROR_RANK_FAILURE,
///         DTL_ERROR_TIMEOUT: see dtl_win_put.
/// Threads: any, several at once. Equivalent: MPI_Compare_and_swap.
/// dtl:value len(1*dtype) until(flush)
/// dtl:expected len(1*dtype) until(flush)
/// dtl:out_result len(1*dtype) until(flush)
/// dtl:target rank(null)
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_win_compare_and_swap(
    win: dtl_win_t,
    value: *const c_void,
    expected: *const c_void,
    out_result: *mut c_void,
    dtype: dtl_dtype_t,
    target: i32,
    disp: u64,
) -> dtl_status_t {
    let place = TargetAddr { target, disp };
    quick(
        Entry("dtl_win_compare_and_swap"),
        (win, place),
        move |visit| {
            let buffers =
                (few(value, 1, dtype)?, few(expected, 1, dtype)?, few(out_result, 1, dtype)?);
            fast::compare_and_swap(visit, win, dtype, buffers, place)
        },
        move || {
            rma_ops::check_swapped(dtype)?;
            // SAFETY: the caller keeps the elements valid until the operation has ended.
            let value = unsafe { elements(value, 1, dtype, "value") }?;
            // SAFETY: as for `value`.
            let expected = unsafe { elements(expected, 1, dtype, "expected") }?;
            // SAFETY: as for `value`.
            let result = unsafe { elements(out_result, 1, dtype, "out_result") }?;
            Ok(RmaOp::CompareAndSwap(Swap { value, expected, result, dtype }))
        },
    )
}
