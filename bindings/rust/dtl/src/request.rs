//! Operations in flight. Each request owns its buffer, so that the buffer outlives the operation.

use crate::comm::{EMPTY, Element};
use crate::{Result, call, sys};
use std::mem::ManuallyDrop;

/// Returns the buffers of a successful operation. Leaks those of a failed operation, because the
/// transport may still access them.
pub(crate) fn kept<B>(outcome: Result, buffers: B) -> Result<B> {
    let buffers = ManuallyDrop::new(buffers);
    outcome.map(|()| ManuallyDrop::into_inner(buffers))
}

/// Operation in flight with its buffer.
///
/// If a request is dropped before completion, the drop cancels the operation, or waits for it if
/// its message is already matched.
#[derive(Debug)]
pub struct Request<T: Element> {
    /// Handle of the request; null once the operation is complete.
    handle: sys::dtl_request_t,
    /// Buffer. Not dropped while the operation may access it.
    buffer: ManuallyDrop<Vec<T>>,
    /// True if the operation has completed successfully and no longer accesses the buffer.
    has_succeeded: bool,
}

impl<T: Element> Request<T> {
    pub(crate) fn new(handle: sys::dtl_request_t, buffer: Vec<T>) -> Request<T> {
        Request { handle, buffer: ManuallyDrop::new(buffer), has_succeeded: false }
    }

    /// Waits up to `timeout_ns` nanoseconds for the operation to complete. If the wait fails with
    /// DTL_ERROR_TIMEOUT, the operation continues.
    ///
    /// # Errors
    /// See `dtl_request_wait`.
    pub fn wait(&mut self, timeout_ns: u64) -> Result<sys::dtl_recv_info_t> {
        let mut info = EMPTY;
        // SAFETY: the output is a local.
        let ended = unsafe { call!(dtl_request_wait(self.handle, timeout_ns, &raw mut info)) };
        if ended.as_ref().is_err_and(|error| error.status == sys::DTL_ERROR_TIMEOUT) {
            return ended.map(|()| info);
        }
        self.end(ended, info)
    }

    /// Returns the result of `wait` if the operation is complete, else `None`.
    ///
    /// # Errors
    /// See `dtl_request_test`.
    pub fn test(&mut self) -> Result<Option<sys::dtl_recv_info_t>> {
        let (mut done, mut info) = (0, EMPTY);
        // SAFETY: the outputs are locals.
        let ended = unsafe { call!(dtl_request_test(self.handle, &raw mut done, &raw mut info)) };
        if ended.is_ok() && done == 0 {
            return Ok(None);
        }
        self.end(ended, info).map(Some)
    }

    fn end(&mut self, ended: Result, info: sys::dtl_recv_info_t) -> Result<sys::dtl_recv_info_t> {
        // Of a second call on a request that is over only the failure counts.
        if self.handle != sys::DTL_REQUEST_NULL {
            self.handle = sys::DTL_REQUEST_NULL;
            self.has_succeeded = ended.is_ok();
        }
        ended.map(|()| info)
    }

    /// Requests the cancellation of the operation. The operation still has to be waited for.
    ///
    /// # Errors
    /// See `dtl_request_cancel`.
    pub fn cancel(&self) -> Result {
        call!(dtl_request_cancel(self.handle))
    }

    /// Returns the whole buffer if the operation has completed successfully. Otherwise drops the
    /// request and returns `None`.
    #[must_use]
    pub fn into_buffer(mut self) -> Option<Vec<T>> {
        let buffer = std::mem::take(&mut *self.buffer);
        if self.has_succeeded {
            return Some(buffer);
        }
        // The drop decides what becomes of it.
        self.buffer = ManuallyDrop::new(buffer);
        None
    }
}

impl<T: Element> Drop for Request<T> {
    fn drop(&mut self) {
        let is_in_flight = self.handle != sys::DTL_REQUEST_NULL;
        let is_ended = is_in_flight && sys::dtl_request_destroy(self.handle) == sys::DTL_SUCCESS;
        if self.has_succeeded || is_ended {
            // SAFETY: nothing accesses the buffer any more, and it is dropped only here.
            unsafe { ManuallyDrop::drop(&mut self.buffer) };
        }
    }
}
