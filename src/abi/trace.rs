//! Tracing: events that the library passes to other tools.
//! dtl: section(ffi/clock)

use super::handle::dtl_comm_t;
use super::status::dtl_status_t;
use super::word::{dtl_dtype_t, dtl_reduce_op_t};
use std::ffi::{c_char, c_void};

/// A call of a dtl_ function: begin and end in one thread, properly nested. Its category is the
/// noun in its name.
pub const DTL_TRACE_CALL: i32 = 1;
/// A part of a call, or work of one of the library's own threads: as a call.
pub const DTL_TRACE_SPAN: i32 = 2;
/// An operation of a communicator, from its start until the library sees its end: several at once,
/// and the end may be in another call and thread than the begin. Its category is "operation".
pub const DTL_TRACE_OPERATION: i32 = 3;

/// dtl_trace_event_t.bytes is known.
pub const DTL_TRACE_HAS_BYTES: u32 = 1;
/// dtl_trace_event_t.peer is known: the other rank, or a collective's root.
pub const DTL_TRACE_HAS_PEER: u32 = 2;
/// dtl_trace_event_t.tag is known: a message's tag, or a collective's number.
pub const DTL_TRACE_HAS_TAG: u32 = 4;
/// dtl_trace_event_t.comm is known.
pub const DTL_TRACE_HAS_COMM: u32 = 8;
/// dtl_trace_event_t.dtype is known.
pub const DTL_TRACE_HAS_DTYPE: u32 = 16;
/// dtl_trace_event_t.op is known.
pub const DTL_TRACE_HAS_OP: u32 = 32;
/// dtl_trace_event_t.what is known: the backend, kernel, file ... that it is about, at most 31
/// bytes of it.
pub const DTL_TRACE_HAS_WHAT: u32 = 64;

/// A begin or an end, as passed to tools. Grows at its end: use no more than struct_size bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_trace_event_t {
    /// What the library has filled in.
    pub struct_size: u32,
    /// DTL_TRACE_CALL, _SPAN or _OPERATION; ignore others.
    /// dtl: values(DTL_TRACE_CALL|DTL_TRACE_SPAN|DTL_TRACE_OPERATION)
    pub kind: i32,
    /// Pairs a begin with its end: both have this number, which nothing else in this process has
    /// that has begun and not ended. Not 0.
    pub id: u64,
    /// When, in nanoseconds of the node's monotonic clock (CLOCK_MONOTONIC).
    pub time_ns: u64,
    /// "comm", "mem", "operation" ... Lives for ever.
    /// dtl: lives(forever)
    pub category: *const c_char,
    /// "dtl_comm_send", "allreduce" ... Lives for ever.
    /// dtl: lives(forever)
    pub name: *const c_char,
    /// Which of the fields below are set: DTL_TRACE_HAS_... For a call most are known at its
    /// end only.
    /// dtl: flags(DTL_TRACE_HAS_)
    pub has: u32,
    /// At an end: how the call returned. Else DTL_SUCCESS.
    pub status: dtl_status_t,
    /// Bytes that are moved or taken.
    pub bytes: u64,
    /// Rank.
    /// dtl: rank(any)
    pub peer: i32,
    /// Tag or number.
    pub tag: i32,
    /// Communicator.
    /// dtl: borrowed
    pub comm: dtl_comm_t,
    /// Type of the elements.
    pub dtype: dtl_dtype_t,
    /// Reduction.
    pub op: dtl_reduce_op_t,
    /// Text, "" if there is none. Valid during the call only.
    /// dtl: lives(call)
    pub what: *const c_char,
}

/// Receives a begin or an end. Thread: the one whose begin or end it is (of operations: whichever
/// starts it or sees its end), several at once. Locks held: the library's own short ones may be, so
/// it must return soon, not wait for another thread that calls the library, not throw, and call no
/// dtl_ function but those that work in every state. Its time counts as the call's.
/// dtl:user opaque
pub type dtl_trace_fn_t = Option<extern "C" fn(event: *const dtl_trace_event_t, user: *mut c_void)>;

/// What dtl_trace_set_callbacks takes. Start from DTL_TRACE_CALLBACKS_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_trace_callbacks_t {
    /// sizeof(dtl_trace_callbacks_t), set by DTL_TRACE_CALLBACKS_INIT.
    pub struct_size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Passed to both.
    /// dtl: opaque until(last_use)
    pub user: *mut c_void,
    /// Something begins; may be NULL.
    /// dtl: opt until(last_use)
    pub begin: dtl_trace_fn_t,
    /// It has ended; may be NULL.
    /// dtl: opt until(last_use)
    pub end: dtl_trace_fn_t,
}
