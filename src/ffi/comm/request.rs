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

/// Waits until a request is done. Its handle is stale afterwards (a second wait answers
/// DTL_ERROR_INVALID_HANDLE), unless the time limit passed: then it is still alive. A persistent
/// one rests afterwards; waiting for one at rest returns at once.
///
/// @param timeout_ns  DTL_TIMEOUT_INFINITE, or nanoseconds; 0 polls once. The communicator's time
///                    limit does not count here.
/// @param out_info        NULL, or where the outcome of a receive is written (also of a failed one).
/// @return how the operation ended (see dtl_comm_send, dtl_comm_recv); DTL_ERROR_CANCELED: it was
///         cancelled by dtl_request_cancel, or its communicator was destroyed; DTL_ERROR_TIMEOUT:
///         it goes on: wait again, or cancel it. For a collective, after a limit of 100 ms or more,
///         the text lists where the other ranks are, as queried before the limit passed.
/// Threads: any; of two waiting for one request, one gets the outcome. Equivalent: MPI_Wait.
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

/// Asks whether a request is done, without waiting; makes progress. If done, its handle is stale.
///
/// @param out_done  1 or 0. Written on success and when the operation itself failed (then 1).
/// @param out_info      NULL, or what a receive tells; written if done.
/// @return as dtl_request_wait, without DTL_ERROR_TIMEOUT. Equivalent: MPI_Test.
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

/// Tries to withdraw an operation that nothing has matched yet. The request still has to be waited
/// for; it ends with DTL_ERROR_CANCELED, or as usual if it was too late. A probe may still find a
/// cancelled send until the next message from the same rank on the communicator has arrived.
///
/// @return DTL_ERROR_NOT_SUPPORTED: a collective, in which the other ranks are too; over MPI's own
///         messages (see dtl_comm_desc_t) a send as well that was not over as it began. The request
///         is unchanged. DTL_ERROR_INVALID_STATE: a persistent one at rest. DTL_ERROR_CANCELED:
///         another thread is destroying the communicator.
/// Equivalent: MPI_Cancel.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_request_cancel(request: dtl_request_t) -> dtl_status_t {
    Entry("dtl_request_cancel").call(|inside| request::cancel(inside, request))
}

/// Waits until all requests are done. Each finished one becomes null in the array, unless it is
/// persistent; null ones and persistent ones at rest are passed over. Each handle once: of one
/// listed twice, the second is stale when its turn comes.
///
/// @param requests    `count` handles. If one is stale at the start, nothing is waited for.
/// @param timeout_ns  for all together; the communicators' time limits do not count here. If it
///                    passes, unfinished ones stay in the array.
/// @param out_infos       NULL, or `count` infos; those of null requests are left alone.
/// @return the first failure (its text names the index); the others' are in out_infos[].status.
///         DTL_ERROR_TIMEOUT: some are not done, and go on. Else as dtl_request_wait.
///         Equivalent: MPI_Waitall.
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
        |requests| wait::wait_all(requests, timeout_ns, |index, done| tell(out_infos, index, done)),
    )
}

/// Asks after all requests, without waiting; makes progress.
///
/// @param out_done  1: all were done, and everything is as after dtl_request_wait_all. 0: nothing
///                  else was written.
/// @return as dtl_request_wait_all, without DTL_ERROR_TIMEOUT. Equivalent: MPI_Testall.
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

/// Waits until one of the requests is done, and ends that one.
///
/// @param requests   `count` handles; null ones and persistent ones at rest are passed over. The
///                   one that is done becomes null, unless it is persistent.
/// @param out_index  which one; DTL_NO_INDEX: none is active. Written also if that one failed.
/// @param out_info       NULL, or what a receive tells.
/// @return as dtl_request_wait; DTL_ERROR_TIMEOUT: none is done, all go on.
/// Equivalent: MPI_Waitany.
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

/// Waits until at least one of the requests is done, and ends all that are.
///
/// @param requests   as in dtl_request_wait_any.
/// @param out_count  how many were done; 0: none is active.
/// @param out_indices    room for `count`: which ones.
/// @param out_infos      NULL, or room for `count`: what each tells, in the order of `out_indices`.
/// @return the first failure (its text names the index); the others' are in out_infos[].status.
///         DTL_ERROR_TIMEOUT: none is done, all go on. Else as dtl_request_wait.
///         Equivalent: MPI_Waitsome.
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

/// Starts a persistent request that is at rest.
///
/// @return DTL_ERROR_INVALID_STATE: it is active, or not persistent. Else as the call that made it.
/// Equivalent: MPI_Start.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_request_start(request: dtl_request_t) -> dtl_status_t {
    Entry("dtl_request_start").call(|inside| request::start(inside, request))
}

/// Starts persistent requests, in their order. Null ones are failures here.
///
/// @return the first failure (its text names the index): those before it are active, the others are
///         not; as dtl_request_start. Equivalent: MPI_Startall.
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

/// Ends a request without its outcome: an operation in flight is withdrawn, or finishes first if it
/// has been matched. Null: nothing happens.
///
/// @return DTL_ERROR_BUSY: a collective is in flight; the other ranks are in it too, so wait for
///         it.
///         DTL_ERROR_NOT_SUPPORTED: a send over MPI's own messages (see dtl_comm_desc_t), which MPI
///         does not give back: wait for it. DTL_ERROR_TIMEOUT: a registered kind has
///         not given it back for 5 s. The request is unchanged after these. DTL_ERROR_CANCELED:
///         another thread is destroying the communicator, and this request with it.
/// Equivalent: MPI_Request_free, but nothing goes on in the background.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_request_destroy(request: dtl_request_t) -> dtl_status_t {
    Entry("dtl_request_destroy").wait(|_| Ok(()), |()| request::destroy(request))
}

/// Returns the caller's handles.
///
/// # Safety
/// `requests` is null or has `count` handles that nothing else accesses during `'a`.
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
