//! The `win_*` functions of the backend "sample". Ranks are threads of this process, so the memory
//! of another rank is directly accessible.
//!
//! The functions complete operations as late as `dtl.h` allows, so that tests detect code that
//! relies on earlier completion. They only queue operations, at most `ROOM` of them, and each call
//! to `test` executes a few. Puts and gets overtake each other; a short put completes locally long
//! before it reaches the target.

use super::arithmetic::{self, Update};
use super::{Const, Out, Ptr, Status, fault, put};
use crate::minimal::{self, Rank};
use dtl_sys::*;
use std::ptr;

/// Maximum number of pending operations of one rank.
const ROOM: usize = 24;
/// Maximum number of pending operations that a call to `test` executes.
pub(super) const TURN: usize = 3;
/// Maximum size in bytes of a put that completes locally at once.
const SHORT: usize = 128;
/// Maximum size of an element in bytes.
pub(super) const ELEMENT: usize = 8;

/// Window memory of a rank. The bytes of this struct are the remote key that the library sends to
/// the other ranks.
#[derive(Clone, Copy)]
#[repr(C)]
struct Place {
    rank: u64,
    base: usize,
    size: u64,
}

/// State of a window on one rank.
struct Side {
    own: Place,
    /// Window memory of each rank, indexed by rank; `None` until it is attached.
    all: Vec<Option<Place>>,
}

/// Pending operation. The caller must keep the memory at the operation's addresses valid until the
/// operation is complete.
#[derive(Clone, Copy)]
pub(crate) struct Waiting {
    pub(super) op: u64,
    window: Ptr,
    pub(super) target: i32,
    pub(super) what: What,
}

#[derive(Clone, Copy)]
pub(super) enum What {
    /// Copy of `size` bytes between two addresses.
    Copy {
        from: *const u8,
        to: *mut u8,
        size: usize,
    },
    /// Put that is locally complete, because its bytes were copied. Only a flush waits until the
    /// bytes are in the target's memory.
    Short {
        bytes: [u8; SHORT],
        to: *mut u8,
        size: usize,
    },
    Change {
        from: *const u8,
        result: *mut u8,
        there: *mut u8,
        count: usize,
        update: Update,
    },
    Swap {
        value: *const u8,
        expected: *const u8,
        result: *mut u8,
        there: *mut u8,
        size: usize,
    },
    Flush,
}

/// Adds the window functions for transfers and for atomics to a comm table whose `self` argument
/// points to a struct that begins with a `Job`.
pub(super) fn add_to(table: &mut dtl_comm_vtable_t) {
    table.win_create = Some(create);
    table.win_attach = Some(attach);
    table.win_destroy = Some(destroy);
    table.win_put = Some(put_there);
    table.win_get = Some(get_from);
    table.win_flush = Some(flush);
    table.win_atomics = Some(atomics);
    table.win_accumulate = Some(accumulate);
    table.win_compare_and_swap = Some(compare_and_swap);
}

/// Removes the window functions for atomics, so that the table has only those for transfers.
pub(crate) fn transfers_only(table: &mut dtl_comm_vtable_t) {
    (table.win_atomics, table.win_accumulate, table.win_compare_and_swap) = (None, None, None);
}

/// # Safety
/// `window` must have been returned by `create` and must not have been destroyed.
unsafe fn side<'a>(window: Ptr) -> &'a mut Side {
    // SAFETY: the caller's contract.
    unsafe { &mut *window.cast::<Side>() }
}

/// # Safety
/// `comm` must have been returned by `open`, and the library must not call functions on it
/// concurrently.
pub(super) unsafe fn rank<'a>(comm: Ptr) -> &'a mut Rank {
    // SAFETY: the caller's contract.
    unsafe { minimal::rank(comm) }
}

/// # Safety
/// The requirements of `rank` and of `side` must be met.
unsafe fn both<'a>(comm: Ptr, window: Ptr) -> (&'a mut Rank, &'a mut Side) {
    // SAFETY: the caller's contract.
    let rank = unsafe { rank(comm) };
    // SAFETY: as above.
    (rank, unsafe { side(window) })
}

pub(super) unsafe extern "C" fn create(
    _: Ptr,
    comm: Ptr,
    base: Ptr,
    size_bytes: u64,
    out_win: Out,
    key: Ptr,
    out_key_bytes: *mut u32,
) -> Status {
    // SAFETY: the library's call.
    let rank = unsafe { rank(comm) };
    let shift = usize::from(fault::is("comm.win_create.wrong_base") && size_bytes > 0);
    let own =
        Place { rank: rank.rank as u64, base: base.expose_provenance() + shift, size: size_bytes };
    let all = vec![None; rank.ranks()];
    put(out_win, Box::into_raw(Box::new(Side { own, all })).cast());
    // SAFETY: there is room for DTL_WIN_KEY_BYTES, any alignment.
    unsafe { key.cast::<Place>().write_unaligned(own) };
    put(out_key_bytes, size_of::<Place>() as u32)
}

unsafe extern "C" fn attach(
    _: Ptr,
    _: Ptr,
    window: Ptr,
    rank: i32,
    key: Const,
    key_bytes: u32,
) -> Status {
    // SAFETY: the library's call.
    let side = unsafe { side(window) };
    if key_bytes as usize != size_of::<Place>() {
        return DTL_ERROR_INVALID_ARGUMENT;
    }
    // SAFETY: so many bytes are there.
    let place = unsafe { key.cast::<Place>().read_unaligned() };
    let shift = usize::from(fault::is("comm.win_attach.next_rank"));
    let index = (rank as usize + shift) % side.all.len();
    match side.all.get_mut(index) {
        Some(slot) if shift == 1 || place.rank == rank as u64 => *slot = Some(place),
        _ => return DTL_ERROR_INVALID_RANK,
    }
    DTL_SUCCESS
}

unsafe extern "C" fn destroy(_: Ptr, comm: Ptr, window: Ptr) -> Status {
    // SAFETY: the library's call.
    let rank = unsafe { rank(comm) };
    // Those that are not over never will be.
    rank.waiting.retain(|waiting| waiting.window != window);
    if !fault::is("comm.win_destroy.leaks") {
        // SAFETY: what `create` gave, destroyed once.
        drop(unsafe { Box::from_raw(window.cast::<Side>()) });
    }
    if fault::is("comm.win_destroy.fails") { DTL_ERROR_BACKEND } else { DTL_SUCCESS }
}

/// Returns the address at `offset` bytes in the target's window memory. Fails if `size` is 0 or the
/// range exceeds that memory.
fn address(side: &Side, target: i32, offset: u64, size: u64) -> Result<*mut u8, dtl_status_t> {
    let place = side.all.get(target as usize).copied().flatten().ok_or(DTL_ERROR_INVALID_RANK)?;
    match offset.checked_add(size) {
        Some(end) if end <= place.size && size > 0 => {
            Ok(ptr::with_exposed_provenance_mut(place.base + offset as usize))
        }
        _ => Err(DTL_ERROR_OUT_OF_BOUNDS),
    }
}

/// Evaluates to the value of a `Result`, or returns its error status from the calling function.
macro_rules! given {
    ($result:expr) => {
        match $result {
            Ok(given) => given,
            Err(status) => return status,
        }
    };
}

/// Creates an operation that is already complete, even if other operations are pending, and writes
/// its id to `out_op`.
fn over(rank: &mut Rank, out_op: *mut u64) -> Status {
    let op = rank.next_op();
    rank.finish(op, (0, 0, 0), DTL_SUCCESS);
    put(out_op, op)
}

/// Queues an operation.
fn queue(rank: &mut Rank, window: Ptr, target: i32, what: What, out_op: *mut u64) -> Status {
    if rank.waiting.len() >= ROOM {
        return DTL_ERROR_BUSY;
    }
    let op = rank.next_op();
    rank.waiting.push_back(Waiting { op, window, target, what });
    put(out_op, op)
}

pub(super) unsafe extern "C" fn put_there(
    _: Ptr,
    comm: Ptr,
    window: Ptr,
    buffer: Const,
    size_bytes: u64,
    target: i32,
    offset: u64,
    out_op: *mut u64,
) -> Status {
    // SAFETY: the library's call.
    let (rank, side) = unsafe { both(comm, window) };
    if_fault!("comm.win_put.fails" => return DTL_ERROR_BACKEND);
    if_fault!("comm.win_put.always_busy" => return DTL_ERROR_BUSY);
    let target = if fault::is("comm.win_put.to_itself") { side.own.rank as i32 } else { target };
    let to = given!(address(side, target, offset, size_bytes));
    let (mut from, mut to, mut size) = (buffer.cast::<u8>(), to, size_bytes as usize);
    if_fault!("comm.win_put.wrong_offset" if offset > 0 => to = to.wrapping_sub(1));
    if_fault!("comm.win_put.one_short" => size -= 1);
    if_fault!("comm.win_put.words_only" if size > 8 => size = size / 8 * 8);
    if_fault!("comm.win_put.one_long" => size += 1);
    if_fault!("comm.win_put.cut_at_64_kib" => size = size.min(65_536));
    if_fault!("comm.win_put.swapped" => (from, to) = (to.cast_const(), from.cast_mut()));
    if_fault!("comm.win_put.lost" if rank.next_op() % 50 == 0 => size = 0);
    let late = fault::is("comm.win_put.reads_late");
    if size <= SHORT && !late && !fault::is("comm.win_put.swapped") {
        let mut bytes = [0; SHORT];
        // SAFETY: so many bytes are there.
        unsafe { ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), size) };
        let answer = queue(rank, window, target, What::Short { bytes, to, size }, out_op);
        if answer == DTL_SUCCESS {
            rank.finish(rank.last_op(), (0, 0, 0), ended());
        }
        return if fault::is("comm.win_put.odd_status") { 31_337 } else { answer };
    }
    let answer = queue(rank, window, target, What::Copy { from, to, size }, out_op);
    if late && answer == DTL_SUCCESS {
        // It is over for the library, which lets the program write the buffer.
        return over(rank, out_op);
    }
    if fault::is("comm.win_put.odd_status") { 31_337 } else { answer }
}

unsafe extern "C" fn get_from(
    _: Ptr,
    comm: Ptr,
    window: Ptr,
    buffer: Ptr,
    size_bytes: u64,
    target: i32,
    offset: u64,
    out_op: *mut u64,
) -> Status {
    // SAFETY: the library's call.
    let (rank, side) = unsafe { both(comm, window) };
    let from = given!(address(side, target, offset, size_bytes));
    let (mut from, mut to, mut size) =
        (from.cast_const(), buffer.cast::<u8>(), size_bytes as usize);
    if_fault!("comm.win_get.wrong_offset" if offset > 0 => from = from.wrapping_sub(1));
    if_fault!("comm.win_get.one_short" => size -= 1);
    if_fault!("comm.win_get.swapped" => (from, to) = (to.cast_const(), from.cast_mut()));
    let answer = queue(rank, window, target, What::Copy { from, to, size }, out_op);
    if fault::is("comm.win_get.done_early") && answer == DTL_SUCCESS {
        return over(rank, out_op);
    }
    answer
}

unsafe extern "C" fn flush(
    _: Ptr,
    comm: Ptr,
    window: Ptr,
    target: i32,
    out_op: *mut u64,
) -> Status {
    // SAFETY: the library's call.
    let rank = unsafe { rank(comm) };
    if_fault!("comm.win_flush.fails" => return DTL_ERROR_BACKEND);
    if_fault!("comm.win_flush.never_done" => return put(out_op, rank.next_op()));
    let first = rank.waiting.iter().position(|waiting| waiting.target == target);
    if let Some(first) = first.filter(|_| fault::is("comm.win_flush.forgets_target")) {
        // All but its own target is seen to: the flush goes in front of what is under way there.
        let op = rank.next_op();
        rank.waiting.insert(first, Waiting { op, window, target, what: What::Flush });
        return put(out_op, op);
    }
    queue(rank, window, target, What::Flush, out_op)
}

unsafe extern "C" fn atomics(
    _: Ptr,
    _: Ptr,
    _: Ptr,
    dtype: dtl_dtype_t,
    out_yes: *mut i32,
) -> Status {
    let all = fault::is("comm.win_atomics.says_yes_to_all");
    put(out_yes, i32::from(all || arithmetic::size_of_element(dtype).is_some()))
}

unsafe extern "C" fn accumulate(
    _: Ptr,
    comm: Ptr,
    window: Ptr,
    buffer: Const,
    result: Ptr,
    count: u64,
    dtype: dtl_dtype_t,
    target: i32,
    offset: u64,
    op: dtl_reduce_op_t,
    out_op: *mut u64,
) -> Status {
    // SAFETY: the library's call.
    let (rank, side) = unsafe { both(comm, window) };
    let all = fault::is("comm.win_atomics.says_yes_to_all");
    let dtype = match arithmetic::size_of_element(dtype) {
        None if all => DTL_DTYPE_UINT8,
        _ if fault::is("comm.win_accumulate.always_int64") => DTL_DTYPE_INT64,
        _ if fault::is("comm.win_accumulate.unsigned") => arithmetic::unsigned(dtype),
        _ => dtype,
    };
    let Some(size) = arithmetic::size_of_element(dtype) else { return DTL_ERROR_TYPE };
    let there = given!(address(side, target, offset, 1));
    let op = match op {
        _ if fault::is("comm.win_accumulate.always_sums") => DTL_OP_SUM,
        DTL_OP_NO_OP if fault::is("comm.win_accumulate.no_op_clears") => DTL_OP_REPLACE,
        op => op,
    };
    let count = if fault::is("comm.win_accumulate.first_only") { 1 } else { count as usize };
    let result = if fault::is("comm.win_accumulate.no_result") { ptr::null_mut() } else { result };
    let update = Update { dtype, op, size };
    let what = What::Change { from: buffer.cast(), result: result.cast(), there, count, update };
    let answer = queue(rank, window, target, what, out_op);
    if fault::is("comm.win_accumulate.reads_late") && answer == DTL_SUCCESS {
        return over(rank, out_op);
    }
    if fault::is("comm.win_accumulate.overtakes") && answer == DTL_SUCCESS && rank.waiting.len() > 1
    {
        let last = rank.waiting.len() - 1;
        rank.waiting.swap(last, last - 1);
    }
    answer
}

unsafe extern "C" fn compare_and_swap(
    _: Ptr,
    comm: Ptr,
    window: Ptr,
    value: Const,
    expected: Const,
    result: Ptr,
    dtype: dtl_dtype_t,
    target: i32,
    offset: u64,
    out_op: *mut u64,
) -> Status {
    // SAFETY: the library's call.
    let (rank, side) = unsafe { both(comm, window) };
    let Some(mut size) = arithmetic::size_of_element(dtype) else { return DTL_ERROR_TYPE };
    let there = given!(address(side, target, offset, size as u64));
    if_fault!("comm.win_compare_and_swap.first_byte_only" => size = 1);
    let (value, expected, result) = (value.cast(), expected.cast(), result.cast());
    queue(rank, window, target, What::Swap { value, expected, result, there, size }, out_op)
}

/// Returns the completion status of all operations: DTL_SUCCESS unless a fault is injected.
pub(super) fn ended() -> Status {
    if fault::is("comm.test.ends_with_failure") { DTL_ERROR_BACKEND } else { DTL_SUCCESS }
}
