//! Progress of writing the bytes of a send that was started before all of them were there.

use crate::abi::status::{DTL_SUCCESS, dtl_status_t};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// Shared by the thread that writes the bytes and the transport that sends them.
pub struct PipelinedSource {
    ready: AtomicUsize,
    failed: AtomicI32,
}

impl PipelinedSource {
    /// The first `ready` bytes are there.
    #[must_use]
    pub fn new(ready: usize) -> Self {
        PipelinedSource { ready: AtomicUsize::new(ready), failed: AtomicI32::new(DTL_SUCCESS) }
    }

    /// Records that so many bytes are there now. A thread that sees the number sees all that was
    /// written before this call.
    pub fn reach(&self, ready: usize) {
        self.ready.store(ready, Ordering::Release);
    }

    /// Bytes that are there.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.ready.load(Ordering::Acquire)
    }

    /// Records that no more bytes will come.
    pub fn fail(&self, status: dtl_status_t) {
        self.failed.store(status, Ordering::Release);
    }

    /// Returns why no more bytes will come; DTL_SUCCESS: they will.
    #[must_use]
    pub fn failure(&self) -> dtl_status_t {
        self.failed.load(Ordering::Acquire)
    }
}
