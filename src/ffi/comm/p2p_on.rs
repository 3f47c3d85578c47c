//! Point to point: messages in stream order.

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

/// Starts a send that begins when the work before an event's record is done, and returns at once: a
/// kernel's result goes to another rank without this thread waiting for the kernel. The library
/// looks after the event in every call that waits or tests, of this request or another. It begins
/// when it is seen to be done, so sends that were started later may overtake it.
///
/// @param buf    `count` elements, unchanged from the event's record until the request is done.
/// @param event  its latest record counts; never recorded = done, so the send begins. Destroying
///               the event changes nothing. Record it anew only when the request is done.
/// @param out    the request; dtl_request_wait or _test ends it. A failure of the work before the
///               record is the request's, and nothing is sent; the receiver goes on waiting.
///               dtl_request_cancel and _destroy withdraw it at any time before it begins.
/// @return as dtl_comm_isend. DTL_ERROR_INVALID_HANDLE: event. DTL_ERROR_INVALID_ARGUMENT: `buf` is
///         memory that the host cannot reach (dtl_mem_kind_info) of another backend than the
///         event's, among others.
/// Threads: any, several at once. Equivalent: MPIX_Isend_enqueue, as far as there is one.
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
