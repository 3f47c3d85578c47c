//! Streams, events, executors, kernels, their source: flags, descriptions and function types.
//! dtl: section(ffi/exec/event)

use crate::abi::status::dtl_status_t;
use crate::abi::word::dtl_enum_word_t;
use std::ffi::{c_char, c_void};

/// Flag of `dtl_event_create`: no time stamps, `dtl_event_elapsed_ns` is refused.
pub const DTL_EVENT_NO_TIMING: u64 = 1;

/// Runs everything at once in the calling thread.
/// dtl: section(ffi/exec/executor)
pub const DTL_EXECUTOR_INLINE: u32 = 1;
/// Runs one thing after another on one thread of its own.
pub const DTL_EXECUTOR_SEQUENTIAL: u32 = 2;
/// Runs loops on several threads, the caller among them.
pub const DTL_EXECUTOR_POOL: u32 = 3;
/// Whatever the backend's own exec table offers.
pub const DTL_EXECUTOR_BACKEND: u32 = 4;

/// What `dtl_executor_create` makes. Start from DTL_EXECUTOR_DESC_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_executor_desc_t {
    /// sizeof(dtl_executor_desc_t), set by DTL_EXECUTOR_DESC_INIT.
    pub struct_size: u32,
    /// DTL_EXECUTOR_... ; 0 = the backend's own if it has one, else POOL.
    /// dtl: values(DTL_EXECUTOR_)
    pub kind: u32,
    /// Threads of a pool, the caller included; 0 = OMP_NUM_THREADS, else what affinity and the
    /// control group allow.
    pub threads: u32,
    /// Must be 0.
    pub reserved: u32,
}

/// What `dtl_executor_info` tells. Start from DTL_EXECUTOR_INFO_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_executor_info_t {
    /// sizeof(dtl_executor_info_t), set by DTL_EXECUTOR_INFO_INIT.
    pub struct_size: u32,
    /// DTL_EXECUTOR_... that it is.
    /// dtl: values(DTL_EXECUTOR_)
    pub kind: u32,
    /// Most iterations that ever run at the same time.
    pub max_parallelism: u32,
    /// How many pieces a loop is best cut into.
    pub suggested_parallelism: u32,
}

/// Body of a parallel loop: does the iterations begin ... end-1. A status other than DTL_SUCCESS
/// stops the loop at the next piece and becomes its result.
/// Thread: any of the executor's, several at once. Locks held: none. It may block and may call
/// dtl_ functions, nested loops included; it must not throw.
/// dtl:user opaque
pub type dtl_range_fn_t =
    Option<extern "C" fn(begin: u64, end: u64, user: *mut c_void) -> dtl_status_t>;

/// Body of a parallel reduction: folds the iterations begin ... end-1 into `*acc` (which starts as
/// a copy of the identity). Rules as for dtl_range_fn_t.
/// dtl:acc inout len(?)
/// dtl:user opaque
pub type dtl_fold_fn_t = Option<
    extern "C" fn(begin: u64, end: u64, acc: *mut c_void, user: *mut c_void) -> dtl_status_t,
>;

/// Joins two partial results: `*into = *into op *from`, `into` being the lower iterations. Called
/// in order of iterations, in the calling thread. It must not throw.
/// dtl:into inout len(?)
/// dtl:from len(?)
/// dtl:user opaque
pub type dtl_combine_fn_t =
    Option<extern "C" fn(into: *mut c_void, from: *const c_void, user: *mut c_void)>;

/// Number of blocks and threads of a launch. Start from DTL_LAUNCH_INIT (one thread).
/// Equivalent: gridDim and blockDim of CUDA.
/// dtl: section(ffi/exec/kernel)
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_launch_t {
    /// sizeof(dtl_launch_t), set by DTL_LAUNCH_INIT.
    pub struct_size: u32,
    /// Bytes of memory shared by the threads of a block; on OpenCL of each argument that is
    /// `__local`. More than the device has for a block (host code: 64 MiB):
    /// DTL_ERROR_INVALID_ARGUMENT.
    pub shared_bytes: u32,
    /// Blocks in x, y, z; each at least 1.
    /// cbindgen:init={1, 1, 1}
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z; each at least 1.
    /// cbindgen:init={1, 1, 1}
    pub block: [u32; 3],
    /// DTL_SCHEDULE_... or a registered one: who runs the grid is the handler's of this schedule in
    /// the default dispatcher (DTL_OPERATION_LAUNCH). 0, or a built-in one that nobody has a
    /// handler for: the stream's backend.
    /// cbindgen:appended
    /// dtl: values(DTL_SCHEDULE_)
    pub schedule: dtl_enum_word_t,
}

/// Where a host kernel's call stands in the launch. Valid during the call only.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_kernel_context_t {
    /// sizeof(dtl_kernel_context_t) of the library; read only fields inside it.
    pub struct_size: u32,
    /// Bytes at `shared`.
    pub shared_bytes: u32,
    /// Number of blocks.
    pub grid: [u32; 3],
    /// Number of threads in each block.
    pub block: [u32; 3],
    /// This block: 0 ... grid-1.
    pub block_index: [u32; 3],
    /// This thread in its block: 0 ... block-1.
    pub thread_index: [u32; 3],
    /// Memory of this block, zeroed before its first thread; NULL if none was requested.
    /// dtl: inout len(shared_bytes) opt(shared_bytes==0)
    pub shared: *mut c_void,
    /// As given to `dtl_kernel_from_function`.
    /// dtl: opaque
    pub user: *mut c_void,
}

/// A kernel as a function: called once for each thread of the grid. `args[i]` points to a copy of
/// the i-th argument, made at the launch. Thread: a worker of the stream; the threads of a block
/// one after another. Locks held: none. It may block; it must not throw and must not wait for the
/// stream that it runs on. The library's own threads have a stack of 2 MiB.
/// dtl:args len(?)
pub type dtl_kernel_fn_t = Option<
    extern "C" fn(context: *const dtl_kernel_context_t, args: *const *const c_void) -> dtl_status_t,
>;

/// A file that comes with a source: it is found by `#include "name"` and `#include <name>`, before
/// any file on disk. Write the whole name also in other files ("folder/x.h"): not every compiler
/// looks beside them. An element of a list: it never grows.
/// dtl: section(ffi/exec/module)
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_source_file_t {
    /// Its name, "x.h" or "folder/x.h": no '/' in front, no "..", and not dtl_kernel.h, which is
    /// the library's.
    pub name: *const c_char,
    /// The text. NULL = it is empty.
    /// dtl: len(?) opt(size_bytes==0)
    pub text: *const c_void,
    /// Bytes of it; 0 = up to its NUL.
    pub size_bytes: u64,
    /// Must be 0.
    pub reserved: u64,
}

/// What `dtl_module_compile` compiles. Start from DTL_SOURCE_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_source_t {
    /// sizeof(dtl_source_t), set by DTL_SOURCE_INIT.
    pub struct_size: u32,
    /// Number of options.
    pub option_count: u32,
    /// DTL_LANGUAGE_... ; 0 = whichever the backend compiles: the text uses the macros of
    /// dtl_kernel.h and is C on the host, OpenCL C or CUDA C++ on a device.
    /// dtl: values(DTL_LANGUAGE_)
    pub language: dtl_enum_word_t,
    /// The text, or the bytes of a binary.
    /// dtl: len(?)
    pub text: *const c_void,
    /// Bytes of it; 0 = up to its NUL. In a text of C, OpenCL C or CUDA C++ there is no NUL:
    /// DTL_ERROR_INVALID_ARGUMENT.
    pub size_bytes: u64,
    /// Options for the compiler, each one word of its command line, after the library's own; NULL
    /// if there are none.
    /// dtl: len(option_count) opt(option_count==0)
    pub options: *const *const c_char,
    /// What messages call it; NULL = "source".
    /// dtl: opt
    pub name: *const c_char,
    /// Files that come with it; NULL if there are none. Not for binaries, PTX and SPIR-V.
    /// cbindgen:appended
    /// dtl: len(file_count) opt(file_count==0)
    pub files: *const dtl_source_file_t,
    /// Environments that it needs ("name", or "name>=version"), NULL if there are none: they are
    /// required before it is compiled, for as long as the module is there. Their folders of
    /// headers, and those of what they depend on, are searched after those of `options`; their
    /// libraries are linked by the host's compiler (a device's links none).
    /// dtl: len(environment_count) opt(environment_count==0)
    pub environments: *const *const c_char,
    /// Number of files; at most 1024.
    pub file_count: u32,
    /// Number of environments; at most 256.
    pub environment_count: u32,
}

/// Takes a piece of text that is not terminated, during the call. Called any number of times, one
/// after another.
/// dtl:user opaque
/// dtl:text len(size_bytes)
pub type dtl_text_fn_t =
    Option<unsafe extern "C" fn(user: *mut c_void, text: *const c_char, size_bytes: u64)>;
