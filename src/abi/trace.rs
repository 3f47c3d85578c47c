//! Tracing: events that the library passes to other tools.
//! dtl: section(ffi/clock)

use super::handle::dtl_comm_t;
use super::status::dtl_status_t;
use super::word::{dtl_dtype_t, dtl_reduce_op_t};
use std::ffi::{c_char, c_void};

/// Kind of trace event: a call of a dtl_ function. Begin and end are in one thread and properly
/// nested. The category is the noun in the name of the function.
pub const DTL_TRACE_CALL: i32 = 1;
/// Kind of trace event: a part of a call, or work of one of the library's threads. Begin and end
/// are in one thread and properly nested.
pub const DTL_TRACE_SPAN: i32 = 2;
/// Kind of trace event: an operation of a communicator, from its start until the library observes
/// its end. Operations overlap, and begin and end may be in different calls and threads. The
/// category is "operation".
pub const DTL_TRACE_OPERATION: i32 = 3;
/// Kind of trace event: work of a device, which a plugin has recorded (dtl_host_api_t.trace_span).
/// When the work has ended, `begin` and `end` are called one after the other, in the thread that
/// recorded it. Their time_ns are the times at which the work began and ended.
pub const DTL_TRACE_DEVICE: i32 = 4;
/// Kind of trace event: the value of a counter, which a plugin has recorded
/// (dtl_host_api_t.trace_counter). Only `begin` is called. The category is "counter".
pub const DTL_TRACE_COUNTER: i32 = 5;

/// Flag: dtl_trace_event_t.bytes is set.
pub const DTL_TRACE_HAS_BYTES: u32 = 1;
/// Flag: dtl_trace_event_t.peer is set, to the other rank or the root of a collective.
pub const DTL_TRACE_HAS_PEER: u32 = 2;
/// Flag: dtl_trace_event_t.tag is set, to the tag of a message or the number of a collective.
pub const DTL_TRACE_HAS_TAG: u32 = 4;
/// Flag: dtl_trace_event_t.comm is set.
pub const DTL_TRACE_HAS_COMM: u32 = 8;
/// Flag: dtl_trace_event_t.dtype is set.
pub const DTL_TRACE_HAS_DTYPE: u32 = 16;
/// Flag: dtl_trace_event_t.op is set.
pub const DTL_TRACE_HAS_OP: u32 = 32;
/// Flag: dtl_trace_event_t.what is set, to the name of the backend, kernel, file or similar object,
/// cut to 31 bytes.
pub const DTL_TRACE_HAS_WHAT: u32 = 64;

/// Begin or end of an event, as passed to tools. The struct grows at its end: use no more than
/// struct_size bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_trace_event_t {
    /// Number of bytes that the library has filled in.
    pub struct_size: u32,
    /// DTL_TRACE_CALL, DTL_TRACE_SPAN, DTL_TRACE_OPERATION, DTL_TRACE_DEVICE or DTL_TRACE_COUNTER.
    /// Ignore other values.
    /// dtl: values(DTL_TRACE_)
    pub kind: i32,
    /// Number that pairs a begin with its end, not 0. No other event in progress in this process
    /// has it.
    pub id: u64,
    /// Time in nanoseconds of the node's monotonic clock (CLOCK_MONOTONIC).
    pub time_ns: u64,
    /// Category, for example "comm", "mem" or "operation". Valid until the process ends.
    /// dtl: lives(forever)
    pub category: *const c_char,
    /// Name, for example "dtl_comm_send" or "allreduce". Valid until the process ends.
    /// dtl: lives(forever)
    pub name: *const c_char,
    /// Flags DTL_TRACE_HAS_... of the fields below that are set. For a call, most are set at its
    /// end only.
    /// dtl: flags(DTL_TRACE_HAS_)
    pub has: u32,
    /// Status that the call returned, at an end; otherwise DTL_SUCCESS.
    pub status: dtl_status_t,
    /// Number of bytes moved or allocated.
    pub bytes: u64,
    /// Rank of the peer, or root.
    /// dtl: rank(any)
    pub peer: i32,
    /// Tag of a message, or number of a collective.
    pub tag: i32,
    /// Communicator.
    /// dtl: borrowed
    pub comm: dtl_comm_t,
    /// Type of the elements.
    pub dtype: dtl_dtype_t,
    /// Reduction operation.
    pub op: dtl_reduce_op_t,
    /// Name of the object, "" if there is none. Valid during the call only.
    /// dtl: lives(call)
    pub what: *const c_char,
    /// Group of the track of work of a device or of a counter; otherwise "". Valid until the
    /// process ends. This field and the next two exist only if struct_size covers them.
    /// cbindgen:appended
    /// dtl: lives(forever)
    pub group: *const c_char,
    /// Name of the track of work of a device or of a counter; otherwise "". Valid until the process
    /// ends.
    /// dtl: lives(forever)
    pub track: *const c_char,
    /// Value of a counter, otherwise 0.
    pub value: f64,
}

/// Receives a begin or an end. It runs in the thread in which the event begins or ends (for
/// operations: the thread that starts the operation or observes its end), possibly in several
/// threads at once. Short internal locks of the library may be held. So it must return promptly,
/// must not wait for another thread that calls the library, must not throw, and may call only those
/// dtl_ functions that work in every state. Its duration counts as part of the call.
/// dtl:user opaque
pub type dtl_trace_fn_t = Option<extern "C" fn(event: *const dtl_trace_event_t, user: *mut c_void)>;

/// Functions for dtl_trace_set_callbacks. Start from DTL_TRACE_CALLBACKS_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_trace_callbacks_t {
    /// sizeof(dtl_trace_callbacks_t), set by DTL_TRACE_CALLBACKS_INIT.
    pub struct_size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Passed to both functions.
    /// dtl: opaque until(last_use)
    pub user: *mut c_void,
    /// Called when an event begins; may be NULL.
    /// dtl: opt until(last_use)
    pub begin: dtl_trace_fn_t,
    /// Called when an event ends; may be NULL.
    /// dtl: opt until(last_use)
    pub end: dtl_trace_fn_t,
}
