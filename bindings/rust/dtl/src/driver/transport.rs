//! Communication: the trait of the communication table.
//!
//! The buffer of an operation belongs to a value ([`Outgoing`], [`Incoming`]). The operation is
//! complete when the transport gives that value up, so safe code cannot access the buffer of a
//! completed operation.

use super::slot::{Address, In, Last, New, Out, failed, function_of, present, size, slots};
use super::{Driver, Table};
use crate::{Error, Result, sys};
use std::ffi::{CStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::slice;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Communicators of a driver (`dtl_comm_vtable_t`): messages between ranks. [`Table::transport`]
/// adds them. The library builds matching of tags, collectives and windows on it.
///
/// Rules of the header that the types do not express:
/// - Messages from one rank under one match word are received in the order in which they were sent,
///   by the receives in the order in which they were posted.
/// - A rank may send to itself.
/// - If a rank dies, every operation that can no longer complete fails with [`Outgoing::lost`] or
///   [`Incoming::lost`], and so does the oldest receive from any rank, or the next one if there is
///   none.
/// - Only `open` and `close` may block. No function may call the library for a communicator.
///
/// Functions are called from any thread, for each communicator by one thread at a time.
pub trait Transport: Driver {
    /// A communicator.
    type Comm: Send + 'static;

    /// Opens a communicator. It is collective over the ranks, and may wait for them up to the time
    /// limit. All ranks of a job open in the same order; count the communicators of each job name.
    ///
    /// # Errors
    /// DTL_ERROR_TIMEOUT, with a text that names the missing ranks. DTL_ERROR_INVALID_ARGUMENT if
    /// there are several ranks and no job name by which they could find each other.
    fn open(&self, request: OpenRequest<'_>) -> Result<Opened<Self::Comm>>;

    /// Closes a communicator. What it has sent must still arrive, also at ranks that receive it
    /// later.
    ///
    /// # Errors
    /// The status and text of `dtl_comm_destroy`.
    fn close(&self, comm: Self::Comm) -> Result {
        drop(comm);
        Ok(())
    }

    /// Starts a send. Transmit as much as possible immediately.
    ///
    /// # Errors
    /// DTL_ERROR_BUSY if there is no room now: the library calls again later. Any other status is
    /// the failure of the send. If `message` still exists after a failure or a panic, the send has
    /// started.
    fn send(&self, comm: &mut Self::Comm, message: Outgoing) -> Result;

    /// Starts a receive.
    ///
    /// # Errors
    /// See [`Transport::send`].
    fn receive(&self, comm: &mut Self::Comm, message: Incoming) -> Result;

    /// Makes progress on all operations of a communicator, without blocking.
    ///
    /// # Errors
    /// A status for the call that waits; all operations continue. A transport that has failed ends
    /// its operations instead.
    fn progress(&self, comm: &mut Self::Comm) -> Result;

    /// Requests cancellation of the receive with this [`Incoming::id`], which then ends with
    /// [`Incoming::fail`] and DTL_ERROR_CANCELED, or normally. `None`: the library completes each
    /// such receive by a message from the rank to itself.
    const CANCEL: Option<fn(&Self, &mut Self::Comm, u64) -> Result> = None;
}

/// Arguments of [`Transport::open`].
#[derive(Debug)]
#[non_exhaustive]
pub struct OpenRequest<'a> {
    /// Rank and number of ranks that the program or its launcher assigned, if any. Without them the
    /// communicator has one rank, unless the transport knows better.
    pub place: Option<(i32, i32)>,
    /// Flags of `dtl_comm_desc_t`.
    pub flags: u64,
    /// Name of the job, equal on all ranks; empty if there is none.
    pub job: &'a [u8],
    /// Time limit of the wait for the other ranks, at most 30 s.
    pub timeout: Duration,
    /// `config` of `dtl_comm_desc_t`.
    pub config: *mut c_void,
}

/// Result of [`Transport::open`].
#[derive(Debug)]
pub struct Opened<C> {
    /// The communicator.
    pub comm: C,
    /// Rank of this process, from 0 to `size` - 1.
    pub rank: i32,
    /// Number of ranks.
    pub size: i32,
}

/// Result of an operation.
pub(super) struct Outcome {
    result: sys::dtl_comm_done_t,
    error: Option<Error>,
}

/// The transport's half of an operation. The library's half is the number of the operation, a
/// pointer to the same place.
#[derive(Debug)]
pub(super) struct Completion(Arc<OnceLock<Outcome>>);

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outcome").field("error", &self.error).finish_non_exhaustive()
    }
}

impl Completion {
    pub(super) fn set(&self, source: i32, match_word: u64, bytes: usize, error: Option<Error>) {
        let status = error.as_ref().map_or(sys::DTL_SUCCESS, |error| error.status.0);
        let size_bytes = bytes as u64;
        let result = sys::dtl_comm_done_t { source, status, match_word, size_bytes };
        let _ = self.0.set(Outcome { result, error }); // one operation ends once
    }

    pub(super) fn id(&self) -> u64 {
        Arc::as_ptr(&self.0).expose_provenance() as u64
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if self.0.get().is_none() {
            let text = "the transport dropped the operation without a result";
            self.set(0, 0, 0, Some(Error::new(sys::DTL_ERROR_COMMUNICATION, text)));
        }
    }
}

/// A message to send, with its buffer. Dropping it ends the send with DTL_ERROR_COMMUNICATION.
///
/// The bytes cannot be accessed after the end:
/// ```compile_fail,E0505
/// fn late(message: dtl_binding::driver::Outgoing) -> u8 {
///     let bytes = message.bytes();
///     message.complete();
///     bytes[0]
/// }
/// ```
#[derive(Debug)]
pub struct Outgoing {
    dest: i32,
    match_word: u64,
    bytes: *const u8,
    size: usize,
    completion: Completion,
}

// SAFETY: the library allows the access to the buffer from any thread.
unsafe impl Send for Outgoing {}
// SAFETY: the bytes do not change while the value exists.
unsafe impl Sync for Outgoing {}

impl Outgoing {
    /// Returns the rank to which the message goes, which may be this one.
    #[must_use]
    pub fn dest(&self) -> i32 {
        self.dest
    }

    /// Returns the match word, below 2^28.
    #[must_use]
    pub fn match_word(&self) -> u64 {
        self.match_word
    }

    /// Returns the bytes to send.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        if self.size == 0 {
            return &[];
        }
        // SAFETY: the buffer is valid and does not change until the operation is complete, which it
        // is when this value is given up.
        unsafe { slice::from_raw_parts(self.bytes, self.size) }
    }

    /// Ends the send: the buffer is no longer needed, and the message will arrive.
    pub fn complete(self) {
        self.completion.set(0, self.match_word, self.size, None);
    }

    /// Ends the send with a failure.
    pub fn fail(self, error: Error) {
        self.completion.set(0, self.match_word, 0, Some(error));
    }

    /// Ends the send with DTL_ERROR_RANK_FAILURE: the destination has died.
    pub fn lost(self) {
        let rank = self.dest;
        self.completion.set(rank, self.match_word, 0, Some(rank_failure(rank)));
    }
}

/// A posted receive, with its buffer. Dropping it ends the receive with DTL_ERROR_COMMUNICATION.
///
/// The buffer cannot be written after the end:
/// ```compile_fail,E0382
/// fn late(mut message: dtl_binding::driver::Incoming) {
///     message.complete(0, 8);
///     message.write(0, &[1]);
/// }
/// ```
#[derive(Debug)]
pub struct Incoming {
    source: Option<i32>,
    match_word: u64,
    bytes: *mut u8,
    capacity: usize,
    completion: Completion,
}

// SAFETY: the library allows the access to the buffer from any thread.
unsafe impl Send for Incoming {}
// SAFETY: the buffer is accessed through an exclusive reference only.
unsafe impl Sync for Incoming {}

impl Incoming {
    /// Returns the rank whose message is wanted; `None` for any.
    #[must_use]
    pub fn source(&self) -> Option<i32> {
        self.source
    }

    /// Returns the match word. A message matches if it has the same one.
    #[must_use]
    pub fn match_word(&self) -> u64 {
        self.match_word
    }

    /// Returns true if the receive is for a message of this source and match word.
    #[must_use]
    pub fn matches(&self, source: i32, match_word: u64) -> bool {
        self.match_word == match_word && self.source.is_none_or(|wanted| wanted == source)
    }

    /// Returns the number by which [`Transport::CANCEL`] identifies the receive.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.completion.id()
    }

    /// Returns the size of the buffer in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the address of the buffer, for a transport that receives into it directly. It may be
    /// accessed until the value is given up.
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes
    }

    /// Copies a part of the message into the buffer, at byte `offset`. What does not fit is dropped.
    pub fn write(&mut self, offset: usize, part: &[u8]) {
        let room = self.capacity.saturating_sub(offset).min(part.len());
        if room > 0 {
            let into = self.bytes.wrapping_add(offset);
            // SAFETY: the buffer has `room` bytes at `offset`. It is valid, and nothing else accesses
            // it, until the operation is complete, which it is when this value is given up.
            unsafe { ptr::copy_nonoverlapping(part.as_ptr(), into, room) };
        }
    }

    /// Copies a whole message into the buffer and ends the receive. A message that is larger than
    /// the buffer is cut, and the receive ends with DTL_ERROR_TRUNCATED.
    pub fn deliver(mut self, source: i32, message: &[u8]) {
        self.write(0, message);
        self.complete(source, message.len());
    }

    /// Ends the receive: the buffer has the message, of `size` bytes in truth. If that is more than
    /// the buffer has, the status is DTL_ERROR_TRUNCATED.
    pub fn complete(self, source: i32, size: usize) {
        let error = (size > self.capacity).then(|| {
            let text = format!("the message has {size} bytes, the buffer {}", self.capacity);
            Error::new(sys::DTL_ERROR_TRUNCATED, text)
        });
        self.completion.set(source, self.match_word, size, error);
    }

    /// Ends the receive with a failure.
    pub fn fail(self, error: Error) {
        self.completion.set(self.source.unwrap_or(0), self.match_word, 0, Some(error));
    }

    /// Ends the receive with DTL_ERROR_RANK_FAILURE: `rank` has died.
    pub fn lost(self, rank: i32) {
        self.completion.set(rank, self.match_word, 0, Some(rank_failure(rank)));
    }
}

pub(super) fn rank_failure(rank: i32) -> Error {
    Error::new(
        sys::DTL_ERROR_RANK_FAILURE,
        format!("rank {rank} has closed its connection or died"),
    )
}

/// Starts an operation by passing the transport's half to `start`. Returns its number.
pub(super) fn begin(start: impl FnOnce(Completion) -> Result) -> Result<u64> {
    let own = Arc::new(OnceLock::new());
    let other = Completion(Arc::clone(&own));
    let started = catch_unwind(AssertUnwindSafe(|| start(other)));
    // After a failure the library considers the buffer unused, which is true if the other half is
    // gone. Otherwise the operation has started.
    let is_over = Arc::strong_count(&own) == 1;
    match started {
        Ok(Err(error)) if is_over => return Err(error),
        Err(panic) if is_over => resume_unwind(panic),
        _ => {}
    }
    Ok(Arc::into_raw(own).expose_provenance() as u64)
}

/// Returns the library's half of an operation in flight.
///
/// # Safety
/// `op` must be a number from `begin` that [`end`] has not got.
unsafe fn operation<'a>(op: u64) -> &'a OnceLock<Outcome> {
    // SAFETY: `begin` exposed this address, whose target lives until `end`.
    unsafe { &*ptr::with_exposed_provenance::<OnceLock<Outcome>>(size(op)) }
}

/// Ends an operation.
///
/// # Safety
/// See [`operation`].
unsafe fn end(op: u64) {
    // SAFETY: `begin` has not taken this reference back.
    drop(unsafe { Arc::from_raw(ptr::with_exposed_provenance::<OnceLock<Outcome>>(size(op))) });
}

slots! {
    fn open<Transport>(
        driver, given: In<'_, sys::dtl_comm_open_t>, out: New<'_, D::Comm>,
        out_rank: Out<'_, i32>, out_size: Out<'_, i32>,
    ) {
        let given = given.0;
        // SAFETY: the text ends with NUL, and is never NULL.
        let job = unsafe { CStr::from_ptr(given.job) };
        let opened = driver.open(OpenRequest {
            place: (given.size >= 0).then_some((given.rank, given.size)),
            flags: given.flags,
            job: job.to_bytes(),
            timeout: Duration::from_nanos(given.timeout_ns),
            config: given.config,
        })?;
        out.set(opened.comm);
        out_rank.set(opened.rank);
        out_size.set(opened.size);
        Ok(())
    }
    fn close<Transport>(driver, comm: Last<D::Comm>) {
        driver.close(comm.into_inner())
    }
    fn isend<Transport>(
        driver, comm: &mut D::Comm, bytes: Address<*const c_void>, count: u64, dest: i32,
        match_word: u64, out: Out<'_, u64>,
    ) {
        let (bytes, size) = (bytes.0.cast(), size(count));
        out.set(begin(|completion| {
            driver.send(comm, Outgoing { dest, match_word, bytes, size, completion })
        })?);
        Ok(())
    }
    fn irecv<Transport>(
        driver, comm: &mut D::Comm, bytes: Address<*mut c_void>, count: u64, source: i32,
        match_word: u64, _ignore: u64, out: Out<'_, u64>,
    ) {
        let (bytes, capacity) = (bytes.0.cast(), size(count));
        let source = (source != sys::DTL_ANY_SOURCE).then_some(source);
        out.set(begin(|completion| {
            driver.receive(comm, Incoming { source, match_word, bytes, capacity, completion })
        })?);
        Ok(())
    }
    fn test<Transport>(
        driver, comm: &mut D::Comm, op: u64, out_done: Out<'_, i32>,
        out_result: Out<'_, sys::dtl_comm_done_t>,
    ) {
        // SAFETY: the library tests operations that have started and not ended.
        let operation = unsafe { operation(op) };
        // The last progress may have completed this one, too.
        if operation.get().is_none() {
            driver.progress(comm)?;
        }
        let Some(outcome) = operation.get() else {
            out_done.set_bool(false);
            return Ok(());
        };
        if let Some(error) = &outcome.error {
            failed(error); // passes the text; the status is in the result
        }
        out_result.set(outcome.result);
        out_done.set_bool(true);
        // SAFETY: the operation has ended, and the library forgets its number.
        unsafe { end(op) };
        Ok(())
    }
    fn cancel<Transport>(driver, comm: &mut D::Comm, op: u64) {
        function_of(D::CANCEL)?(driver, comm, op)
    }
}

impl<D: Transport> Table<D> {
    /// Adds the communicators.
    #[must_use]
    pub fn transport(mut self) -> Self {
        let table = self.tables.comm.get_or_insert(sys::DTL_COMM_VTABLE_INIT);
        table.open = Some(open::<D>);
        table.close = Some(close::<D>);
        table.isend = Some(isend::<D>);
        table.irecv = Some(irecv::<D>);
        table.test = Some(test::<D>);
        table.cancel = present(D::CANCEL, cancel::<D>);
        self
    }
}
