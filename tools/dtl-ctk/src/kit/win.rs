//! A window as tests see it: with memory of its own, and buffers that stay in place until
//! everything is over.

use crate::kit::outcome::{Called, Outcome, call, called, wrong};
use crate::kit::peer::Peer;
use crate::kit::subject::difference;
use dtl_sys::*;
use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr;

const BYTE: dtl_dtype_t = DTL_DTYPE_BYTE;

/// One rank's part of a window; displacements are bytes.
pub(crate) struct Win<'a> {
    handle: dtl_win_t,
    peer: &'a Peer,
    base: *mut u8,
    size: usize,
    /// The memory, if the library did not allocate it.
    own: Option<Box<[u8]>>,
    /// What operations read and write.
    held: RefCell<Vec<Box<[u8]>>>,
}

/// Where an operation's result will be.
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
    /// Of memory of this program's, all 0.
    pub(crate) fn given(peer: &'a Peer, size: u64) -> Outcome<Win<'a>> {
        let mut own = vec![0u8; size as usize].into_boxed_slice();
        let (base, mut handle) = (own.as_mut_ptr(), dtl_win_t { id: 0 });
        if let Err(refused) =
            call!(dtl_win_create(peer.comm.handle, base.cast::<c_void>(), size, 1, &raw mut handle))
        {
            std::mem::forget(own);
            return Err(refused.into());
        }
        Ok(Win {
            handle,
            peer,
            base,
            size: size as usize,
            own: Some(own),
            held: RefCell::default(),
        })
    }

    /// Of memory that the library allocates.
    pub(crate) fn allocated(peer: &'a Peer, size: u64) -> Outcome<Win<'a>> {
        let (mut base, mut handle) = (ptr::null_mut(), dtl_win_t { id: 0 });
        call!(dtl_win_allocate(peer.comm.handle, size, 1, &raw mut base, &raw mut handle))?;
        Ok(Win {
            handle,
            peer,
            base: base.cast(),
            size: size as usize,
            own: None,
            held: RefCell::default(),
        })
    }

    /// All ranks call it; everything is over before.
    pub(crate) fn end(mut self) -> Outcome {
        call!(dtl_win_destroy(self.handle))?;
        self.held.take().clear();
        drop(self.own.take());
        Ok(())
    }

    /// How its operations reach the targets.
    pub(crate) fn way(&self) -> Called<String> {
        let mut info = dtl_win_info_t {
            struct_size: size_of::<dtl_win_info_t>() as u32,
            rank: -1,
            ranks: -1,
            reserved: 0,
            size_bytes: 0,
            disp_unit: 0,
            base: ptr::null_mut(),
            way: [0; 64],
        };
        call!(dtl_win_info(self.handle, self.peer.rank, &raw mut info))?;
        Ok(info
            .way
            .iter()
            .take_while(|byte| **byte != 0)
            .map(|byte| char::from(*byte as u8))
            .collect())
    }

    /// What is in this rank's memory now.
    pub(crate) fn own(&self) -> Vec<u8> {
        let byte = |at| {
            // SAFETY: inside of the memory, which lives as long as this. Others may write: any byte
            // is one.
            unsafe { self.base.wrapping_add(at).read_volatile() }
        };
        (0..self.size).map(byte).collect()
    }

    /// Compares this rank's memory.
    pub(crate) fn own_is(&self, should: &[u8]) -> Outcome {
        match difference(&self.own(), should) {
            Some(difference) => wrong!("rank {}'s memory: {difference}", self.peer.rank),
            None => Ok(()),
        }
    }

    /// Stores to this rank's memory.
    pub(crate) fn set_own(&self, at: usize, bytes: &[u8]) {
        for (at, byte) in (at..self.size).zip(bytes) {
            // SAFETY: as above; nobody else uses it meanwhile.
            unsafe { self.base.wrapping_add(at).write_volatile(*byte) };
        }
    }

    /// Keeps a buffer; its address.
    fn hold(&self, bytes: impl Into<Vec<u8>>) -> (*mut u8, Slot) {
        let mut held = self.held.borrow_mut();
        held.push(bytes.into().into_boxed_slice());
        let slot = held.len() - 1;
        (held[slot].as_mut_ptr(), Slot(slot))
    }

    /// What an operation that is over has left.
    pub(crate) fn got(&self, slot: Slot) -> Vec<u8> {
        self.held.borrow()[slot.0].to_vec()
    }

    /// Compares that.
    pub(crate) fn got_is(&self, slot: Slot, should: &[u8], what: &str) -> Outcome {
        match difference(&self.got(slot), should) {
            Some(difference) => wrong!("{what}: {difference}"),
            None => Ok(()),
        }
    }

    /// Writes over all buffers: what they were for is over, here.
    pub(crate) fn spoil(&self) {
        self.held.borrow_mut().iter_mut().for_each(|bytes| bytes.fill(0xEE));
    }

    /// Gives back all buffers.
    pub(crate) fn forget(&self) {
        self.held.borrow_mut().clear();
    }

    pub(crate) fn fence(&self) -> Called {
        called("dtl_win_fence", dtl_win_fence(self.handle))
    }

    pub(crate) fn lock_all(&self) -> Called {
        called("dtl_win_lock_all", dtl_win_lock_all(self.handle))
    }

    pub(crate) fn unlock_all(&self) -> Called {
        called("dtl_win_unlock_all", dtl_win_unlock_all(self.handle))
    }

    pub(crate) fn lock(&self, how: i32, target: i32) -> Called {
        called("dtl_win_lock", dtl_win_lock(self.handle, how, target))
    }

    pub(crate) fn unlock(&self, target: i32) -> Called {
        called("dtl_win_unlock", dtl_win_unlock(self.handle, target))
    }

    pub(crate) fn flush(&self, target: i32) -> Called {
        called("dtl_win_flush", dtl_win_flush(self.handle, target))
    }

    pub(crate) fn flush_local(&self, target: i32) -> Called {
        called("dtl_win_flush_local", dtl_win_flush_local(self.handle, target))
    }

    pub(crate) fn flush_all(&self) -> Called {
        called("dtl_win_flush_all", dtl_win_flush_all(self.handle))
    }

    pub(crate) fn put(&self, bytes: &[u8], target: i32, at: u64) -> Called<Slot> {
        let (from, slot) = self.hold(bytes);
        call!(dtl_win_put(
            self.handle,
            from.cast::<c_void>(),
            bytes.len() as u64,
            BYTE,
            target,
            at
        ))?;
        Ok(slot)
    }

    pub(crate) fn get(&self, size: u64, target: i32, at: u64) -> Called<Slot> {
        let (into, slot) = self.hold(vec![0xA5; size as usize]);
        call!(dtl_win_get(self.handle, into.cast::<c_void>(), size, BYTE, target, at))?;
        Ok(slot)
    }

    /// A put with a request, waited for.
    pub(crate) fn put_and_wait(&self, bytes: &[u8], target: i32, at: u64) -> Called<Slot> {
        let ((from, slot), mut request) = (self.hold(bytes), DTL_REQUEST_NULL);
        let (from, count) = (from.cast::<c_void>(), bytes.len() as u64);
        call!(dtl_win_rput(self.handle, from, count, BYTE, target, at, &raw mut request))?;
        self.wait(request)?;
        Ok(slot)
    }

    /// A get with a request, waited for.
    pub(crate) fn get_and_wait(&self, size: u64, target: i32, at: u64) -> Called<Slot> {
        let ((into, slot), mut request) = (self.hold(vec![0xA5; size as usize]), DTL_REQUEST_NULL);
        let into = into.cast::<c_void>();
        call!(dtl_win_rget(self.handle, into, size, BYTE, target, at, &raw mut request))?;
        self.wait(request)?;
        Ok(slot)
    }

    fn wait(&self, request: dtl_request_t) -> Called {
        call!(dtl_request_wait(request, self.peer.timeout_ns, ptr::null_mut()))
    }

    pub(crate) fn accumulate(
        &self,
        (dtype, op): (dtl_dtype_t, dtl_reduce_op_t),
        (bytes, count): (&[u8], u64),
        target: i32,
        at: u64,
    ) -> Called<Slot> {
        let (from, slot) = self.hold(bytes);
        call!(dtl_win_accumulate(
            self.handle,
            from.cast::<c_void>(),
            count,
            dtype,
            target,
            at,
            op
        ))?;
        Ok(slot)
    }

    /// The slot of what was there before.
    pub(crate) fn get_accumulate(
        &self,
        (dtype, op): (dtl_dtype_t, dtl_reduce_op_t),
        (bytes, count): (&[u8], u64),
        target: i32,
        at: u64,
    ) -> Called<Slot> {
        let (from, _) = self.hold(bytes);
        let (result, slot) = self.hold(vec![0xA5; bytes.len()]);
        let (from, result) = (from.cast::<c_void>(), result.cast::<c_void>());
        call!(dtl_win_get_accumulate(self.handle, from, result, count, dtype, target, at, op))?;
        Ok(slot)
    }

    /// One 64-bit integer.
    pub(crate) fn fetch_op(
        &self,
        op: dtl_reduce_op_t,
        value: i64,
        target: i32,
        at: u64,
    ) -> Called<Slot> {
        let (from, _) = self.hold(value.to_ne_bytes());
        let (result, slot) = self.hold([0xA5; 8]);
        let (from, result) = (from.cast::<c_void>(), result.cast::<c_void>());
        call!(dtl_win_fetch_op(self.handle, from, result, DTL_DTYPE_INT64, target, at, op))?;
        Ok(slot)
    }

    /// One element; the slot of what was there before.
    pub(crate) fn compare_and_swap(
        &self,
        dtype: dtl_dtype_t,
        (value, expected): (&[u8], &[u8]),
        target: i32,
        at: u64,
    ) -> Called<Slot> {
        let ((value, _), (expected, _)) = (self.hold(value), self.hold(expected));
        let (result, slot) = self.hold([0xA5; 8]);
        let (value, expected) = (value.cast::<c_void>(), expected.cast::<c_void>());
        let result = result.cast::<c_void>();
        call!(dtl_win_compare_and_swap(self.handle, value, expected, result, dtype, target, at))?;
        Ok(slot)
    }

    /// The same of 64-bit integers, flushed; what was there before.
    pub(crate) fn swap_now(&self, value: i64, expected: i64, target: i32, at: u64) -> Called<i64> {
        let pair = (&value.to_ne_bytes()[..], &expected.to_ne_bytes()[..]);
        let slot = self.compare_and_swap(DTL_DTYPE_INT64, pair, target, at)?;
        self.flush(target)?;
        Ok(self.integer(slot))
    }

    /// A result as a 64-bit integer.
    pub(crate) fn integer(&self, slot: Slot) -> i64 {
        self.got(slot).try_into().map_or(0, i64::from_ne_bytes)
    }

    /// A 64-bit integer in this rank's memory.
    pub(crate) fn own_integer(&self, at: usize) -> i64 {
        self.own()
            .get(at..at + 8)
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, i64::from_ne_bytes)
    }
}
