//! Statuses: permanent numbers; the hundreds digit is the category.

/// Result of every call that can fail: 0 is success, everything else one of the DTL_ERROR_ codes.
/// `dtl_status_name` names it; `dtl_last_error` tells what went wrong and what to do, in words.
pub type dtl_status_t = i32;

/// The call succeeded.
pub const DTL_SUCCESS: dtl_status_t = 0;
/// A name, backend or entry does not exist. The text lists the known ones.
pub const DTL_ERROR_NOT_FOUND: dtl_status_t = 1;

/// Communication failed in a way that no other code describes. See the text.
pub const DTL_ERROR_COMMUNICATION: dtl_status_t = 100;
/// The time limit passed first. Of a call that starts and ends an operation, nothing touches the
/// caller's buffers any more. A request that was waited for goes on (wait again, or cancel it).
pub const DTL_ERROR_TIMEOUT: dtl_status_t = 106;
/// The operation was cancelled, or the object it waited on was destroyed by another thread.
pub const DTL_ERROR_CANCELED: dtl_status_t = 107;
/// The connection to a peer that is (or may be) alive was lost.
pub const DTL_ERROR_CONNECTION_LOST: dtl_status_t = 108;
/// A rank died or left. The text names it. Talk to the living, or destroy the communicator.
pub const DTL_ERROR_RANK_FAILURE: dtl_status_t = 109;
/// The message was longer than the receive buffer: the buffer is full, the info tells the true size
/// (where messages are not MPI's own, see dtl_comm_recv).
pub const DTL_ERROR_TRUNCATED: dtl_status_t = 112;

/// A memory operation failed in a way that no other code describes. See the text.
pub const DTL_ERROR_MEMORY: dtl_status_t = 200;
/// Not enough memory of this kind. Free some, or ask for less.
pub const DTL_ERROR_OUT_OF_MEMORY: dtl_status_t = 202;

/// The text buffer is too small: nothing was written but the length needed.
pub const DTL_ERROR_BUFFER_TOO_SMALL: dtl_status_t = 303;

/// An index or range lies outside the object. The text gives both.
pub const DTL_ERROR_OUT_OF_BOUNDS: dtl_status_t = 401;
/// A rank or root is not in 0 ... size-1.
pub const DTL_ERROR_INVALID_RANK: dtl_status_t = 403;
/// An argument has a value that makes no sense here. The text names it and what is allowed.
pub const DTL_ERROR_INVALID_ARGUMENT: dtl_status_t = 410;
/// A pointer that must not be NULL is NULL.
pub const DTL_ERROR_NULL_POINTER: dtl_status_t = 411;
/// The handle is null, stale (destroyed), of another type, or was never made by this process.
pub const DTL_ERROR_INVALID_HANDLE: dtl_status_t = 412;
/// The name or rank is taken. Choose another, or pass DTL_REGISTER_REPLACE.
pub const DTL_ERROR_ALREADY_EXISTS: dtl_status_t = 413;
/// The dtype and the operation, or two dtypes, do not go together.
pub const DTL_ERROR_TYPE: dtl_status_t = 414;
/// More than one candidate fits equally well. The text names them.
pub const DTL_ERROR_AMBIGUOUS: dtl_status_t = 415;
/// A fixed limit of the library is reached. The text names it.
pub const DTL_ERROR_LIMIT: dtl_status_t = 416;
/// The caller was built against an interface that this library does not speak.
pub const DTL_ERROR_INCOMPATIBLE_ABI: dtl_status_t = 417;
/// The object is in use. Finish or destroy what uses it, then call again.
pub const DTL_ERROR_BUSY: dtl_status_t = 418;
/// This backend or build cannot do that, and nothing was done instead.
pub const DTL_ERROR_NOT_SUPPORTED: dtl_status_t = 420;

/// A backend failed in a way that no other code describes. See the text.
pub const DTL_ERROR_BACKEND: dtl_status_t = 500;
/// The backend cannot run here. The text gives the reason (`dtl_backend_is_available` too).
pub const DTL_ERROR_UNAVAILABLE: dtl_status_t = 501;
/// The backend could run here but failed to start.
pub const DTL_ERROR_INIT_FAILED: dtl_status_t = 502;
/// A device failed so that nothing can be done with it any more in this process, and what was in
/// its memory is gone. The text has the driver's reason. Destroy what was made on it; use another
/// device, or start a new process.
pub const DTL_ERROR_DEVICE_LOST: dtl_status_t = 503;
/// The CUDA driver answered an error. The text has its code and name.
pub const DTL_ERROR_CUDA: dtl_status_t = 510;
/// OpenCL answered an error. The text has its code and name.
pub const DTL_ERROR_OPENCL: dtl_status_t = 515;
/// MPI answered an error. The text has its class and string.
pub const DTL_ERROR_MPI: dtl_status_t = 530;
/// NCCL answered an error. The text has its code and name.
pub const DTL_ERROR_NCCL: dtl_status_t = 540;
/// A verbs call or completion failed. The text has its code and name.
pub const DTL_ERROR_VERBS: dtl_status_t = 560;
/// A slot of a registered (native) backend returned a number that is not a status, or wrote an
/// invalid output: a boolean other than 0 and 1, a source that is not a rank, or a match word that
/// differs from the receive's. The text has slot and value.
pub const DTL_ERROR_NATIVE_BACKEND: dtl_status_t = 570;
/// A kernel's source did not compile or link. The text has the compiler's first error;
/// dtl_module_log has all.
pub const DTL_ERROR_COMPILE_FAILED: dtl_status_t = 580;

/// A bug in the library (a caught panic). The text names the place; please report it.
pub const DTL_ERROR_INTERNAL: dtl_status_t = 900;
/// The slot exists in the interface but this version does not implement it.
pub const DTL_ERROR_NOT_IMPLEMENTED: dtl_status_t = 901;
/// The call is not allowed in this state: before dtl_init after a dtl_finalize, or out of order.
pub const DTL_ERROR_INVALID_STATE: dtl_status_t = 902;
/// This process is a fork of one that used the library. Call dtl_init_after_fork first.
pub const DTL_ERROR_FORKED: dtl_status_t = 903;
