//! Communication: the trait of the communication table.
//!
//! The buffer of an operation belongs to a value ([`Outgoing`], [`Incoming`]). The operation is
//! complete when the transport gives that value up, so safe code cannot access the buffer of a
//! completed operation. A failure that ends all operations releases buffers only if no other value of
//! the communicator exists, see `Link::status`.

use super::slot::{
    Address, In, Last, New, Out, failed, function_of, panic_error, present, size, slots,
};
use super::{Driver, Table};
use crate::{Error, Result, sys};
use std::collections::BTreeSet;
use std::ffi::{CStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::slice;
use std::sync::atomic::{Ordering, fence};
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
/// - If a receive from any rank, or a send with match word 0, fails in another way, the whole
///   transport has failed. End all operations of the communicator before the next function of this
///   trait returns: the library then ends its own with the status. Otherwise it gets
///   DTL_ERROR_NATIVE_BACKEND with the text of the failure, keeps the buffers of the operations that
///   still exist, and a blocking call whose buffer is among them aborts the process.
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

    /// Requests cancellation of the receive with this [`Incoming::id`], which is then
    /// completed with [`Incoming::fail`] and DTL_ERROR_CANCELED, or normally. `None`: the library completes each
    /// such receive by a message from the rank to itself.
    const CANCEL: Option<fn(&Self, &mut Self::Comm, u64) -> Result> = None;
}

/// Arguments of [`Transport::open`].
#[derive(Debug)]
#[non_exhaustive]
pub struct OpenRequest<'a> {
    /// Rank and number of ranks that the program or its launcher assigned, if any. Without them the
    /// communicator has one rank, unless the transport has its own rank and size.
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

/// Communicator of a driver, with what decides whether a failure releases buffers.
#[derive(Debug)]
pub(super) struct Link<C> {
    pub(super) comm: C,
    /// One reference is here. Each operation value that exists has another.
    values: Arc<()>,
    /// Number of receives from any rank that failed because a rank died, and these ranks.
    lost: usize,
    dead: BTreeSet<i32>,
}

/// Number of receives from any rank that may fail because of one death, as the header defines it.
const LOST_BY_ONE_DEATH: usize = 16;

impl<C> Link<C> {
    fn new(comm: C) -> Self {
        Link { comm, values: Arc::new(()), lost: 0, dead: BTreeSet::new() }
    }

    /// Returns true if operation values exist.
    fn has_values(&self) -> bool {
        let has_values = Arc::strong_count(&self.values) > 1;
        // What was done with the values that have gone is over before the library reuses buffers.
        fence(Ordering::Acquire);
        has_values
    }

    /// Returns the status of an operation that has failed. If the failure ends all operations, the
    /// library releases all buffers. While an operation value can access one of them, the status is
    /// DTL_ERROR_NATIVE_BACKEND instead: then the library keeps the buffers.
    fn status(&mut self, frame: Frame, source: i32, status: sys::dtl_status_t) -> i32 {
        let ends_all = match (frame, status) {
            (Frame::None, _) | (Frame::Send, sys::DTL_ERROR_RANK_FAILURE) => false,
            (Frame::Receive, sys::DTL_ERROR_RANK_FAILURE) => {
                self.lost += 1;
                self.dead.insert(source);
                self.lost > LOST_BY_ONE_DEATH * self.dead.len()
            }
            _ => true,
        };
        if ends_all && self.has_values() { sys::DTL_ERROR_NATIVE_BACKEND } else { status }
    }
}

/// Use of an operation for the library's own messages: its failure may end all operations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Frame {
    /// A message or collective of the program.
    None,
    Send,
    /// A receive from any rank.
    Receive,
}

/// Result of an operation.
pub(super) struct Outcome {
    result: sys::dtl_comm_done_t,
    error: Option<Error>,
    frame: Frame,
}

/// The transport's half of an operation. The library's half is the number of the operation, a
/// pointer to the same place.
#[derive(Debug)]
pub(super) struct Completion {
    outcome: Arc<OnceLock<Outcome>>,
    frame: Frame,
    /// Reference to [`Link::values`] until the operation is complete.
    value: Option<Arc<()>>,
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outcome").field("error", &self.error).finish_non_exhaustive()
    }
}

impl Completion {
    /// Completes the operation. Its value does not access the buffer any more.
    pub(super) fn set(&mut self, source: i32, match_word: u64, bytes: usize, error: Option<Error>) {
        let status = match error.as_ref().map(|error| error.status.0) {
            None => sys::DTL_SUCCESS,
            // No results of an operation that is complete and has failed.
            Some(sys::DTL_SUCCESS | sys::DTL_ERROR_BUSY | sys::DTL_ERROR_TIMEOUT) => {
                sys::DTL_ERROR_COMMUNICATION
            }
            Some(status) => status,
        };
        let size_bytes = bytes as u64;
        let result = sys::dtl_comm_done_t { source, status, match_word, size_bytes };
        self.value = None;
        // One operation is completed once: `drop` finds the result of the others.
        let _ = self.outcome.set(Outcome { result, error, frame: self.frame });
    }

    pub(super) fn id(&self) -> u64 {
        Arc::as_ptr(&self.outcome).expose_provenance() as u64
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if self.outcome.get().is_none() {
            let text = "the transport dropped the operation without a result";
            self.set(0, 0, 0, Some(Error::new(sys::DTL_ERROR_COMMUNICATION, text)));
        }
    }
}

/// A message to send, with its buffer. Dropping it completes the send with DTL_ERROR_COMMUNICATION.
///
/// The bytes cannot be accessed after the completion:
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

    /// Completes the send: the buffer is no longer needed, and the message will arrive.
    pub fn complete(mut self) {
        self.completion.set(0, self.match_word, self.size, None);
    }

    /// Completes the send with a failure.
    pub fn fail(mut self, error: Error) {
        self.completion.set(0, self.match_word, 0, Some(error));
    }

    /// Completes the send with DTL_ERROR_RANK_FAILURE: the destination has died.
    pub fn lost(mut self) {
        let rank = self.dest;
        self.completion.set(rank, self.match_word, 0, Some(rank_failure(rank)));
    }
}

/// A posted receive, with its buffer. Dropping it completes the receive with DTL_ERROR_COMMUNICATION.
///
/// The buffer cannot be written after the completion:
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

    /// Copies a part of the message into the buffer, at byte `offset`. What does not fit is
    /// discarded silently.
    pub fn write(&mut self, offset: usize, part: &[u8]) {
        let room = self.capacity.saturating_sub(offset).min(part.len());
        if room > 0 {
            let into = self.bytes.wrapping_add(offset);
            // SAFETY: the buffer has `room` bytes at `offset`. It is valid, and nothing else accesses
            // it, until the operation is complete, which it is when this value is given up.
            unsafe { ptr::copy_nonoverlapping(part.as_ptr(), into, room) };
        }
    }

    /// Copies a whole message into the buffer and completes the receive. A message that is larger
    /// than the buffer is cut, and the receive fails with DTL_ERROR_TRUNCATED.
    pub fn deliver(mut self, source: i32, message: &[u8]) {
        self.write(0, message);
        self.complete(source, message.len());
    }

    /// Completes the receive: the buffer has the message. `size` is the true size of the message in
    /// bytes. If it is larger than the buffer, the status is DTL_ERROR_TRUNCATED.
    pub fn complete(mut self, source: i32, size: usize) {
        let error = (size > self.capacity).then(|| {
            let text = format!("the message has {size} bytes, the buffer {}", self.capacity);
            Error::new(sys::DTL_ERROR_TRUNCATED, text)
        });
        self.completion.set(source, self.match_word, size, error);
    }

    /// Completes the receive with a failure.
    pub fn fail(mut self, error: Error) {
        self.completion.set(self.source.unwrap_or(0), self.match_word, 0, Some(error));
    }

    /// Completes the receive with DTL_ERROR_RANK_FAILURE: `rank` has died.
    pub fn lost(mut self, rank: i32) {
        self.completion.set(rank, self.match_word, 0, Some(rank_failure(rank)));
    }
}

pub(super) fn rank_failure(rank: i32) -> Error {
    Error::new(
        sys::DTL_ERROR_RANK_FAILURE,
        format!("rank {rank} has closed its connection or died"),
    )
}

/// Starts an operation of slot `slot` by passing the transport's half to `start`. Returns its
/// number.
pub(super) fn begin<C>(
    slot: &str,
    link: &mut Link<C>,
    frame: Frame,
    start: impl FnOnce(&mut C, Completion) -> Result,
) -> Result<u64> {
    let own = Arc::new(OnceLock::new());
    let value = Some(Arc::clone(&link.values));
    let other = Completion { outcome: Arc::clone(&own), frame, value };
    let comm = &mut link.comm;
    let started = catch_unwind(AssertUnwindSafe(|| start(comm, other)));
    // After a failure the library considers the buffer unused, which is true if the other half is
    // gone. Otherwise the operation has started.
    let is_over = Arc::strong_count(&own) == 1;
    // What another thread did with the buffer is over, too.
    fence(Ordering::Acquire);
    let failure = match started {
        Ok(started) => started.err(),
        Err(panic) => Some(panic_error(slot, panic)),
    };
    match failure {
        Some(mut error) if is_over => {
            // BUSY is no failure: the library calls again.
            if error.status != sys::DTL_ERROR_BUSY {
                // The library does not count the deaths that a start reports.
                let is_death = error.status == sys::DTL_ERROR_RANK_FAILURE;
                let keeps = is_death && frame == Frame::Send || frame == Frame::None;
                if !keeps && link.has_values() {
                    error.status.0 = sys::DTL_ERROR_NATIVE_BACKEND;
                }
            }
            Err(error)
        }
        _ => Ok(Arc::into_raw(own).expose_provenance() as u64),
    }
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
        driver, given: In<'_, sys::dtl_comm_open_t>, out: New<'_, Link<D::Comm>>,
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
        out.set(Link::new(opened.comm));
        out_rank.set(opened.rank);
        out_size.set(opened.size);
        Ok(())
    }
    fn close<Transport>(driver, link: Last<Link<D::Comm>>) {
        // The library keeps the buffers of operations whose values still exist.
        driver.close(link.into_inner().comm)
    }
    fn isend<Transport>(
        driver, link: &mut Link<D::Comm>, bytes: Address<*const c_void>, count: u64, dest: i32,
        match_word: u64, out: Out<'_, u64>,
    ) {
        let (bytes, size) = (bytes.0.cast(), size(count));
        let frame = if match_word == 0 { Frame::Send } else { Frame::None };
        out.set(begin("isend", link, frame, |comm, completion| {
            driver.send(comm, Outgoing { dest, match_word, bytes, size, completion })
        })?);
        Ok(())
    }
    fn irecv<Transport>(
        driver, link: &mut Link<D::Comm>, bytes: Address<*mut c_void>, count: u64, source: i32,
        match_word: u64, _ignore: u64, out: Out<'_, u64>,
    ) {
        let (bytes, capacity) = (bytes.0.cast(), size(count));
        let source = (source != sys::DTL_ANY_SOURCE).then_some(source);
        let frame = if source.is_none() { Frame::Receive } else { Frame::None };
        out.set(begin("irecv", link, frame, |comm, completion| {
            driver.receive(comm, Incoming { source, match_word, bytes, capacity, completion })
        })?);
        Ok(())
    }
    fn test<Transport>(
        driver, link: &mut Link<D::Comm>, op: u64, out_done: Out<'_, i32>,
        out_result: Out<'_, sys::dtl_comm_done_t>,
    ) {
        // SAFETY: the library tests operations that have started and are not complete.
        let operation = unsafe { operation(op) };
        // The last progress may have completed this one, too.
        if operation.get().is_none() {
            driver.progress(&mut link.comm)?;
        }
        let Some(outcome) = operation.get() else {
            out_done.set_bool(false);
            return Ok(());
        };
        let mut result = outcome.result;
        if let Some(error) = &outcome.error {
            failed(error); // passes the text; the status is in the result
            result.status = link.status(outcome.frame, result.source, result.status);
        }
        out_result.set(result);
        out_done.set_bool(true);
        // SAFETY: the operation is complete, and the library forgets its number.
        unsafe { end(op) };
        Ok(())
    }
    fn cancel<Transport>(driver, link: &mut Link<D::Comm>, op: u64) {
        function_of(D::CANCEL)?(driver, &mut link.comm, op)
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
