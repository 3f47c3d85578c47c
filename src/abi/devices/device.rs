//! Backends, devices, memory kinds: the info structs that calls fill in.
//! dtl: section(ffi/library/backend)

use crate::abi::handle::dtl_backend_t;
use crate::abi::word::dtl_enum_word_t;
use std::ffi::{c_char, c_void};

/// Flag of `dtl_backend_register`: replaces a backend of the same name.
///
/// The handle of the old backend stays valid while allocations, streams, events, executors,
/// communicators or handlers of it are alive, or memory is adopted by it or registered with it.
/// After the last of them (immediately if there are none) the old backend is unregistered: its
/// handle becomes stale, and the slot `destroy` of its table is called. A built-in backend stays
/// until dtl_finalize.
/// dtl: section(abi/backend/vtable)
pub const DTL_REGISTER_REPLACE: u64 = 1;

/// The backend has a device table.
/// dtl: section(ffi/library/backend)
pub const DTL_COMPONENT_DEVICE: u32 = 1;
/// The backend has a memory table.
pub const DTL_COMPONENT_MEMORY: u32 = 2;
/// The backend has a transfer table.
pub const DTL_COMPONENT_TRANSFER: u32 = 4;
/// The backend has an exec table.
pub const DTL_COMPONENT_EXEC: u32 = 8;
/// The backend has a comm table.
pub const DTL_COMPONENT_COMM: u32 = 16;

/// Description of a backend, see `dtl_backend_info`. Start from DTL_BACKEND_INFO_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_backend_info_t {
    /// sizeof(dtl_backend_info_t), set by DTL_BACKEND_INFO_INIT.
    pub struct_size: u32,
    /// Components of its own: DTL_COMPONENT_..., ORed.
    /// dtl: flags(DTL_COMPONENT_)
    pub components: u32,
    /// Priority for "auto": the highest of the available backends wins. INT32_MIN = never chosen.
    pub auto_priority: i32,
    /// 1 = part of the library, 0 = registered by the program or a plugin.
    /// dtl: bool
    pub is_builtin: i32,
    /// Flags of its dtl_backend_vtable_t.
    /// dtl: flags(DTL_BACKEND_NO_COMPUTE)
    pub flags: u64,
    /// Name of the backend. Valid as long as the backend is registered.
    /// dtl: lives(object)
    pub name: *const c_char,
}

/// Description of a device, see `dtl_device_info`. Start from DTL_DEVICE_INFO_INIT. 0 or an empty
/// text = unknown.
/// dtl: section(ffi/library/device)
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_device_info_t {
    /// sizeof(dtl_device_info_t), set by DTL_DEVICE_INFO_INIT.
    pub struct_size: u32,
    /// NUMA node of the device; -1 = unknown.
    pub numa_node: i32,
    /// DTL_DEVICE_... or a registered device kind.
    /// dtl: values(DTL_DEVICE_)
    pub kind: dtl_enum_word_t,
    /// Total memory in bytes.
    pub total_bytes: u64,
    /// Number of CPU cores, or of GPU multiprocessors.
    pub compute_units: u32,
    /// Maximum number of threads per block of a launch.
    pub max_block_threads: u32,
    /// Maximum block size in x, y, z.
    pub max_block: [u32; 3],
    /// Maximum grid size (in blocks) in x, y, z.
    pub max_grid: [u32; 3],
    /// Name of the device, NUL-terminated.
    pub name: [c_char; 128],
    /// PCI address, such as "0000:65:00.0", NUL-terminated; empty if there is none.
    pub pci: [c_char; 32],
}

/// Property of a memory kind: the host can read and write it.
/// dtl: section(ffi/memory/alloc)
pub const DTL_MEMORY_HOST_ACCESSIBLE: u64 = 1;
/// Property of a memory kind: the device can read and write it.
pub const DTL_MEMORY_DEVICE_ACCESSIBLE: u64 = 2;
/// Property of a memory kind: one address is valid on host and device.
pub const DTL_MEMORY_UNIFIED: u64 = 4;
/// Property of a memory kind: atomic operations between host and device work.
pub const DTL_MEMORY_ATOMICS: u64 = 8;
/// Property of a memory kind: the operating system may page it out.
pub const DTL_MEMORY_PAGEABLE: u64 = 16;
/// Property of a memory kind: several threads may call alloc and free at once.
pub const DTL_MEMORY_THREAD_SAFE: u64 = 32;
/// Property of a memory kind: `dtl_mem_export` shares it with other processes of the node.
pub const DTL_MEMORY_EXPORTABLE: u64 = 64;

/// Value of `device` in `dtl_mem_prefetch` that denotes the host.
/// dtl: section(ffi/memory/stream_ordered)
pub const DTL_PREFETCH_HOST: i32 = -1;

/// Description of a memory kind, see `dtl_mem_kind_info`. Start from DTL_MEM_KIND_INFO_INIT.
/// dtl: section(ffi/memory/alloc)
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_mem_kind_info_t {
    /// sizeof(dtl_mem_kind_info_t), set by DTL_MEM_KIND_INFO_INIT.
    pub struct_size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// DTL_MEMORY_HOST_ACCESSIBLE and the other properties, ORed.
    /// dtl: flags(DTL_MEMORY_)
    pub properties: u64,
    /// Minimum alignment of an allocation, in bytes.
    pub alignment: u64,
    /// Name for display, such as "host (page-locked)", NUL-terminated.
    pub name: [c_char; 64],
}

/// Statistics of live allocations, see `dtl_mem_stats` and `dtl_pool_stats`. Start from
/// DTL_MEM_STATS_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_mem_stats_t {
    /// sizeof(dtl_mem_stats_t), set by DTL_MEM_STATS_INIT.
    pub struct_size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Bytes allocated now. Imported memory counts as if it had been allocated here (also in
    /// reserved_bytes and the counts), so memory shared by n processes counts n times.
    pub live_bytes: u64,
    /// Maximum of live_bytes so far. For host memory it is exact if one thread allocates. Otherwise
    /// it is an upper bound: each thread may add 1 MiB, or what it freed in its last 256 frees.
    pub peak_bytes: u64,
    /// Bytes taken from the system for these allocations (at least live_bytes). For host memory
    /// this includes its pools and cached free memory. It counts addresses: pages that were never
    /// touched, or were returned while their neighbors are in use, take no memory, so the resident
    /// set of a process may be smaller.
    pub reserved_bytes: u64,
    /// Number of allocations that are live now.
    pub live_count: u64,
    /// Number of allocations so far.
    pub total_count: u64,
}

/// Description of a memory pool for `dtl_pool_create`. Start from DTL_POOL_DESC_INIT.
/// dtl: section(ffi/memory/pool)
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_pool_desc_t {
    /// sizeof(dtl_pool_desc_t), set by DTL_POOL_DESC_INIT.
    pub struct_size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Maximum number of unused bytes that the pool caches; memory freed beyond that returns to the
    /// backend. 0 = 256 MiB, UINT64_MAX = no limit. No effect for kinds HOST, DEVICE and MANAGED of
    /// backend "host": their memory is cached for all pools and dtl_mem_alloc together, within one
    /// budget (DTL_MEMORY_KEEP).
    pub keep_bytes: u64,
}

/// Description of the memory that a pointer refers to, see `dtl_mem_query`. Start from
/// DTL_MEM_INFO_INIT.
/// dtl: section(ffi/memory/alloc)
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_mem_info_t {
    /// sizeof(dtl_mem_info_t), set by DTL_MEM_INFO_INIT.
    pub struct_size: u32,
    /// Device on which the memory was allocated.
    pub device: i32,
    /// Backend of the memory.
    /// dtl: borrowed
    pub backend: dtl_backend_t,
    /// DTL_MEMORY_... or a registered kind.
    /// dtl: values(DTL_MEMORY_)
    pub kind: dtl_enum_word_t,
    /// First byte of the allocation that contains the pointer.
    /// dtl: borrowed len(size_bytes)
    pub base: *mut c_void,
    /// Size of that allocation in bytes.
    pub size_bytes: u64,
}

/// Handle of exported memory: written by `dtl_mem_export`, read by `dtl_mem_import` in another
/// process. It is plain data without pointers: send it as sizeof(dtl_mem_handle_t) bytes, by any
/// means.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_mem_handle_t {
    /// Private to the library. All 0 = null.
    pub opaque: [u64; 16],
}

/// Size in bytes of the handle that the slot export_handle of a backend may write.
pub const DTL_MEM_HANDLE_ROOM: u64 = 64;
