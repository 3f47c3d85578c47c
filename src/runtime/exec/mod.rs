//! Execution: streams, events, executors, kernels.
//!
//! A stream or event is the library's own (a worker thread and a condition variable) or a
//! backend's (a token that only its exec component understands); which one is decided once, when
//! it is made, by what the backend provides. The generic versions of the slots that a backend left
//! out are in [`stream`] and [`event`]. Nothing here creates a thread before there is work for it.
//!
//! Where next: [`stream`] for the life of a piece of work, [`executor`] for host loops.
//!
//! In reading order:
//! - `fence`: completion of one piece of work
//! - `stream`: streams: the library's queue or a backend's
//! - `event`: events: the library's or a backend's
//! - `deferred_errors`: failures of work that the library does in a backend's stream
//! - `executor`: host functions and loops
//! - `host`: the library's own threads
//! - `kernel`: kernels from functions
//! - `signature`: signatures of kernel arguments
//! - `module`: kernels from source
//! - `reentrancy`: the stream or executor that runs the calling thread's work
//! - `handles`: handles of all of these, and their shutdown
//! - `mock`: fake backends for the tests

mod deferred_errors;
pub mod event;
pub mod executor;
pub mod fence;
pub mod handles;
pub mod host;
pub mod kernel;
pub mod module;
mod reentrancy;
pub mod signature;
pub mod stream;

#[cfg(test)]
mod mock;
#[cfg(test)]
mod tests;

use super::component::{Exec, HostExec};
use crate::abi::devices::device::dtl_device_info_t;
use crate::abi::status::*;
use crate::error::{Error, Result};
use crate::last_error::Mark;
use crate::runtime::device;
use crate::runtime::registry::Backend;
use std::sync::Arc;

/// Largest launch that a device takes; 0 = unknown or unlimited.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Threads in one block.
    pub block_threads: u32,
    /// Block, per dimension.
    pub block: [u32; 3],
    /// Grid in blocks, per dimension.
    pub grid: [u32; 3],
}

/// Makes a device current in the calling thread (a worker of the library's own).
fn bind(home: &Backend, device: i32) -> Result<()> {
    if home.device.is_some() { device::set(home, device) } else { Ok(()) }
}

/// Limits of a backend's device.
fn limits(home: &Backend, device: i32) -> Limits {
    let mut info = no_info();
    match home.device.is_some().then(|| device::info(home, device, &mut info)) {
        Some(Ok(())) => Limits {
            block_threads: info.max_block_threads,
            block: info.max_block,
            grid: info.max_grid,
        },
        _ => Limits::default(), // a device that tells nothing sets no limits
    }
}

/// Returns true if two objects belong to the same backend.
fn same_home(a: &Arc<Backend>, b: &Arc<Backend>) -> bool {
    Arc::ptr_eq(a, b)
}

/// The exec component that a token came from.
fn exec_of(home: &Arc<Backend>) -> Result<&dyn Exec> {
    match home.exec.as_deref() {
        Some(exec) => Ok(exec),
        None => Err(lost(home)),
    }
}

/// A backend's own host execution.
fn host_of(home: &Arc<Backend>) -> Result<&dyn HostExec> {
    exec_of(home)?.host().ok_or_else(|| lost(home))
}

#[cold]
fn lost(home: &Arc<Backend>) -> Error {
    Error::new(DTL_ERROR_INTERNAL, format!("backend '{}' lost its exec component", home.name()))
}

/// Calls a function of the program. The error text names the function.
#[inline]
fn outcome(call: impl FnOnce() -> dtl_status_t, what: impl FnOnce() -> String) -> Result<()> {
    let before = Mark::now();
    match call() {
        DTL_SUCCESS => Ok(()),
        status => Err(before.explain(failed(status, &what()))),
    }
}

#[cold]
fn failed(status: dtl_status_t, what: &str) -> Error {
    Error::told(&format!("{what} returned"), status)
}

/// A device description with nothing in it.
fn no_info() -> dtl_device_info_t {
    dtl_device_info_t {
        struct_size: size_of::<dtl_device_info_t>() as u32,
        numa_node: -1,
        kind: 0,
        total_bytes: 0,
        compute_units: 0,
        max_block_threads: 0,
        max_block: [0; 3],
        max_grid: [0; 3],
        name: [0; 128],
        pci: [0; 32],
    }
}
