//! Helper functions for the reports: names of objects, and formatting of failures. They call the
//! safe Rust interface of the library.

use dtl_binding::sys::*;
use dtl_binding::{Backend, Error, Result, call, explain};
use std::ptr;

/// Formats a failed call for the reports: status and error message.
pub(crate) fn shown(error: &Error) -> String {
    format!("{}: {}", error.status, error.text)
}

/// Returns the default backend: the one that DTL_BACKEND names, or else the automatic choice.
pub(crate) fn default_backend() -> Result<Backend> {
    let mut handle = DTL_BACKEND_NULL;
    // SAFETY: NULL stands for the default; the output is a local.
    unsafe { call!(dtl_backend_get(ptr::null(), &raw mut handle)) }?;
    Ok(Backend::from_raw(handle))
}

/// Returns the reason why a backend cannot run here; `None` if it can. If the query itself fails,
/// its error message is the reason.
pub(crate) fn unavailable(backend: Backend) -> Option<String> {
    backend.unavailable().unwrap_or_else(|error| Some(error.text))
}

/// Returns the names of the components in a mask of DTL_COMPONENT_ bits.
pub(crate) fn component_names(components: u32) -> Vec<&'static str> {
    const NAMES: [(u32, &str); 5] = [
        (DTL_COMPONENT_DEVICE, "device"),
        (DTL_COMPONENT_MEMORY, "memory"),
        (DTL_COMPONENT_TRANSFER, "transfer"),
        (DTL_COMPONENT_EXEC, "exec"),
        (DTL_COMPONENT_COMM, "comm"),
    ];
    NAMES.iter().filter(|(bit, _)| components & bit != 0).map(|(_, name)| *name).collect()
}

/// Returns the automatic choice that `dtl_explain` lists under `topic`, with its reason.
pub(crate) fn explained(topic: &str) -> Option<String> {
    let start = format!("{topic}: ");
    explain().ok()?.lines().find_map(|line| line.strip_prefix(&start)).map(str::to_owned)
}
