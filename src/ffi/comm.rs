//! Communicators: open, describe, send, receive.

use super::args::{self, Out, sized};
use super::guard;
use crate::abi::comm::*;
use crate::abi::handle::{dtl_comm_t, dtl_request_t};
use crate::abi::status::dtl_status_t;
use crate::abi::word::dtl_dtype_t;
use crate::error::{Result, fail};
use crate::runtime::comm::types::element_size;
use crate::runtime::comm::{self, open, p2p, request};
use crate::sys::buf::Region;
use std::ffi::c_void;

sized!(dtl_comm_desc_t, dtl_comm_info_t);

/// The job's communicator (the same as DTL_COMM_WORLD), opened now if nobody has used it yet. Its
/// kind comes from dtl_init, DTL_COMM, else "auto": one rank without a launcher ("self"), shared
/// memory if all ranks run on this node ("shm"). Collective at the first use: all ranks open it.
///
/// @param out  DTL_COMM_WORLD. Nothing to free; dtl_finalize closes it.
/// @return DTL_ERROR_UNAVAILABLE: no kind fits (the text says what is missing). DTL_ERROR_TIMEOUT:
///         ranks are missing after 30 s (or DTL_TIMEOUT if that is less); the text names them.
/// Equivalent: MPI_COMM_WORLD.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_world(out: *mut dtl_comm_t) -> dtl_status_t {
    guard::wait(
        |inside| Ok((Out::new(out, "out")?, comm::pin(inside, DTL_COMM_WORLD)?)),
        |(out, _opened)| {
            out.set(DTL_COMM_WORLD);
            Ok(())
        },
    )
}

/// Opens a communicator. Collective: all its ranks call it, with descriptions that agree.
///
/// @param desc  kind, ranks, time limit; start from DTL_COMM_DESC_INIT. NULL = all defaults.
/// @param out   yours; end it with dtl_comm_destroy.
/// @return DTL_ERROR_NOT_FOUND: no such kind (the text lists them). DTL_ERROR_UNAVAILABLE: it
///         cannot run here. DTL_ERROR_TIMEOUT: ranks are missing (named). DTL_ERROR_ALREADY_EXISTS:
///         another process claims this rank. DTL_ERROR_INVALID_RANK, DTL_ERROR_INVALID_ARGUMENT.
///         A failure is one on every rank that was there; nothing stays open.
/// Threads: any. Equivalent: MPI_Comm_create_from_group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_open(desc: *const dtl_comm_desc_t, out: *mut dtl_comm_t) -> dtl_status_t {
    guard::wait(
        |_| {
            let out = Out::new(out, "out")?;
            // SAFETY: the caller's contract.
            Ok((out, unsafe { take_description(desc) }?))
        },
        |(out, description)| {
            out.set(open::open(&description)?);
            Ok(())
        },
    )
}

unsafe fn take_description(desc: *const dtl_comm_desc_t) -> Result<open::Description> {
    if desc.is_null() {
        return Ok(open::Description::default());
    }
    // SAFETY: the caller's contract: a struct of the size it says.
    let raw = unsafe { args::take(desc) }?;
    // SAFETY: the caller's contract: NULL or a NUL-terminated text.
    let kind = unsafe { args::text_or_null(raw.kind, "desc.kind") }?.map(str::to_owned);
    // SAFETY: as above.
    let job = unsafe { args::text_or_null(raw.job, "desc.job") }?.map(str::to_owned);
    Ok(open::Description { raw, kind, job })
}

/// Destroys a communicator. Calls of other threads that wait on it return DTL_ERROR_CANCELED;
/// requests in flight are withdrawn and their handles become stale; messages that were sent stay
/// receivable by the peers. Null, DTL_COMM_WORLD and DTL_COMM_SELF: nothing happens.
///
/// @return DTL_ERROR_BUSY: requests are in flight and the transport cannot withdraw them.
/// Equivalent: MPI_Comm_disconnect, but not collective.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_comm_destroy(comm: dtl_comm_t) -> dtl_status_t {
    guard::call(|inside| comm::destroy(inside, comm))
}

/// This process' rank, 0 … size-1. Equivalent: MPI_Comm_rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_rank(comm: dtl_comm_t, out_rank: *mut i32) -> dtl_status_t {
    guard::call(|inside| {
        let out = Out::new(out_rank, "out_rank")?;
        out.set(comm::pin(inside, comm)?.rank());
        Ok(())
    })
}

/// Number of ranks. Equivalent: MPI_Comm_size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_size(comm: dtl_comm_t, out_size: *mut i32) -> dtl_status_t {
    guard::call(|inside| {
        let out = Out::new(out_size, "out_size")?;
        out.set(comm::pin(inside, comm)?.size());
        Ok(())
    })
}

/// Describes a communicator: ranks, kind, how its data moves, how many ranks have failed.
///
/// @param out_info  start from DTL_COMM_INFO_INIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_info(comm: dtl_comm_t, out_info: *mut dtl_comm_info_t) -> dtl_status_t {
    guard::call(|inside| {
        let comm = comm::pin(inside, comm)?;
        // SAFETY: the caller's contract.
        unsafe { args::fill(out_info, |info| comm::info(&comm, info)) }
    })
}

/// `count` elements of `dtype` at `pointer`.
///
/// # Safety
/// They stay valid until the operation that receives the region has ended.
pub(super) unsafe fn elements(
    pointer: *const c_void,
    count: u64,
    dtype: dtl_dtype_t,
    name: &str,
) -> Result<Region> {
    let size = element_size(dtype)? as u64;
    let Some(bytes) = count.checked_mul(size) else {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{name}: {count} elements of {size} bytes are more than memory can hold"
        );
    };
    // SAFETY: passed on.
    unsafe { args::region(pointer, bytes, name) }
}

/// Sends a message and returns when `buf` may be used again (which may be before it is received).
///
/// @param buf    `count` elements; NULL only for count 0.
/// @param dest   a rank, or DTL_PROC_NULL (nothing is sent).
/// @param tag    0 … DTL_TAG_MAX.
/// @return DTL_ERROR_RANK_FAILURE: dest died or left. DTL_ERROR_TIMEOUT: the communicator's time
///         limit passed; the message was withdrawn. DTL_ERROR_CANCELED: the communicator was
///         destroyed meanwhile. DTL_ERROR_INVALID_RANK, DTL_ERROR_INVALID_ARGUMENT.
/// Threads: any, several at once. Equivalent: MPI_Send.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_send(
    comm: dtl_comm_t,
    buf: *const c_void,
    count: u64,
    dtype: dtl_dtype_t,
    dest: i32,
    tag: i32,
) -> dtl_status_t {
    guard::hold(
        |inside| comm::hold(inside, comm),
        |comm| {
            // SAFETY: the caller's contract.
            let data = unsafe { elements(buf, count, dtype, "buf") }?;
            p2p::send(comm, data, dest, tag)
        },
    )
}

/// Receives a message: the oldest of `source` (or any) with `tag` (or any).
///
/// @param buf     room for `count` elements; shorter messages are fine.
/// @param source  a rank, DTL_ANY_SOURCE, or DTL_PROC_NULL (completes at once, 0 bytes).
/// @param tag     0 … DTL_TAG_MAX, or DTL_ANY_TAG.
/// @param info    NULL, or who sent it, its tag and its true size. Written also when truncated.
/// @return DTL_ERROR_TRUNCATED: it was longer; `buf` is full. Else as dtl_comm_send (an ANY_SOURCE
///         receive fails with DTL_ERROR_RANK_FAILURE when any rank dies).
/// Threads: any, several at once. Equivalent: MPI_Recv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_recv(
    comm: dtl_comm_t,
    buf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    source: i32,
    tag: i32,
    info: *mut dtl_recv_info_t,
) -> dtl_status_t {
    guard::hold(
        |inside| comm::hold(inside, comm),
        |comm| {
            // SAFETY: the caller's contract.
            let data = unsafe { elements(buf, count, dtype, "buf") }?;
            let done = p2p::recv(comm, data, source, tag)?;
            let (told, result) = p2p::received(comm, &done, source);
            put_info(info, told)?;
            result
        },
    )
}

/// Writes receive information if the caller wants it.
pub(super) fn put_info(info: *mut dtl_recv_info_t, told: dtl_recv_info_t) -> Result<()> {
    if !info.is_null() {
        Out::new(info, "info")?.set(told);
    }
    Ok(())
}

/// Sends one message and receives another at the same time, so that exchanges round a ring cannot
/// deadlock. The buffers must not overlap.
///
/// @param dtype  of both messages. The other parameters and the statuses: dtl_comm_send and
///               dtl_comm_recv.
/// Equivalent: MPI_Sendrecv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_sendrecv(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    scount: u64,
    dest: i32,
    stag: i32,
    rbuf: *mut c_void,
    rcount: u64,
    source: i32,
    rtag: i32,
    dtype: dtl_dtype_t,
    info: *mut dtl_recv_info_t,
) -> dtl_status_t {
    guard::hold(
        |inside| comm::hold(inside, comm),
        |comm| {
            // SAFETY: the caller's contract.
            let sdata = unsafe { elements(sbuf, scount, dtype, "sbuf") }?;
            // SAFETY: as above.
            let rdata = unsafe { elements(rbuf, rcount, dtype, "rbuf") }?;
            let done = p2p::sendrecv(comm, (sdata, dest, stag), (rdata, source, rtag))?;
            let (told, result) = p2p::received(comm, &done, source);
            put_info(info, told)?;
            result
        },
    )
}

/// Starts a send and returns at once. `buf` must stay unchanged until the request is done.
///
/// @param out  the request; dtl_request_wait or _test ends it.
/// @return as dtl_comm_send; failures of the message itself come with the request.
/// Equivalent: MPI_Isend.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_isend(
    comm: dtl_comm_t,
    buf: *const c_void,
    count: u64,
    dtype: dtl_dtype_t,
    dest: i32,
    tag: i32,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    guard::call(|inside| {
        let out = Out::new(out, "out")?;
        let comm = comm::pin(inside, comm)?;
        // SAFETY: the caller's contract: `buf` stays until the request is done.
        let data = unsafe { elements(buf, count, dtype, "buf") }?;
        out.set(request::isend(comm, data, dest, tag)?);
        Ok(())
    })
}

/// Starts a receive and returns at once. `buf` must stay untouched until the request is done.
///
/// @param out  the request; dtl_request_wait or _test ends it.
/// @return as dtl_comm_recv; failures of the message itself come with the request.
/// Equivalent: MPI_Irecv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_irecv(
    comm: dtl_comm_t,
    buf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    source: i32,
    tag: i32,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    guard::call(|inside| {
        let out = Out::new(out, "out")?;
        let comm = comm::pin(inside, comm)?;
        // SAFETY: the caller's contract: `buf` stays until the request is done.
        let data = unsafe { elements(buf, count, dtype, "buf") }?;
        out.set(request::irecv(comm, data, source, tag)?);
        Ok(())
    })
}
