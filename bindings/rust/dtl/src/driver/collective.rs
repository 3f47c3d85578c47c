//! Collectives that a transport executes itself: two slots of the communication table.

use super::slot::{In, Out, size, slots};
use super::transport::{Completion, Frame, Link, begin};
use super::{Table, Transport};
use crate::{Error, Result, sys};
use std::ffi::c_void;
use std::{ptr, slice};

/// Collectives of a transport (slots coll_supports and coll_start). [`Table::collectives`] adds them.
///
/// They are used on communicators over all ranks. The library uses its own algorithms for what the
/// transport does not support. [`Transport::progress`] completes them, too. After a failure,
/// [`Transport::CANCEL`] may get the [`Collective::id`] of one.
pub trait Collectives: Transport {
    /// Returns true if the transport executes a collective. The result must be equal on all ranks,
    /// so it may depend only on the fields that the header names at `coll_supports`.
    ///
    /// # Errors
    /// The call of the program fails with the status.
    fn supports(&self, comm: &mut Self::Comm, which: &CollectiveInfo) -> Result<bool>;

    /// Starts a collective that `supports` has accepted.
    ///
    /// # Errors
    /// See [`Transport::send`].
    fn start(&self, comm: &mut Self::Comm, collective: Collective) -> Result;
}

/// What a collective does, see `dtl_coll_args_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CollectiveInfo {
    /// DTL_COLLECTIVE_BARRIER to DTL_COLLECTIVE_EXSCAN.
    pub collective: i32,
    /// DTL_COLL_IN_PLACE and DTL_COLL_DETERMINISTIC, ORed.
    pub flags: u64,
    /// Number of the communicator: 0 for the one that the program opened, others for duplicates.
    pub context: u32,
    /// Root, if the collective has one.
    pub root: Option<i32>,
    /// Type of an element, if there are elements.
    pub dtype: Option<sys::dtl_dtype_t>,
    /// Operation, if the collective reduces.
    pub op: Option<sys::dtl_reduce_op_t>,
    /// Elements of this rank's data, or of one block.
    pub count: u64,
    /// Size of an element in bytes.
    pub element_bytes: u64,
}

/// A collective in flight, with its buffers. Dropping it completes it with DTL_ERROR_COMMUNICATION.
#[derive(Debug)]
pub struct Collective {
    info: CollectiveInfo,
    send: Vec<(*const u8, usize)>,
    recv: Vec<(*mut u8, usize)>,
    completion: Completion,
}

// SAFETY: the library allows the access to the buffers from any thread.
unsafe impl Send for Collective {}
// SAFETY: the buffers are written through an exclusive reference only.
unsafe impl Sync for Collective {}

impl Collective {
    /// Returns what the collective does.
    #[must_use]
    pub fn info(&self) -> &CollectiveInfo {
        &self.info
    }

    /// Returns the number by which [`Transport::CANCEL`] identifies the collective.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.completion.id()
    }

    /// Returns the data that this rank contributes: one range, or one for each rank. Empty for a
    /// bcast, whose root reads [`Collective::result`].
    #[must_use]
    pub fn data(&self, index: usize) -> &[u8] {
        self.send.get(index).map_or(&[], |(first, bytes)| {
            // SAFETY: a range of the library, which does not change until the end.
            unsafe { range(*first, *bytes) }
        })
    }

    /// Returns the bytes of the destination: one range, or one for each rank. They are data of this
    /// rank in a bcast on its root, and with DTL_COLL_IN_PLACE.
    #[must_use]
    pub fn result(&self, index: usize) -> &[u8] {
        self.recv.get(index).map_or(&[], |(first, bytes)| {
            // SAFETY: a range of the library, which is written through an exclusive reference only.
            unsafe { range(first.cast_const(), *bytes) }
        })
    }

    /// Copies bytes into a range of the destination, at byte `offset`. What does not fit is
    /// discarded silently.
    pub fn write(&mut self, index: usize, offset: usize, part: &[u8]) {
        let Some((first, bytes)) = self.recv.get(index) else { return };
        let room = bytes.saturating_sub(offset).min(part.len());
        if room > 0 {
            // SAFETY: the range has `room` bytes at `offset`, and is valid until the end.
            unsafe { ptr::copy(part.as_ptr(), first.wrapping_add(offset), room) };
        }
    }

    /// Completes the collective: its result is there, and its buffers are no longer needed.
    pub fn complete(mut self) {
        self.completion.set(0, 0, 0, None);
    }

    /// Completes the collective with a failure.
    pub fn fail(mut self, error: Error) {
        self.completion.set(0, 0, 0, Some(error));
    }

    /// Completes the collective with DTL_ERROR_RANK_FAILURE: `rank` has died.
    pub fn lost(mut self, rank: i32) {
        self.completion.set(rank, 0, 0, Some(super::transport::rank_failure(rank)));
    }
}

/// # Safety
/// The range must have these bytes while the result exists.
unsafe fn range<'a>(first: *const u8, bytes: usize) -> &'a [u8] {
    if bytes == 0 {
        return &[];
    }
    // SAFETY: the caller's contract.
    unsafe { slice::from_raw_parts(first, bytes) }
}

fn info(args: &sys::dtl_coll_args_t) -> CollectiveInfo {
    let known = |number: i32| (number >= 0).then_some(number);
    CollectiveInfo {
        collective: args.collective,
        flags: args.flags,
        context: args.context,
        root: known(args.root),
        dtype: known(args.dtype),
        op: known(args.op),
        count: args.count,
        element_bytes: args.element_bytes,
    }
}

/// # Safety
/// The array must have `count` ranges.
unsafe fn ranges(first: *const sys::dtl_coll_range_t, count: u64) -> Vec<(*mut c_void, usize)> {
    // SAFETY: the caller's contract. There is at least one range.
    let ranges = unsafe { slice::from_raw_parts(first, size(count)) };
    ranges.iter().map(|range| (range.ptr, size(range.size_bytes))).collect()
}

slots! {
    fn coll_supports<Collectives>(
        driver, link: &mut Link<D::Comm>, args: In<'_, sys::dtl_coll_args_t>, out: Out<'_, i32>,
    ) {
        // Device memory: without the slots for memory the library never passes it.
        let is_host = args.0.memory_backend == sys::DTL_BACKEND_NULL;
        out.set_bool(is_host && driver.supports(&mut link.comm, &info(args.0))?);
        Ok(())
    }
    fn coll_start<Collectives>(
        driver, link: &mut Link<D::Comm>, args: In<'_, sys::dtl_coll_args_t>, out: Out<'_, u64>,
    ) {
        let args = args.0;
        // SAFETY: an array of this size.
        let send = unsafe { ranges(args.send, args.send_count) };
        // SAFETY: an array of this size.
        let recv = unsafe { ranges(args.recv, args.recv_count) };
        let send = send.into_iter().map(|(first, bytes)| (first.cast_const().cast(), bytes));
        let recv = recv.into_iter().map(|(first, bytes)| (first.cast(), bytes));
        let (info, send, recv) = (info(args), send.collect(), recv.collect());
        out.set(begin("coll_start", link, Frame::None, |comm, completion| {
            driver.start(comm, Collective { info, send, recv, completion })
        })?);
        Ok(())
    }
}

impl<D: Collectives> Table<D> {
    /// Adds the collectives, with [`Table::transport`].
    #[must_use]
    pub fn collectives(self) -> Self {
        let mut all = self.transport();
        let table = all.tables.comm.get_or_insert(sys::DTL_COMM_VTABLE_INIT);
        table.coll_supports = Some(coll_supports::<D>);
        table.coll_start = Some(coll_start::<D>);
        all
    }
}
