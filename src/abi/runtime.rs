//! Library-wide data: configuration, logging, versions.
//! dtl: section(ffi/library/runtime)

use super::status::dtl_status_t;
use std::ffi::{c_char, c_void};

/// Version of the binary interface: structs, tables and numbers. Backend tables and plugins that
/// were built for a higher version or for version 1 (libdtl 0.1) are refused (docs/abi.md).
pub const DTL_ABI_VERSION: u32 = 2;

/// Value of a `timeout_ns` parameter: no time limit.
pub const DTL_TIMEOUT_INFINITE: u64 = u64::MAX;

/// Log level: something is broken, and a call failed because of it.
pub const DTL_LOG_ERROR: i32 = 1;
/// Log level: something works, but less well or not as requested. The default.
pub const DTL_LOG_WARN: i32 = 2;
/// Log level: automatic choices and their reasons.
pub const DTL_LOG_INFO: i32 = 3;
/// Log level: everything.
pub const DTL_LOG_DEBUG: i32 = 4;
/// Log level: no lines. A threshold only: no line has this level.
pub const DTL_LOG_OFF: i32 = -1;

/// Receives log lines. It runs in any thread, possibly in several at once, with no lock held. It
/// may block (the logging call waits). It may call the library except dtl_finalize; if such a call
/// logs, the function is called recursively. It must not throw.
///
/// @param text  The line without a newline. Valid during the call only.
/// dtl:level values(DTL_LOG_ERROR|DTL_LOG_WARN|DTL_LOG_INFO|DTL_LOG_DEBUG)
/// dtl:user opaque
pub type dtl_log_fn_t = Option<extern "C" fn(level: i32, text: *const c_char, user: *mut c_void)>;

/// Configuration for `dtl_init`. Start from DTL_CONFIG_INIT. A field that is set overrides its
/// environment variable.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_config_t {
    /// sizeof(dtl_config_t), set by DTL_CONFIG_INIT.
    pub struct_size: u32,
    /// Level up to which lines are logged: DTL_LOG_...; 0 = from DTL_LOG, otherwise DTL_LOG_WARN.
    /// dtl: values(DTL_LOG_)
    pub log_level: i32,
    /// 1 makes a degraded automatic choice an error, -1 allows it; 0 = from DTL_STRICT, otherwise
    /// allowed.
    pub strict: i32,
    /// Must be 0.
    pub reserved: u32,
    /// Name to which `dtl_backend_get(NULL)` resolves; NULL = from DTL_BACKEND, otherwise "auto".
    /// Copied.
    /// dtl: opt
    pub backend: *const c_char,
    /// Kind that `dtl_comm_get_world` opens; NULL = from DTL_COMM, otherwise "auto". Copied.
    /// dtl: opt
    pub comm: *const c_char,
}

/// Function of the program that the library runs, for example in `dtl_executor_run`. The call that
/// takes it documents the thread. No lock is held. It must not throw.
///
/// @return DTL_SUCCESS, or a status, which the call that waits for the function returns. A number
///         that is not a status becomes DTL_ERROR_NATIVE_BACKEND; the text has the number.
/// dtl:user opaque
/// dtl: section(ffi/exec/stream)
pub type dtl_task_fn_t = Option<extern "C" fn(user: *mut c_void) -> dtl_status_t>;
