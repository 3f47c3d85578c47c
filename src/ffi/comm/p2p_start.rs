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

/// Starts a send and returns at once. `buf` must stay unchanged until the request is done.
///
/// @param out  the request; dtl_request_wait or _test ends it.
/// @return as dtl_comm_send; failures of the message itself come with the request.
/// Equivalent: MPI_Isend.
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

/// Starts a receive and returns at once. `buf` must stay untouched until the request is done.
///
/// @param out  the request; dtl_request_wait or _test ends it.
/// @return as dtl_comm_recv; failures of the message itself come with the request.
/// Equivalent: MPI_Irecv.
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

/// Starts a synchronous send: the request is done when a receive has begun to take the message.
///
/// @return as dtl_comm_isend. Equivalent: MPI_Issend.
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

/// Makes a persistent send, at rest: dtl_request_start starts it, as often as it is over.
///
/// @param buf  `count` elements, read anew by each start.
/// @param out  yours; end it with dtl_request_destroy.
/// @return as dtl_comm_isend. Equivalent: MPI_Send_init.
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

/// Makes a persistent receive, at rest: dtl_request_start starts it, as often as it is over.
///
/// @param buf  room for `count` elements.
/// @param out  yours; end it with dtl_request_destroy.
/// @return as dtl_comm_irecv. Equivalent: MPI_Recv_init.
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
