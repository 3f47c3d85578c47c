//! Streams, events, executors, kernels, their source: flags, descriptions and function types.
//! dtl: section(ffi/exec/event)

use crate::abi::handle::{dtl_backend_t, dtl_kernel_t, dtl_stream_t};
use crate::abi::status::dtl_status_t;
use crate::abi::word::dtl_enum_word_t;
use std::ffi::{c_char, c_void};

/// Flag of `dtl_event_create`: no time stamps; `dtl_event_elapsed_ns` is refused.
pub const DTL_EVENT_NO_TIMING: u64 = 1;

/// Executor that runs everything immediately in the calling thread.
/// dtl: section(ffi/exec/executor)
pub const DTL_EXECUTOR_INLINE: u32 = 1;
/// Executor that runs one item after another in a thread of its own.
pub const DTL_EXECUTOR_SEQUENTIAL: u32 = 2;
/// Executor that runs loops on several threads, including the calling one.
pub const DTL_EXECUTOR_POOL: u32 = 3;
/// Executor that uses the host execution of the backend.
pub const DTL_EXECUTOR_BACKEND: u32 = 4;

/// Description of an executor for `dtl_executor_create`. Start from DTL_EXECUTOR_DESC_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_executor_desc_t {
    /// sizeof(dtl_executor_desc_t), set by DTL_EXECUTOR_DESC_INIT.
    pub struct_size: u32,
    /// DTL_EXECUTOR_...; 0 = that of the backend if it has one, otherwise POOL.
    /// dtl: values(DTL_EXECUTOR_)
    pub kind: u32,
    /// Threads of a pool, including the calling one. 0 = OMP_NUM_THREADS if that is set, otherwise
    /// the number that affinity and control group allow.
    pub threads: u32,
    /// Must be 0.
    pub reserved: u32,
}

/// Kind and parallelism of an executor, see `dtl_executor_info`. Start from DTL_EXECUTOR_INFO_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_executor_info_t {
    /// sizeof(dtl_executor_info_t), set by DTL_EXECUTOR_INFO_INIT.
    pub struct_size: u32,
    /// DTL_EXECUTOR_..., never 0.
    /// dtl: values(DTL_EXECUTOR_)
    pub kind: u32,
    /// Maximum number of iterations that run at the same time.
    pub max_parallelism: u32,
    /// Recommended number of chunks of a loop.
    pub suggested_parallelism: u32,
}

/// Body of a parallel loop: runs the iterations begin to end - 1.
///
/// A status other than DTL_SUCCESS stops the loop at the next chunk and becomes its result. Thread:
/// any of the executor, several at once. Locks held: none. It may block and call dtl_ functions,
/// including nested loops. It must not throw.
/// dtl:user opaque
pub type dtl_range_fn_t =
    Option<extern "C" fn(begin: u64, end: u64, user: *mut c_void) -> dtl_status_t>;

/// Body of a parallel reduction: folds the iterations begin to end - 1 into `*acc`, which starts as
/// a copy of the identity.
///
/// A status other than DTL_SUCCESS stops the reduction at the next chunk and becomes its result.
/// Thread: any of the executor, several at once. Locks held: none. It may block and call dtl_
/// functions. It must not throw.
/// dtl:acc inout len(?)
/// dtl:user opaque
pub type dtl_fold_fn_t = Option<
    extern "C" fn(begin: u64, end: u64, acc: *mut c_void, user: *mut c_void) -> dtl_status_t,
>;

/// Combines two partial results: `*into = *into op *from`, where `into` covers the lower
/// iterations.
///
/// Called in the order of the iterations, in the calling thread. It must not throw.
/// dtl:into inout len(?)
/// dtl:from len(?)
/// dtl:user opaque
pub type dtl_combine_fn_t =
    Option<extern "C" fn(into: *mut c_void, from: *const c_void, user: *mut c_void)>;

/// Grid and block dimensions of a launch. Start from DTL_LAUNCH_INIT (one thread).
/// Equivalent: gridDim and blockDim of CUDA.
/// dtl: section(ffi/exec/kernel)
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_launch_t {
    /// sizeof(dtl_launch_t), set by DTL_LAUNCH_INIT.
    pub struct_size: u32,
    /// Shared memory per block in bytes; on OpenCL, of each `__local` argument. If it exceeds the
    /// limit of the device (host code: 64 MiB), the launch fails with DTL_ERROR_INVALID_ARGUMENT.
    pub shared_bytes: u32,
    /// Number of blocks in x, y, z; each at least 1.
    /// cbindgen:init={1, 1, 1}
    pub grid: [u32; 3],
    /// Number of threads per block in x, y, z; each at least 1.
    /// cbindgen:init={1, 1, 1}
    pub block: [u32; 3],
    /// DTL_SCHEDULE_... or a registered schedule. The default dispatcher's handler for it runs the
    /// grid (DTL_OPERATION_LAUNCH). For 0, and for a built-in schedule without a handler, the
    /// backend of the stream does.
    /// cbindgen:appended
    /// dtl: values(DTL_SCHEDULE_)
    pub schedule: dtl_enum_word_t,
}

/// Position of a call of a host kernel in its launch. Valid during the call only.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_kernel_context_t {
    /// sizeof(dtl_kernel_context_t) of the library. Read only fields that it covers.
    pub struct_size: u32,
    /// Size of `shared` in bytes.
    pub shared_bytes: u32,
    /// Number of blocks in x, y, z.
    pub grid: [u32; 3],
    /// Number of threads per block in x, y, z.
    pub block: [u32; 3],
    /// Index of this block: 0 to grid - 1.
    pub block_index: [u32; 3],
    /// Index of this thread in its block: 0 to block - 1.
    pub thread_index: [u32; 3],
    /// Shared memory of this block, zeroed before its first thread. NULL if none was requested.
    /// dtl: inout len(shared_bytes) opt(shared_bytes==0)
    pub shared: *mut c_void,
    /// `user` of `dtl_kernel_from_function`.
    /// dtl: opaque
    pub user: *mut c_void,
}

/// Host function of a kernel, called once for each thread of the grid.
///
/// `args[i]` points to a copy of the i-th argument, made at the launch. Thread: a worker of the
/// stream, which runs the threads of a block one after another. Threads of the library have a stack
/// of 2 MiB. Locks held: none. It may block. It must not throw, and must not wait for the stream
/// that it runs on.
/// dtl:args len(?)
pub type dtl_kernel_fn_t = Option<
    extern "C" fn(context: *const dtl_kernel_context_t, args: *const *const c_void) -> dtl_status_t,
>;

/// Record of a kernel launch, see `dtl_launch_history_read`. It is an element of an array, so it
/// never grows.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_launch_record_t {
    /// Number of the launch since the history began, from 1. The launches of one thread are
    /// numbered in the order in which they returned; launches of several threads that return within
    /// less than a millisecond may be numbered in another order. A number is missing if another
    /// thread accessed the launch's entry in the history at the moment at which the launch
    /// returned.
    pub number: u64,
    /// Time in nanoseconds at which the launch was called, on the clock of `dtl_comm_wtime`.
    pub call_begin_ns: u64,
    /// Time in nanoseconds at which the launch returned: the kernel was queued, and may not have
    /// run yet.
    pub call_end_ns: u64,
    /// Backend of the stream.
    pub backend: dtl_backend_t,
    /// Stream of the launch; the default stream if DTL_STREAM_NULL was passed. The program may have
    /// destroyed it since.
    pub stream: dtl_stream_t,
    /// Kernel of the launch. The program may have destroyed it since.
    pub kernel: dtl_kernel_t,
    /// Number of blocks in x, y, z.
    pub grid: [u32; 3],
    /// Number of threads per block in x, y, z.
    pub block: [u32; 3],
    /// Shared memory per block in bytes.
    pub shared_bytes: u32,
    /// Device of the stream.
    pub device: i32,
    /// Status that the launch returned. Failures of the running kernel are reported by the stream.
    pub status: dtl_status_t,
    /// Always 0.
    pub reserved0: u32,
    /// Name of the kernel in its module, cut to 63 bytes and NUL-terminated; "a function" for a
    /// kernel of `dtl_kernel_from_function`.
    pub name: [c_char; 64],
    /// Always 0.
    pub reserved1: [u64; 2],
}

/// File that accompanies a source, found by `#include "name"` and `#include <name>` before any file
/// on disk.
///
/// Use the whole name ("folder/x.h") in the files too, because not every compiler searches the
/// folder of the including file. It is an element of an array, so it never grows.
/// dtl: section(ffi/exec/module)
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_source_file_t {
    /// Name, such as "x.h" or "folder/x.h". No '/' at the beginning, no "..", and not
    /// "dtl_kernel.h", which the library provides.
    pub name: *const c_char,
    /// Text of the file. NULL = empty.
    /// dtl: len(?) opt(size_bytes==0)
    pub text: *const c_void,
    /// Size of `text` in bytes. 0 = up to its NUL.
    pub size_bytes: u64,
    /// Must be 0.
    pub reserved: u64,
}

/// Source for `dtl_module_compile`. Start from DTL_SOURCE_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_source_t {
    /// sizeof(dtl_source_t), set by DTL_SOURCE_INIT.
    pub struct_size: u32,
    /// Number of options, at most 1024.
    pub option_count: u32,
    /// DTL_LANGUAGE_...; 0 = whichever the backend compiles. The text then uses the macros of
    /// dtl_kernel.h and is C on the host, OpenCL C or CUDA C++ on a device.
    /// dtl: values(DTL_LANGUAGE_)
    pub language: dtl_enum_word_t,
    /// The text, or the bytes of a binary.
    /// dtl: len(?)
    pub text: *const c_void,
    /// Size of `text` in bytes. 0 = up to its NUL. A text in C, OpenCL C or CUDA C++ that contains
    /// a NUL fails with DTL_ERROR_INVALID_ARGUMENT.
    pub size_bytes: u64,
    /// Options for the compiler, appended to those of the library. Each is one word of the command
    /// line. NULL if there are none.
    /// dtl: len(option_count) opt(option_count==0)
    pub options: *const *const c_char,
    /// Name of the source in messages; NULL = "source".
    /// dtl: opt
    pub name: *const c_char,
    /// Files that accompany the source; NULL if there are none. Not for binaries, PTX and SPIR-V.
    /// cbindgen:appended
    /// dtl: len(file_count) opt(file_count==0)
    pub files: *const dtl_source_file_t,
    /// Environments ("name" or "name>=version") that the source needs; NULL if there are none.
    ///
    /// They are required before the compilation and released when the module is destroyed. Their
    /// header folders and those of their dependencies are searched after those of `options`. The
    /// compiler of the host links their libraries; that of a device links none.
    /// dtl: len(environment_count) opt(environment_count==0)
    pub environments: *const *const c_char,
    /// Number of files, at most 1024.
    pub file_count: u32,
    /// Number of environments, at most 256.
    pub environment_count: u32,
}

/// Receives a piece of text without a NUL. Called any number of times, one after another. `text` is
/// valid during the call only.
/// dtl:user opaque
/// dtl:text len(size_bytes)
pub type dtl_text_fn_t =
    Option<unsafe extern "C" fn(user: *mut c_void, text: *const c_char, size_bytes: u64)>;
