//! Statuses: permanent numbers; the hundreds digit is the category.

/// Result of a call that can fail: DTL_SUCCESS (0) or a DTL_ERROR_ code. `dtl_status_name` returns
/// its name; `dtl_last_error` returns a text with the cause and the remedy.
pub type dtl_status_t = i32;

/// The call succeeded.
pub const DTL_SUCCESS: dtl_status_t = 0;
/// A name, backend or entry does not exist. The text lists the known ones.
pub const DTL_ERROR_NOT_FOUND: dtl_status_t = 1;

/// Communication failed, and no other code describes the failure. See the text.
pub const DTL_ERROR_COMMUNICATION: dtl_status_t = 100;
/// The time limit expired. After a blocking call that starts and completes an operation, nothing
/// accesses the caller's buffers any more. A request that was waited for continues: wait again, or
/// cancel it.
pub const DTL_ERROR_TIMEOUT: dtl_status_t = 106;
/// The operation was cancelled, or the object it waited on was destroyed by another thread.
pub const DTL_ERROR_CANCELED: dtl_status_t = 107;
/// The connection to a peer that is (or may be) alive was lost.
pub const DTL_ERROR_CONNECTION_LOST: dtl_status_t = 108;
/// A rank died or left. The text names it. Communicate with the others, or destroy the
/// communicator.
pub const DTL_ERROR_RANK_FAILURE: dtl_status_t = 109;
/// The message was longer than the receive buffer. The buffer is full, and the info has the true
/// size (with MPI's own messages, see dtl_comm_recv).
pub const DTL_ERROR_TRUNCATED: dtl_status_t = 112;
/// A rank has revoked the communicator (dtl_comm_revoke). The text names the rank. Call
/// dtl_comm_shrink, or destroy the communicator.
pub const DTL_ERROR_REVOKED: dtl_status_t = 113;

/// A memory operation failed, and no other code describes the failure. See the text.
pub const DTL_ERROR_MEMORY: dtl_status_t = 200;
/// There is not enough memory of this kind. Free some, or request less.
pub const DTL_ERROR_OUT_OF_MEMORY: dtl_status_t = 202;

/// The text buffer is too small. Only the required length was written.
pub const DTL_ERROR_BUFFER_TOO_SMALL: dtl_status_t = 303;

/// An index or range lies outside the object. The text has both.
pub const DTL_ERROR_OUT_OF_BOUNDS: dtl_status_t = 401;
/// A rank or root is not in the range 0 to size-1.
pub const DTL_ERROR_INVALID_RANK: dtl_status_t = 403;
/// An argument has an invalid value. The text names it and the allowed values.
pub const DTL_ERROR_INVALID_ARGUMENT: dtl_status_t = 410;
/// A pointer that must not be NULL is NULL.
pub const DTL_ERROR_NULL_POINTER: dtl_status_t = 411;
/// The handle is null, stale (destroyed), of another type, or was never created by this process.
pub const DTL_ERROR_INVALID_HANDLE: dtl_status_t = 412;
/// The name or rank is taken. Choose another, or pass DTL_REGISTER_REPLACE.
pub const DTL_ERROR_ALREADY_EXISTS: dtl_status_t = 413;
/// The dtype and the operation, or two dtypes, are incompatible.
pub const DTL_ERROR_TYPE: dtl_status_t = 414;
/// More than one candidate matches equally well. The text names them.
pub const DTL_ERROR_AMBIGUOUS: dtl_status_t = 415;
/// A fixed limit of the library is reached. The text names it.
pub const DTL_ERROR_LIMIT: dtl_status_t = 416;
/// The caller was built for an interface version that this library does not support.
pub const DTL_ERROR_INCOMPATIBLE_ABI: dtl_status_t = 417;
/// The object is in use. Finish or destroy its users, then call again.
pub const DTL_ERROR_BUSY: dtl_status_t = 418;
/// This backend or build does not support the operation, and nothing was done instead.
pub const DTL_ERROR_NOT_SUPPORTED: dtl_status_t = 420;

/// A backend failed, and no other code describes the failure. See the text.
pub const DTL_ERROR_BACKEND: dtl_status_t = 500;
/// The backend cannot run here. The text has the reason, as `dtl_backend_is_available` reports it.
pub const DTL_ERROR_UNAVAILABLE: dtl_status_t = 501;
/// The backend can run here, but failed to start.
pub const DTL_ERROR_INIT_FAILED: dtl_status_t = 502;
/// A device failed. It is unusable in this process from now on, and the contents of its memory are
/// lost. The text has the driver's reason. Destroy the objects created on it; use another device,
/// or start a new process.
pub const DTL_ERROR_DEVICE_LOST: dtl_status_t = 503;
/// The CUDA driver returned an error. The text has its code and name.
pub const DTL_ERROR_CUDA: dtl_status_t = 510;
/// OpenCL returned an error. The text has its code and name.
pub const DTL_ERROR_OPENCL: dtl_status_t = 515;
/// MPI returned an error. The text has its class and string.
pub const DTL_ERROR_MPI: dtl_status_t = 530;
/// NCCL returned an error. The text has its code and name.
pub const DTL_ERROR_NCCL: dtl_status_t = 540;
/// A verbs call or completion failed. The text has its code and name.
pub const DTL_ERROR_VERBS: dtl_status_t = 560;
/// A slot of a registered backend returned a number that is not a status, or wrote an invalid
/// output: a boolean other than 0 and 1, a source that is not a rank, or a match word that differs
/// from that of the receive. The text has the slot and the value.
pub const DTL_ERROR_NATIVE_BACKEND: dtl_status_t = 570;
/// The source of a kernel did not compile or link. The text has the first error of the compiler;
/// dtl_module_log has the whole log.
pub const DTL_ERROR_COMPILE_FAILED: dtl_status_t = 580;

/// The library has a bug (a caught panic). The text names the place; please report it.
pub const DTL_ERROR_INTERNAL: dtl_status_t = 900;
/// The slot exists in the interface, but this version does not implement it.
pub const DTL_ERROR_NOT_IMPLEMENTED: dtl_status_t = 901;
/// The call is not allowed in this state: after dtl_finalize without a new dtl_init, or in the
/// wrong order.
pub const DTL_ERROR_INVALID_STATE: dtl_status_t = 902;
/// This process is a fork of one that used the library. Call dtl_init_after_fork first.
pub const DTL_ERROR_FORKED: dtl_status_t = 903;
