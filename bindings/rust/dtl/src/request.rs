//! Operations in flight. Each owns its buffer, so that the buffer lives at least as long.

use crate::comm::{EMPTY, Element};
use crate::{Result, call, sys};
use std::mem::ManuallyDrop;

/// Returns the buffers of an operation that succeeded, and leaks those of one that failed: its
/// transport may still access them.
pub(crate) fn kept<B>(outcome: Result, buffers: B) -> Result<B> {
    let buffers = ManuallyDrop::new(buffers);
    outcome.map(|()| ManuallyDrop::into_inner(buffers))
}

/// An operation in flight, with its buffer.
///
/// Dropped before it is done, it is cancelled, or waited for if the message has been matched.
#[derive(Debug)]
pub struct Request<T: Element> {
    /// Null when the operation is over.
    handle: sys::dtl_request_t,
    /// Dropped by nobody while the operation may access it.
    buffer: ManuallyDrop<Vec<T>>,
    /// Whether the operation is over and has given the buffer back.
    has_succeeded: bool,
}

impl<T: Element> Request<T> {
    pub(crate) fn new(handle: sys::dtl_request_t, buffer: Vec<T>) -> Request<T> {
        Request { handle, buffer: ManuallyDrop::new(buffer), has_succeeded: false }
    }

    /// Waits until the operation is done, at most `timeout_ns`. After DTL_ERROR_TIMEOUT it goes on.
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

    /// Whether the operation is done: `None`, or what `wait` returns.
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

    /// Tries to cancel the operation, which still has to be waited for.
    ///
    /// # Errors
    /// See `dtl_request_cancel`.
    pub fn cancel(&self) -> Result {
        call!(dtl_request_cancel(self.handle))
    }

    /// The whole buffer, if the operation is done and has succeeded; else the request is dropped.
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
