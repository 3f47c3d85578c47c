//! Environments: prerequisites of backends and kernel sources, started once and shared.
//! dtl: section(ffi/library/environment)

use crate::abi::status::dtl_status_t;
use std::ffi::{c_char, c_void};

/// Whether the environment can be used here. Must not fail on a machine that lacks it: DTL_SUCCESS
/// = it can be used; any other status (DTL_ERROR_UNAVAILABLE, mostly) = it cannot, and the reason
/// is written to `why` (`cap` bytes of room, at least 256). Thread: the one whose call needs the
/// result. Locks held: none. It may block, and may call the library.
/// dtl:user opaque
/// dtl:why out len(cap)
pub type dtl_environment_probe_fn_t =
    Option<unsafe extern "C" fn(user: *mut c_void, why: *mut c_char, cap: u64) -> dtl_status_t>;

/// Starts the environment; everything that it depends on has been started. `state` is its block:
/// state_size bytes of zeroes, NULL if that is 0. A status other than DTL_SUCCESS means that
/// nothing is left of it: finalize is not called; dtl_backend_set_error gives the text, else the
/// dtl_ call that failed with it. It may require other environments (never itself): those belong to
/// it, and are released when it has been finalised or has failed, unless it releases them itself.
/// Thread: the one that requires it first; others that require it wait. Locks held: none. It may
/// block, but not wait for a thread that requires this environment.
/// dtl:user opaque
/// dtl:state inout len(?) opt until(destroy)
pub type dtl_environment_init_fn_t =
    Option<unsafe extern "C" fn(user: *mut c_void, state: *mut c_void) -> dtl_status_t>;

/// Ends the environment; everything that it depends on is still there. The block is freed after it.
/// A status other than DTL_SUCCESS is logged and returned by the call that released it; the
/// environment has ended all the same. Thread: the one that releases it last, or the one in
/// dtl_finalize (where calls of the library return DTL_ERROR_INVALID_STATE). Locks held: none.
/// Never called in a forked child for what the parent started.
/// dtl:user opaque
/// dtl:state inout len(?) opt
pub type dtl_environment_finalize_fn_t =
    Option<unsafe extern "C" fn(user: *mut c_void, state: *mut c_void) -> dtl_status_t>;

/// An environment. Start from DTL_ENVIRONMENT_DESC_INIT. Lists and texts are copied.
///
/// Versions are compared as versions: number by number between the dots, missing ones are 0 (3.20
/// is newer than 3.18.1, and 3.1 is 3.1.0); what follows the numbers ("rc1") is passed over, as
/// CMake does.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_environment_desc_t {
    /// sizeof(dtl_environment_desc_t), set by DTL_ENVIRONMENT_DESC_INIT.
    pub struct_size: u32,
    /// Entries of `depends`; at most 256, as of the other lists.
    pub depends_count: u32,
    /// (required) 1 to 63 letters, digits, '_', '-' or '.'.
    pub name: *const c_char,
    /// It begins with a number; NULL = it has none, and nobody can ask for one.
    /// dtl: opt
    pub version: *const c_char,
    /// Environments that are started before this one, in this order: "name", or "name>=version".
    /// dtl: len(depends_count) opt(depends_count==0)
    pub depends: *const *const c_char,
    /// Packages that building with it needs, for readers of dtl_environment_at; the library does
    /// nothing with them.
    /// dtl: len(packages_count) opt(packages_count==0)
    pub packages: *const *const c_char,
    /// Folders of headers, as paths from '/': where source that names this environment
    /// (dtl_source_t) finds `#include`s.
    /// dtl: len(headers_count) opt(headers_count==0)
    pub headers: *const *const c_char,
    /// Libraries that such source is linked with on the host: a path from '/', or a name as after
    /// -l.
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
    /// Bytes of the state block; 0 = none. At most 2^30.
    pub state_size: u64,
    /// Its alignment: a power of two up to 4096; 0 = 16.
    pub state_align: u64,
    /// NULL = it can be used everywhere.
    /// dtl: opt until(unregister)
    pub probe: dtl_environment_probe_fn_t,
    /// NULL = there is nothing to start.
    /// dtl: opt until(unregister)
    pub init: dtl_environment_init_fn_t,
    /// NULL = there is nothing to end.
    /// dtl: opt until(unregister)
    pub finalize: dtl_environment_finalize_fn_t,
    /// Passed to the three; must live until the environment is unregistered or dtl_finalize has
    /// returned.
    /// dtl: opaque until(unregister)
    pub user: *mut c_void,
}

/// Nobody requires it.
pub const DTL_ENVIRONMENT_IDLE: i32 = 1;
/// Its init runs.
pub const DTL_ENVIRONMENT_STARTING: i32 = 2;
/// It is there.
pub const DTL_ENVIRONMENT_STARTED: i32 = 3;
/// Its finalize runs.
pub const DTL_ENVIRONMENT_STOPPING: i32 = 4;
/// Nobody has it: the last time that somebody required it failed, see `reason`.
pub const DTL_ENVIRONMENT_FAILED: i32 = 5;

/// What an environment is and how it is. Start from DTL_ENVIRONMENT_INFO_INIT. All texts live for
/// ever and are never NULL; lists are separated by ", ".
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_environment_info_t {
    /// sizeof(dtl_environment_info_t), set by DTL_ENVIRONMENT_INFO_INIT.
    pub struct_size: u32,
    /// DTL_ENVIRONMENT_IDLE ... _FAILED.
    /// dtl: values(DTL_ENVIRONMENT_)
    pub state: i32,
    /// The status of the last require that failed in its probe or init; DTL_SUCCESS after one that
    /// did not.
    pub status: dtl_status_t,
    /// 0.
    pub reserved: u32,
    /// How many require it: calls, environments that depend on it, modules, backends.
    pub uses: u64,
    /// Its name.
    /// dtl: lives(forever)
    pub name: *const c_char,
    /// Its version; empty if it has none.
    /// dtl: lives(forever)
    pub version: *const c_char,
    /// What it depends on.
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
    /// Why it failed; empty if it did not.
    /// dtl: lives(forever)
    pub reason: *const c_char,
}
