//! Point to point: sends that wait for an event.

use crate::abi::handle::{dtl_comm_t, dtl_event_t, dtl_request_t};
use crate::abi::status::dtl_status_t;
use crate::abi::word::dtl_dtype_t;
use crate::ffi::args::Out;
use crate::ffi::elements::data;
use crate::ffi::guard::Entry;
use crate::runtime::comm;
use crate::runtime::comm::p2p::request;
use crate::runtime::exec::handles;
use std::ffi::c_void;

/// Starts a send that begins once an event is complete. Does not block, so this thread need not
/// wait for the kernel whose result it sends. The library checks the event in every call that waits
/// or tests, for this request or another. The send begins when such a call finds the event
/// complete, so sends that were started later may overtake it.
///
/// @param buf    `count` elements, unchanged from the event's record until the request is complete.
/// @param dest   A rank, or DTL_PROC_NULL (nothing is sent).
/// @param tag    0 to DTL_TAG_MAX.
/// @param event  The latest record counts. An event that was never recorded is complete, so the
///               send begins. Destroying the event has no effect. Record it again only after the
///               request is complete.
/// @param out    The request; complete it with dtl_request_wait or dtl_request_test. A failure of
///               the work before the record is a failure of the request; nothing is sent, and the
///               receiver continues to wait. dtl_request_cancel and dtl_request_destroy cancel the
///               send at any time before it begins.
/// @return DTL_ERROR_INVALID_HANDLE: `comm` or `event` does not exist. DTL_ERROR_INVALID_ARGUMENT:
///         `buf` is memory that the host cannot access (dtl_mem_kind_info), of another backend than
///         the event's; or `tag`, `count` or `dtype` is invalid. DTL_ERROR_INVALID_RANK: `dest` is
///         not a rank. DTL_ERROR_OUT_OF_BOUNDS: `buf` exceeds its device memory.
///         DTL_ERROR_OUT_OF_MEMORY: no host memory to stage it. DTL_ERROR_LIMIT: too many requests
///         in flight. The request returns later failures, such as DTL_ERROR_RANK_FAILURE.
/// Threads: any, several at once. Equivalent: MPIX_Isend_enqueue, approximately.
/// dtl:buf len(count*dtype) opt(count==0) until(request)
/// dtl:dest rank(null)
/// dtl:out owned(dtl_request_wait|dtl_request_test|dtl_request_destroy)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_isend_on(
    comm: dtl_comm_t,
    buf: *const c_void,
    count: u64,
    dtype: dtl_dtype_t,
    dest: i32,
    tag: i32,
    event: dtl_event_t,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    Entry("dtl_comm_isend_on").call(|inside| {
        let out = Out::new(out, "out")?;
        let (comm, event) = (comm::get(inside, comm)?, handles::pin(inside, event.id)?);
        // SAFETY: the caller's contract: `buf` stays until the request is done.
        let data = unsafe { data(buf, count, dtype, "buf") }?;
        out.put(request::isend_on(comm, data, dest, tag, &event))
    })
}
