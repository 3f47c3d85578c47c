//! Handles
//!
//! Typed 64-bit values. `{0}` is null. The number has no meaning outside this process.

/// Backend: a built-in or a registered one. In a call, DTL_BACKEND_NULL is the current backend of
/// the calling thread: the last one passed to `dtl_backend_set_device`, otherwise that of
/// `dtl_backend_get(NULL)`. The latter also applies after the current one is unregistered.
/// dtl: ends(dtl_backend_unregister) section(ffi/library/backend)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_backend_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// In-order queue of work on a device (Equivalent: cudaStream_t). In a call, DTL_STREAM_NULL is the
/// default stream of the calling thread's current device.
/// dtl: ends(dtl_stream_destroy) section(ffi/exec/stream)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_stream_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// Marker in the work of a stream (Equivalent: cudaEvent_t).
/// dtl: ends(dtl_event_destroy) section(ffi/exec/event)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_event_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// Executor, which runs functions and loops on the host: inline, sequentially, on a thread pool, or
/// on the threads of a backend.
/// dtl: ends(dtl_executor_destroy) section(ffi/exec/executor)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_executor_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// Function that a stream can launch over a grid of blocks (Equivalent: CUfunction).
/// dtl: ends(dtl_kernel_destroy) section(ffi/exec/kernel)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_kernel_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// Communicator: a group of ranks that exchange messages (Equivalent: MPI_Comm). The first call
/// that uses DTL_COMM_WORLD opens it, so even a local call may wait up to 30 s for the other ranks.
/// dtl: ends(dtl_comm_destroy) section(ffi/comm/communicator)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_comm_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// Operation in progress (Equivalent: MPI_Request). The handle becomes stale when a wait or test
/// returns the completion; a persistent one stays valid.
/// dtl: ends(dtl_request_wait|dtl_request_test|dtl_request_wait_any|dtl_request_destroy)
/// dtl: section(ffi/comm/request)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_request_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// Message that dtl_comm_mprobe has matched; dtl_comm_mrecv receives it (Equivalent: MPI_Message).
/// dtl: ends(dtl_comm_mrecv|dtl_comm_imrecv) section(ffi/comm/p2p)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_message_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// Memory pool: caches freed memory of a backend for later allocations. Equivalent: cudaMemPool_t.
/// dtl: ends(dtl_pool_destroy) section(ffi/memory/pool)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_pool_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// Window: memory of each rank of a communicator that the other ranks read and modify (Equivalent:
/// MPI_Win).
/// dtl: ends(dtl_win_destroy) section(ffi/rma/window)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_win_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// Compiled source, from which kernels are obtained by name. Equivalent: CUmodule.
/// dtl: ends(dtl_module_destroy) section(ffi/exec/module)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_module_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// Array in memory of a backend: elements of one dtype with a shape and strides (Equivalent:
/// DLPack's DLTensor and the owner of its memory).
/// dtl: ends(dtl_array_destroy) section(ffi/memory/array)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_array_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// Policy that selects a resource for each task, together with the resources it selects from.
/// dtl: ends(dtl_policy_release) section(ffi/dispatch/policy)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_policy_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// Dispatcher: a table of handlers and the rules that select one, see dtl_dispatch_key_t
/// (Equivalent: DaCe's TargetDispatcher).
/// dtl: ends(dtl_dispatcher_destroy) section(ffi/dispatch/library_ops)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_dispatcher_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// Registration of a handler in a dispatcher.
/// dtl: ends(dtl_dispatch_unregister)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_registration_t {
    /// Opaque. 0 = null.
    pub id: u64,
}
