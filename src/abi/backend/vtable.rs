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

/// Execution component. The rules of dtl_device_vtable_t apply.
///
/// There are five groups of slots, each complete or absent: streams (stream_create, stream_destroy,
/// stream_synchronize), events (event_create, event_destroy, event_record, event_query; they need
/// the streams), host execution (execute, parallel_for, max_parallelism), modules (module_compile
/// to kernel_launch; they need the streams), and priorities (stream_priorities,
/// stream_create_with_priority; they need the streams). For an absent group the library provides an
/// implementation on host threads; without the modules it returns DTL_ERROR_NOT_SUPPORTED, and
/// without the priorities all streams have priority 0. Slots whose text does not begin with a group
/// are optional.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_exec_vtable_t {
    /// sizeof(dtl_exec_vtable_t).
    pub struct_size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// (streams) Creates a stream on a device. *out_stream is the backend's pointer, not NULL.
    /// dtl: opt(stream_destroy==NULL&&stream_synchronize==NULL)
    pub stream_create: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            device: i32,
            flags: u64,
            out_stream: *mut *mut c_void,
        ) -> dtl_status_t,
    >,
    /// (streams) Destroys a stream from stream_create. Work that is queued in the stream must still
    /// run. The slot may wait for it, or return immediately and let it finish.
    /// dtl: opt(stream_create==NULL&&event_create==NULL&&module_compile==NULL)
    pub stream_destroy:
        Option<unsafe extern "C" fn(self_: *mut c_void, stream: *mut c_void) -> dtl_status_t>,
    /// (streams) Waits for all work in the stream. If the work failed, the slot returns the status
    /// of that failure: DTL_ERROR_BACKEND if it has no status of its own.
    /// dtl: opt(stream_create==NULL&&event_create==NULL&&module_compile==NULL)
    pub stream_synchronize:
        Option<unsafe extern "C" fn(self_: *mut c_void, stream: *mut c_void) -> dtl_status_t>,
    /// Writes 1 if all work in the stream is done, otherwise 0, without waiting. NULL: the library
    /// records and queries an event. If the event slots are NULL too, dtl_stream_query waits for
    /// the stream, and so does dtl_event_record.
    /// dtl: opt
    pub stream_query: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            stream: *mut c_void,
            out_done: *mut i32,
        ) -> dtl_status_t,
    >,
    /// Makes work that is queued from now on wait for the event. NULL: the calling thread waits for
    /// the event.
    /// dtl: opt
    pub stream_wait_event: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            stream: *mut c_void,
            event: *mut c_void,
        ) -> dtl_status_t,
    >,
    /// Queues a call of function(user) on a host thread, after the work queued before. NULL: the
    /// calling thread waits for the stream, then calls the function.
    /// dtl: opt
    pub stream_host_callback: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            stream: *mut c_void,
            function: dtl_task_fn_t,
            user: *mut c_void,
        ) -> dtl_status_t,
    >,
    /// (events) Creates an event. *out_event is the backend's pointer, not NULL.
    /// dtl: opt(event_destroy==NULL&&event_record==NULL&&event_query==NULL)
    pub event_create: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            flags: u64,
            out_event: *mut *mut c_void,
        ) -> dtl_status_t,
    >,
    /// (events) Destroys an event from event_create.
    /// dtl: opt(event_create==NULL)
    pub event_destroy:
        Option<unsafe extern "C" fn(self_: *mut c_void, event: *mut c_void) -> dtl_status_t>,
    /// (events) Records the event at the current end of the stream. It replaces an earlier record.
    /// dtl: opt(event_create==NULL)
    pub event_record: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            event: *mut c_void,
            stream: *mut c_void,
        ) -> dtl_status_t,
    >,
    /// (events) Writes 1 if the work before the record is done or the event was never recorded,
    /// otherwise 0.
    ///
    /// If that work failed, every query and every wait returns the failure as its status, not only
    /// the first one, until the event is recorded again. A status that a callback in the stream
    /// returned is not a failure of the work: the library reports it itself.
    /// dtl: opt(event_create==NULL)
    pub event_query: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            event: *mut c_void,
            out_done: *mut i32,
        ) -> dtl_status_t,
    >,
    /// Waits for the event. NULL: the library polls event_query.
    /// dtl: opt
    pub event_sync:
        Option<unsafe extern "C" fn(self_: *mut c_void, event: *mut c_void) -> dtl_status_t>,
    /// Writes the nanoseconds between two recorded, completed events. NULL:
    /// DTL_ERROR_NOT_SUPPORTED.
    /// dtl: opt
    pub event_elapsed: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            start: *mut c_void,
            stop: *mut c_void,
            out_ns: *mut u64,
        ) -> dtl_status_t,
    >,
    /// Queues a kernel that was created from a host function, which the backend calls once for each
    /// thread of the grid. NULL, and for functions that run a whole block: the library runs the
    /// grid on the host in a host callback of the stream, and waits for the stream if
    /// stream_host_callback is NULL too.
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
    /// (host execution) Runs function(user) and returns when it has run. The slot returns its
    /// status.
    /// dtl: opt(parallel_for==NULL&&max_parallelism==NULL)
    pub execute: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            function: dtl_task_fn_t,
            user: *mut c_void,
        ) -> dtl_status_t,
    >,
    /// (host execution) Runs the iterations begin to end-1 in chunks of at most `grain` (at least
    /// 1), and returns when all have run. The slot returns the first failing status of a chunk.
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
    /// (host execution) Writes the maximum number of iterations that run at the same time (at least
    /// 1).
    /// dtl: opt(execute==NULL)
    pub max_parallelism:
        Option<unsafe extern "C" fn(self_: *mut c_void, out_threads: *mut u32) -> dtl_status_t>,
    /// Writes the number of chunks into which a loop is best divided. NULL: max_parallelism.
    /// dtl: opt
    pub suggested_parallelism:
        Option<unsafe extern "C" fn(self_: *mut c_void, out_threads: *mut u32) -> dtl_status_t>,
    /// (modules) Compiles or loads source for a device. *out_module is the backend's pointer, not
    /// NULL.
    ///
    /// The source is valid during the call. Its size_bytes is never 0, and a NUL follows the bytes.
    /// Language 0 is the default language of the backend; its sources may include dtl_kernel.h. The
    /// backend must make that header available to its compiler: source->files does not contain it,
    /// and the options do not contain its folder. Its text is that of dtl_kernel_header (plugins:
    /// dtl_host_api_t.kernel_header). The macros of the backend's dialect can be prepended to it.
    ///
    /// If the backend does not support the language, it returns DTL_ERROR_NOT_SUPPORTED with a text
    /// that names the supported ones. For an error in the source it returns
    /// DTL_ERROR_COMPILE_FAILED. `log(log_user, ...)`, never NULL, receives the whole log of the
    /// compiler, even after a success. Several threads may compile at once.
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
    /// (modules) Destroys a module from module_compile. All its kernels have been destroyed.
    /// dtl: opt(module_compile==NULL)
    pub module_destroy:
        Option<unsafe extern "C" fn(self_: *mut c_void, module: *mut c_void) -> dtl_status_t>,
    /// (modules) Finds a kernel in a module. *out_kernel is the backend's pointer, not NULL; each
    /// one is destroyed once. If there is no such kernel, the status is DTL_ERROR_NOT_FOUND.
    /// `signature` is that of dtl_kernel_get; the library has checked its letters. If it is NULL
    /// and the module does not describe the arguments, the slot must return
    /// DTL_ERROR_INVALID_ARGUMENT, because the arguments of a launch could not be checked.
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
    /// (modules) Destroys a kernel from kernel_get. Launches that are queued must still run.
    /// dtl: opt(module_compile==NULL)
    pub kernel_destroy:
        Option<unsafe extern "C" fn(self_: *mut c_void, kernel: *mut c_void) -> dtl_status_t>,
    /// (modules) Queues a kernel from kernel_get. args[i] points to sizes[i] bytes, valid during
    /// the call. If the kernel has a signature, the number and sizes of the arguments match it.
    ///
    /// The library has checked grid and block against the limits of dtl_device_info (0 = no limit),
    /// and that the module was compiled for the device of the stream. The slot must check the rest:
    /// launch->shared_bytes against the limit of the device (DTL_ERROR_INVALID_ARGUMENT, or
    /// DTL_ERROR_NOT_SUPPORTED if the device has no shared memory), and the arguments of a kernel
    /// without a signature.
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
    /// (priorities) Writes the range of stream priorities of a device, as
    /// dtl_stream_priority_range: *out_greatest <= 0 <= *out_least, and lower numbers are higher
    /// priorities. The slots for priorities are both present or both NULL; they need the streams.
    /// NULL: the device has one priority. Corresponds to cuCtxGetStreamPriorityRange.
    /// dtl: opt
    /// cbindgen:appended
    pub stream_priorities: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            device: i32,
            out_least: *mut i32,
            out_greatest: *mut i32,
        ) -> dtl_status_t,
    >,
    /// (priorities) Creates a stream as stream_create does, with a priority other than 0 from the
    /// range of the device.
    /// dtl: opt
    pub stream_create_with_priority: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            device: i32,
            flags: u64,
            priority: i32,
            out_stream: *mut *mut c_void,
        ) -> dtl_status_t,
    >,
}

/// Flag of dtl_backend_vtable_t: launches and loops of this backend compute nothing.
pub const DTL_BACKEND_NO_COMPUTE: u64 = 1;

/// Table of a backend: one to five components; those that it does not have are NULL. The tables are
/// copied at registration. `self` and the data behind it must live until `destroy` is called.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_backend_vtable_t {
    /// sizeof(dtl_backend_vtable_t).
    pub struct_size: u32,
    /// DTL_ABI_VERSION of the header it was compiled with.
    pub abi_version: u32,
    /// Priority in the automatic choice; 0 = 40, INT32_MIN = never chosen.
    pub auto_priority: i32,
    /// Must be 0.
    pub reserved: u32,
    /// DTL_BACKEND_NO_COMPUTE or 0.
    /// dtl: flags(DTL_BACKEND_NO_COMPUTE)
    pub flags: u64,
    /// Checks whether the backend can run here: *out_yes = 0 or 1. For 0 it writes the reason to
    /// `why` (cap bytes). It must not fail on a machine without the hardware: a failure counts as
    /// 0, with the failure as the reason. NULL: always available.
    /// dtl: opt
    pub is_available: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            out_yes: *mut i32,
            why: *mut c_char,
            cap: u64,
        ) -> dtl_status_t,
    >,
    /// Checks whether the backend has a feature: *out_yes = 0 or 1. It is called only for names
    /// that dtl_backend_supports does not resolve itself. NULL: the backend has no other features.
    /// dtl: opt
    pub supports: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            feature: *const c_char,
            out_yes: *mut i32,
        ) -> dtl_status_t,
    >,
    /// Called once, after the last use, when the backend is unregistered or replaced, or the
    /// library is finalized. NULL: there is nothing to do.
    /// dtl: opt
    pub destroy: Option<unsafe extern "C" fn(self_: *mut c_void)>,
    /// Devices; NULL = none.
    /// dtl: opt
    pub device: *const dtl_device_vtable_t,
    /// Memory; NULL = none.
    /// dtl: opt
    pub memory: *const dtl_memory_vtable_t,
    /// Transfers; NULL = none.
    /// dtl: opt
    pub transfer: *const dtl_transfer_vtable_t,
    /// Execution; NULL = none.
    /// dtl: opt
    pub exec: *const dtl_exec_vtable_t,
    /// Communication; NULL = none.
    /// dtl: opt
    pub comm: *const dtl_comm_vtable_t,
}
