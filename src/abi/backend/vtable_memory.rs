//! Backend tables: devices, memory, transfers.
//! dtl: header(dtl_backend.h)

use crate::abi::devices::device::{dtl_device_info_t, dtl_mem_info_t, dtl_mem_kind_info_t};
use crate::abi::status::dtl_status_t;
use crate::abi::word::dtl_enum_word_t;
use std::ffi::c_void;

// Shorthand for the slots' types would hide them from C readers, so they are spelled out.

/// Device component. Slots marked (required) must not be NULL.
///
/// Rules for the slots of all components, unless a slot's text differs. Slots are called from any
/// thread, with no lock held. They may block. They must not call dtl_ functions on this backend,
/// and must not throw. `self` is the pointer that was given to `dtl_backend_register`. Outputs are
/// read only after DTL_SUCCESS. Boolean outputs must be 0 or 1. Any other value, a device that does
/// not exist, and a number that is not a status make the call fail with DTL_ERROR_NATIVE_BACKEND.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_device_vtable_t {
    /// sizeof(dtl_device_vtable_t).
    pub struct_size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// (required) Writes the number of devices, 0 or more.
    pub count:
        Option<unsafe extern "C" fn(self_: *mut c_void, out_count: *mut i32) -> dtl_status_t>,
    /// (required) Sets the current device of the calling thread. Corresponds to cudaSetDevice.
    pub set: Option<unsafe extern "C" fn(self_: *mut c_void, device: i32) -> dtl_status_t>,
    /// (required) Writes the current device of the calling thread: the argument of the last `set`
    /// in this thread, or, if there was none, 0 or the device that is current in the driver. The
    /// library calls it only in threads that have not chosen a device of this backend with
    /// dtl_backend_set_device. In the other threads it uses their choice.
    pub get: Option<unsafe extern "C" fn(self_: *mut c_void, out_device: *mut i32) -> dtl_status_t>,
    /// Describes a device. `out_info` is zeroed, except that its struct_size is set and numa_node
    /// is -1 (unknown). NULL: only name and count are known.
    /// dtl: opt
    pub info: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            device: i32,
            out_info: *mut dtl_device_info_t,
        ) -> dtl_status_t,
    >,
    /// Writes the free and total bytes of a device; 0 = unknown. NULL: the slot of the memory table
    /// is called; if that is NULL too, DTL_ERROR_NOT_SUPPORTED.
    /// dtl: opt
    pub memory_info: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            device: i32,
            out_free: *mut u64,
            out_total: *mut u64,
        ) -> dtl_status_t,
    >,
    /// Waits for all work on a device. NULL: the library waits for the streams that were created
    /// through it.
    /// dtl: opt
    pub synchronize: Option<unsafe extern "C" fn(self_: *mut c_void, device: i32) -> dtl_status_t>,
    /// Writes the DLPack device type and id of a device (StepMesh's GetDevice). NULL:
    /// DTL_ERROR_NOT_SUPPORTED.
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

/// Memory component. The rules of dtl_device_vtable_t apply. alloc, import_handle, kind_info and
/// memory_info apply to the calling thread's current device. Slots that take the address of an
/// allocation must find its device by the address, because another device may be current.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_memory_vtable_t {
    /// sizeof(dtl_memory_vtable_t).
    pub struct_size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// (required) Allocates size_bytes (at least 1), aligned to `alignment` (a power of two, at
    /// least 1).
    ///
    /// If the program passes alignment 0 to dtl_mem_alloc, `alignment` is the one that kind_info
    /// declares, or 1 if it declares none. Return DTL_ERROR_NOT_SUPPORTED for an unknown kind,
    /// DTL_ERROR_OUT_OF_MEMORY if memory is insufficient.
    pub alloc: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            size_bytes: u64,
            alignment: u64,
            kind: dtl_enum_word_t,
            out_ptr: *mut *mut c_void,
        ) -> dtl_status_t,
    >,
    /// (required) Frees memory from alloc. Size, alignment and kind are those of the alloc.
    pub free: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            ptr: *mut c_void,
            size_bytes: u64,
            alignment: u64,
            kind: dtl_enum_word_t,
        ) -> dtl_status_t,
    >,
    /// Describes a kind of memory. `out_info` is zeroed, and its struct_size is set.
    ///
    /// `alignment` is a power of two up to 2^30, or 0 = none declared, which dtl_mem_kind_info
    /// reports as 1. Any other value makes dtl_mem_kind_info, and dtl_mem_alloc with alignment 0,
    /// fail with DTL_ERROR_NATIVE_BACKEND. Return DTL_ERROR_NOT_SUPPORTED for an unknown kind.
    /// NULL: HOST is host memory, DEVICE memory that only this backend can access.
    /// dtl: opt
    pub kind_info: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            kind: dtl_enum_word_t,
            out_info: *mut dtl_mem_kind_info_t,
        ) -> dtl_status_t,
    >,
    /// Writes the free and total bytes; 0 = unknown. It is called if the device table has no
    /// memory_info, and for device 0 of a backend without a device table. NULL:
    /// DTL_ERROR_NOT_SUPPORTED.
    /// dtl: opt
    pub memory_info: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            out_free: *mut u64,
            out_total: *mut u64,
        ) -> dtl_status_t,
    >,
    /// Writes the handle from which import_handle maps an allocation of this backend in another
    /// process of this node.
    ///
    /// export_handle, import_handle and close_handle are all present or all NULL (then
    /// DTL_ERROR_NOT_SUPPORTED). Size, alignment and kind are those of the alloc. out_bytes has
    /// DTL_MEM_HANDLE_ROOM bytes, aligned to 8 and zeroed. The library adds kind, size, alignment,
    /// node, the name of the backend, and a checksum. Kinds that can be exported have the property
    /// DTL_MEMORY_EXPORTABLE; for others return DTL_ERROR_NOT_SUPPORTED with a text. Corresponds to
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
    /// Maps an allocation of another process into this one, on the current device.
    ///
    /// Each call must write a different address. If it writes one that is in use, the library
    /// closes it once and the caller gets DTL_ERROR_ALREADY_EXISTS. `bytes` (aligned to 8) are
    /// those that export_handle of a backend of this name wrote on this node; size, alignment and
    /// kind are those of the export. If the exporter has freed the memory or ended since, the
    /// status is DTL_ERROR_INVALID_HANDLE. A backend that cannot import what the same process
    /// exported returns DTL_ERROR_NOT_SUPPORTED. Corresponds to cudaIpcOpenMemHandle.
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
    /// Unmaps memory from import_handle. It stays allocated for its other users. Corresponds to
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
    /// Allocates like alloc, in the order of one of the backend's streams and on the device of the
    /// stream.
    ///
    /// alloc_async and free_async are both present or both NULL. Work queued to the stream later
    /// may use the memory. A kind that does not support this order may be allocated immediately.
    /// NULL: the library calls alloc immediately, and free when the work in the stream is done.
    /// Corresponds to cudaMallocAsync.
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
    /// Frees memory from alloc or alloc_async, after the work queued in the stream. Corresponds to
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
    /// Registers host memory of the program (at least 1 byte) as memory of kind DTL_MEMORY_PINNED,
    /// as kind_info describes it. register_host and unregister_host are both present or both NULL
    /// (then DTL_ERROR_NOT_SUPPORTED). Ranges do not overlap. Corresponds to cudaHostRegister.
    /// dtl: opt(unregister_host==NULL)
    pub register_host: Option<
        unsafe extern "C" fn(self_: *mut c_void, ptr: *mut c_void, size_bytes: u64) -> dtl_status_t,
    >,
    /// Undoes register_host, with the same range. Corresponds to cudaHostUnregister.
    /// dtl: opt(register_host==NULL)
    pub unregister_host: Option<
        unsafe extern "C" fn(self_: *mut c_void, ptr: *mut c_void, size_bytes: u64) -> dtl_status_t,
    >,
    /// Exports a range within an allocation as a dma-buf: writes a new file descriptor, which the
    /// caller owns, and the offset of the range in it. NULL: DTL_ERROR_NOT_SUPPORTED. Corresponds
    /// to cuMemGetHandleForAddressRange.
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
    /// Describes memory that the program allocated through the backend's driver. Corresponds to
    /// cuPointerGetAttributes.
    ///
    /// `ptr` is any address in it. The slot writes device, kind, base and size_bytes of `out_info`,
    /// which is zeroed with struct_size set. DTL_ERROR_NOT_FOUND means that the driver does not
    /// recognise the address. With any other failure the address stays unclassified: the query,
    /// copy or message fails with that status, and nothing is copied. The result is
    /// DTL_ERROR_NATIVE_BACKEND if the kind is not a memory kind, the device is below 0, or base
    /// and size_bytes do not contain `ptr`.
    ///
    /// Messages and copies call it once for each buffer that the library does not recognise, and
    /// wait for the result, so it must be fast. They do not call it for buffers in the program's
    /// image, on its stacks or in its heap (brk), which they treat as host memory. It must not read
    /// the memory at `ptr`. It must not call dtl_mem_query or functions for copies and messages,
    /// not even for another backend: these functions call it, so it would recurse. NULL: only
    /// memory passed to dtl_mem_adopt is recognised.
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

/// Transfer component. The rules of dtl_device_vtable_t apply.
///
/// Memory: at least one side of a copy is memory of this backend, passed with its kind: allocated
/// by it, imported, adopted, registered, or described by pointer_info. The other side is also such
/// memory, or any memory that the host can access (malloc, the stack, memory of another backend),
/// passed as DTL_MEMORY_HOST. So DTL_MEMORY_HOST alone does not distinguish the backend's own host
/// memory from that of the program.
///
/// Devices: either side may be on a device other than the calling thread's current one. The library
/// does not change the current device for a copy. The slot must find the device of each side by its
/// address.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_transfer_vtable_t {
    /// sizeof(dtl_transfer_vtable_t).
    pub struct_size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// (required) Copies size_bytes (at least 1), and returns when the copy is done. The ranges do
    /// not overlap.
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
    /// Queues a copy on one of the backend's streams. NULL: the library waits for the stream, then
    /// calls copy.
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
    /// Copies `height` rows of `width_bytes`, which are dst_pitch_bytes and src_pitch_bytes apart.
    /// NULL: copy is called for each row.
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
    /// Sets size_bytes (at least 1) to `value`. NULL: the library copies a filled host buffer.
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
    /// Queues the migration of memory of kind DTL_MEMORY_MANAGED to a device (-1: the host). NULL:
    /// the memory stays. Corresponds to cudaMemPrefetchAsync.
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
