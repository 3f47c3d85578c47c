//! Transport "self": a single rank that can send only to itself.

use super::transport::endpoints;
use crate::error::{Result, fail};
use crate::runtime::component::{BackendProbe, Comm, OpenArgs, Transport};
use crate::runtime::registry::Backend;

/// Backend "self": opens a communicator with one rank.
pub(super) struct SelfComm;

/// Creates the backend named "self".
pub(super) fn backend() -> Backend {
    let mut backend = Backend::new(c"self", i32::MIN, true, Box::new(SelfComm));
    backend.comm = Some(Box::new(SelfComm));
    backend
}

impl BackendProbe for SelfComm {}

impl Comm for SelfComm {
    fn open(&self, args: &OpenArgs) -> Result<Box<dyn Transport>> {
        if let Some((rank, size)) = args.named {
            if (rank, size) != (0, 1) {
                return fail!(
                    DTL_ERROR_INVALID_ARGUMENT,
                    "rank {rank} of {size}: kind \"self\" has one rank, 0 of 1; choose kind \
                     \"shm\" or \"auto\""
                );
            }
        }
        match endpoints(1)?.pop() {
            Some(endpoint) => Ok(Box::new(endpoint)),
            None => fail!(DTL_ERROR_INTERNAL, "no endpoint was made"),
        }
    }
}
