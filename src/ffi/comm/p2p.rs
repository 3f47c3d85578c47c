//! Point to point: blocking send, receive, exchange, probe.

use crate::abi::comm::communicator::dtl_recv_info_t;
use crate::abi::handle::{dtl_comm_t, dtl_message_t, dtl_request_t};
use crate::abi::status::{DTL_SUCCESS, dtl_status_t};
use crate::abi::word::dtl_dtype_t;
use crate::error::Result;
use crate::ffi::args::Out;
use crate::ffi::elements::{data, fast_data};
use crate::ffi::guard::{self, Entry};
use crate::hints;
use crate::runtime::comm::p2p::send_recv::Data;
use crate::runtime::comm::p2p::{matched_message, probe, request, send_recv};
use crate::runtime::comm::{self, Comm};
use crate::runtime::component::{Completion, SendMode, recv_info};
use std::ffi::c_void;

/// Returns a completion to fill in; only the fields that `out_info` needs are requested.
pub(crate) fn completion_for(out_info: *mut dtl_recv_info_t) -> Completion {
    // In pieces: a constant of that size would be read from memory.
    let source =
        if out_info.is_null() { Completion::UNASKED.source } else { Completion::NOBODY.source };
    Completion { source, status: DTL_SUCCESS, match_bits: 0, size: 0 }
}

/// Ends a receive: writes the receive information of its completion and returns the outcome.
#[inline(always)] // row: shm_send_recv_8
fn end(comm: &Comm, done: &mut Completion, source: i32, out: *mut dtl_recv_info_t) -> Result<()> {
    if hints::usually(done.status == DTL_SUCCESS) {
        return put_info(out, done);
    }
    let ended = comm.check_done(done, "receive from", source);
    put_info(out, done).and(ended)
}

/// Sends a message. Blocks until `buf` may be reused, which may be before the message is received.
///
/// For all messages and collectives: a buffer may be memory of any backend, allocated by this
/// library or recognized by it. Memory that the host cannot access is staged through host memory,
/// or passed to MPI, NCCL or RDMA directly (docs/how-to/send-device-memory.md; dtl_explain reports
/// which). If a copy
/// fails, the call or request fails with the backend's status. Work that writes a buffer must be
/// complete before the buffer is sent: use dtl_event_wait, or dtl_comm_isend_on.
///
/// @param buf   `count` elements; NULL only for count 0.
/// @param dest  A rank, or DTL_PROC_NULL (nothing is sent).
/// @param tag   0 to DTL_TAG_MAX.
/// @return DTL_ERROR_RANK_FAILURE: `dest` died, left or takes no part in the communicator (the call
///         that created it failed there, or it destroyed the communicator after a failure).
///         DTL_ERROR_TIMEOUT: the communicator's time limit passed; the message was cancelled. A
///         registered kind may be unable to cancel a matched message. Then the call returns this
///         status 5 s after its limit, the text states that the transport has not released the
///         buffer, and the buffer must stay valid and unused as long as the process runs. Any
///         status with this text means the same. DTL_ERROR_CANCELED: the communicator was
///         destroyed meanwhile (not with MPI's own messages, see dtl_comm_destroy).
///         DTL_ERROR_INVALID_RANK: `dest` is not a rank. DTL_ERROR_OUT_OF_BOUNDS: a buffer exceeds
///         its device memory. DTL_ERROR_OUT_OF_MEMORY: no host memory to stage a buffer.
///         DTL_ERROR_INVALID_ARGUMENT: `tag`, `count` or `dtype` is invalid; with MPI's own
///         messages also a tag above MPI_TAG_UB.
/// Threads: any, several at once. Equivalent: MPI_Send.
/// dtl:buf len(count*dtype) opt(count==0)
/// dtl:dest rank(null)
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.hot.dtl")]
pub unsafe extern "C" fn dtl_comm_send(
    comm: dtl_comm_t,
    buf: *const c_void,
    count: u64,
    dtype: dtl_dtype_t,
    dest: i32,
    tag: i32,
) -> dtl_status_t {
    guard::quick(
        guard::is_open_for_quick,
        move |visit| {
            // SAFETY: the caller's contract.
            let data = unsafe { fast_data(buf, count, dtype) }?;
            let comm = comm::keep(visit, comm)?;
            Some(send_recv::send(&comm, data, dest, tag, SendMode::Standard))
        },
        // SAFETY: the caller's contract.
        move || unsafe { send_general(comm, buf, count, dtype, dest, tag, SendMode::Standard) },
    )
}

/// General path of a send, in either mode.
///
/// # Safety
/// `buf` has `count` elements.
#[inline(never)]
unsafe fn send_general(
    comm: dtl_comm_t,
    buf: *const c_void,
    count: u64,
    dtype: dtl_dtype_t,
    dest: i32,
    tag: i32,
    mode: SendMode,
) -> dtl_status_t {
    let entry = if mode == SendMode::Synchronous { "dtl_comm_ssend" } else { "dtl_comm_send" };
    Entry(entry).hold(comm::hold, comm, |comm| {
        // SAFETY: passed on.
        let data = unsafe { data(buf, count, dtype, "buf") }?;
        send_recv::send(comm, data, dest, tag, mode)
    })
}

/// Sends a message synchronously. Blocks until a matching receive has started to take it.
///
/// @param buf   `count` elements; NULL only for count 0.
/// @param dest  A rank, or DTL_PROC_NULL (nothing is sent).
/// @param tag   0 to DTL_TAG_MAX.
/// @return DTL_ERROR_RANK_FAILURE, DTL_ERROR_TIMEOUT, DTL_ERROR_CANCELED, DTL_ERROR_INVALID_RANK,
///         DTL_ERROR_OUT_OF_BOUNDS, DTL_ERROR_OUT_OF_MEMORY, DTL_ERROR_INVALID_ARGUMENT: see
///         dtl_comm_send.
/// Threads: any, several at once. Equivalent: MPI_Ssend.
/// dtl:buf len(count*dtype) opt(count==0)
/// dtl:dest rank(null)
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_ssend(
    comm: dtl_comm_t,
    buf: *const c_void,
    count: u64,
    dtype: dtl_dtype_t,
    dest: i32,
    tag: i32,
) -> dtl_status_t {
    // SAFETY: the caller's contract.
    unsafe { send_general(comm, buf, count, dtype, dest, tag, SendMode::Synchronous) }
}

/// Receives the oldest message from `source` (or any rank) with `tag` (or any tag). Blocks until it
/// is in `buf`.
///
/// @param buf       Room for `count` elements; the message may be shorter.
/// @param source    A rank, DTL_ANY_SOURCE, or DTL_PROC_NULL (completes at once).
/// @param tag       0 to DTL_TAG_MAX, or DTL_ANY_TAG.
/// @param out_info  Source, tag and size of the message, written even if it was truncated; may be
///                  NULL.
/// @return DTL_ERROR_TRUNCATED: the message is longer; `buf` is full. With MPI's own messages (see
///         dtl_comm_desc_t) the MPI determines the content of `buf` and the size in `out_info`, and
///         some MPIs end the process or write past `buf`: provide room for the longest message, or
///         probe. DTL_ERROR_RANK_FAILURE: `source` died or left; with DTL_ANY_SOURCE, any rank
///         died. DTL_ERROR_TIMEOUT: the time limit passed; the receive was cancelled (for
///         registered kinds see dtl_comm_send). DTL_ERROR_CANCELED: the communicator was destroyed
///         meanwhile. DTL_ERROR_INVALID_RANK: `source` is not a rank. DTL_ERROR_OUT_OF_BOUNDS: a
///         buffer exceeds its device memory. DTL_ERROR_OUT_OF_MEMORY: no host memory to stage a
///         buffer. DTL_ERROR_INVALID_ARGUMENT: `tag`, `count` or `dtype` is invalid.
/// Threads: any, several at once. Equivalent: MPI_Recv.
/// dtl:buf out len(count*dtype) opt(count==0)
/// dtl:source rank(any)
/// dtl:out_info opt
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.hot.dtl")]
pub unsafe extern "C" fn dtl_comm_recv(
    comm: dtl_comm_t,
    buf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    source: i32,
    tag: i32,
    out_info: *mut dtl_recv_info_t,
) -> dtl_status_t {
    guard::quick(
        guard::is_open_for_quick,
        move |visit| {
            // SAFETY: the caller's contract.
            let data = unsafe { fast_data(buf, count, dtype) }?;
            let comm = comm::keep(visit, comm)?;
            Some(recv(&comm, data, source, tag, out_info))
        },
        // SAFETY: the caller's contract.
        move || unsafe { recv_general(comm, buf, count, dtype, source, tag, out_info) },
    )
}

/// General path of a receive.
///
/// # Safety
/// As [`dtl_comm_recv`].
#[inline(never)]
unsafe fn recv_general(
    comm: dtl_comm_t,
    buf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    source: i32,
    tag: i32,
    out_info: *mut dtl_recv_info_t,
) -> dtl_status_t {
    Entry("dtl_comm_recv").hold(comm::hold, comm, |comm| {
        // SAFETY: the caller's contract.
        let data = unsafe { data(buf, count, dtype, "buf") }?;
        recv(comm, data, source, tag, out_info)
    })
}

fn recv(comm: &Comm, data: Data, source: i32, tag: i32, info: *mut dtl_recv_info_t) -> Result<()> {
    let mut done = completion_for(info);
    send_recv::recv(comm, data, source, tag, &mut done)?;
    end(comm, &mut done, source, info)
}

/// Writes receive information if the caller wants it.
#[inline]
pub(crate) fn put_info(out_info: *mut dtl_recv_info_t, done: &Completion) -> Result<()> {
    if !out_info.is_null() {
        hints::rarely();
        Out::new(out_info, "out_info")?.set(recv_info(done));
    }
    Ok(())
}

/// Sends one message and receives another at the same time, so that rings cannot deadlock.
///
/// @param sbuf      `scount` elements to send.
/// @param dest      A rank, or DTL_PROC_NULL (nothing is sent).
/// @param rbuf      Room for `rcount` elements.
/// @param source    A rank, DTL_ANY_SOURCE, or DTL_PROC_NULL (nothing is received).
/// @param dtype     Dtype of both messages.
/// @param out_info  Source, tag and size of the received message; may be NULL.
/// @return DTL_ERROR_TRUNCATED: the message is longer than the buffer. DTL_ERROR_RANK_FAILURE:
///         `dest` or `source` died or left. DTL_ERROR_INVALID_ARGUMENT: a tag, a count or `dtype`
///         is invalid, or the buffers overlap. DTL_ERROR_TIMEOUT, DTL_ERROR_CANCELED,
///         DTL_ERROR_INVALID_RANK, DTL_ERROR_OUT_OF_BOUNDS, DTL_ERROR_OUT_OF_MEMORY: see
///         dtl_comm_send and dtl_comm_recv. Equivalent: MPI_Sendrecv.
/// dtl:sbuf len(scount*dtype) opt(scount==0)
/// dtl:dest rank(null)
/// dtl:rbuf out len(rcount*dtype) opt(rcount==0)
/// dtl:source rank(any)
/// dtl:out_info opt
/// dtl:call blocks(comm)
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
    out_info: *mut dtl_recv_info_t,
) -> dtl_status_t {
    Entry("dtl_comm_sendrecv").hold(comm::hold, comm, |comm| {
        // SAFETY: the caller's contract.
        let sdata = unsafe { data(sbuf, scount, dtype, "sbuf") }?;
        // SAFETY: as above.
        let rdata = unsafe { data(rbuf, rcount, dtype, "rbuf") }?;
        let mut done = send_recv::sendrecv(comm, (sdata, dest, stag), (rdata, source, rtag))?;
        end(comm, &mut done, source, out_info)
    })
}

/// Sends the message in a buffer and receives another one into the same buffer, at the same time.
///
/// @param buf       `count` elements to send, replaced by at most as many received ones.
/// @param dest      A rank, or DTL_PROC_NULL (nothing is sent).
/// @param source    A rank, DTL_ANY_SOURCE, or DTL_PROC_NULL (nothing is received).
/// @param out_info  Source, tag and size of the received message; may be NULL.
/// @return DTL_ERROR_TRUNCATED: the message is longer than the buffer. DTL_ERROR_OUT_OF_MEMORY: no
///         memory for a copy of the message. DTL_ERROR_RANK_FAILURE, DTL_ERROR_TIMEOUT,
///         DTL_ERROR_CANCELED, DTL_ERROR_INVALID_RANK, DTL_ERROR_OUT_OF_BOUNDS,
///         DTL_ERROR_INVALID_ARGUMENT: see dtl_comm_sendrecv. Equivalent: MPI_Sendrecv_replace.
/// dtl:buf inout len(count*dtype) opt(count==0)
/// dtl:dest rank(null)
/// dtl:source rank(any)
/// dtl:out_info opt
/// dtl:call blocks(comm)
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
    out_info: *mut dtl_recv_info_t,
) -> dtl_status_t {
    Entry("dtl_comm_sendrecv_replace").hold(comm::hold, comm, |comm| {
        // SAFETY: the caller's contract.
        let data = unsafe { data(buf, count, dtype, "buf") }?;
        let mut done = send_recv::sendrecv_replace(comm, data, (dest, stag), (source, rtag))?;
        end(comm, &mut done, source, out_info)
    })
}

/// Blocks until there is a message that a receive with these arguments would take. The message is
/// not received.
///
/// @param source    A rank, DTL_ANY_SOURCE, or DTL_PROC_NULL (completes at once).
/// @param tag       0 to DTL_TAG_MAX, or DTL_ANY_TAG.
/// @param out_info  Source, tag and size of the message; may be NULL.
/// @return DTL_ERROR_TIMEOUT: no message came within the communicator's time limit.
///         DTL_ERROR_INVALID_ARGUMENT: `tag` is invalid. DTL_ERROR_RANK_FAILURE,
///         DTL_ERROR_CANCELED, DTL_ERROR_INVALID_RANK: see dtl_comm_recv.
/// Threads: any, but another thread may receive the message first: use dtl_comm_mprobe. Equivalent:
/// MPI_Probe.
/// dtl:source rank(any)
/// dtl:out_info opt
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_probe(
    comm: dtl_comm_t,
    source: i32,
    tag: i32,
    out_info: *mut dtl_recv_info_t,
) -> dtl_status_t {
    Entry("dtl_comm_probe")
        .hold(comm::hold, comm, |comm| put_info(out_info, &probe::probe(comm, source, tag)?))
}

/// Checks whether there is a message that a receive with these arguments would take. Does not
/// block; makes progress.
///
/// @param source     A rank, DTL_ANY_SOURCE, or DTL_PROC_NULL (completes at once).
/// @param tag        0 to DTL_TAG_MAX, or DTL_ANY_TAG.
/// @param out_found  1 or 0.
/// @param out_info   Source, tag and size of the message, written if there is one; may be NULL.
/// @return DTL_ERROR_INVALID_ARGUMENT: `tag` is invalid. DTL_ERROR_RANK_FAILURE,
///         DTL_ERROR_CANCELED, DTL_ERROR_INVALID_RANK: see dtl_comm_recv. Equivalent: MPI_Iprobe.
/// dtl:source rank(any)
/// dtl:out_found bool
/// dtl:out_info opt
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_iprobe(
    comm: dtl_comm_t,
    source: i32,
    tag: i32,
    out_found: *mut i32,
    out_info: *mut dtl_recv_info_t,
) -> dtl_status_t {
    Entry("dtl_comm_iprobe").call(|inside| {
        let out = Out::new(out_found, "out_found")?;
        let found = probe::iprobe(&*comm::pin(inside, comm)?, source, tag)?;
        if let Some(done) = &found {
            put_info(out_info, done)?;
        }
        out.set(i32::from(found.is_some()));
        Ok(())
    })
}

/// Blocks until there is a message, like dtl_comm_probe, and matches it: only dtl_comm_mrecv or
/// dtl_comm_imrecv of this message receives it.
///
/// @param source    A rank, DTL_ANY_SOURCE, or DTL_PROC_NULL (completes at once).
/// @param tag       0 to DTL_TAG_MAX, or DTL_ANY_TAG.
/// @param out       The message. The caller owns it until it is received; it ends with its
///                  communicator. The sender of a large or synchronous message waits until its
///                  receive starts. If the sender's time limit passes before that, or its request
///                  is cancelled or destroyed, the message is cancelled and its receive returns
///                  DTL_ERROR_CANCELED. MPI's own messages (see dtl_comm_desc_t) cannot be
///                  cancelled: the sender waits.
/// @param out_info  Source, tag and size of the message; may be NULL.
/// @return DTL_ERROR_TIMEOUT: no message came within the communicator's time limit.
///         DTL_ERROR_INVALID_ARGUMENT: `tag` is invalid. DTL_ERROR_LIMIT: too many matched messages
///         have not been received. DTL_ERROR_RANK_FAILURE, DTL_ERROR_CANCELED,
///         DTL_ERROR_INVALID_RANK: see dtl_comm_recv. Equivalent: MPI_Mprobe.
/// dtl:source rank(any)
/// dtl:out owned(dtl_comm_mrecv|dtl_comm_imrecv)
/// dtl:out_info opt
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_mprobe(
    comm: dtl_comm_t,
    source: i32,
    tag: i32,
    out: *mut dtl_message_t,
    out_info: *mut dtl_recv_info_t,
) -> dtl_status_t {
    Entry("dtl_comm_mprobe").wait(
        |inside| {
            // Before the call takes a message: afterwards a failure would lose the message.
            Out::optional(out_info, "out_info")?;
            Ok((Out::new(out, "out")?, comm::pin(inside, comm)?))
        },
        |(out, comm)| {
            let (message, done) = matched_message::mprobe(&comm, source, tag)?;
            put_info(out_info, &done)?;
            out.set(message);
            Ok(())
        },
    )
}

/// Matches a message like dtl_comm_mprobe. Does not block; makes progress.
///
/// @param source     A rank, DTL_ANY_SOURCE, or DTL_PROC_NULL (completes at once).
/// @param tag        0 to DTL_TAG_MAX, or DTL_ANY_TAG.
/// @param out_found  1 or 0.
/// @param out        The message, written if there is one; see dtl_comm_mprobe.
/// @param out_info   Source, tag and size of the message, written if there is one; may be NULL.
/// @return DTL_ERROR_INVALID_ARGUMENT: `tag` is invalid. DTL_ERROR_LIMIT: too many matched messages
///         have not been received. DTL_ERROR_RANK_FAILURE, DTL_ERROR_CANCELED,
///         DTL_ERROR_INVALID_RANK: see dtl_comm_recv. Equivalent: MPI_Improbe.
/// dtl:source rank(any)
/// dtl:out_found bool
/// dtl:out owned(dtl_comm_mrecv|dtl_comm_imrecv)
/// dtl:out_info opt
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_improbe(
    comm: dtl_comm_t,
    source: i32,
    tag: i32,
    out_found: *mut i32,
    out: *mut dtl_message_t,
    out_info: *mut dtl_recv_info_t,
) -> dtl_status_t {
    Entry("dtl_comm_improbe").call(|inside| {
        // Before the call takes a message: afterwards a failure would lose the message.
        Out::optional(out_info, "out_info")?;
        let (out_found, out) = (Out::new(out_found, "out_found")?, Out::new(out, "out")?);
        let found = matched_message::improbe(&comm::pin(inside, comm)?, source, tag)?;
        if let Some((message, done)) = &found {
            put_info(out_info, done)?;
            out.set(*message);
        }
        out_found.set(i32::from(found.is_some()));
        Ok(())
    })
}

/// Receives a message from dtl_comm_mprobe. Its handle is stale afterwards, even if the receive
/// fails. Exception: if `buf`, `count` or `dtype` is invalid, the message can still be received.
///
/// @param buf       Room for `count` elements; the message may be shorter.
/// @param out_info  Source, tag and size of the message, written even if it was truncated; may be
///                  NULL.
/// @return DTL_ERROR_INVALID_HANDLE: the message was received before. DTL_ERROR_CANCELED: the
///         sender cancelled the message (see dtl_comm_mprobe), and nothing was written; or the
///         communicator was destroyed. DTL_ERROR_TRUNCATED, DTL_ERROR_RANK_FAILURE,
///         DTL_ERROR_TIMEOUT, DTL_ERROR_OUT_OF_BOUNDS, DTL_ERROR_OUT_OF_MEMORY,
///         DTL_ERROR_INVALID_ARGUMENT: see dtl_comm_recv. Equivalent: MPI_Mrecv.
/// dtl:buf out len(count*dtype) opt(count==0)
/// dtl:out_info opt
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_mrecv(
    message: dtl_message_t,
    buf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    out_info: *mut dtl_recv_info_t,
) -> dtl_status_t {
    Entry("dtl_comm_mrecv").wait(
        |inside| {
            // SAFETY: the caller's contract.
            let data = unsafe { data(buf, count, dtype, "buf") }?;
            let message = matched_message::claim(inside, message, &data)?;
            Ok((data, message))
        },
        |(data, message)| {
            let (mut done, comm) = matched_message::mrecv(&message, data)?;
            let source = done.source;
            end(&comm, &mut done, source, out_info)
        },
    )
}

/// Starts to receive a message from dtl_comm_mprobe. Does not block. The message handle is stale
/// afterwards, as for dtl_comm_mrecv; `buf` must not be accessed until the request is complete.
///
/// @param buf  Room for `count` elements; the message may be shorter.
/// @param out  The request; complete it with dtl_request_wait or dtl_request_test.
/// @return DTL_ERROR_INVALID_HANDLE: the message was received before. DTL_ERROR_LIMIT: too many
///         requests in flight. DTL_ERROR_OUT_OF_BOUNDS, DTL_ERROR_OUT_OF_MEMORY,
///         DTL_ERROR_INVALID_ARGUMENT: see dtl_comm_recv. The request returns DTL_ERROR_TRUNCATED,
///         DTL_ERROR_CANCELED or DTL_ERROR_RANK_FAILURE, see dtl_comm_mrecv.
/// Equivalent: MPI_Imrecv.
/// dtl:buf out len(count*dtype) opt(count==0) until(request)
/// dtl:out owned(dtl_request_wait|dtl_request_test)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_imrecv(
    message: dtl_message_t,
    buf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    Entry("dtl_comm_imrecv").call(|inside| {
        let out = Out::new(out, "out")?;
        // SAFETY: the caller's contract: `buf` stays until the request is done.
        let data = unsafe { data(buf, count, dtype, "buf") }?;
        out.put(request::imrecv(inside, &*matched_message::claim(inside, message, &data)?, data))
    })
}
