//! Backend tables: execution, the table of tables, registration.
//! dtl: header(dtl_backend.h)

use crate::abi::devices::exec::{
    dtl_kernel_fn_t, dtl_launch_t, dtl_range_fn_t, dtl_source_t, dtl_text_fn_t,
};
use crate::abi::runtime::dtl_task_fn_t;
use crate::abi::status::dtl_status_t;
use std::ffi::{c_char, c_void};

pub use super::vtable_comm::*;
pub use super::vtable_memory::*;

// Shorthand for the slots' types would hide them from C readers, so they are spelled out.

/// The exec component. Rules as for dtl_device_vtable_t. Four groups, each whole or absent: streams
/// (the stream_ slots), events (the event_ slots; they need the streams), host execution (execute,
/// parallel_for, max_parallelism), and modules (module_compile to kernel_launch; they need the
/// streams). Absent: the library's own, on host threads; modules: DTL_ERROR_NOT_SUPPORTED.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_exec_vtable_t {
    /// sizeof(dtl_exec_vtable_t).
    pub struct_size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// (streams) Creates a stream on a device; *out_stream is the backend's own pointer, not NULL.
    /// dtl: opt(stream_destroy==NULL&&stream_synchronize==NULL)
    pub stream_create: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            device: i32,
            flags: u64,
            out_stream: *mut *mut c_void,
        ) -> dtl_status_t,
    >,
    /// (streams) Destroys a stream that stream_create made. Work that is queued in the stream must
    /// still run: wait for it, or return at once and let it finish.
    /// dtl: opt(stream_create==NULL&&event_create==NULL&&module_compile==NULL)
    pub stream_destroy:
        Option<unsafe extern "C" fn(self_: *mut c_void, stream: *mut c_void) -> dtl_status_t>,
    /// (streams) Waits for all work in the stream; a failure of that work is the status.
    /// dtl: opt(stream_create==NULL&&event_create==NULL&&module_compile==NULL)
    pub stream_synchronize:
        Option<unsafe extern "C" fn(self_: *mut c_void, stream: *mut c_void) -> dtl_status_t>,
    /// Whether all work is done, without waiting. NULL: an event is recorded and queried. If the
    /// event slots are missing as well, dtl_stream_query waits for the stream, as dtl_event_record
    /// does.
    /// dtl: opt
    pub stream_query: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            stream: *mut c_void,
            out_done: *mut i32,
        ) -> dtl_status_t,
    >,
    /// Work queued from now on waits for the event. NULL: the caller waits for the event.
    /// dtl: opt
    pub stream_wait_event: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            stream: *mut c_void,
            event: *mut c_void,
        ) -> dtl_status_t,
    >,
    /// Calls fn(user) on a host thread once the work before is done. NULL: the caller waits, then
    /// calls.
    /// dtl: opt
    pub stream_host_callback: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            stream: *mut c_void,
            function: dtl_task_fn_t,
            user: *mut c_void,
        ) -> dtl_status_t,
    >,
    /// (events) Creates an event; *out_event is the backend's own pointer, not NULL.
    /// dtl: opt(event_destroy==NULL&&event_record==NULL&&event_query==NULL)
    pub event_create: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            flags: u64,
            out_event: *mut *mut c_void,
        ) -> dtl_status_t,
    >,
    /// (events) Destroys an event that event_create made.
    /// dtl: opt(event_create==NULL)
    pub event_destroy:
        Option<unsafe extern "C" fn(self_: *mut c_void, event: *mut c_void) -> dtl_status_t>,
    /// (events) Marks the present end of the stream; replaces an earlier record.
    /// dtl: opt(event_create==NULL)
    pub event_record: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            event: *mut c_void,
            stream: *mut c_void,
        ) -> dtl_status_t,
    >,
    /// (events) Whether the work before the record is done. Never recorded = done. If that work
    /// failed, each query and wait returns that failure as its status, until the event is recorded
    /// again. A status that a callback in the stream returned is not a failure of the work: the
    /// library reports it itself.
    /// dtl: opt(event_create==NULL)
    pub event_query: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            event: *mut c_void,
            out_done: *mut i32,
        ) -> dtl_status_t,
    >,
    /// Waits for the event. NULL: event_query is polled.
    /// dtl: opt
    pub event_sync:
        Option<unsafe extern "C" fn(self_: *mut c_void, event: *mut c_void) -> dtl_status_t>,
    /// Nanoseconds between two recorded, completed events. NULL: NOT_SUPPORTED.
    /// dtl: opt
    pub event_elapsed: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            start: *mut c_void,
            stop: *mut c_void,
            out_ns: *mut u64,
        ) -> dtl_status_t,
    >,
    /// Queues a kernel made from a function. NULL: it is run over the grid on the host, in the
    /// stream's order (a host callback).
    /// dtl: opt
    pub launch: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            stream: *mut c_void,
            launch: *const dtl_launch_t,
            kernel: dtl_kernel_fn_t,
            user: *mut c_void,
            args: *const *const c_void,
            sizes: *const u64,
            count: u64,
        ) -> dtl_status_t,
    >,
    /// (host execution) Runs fn(user) and returns when it has run; its status is the result.
    /// dtl: opt(parallel_for==NULL&&max_parallelism==NULL)
    pub execute: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            function: dtl_task_fn_t,
            user: *mut c_void,
        ) -> dtl_status_t,
    >,
    /// (host execution) Runs begin ... end-1 in pieces of at most `grain` (at least 1) and returns
    /// when all have run; the first failing status of a piece is the result.
    /// dtl: opt(execute==NULL)
    pub parallel_for: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            begin: u64,
            end: u64,
            grain: u64,
            body: dtl_range_fn_t,
            user: *mut c_void,
        ) -> dtl_status_t,
    >,
    /// (host execution) Most iterations that ever run at the same time (at least 1).
    /// dtl: opt(execute==NULL)
    pub max_parallelism:
        Option<unsafe extern "C" fn(self_: *mut c_void, out_threads: *mut u32) -> dtl_status_t>,
    /// Into how many pieces a loop is best cut. NULL: max_parallelism.
    /// dtl: opt
    pub suggested_parallelism:
        Option<unsafe extern "C" fn(self_: *mut c_void, out_threads: *mut u32) -> dtl_status_t>,
    /// (modules) Compiles or loads source for a device; *out_module is the backend's own pointer,
    /// not NULL. The source is valid during the call; its size_bytes is never 0 and a NUL follows
    /// the bytes. Language 0 is the backend's own; its sources may include dtl_kernel.h. The
    /// backend must make that header available (its own copy, or the folder in which it is
    /// installed): source->files does not contain it, nor do the options contain its folder. A
    /// language that the backend does not take: DTL_ERROR_NOT_SUPPORTED with a text that names
    /// those it takes. An error in the source: DTL_ERROR_COMPILE_FAILED. `log(log_user, ...)`, not
    /// NULL, takes the compiler's whole log, also that of a success. Several threads compile at
    /// once.
    /// cbindgen:appended
    /// dtl: opt(module_destroy==NULL&&kernel_get==NULL&&kernel_destroy==NULL&&kernel_launch==NULL)
    pub module_compile: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            device: i32,
            source: *const dtl_source_t,
            log: dtl_text_fn_t,
            log_user: *mut c_void,
            out_module: *mut *mut c_void,
        ) -> dtl_status_t,
    >,
    /// (modules) Destroys a module that module_compile gave; its kernels are destroyed before.
    /// dtl: opt(module_compile==NULL)
    pub module_destroy:
        Option<unsafe extern "C" fn(self_: *mut c_void, module: *mut c_void) -> dtl_status_t>,
    /// (modules) Finds a kernel; *out_kernel is the backend's own pointer, not NULL, and each that
    /// was given is destroyed once. No such kernel: DTL_ERROR_NOT_FOUND. `signature` as in
    /// dtl_kernel_get, checked; NULL if there is none.
    /// dtl: opt(module_compile==NULL)
    pub kernel_get: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            module: *mut c_void,
            name: *const c_char,
            signature: *const c_char,
            out_kernel: *mut *mut c_void,
        ) -> dtl_status_t,
    >,
    /// (modules) Destroys a kernel that kernel_get gave. Launches that are queued still run.
    /// dtl: opt(module_compile==NULL)
    pub kernel_destroy:
        Option<unsafe extern "C" fn(self_: *mut c_void, kernel: *mut c_void) -> dtl_status_t>,
    /// (modules) Queues a kernel that kernel_get gave; args[i] points to sizes[i] bytes, valid
    /// during the call. If the kernel has a signature, number and sizes match it.
    /// dtl: opt(module_compile==NULL)
    pub kernel_launch: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            stream: *mut c_void,
            kernel: *mut c_void,
            launch: *const dtl_launch_t,
            args: *const *const c_void,
            sizes: *const u64,
            count: u64,
        ) -> dtl_status_t,
    >,
}

/// Flag of dtl_backend_vtable_t: launches and loops of this backend compute nothing.
pub const DTL_BACKEND_NO_COMPUTE: u64 = 1;

/// A backend: up to five components, each NULL where it has none. The tables are copied at
/// registration; `self` and what it points to must live until `destroy`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_backend_vtable_t {
    /// sizeof(dtl_backend_vtable_t).
    pub struct_size: u32,
    /// DTL_ABI_VERSION of the header it was compiled with.
    pub abi_version: u32,
    /// Rank in the automatic choice; 0 = 40, INT32_MIN = never chosen.
    pub auto_priority: i32,
    /// Must be 0.
    pub reserved: u32,
    /// DTL_BACKEND_NO_COMPUTE or 0.
    /// dtl: flags(DTL_BACKEND_NO_COMPUTE)
    pub flags: u64,
    /// Whether it can run here: *out_yes = 0 or 1; if 0, the reason is written to `why` (cap
    /// bytes). Must not fail on a machine without the hardware: a failure counts as 0, with the
    /// failure as the reason. NULL: always available.
    /// dtl: opt
    pub is_available: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            out_yes: *mut i32,
            why: *mut c_char,
            cap: u64,
        ) -> dtl_status_t,
    >,
    /// Whether it has a feature of this name. NULL: the components are its features.
    /// dtl: opt
    pub supports: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            feature: *const c_char,
            out_yes: *mut i32,
        ) -> dtl_status_t,
    >,
    /// Called once, after the last use, when the backend is unregistered, replaced or the library
    /// is finalized. NULL: nothing to do.
    /// dtl: opt
    pub destroy: Option<unsafe extern "C" fn(self_: *mut c_void)>,
    /// Devices, or NULL.
    /// dtl: opt
    pub device: *const dtl_device_vtable_t,
    /// Memory, or NULL.
    /// dtl: opt
    pub memory: *const dtl_memory_vtable_t,
    /// Transfers, or NULL.
    /// dtl: opt
    pub transfer: *const dtl_transfer_vtable_t,
    /// Execution, or NULL.
    /// dtl: opt
    pub exec: *const dtl_exec_vtable_t,
    /// Communication, or NULL.
    /// dtl: opt
    pub comm: *const dtl_comm_vtable_t,
}
