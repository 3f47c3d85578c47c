//! Safe wrapper around a window, its memory, and buffers that are not moved until all operations
//! are complete.

use crate::data::TYPES;
use crate::kit::calls::field;
use crate::kit::outcome::{Called, Outcome, call, check, output, same};
use crate::kit::rank::Rank;
use dtl_sys::*;
use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr;

const BYTE: dtl_dtype_t = DTL_DTYPE_BYTE;

/// One rank's part of a window. Displacements are in bytes.
pub(crate) struct Win<'a> {
    handle: dtl_win_t,
    rank: &'a Rank,
    base: *mut u8,
    size: usize,
    /// Window memory, if the library did not allocate it.
    own: Option<Box<[u8]>>,
    /// Buffers that operations read and write.
    held: RefCell<Vec<Box<[u8]>>>,
}

/// Index of the buffer for an operation's result.
#[derive(Clone, Copy)]
pub(crate) struct Slot(usize);

impl Drop for Win<'_> {
    fn drop(&mut self) {
        // Only after a failure: the memory must outlive whatever others still do with it.
        std::mem::forget(self.own.take());
        self.held.take().into_iter().for_each(std::mem::forget);
    }
}

impl<'a> Win<'a> {
    /// Creates a window over zeroed memory that this program allocates.
    pub(crate) fn given(rank: &'a Rank, size: u64) -> Called<Win<'a>> {
        let mut own = vec![0u8; size as usize].into_boxed_slice();
        let (comm, base) = (rank.comm.raw(), own.as_mut_ptr());
        match output!(DTL_WIN_NULL, dtl_win_create(comm, base.cast::<c_void>(), size, 1)) {
            Ok(handle) => Ok(Win::of(rank, handle, base, size, Some(own))),
            Err(refused) => {
                std::mem::forget(own);
                Err(refused)
            }
        }
    }

    /// Creates a window whose memory the library allocates.
    pub(crate) fn allocated(rank: &'a Rank, size: u64) -> Called<Win<'a>> {
        let (comm, mut base) = (rank.comm.raw(), ptr::null_mut());
        let handle = output!(DTL_WIN_NULL, dtl_win_allocate(comm, size, 1, &raw mut base))?;
        Ok(Win::of(rank, handle, base.cast(), size, None))
    }

    fn of(
        rank: &'a Rank,
        handle: dtl_win_t,
        base: *mut u8,
        size: u64,
        own: Option<Box<[u8]>>,
    ) -> Win<'a> {
        Win { handle, rank, base, size: size as usize, own, held: RefCell::default() }
    }

    /// Completes all operations and destroys the window. Collective.
    pub(crate) fn end(mut self) -> Outcome {
        call!(dtl_win_destroy(self.handle))?;
        self.held.take().clear();
        drop(self.own.take());
        Ok(())
    }

    /// Returns the library's description of how the window accesses its targets.
    pub(crate) fn way(&self) -> Called<String> {
        let before = dtl_win_info_t { rank: -1, ranks: -1, ..DTL_WIN_INFO_INIT };
        let info = output!(before, dtl_win_info(self.handle, self.rank.rank))?;
        Ok(field(&info.way).unwrap_or_default())
    }

    /// Returns the current contents of this rank's window memory.
    pub(crate) fn own(&self) -> Vec<u8> {
        let byte = |at| {
            // SAFETY: inside of the memory, which lives as long as this. Others may write: any byte
            // is one.
            unsafe { self.base.wrapping_add(at).read_volatile() }
        };
        (0..self.size).map(byte).collect()
    }

    /// Checks that this rank's window memory contains `should`.
    pub(crate) fn own_is(&self, should: &[u8]) -> Outcome {
        same!(&self.own(), should, "rank {}'s memory: {}", self.rank.rank)
    }

    /// Checks that rank 0's window memory contains `should` and that the window memory of other
    /// ranks is still zero.
    pub(crate) fn first_is(&self, should: &[u8]) -> Outcome {
        if self.rank.rank == 0 { self.own_is(should) } else { self.own_is(&vec![0; self.size]) }
    }

    /// Checks that the 64-bit integer at byte offset 8 of this rank's window memory is `should`.
    pub(crate) fn sum_is(&self, should: i64) -> Outcome {
        let is = self.own_integer(8);
        check!(is == should, "the sum is {is}, expected {should}")
    }

    /// Checks that the 64-bit integer at byte offset 8 of the window memory is `should` on rank 0
    /// and still zero on the other ranks.
    pub(crate) fn first_sum_is(&self, should: i64) -> Outcome {
        self.sum_is(if self.rank.rank == 0 { should } else { 0 })
    }

    /// Stores `bytes` at offset `at` of this rank's window memory.
    pub(crate) fn set_own(&self, at: usize, bytes: &[u8]) {
        for (at, byte) in (at..self.size).zip(bytes) {
            // SAFETY: as above; nobody else uses it meanwhile.
            unsafe { self.base.wrapping_add(at).write_volatile(*byte) };
        }
    }

    /// Stores a buffer for an operation, so that it is neither freed nor moved. Returns its address
    /// and its index.
    fn hold(&self, bytes: impl Into<Vec<u8>>) -> (*mut c_void, Slot) {
        let mut held = self.held.borrow_mut();
        held.push(bytes.into().into_boxed_slice());
        let slot = held.len() - 1;
        (held[slot].as_mut_ptr().cast(), Slot(slot))
    }

    /// Returns the result of a completed operation.
    pub(crate) fn got(&self, slot: Slot) -> Vec<u8> {
        self.held.borrow()[slot.0].to_vec()
    }

    /// Compares the result of a completed operation with `should`.
    pub(crate) fn got_is(&self, slot: Slot, should: &[u8], what: &str) -> Outcome {
        same!(&self.got(slot), should, "{what}: {}")
    }

    /// Overwrites all buffers. All operations must be complete at the origin, so that the library
    /// no longer uses the buffers.
    pub(crate) fn spoil(&self) {
        self.held.borrow_mut().iter_mut().for_each(|bytes| bytes.fill(0xEE));
    }

    /// Frees all buffers.
    pub(crate) fn forget(&self) {
        self.held.borrow_mut().clear();
    }

    pub(crate) fn fence(&self) -> Called {
        call!(dtl_win_fence(self.handle))
    }

    pub(crate) fn lock_all(&self) -> Called {
        call!(dtl_win_lock_all(self.handle))
    }

    pub(crate) fn unlock_all(&self) -> Called {
        call!(dtl_win_unlock_all(self.handle))
    }

    pub(crate) fn lock(&self, how: i32, target: i32) -> Called {
        call!(dtl_win_lock(self.handle, how, target))
    }

    pub(crate) fn unlock(&self, target: i32) -> Called {
        call!(dtl_win_unlock(self.handle, target))
    }

    pub(crate) fn flush(&self, target: i32) -> Called {
        call!(dtl_win_flush(self.handle, target))
    }

    pub(crate) fn flush_local(&self, target: i32) -> Called {
        call!(dtl_win_flush_local(self.handle, target))
    }

    pub(crate) fn flush_all(&self) -> Called {
        call!(dtl_win_flush_all(self.handle))
    }

    pub(crate) fn put(&self, bytes: &[u8], target: i32, at: u64) -> Called<Slot> {
        let (from, slot) = self.hold(bytes);
        call!(dtl_win_put(self.handle, from, bytes.len() as u64, BYTE, target, at))?;
        Ok(slot)
    }

    /// Puts data with several puts of at most `piece` bytes each.
    pub(crate) fn put_pieces(&self, bytes: &[u8], piece: usize, target: i32, at: u64) -> Called {
        for (at, bytes) in (at..).step_by(piece).zip(bytes.chunks(piece)) {
            self.put(bytes, target, at)?;
        }
        Ok(())
    }

    pub(crate) fn get(&self, size: u64, target: i32, at: u64) -> Called<Slot> {
        let (into, slot) = self.hold(vec![0xA5; size as usize]);
        call!(dtl_win_get(self.handle, into, size, BYTE, target, at))?;
        Ok(slot)
    }

    /// Starts a request-based put and waits for its request.
    pub(crate) fn put_and_wait(&self, bytes: &[u8], target: i32, at: u64) -> Called<Slot> {
        let ((from, slot), win, count) = (self.hold(bytes), self.handle, bytes.len() as u64);
        let request = output!(DTL_REQUEST_NULL, dtl_win_rput(win, from, count, BYTE, target, at))?;
        self.wait(request)?;
        Ok(slot)
    }

    /// Starts a get with a request and waits for the request.
    pub(crate) fn get_and_wait(&self, size: u64, target: i32, at: u64) -> Called<Slot> {
        let ((into, slot), win) = (self.hold(vec![0xA5; size as usize]), self.handle);
        let request = output!(DTL_REQUEST_NULL, dtl_win_rget(win, into, size, BYTE, target, at))?;
        self.wait(request)?;
        Ok(slot)
    }

    fn wait(&self, request: dtl_request_t) -> Called {
        call!(dtl_request_wait(request, self.rank.timeout_ns, ptr::null_mut()))
    }

    pub(crate) fn accumulate(
        &self,
        (dtype, op): (dtl_dtype_t, dtl_reduce_op_t),
        bytes: &[u8],
        target: i32,
        at: u64,
    ) -> Called<Slot> {
        let ((from, slot), count) = (self.hold(bytes), count(dtype, bytes));
        call!(dtl_win_accumulate(self.handle, from, count, dtype, target, at, op))?;
        Ok(slot)
    }

    /// Adds to 64-bit integers.
    pub(crate) fn add(&self, values: &[i64], target: i32, at: u64) -> Called<Slot> {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        self.accumulate((DTL_DTYPE_INT64, DTL_OP_SUM), &bytes, target, at)
    }

    /// Calls get_accumulate. Returns the index of the buffer for the previous values.
    pub(crate) fn get_accumulate(
        &self,
        (dtype, op): (dtl_dtype_t, dtl_reduce_op_t),
        bytes: &[u8],
        target: i32,
        at: u64,
    ) -> Called<Slot> {
        let ((from, _), count) = (self.hold(bytes), count(dtype, bytes));
        let (result, slot) = self.hold(vec![0xA5; bytes.len()]);
        call!(dtl_win_get_accumulate(self.handle, from, result, count, dtype, target, at, op))?;
        Ok(slot)
    }

    /// Calls fetch_op on one 64-bit integer. Returns the index of the buffer for the previous
    /// value.
    pub(crate) fn fetch_op(
        &self,
        op: dtl_reduce_op_t,
        value: i64,
        target: i32,
        at: u64,
    ) -> Called<Slot> {
        let (from, _) = self.hold(value.to_ne_bytes());
        let (result, slot) = self.hold([0xA5; 8]);
        call!(dtl_win_fetch_op(self.handle, from, result, DTL_DTYPE_INT64, target, at, op))?;
        Ok(slot)
    }

    /// Calls compare_and_swap on one element. Returns the index of the buffer for the previous
    /// value.
    pub(crate) fn compare_and_swap(
        &self,
        dtype: dtl_dtype_t,
        (value, expected): (&[u8], &[u8]),
        target: i32,
        at: u64,
    ) -> Called<Slot> {
        let ((value, _), (expected, _)) = (self.hold(value), self.hold(expected));
        let (result, slot) = self.hold([0xA5; 8]);
        call!(dtl_win_compare_and_swap(self.handle, value, expected, result, dtype, target, at))?;
        Ok(slot)
    }

    /// Calls compare_and_swap on one 64-bit integer and flushes the target. Returns the previous
    /// value.
    pub(crate) fn swap_now(&self, value: i64, expected: i64, target: i32, at: u64) -> Called<i64> {
        let pair = (&value.to_ne_bytes()[..], &expected.to_ne_bytes()[..]);
        let slot = self.compare_and_swap(DTL_DTYPE_INT64, pair, target, at)?;
        self.flush(target)?;
        Ok(self.integer(slot))
    }

    /// Returns the result of a completed operation as a 64-bit integer.
    pub(crate) fn integer(&self, slot: Slot) -> i64 {
        self.got(slot).try_into().map_or(0, i64::from_ne_bytes)
    }

    /// Returns the 64-bit integer at byte offset `at` of this rank's window memory.
    pub(crate) fn own_integer(&self, at: usize) -> i64 {
        self.own()[at..].first_chunk().map_or(0, |bytes| i64::from_ne_bytes(*bytes))
    }
}

/// Returns the number of elements in these bytes.
fn count(dtype: dtl_dtype_t, bytes: &[u8]) -> u64 {
    let size = TYPES.iter().find(|ty| ty.dtype == dtype).map_or(1, |ty| ty.size);
    (bytes.len() / size) as u64
}
