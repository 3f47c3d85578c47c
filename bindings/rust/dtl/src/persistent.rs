//! Persistent requests: messages that are started again and again, with the same buffer.

use crate::lend::{close, lend, lent};
use crate::message::{EMPTY, Received};
use crate::scope::{OpenRequests, Scope};
use crate::{Comm, Dtype, Error, Result, sys};
use std::fmt;
use std::marker::PhantomData;
use std::slice;

/// Persistent send or receive in a [`Scope`], from [`Scope::send_init`] or [`Scope::recv_init`].
///
/// ```
/// # use dtl_binding::Comm;
/// # fn main() -> dtl_binding::Result {
/// let comm = Comm::world()?;
/// let (rank, size) = (comm.rank()?, comm.size()?);
/// let (mut edge, mut halo) = ([0.0; 8], [0.0; 8]);
/// dtl_binding::scope(|s| {
///     let mut receive = s.recv_init(&comm, &mut halo, (rank + size - 1) % size, 1)?;
///     let mut send = s.send_init(&comm, &mut edge, (rank + 1) % size, 1)?;
///     for step in 0..10 {
///         receive.start()?;
///         send.elements()?.fill(f64::from(step));
///         send.start()?;
///         send.wait()?;
///         receive.wait()?;
///         assert_eq!(receive.elements()?[0], f64::from(step));
///     }
///     Ok(())
/// })
/// # }
/// ```
///
/// If it is dropped while it is active, the operation is cancelled; if it cannot be cancelled, the
/// drop waits for it.
pub struct Persistent<'scope, T> {
    open: &'scope OpenRequests,
    /// Index of the entry in `open`.
    index: usize,
    handle: sys::dtl_request_t,
    /// Address of the elements. The library keeps it, so every access is made through it.
    at: *mut T,
    count: usize,
    /// Number of waits for all requests of the scope before the start; `None`: inactive.
    started: Option<u64>,
    life: PhantomData<&'scope mut [T]>,
}

impl<T> fmt::Debug for Persistent<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Persistent").field("handle", &self.handle).finish_non_exhaustive()
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Creates an inactive persistent send. Each start sends what the buffer has then.
    ///
    /// # Errors
    /// See `dtl_comm_send_init`.
    pub fn send_init<T: Dtype>(
        &'scope self,
        comm: &'scope Comm,
        buf: &'scope mut [T],
        dest: i32,
        tag: i32,
    ) -> Result<Persistent<'scope, T>> {
        self.check()?;
        let (comm, mut handle, dtype) = (comm.raw(), sys::DTL_REQUEST_NULL, T::dtype()?);
        let (count, at, out) = (buf.len(), buf.as_mut_ptr(), &raw mut handle);
        let (from, elements) = (at.cast_const().cast(), count as u64);
        // SAFETY: `count` elements, borrowed until the scope has ended the request.
        unsafe { lend!(dtl_comm_send_init(comm, from, elements, dtype, dest, tag, out)) }?;
        Ok(self.persistent(handle, at, count))
    }

    /// Creates an inactive persistent receive.
    ///
    /// # Errors
    /// See `dtl_comm_recv_init`.
    pub fn recv_init<T: Dtype>(
        &'scope self,
        comm: &'scope Comm,
        buf: &'scope mut [T],
        source: i32,
        tag: i32,
    ) -> Result<Persistent<'scope, T>> {
        self.check()?;
        let (comm, mut handle, dtype) = (comm.raw(), sys::DTL_REQUEST_NULL, T::dtype()?);
        let (count, at, out) = (buf.len(), buf.as_mut_ptr(), &raw mut handle);
        let (into, elements) = (at.cast(), count as u64);
        // SAFETY: room for `count` elements, borrowed until the scope has ended the request.
        unsafe { lend!(dtl_comm_recv_init(comm, into, elements, dtype, source, tag, out)) }?;
        Ok(self.persistent(handle, at, count))
    }

    fn persistent<T>(
        &'scope self,
        handle: sys::dtl_request_t,
        at: *mut T,
        count: usize,
    ) -> Persistent<'scope, T> {
        let (open, index) = self.open(handle);
        Persistent { open, index, handle, at, count, started: None, life: PhantomData }
    }
}

impl<T: Dtype> Persistent<'_, T> {
    /// Starts the message.
    ///
    /// # Errors
    /// See `dtl_request_start`.
    pub fn start(&mut self) -> Result {
        // SAFETY: the buffer is borrowed until the scope has ended the request, and no slice of
        // `elements` exists, as it would be a borrow of this value.
        unsafe { lend!(dtl_request_start(self.handle)) }?;
        self.started = Some(self.open.waits());
        Ok(())
    }

    /// Waits until the message is complete. Then it is inactive, also after a failure of the message.
    ///
    /// # Errors
    /// See `dtl_request_wait`.
    pub fn wait(&mut self) -> Result<Received> {
        let mut info = EMPTY;
        let (limit, out) = (sys::DTL_TIMEOUT_INFINITE, &raw mut info);
        // SAFETY: the output is a local.
        let status = unsafe { sys::dtl_request_wait(self.handle, limit, out) };
        let outcome = lent("dtl_request_wait", status);
        // After a failure of the transport, the request may still be in flight.
        if outcome.is_ok() || matches!(self.test(), Ok(Some(_))) {
            self.started = None;
        }
        outcome.map(|()| info.into())
    }

    /// Checks whether the message is complete. Does not block. If it is, it is inactive.
    ///
    /// # Errors
    /// See `dtl_request_test`.
    pub fn test(&mut self) -> Result<Option<Received>> {
        let (mut done, mut info) = (0, EMPTY);
        // SAFETY: the outputs are locals.
        let status = unsafe { sys::dtl_request_test(self.handle, &raw mut done, &raw mut info) };
        if done != 0 {
            self.started = None;
        }
        lent("dtl_request_test", status).map(|()| (done != 0).then(|| info.into()))
    }

    /// Returns the elements of the buffer, to fill or to read them: before the first start, and after
    /// [`Persistent::wait`], a successful [`Persistent::test`] or [`Scope::wait_all`].
    ///
    /// # Errors
    /// DTL_ERROR_INVALID_STATE: the message is active, so its buffer is in use.
    pub fn elements(&mut self) -> Result<&mut [T]> {
        if self.started == Some(self.open.waits()) {
            let text = "the request is active, and its buffer in use: wait for it first";
            return Err(Error::state("Persistent::elements", text.to_owned()));
        }
        // SAFETY: the buffer is borrowed for the scope, and an inactive request does not access it.
        // The request is not started during the borrow, which is one of this value.
        Ok(unsafe { slice::from_raw_parts_mut(self.at, self.count) })
    }
}

impl<T> Drop for Persistent<'_, T> {
    fn drop(&mut self) {
        self.open.remove(self.index, self.handle);
        close(self.handle);
    }
}
