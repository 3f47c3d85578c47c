//! Write progress of a send that was started before all of its bytes were written.

use crate::abi::status::{DTL_SUCCESS, dtl_status_t};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// Write progress of a pipelined send, shared by the writing thread and the sending transport.
pub struct PipelinedSource {
    ready: AtomicUsize,
    failed: AtomicI32,
}

impl PipelinedSource {
    /// Creates the object that tracks the write progress of a send whose first `ready` bytes are
    /// already written.
    pub fn new(ready: usize) -> Self {
        PipelinedSource { ready: AtomicUsize::new(ready), failed: AtomicI32::new(DTL_SUCCESS) }
    }

    /// Sets the number of bytes written so far to `ready`, with release ordering. A thread that
    /// reads this number with [`PipelinedSource::ready`] sees all writes before this call.
    pub fn reach(&self, ready: usize) {
        self.ready.store(ready, Ordering::Release);
    }

    /// Returns the number of bytes written so far, from the front of the message. The load has
    /// acquire ordering.
    pub fn ready(&self) -> usize {
        self.ready.load(Ordering::Acquire)
    }

    /// Ends the transfer with the failure `status`: no more bytes will be written.
    pub fn fail(&self, status: dtl_status_t) {
        self.failed.store(status, Ordering::Release);
    }

    /// Returns the status with which the transfer failed; DTL_SUCCESS if it has not failed.
    pub fn failure(&self) -> dtl_status_t {
        self.failed.load(Ordering::Acquire)
    }
}
