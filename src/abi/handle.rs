//! Typed 64-bit handles. `{0}` is null; the number means nothing outside this process.

/// A backend: a built-in one or one that was registered. DTL_BACKEND_NULL in a call means the
/// calling thread's current backend: the last one given to `dtl_backend_set_device`, else
/// `dtl_backend_get(NULL)`; that again once the current one is unregistered.
/// dtl: ends(dtl_backend_unregister) section(ffi/library/backend)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_backend_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// An in-order queue of work on a device (Equivalent: cudaStream_t). DTL_STREAM_NULL in a call
/// means the default stream of the calling thread's current device.
/// dtl: ends(dtl_stream_destroy) section(ffi/exec/stream)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_stream_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// A point in a stream's work (Equivalent: cudaEvent_t).
/// dtl: ends(dtl_event_destroy) section(ffi/exec/event)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_event_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// Runs functions and loops on the host: inline, sequentially, on a pool, or on a backend's own
/// threads.
/// dtl: ends(dtl_executor_destroy) section(ffi/exec/executor)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_executor_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// A function that a stream can launch over a grid of blocks (Equivalent: CUfunction).
/// dtl: ends(dtl_kernel_destroy) section(ffi/exec/kernel)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_kernel_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// A group of ranks that exchange messages (Equivalent: MPI_Comm).
/// dtl: ends(dtl_comm_destroy) section(ffi/comm/communicator)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_comm_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// An operation in flight (Equivalent: MPI_Request). Stale once it has completed.
/// dtl: ends(dtl_request_wait|dtl_request_test|dtl_request_wait_any|dtl_request_destroy)
/// dtl: section(ffi/comm/request)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_request_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// A message that dtl_comm_mprobe has found and taken: dtl_comm_mrecv receives it (Equivalent:
/// MPI_Message).
/// dtl: ends(dtl_comm_mrecv|dtl_comm_imrecv) section(ffi/comm/p2p)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_message_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// Memory of a backend that is kept for later allocations (Equivalent: cudaMemPool_t).
/// dtl: ends(dtl_pool_destroy) section(ffi/memory/pool)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_pool_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// Memory of each rank of a communicator that the others read and change (Equivalent: MPI_Win).
/// dtl: ends(dtl_win_destroy) section(ffi/rma/window)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_win_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// Compiled source: kernels are taken out of it by name (Equivalent: CUmodule).
/// dtl: ends(dtl_module_destroy) section(ffi/exec/module)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_module_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// An array of a backend's memory: elements of one dtype with a shape and strides (Equivalent:
/// DLPack's DLTensor and what keeps its memory).
/// dtl: ends(dtl_array_destroy) section(ffi/memory/array)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_array_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// A policy that selects a resource for each task, and the resources it selects from.
/// dtl: ends(dtl_policy_release) section(ffi/dispatch/policy)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_policy_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// A table of handlers, and the rules by which one is chosen: see dtl_dispatch_key_t (Equivalent:
/// DaCe's TargetDispatcher).
/// dtl: ends(dtl_dispatcher_destroy) section(ffi/dispatch/library_ops)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_dispatcher_t {
    /// Opaque. 0 = null.
    pub id: u64,
}

/// A handler in a dispatcher.
/// dtl: ends(dtl_dispatch_unregister)
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_registration_t {
    /// Opaque. 0 = null.
    pub id: u64,
}
