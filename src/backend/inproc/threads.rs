//! Transport "threads": the ranks of one communicator in one process, all opened by one call.

use super::transport::endpoints;
use crate::error::{Result, fail};
use crate::runtime::component::{BackendProbe, Comm, OpenArgs, Transport};
use crate::runtime::registry::Backend;

/// Backend "threads": opens all ranks of a communicator at once.
struct Threads;

/// Creates the backend named "threads".
pub(super) fn backend() -> Backend {
    let mut backend = Backend::new(c"threads", i32::MIN, true, Box::new(Threads));
    backend.comm = Some(Box::new(Threads));
    backend
}

impl BackendProbe for Threads {}

impl Comm for Threads {
    fn open(&self, _args: &OpenArgs) -> Result<Box<dyn Transport>> {
        fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "kind \"threads\" opens all its ranks at once, in one process: call dtl_comm_threads \
             and give each thread its communicator"
        )
    }

    fn open_ranks(&self, size: i32) -> Option<Result<Vec<Box<dyn Transport>>>> {
        let boxed = |endpoint| -> Box<dyn Transport> { Box::new(endpoint) };
        Some(endpoints(size).map(|ends| ends.into_iter().map(boxed).collect()))
    }
}
