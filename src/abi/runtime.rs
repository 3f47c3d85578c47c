//! Library-wide data: configuration, logging, versions.
//! dtl: section(ffi/library/runtime)

use super::status::dtl_status_t;
use std::ffi::{c_char, c_void};

/// The version of the binary interface: structs, tables, numbers. A backend table or plugin built
/// for a higher one is refused; lower ones keep working as docs/abi.md describes.
pub const DTL_ABI_VERSION: u32 = 2;

/// No limit for a `timeout_ns` parameter.
pub const DTL_TIMEOUT_INFINITE: u64 = u64::MAX;

/// Something is broken and a call failed because of it.
pub const DTL_LOG_ERROR: i32 = 1;
/// Works, but less well or not as requested. The default level.
pub const DTL_LOG_WARN: i32 = 2;
/// Automatic choices and why they were made.
pub const DTL_LOG_INFO: i32 = 3;
/// Everything.
pub const DTL_LOG_DEBUG: i32 = 4;
/// Nothing at all (as a level only).
pub const DTL_LOG_OFF: i32 = -1;

/// Receives log lines. `text` is valid during the call only and has no newline. Thread: any,
/// possibly several at once. Locks held: none. It may block (the logging call waits); it may call
/// the library, except dtl_finalize, and what it logs itself comes back to it. It must not throw.
/// dtl:level values(DTL_LOG_ERROR|DTL_LOG_WARN|DTL_LOG_INFO|DTL_LOG_DEBUG)
/// dtl:user opaque
pub type dtl_log_fn_t = Option<extern "C" fn(level: i32, text: *const c_char, user: *mut c_void)>;

/// Configuration for `dtl_init`. Start from DTL_CONFIG_INIT. A field that is set wins over its
/// environment variable.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_config_t {
    /// sizeof(dtl_config_t), set by DTL_CONFIG_INIT.
    pub struct_size: u32,
    /// Lines of this level and below are logged: DTL_LOG_... ; 0 = from DTL_LOG, else warnings.
    /// dtl: values(DTL_LOG_)
    pub log_level: i32,
    /// 1: a degraded automatic choice is an error. -1: it is allowed. 0 = from DTL_STRICT, else
    /// allowed.
    pub strict: i32,
    /// Must be 0.
    pub reserved: u32,
    /// Name that `dtl_backend_get(NULL)` resolves to; NULL = from DTL_BACKEND, else "auto". Copied.
    /// dtl: opt
    pub backend: *const c_char,
    /// Kind that `dtl_comm_get_world` opens; NULL = from DTL_COMM, else "auto". Copied.
    /// dtl: opt
    pub comm: *const c_char,
}

/// A function run by the library on the caller's behalf, for example by `dtl_executor_run`. A
/// status other than DTL_SUCCESS is returned to the caller that waits for it. A number that is not
/// a status becomes DTL_ERROR_NATIVE_BACKEND, and the text has the number. Thread: see the function
/// that takes it. Locks held: none. It must not throw.
/// dtl:user opaque
/// dtl: section(ffi/exec/stream)
pub type dtl_task_fn_t = Option<extern "C" fn(user: *mut c_void) -> dtl_status_t>;
