//! Point to point: nonblocking and persistent messages.

use crate::abi::handle::{dtl_comm_t, dtl_request_t};
use crate::abi::status::dtl_status_t;
use crate::abi::word::dtl_dtype_t;
use crate::ffi::args::Out;
use crate::ffi::elements::{data, fast_data};
use crate::ffi::guard::{self, Entry};
use crate::runtime::comm;
use crate::runtime::comm::coll::Kind;
use crate::runtime::comm::p2p::request::{self, Tagged};

use std::ffi::c_void;

/// Starts a send. Does not block. `buf` must stay unchanged until the request is complete.
///
/// @param buf   `count` elements; NULL only for count 0.
/// @param dest  A rank, or DTL_PROC_NULL (nothing is sent).
/// @param tag   0 to DTL_TAG_MAX.
/// @param out   The request; complete it with dtl_request_wait or dtl_request_test.
/// @return DTL_ERROR_INVALID_RANK: `dest` is not a rank. DTL_ERROR_INVALID_ARGUMENT: `tag`, `count`
///         or `dtype` is invalid. DTL_ERROR_OUT_OF_BOUNDS: `buf` exceeds its device memory.
///         DTL_ERROR_OUT_OF_MEMORY: no host memory to stage it. DTL_ERROR_LIMIT: too many requests
///         in flight. The request returns the failure of the message: DTL_ERROR_RANK_FAILURE,
///         DTL_ERROR_CANCELED (see dtl_comm_send). Equivalent: MPI_Isend.
/// dtl:buf len(count*dtype) opt(count==0) until(request)
/// dtl:dest rank(null)
/// dtl:out owned(dtl_request_wait|dtl_request_test|dtl_request_destroy)
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.hot.dtl")]
pub unsafe extern "C" fn dtl_comm_isend(
    comm: dtl_comm_t,
    buf: *const c_void,
    count: u64,
    dtype: dtl_dtype_t,
    dest: i32,
    tag: i32,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    // SAFETY: the caller's contract.
    unsafe { begin(comm, buf.cast_mut(), count, dtype, dest, Tagged::new(Kind::Send, tag), out) }
}

/// Starts a receive. Does not block. `buf` must not be accessed until the request is complete.
///
/// @param buf     Room for `count` elements; the message may be shorter.
/// @param source  A rank, DTL_ANY_SOURCE, or DTL_PROC_NULL (completes at once).
/// @param tag     0 to DTL_TAG_MAX, or DTL_ANY_TAG.
/// @param out     The request; complete it with dtl_request_wait or dtl_request_test.
/// @return DTL_ERROR_INVALID_RANK: `source` is not a rank. DTL_ERROR_INVALID_ARGUMENT: `tag`,
///         `count` or `dtype` is invalid. DTL_ERROR_OUT_OF_BOUNDS: `buf` exceeds its device memory.
///         DTL_ERROR_OUT_OF_MEMORY: no host memory to stage it. DTL_ERROR_LIMIT: too many requests
///         in flight. The request returns the failure of the message: DTL_ERROR_TRUNCATED,
///         DTL_ERROR_RANK_FAILURE, DTL_ERROR_CANCELED (see dtl_comm_recv). Equivalent: MPI_Irecv.
/// dtl:buf out len(count*dtype) opt(count==0) until(request)
/// dtl:source rank(any)
/// dtl:out owned(dtl_request_wait|dtl_request_test|dtl_request_destroy)
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.hot.dtl")]
pub unsafe extern "C" fn dtl_comm_irecv(
    comm: dtl_comm_t,
    buf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    source: i32,
    tag: i32,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    // SAFETY: the caller's contract.
    unsafe { begin(comm, buf, count, dtype, source, Tagged::new(Kind::Recv, tag), out) }
}

/// Starts a send or a receive: one function, so that a program that does one after the other has it
/// at hand. Its arguments lie where the entries' own do (the tag and what it is in one register),
/// which makes those jumps.
///
/// # Safety
/// `buf` has `count` elements that stay until the request is done; `out` is null, misaligned or
/// writable.
#[inline(never)]
#[unsafe(link_section = ".text.hot.dtl")]
unsafe extern "C" fn begin(
    comm: dtl_comm_t,
    buf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    peer: i32,
    what: Tagged,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    guard::quick(
        guard::is_open_for_quick,
        move |visit| {
            // SAFETY: passed on.
            let (out, data) = (Out::usual(out)?, unsafe { fast_data(buf, count, dtype) }?);
            let comm = comm::visit(visit, comm)?;
            Some(request::begin(comm.inside(), &comm, what, (data, peer), |request| {
                out.set(request)
            }))
        },
        // SAFETY: passed on.
        move || unsafe { begin_general(comm, buf, count, dtype, peer, what, out) },
    )
}

/// General path of [`begin`]. By C's convention, so that it cannot unwind: the fast path jumps to
/// it.
///
/// # Safety
/// As [`begin`].
#[cold]
#[inline(never)]
unsafe extern "C" fn begin_general(
    comm: dtl_comm_t,
    buf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    peer: i32,
    what: Tagged,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    let entry = match what.kind() {
        Kind::Recv => "dtl_comm_irecv",
        Kind::Ssend => "dtl_comm_issend",
        _ => "dtl_comm_isend",
    };
    Entry(entry).call(|inside| {
        let out = Out::new(out, "out")?;
        let comm = comm::get(inside, comm)?;
        // SAFETY: passed on.
        let data = unsafe { data(buf, count, dtype, "buf") }?;
        request::begin(inside, comm, what, (data, peer), |request| out.set(request))
    })
}

/// Starts a synchronous send. Does not block. The request is complete when a matching receive has
/// started to take the message.
///
/// @param buf   `count` elements, unchanged until the request is complete; NULL only for count 0.
/// @param dest  A rank, or DTL_PROC_NULL (nothing is sent).
/// @param tag   0 to DTL_TAG_MAX.
/// @param out   The request; complete it with dtl_request_wait or dtl_request_test.
/// @return DTL_ERROR_INVALID_RANK, DTL_ERROR_INVALID_ARGUMENT, DTL_ERROR_OUT_OF_BOUNDS,
///         DTL_ERROR_OUT_OF_MEMORY, DTL_ERROR_LIMIT: see dtl_comm_isend. The request returns later
///         failures, as that of dtl_comm_isend does. Equivalent: MPI_Issend.
/// dtl:buf len(count*dtype) opt(count==0) until(request)
/// dtl:dest rank(null)
/// dtl:out owned(dtl_request_wait|dtl_request_test|dtl_request_destroy)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_issend(
    comm: dtl_comm_t,
    buf: *const c_void,
    count: u64,
    dtype: dtl_dtype_t,
    dest: i32,
    tag: i32,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    // SAFETY: the caller's contract.
    unsafe { begin(comm, buf.cast_mut(), count, dtype, dest, Tagged::new(Kind::Ssend, tag), out) }
}

/// Creates an inactive persistent send. dtl_request_start starts it; it may be started again
/// whenever it is complete.
///
/// @param buf   `count` elements, read again by each start.
/// @param dest  A rank, or DTL_PROC_NULL (nothing is sent).
/// @param tag   0 to DTL_TAG_MAX.
/// @param out   The request. The caller owns it; destroy it with dtl_request_destroy.
/// @return DTL_ERROR_INVALID_RANK, DTL_ERROR_INVALID_ARGUMENT, DTL_ERROR_OUT_OF_BOUNDS,
///         DTL_ERROR_OUT_OF_MEMORY, DTL_ERROR_LIMIT: see dtl_comm_isend. The request returns later
///         failures, as that of dtl_comm_isend does. Equivalent: MPI_Send_init.
/// dtl:buf len(count*dtype) opt(count==0) until(destroy)
/// dtl:dest rank(null)
/// dtl:out owned(dtl_request_destroy)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_send_init(
    comm: dtl_comm_t,
    buf: *const c_void,
    count: u64,
    dtype: dtl_dtype_t,
    dest: i32,
    tag: i32,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    Entry("dtl_comm_send_init").call(|inside| {
        let out = Out::new(out, "out")?;
        let comm = comm::get(inside, comm)?;
        // SAFETY: the caller's contract: `buf` stays until the request is destroyed.
        let data = unsafe { data(buf, count, dtype, "buf") }?;
        out.put(request::persistent(comm, Tagged::new(Kind::Send, tag), data, dest))
    })
}

/// Creates an inactive persistent receive. dtl_request_start starts it; it may be started again
/// whenever it is complete.
///
/// @param buf     Room for `count` elements; the message may be shorter.
/// @param source  A rank, DTL_ANY_SOURCE, or DTL_PROC_NULL (completes at once).
/// @param tag     0 to DTL_TAG_MAX, or DTL_ANY_TAG.
/// @param out     The request. The caller owns it; destroy it with dtl_request_destroy.
/// @return DTL_ERROR_INVALID_RANK, DTL_ERROR_INVALID_ARGUMENT, DTL_ERROR_OUT_OF_BOUNDS,
///         DTL_ERROR_OUT_OF_MEMORY, DTL_ERROR_LIMIT: see dtl_comm_irecv. The request returns later
///         failures, as that of dtl_comm_irecv does. Equivalent: MPI_Recv_init.
/// dtl:buf out len(count*dtype) opt(count==0) until(destroy)
/// dtl:source rank(any)
/// dtl:out owned(dtl_request_destroy)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_recv_init(
    comm: dtl_comm_t,
    buf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    source: i32,
    tag: i32,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    Entry("dtl_comm_recv_init").call(|inside| {
        let out = Out::new(out, "out")?;
        let comm = comm::get(inside, comm)?;
        // SAFETY: the caller's contract: `buf` stays until the request is destroyed.
        let data = unsafe { data(buf, count, dtype, "buf") }?;
        out.put(request::persistent(comm, Tagged::new(Kind::Recv, tag), data, source))
    })
}
