//! Requests: start, wait, test, cancel.

use super::p2p::{completion_for, put_info};
use crate::abi::comm::communicator::{DTL_NO_INDEX, dtl_recv_info_t};
use crate::abi::handle::dtl_request_t;
use crate::abi::status::dtl_status_t;
use crate::error::{Error, Result, fail};
use crate::ffi::args::Out;
use crate::ffi::guard::{self, Entry};
use crate::runtime::comm::p2p::request::{self, wait};
use crate::runtime::component::{Completion, recv_info};

/// Waits until a request is complete. Its handle is stale afterwards (a second wait returns
/// DTL_ERROR_INVALID_HANDLE), unless the time limit passed: then it stays valid. A persistent
/// request is inactive afterwards. For an inactive one the call returns at once.
///
/// @param timeout_ns  In nanoseconds; 0 polls once, DTL_TIMEOUT_INFINITE sets no limit. The time
///                    limit of the communicator does not apply.
/// @param out_info    Result of a receive, even a failed one; may be NULL.
/// @return DTL_ERROR_TRUNCATED: the received message is longer than the buffer.
///         DTL_ERROR_RANK_FAILURE: a rank of the operation died or left. DTL_ERROR_CANCELED: the
///         operation was cancelled by dtl_request_cancel, or its communicator was destroyed.
///         DTL_ERROR_TIMEOUT: the operation continues and its buffer stays in use. Wait again, or
///         cancel or destroy the request if dtl_request_cancel allows it. For a collective, after a
///         limit of 100 ms or more, the text reports where the other ranks are, as queried before
///         the limit passed. DTL_ERROR_BUSY: called from a callback of a call that polls this
///         request. Any status of the call that started the operation is possible too.
/// Threads: any; if two wait, one gets DTL_ERROR_INVALID_HANDLE. Equivalent: MPI_Wait.
/// dtl:out_info opt
/// dtl:call blocks(timeout_ns)
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.hot.dtl")]
pub unsafe extern "C" fn dtl_request_wait(
    request: dtl_request_t,
    timeout_ns: u64,
    out_info: *mut dtl_recv_info_t,
) -> dtl_status_t {
    /// By C's convention, so that it cannot unwind: the fast path jumps to it.
    #[cold]
    #[inline(never)]
    extern "C" fn general(
        request: dtl_request_t,
        timeout_ns: u64,
        out_info: *mut dtl_recv_info_t,
    ) -> dtl_status_t {
        Entry("dtl_request_wait").wait(
            |inside| {
                let mut outcome = (completion_for(out_info), Ok(()));
                let is_over = wait::test(inside, request, &mut outcome)?;
                Ok((is_over, outcome))
            },
            |(is_over, mut outcome)| {
                if !is_over {
                    wait::wait_on(request, timeout_ns, &mut outcome)?;
                }
                put_info(out_info, &outcome.0).and(outcome.1)
            },
        )
    }

    guard::quick(
        guard::is_open_for_quick,
        move |visit| {
            let mut outcome = (completion_for(out_info), Ok(()));
            match wait::is_over(&visit, request, timeout_ns, &mut outcome) {
                Ok(true) => Some(put_info(out_info, &outcome.0).and(outcome.1)),
                Ok(false) => None,
                Err(error) => Some(Err(error)),
            }
        },
        move || general(request, timeout_ns, out_info),
    )
}

/// Checks whether a request is complete. Does not block; makes progress. If it is complete, its
/// handle is stale afterwards, unless it is persistent.
///
/// @param out_done  1 or 0. Written on success, and (with 1) if the operation failed.
/// @param out_info  Result of a receive, written if it is complete; may be NULL.
/// @return DTL_ERROR_TRUNCATED, DTL_ERROR_RANK_FAILURE, DTL_ERROR_CANCELED, DTL_ERROR_BUSY, or
///         another status of the operation: see dtl_request_wait. Equivalent: MPI_Test.
/// dtl:out_done bool
/// dtl:out_info opt
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_request_test(
    request: dtl_request_t,
    out_done: *mut i32,
    out_info: *mut dtl_recv_info_t,
) -> dtl_status_t {
    Entry("dtl_request_test").call(|inside| {
        let out_done = Out::new(out_done, "out_done")?;
        let mut outcome = wait::empty_outcome();
        let is_over = wait::test(inside, request, &mut outcome)?;
        out_done.set(i32::from(is_over));
        if !is_over {
            return Ok(());
        }
        put_info(out_info, &outcome.0).and(outcome.1)
    })
}

/// Attempts to cancel an operation that has not been matched. The request must still be waited for:
/// it ends with DTL_ERROR_CANCELED, or normally if it was too late. A probe may still find a
/// cancelled send until the next message from the same rank on the communicator has arrived.
///
/// @return DTL_ERROR_NOT_SUPPORTED: the request is a collective, which needs all ranks, or a
///         one-sided operation (dtl_win_rput, dtl_win_rget); with MPI's own messages (see
///         dtl_comm_desc_t) also a send that was not complete when it was started. The request is
///         unchanged. DTL_ERROR_INVALID_STATE: the request is persistent and inactive.
///         DTL_ERROR_CANCELED: another thread is destroying the communicator. DTL_ERROR_BUSY:
///         called from a callback of a call that polls this request. Equivalent: MPI_Cancel.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_request_cancel(request: dtl_request_t) -> dtl_status_t {
    Entry("dtl_request_cancel").call(|inside| request::cancel(inside, request))
}

/// Waits until all requests are complete. Each complete one becomes null in the array, unless it is
/// persistent.
///
/// @param requests    `count` handles. Null ones and inactive persistent ones are skipped. List
///                    each handle once: the second of two equal entries counts as stale. If a
///                    handle is stale at the start, the call does not wait.
/// @param timeout_ns  Time limit for all of them in nanoseconds, or DTL_TIMEOUT_INFINITE. The
///                    communicators' time limits do not apply. If it passes, incomplete requests
///                    stay in the array.
/// @param out_infos   Room for `count` results, or NULL. Those of null requests are not written.
/// @return The first failure; its text has the index. The others' failures are in
///         out_infos[].status. DTL_ERROR_TRUNCATED, DTL_ERROR_RANK_FAILURE, DTL_ERROR_CANCELED,
///         DTL_ERROR_BUSY: see dtl_request_wait. DTL_ERROR_TIMEOUT: some are not complete and
///         continue. DTL_ERROR_INVALID_HANDLE: a handle is stale. DTL_ERROR_LIMIT: `count` is more
///         than 2^20. Equivalent: MPI_Waitall.
/// dtl:requests inout len(count) opt(count==0)
/// dtl:out_infos len(count) opt
/// dtl:call blocks(timeout_ns)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_request_wait_all(
    requests: *mut dtl_request_t,
    count: u64,
    timeout_ns: u64,
    out_infos: *mut dtl_recv_info_t,
) -> dtl_status_t {
    Entry("dtl_request_wait_all").wait(
        // SAFETY: the caller's contract: `count` handles.
        |_| unsafe { array(count, requests) },
        |requests| {
            let empty = completion_for(out_infos);
            wait::wait_all(requests, timeout_ns, empty, |index, done| tell(out_infos, index, done))
        },
    )
}

/// Checks whether all requests are complete. Does not block; makes progress.
///
/// @param requests   `count` handles. Null ones and inactive persistent ones are skipped.
/// @param out_done   1: all were complete, with the same effects as dtl_request_wait_all. 0:
///                   nothing else was written.
/// @param out_infos  Room for `count` results, or NULL. Those of null requests are not written.
/// @return The first failure; its text has the index. The others' failures are in
///         out_infos[].status. DTL_ERROR_TRUNCATED, DTL_ERROR_RANK_FAILURE, DTL_ERROR_CANCELED,
///         DTL_ERROR_BUSY: see dtl_request_wait. DTL_ERROR_INVALID_HANDLE: a handle is stale.
///         DTL_ERROR_LIMIT: `count` is more than 2^20. Equivalent: MPI_Testall.
/// dtl:requests inout len(count) opt(count==0)
/// dtl:out_done bool
/// dtl:out_infos len(count) opt
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_request_test_all(
    requests: *mut dtl_request_t,
    count: u64,
    out_done: *mut i32,
    out_infos: *mut dtl_recv_info_t,
) -> dtl_status_t {
    Entry("dtl_request_test_all").wait(
        // SAFETY: the caller's contract: `count` handles.
        |_| Ok((Out::new(out_done, "out_done")?, unsafe { array(count, requests) }?)),
        |(out_done, requests)| {
            let (done, result) =
                wait::test_all(requests, |index, done| tell(out_infos, index, done))?;
            out_done.set(i32::from(done));
            result
        },
    )
}

/// Waits until one of the requests is complete, and returns its index.
///
/// @param requests    `count` handles. Null ones and inactive persistent ones are skipped. The
///                    complete one becomes null, unless it is persistent.
/// @param timeout_ns  In nanoseconds; 0 polls once, DTL_TIMEOUT_INFINITE sets no limit.
/// @param out_index   Index of the complete request; DTL_NO_INDEX if none is active. Written even
///                    if that request failed.
/// @param out_info    Result of a receive; may be NULL.
/// @return DTL_ERROR_TRUNCATED, DTL_ERROR_RANK_FAILURE, DTL_ERROR_CANCELED, DTL_ERROR_BUSY, or
///         another status of the operation: see dtl_request_wait. DTL_ERROR_TIMEOUT: none is
///         complete, and all continue. DTL_ERROR_INVALID_HANDLE: a handle is stale.
///         DTL_ERROR_LIMIT: `count` is more than 2^20. Equivalent: MPI_Waitany.
/// dtl:requests inout len(count) opt(count==0)
/// dtl:out_info opt
/// dtl:call blocks(timeout_ns)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_request_wait_any(
    requests: *mut dtl_request_t,
    count: u64,
    timeout_ns: u64,
    out_index: *mut u64,
    out_info: *mut dtl_recv_info_t,
) -> dtl_status_t {
    Entry("dtl_request_wait_any").wait(
        // SAFETY: the caller's contract: `count` handles.
        |_| Ok((Out::new(out_index, "out_index")?, unsafe { array(count, requests) }?)),
        |(out_index, requests)| {
            let mut first = None;
            wait::wait_some(requests, 1, timeout_ns, |index, outcome| {
                first = Some((index, outcome))
            })?;
            let Some((index, (done, result))) = first else {
                out_index.set(DTL_NO_INDEX);
                return Ok(());
            };
            out_index.set(index as u64);
            put_info(out_info, &done).and(result)
        },
    )
}

/// Waits until at least one of the requests is complete, and returns the indices of all complete
/// ones.
///
/// @param requests     `count` handles. Null ones and inactive persistent ones are skipped. The
///                     complete ones become null, unless they are persistent.
/// @param timeout_ns   In nanoseconds; 0 polls once, DTL_TIMEOUT_INFINITE sets no limit.
/// @param out_count    Number of complete requests; 0 if none is active.
/// @param out_indices  Room for `count` indices of complete requests.
/// @param out_infos    Room for `count` results, in the order of `out_indices`; may be NULL.
/// @return The first failure; its text has the index. The others' failures are in
///         out_infos[].status. DTL_ERROR_TRUNCATED, DTL_ERROR_RANK_FAILURE, DTL_ERROR_CANCELED,
///         DTL_ERROR_BUSY: see dtl_request_wait. DTL_ERROR_TIMEOUT: none is complete, and all
///         continue. DTL_ERROR_INVALID_HANDLE: a handle is stale. DTL_ERROR_LIMIT: `count` is more
///         than 2^20. Equivalent: MPI_Waitsome.
/// dtl:requests inout len(count) opt(count==0)
/// dtl:out_indices len(count) opt(count==0)
/// dtl:out_infos len(count) opt
/// dtl:call blocks(timeout_ns)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_request_wait_some(
    requests: *mut dtl_request_t,
    count: u64,
    timeout_ns: u64,
    out_count: *mut u64,
    out_indices: *mut u64,
    out_infos: *mut dtl_recv_info_t,
) -> dtl_status_t {
    Entry("dtl_request_wait_some").wait(
        |_| {
            if count > 0 {
                Out::new(out_indices, "out_indices")?;
            }
            // SAFETY: the caller's contract: `count` handles.
            Ok((Out::new(out_count, "out_count")?, unsafe { array(count, requests) }?))
        },
        |(out_count, requests)| {
            let (mut count_done, mut failure) = (0, Ok(()));
            wait::wait_some(requests, requests.len(), timeout_ns, |index, (done, result)| {
                // SAFETY: the caller's contract: room for `count`, and count_done < count.
                let slot = unsafe { out_indices.add(count_done) };
                // SAFETY: as above.
                unsafe { slot.write(index as u64) };
                tell(out_infos, count_done, &done);
                count_done += 1;
                let named = |error: Error| error.within(&format!("requests[{index}]"));
                failure =
                    std::mem::replace(&mut failure, Ok(())).and_then(|()| result.map_err(named));
            })?;
            out_count.set(count_done as u64);
            failure
        },
    )
}

/// Starts an inactive persistent request. Does not block.
///
/// @return DTL_ERROR_INVALID_STATE: the request is active or not persistent, or its device buffer
///         was freed. Otherwise a status of the call that created it. Equivalent: MPI_Start.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_request_start(request: dtl_request_t) -> dtl_status_t {
    Entry("dtl_request_start").call(|inside| request::start(inside, request))
}

/// Starts persistent requests in their order. Does not block.
///
/// @param requests  `count` handles, all inactive; a null one is a failure.
/// @return The first failure; its text has the index. The requests before it are active, the others
///         are not. DTL_ERROR_INVALID_STATE: a request is active or not persistent, or its device
///         buffer was freed. DTL_ERROR_INVALID_HANDLE: a handle is null or stale. DTL_ERROR_LIMIT:
///         `count` is more than 2^20. Equivalent: MPI_Startall.
/// dtl:requests in len(count) opt(count==0)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_request_start_all(
    requests: *mut dtl_request_t,
    count: u64,
) -> dtl_status_t {
    Entry("dtl_request_start_all").call(|inside| {
        // SAFETY: the caller's contract: `count` handles.
        let requests = unsafe { array(count, requests) }?;
        for (index, handle) in requests.iter().enumerate() {
            request::start(inside, *handle)
                .map_err(|error| error.within(&format!("requests[{index}]")))?;
        }
        Ok(())
    })
}

/// Destroys a request and discards its result. An operation in flight is cancelled; if it has been
/// matched, the call waits until it is complete. Null: no effect.
///
/// @return DTL_ERROR_BUSY: a collective, which needs all ranks, or a one-sided operation
///         (dtl_win_rput, dtl_win_rget) is in flight: wait for it. DTL_ERROR_NOT_SUPPORTED: a send
///         with MPI's own messages (see dtl_comm_desc_t), which MPI does not release, is in flight:
///         wait for it. DTL_ERROR_TIMEOUT: a registered kind has not released it within 5 s.
///         DTL_ERROR_CANCELED: another thread is destroying the communicator, and this request with
///         it. After the first three the request is unchanged, and its buffer stays in use.
/// Equivalent: MPI_Request_free, but no operation continues in the background.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_request_destroy(request: dtl_request_t) -> dtl_status_t {
    Entry("dtl_request_destroy").wait(|_| Ok(()), |()| request::destroy(request))
}

/// Returns the caller's handles.
///
/// # Safety
/// `requests` is null or has `count` handles that nothing else accesses during `'a`.
#[inline]
unsafe fn array<'a>(count: u64, requests: *mut dtl_request_t) -> Result<&'a mut [dtl_request_t]> {
    if count > 1 << 20 {
        return fail!(DTL_ERROR_LIMIT, "count {count}: at most {} requests exist", 1 << 20);
    }
    if count == 0 {
        return Ok(&mut []);
    }
    Out::new(requests, "requests")?;
    // SAFETY: not null (checked), so it has `count` handles by the contract.
    Ok(unsafe { std::slice::from_raw_parts_mut(requests, count as usize) })
}

/// Writes one of the infos, if the caller wants them.
fn tell(infos: *mut dtl_recv_info_t, index: usize, done: &Completion) {
    if !infos.is_null() {
        // SAFETY: the caller's contract: as many infos as requests.
        let slot = unsafe { infos.add(index) };
        // SAFETY: as above.
        unsafe { slot.write(recv_info(done)) };
    }
}
