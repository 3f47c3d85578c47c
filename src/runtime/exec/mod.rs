//! Execution: streams, events, executors, kernels.
//!
//! A backend may implement streams and events itself; the library identifies them by opaque tokens,
//! which only the exec component of the backend interprets. For other backends, the library
//! implements a stream as a worker thread and an event with a condition variable. The
//! implementation is selected when the object is created. [`stream`] and [`event`] contain generic
//! versions of the optional functions of a backend (slots of its function table), for backends that
//! omit them. A worker thread is created when its first work is queued.
//!
//! To follow a piece of work from its submission to its completion, read [`stream`] next; for loops
//! on the host, read [`executor`].
//!
//! In reading order:
//! - `fence`: completion of one piece of work
//! - `stream`: in-order queues of work, implemented by the library or a backend
//! - `event`: markers in streams, implemented by the library or a backend
//! - `deferred_errors`: failures of work that the library runs in the order of a backend's stream
//! - `executor`: host functions and loops
//! - `host`: the library's own threads
//! - `kernel`: kernels from functions
//! - `signature`: signatures of kernel arguments
//! - `module`: kernels from source
//! - `launch_history`: the last launches, for programs that inspect them
//! - `reentrancy`: the stream or executor whose work the calling thread runs
//! - `handles`: handles of streams, events, executors, kernels and modules, and their shutdown
//! - `mock`: fake backends for the tests

mod deferred_errors;
pub mod event;
pub mod executor;
pub mod fence;
pub mod handles;
pub mod host;
pub mod kernel;
pub mod launch_history;
pub mod module;
mod reentrancy;
pub mod signature;
pub mod stream;

#[cfg(test)]
#[path = "tests/mock.rs"]
mod mock;
#[cfg(test)]
mod tests;

use super::component::{Exec, HostExec};
use crate::abi::runtime::dtl_task_fn_t;
use crate::abi::status::*;
use crate::error::{Error, Result};
use crate::last_error::Mark;
use crate::runtime::device;
use crate::runtime::registry::Backend;
use crate::sys::memory::buf::Addr;
use std::sync::Arc;

/// Launch limits of a device. In every field, 0 = unknown or unlimited.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Maximum number of threads in one block.
    pub block_threads: u32,
    /// Maximum block size in threads, per dimension.
    pub block: [u32; 3],
    /// Maximum grid size in blocks, per dimension.
    pub grid: [u32; 3],
}

/// Makes a device current in the calling thread, which is a worker thread of the library.
fn bind(backend: &Backend, device: i32) -> Result<()> {
    if backend.device.is_some() { device::set(backend, device) } else { Ok(()) }
}

/// Returns the launch limits of a device of a backend.
fn limits(backend: &Backend, device: i32) -> Limits {
    match backend.device.is_some().then(|| device::info(backend, device)) {
        Some(Ok(info)) => Limits {
            block_threads: info.max_block_threads,
            block: info.max_block,
            grid: info.max_grid,
        },
        _ => Limits::default(), // a device that reports no information sets no limits
    }
}

/// Returns the exec component (streams, events, kernels) of a backend. The caller has a stream,
/// event or executor that uses this component, so a missing component is an internal error.
fn exec_of(backend: &Arc<Backend>) -> Result<&dyn Exec> {
    backend.exec.as_deref().ok_or_else(|| lost(backend))
}

/// Returns the host execution interface of a backend.
fn host_of(backend: &Arc<Backend>) -> Result<&dyn HostExec> {
    exec_of(backend)?.host().ok_or_else(|| lost(backend))
}

#[cold]
fn lost(backend: &Arc<Backend>) -> Error {
    Error::new(DTL_ERROR_INTERNAL, format!("backend '{}' lost its exec component", backend.name()))
}

/// Calls a user callback and converts its status to a result. `what` names the function in the
/// error message.
pub(super) fn outcome(
    call: impl FnOnce() -> dtl_status_t,
    what: impl FnOnce() -> String,
) -> Result<()> {
    let before = Mark::now();
    match call() {
        DTL_SUCCESS => Ok(()),
        status => Err(before.explain(failed(status, &what()))),
    }
}

/// Calls a host callback that the application queued on a stream.
pub fn host_callback(function: dtl_task_fn_t, user: Addr) -> Result<()> {
    let Some(function) = function else { return Ok(()) };
    outcome(|| function(user.ptr()), || "a stream's host callback".to_owned())
}

/// Creates the error for a failure status that a user callback returned.
#[cold]
pub(super) fn failed(status: dtl_status_t, what: &str) -> Error {
    Error::of_status(&format!("{what} returned"), status)
}
