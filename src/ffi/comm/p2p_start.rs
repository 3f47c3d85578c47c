//! Point to point: what starts a message and returns at once.

use crate::abi::handle::{dtl_comm_t, dtl_request_t};
use crate::abi::status::dtl_status_t;
use crate::abi::word::dtl_dtype_t;
use crate::error::Result;
use crate::ffi::args::Out;
use crate::ffi::elements::{data, usual_data};
use crate::ffi::guard::{self, Entry, Open};
use crate::runtime::comm::p2p::request::{self, Tagged};
use crate::runtime::comm::p2p::send_recv::{self, Data};
use crate::runtime::comm::{self, Comm};
use std::ffi::c_void;

/// Starts a send and returns at once. `buf` must stay unchanged until the request is done.
///
/// @param out  the request; dtl_request_wait or _test ends it.
/// @return as dtl_comm_send; failures of the message itself come with the request.
/// Equivalent: MPI_Isend.
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
    unsafe { begin(comm, buf.cast_mut(), count, dtype, dest, Tagged::send(tag), out) }
}

/// Starts a receive and returns at once. `buf` must stay untouched until the request is done.
///
/// @param out  the request; dtl_request_wait or _test ends it.
/// @return as dtl_comm_recv; failures of the message itself come with the request.
/// Equivalent: MPI_Irecv.
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
    unsafe { begin(comm, buf, count, dtype, source, Tagged::recv(tag), out) }
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
        Open::Library,
        move |visit| {
            // SAFETY: passed on.
            let (out, data) = (Out::usual(out)?, unsafe { usual_data(buf, count, dtype) }?);
            let found = send_recv::visit_for(visit, comm, data.bytes, peer, what.tag())?;
            let begun = request::begin(&found, comm, what, data, peer);
            Some(begun.map(|request| out.set(request)))
        },
        // SAFETY: passed on.
        move || unsafe { begin_any(comm, buf, count, dtype, peer, what, out) },
    )
}

/// Starts a send or a receive with any arguments. By C's convention, so that it cannot unwind: the
/// fast path jumps to it.
///
/// # Safety
/// As [`begin`].
#[cold]
#[inline(never)]
unsafe extern "C" fn begin_any(
    comm: dtl_comm_t,
    buf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    peer: i32,
    what: Tagged,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    let entry = Entry(if what.is_recv() { "dtl_comm_irecv" } else { "dtl_comm_isend" });
    // SAFETY: passed on.
    unsafe {
        start(entry, (comm, buf, count, dtype), out, |comm, data| {
            request::begin_any(comm, what, data, peer)
        })
    }
}

/// Starts what `start` starts, with any arguments.
///
/// # Safety
/// As [`begin`].
unsafe fn start(
    entry: Entry,
    (comm, buf, count, dtype): (dtl_comm_t, *mut c_void, u64, dtl_dtype_t),
    out: *mut dtl_request_t,
    start: impl FnOnce(&Comm, Data) -> Result<dtl_request_t>,
) -> dtl_status_t {
    entry.call(|inside| {
        let out = Out::new(out, "out")?;
        let comm = comm::get(inside, comm)?;
        // SAFETY: passed on.
        let data = unsafe { data(buf, count, dtype, "buf") }?;
        out.set(start(comm, data)?);
        Ok(())
    })
}

/// Starts a synchronous send: the request is done when a receive has begun to take the message.
///
/// @return as dtl_comm_isend. Equivalent: MPI_Issend.
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
    unsafe {
        start(Entry("dtl_comm_issend"), (comm, buf.cast_mut(), count, dtype), out, |comm, data| {
            request::issend(comm, data, dest, tag)
        })
    }
}

/// Makes a persistent send, at rest: dtl_request_start starts it, as often as it is over.
///
/// @param buf  `count` elements, read anew by each start.
/// @param out  yours; end it with dtl_request_destroy.
/// @return as dtl_comm_isend. Equivalent: MPI_Send_init.
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
        out.set(request::send_init(comm, data, dest, tag)?);
        Ok(())
    })
}

/// Makes a persistent receive, at rest: dtl_request_start starts it, as often as it is over.
///
/// @param buf  room for `count` elements.
/// @param out  yours; end it with dtl_request_destroy.
/// @return as dtl_comm_irecv. Equivalent: MPI_Recv_init.
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
        out.set(request::recv_init(comm, data, source, tag)?);
        Ok(())
    })
}
