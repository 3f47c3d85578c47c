//! Backends, devices, memory kinds: the info structs that calls fill in.
//! dtl: section(ffi/library/backend)

use crate::abi::handle::dtl_backend_t;
use crate::abi::word::dtl_enum_word_t;
use std::ffi::{c_char, c_void};

/// Flag of `dtl_backend_register`: replaces a backend of the same name. The old backend's handle
/// stays valid as long as allocations, streams, events, executors, communicators or handlers of it
/// are alive, or memory is adopted by it or registered with it. After the last of them (at once if
/// there are none) the old backend is unregistered: its handle becomes stale and its table's
/// `destroy` is called. A built-in backend stays until dtl_finalize.
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

/// What `dtl_backend_info` tells. Start from DTL_BACKEND_INFO_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_backend_info_t {
    /// sizeof(dtl_backend_info_t), set by DTL_BACKEND_INFO_INIT.
    pub struct_size: u32,
    /// Its own components: DTL_COMPONENT_... ored.
    /// dtl: flags(DTL_COMPONENT_)
    pub components: u32,
    /// Rank in the automatic choice: the highest available one wins. INT32_MIN = never chosen.
    pub auto_priority: i32,
    /// 1 = part of the library, 0 = registered by the program or a plugin.
    /// dtl: bool
    pub is_builtin: i32,
    /// The flags of its table.
    /// dtl: flags(DTL_BACKEND_NO_COMPUTE)
    pub flags: u64,
    /// Its name; valid as long as the backend is registered.
    /// dtl: lives(object)
    pub name: *const c_char,
}

/// What `dtl_device_info` tells. Start from DTL_DEVICE_INFO_INIT. 0 or an empty text = unknown.
/// dtl: section(ffi/library/device)
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_device_info_t {
    /// sizeof(dtl_device_info_t), set by DTL_DEVICE_INFO_INIT.
    pub struct_size: u32,
    /// NUMA node it hangs on; -1 = unknown.
    pub numa_node: i32,
    /// DTL_DEVICE_... or a registered device kind.
    /// dtl: values(DTL_DEVICE_)
    pub kind: dtl_enum_word_t,
    /// Its memory in bytes.
    pub total_bytes: u64,
    /// Cores of a CPU, multiprocessors of a GPU.
    pub compute_units: u32,
    /// Most threads in one block of a launch.
    pub max_block_threads: u32,
    /// Largest block, per dimension.
    pub max_block: [u32; 3],
    /// Largest grid (in blocks), per dimension.
    pub max_grid: [u32; 3],
    /// Its name, NUL-terminated.
    pub name: [c_char; 128],
    /// PCI address "0000:65:00.0", NUL-terminated; empty if it has none.
    pub pci: [c_char; 32],
}

/// The memory of this kind can be read and written by the host.
/// dtl: section(ffi/memory/alloc)
pub const DTL_MEMORY_HOST_ACCESSIBLE: u64 = 1;
/// ... by the device.
pub const DTL_MEMORY_DEVICE_ACCESSIBLE: u64 = 2;
/// One address is valid on both sides.
pub const DTL_MEMORY_UNIFIED: u64 = 4;
/// Atomic operations between host and device work on it.
pub const DTL_MEMORY_ATOMICS: u64 = 8;
/// The operating system may page it out.
pub const DTL_MEMORY_PAGEABLE: u64 = 16;
/// alloc and free may be called from several threads at once.
pub const DTL_MEMORY_THREAD_SAFE: u64 = 32;
/// `dtl_mem_export` works on it: other processes of the node can have the same memory.
pub const DTL_MEMORY_EXPORTABLE: u64 = 64;

/// The `device` of `dtl_mem_prefetch` that stands for the host.
/// dtl: section(ffi/memory/stream_ordered)
pub const DTL_PREFETCH_HOST: i32 = -1;

/// What `dtl_mem_kind_info` tells. Start from DTL_MEM_KIND_INFO_INIT.
/// dtl: section(ffi/memory/alloc)
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_mem_kind_info_t {
    /// sizeof(dtl_mem_kind_info_t), set by DTL_MEM_KIND_INFO_INIT.
    pub struct_size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// DTL_MEMORY_HOST_ACCESSIBLE and its like, ored.
    /// dtl: flags(DTL_MEMORY_)
    pub properties: u64,
    /// Alignment in bytes that every allocation has at least.
    pub alignment: u64,
    /// For people, e.g. "host (page-locked)", NUL-terminated.
    pub name: [c_char; 64],
}

/// What `dtl_mem_stats` tells: allocations made through `dtl_mem_alloc` and not yet freed.
/// Start from DTL_MEM_STATS_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_mem_stats_t {
    /// sizeof(dtl_mem_stats_t), set by DTL_MEM_STATS_INIT.
    pub struct_size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Bytes allocated now. What was imported counts as if it had been allocated here (in
    /// reserved_bytes and the counts, too), so memory that n processes have counts n times.
    pub live_bytes: u64,
    /// Most bytes ever allocated at once. Of the host's memory: exact if one thread allocates, else
    /// it may be too high by what each thread has freed in its last 256 frees, or by 1 MiB for each
    /// thread.
    pub peak_bytes: u64,
    /// Bytes taken from the system to serve them (at least live_bytes). Of the host: also for its
    /// pools, and what is kept without use. These are addresses: pages of them that were never
    /// touched, or whose memory went back while their neighbours are used, take no memory, so a
    /// process' resident set may be smaller.
    pub reserved_bytes: u64,
    /// Allocations alive now.
    pub live_count: u64,
    /// Allocations made in all.
    pub total_count: u64,
}

/// What `dtl_pool_create` makes. Start from DTL_POOL_DESC_INIT.
/// dtl: section(ffi/memory/pool)
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_pool_desc_t {
    /// sizeof(dtl_pool_desc_t), set by DTL_POOL_DESC_INIT.
    pub struct_size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Most bytes that the pool keeps without use; what is freed beyond goes back to the backend. 0
    /// = 256 MiB, UINT64_MAX = everything. Without effect for the kinds HOST, DEVICE and MANAGED of
    /// backend "host": their memory is kept for all pools and dtl_mem_alloc together, within one
    /// budget (DTL_MEMORY_KEEP).
    pub keep_bytes: u64,
}

/// What `dtl_mem_query` tells of a pointer. Start from DTL_MEM_INFO_INIT.
/// dtl: section(ffi/memory/alloc)
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_mem_info_t {
    /// sizeof(dtl_mem_info_t), set by DTL_MEM_INFO_INIT.
    pub struct_size: u32,
    /// The device it was allocated on.
    pub device: i32,
    /// The backend it was allocated by.
    /// dtl: borrowed
    pub backend: dtl_backend_t,
    /// DTL_MEMORY_... or a registered kind.
    /// dtl: values(DTL_MEMORY_)
    pub kind: dtl_enum_word_t,
    /// First byte of the allocation that the pointer lies in.
    /// dtl: borrowed len(size_bytes)
    pub base: *mut c_void,
    /// Size of that allocation in bytes.
    pub size_bytes: u64,
}

/// An allocation in words that another process understands: made by `dtl_mem_export`, read by
/// `dtl_mem_import`. Plain data without pointers: send it as sizeof(dtl_mem_handle_t) bytes, by any
/// way.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_mem_handle_t {
    /// For the library alone. All 0 = null.
    pub opaque: [u64; 16],
}

/// What a backend's export_handle has room for, in bytes.
pub const DTL_MEM_HANDLE_ROOM: u64 = 64;
