//! Point to point: send, receive, exchange, probe; their requests.

use super::args::Out;
use super::elements::data;
use super::guard;
use crate::abi::comm::dtl_recv_info_t;
use crate::abi::handle::{dtl_comm_t, dtl_message_t, dtl_request_t};
use crate::abi::status::dtl_status_t;
use crate::abi::word::dtl_dtype_t;
use crate::error::Result;
use crate::runtime::backend::{Done, SendMode, recv_info};
use crate::runtime::comm::request::{Message, Tagged};
use crate::runtime::comm::{self, Comm, message, p2p, probing, request};
use std::ffi::c_void;

/// Tells the caller how a receive ended.
#[inline(always)]
fn tell(comm: &Comm, done: &Done, source: i32, info: *mut dtl_recv_info_t) -> Result<()> {
    put_info(info, done)?;
    p2p::received(comm, done, source)
}

/// Sends a message and returns when `buf` may be used again (which may be before it is received).
///
/// Of all messages and collectives: a buffer may be memory of any backend that this library allocated. What the host cannot
/// reach is staged through host memory, or is an MPI's to reach that can (docs/how-to/send-device-memory.md; dtl_explain tells), and a copy that fails is the
/// call's or request's failure, with the backend's status. The work that writes a buffer must be done before it is sent:
/// dtl_event_sync, or dtl_comm_isend_on.
///
/// @param buf    `count` elements; NULL only for count 0.
/// @param dest   a rank, or DTL_PROC_NULL (nothing is sent).
/// @param tag    0 … DTL_TAG_MAX.
/// @return DTL_ERROR_RANK_FAILURE: dest died or left. DTL_ERROR_TIMEOUT: the communicator's time
///         limit passed; the message was withdrawn. DTL_ERROR_CANCELED: the communicator was
///         destroyed meanwhile (not over MPI's own messages, see dtl_comm_destroy). DTL_ERROR_INVALID_RANK.
///         DTL_ERROR_OUT_OF_BOUNDS: `buf` runs over the end of device memory. DTL_ERROR_OUT_OF_MEMORY: none to stage it in.
///         DTL_ERROR_INVALID_ARGUMENT: tag, among others; over MPI's own messages also one above MPI_TAG_UB.
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
            let data = unsafe { data(buf, count, dtype, "buf") }?;
            p2p::send(comm, data, dest, tag, SendMode::Standard)
        },
    )
}

/// Sends a message and returns when a receive has begun to take it.
///
/// @return as dtl_comm_send. Equivalent: MPI_Ssend.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_ssend(
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
            let data = unsafe { data(buf, count, dtype, "buf") }?;
            p2p::send(comm, data, dest, tag, SendMode::Synchronous)
        },
    )
}

/// Receives a message: the oldest of `source` (or any) with `tag` (or any).
///
/// @param buf     room for `count` elements; shorter messages are fine.
/// @param source  a rank, DTL_ANY_SOURCE, or DTL_PROC_NULL (completes at once, 0 bytes).
/// @param tag     0 … DTL_TAG_MAX, or DTL_ANY_TAG.
/// @param info    NULL, or who sent it, its tag and its true size. Written also when truncated.
/// @return DTL_ERROR_TRUNCATED: it was longer; `buf` is full. (Over MPI's own messages, see dtl_comm_desc_t,
///         the content of `buf` and the size in `info` are what MPI makes them, and there are MPIs that end the
///         process or write past `buf`: have room for the longest message, or probe.) Else as dtl_comm_send
///         (an ANY_SOURCE receive fails with DTL_ERROR_RANK_FAILURE when any rank dies).
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
            let data = unsafe { data(buf, count, dtype, "buf") }?;
            let mut done = Done::NOBODY;
            p2p::recv(comm, data, source, tag, &mut done)?;
            tell(comm, &done, source, info)
        },
    )
}

/// Writes receive information if the caller wants it.
#[inline]
pub(super) fn put_info(info: *mut dtl_recv_info_t, done: &Done) -> Result<()> {
    if !info.is_null() {
        Out::new(info, "info")?.set(recv_info(done));
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
            let sdata = unsafe { data(sbuf, scount, dtype, "sbuf") }?;
            // SAFETY: as above.
            let rdata = unsafe { data(rbuf, rcount, dtype, "rbuf") }?;
            let done = p2p::sendrecv(comm, (sdata, dest, stag), (rdata, source, rtag))?;
            tell(comm, &done, source, info)
        },
    )
}

/// Sends the buffer's message and receives another into the same buffer, at the same time.
///
/// @param buf  `count` elements to send, replaced by at most as many received.
/// @return as dtl_comm_sendrecv; DTL_ERROR_OUT_OF_MEMORY: no memory for a copy of the message.
/// Equivalent: MPI_Sendrecv_replace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_sendrecv_replace(
    comm: dtl_comm_t,
    buf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    dest: i32,
    stag: i32,
    source: i32,
    rtag: i32,
    info: *mut dtl_recv_info_t,
) -> dtl_status_t {
    guard::hold(
        |inside| comm::hold(inside, comm),
        |comm| {
            // SAFETY: the caller's contract.
            let data = unsafe { data(buf, count, dtype, "buf") }?;
            let done = p2p::sendrecv_replace(comm, data, (dest, stag), (source, rtag))?;
            tell(comm, &done, source, info)
        },
    )
}

/// Waits for a message that a receive with these arguments would take. It stays to be received.
///
/// @param info  source, tag and true size of the message; NULL if they do not matter.
/// @return as dtl_comm_recv. Threads: another thread may receive it first: use dtl_comm_mprobe.
/// Equivalent: MPI_Probe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_probe(
    comm: dtl_comm_t,
    source: i32,
    tag: i32,
    info: *mut dtl_recv_info_t,
) -> dtl_status_t {
    guard::hold(|inside| comm::hold(inside, comm), |comm| put_info(info, &probing::probe(comm, source, tag)?))
}

/// Asks, without waiting, whether there is a message that a receive would take; makes progress.
///
/// @param out_found  1 or 0.
/// @param info       NULL, or as in dtl_comm_probe; written if found.
/// @return as dtl_comm_probe, without DTL_ERROR_TIMEOUT. Equivalent: MPI_Iprobe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_iprobe(
    comm: dtl_comm_t,
    source: i32,
    tag: i32,
    out_found: *mut i32,
    info: *mut dtl_recv_info_t,
) -> dtl_status_t {
    guard::call(|inside| {
        let out = Out::new(out_found, "out_found")?;
        let found = probing::iprobe(&*comm::pin(inside, comm)?, source, tag)?;
        if let Some(done) = &found {
            put_info(info, done)?;
        }
        out.set(i32::from(found.is_some()));
        Ok(())
    })
}

/// Waits for a message as dtl_comm_probe does, and takes it: only dtl_comm_mrecv or _imrecv with
/// `out_message` gets it, whatever other threads receive.
///
/// @param out_message  yours until it is received; goes with its communicator.
/// @return as dtl_comm_probe. Equivalent: MPI_Mprobe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_mprobe(
    comm: dtl_comm_t,
    source: i32,
    tag: i32,
    out_message: *mut dtl_message_t,
    info: *mut dtl_recv_info_t,
) -> dtl_status_t {
    guard::wait(
        |inside| Ok((Out::new(out_message, "out_message")?, comm::pin(inside, comm)?)),
        |(out, comm)| {
            let (message, done) = message::mprobe(&comm, source, tag)?;
            put_info(info, &done)?;
            out.set(message);
            Ok(())
        },
    )
}

/// The same without waiting.
///
/// @param out_found    1 or 0.
/// @param out_message  written if found. Equivalent: MPI_Improbe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_improbe(
    comm: dtl_comm_t,
    source: i32,
    tag: i32,
    out_found: *mut i32,
    out_message: *mut dtl_message_t,
    info: *mut dtl_recv_info_t,
) -> dtl_status_t {
    guard::call(|inside| {
        let (out_found, out) = (Out::new(out_found, "out_found")?, Out::new(out_message, "out_message")?);
        let found = message::improbe(&comm::pin(inside, comm)?, source, tag)?;
        if let Some((message, done)) = &found {
            put_info(info, done)?;
            out.set(*message);
        }
        out_found.set(i32::from(found.is_some()));
        Ok(())
    })
}

/// Receives a message that was probed. Its handle is stale afterwards, also if the receive fails; only bad
/// arguments (buf, count, dtype) leave the message to be received.
///
/// @return as dtl_comm_recv; DTL_ERROR_INVALID_HANDLE: received before. Equivalent: MPI_Mrecv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_mrecv(
    message: dtl_message_t,
    buf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    info: *mut dtl_recv_info_t,
) -> dtl_status_t {
    guard::wait(
        |inside| {
            // SAFETY: the caller's contract.
            let data = unsafe { data(buf, count, dtype, "buf") }?;
            let message = message::claim(inside, message, &data)?;
            Ok((data, message))
        },
        |(data, message)| {
            let (done, comm) = message::mrecv(&message, data)?;
            tell(&comm, &done, done.source, info)
        },
    )
}

/// Starts to receive a message that was probed.
///
/// @return as dtl_comm_irecv and dtl_comm_mrecv. Equivalent: MPI_Imrecv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_imrecv(
    message: dtl_message_t,
    buf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    guard::call(|inside| {
        let out = Out::new(out, "out")?;
        // SAFETY: the caller's contract: `buf` stays until the request is done.
        let data = unsafe { data(buf, count, dtype, "buf") }?;
        out.set(request::imrecv(&*message::claim(inside, message, &data)?, data)?);
        Ok(())
    })
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
    // SAFETY: the caller's contract.
    unsafe { begin(comm, buf.cast_mut(), count, dtype, dest, Message::Send.with(tag), out) }
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
    // SAFETY: the caller's contract.
    unsafe { begin(comm, buf, count, dtype, source, Message::Recv.with(tag), out) }
}

/// Starts a send or a receive: one function, so that a program that does one after the other has it at hand. The tag and
/// what it is travel in one register, which makes the entries jumps.
///
/// # Safety
/// `buf` has `count` elements that stay until the request is done; `out` is null, misaligned or writable.
#[inline(never)]
unsafe fn begin(
    comm: dtl_comm_t,
    buf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    peer: i32,
    what: Tagged,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    let (message, tag) = what.parts();
    let entry = || match message {
        Message::Send => "dtl_comm_isend",
        Message::Ssend => "dtl_comm_issend",
        Message::Recv => "dtl_comm_irecv",
    };
    guard::call_as(entry, |inside| {
        let out = Out::new(out, "out")?;
        let comm = comm::get(inside, comm)?;
        // SAFETY: passed on.
        let data = unsafe { data(buf, count, dtype, "buf") }?;
        out.set(request::begin(comm, message, data, peer, tag)?);
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
    unsafe { begin(comm, buf.cast_mut(), count, dtype, dest, Message::Ssend.with(tag), out) }
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
    guard::call(|inside| {
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
    guard::call(|inside| {
        let out = Out::new(out, "out")?;
        let comm = comm::get(inside, comm)?;
        // SAFETY: the caller's contract: `buf` stays until the request is destroyed.
        let data = unsafe { data(buf, count, dtype, "buf") }?;
        out.set(request::recv_init(comm, data, source, tag)?);
        Ok(())
    })
}
