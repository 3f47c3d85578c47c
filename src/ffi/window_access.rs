//! Operations on the memory of a window's targets.

use super::args::Out;
use super::guard;
use super::p2p::elements;
use crate::abi::handle::{dtl_request_t, dtl_win_t};
use crate::abi::status::dtl_status_t;
use crate::abi::word::{DTL_OP_NO_OP, dtl_dtype_t, dtl_reduce_op_t};
use crate::runtime::comm::window;
use crate::runtime::comm::window::access::{self, Place};
use crate::sys::buf::Region;
use std::ffi::c_void;

/// Copies elements to a target's part of a window. Returns at once or when there is room for one more operation. `buf`
/// must stay unchanged until dtl_win_flush_local, dtl_win_flush, dtl_win_unlock or dtl_win_fence.
///
/// @param buf     `count` elements; NULL only for count 0.
/// @param dtype   any, those of dtl_dtype_create too. It says how many bytes `count` elements have.
/// @param target  a rank, this one too, or DTL_PROC_NULL (nothing happens).
/// @param disp    where in the target's part, in steps of the target's disp_unit.
/// @return DTL_ERROR_OUT_OF_BOUNDS: the target's part has no such bytes. DTL_ERROR_INVALID_STATE: no epoch is open for the
///         target. Both before anything moves. DTL_ERROR_INVALID_RANK, DTL_ERROR_RANK_FAILURE, DTL_ERROR_TIMEOUT (no room within
///         the time limit). A later failure is told by the flush, unlock or fence.
/// Threads: any, several at once. Equivalent: MPI_Put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_win_put(
    win: dtl_win_t,
    buf: *const c_void,
    count: u64,
    dtype: dtl_dtype_t,
    target: i32,
    disp: u64,
) -> dtl_status_t {
    guard::hold(
        |inside| window::hold(inside, win),
        |window| {
            // SAFETY: the caller's contract: it stays until the operation is over.
            let from = unsafe { elements(buf, count, dtype, "buf") }?;
            access::put(window, from, Place { target, disp })
        },
    )
}

/// Copies elements from a target's part of a window. They are there after dtl_win_flush_local, dtl_win_flush,
/// dtl_win_unlock or dtl_win_fence; until then `buf` is the library's.
///
/// @param buf  room for `count` elements. The other parameters and the statuses: dtl_win_put.
/// Threads: any, several at once. Equivalent: MPI_Get.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_win_get(
    win: dtl_win_t,
    buf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    target: i32,
    disp: u64,
) -> dtl_status_t {
    guard::hold(
        |inside| window::hold(inside, win),
        |window| {
            // SAFETY: the caller's contract: it stays until the operation is over.
            let into = unsafe { elements(buf, count, dtype, "buf") }?;
            access::get(window, into, Place { target, disp })
        },
    )
}

/// As dtl_win_put, with a request that is done when `buf` may be used again; at the target it is done after
/// a flush, unlock or fence.
///
/// @param out_request  yours: wait for it (dtl_request_wait and its kin) before the window's end. It can be neither
///                     cancelled nor destroyed before. Its info tells nothing.
/// @return as dtl_win_put; DTL_ERROR_LIMIT: too many requests in flight.
/// Threads: any, several at once. Equivalent: MPI_Rput.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_win_rput(
    win: dtl_win_t,
    buf: *const c_void,
    count: u64,
    dtype: dtl_dtype_t,
    target: i32,
    disp: u64,
    out_request: *mut dtl_request_t,
) -> dtl_status_t {
    guard::hold(
        |inside| window::hold(inside, win),
        |window| {
            let out = Out::new(out_request, "out_request")?;
            // SAFETY: the caller's contract: it stays until the operation is over.
            let from = unsafe { elements(buf, count, dtype, "buf") }?;
            out.set(access::rput(window, from, Place { target, disp })?);
            Ok(())
        },
    )
}

/// As dtl_win_get, with a request that is done when the elements are there.
///
/// @param out_request  as for dtl_win_rput.
/// @return as dtl_win_rput. Threads: any, several at once. Equivalent: MPI_Rget.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_win_rget(
    win: dtl_win_t,
    buf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    target: i32,
    disp: u64,
    out_request: *mut dtl_request_t,
) -> dtl_status_t {
    guard::hold(
        |inside| window::hold(inside, win),
        |window| {
            let out = Out::new(out_request, "out_request")?;
            // SAFETY: the caller's contract: it stays until the operation is over.
            let into = unsafe { elements(buf, count, dtype, "buf") }?;
            out.set(access::rget(window, into, Place { target, disp })?);
            Ok(())
        },
    )
}

/// Combines elements with those of a target: there[i] = there[i] ∘ buf[i]. Each element as a whole, whoever else
/// accumulates to it meanwhile (by this or one of the next three calls, with the same dtype); operations of one rank
/// on one target's element happen in the order of the calls.
///
/// @param dtype  a built-in one.
/// @param op     a built-in one that goes with it (the table at dtl_reduce_op_t). REPLACE is an atomic put.
/// @return as dtl_win_put; DTL_ERROR_TYPE: dtype and op do not go together, or are of dtl_dtype_create or dtl_op_create.
/// Threads: any, several at once. Equivalent: MPI_Accumulate.
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
    guard::hold(
        |inside| window::hold(inside, win),
        |window| {
            let by = access::reduction("dtl_win_accumulate", dtype, op)?;
            // SAFETY: the caller's contract: it stays until the operation is over.
            let from = unsafe { elements(buf, count, dtype, "buf") }?;
            access::accumulate(window, from, Place { target, disp }, &by)
        },
    )
}

/// As dtl_win_accumulate, and `result` gets what was there before; both as one step for each element.
///
/// @param buf     may be NULL for DTL_OP_NO_OP, which makes this an atomic get.
/// @param result  room for `count` elements, not overlapping `buf`; the library's until a flush, unlock or fence.
/// @return as dtl_win_accumulate. Threads: any, several at once. Equivalent: MPI_Get_accumulate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_win_get_accumulate(
    win: dtl_win_t,
    buf: *const c_void,
    result: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    target: i32,
    disp: u64,
    op: dtl_reduce_op_t,
) -> dtl_status_t {
    const NAME: &str = "dtl_win_get_accumulate";
    guard::hold(
        |inside| window::hold(inside, win),
        |window| {
            let by = access::reduction(NAME, dtype, op)?;
            let from = if op == DTL_OP_NO_OP {
                Region::EMPTY
            } else {
                // SAFETY: the caller's contract: it stays until the operation is over.
                unsafe { elements(buf, count, dtype, "buf") }?
            };
            // SAFETY: as above.
            let result = unsafe { elements(result, count, dtype, "result") }?;
            access::get_accumulate(window, NAME, (from, result), Place { target, disp }, &by)
        },
    )
}

/// dtl_win_get_accumulate of one element: counters, queues.
///
/// @param value   one element; may be NULL for DTL_OP_NO_OP.
/// @param result  gets what was there before: after a flush, unlock or fence.
/// @return as dtl_win_accumulate. Threads: any, several at once. Equivalent: MPI_Fetch_and_op.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_win_fetch_op(
    win: dtl_win_t,
    value: *const c_void,
    result: *mut c_void,
    dtype: dtl_dtype_t,
    target: i32,
    disp: u64,
    op: dtl_reduce_op_t,
) -> dtl_status_t {
    const NAME: &str = "dtl_win_fetch_op";
    guard::hold(
        |inside| window::hold(inside, win),
        |window| {
            let by = access::reduction(NAME, dtype, op)?;
            let from = if op == DTL_OP_NO_OP {
                Region::EMPTY
            } else {
                // SAFETY: the caller's contract: it stays until the operation is over.
                unsafe { elements(value, 1, dtype, "value") }?
            };
            // SAFETY: as above.
            let result = unsafe { elements(result, 1, dtype, "result") }?;
            access::get_accumulate(window, NAME, (from, result), Place { target, disp }, &by)
        },
    )
}

/// Stores `value` in a target's element if that is equal to `expected`, as one step; `result` gets what was there before:
/// it was stored if that equals `expected`.
///
/// @param dtype   an integer dtype, BYTE or BOOL.
/// @param result  one element, apart from the other two; there after a flush, unlock or fence.
/// @return as dtl_win_put; DTL_ERROR_TYPE: dtype.
/// Threads: any, several at once. Equivalent: MPI_Compare_and_swap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_win_compare_and_swap(
    win: dtl_win_t,
    value: *const c_void,
    expected: *const c_void,
    result: *mut c_void,
    dtype: dtl_dtype_t,
    target: i32,
    disp: u64,
) -> dtl_status_t {
    guard::hold(
        |inside| window::hold(inside, win),
        |window| {
            access::check_swapped(dtype)?;
            // SAFETY: the caller's contract: they stay until the operation is over.
            let value = unsafe { elements(value, 1, dtype, "value") }?;
            // SAFETY: as above.
            let expected = unsafe { elements(expected, 1, dtype, "expected") }?;
            // SAFETY: as above.
            let result = unsafe { elements(result, 1, dtype, "result") }?;
            access::compare_and_swap(window, (value, expected, result), Place { target, disp })
        },
    )
}
