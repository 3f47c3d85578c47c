//! Backend tables: devices, memory, transfers.
//! dtl: header(dtl_backend.h)

use crate::abi::devices::device::{dtl_device_info_t, dtl_mem_info_t, dtl_mem_kind_info_t};
use crate::abi::status::dtl_status_t;
use crate::abi::word::dtl_enum_word_t;
use std::ffi::c_void;

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
    /// dtl: opt
    pub info: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            device: i32,
            out_info: *mut dtl_device_info_t,
        ) -> dtl_status_t,
    >,
    /// Free and total bytes of a device; 0 = unknown. NULL: the memory table's, else NOT_SUPPORTED.
    /// dtl: opt
    pub memory_info: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            device: i32,
            out_free: *mut u64,
            out_total: *mut u64,
        ) -> dtl_status_t,
    >,
    /// Waits for all work on a device. NULL: the streams made through the library are waited for.
    /// dtl: opt
    pub synchronize: Option<unsafe extern "C" fn(self_: *mut c_void, device: i32) -> dtl_status_t>,
    /// DLPack's device type and id (as StepMesh's GetDevice). NULL: NOT_SUPPORTED.
    /// dtl: opt
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
    /// dtl: opt
    pub kind_info: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            kind: dtl_enum_word_t,
            out_info: *mut dtl_mem_kind_info_t,
        ) -> dtl_status_t,
    >,
    /// Free and total bytes; 0 = unknown. Asked where the device table does not tell, or for device
    /// 0 of a backend without that table. NULL: NOT_SUPPORTED.
    /// dtl: opt
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
    /// dtl: opt(import_handle==NULL&&close_handle==NULL)
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
    /// dtl: opt(export_handle==NULL)
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
    /// dtl: opt(export_handle==NULL)
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
    /// dtl: opt(free_async==NULL)
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
    /// dtl: opt(alloc_async==NULL)
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
    /// dtl: opt(unregister_host==NULL)
    pub register_host: Option<
        unsafe extern "C" fn(self_: *mut c_void, ptr: *mut c_void, size_bytes: u64) -> dtl_status_t,
    >,
    /// Takes that back, with the same bytes. As cudaHostUnregister.
    /// dtl: opt(register_host==NULL)
    pub unregister_host: Option<
        unsafe extern "C" fn(self_: *mut c_void, ptr: *mut c_void, size_bytes: u64) -> dtl_status_t,
    >,
    /// A dma-buf of a range within an allocation: a new file descriptor, the caller's, and where in
    /// it the range begins. NULL: NOT_SUPPORTED. As cuMemGetHandleForAddressRange.
    /// dtl: opt
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
    /// dtl: opt
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
    /// dtl: opt
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
    /// dtl: opt
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
    /// dtl: opt
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
    /// dtl: opt
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
