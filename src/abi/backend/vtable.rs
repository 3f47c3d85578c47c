//! The tables of function pointers that a backend fills in, and what their slots take.

use crate::abi::devices::device::{dtl_device_info_t, dtl_mem_info_t, dtl_mem_kind_info_t};
use crate::abi::devices::exec::{
    dtl_kernel_fn_t, dtl_launch_t, dtl_range_fn_t, dtl_source_t, dtl_text_fn_t,
};
use crate::abi::runtime::dtl_task_fn_t;
use crate::abi::status::dtl_status_t;
use crate::abi::word::dtl_enum_word_t;
use std::ffi::{c_char, c_void};

pub use super::vtable_comm::*;

// Shorthand for the slots' types would hide them from C readers, so they are spelled out.

/// The device component. Slots marked (required) must be there. All slots: any thread, no locks
/// held, may block, must not call dtl_ functions on this backend, must not throw. `self` is the
/// pointer given to `dtl_backend_register`. Outputs are read only after DTL_SUCCESS. Boolean
/// outputs must be 0 or 1; any other value, a device that does not exist and a number that is not a
/// status make the call fail with DTL_ERROR_NATIVE_BACKEND.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_device_vtable_t {
    /// sizeof(dtl_device_vtable_t).
    pub struct_size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// (required) Number of devices, 0 or more.
    pub count:
        Option<unsafe extern "C" fn(self_: *mut c_void, out_count: *mut i32) -> dtl_status_t>,
    /// (required) Makes a device the calling thread's current one (as cudaSetDevice).
    pub set: Option<unsafe extern "C" fn(self_: *mut c_void, device: i32) -> dtl_status_t>,
    /// (required) Returns the calling thread's current device: the one that the last `set` in this
    /// thread made current, or, without a `set`, 0 or the driver's. The library calls it only in
    /// threads in which dtl_backend_set_device has not chosen a device of this backend; otherwise
    /// it uses that choice.
    pub get: Option<unsafe extern "C" fn(self_: *mut c_void, out_device: *mut i32) -> dtl_status_t>,
    /// Describes a device. `out_info` is zeroed, struct_size set. NULL: name and count only.
    pub info: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            device: i32,
            out_info: *mut dtl_device_info_t,
        ) -> dtl_status_t,
    >,
    /// Free and total bytes of a device; 0 = unknown. NULL: the memory table's, else NOT_SUPPORTED.
    pub memory_info: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            device: i32,
            out_free: *mut u64,
            out_total: *mut u64,
        ) -> dtl_status_t,
    >,
    /// Waits for all work on a device. NULL: the streams made through the library are waited for.
    pub synchronize: Option<unsafe extern "C" fn(self_: *mut c_void, device: i32) -> dtl_status_t>,
    /// DLPack's device type and id (as StepMesh's GetDevice). NULL: NOT_SUPPORTED.
    pub dlpack: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            device: i32,
            out_type: *mut i32,
            out_id: *mut i32,
        ) -> dtl_status_t,
    >,
}

/// The memory component. Rules as for dtl_device_vtable_t. Works on the calling thread's current
/// device.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_memory_vtable_t {
    /// sizeof(dtl_memory_vtable_t).
    pub struct_size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// (required) Allocates size_bytes (at least 1) aligned to `alignment` (a power of two, at
    /// least 1). If the program passes 0 to dtl_mem_alloc, `alignment` is the one that kind_info
    /// declares, or 1 if it declares none. Unknown kind: DTL_ERROR_NOT_SUPPORTED. No memory:
    /// DTL_ERROR_OUT_OF_MEMORY.
    pub alloc: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            size_bytes: u64,
            alignment: u64,
            kind: dtl_enum_word_t,
            out_ptr: *mut *mut c_void,
        ) -> dtl_status_t,
    >,
    /// (required) Frees what alloc gave; size, alignment and kind are those of the alloc.
    pub free: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            ptr: *mut c_void,
            size_bytes: u64,
            alignment: u64,
            kind: dtl_enum_word_t,
        ) -> dtl_status_t,
    >,
    /// Describes a kind. `out_info` is zeroed, struct_size set. alignment: a power of two up to
    /// 2^30, or 0 = none declared, which dtl_mem_kind_info reports as 1; any other value makes
    /// dtl_mem_kind_info and dtl_mem_alloc with alignment 0 fail with DTL_ERROR_NATIVE_BACKEND.
    /// Unknown kind: NOT_SUPPORTED. NULL: HOST is taken to be host memory, DEVICE memory that only
    /// this backend can touch.
    pub kind_info: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            kind: dtl_enum_word_t,
            out_info: *mut dtl_mem_kind_info_t,
        ) -> dtl_status_t,
    >,
    /// Free and total bytes; 0 = unknown. Asked where the device table does not tell, or for device
    /// 0 of a backend without that table. NULL: NOT_SUPPORTED.
    pub memory_info: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            out_free: *mut u64,
            out_total: *mut u64,
        ) -> dtl_status_t,
    >,
    /// Memory of other processes: export_handle, import_handle and close_handle come all together
    /// or not at all (then: NOT_SUPPORTED). Writes what import_handle needs to reach an allocation
    /// of alloc (size, alignment and kind are those of the alloc) from another process of this
    /// node: DTL_MEM_HANDLE_ROOM bytes at out_bytes, aligned to 8, zeroed before. The library adds
    /// kind, size, alignment, node and the backend's name, and a sum over all. A kind that cannot
    /// be exported: NOT_SUPPORTED with a text; a kind that can has DTL_MEMORY_EXPORTABLE. As
    /// cudaIpcGetMemHandle.
    /// cbindgen:appended
    pub export_handle: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            ptr: *mut c_void,
            size_bytes: u64,
            alignment: u64,
            kind: dtl_enum_word_t,
            out_bytes: *mut c_void,
        ) -> dtl_status_t,
    >,
    /// Makes an allocation of another process one of this one, on the current device. Each call
    /// gives an address of its own; if it is one that was given before and not closed, it is closed
    /// once and the caller gets DTL_ERROR_ALREADY_EXISTS. The bytes (aligned to 8) are what
    /// export_handle of a backend of this name wrote on this node, with the size, alignment and
    /// kind of the export. The exporter may have freed it or ended since: then INVALID_HANDLE. A
    /// backend that cannot import what this very process exported: NOT_SUPPORTED. As
    /// cudaIpcOpenMemHandle.
    pub import_handle: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            bytes: *const c_void,
            size_bytes: u64,
            alignment: u64,
            kind: dtl_enum_word_t,
            out_ptr: *mut *mut c_void,
        ) -> dtl_status_t,
    >,
    /// Lets go of what import_handle gave; the memory stays for those who still have it. As
    /// cudaIpcCloseMemHandle.
    pub close_handle: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            ptr: *mut c_void,
            size_bytes: u64,
            alignment: u64,
            kind: dtl_enum_word_t,
        ) -> dtl_status_t,
    >,
    /// alloc and free in the order of one of the backend's streams, on its device; both or none.
    /// The memory may be used by work that is queued to the stream later. A kind that goes only at
    /// once is taken at once. NULL: alloc at once; free when the stream's work is done. As
    /// cudaMallocAsync.
    /// cbindgen:appended
    pub alloc_async: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            stream: *mut c_void,
            size_bytes: u64,
            alignment: u64,
            kind: dtl_enum_word_t,
            out_ptr: *mut *mut c_void,
        ) -> dtl_status_t,
    >,
    /// Frees what alloc or alloc_async gave, behind the work that is in the stream. As
    /// cudaFreeAsync.
    pub free_async: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            stream: *mut c_void,
            ptr: *mut c_void,
            size_bytes: u64,
            alignment: u64,
            kind: dtl_enum_word_t,
        ) -> dtl_status_t,
    >,
    /// Makes host memory of the program's (at least 1 byte) memory of kind DTL_MEMORY_PINNED of
    /// this backend, which kind_info then describes; both or none. Ranges do not overlap. NULL:
    /// NOT_SUPPORTED. As cudaHostRegister.
    pub register_host: Option<
        unsafe extern "C" fn(self_: *mut c_void, ptr: *mut c_void, size_bytes: u64) -> dtl_status_t,
    >,
    /// Takes that back, with the same bytes. As cudaHostUnregister.
    pub unregister_host: Option<
        unsafe extern "C" fn(self_: *mut c_void, ptr: *mut c_void, size_bytes: u64) -> dtl_status_t,
    >,
    /// A dma-buf of a range within an allocation: a new file descriptor, the caller's, and where in
    /// it the range begins. NULL: NOT_SUPPORTED. As cuMemGetHandleForAddressRange.
    pub export_dmabuf: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            ptr: *mut c_void,
            size_bytes: u64,
            out_fd: *mut i32,
            out_offset_bytes: *mut u64,
        ) -> dtl_status_t,
    >,
    /// Describes memory that the program allocated through the backend's driver itself. `ptr` is
    /// any address in it. Writes device, kind, base and size_bytes of `out_info`, which is zeroed
    /// with struct_size set. DTL_ERROR_NOT_FOUND: the driver does not know the address. Any
    /// other failure leaves the address unclassified: the query, copy or message fails with that
    /// status, and nothing is copied. A kind that is not a memory kind, a device below 0, or a base
    /// and size_bytes that do not contain `ptr`: DTL_ERROR_NATIVE_BACKEND. Messages and copies call
    /// it once for each buffer that the library does not know and wait for the result, so it must
    /// be fast. They do not call it for buffers in the program's image, on its stacks or in its
    /// heap (brk), which they treat as host memory. It must not read the memory at `ptr`. It must
    /// not call dtl_mem_query or functions for copies and messages, not even for another backend:
    /// these functions call it, so it would recurse. The slots of the transfer table are then
    /// called with such memory, too. NULL: only memory passed to dtl_mem_adopt is recognised. As
    /// cuPointerGetAttributes.
    /// cbindgen:appended
    pub pointer_info: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            ptr: *const c_void,
            out_info: *mut dtl_mem_info_t,
        ) -> dtl_status_t,
    >,
}

/// The transfer component. Rules as for dtl_device_vtable_t. At least one side of a copy is memory
/// that this backend allocated, passed with the kind it was allocated with. The other side is also
/// such memory, or any memory that the host can reach (malloc, the stack, another backend's),
/// passed as DTL_MEMORY_HOST. So DTL_MEMORY_HOST alone does not distinguish the backend's own host
/// memory from the program's. Either side may be on a device other than the calling thread's
/// current one. The library does not change the current device for a copy: look up the device by
/// the address.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_transfer_vtable_t {
    /// sizeof(dtl_transfer_vtable_t).
    pub struct_size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// (required) Copies size_bytes (at least 1) and returns when it is done. The ranges do not
    /// overlap.
    pub copy: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            dst: *mut c_void,
            dst_kind: dtl_enum_word_t,
            src: *const c_void,
            src_kind: dtl_enum_word_t,
            size_bytes: u64,
        ) -> dtl_status_t,
    >,
    /// Queues a copy on one of the backend's streams. NULL: the stream is waited for, then copy.
    pub copy_async: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            stream: *mut c_void,
            dst: *mut c_void,
            dst_kind: dtl_enum_word_t,
            src: *const c_void,
            src_kind: dtl_enum_word_t,
            size_bytes: u64,
        ) -> dtl_status_t,
    >,
    /// Copies `height` rows of `width_bytes`, pitch apart. NULL: copy, row by row.
    pub copy_2d: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            dst: *mut c_void,
            dst_kind: dtl_enum_word_t,
            dst_pitch_bytes: u64,
            src: *const c_void,
            src_kind: dtl_enum_word_t,
            src_pitch_bytes: u64,
            width_bytes: u64,
            height: u64,
        ) -> dtl_status_t,
    >,
    /// Sets size_bytes (at least 1) to `value`. NULL: copied from a filled host buffer.
    pub fill: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            dst: *mut c_void,
            kind: dtl_enum_word_t,
            value: u8,
            size_bytes: u64,
        ) -> dtl_status_t,
    >,
    /// Queues moving memory of kind DTL_MEMORY_MANAGED near a device (-1: the host). NULL: it
    /// stays. As cudaMemPrefetchAsync.
    /// cbindgen:appended
    pub prefetch: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            stream: *mut c_void,
            ptr: *mut c_void,
            kind: dtl_enum_word_t,
            size_bytes: u64,
            device: i32,
        ) -> dtl_status_t,
    >,
}

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
    pub stream_destroy:
        Option<unsafe extern "C" fn(self_: *mut c_void, stream: *mut c_void) -> dtl_status_t>,
    /// (streams) Waits for all work in the stream; a failure of that work is the status.
    pub stream_synchronize:
        Option<unsafe extern "C" fn(self_: *mut c_void, stream: *mut c_void) -> dtl_status_t>,
    /// Whether all work is done, without waiting. NULL: an event is recorded and queried. If the
    /// event slots are missing as well, dtl_stream_query waits for the stream, as dtl_event_record
    /// does.
    pub stream_query: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            stream: *mut c_void,
            out_done: *mut i32,
        ) -> dtl_status_t,
    >,
    /// Work queued from now on waits for the event. NULL: the caller waits for the event.
    pub stream_wait_event: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            stream: *mut c_void,
            event: *mut c_void,
        ) -> dtl_status_t,
    >,
    /// Calls fn(user) on a host thread once the work before is done. NULL: the caller waits, then
    /// calls.
    pub stream_host_callback: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            stream: *mut c_void,
            function: dtl_task_fn_t,
            user: *mut c_void,
        ) -> dtl_status_t,
    >,
    /// (events) Creates an event; *out_event is the backend's own pointer, not NULL.
    pub event_create: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            flags: u64,
            out_event: *mut *mut c_void,
        ) -> dtl_status_t,
    >,
    /// (events) Destroys an event that event_create made.
    pub event_destroy:
        Option<unsafe extern "C" fn(self_: *mut c_void, event: *mut c_void) -> dtl_status_t>,
    /// (events) Marks the present end of the stream; replaces an earlier record.
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
    pub event_query: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            event: *mut c_void,
            out_done: *mut i32,
        ) -> dtl_status_t,
    >,
    /// Waits for the event. NULL: event_query is polled.
    pub event_sync:
        Option<unsafe extern "C" fn(self_: *mut c_void, event: *mut c_void) -> dtl_status_t>,
    /// Nanoseconds between two recorded, completed events. NULL: NOT_SUPPORTED.
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
    pub launch: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            stream: *mut c_void,
            launch: *const dtl_launch_t,
            kernel: dtl_kernel_fn_t,
            user: *mut c_void,
            args: *const *const c_void,
            sizes: *const u64,
            count: u32,
        ) -> dtl_status_t,
    >,
    /// (host execution) Runs fn(user) and returns when it has run; its status is the result.
    pub execute: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            function: dtl_task_fn_t,
            user: *mut c_void,
        ) -> dtl_status_t,
    >,
    /// (host execution) Runs begin ... end-1 in pieces of at most `grain` (at least 1) and returns
    /// when all have run; the first failing status of a piece is the result.
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
    pub max_parallelism:
        Option<unsafe extern "C" fn(self_: *mut c_void, out_threads: *mut u32) -> dtl_status_t>,
    /// Into how many pieces a loop is best cut. NULL: max_parallelism.
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
    pub module_destroy:
        Option<unsafe extern "C" fn(self_: *mut c_void, module: *mut c_void) -> dtl_status_t>,
    /// (modules) Finds a kernel; *out_kernel is the backend's own pointer, not NULL, and each that
    /// was given is destroyed once. No such kernel: DTL_ERROR_NOT_FOUND. `signature` as in
    /// dtl_kernel_get, checked; NULL if there is none.
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
    pub kernel_destroy:
        Option<unsafe extern "C" fn(self_: *mut c_void, kernel: *mut c_void) -> dtl_status_t>,
    /// (modules) Queues a kernel that kernel_get gave; args[i] points to sizes[i] bytes, valid
    /// during the call. If the kernel has a signature, number and sizes match it.
    pub kernel_launch: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            stream: *mut c_void,
            kernel: *mut c_void,
            launch: *const dtl_launch_t,
            args: *const *const c_void,
            sizes: *const u64,
            count: u32,
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
    pub flags: u64,
    /// Whether it can run here: *out_yes = 0 or 1; if 0, the reason is written to `why` (cap
    /// bytes). Must not fail on a machine without the hardware: a failure counts as 0, with the
    /// failure as the reason. NULL: always available.
    pub is_available: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            out_yes: *mut i32,
            why: *mut c_char,
            cap: u64,
        ) -> dtl_status_t,
    >,
    /// Whether it has a feature of this name. NULL: the components are its features.
    pub supports: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            feature: *const c_char,
            out_yes: *mut i32,
        ) -> dtl_status_t,
    >,
    /// Called once, after the last use, when the backend is unregistered, replaced or the library
    /// is finalized. NULL: nothing to do.
    pub destroy: Option<unsafe extern "C" fn(self_: *mut c_void)>,
    /// Devices, or NULL.
    pub device: *const dtl_device_vtable_t,
    /// Memory, or NULL.
    pub memory: *const dtl_memory_vtable_t,
    /// Transfers, or NULL.
    pub transfer: *const dtl_transfer_vtable_t,
    /// Execution, or NULL.
    pub exec: *const dtl_exec_vtable_t,
    /// Communication, or NULL.
    pub comm: *const dtl_comm_vtable_t,
}
