//! Nonblocking operations, whose buffers are borrowed until the end of a scope.

use crate::lend::{close, lend, lent};
use crate::library::KeepOpen;
use crate::message::{EMPTY, Message, Received};
use crate::{Buffer, BufferMut, Comm, Dtype, Error, Event, Result, sys};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

/// Scope of nonblocking operations, see [`scope()`].
pub struct Scope<'scope, 'env: 'scope> {
    open: OpenRequests,
    /// Error of all operations, if the scope was opened while the library was being finalized.
    closing: Option<Error>,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// Requests of a scope that no wait has completed.
#[derive(Default)]
pub(crate) struct OpenRequests {
    /// Their handles. A null entry is free.
    entries: RefCell<Vec<sys::dtl_request_t>>,
    /// Number of successful waits for all of them, after which persistent requests are inactive.
    waits: Cell<u64>,
}

impl OpenRequests {
    /// Returns the number of successful waits for all requests.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.get()
    }

    /// Adds a request. Returns the index of its entry.
    fn add(&self, request: sys::dtl_request_t) -> usize {
        let mut entries = self.entries.borrow_mut();
        entries.push(request);
        entries.len() - 1
    }

    /// Frees the entry of a request that is complete.
    pub(crate) fn remove(&self, index: usize, request: sys::dtl_request_t) {
        let mut entries = self.entries.borrow_mut();
        if let Some(entry) = entries.get_mut(index).filter(|entry| **entry == request) {
            *entry = sys::DTL_REQUEST_NULL;
        }
        while entries.last() == Some(&sys::DTL_REQUEST_NULL) {
            entries.pop();
        }
    }
}

/// Ends all requests of a scope when it is dropped: at the end of the scope, or when it unwinds.
struct CloseAll<'a>(&'a OpenRequests);

impl Drop for CloseAll<'_> {
    fn drop(&mut self) {
        let requests = std::mem::take(&mut *self.0.entries.borrow_mut());
        requests.into_iter().filter(|one| *one != sys::DTL_REQUEST_NULL).for_each(close);
    }
}

/// Opens a scope for nonblocking operations: their buffers are borrowed until the scope ends.
///
/// At its end, also if the closure panics, no operation of the scope is in flight any more. Those
/// that were not waited for are cancelled, or completed if they cannot be cancelled: wait for the
/// operations whose effect matters, each with [`Request::wait`] or all with [`Scope::wait_all`].
///
/// ```
/// # use dtl_binding::Comm;
/// # fn main() -> dtl_binding::Result {
/// let comm = Comm::world()?;
/// let (rank, size) = (comm.rank()?, comm.size()?);
/// let (mut halo, edge) = ([0.0; 8], [f64::from(rank); 8]);
/// dtl_binding::scope(|s| {
///     let receive = s.irecv(&comm, &mut halo, (rank + size - 1) % size, 1)?;
///     let send = s.isend(&comm, &edge, (rank + 1) % size, 1)?;
///     send.wait()?;
///     receive.wait()?;
///     Ok(())
/// })?;
/// assert_eq!(halo[0], f64::from((rank + size - 1) % size));
/// # Ok(())
/// # }
/// ```
///
/// A buffer that is in use cannot be accessed. A receive buffer cannot be read:
///
/// ```compile_fail,E0502
/// # use dtl_binding::{Comm, Result};
/// # fn wrong(comm: &Comm) -> Result {
/// let mut buf = [0_u8; 8];
/// dtl_binding::scope(|s| {
///     let receive = s.irecv(comm, &mut buf, 0, 1)?;
///     println!("{}", buf[0]);
///     receive.wait().map(drop)
/// })
/// # }
/// ```
///
/// A send buffer cannot be written:
///
/// ```compile_fail,E0506
/// # use dtl_binding::{Comm, Result};
/// # fn wrong(comm: &Comm) -> Result {
/// let mut value = 1_u64;
/// dtl_binding::scope(|s| {
///     let send = s.isend(comm, &value, 0, 1)?;
///     value = 2;
///     send.wait().map(drop)
/// })
/// # }
/// ```
///
/// Nor can it be written after its request was leaked:
///
/// ```compile_fail,E0506
/// # use dtl_binding::{Comm, Result};
/// # fn wrong(comm: &Comm) -> Result {
/// let mut value = 1_u64;
/// dtl_binding::scope(|s| {
///     std::mem::forget(s.isend(comm, &value, 0, 1)?);
///     value = 2;
///     Ok(())
/// })
/// # }
/// ```
///
/// It cannot be moved:
///
/// ```compile_fail,E0505
/// # use dtl_binding::{Comm, Result};
/// # fn wrong(comm: &Comm) -> Result {
/// let buf = vec![1_u64; 8];
/// dtl_binding::scope(|s| {
///     let send = s.isend(comm, &buf, 0, 1)?;
///     let moved = buf;
///     send.wait()?;
///     drop(moved);
///     Ok(())
/// })
/// # }
/// ```
///
/// It cannot be dropped, nor can it be a variable of the closure, which would be dropped before the
/// scope ends:
///
/// ```compile_fail,E0505
/// # use dtl_binding::{Comm, Result};
/// # fn wrong(comm: &Comm) -> Result {
/// let mut buf = vec![1_u64; 8];
/// dtl_binding::scope(|s| {
///     let receive = s.irecv(comm, &mut buf, 0, 1)?;
///     drop(buf);
///     receive.wait().map(drop)
/// })
/// # }
/// ```
/// ```compile_fail,E0597
/// # use dtl_binding::{Comm, Result};
/// # fn wrong(comm: &Comm) -> Result {
/// dtl_binding::scope(|s| {
///     let mut buf = vec![1_u64; 8];
///     s.irecv(comm, &mut buf, 0, 1)?.wait().map(drop)
/// })
/// # }
/// ```
///
/// A request cannot leave its scope:
///
/// ```compile_fail
/// # use dtl_binding::{Comm, Result};
/// # fn wrong(comm: &Comm) -> Result {
/// let value = 1_u64;
/// let send = dtl_binding::scope(|s| s.isend(comm, &value, 0, 1))?;
/// send.wait().map(drop)
/// # }
/// ```
pub fn scope<'env, F, R>(f: F) -> R
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
{
    // Dropped last: no request is in flight when the library may be finalized.
    let keep = KeepOpen::enter("scope");
    let closing = keep.as_ref().err().cloned();
    let open = OpenRequests::default();
    let scope = Scope { open, closing, scope: PhantomData, env: PhantomData };
    let _close = CloseAll(&scope.open);
    f(&scope)
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("open", &self.open.entries).finish_non_exhaustive()
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Fails if the scope was opened while the library was being finalized: it cannot keep the
    /// library from ending.
    pub(crate) fn check(&self) -> Result {
        self.closing.clone().map_or(Ok(()), Err)
    }

    /// Adds a request to this scope. Returns the list of requests, and the index of the entry.
    pub(crate) fn open(&'scope self, handle: sys::dtl_request_t) -> (&'scope OpenRequests, usize) {
        (&self.open, self.open.add(handle))
    }

    /// Makes a started operation a request of this scope.
    ///
    /// # Safety
    /// `buffer` must be valid for reads and writes for `'scope`, apart from what the operation
    /// accesses, and nothing else may access it.
    pub(crate) unsafe fn request<R: ?Sized>(
        &'scope self,
        handle: sys::dtl_request_t,
        buffer: *mut R,
    ) -> Request<'scope, R> {
        let (open, index) = self.open(handle);
        Request { open, index, handle, buffer, life: PhantomData }
    }

    /// Makes a started operation that writes no buffer a request of this scope.
    pub(crate) fn request_of_send(&'scope self, handle: sys::dtl_request_t) -> Request<'scope, ()> {
        // SAFETY: a value without size is valid at every aligned address.
        unsafe { self.request(handle, NonNull::dangling().as_ptr()) }
    }

    /// Starts a send.
    ///
    /// # Errors
    /// See `dtl_comm_isend`.
    pub fn isend<B: Buffer + ?Sized>(
        &'scope self,
        comm: &'scope Comm,
        buf: &'scope B,
        dest: i32,
        tag: i32,
    ) -> Result<Request<'scope, ()>> {
        self.check()?;
        let (comm, mut handle, dtype) = (comm.raw(), sys::DTL_REQUEST_NULL, B::Element::dtype()?);
        let (at, count, out) = (buf.as_ptr().cast(), buf.count() as u64, &raw mut handle);
        // SAFETY: `count` elements, borrowed until the scope has ended the request.
        unsafe { lend!(dtl_comm_isend(comm, at, count, dtype, dest, tag, out)) }?;
        Ok(self.request_of_send(handle))
    }

    /// Starts a synchronous send: it is complete when a matching receive has started to take the
    /// message.
    ///
    /// # Errors
    /// See `dtl_comm_issend`.
    pub fn issend<B: Buffer + ?Sized>(
        &'scope self,
        comm: &'scope Comm,
        buf: &'scope B,
        dest: i32,
        tag: i32,
    ) -> Result<Request<'scope, ()>> {
        self.check()?;
        let (comm, mut handle, dtype) = (comm.raw(), sys::DTL_REQUEST_NULL, B::Element::dtype()?);
        let (at, count, out) = (buf.as_ptr().cast(), buf.count() as u64, &raw mut handle);
        // SAFETY: `count` elements, borrowed until the scope has ended the request.
        unsafe { lend!(dtl_comm_issend(comm, at, count, dtype, dest, tag, out)) }?;
        Ok(self.request_of_send(handle))
    }

    /// Starts a send that begins when the work before the latest record of an event is complete.
    ///
    /// # Errors
    /// See `dtl_comm_isend_on`.
    pub fn isend_on<B: Buffer + ?Sized>(
        &'scope self,
        comm: &'scope Comm,
        buf: &'scope B,
        dest: i32,
        tag: i32,
        event: &Event,
    ) -> Result<Request<'scope, ()>> {
        self.check()?;
        let (comm, mut handle, dtype) = (comm.raw(), sys::DTL_REQUEST_NULL, B::Element::dtype()?);
        let (at, count, out) = (buf.as_ptr().cast(), buf.count() as u64, &raw mut handle);
        let event = event.raw();
        // SAFETY: `count` elements, borrowed until the scope has ended the request.
        unsafe { lend!(dtl_comm_isend_on(comm, at, count, dtype, dest, tag, event, out)) }?;
        Ok(self.request_of_send(handle))
    }

    /// Starts a receive from `source` (or DTL_ANY_SOURCE) with `tag` (or DTL_ANY_TAG). The message
    /// may be shorter than the buffer.
    ///
    /// # Errors
    /// See `dtl_comm_irecv`.
    pub fn irecv<B: BufferMut + ?Sized>(
        &'scope self,
        comm: &'scope Comm,
        buf: &'scope mut B,
        source: i32,
        tag: i32,
    ) -> Result<Request<'scope, B>> {
        self.check()?;
        let (comm, mut handle, dtype) = (comm.raw(), sys::DTL_REQUEST_NULL, B::Element::dtype()?);
        let (buffer, count, out) = (ptr::from_mut(buf), buf.count() as u64, &raw mut handle);
        // SAFETY: the borrow that `buffer` was made from.
        let at = unsafe { &mut *buffer }.as_mut_ptr().cast();
        // SAFETY: room for `count` elements, borrowed until the scope has ended the request.
        unsafe { lend!(dtl_comm_irecv(comm, at, count, dtype, source, tag, out)) }?;
        // SAFETY: the buffer is borrowed exclusively for `'scope`.
        Ok(unsafe { self.request(handle, buffer) })
    }

    /// Starts to receive a message from [`Comm::mprobe`].
    ///
    /// # Errors
    /// See `dtl_comm_imrecv`.
    pub fn imrecv<B: BufferMut + ?Sized>(
        &'scope self,
        message: Message<'scope>,
        buf: &'scope mut B,
    ) -> Result<Request<'scope, B>> {
        self.check()?;
        let (mut handle, dtype) = (sys::DTL_REQUEST_NULL, B::Element::dtype()?);
        let (buffer, count, out) = (ptr::from_mut(buf), buf.count() as u64, &raw mut handle);
        // SAFETY: the borrow that `buffer` was made from.
        let at = unsafe { &mut *buffer }.as_mut_ptr().cast();
        // SAFETY: room for `count` elements, borrowed until the scope has ended the request.
        unsafe { lend!(dtl_comm_imrecv(message.raw(), at, count, dtype, out)) }?;
        // SAFETY: the buffer is borrowed exclusively for `'scope`.
        Ok(unsafe { self.request(handle, buffer) })
    }

    /// Waits until all operations of the scope are complete. Their buffers can be accessed after the
    /// scope. Persistent requests are inactive then; after a failure, wait for each of them.
    ///
    /// # Errors
    /// See `dtl_request_wait_all`: the first failure.
    pub fn wait_all(&self) -> Result {
        let mut left = self.open.entries.borrow().clone();
        let (at, count) = (left.as_mut_ptr(), left.len() as u64);
        let (limit, none) = (sys::DTL_TIMEOUT_INFINITE, ptr::null_mut());
        // SAFETY: `count` handles, which the call replaces; no information is wanted.
        let status = unsafe { sys::dtl_request_wait_all(at, count, limit, none) };
        let outcome = lent("dtl_request_wait_all", status);
        // What is not complete after a failure stays in the scope, at its index.
        let all = self.open.entries.replace(left.clone());
        if outcome.is_err() {
            let ended = all.into_iter().zip(left).filter(|(one, left)| one != left);
            ended.for_each(|(one, _)| close(one));
        }
        self.open.remove(usize::MAX, sys::DTL_REQUEST_NULL);
        outcome?;
        self.open.waits.set(self.open.waits.get() + 1);
        Ok(())
    }
}

/// Completed operation of a scope.
#[derive(Debug)]
pub struct Completed<'scope, B: ?Sized> {
    /// Envelope and size of the message; meaningful for receives only.
    pub received: Received,
    /// Buffer that the operation has written. It can be used again in the scope.
    pub buffer: &'scope mut B,
}

/// Operation in flight in a [`Scope`]. `B` is the buffer that it writes, `()` if it writes none.
///
/// If a request is dropped before completion, the operation is cancelled; if it cannot be cancelled,
/// the drop waits for it.
#[must_use = "dropping it cancels the operation"]
pub struct Request<'scope, B: ?Sized> {
    open: &'scope OpenRequests,
    /// Index of the entry in `open`.
    index: usize,
    handle: sys::dtl_request_t,
    /// Buffer that the operation writes. No reference, because the operation accesses it meanwhile.
    buffer: *mut B,
    life: PhantomData<&'scope mut B>,
}

impl<B: ?Sized> fmt::Debug for Request<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("handle", &self.handle).finish_non_exhaustive()
    }
}

impl<'scope, B: ?Sized> Request<'scope, B> {
    /// Waits until the operation is complete.
    ///
    /// # Errors
    /// See `dtl_request_wait`. The buffer can be accessed after the scope.
    pub fn wait(mut self) -> Result<Completed<'scope, B>> {
        let mut info = EMPTY;
        let (limit, out) = (sys::DTL_TIMEOUT_INFINITE, &raw mut info);
        // SAFETY: the output is a local.
        let status = unsafe { sys::dtl_request_wait(self.handle, limit, out) };
        // After a failure, the drop ends what may be in flight.
        lent("dtl_request_wait", status)?;
        self.end(false);
        Ok(self.complete(info))
    }

    /// Waits for at most `timeout_ns` nanoseconds. Returns `None` if the operation is not complete
    /// then: it continues.
    ///
    /// # Errors
    /// See `dtl_request_wait`; DTL_ERROR_INVALID_STATE after the completion.
    pub fn wait_for(&mut self, timeout_ns: u64) -> Result<Option<Completed<'scope, B>>> {
        let mut info = EMPTY;
        self.in_flight("dtl_request_wait")?;
        // SAFETY: the output is a local.
        let status = unsafe { sys::dtl_request_wait(self.handle, timeout_ns, &raw mut info) };
        let is_limit = status == sys::DTL_ERROR_TIMEOUT && timeout_ns != sys::DTL_TIMEOUT_INFINITE;
        let outcome = lent("dtl_request_wait", status);
        if outcome.is_err() && !is_limit && status != sys::DTL_ERROR_BUSY {
            close(self.handle);
        }
        self.end(is_limit || status == sys::DTL_ERROR_BUSY);
        match outcome {
            Err(_) if is_limit => Ok(None),
            outcome => outcome.map(|()| Some(self.complete(info))),
        }
    }

    /// Checks whether the operation is complete. Does not block. Call it no more after it has
    /// returned `Some` or an error.
    ///
    /// # Errors
    /// See `dtl_request_test`; DTL_ERROR_INVALID_STATE after the completion.
    pub fn test(&mut self) -> Result<Option<Completed<'scope, B>>> {
        let (mut done, mut info) = (0, EMPTY);
        self.in_flight("dtl_request_test")?;
        // SAFETY: the outputs are locals.
        let status = unsafe { sys::dtl_request_test(self.handle, &raw mut done, &raw mut info) };
        self.end(done == 0);
        lent("dtl_request_test", status)?;
        Ok((done != 0).then(|| self.complete(info)))
    }

    /// Gives up the buffer until the end of the scope. Requests of operations on different types of
    /// buffers can then be in one list, for [`wait_any`](crate::wait_any).
    pub fn without_buffer(mut self) -> Request<'scope, ()> {
        let (open, index) = (self.open, self.index);
        let handle = std::mem::replace(&mut self.handle, sys::DTL_REQUEST_NULL);
        Request { open, index, handle, buffer: NonNull::dangling().as_ptr(), life: PhantomData }
    }

    /// Returns the handle; null after the completion.
    pub(crate) fn raw(&self) -> sys::dtl_request_t {
        self.handle
    }

    /// Takes the outcome of a wait for several requests: `left` is what the wait has left of the
    /// handle, null if the operation is complete.
    pub(crate) fn take(
        &mut self,
        left: sys::dtl_request_t,
        outcome: Result<sys::dtl_recv_info_t>,
    ) -> Result<Completed<'scope, B>> {
        let continues = left != sys::DTL_REQUEST_NULL;
        if outcome.is_err() && !continues {
            close(self.handle);
        }
        let info = outcome.inspect_err(|_| self.end(continues))?;
        self.end(false);
        Ok(self.complete(info))
    }

    /// Requests the cancellation of the operation. It still has to be waited for.
    ///
    /// # Errors
    /// See `dtl_request_cancel`.
    pub fn cancel(&self) -> Result {
        lent("dtl_request_cancel", sys::dtl_request_cancel(self.handle))
    }

    /// Fails if the completion was returned before.
    fn in_flight(&self, call: &'static str) -> Result {
        if self.handle != sys::DTL_REQUEST_NULL {
            return Ok(());
        }
        let text = "the request is complete, and its result was returned before";
        Err(Error::state(call, text.to_owned()))
    }

    /// Removes the request from its scope unless it continues.
    fn end(&mut self, continues: bool) {
        if !continues {
            self.open.remove(self.index, self.handle);
            self.handle = sys::DTL_REQUEST_NULL;
        }
    }

    /// Returns the result of an operation that has just been completed successfully.
    fn complete(&self, info: sys::dtl_recv_info_t) -> Completed<'scope, B> {
        // SAFETY: the buffer is borrowed for `'scope`, nothing accesses it any more, and a request
        // is completed once only: its handle is null afterwards, which `in_flight` refuses and a
        // wait for several requests skips.
        Completed { received: info.into(), buffer: unsafe { &mut *self.buffer } }
    }
}

impl<B: ?Sized> Drop for Request<'_, B> {
    fn drop(&mut self) {
        if self.handle != sys::DTL_REQUEST_NULL {
            self.open.remove(self.index, self.handle);
            close(self.handle);
        }
    }
}
