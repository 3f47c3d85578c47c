//! Requests: wait, test, cancel.

use super::args::Out;
use super::comm::put_info;
use super::guard;
use crate::abi::comm::dtl_recv_info_t;
use crate::abi::handle::dtl_request_t;
use crate::abi::status::dtl_status_t;
use crate::error::{Result, fail};
use crate::runtime::comm::request;
use crate::sys::epoch;

/// Waits until a request is done. Its handle is stale afterwards (a second wait answers
/// DTL_ERROR_INVALID_HANDLE), unless the time limit passed: then it is still alive.
///
/// @param timeout_ns  DTL_TIMEOUT_INFINITE, or nanoseconds; 0 asks once.
/// @param info        NULL, or what a receive tells (also of a failed one).
/// @return how the operation ended (see dtl_comm_send, dtl_comm_recv); DTL_ERROR_CANCELED: it was
///         withdrawn by dtl_request_cancel, or its communicator was destroyed; DTL_ERROR_TIMEOUT: it
///         goes on: wait again, or cancel it.
/// Threads: any; of two waiting for one request, one gets the outcome. Equivalent: MPI_Wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_request_wait(
    request: dtl_request_t,
    timeout_ns: u64,
    info: *mut dtl_recv_info_t,
) -> dtl_status_t {
    guard::wait(
        |inside| request::pin(inside, request),
        |pinned| {
            let (told, result) = request::wait(&pinned, request, timeout_ns)?;
            put_info(info, told)?;
            result
        },
    )
}

/// Asks whether a request is done, without waiting; makes progress. If done, its handle is stale.
///
/// @param out_done  1 or 0. Written on success and when the operation itself failed (then 1).
/// @param info      NULL, or what a receive tells; written if done.
/// @return as dtl_request_wait, without DTL_ERROR_TIMEOUT. Equivalent: MPI_Test.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_request_test(
    request: dtl_request_t,
    out_done: *mut i32,
    info: *mut dtl_recv_info_t,
) -> dtl_status_t {
    guard::call(|inside| {
        let out_done = Out::new(out_done, "out_done")?;
        let pinned = request::pin(inside, request)?;
        let outcome = request::test(&pinned, request)?;
        out_done.set(i32::from(outcome.is_some()));
        let Some((told, result)) = outcome else { return Ok(()) };
        put_info(info, told)?;
        result
    })
}

/// Tries to withdraw an operation that nothing has matched yet. The request still has to be waited
/// for; it ends with DTL_ERROR_CANCELED, or as usual if it was too late.
///
/// Equivalent: MPI_Cancel.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_request_cancel(request: dtl_request_t) -> dtl_status_t {
    guard::call(|inside| request::cancel(&*request::pin(inside, request)?))
}

/// Waits until all requests are done. Each finished one becomes null in the array; null ones are
/// passed over.
///
/// @param requests    `count` handles.
/// @param timeout_ns  for all together. If it passes, unfinished ones stay in the array.
/// @param infos       NULL, or `count` infos; those of null requests are left alone.
/// @return the first failure (its text names the index); the others' are in infos[].status.
/// Equivalent: MPI_Waitall.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_request_wait_all(
    count: u64,
    requests: *mut dtl_request_t,
    timeout_ns: u64,
    infos: *mut dtl_recv_info_t,
) -> dtl_status_t {
    guard::wait(
        |_| check_array(count, requests),
        |count| {
            if count == 0 {
                return Ok(());
            }
            // SAFETY: the caller's contract: `count` handles, not null by the check.
            let requests = unsafe { std::slice::from_raw_parts_mut(requests, count) };
            let tell = |index: usize, told| {
                if !infos.is_null() {
                    // SAFETY: the caller's contract: as many infos as requests.
                    let slot = unsafe { infos.add(index) };
                    // SAFETY: as above.
                    unsafe { slot.write(told) };
                }
            };
            request::wait_all(|handle| request::pin(&epoch::enter(), handle), requests, timeout_ns, tell)
        },
    )
}

fn check_array(count: u64, requests: *mut dtl_request_t) -> Result<usize> {
    if count > 1 << 20 {
        return fail!(DTL_ERROR_LIMIT, "count {count}: at most {} requests exist", 1 << 20);
    }
    if count > 0 {
        Out::new(requests, "requests")?;
    }
    Ok(count as usize)
}
