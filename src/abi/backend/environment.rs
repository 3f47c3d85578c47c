//! Environments: prerequisites of backends and kernel sources, started once and shared.
//! dtl: section(ffi/library/environment)

use crate::abi::status::dtl_status_t;
use std::ffi::{c_char, c_void};

/// Checks whether an environment can be used here. It must not fail on a machine without the
/// environment. It runs in the thread whose call needs the result, with no lock held. It may block,
/// and may call the library.
///
/// @param why  Receives the reason if the environment cannot be used.
/// @param cap  Size of `why` in bytes, at least 256.
/// @return DTL_SUCCESS if the environment can be used. Any other status (usually
///         DTL_ERROR_UNAVAILABLE) if it cannot.
/// dtl:user opaque
/// dtl:why out len(cap)
pub type dtl_environment_probe_fn_t =
    Option<unsafe extern "C" fn(user: *mut c_void, why: *mut c_char, cap: u64) -> dtl_status_t>;

/// Starts an environment, after all its dependencies.
///
/// It may require other environments, but never itself. They then belong to this environment: they
/// are released after it has been finalised or has failed, unless it releases them itself. It runs
/// in the thread that requires the environment first; others that require it wait. No lock is held.
/// It may block, but must not wait for a thread that requires this environment.
///
/// @param state  The state block: state_size bytes, zeroed; NULL if state_size is 0.
/// @return DTL_SUCCESS. With any other status nothing of the environment may be left, because
///         finalize is not called. The error text is that of dtl_backend_set_error, otherwise that
///         of the dtl_ call that failed with the status.
/// dtl:user opaque
/// dtl:state inout len(?) opt until(destroy)
pub type dtl_environment_init_fn_t =
    Option<unsafe extern "C" fn(user: *mut c_void, state: *mut c_void) -> dtl_status_t>;

/// Finalises an environment, before its dependencies. The state block is freed afterwards.
///
/// It runs in the thread that releases the environment last, or in that of dtl_finalize (where
/// calls of the library return DTL_ERROR_INVALID_STATE). No lock is held. It is never called in a
/// forked child for an environment that the parent started.
///
/// @return DTL_SUCCESS. Any other status is logged and returned by the call that released the
///         environment, which has ended nevertheless.
/// dtl:user opaque
/// dtl:state inout len(?) opt
pub type dtl_environment_finalize_fn_t =
    Option<unsafe extern "C" fn(user: *mut c_void, state: *mut c_void) -> dtl_status_t>;

/// Description of an environment. Start from DTL_ENVIRONMENT_DESC_INIT. Lists and texts are copied.
///
/// Versions are compared number by number between the dots; missing numbers are 0 (3.20 is newer
/// than 3.18.1, and 3.1 equals 3.1.0). Text after the numbers ("rc1") is ignored, as in CMake.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_environment_desc_t {
    /// sizeof(dtl_environment_desc_t), set by DTL_ENVIRONMENT_DESC_INIT.
    pub struct_size: u32,
    /// Entries of `depends`; at most 256, as in the other lists.
    pub depends_count: u32,
    /// (required) Name: 1 to 63 letters, digits, '_', '-' or '.'; not "auto".
    pub name: *const c_char,
    /// Version, beginning with a number; NULL = none, and no version can be required.
    /// dtl: opt
    pub version: *const c_char,
    /// Environments that start before this one, in this order: "name" or "name>=version".
    /// dtl: len(depends_count) opt(depends_count==0)
    pub depends: *const *const c_char,
    /// Packages that a build needs, for readers of dtl_environment_at. The library does not use
    /// them.
    /// dtl: len(packages_count) opt(packages_count==0)
    pub packages: *const *const c_char,
    /// Folders of headers, as absolute paths. They are include folders for sources that name this
    /// environment (dtl_source_t).
    /// dtl: len(headers_count) opt(headers_count==0)
    pub headers: *const *const c_char,
    /// Libraries with which such sources are linked on the host: an absolute path, or a name as
    /// after -l.
    /// dtl: len(libraries_count) opt(libraries_count==0)
    pub libraries: *const *const c_char,
    /// Entries of `packages`.
    pub packages_count: u32,
    /// Entries of `headers`.
    pub headers_count: u32,
    /// Entries of `libraries`.
    pub libraries_count: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Size of the state block in bytes, at most 2^30; 0 = none.
    pub state_size: u64,
    /// Alignment of the state block: a power of two up to 4096; 0 = 16.
    pub state_align: u64,
    /// Function that checks availability; NULL = available everywhere.
    /// dtl: opt until(unregister)
    pub probe: dtl_environment_probe_fn_t,
    /// Function that starts the environment; NULL = there is nothing to start.
    /// dtl: opt until(unregister)
    pub init: dtl_environment_init_fn_t,
    /// Function that ends the environment; NULL = there is nothing to end.
    /// dtl: opt until(unregister)
    pub finalize: dtl_environment_finalize_fn_t,
    /// Passed to the three functions. It must live until the environment is unregistered or
    /// dtl_finalize has returned.
    /// dtl: opaque until(unregister)
    pub user: *mut c_void,
}

/// State of an environment: not started, and not required.
pub const DTL_ENVIRONMENT_IDLE: i32 = 1;
/// State of an environment: its init runs.
pub const DTL_ENVIRONMENT_STARTING: i32 = 2;
/// State of an environment: started.
pub const DTL_ENVIRONMENT_STARTED: i32 = 3;
/// State of an environment: its finalize runs.
pub const DTL_ENVIRONMENT_STOPPING: i32 = 4;
/// State of an environment: not started; the last attempt failed (see `reason`).
pub const DTL_ENVIRONMENT_FAILED: i32 = 5;

/// Description and state of an environment. Start from DTL_ENVIRONMENT_INFO_INIT. All texts are
/// valid until the process ends, and never NULL. Entries of lists are separated by ", ".
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_environment_info_t {
    /// sizeof(dtl_environment_info_t), set by DTL_ENVIRONMENT_INFO_INIT.
    pub struct_size: u32,
    /// DTL_ENVIRONMENT_IDLE to DTL_ENVIRONMENT_FAILED.
    /// dtl: values(DTL_ENVIRONMENT_)
    pub state: i32,
    /// Status of the last require that failed in the probe or init; DTL_SUCCESS after one that
    /// succeeded.
    pub status: dtl_status_t,
    /// 0.
    pub reserved: u32,
    /// Use count: calls of dtl_environment_require, dependent environments, modules and backends.
    pub uses: u64,
    /// Name.
    /// dtl: lives(forever)
    pub name: *const c_char,
    /// Version; empty if there is none.
    /// dtl: lives(forever)
    pub version: *const c_char,
    /// Dependencies.
    /// dtl: lives(forever)
    pub depends: *const c_char,
    /// Packages.
    /// dtl: lives(forever)
    pub packages: *const c_char,
    /// Folders of headers.
    /// dtl: lives(forever)
    pub headers: *const c_char,
    /// Libraries.
    /// dtl: lives(forever)
    pub libraries: *const c_char,
    /// Reason of the failure; empty if there was none.
    /// dtl: lives(forever)
    pub reason: *const c_char,
}
