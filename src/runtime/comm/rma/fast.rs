//! Fast path of one-sided operations that take nanoseconds: operations on at most `FEW` bytes, in
//! an open access epoch, on a target whose memory this process can access with loads and stores.
//! The fast path runs in the C entry function, without leaving the reclamation epoch of the thread.
//!
//! If the fast path does not apply or the call is erroneous, the functions have no effect and
//! return `None`. The caller then uses the slow path (`rma_ops`, `sync`), which executes the
//! operation or returns the error. The functions in this file never block or panic.

use super::rma_ops::{TargetAddr, is_swapped};
use super::{TABLE, Window};
use crate::abi::handle::dtl_win_t;
use crate::abi::word::{DTL_OP_NO_OP, dtl_dtype_t, dtl_reduce_op_t};
use crate::runtime::memory::device_only;
use crate::sys::compute::elements::{self, Update};
use crate::sys::handles::epoch::Guard;
use crate::sys::memory::buf::{Addr, Region};

/// Maximum size, in bytes, of an operation on the fast path.
const FEW: usize = 1024;

/// Returns the window and the memory at the target that the operation accesses. Returns `None` if
/// the fast path does not apply, for example if this memory overlaps the buffers of the caller.
#[inline]
fn reach<'a>(
    inside: &'a Guard,
    win: dtl_win_t,
    TargetAddr { target, disp }: TargetAddr,
    buffers: &[Region],
) -> Option<(&'a Window, Region)> {
    let window = TABLE.get(inside, win.id)?;
    let part = window.parts.get(usize::try_from(target).ok()?)?;
    let memory = part.memory.within(disp.checked_mul(part.disp_unit)?, buffers.first()?.len())?;
    // `access` rejects buffers that the host cannot reach.
    let is_ready = !device_only::is_any()
        && buffers.iter().all(|buffer| memory.is_apart(*buffer))
        && window.comm.is_open()
        && window.epochs.admits(target);
    is_ready.then_some((window, memory))
}

/// Executes `dtl_win_put`; `None` if the fast path does not apply.
#[inline]
pub fn put(inside: &Guard, win: dtl_win_t, from: Region, place: TargetAddr) -> Option<()> {
    if from.len() > FEW {
        return None;
    }
    reach(inside, win, place, &[from])?.1.copy_from(from);
    Some(())
}

/// Executes `dtl_win_get`; `None` if the fast path does not apply.
#[inline]
pub fn get(inside: &Guard, win: dtl_win_t, into: Region, place: TargetAddr) -> Option<()> {
    if into.len() > FEW {
        return None;
    }
    into.copy_from(reach(inside, win, place, &[into])?.1);
    Some(())
}

/// Updates elements in the memory of the target. Returns `None`, without an update, if the update
/// needs the target's element lock and another rank holds this lock or waits for it.
#[inline(always)] // row: win_accumulate_8
fn change(
    window: &Window,
    target: i32,
    update: &Update,
    [memory, operand, old]: [Region; 3],
) -> Option<()> {
    if update.is_lock_free(memory) {
        update.apply(memory, operand, old);
        return Some(());
    }
    window
        .direct
        .as_deref()?
        .locked_at_once(target, move || update.apply_locked(memory, operand, old))
}

/// Executes `dtl_win_fetch_op`; `None` if the fast path does not apply.
#[inline]
pub fn fetch_op(
    inside: &Guard,
    win: dtl_win_t,
    (value, result): (Addr, Addr),
    (dtype, op): (dtl_dtype_t, dtl_reduce_op_t),
    place: TargetAddr,
) -> Option<()> {
    if elements::is_counter(dtype, op) {
        let (value, result) = (value.some(8)?, result.some(8)?);
        let (_, memory) = reach(inside, win, place, &[result, value])?;
        return (result.is_apart(value) && elements::is_lock_free(memory, 8))
            .then(|| elements::add(memory, value, result));
    }
    let update = elements::update(dtype, op)?;
    let value = if op == DTL_OP_NO_OP { Region::EMPTY } else { value.some(update.size())? };
    let result = result.some(update.size())?;
    let (window, memory) = reach(inside, win, place, &[result, value])?;
    if !result.is_apart(value) {
        return None;
    }
    change(window, place.target, update, [memory, value, result])
}

/// Executes `dtl_win_accumulate`; `None` if the fast path does not apply.
#[inline]
pub fn accumulate(
    inside: &Guard,
    win: dtl_win_t,
    from: Region,
    (dtype, op): (dtl_dtype_t, dtl_reduce_op_t),
    place: TargetAddr,
) -> Option<()> {
    if from.len() > FEW {
        return None;
    }
    let (window, memory) = reach(inside, win, place, &[from])?;
    let update = elements::update(dtype, op)?;
    change(window, place.target, update, [memory, from, Region::EMPTY])
}

/// Executes `dtl_win_compare_and_swap` on an element that has lock-free atomics; `None` if the fast
/// path does not apply.
#[inline]
pub fn compare_and_swap(
    inside: &Guard,
    win: dtl_win_t,
    dtype: dtl_dtype_t,
    (value, expected, result): (Region, Region, Region),
    place: TargetAddr,
) -> Option<()> {
    if !is_swapped(dtype) {
        return None;
    }
    let (_, memory) = reach(inside, win, place, &[result, value, expected])?;
    let is_apart = result.is_apart(value) && result.is_apart(expected);
    if !(is_apart && elements::is_lock_free(memory, memory.len())) {
        return None;
    }
    elements::compare_and_swap(memory, elements::Swap { value, expected, result });
    Some(())
}

/// Executes `dtl_win_flush` or `dtl_win_flush_local`; `None` if the fast path does not apply.
#[inline]
pub fn flush(inside: &Guard, win: dtl_win_t, target: i32, is_local: bool) -> Option<()> {
    let window = TABLE.get(inside, win.id)?;
    let direct = window.direct.as_deref()?;
    if !(window.comm.is_open() && window.part(target).is_some() && window.epochs.has_lock(target)) {
        return None;
    }
    (is_local || direct.flush_at_once(target)).then_some(())
}
