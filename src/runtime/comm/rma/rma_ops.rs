//! Operations on targets: checked against the target's part and this rank's epochs, then passed to
//! the window's path. Errors are detected before any data moves.

use super::{RankWindow, Window};
use crate::abi::comm::communicator::DTL_PROC_NULL;
use crate::abi::handle::dtl_request_t;
use crate::abi::status::{DTL_ERROR_INVALID_STATE, DTL_ERROR_OUT_OF_BOUNDS, DTL_ERROR_TYPE};
use crate::abi::word::*;
use crate::error::{Error, Result, fail};
use crate::runtime::comm::op_desc::Kind;
use crate::runtime::comm::p2p::request;
use crate::runtime::comm::rma_path::{Change, RmaStart, TargetRange};
use crate::runtime::component::Swap;
use crate::runtime::memory::device_only;
use crate::runtime::trace::{self, Args};
use crate::runtime::types;
use crate::sys::compute::shared_atomics;
use crate::sys::memory::buf::Region;

/// Target rank and displacement of an operation.
#[derive(Clone, Copy)]
pub struct TargetAddr {
    /// Target rank, or DTL_PROC_NULL.
    pub target: i32,
    /// Displacement in the target's displacement units.
    pub disp: u64,
}

impl Window {
    /// Returns the bytes at the target if the window is open, the bytes are inside the target's
    /// part, and this rank has an open epoch to the target.
    #[inline]
    pub(super) fn find(
        &self,
        TargetAddr { target, disp }: TargetAddr,
        len: usize,
    ) -> Option<TargetRange> {
        let part = self.part(target)?;
        let offset = disp.checked_mul(part.disp_unit)?;
        let is_inside = offset.checked_add(len as u64)? <= part.size;
        // Not more than the target has, which fits its memory, and for a length also ours.
        let spot = TargetRange { target, offset: offset as usize, len };
        (is_inside && self.comm.is_open() && self.epochs.admits(target)).then_some(spot)
    }

    /// Validates an address and returns its bytes; `None` for DTL_PROC_NULL or if `len` is 0.
    fn spot(&self, name: &str, place: TargetAddr, len: usize) -> Result<Option<TargetRange>> {
        trace::about(|| {
            Args::NONE.bytes(len as u64).peer(place.target).comm(self.comm.handle().id)
        });
        if place.target == DTL_PROC_NULL {
            return self.comm.check_open().map(|()| None);
        }
        match self.find(place, len) {
            Some(spot) => Ok((len > 0).then_some(spot)),
            None => Err(self.why_not(name, place, len)),
        }
    }

    #[cold]
    fn why_not(&self, name: &str, place: TargetAddr, len: usize) -> Error {
        let part = self.comm.check_open().and_then(|()| self.check_target(name, place.target));
        match part {
            Err(error) => error,
            Ok(_) if !self.epochs.would_admit(place.target) => no_epoch(name, place.target),
            Ok(part) => outside(name, place, len, part),
        }
    }
}

#[cold]
fn no_epoch(name: &str, target: i32) -> Error {
    let text = format!(
        "{name}: no epoch is open for target {target}: call dtl_win_fence (all ranks), \
         dtl_win_lock or dtl_win_lock_all first"
    );
    Error::new(DTL_ERROR_INVALID_STATE, text)
}

#[cold]
fn outside(
    name: &str,
    TargetAddr { target, disp }: TargetAddr,
    len: usize,
    RankWindow { size, disp_unit, .. }: RankWindow,
) -> Error {
    let text = format!(
        "{name}: {len} bytes at displacement {disp} of target {target} (steps of {disp_unit} \
         bytes) are not in its window, \
         which has {size} bytes"
    );
    Error::new(DTL_ERROR_OUT_OF_BOUNDS, text)
}

/// Copies `from` to the target. The library reads `from` until a flush, unlock or fence.
pub fn put(window: &Window, from: Region, place: TargetAddr) -> Result<()> {
    const NAME: &str = "dtl_win_put";
    device_only::refuse(NAME, from)?;
    let Some(spot) = window.spot(NAME, place, from.len())? else { return Ok(()) };
    window.way.put(spot, from, false).map(drop).map_err(|error| error.within(NAME))
}

/// Copies from the target. The library writes `into` until a flush, unlock or fence.
pub fn get(window: &Window, into: Region, place: TargetAddr) -> Result<()> {
    const NAME: &str = "dtl_win_get";
    device_only::refuse(NAME, into)?;
    let Some(spot) = window.spot(NAME, place, into.len())? else { return Ok(()) };
    window.way.get(into, spot, false).map(drop).map_err(|error| error.within(NAME))
}

/// Copies `from` to the target. The returned request completes when the put is complete locally.
pub fn rput(window: &Window, from: Region, place: TargetAddr) -> Result<dtl_request_t> {
    const NAME: &str = "dtl_win_rput";
    device_only::refuse(NAME, from)?;
    let spot = window.spot(NAME, place, from.len())?;
    let begun = spot.map_or(Ok(RmaStart::Over), |spot| window.way.put(spot, from, true));
    let begun = begun.map_err(|error| error.within(NAME))?;
    request::of_window(&window.comm, (Kind::Put, place.target), &window.way, begun)
}

/// Copies from the target. The returned request completes when the data has arrived.
pub fn rget(window: &Window, into: Region, place: TargetAddr) -> Result<dtl_request_t> {
    const NAME: &str = "dtl_win_rget";
    device_only::refuse(NAME, into)?;
    let spot = window.spot(NAME, place, into.len())?;
    let begun = spot.map_or(Ok(RmaStart::Over), |spot| window.way.get(into, spot, true));
    let begun = begun.map_err(|error| error.within(NAME))?;
    request::of_window(&window.comm, (Kind::Get, place.target), &window.way, begun)
}

/// Returns the update of a built-in dtype and operation, which every target can apply.
pub fn change(name: &str, dtype: dtl_dtype_t, op: dtl_reduce_op_t) -> Result<Change> {
    match shared_atomics::update(dtype, op) {
        Some(update) => Ok(Change { dtype, op, update }),
        None => Err(no_change(name, dtype, op)),
    }
}

/// Returns the error of a dtype and operation that a target cannot apply.
#[cold]
fn no_change(name: &str, dtype: dtl_dtype_t, op: dtl_reduce_op_t) -> Error {
    let text = match types::reduction(dtype, op) {
        Err(error) => return error.within(name),
        Ok(by) if by.is_own() => format!(
            "{name}: {} is an operation of this program, which the target may not know: use a \
             built-in one",
            types::op_text(op)
        ),
        Ok(_) => format!(
            "{name}: {} is a dtype of this program, which the target may not know: use a built-in \
             one (dtl_win_put and \
             dtl_win_get take any)",
            types::dtype_text(dtype)
        ),
    };
    Error::new(DTL_ERROR_TYPE, text)
}

impl Window {
    /// Checks that a buffer of an accumulating operation does not overlap the elements that it
    /// changes, if this rank is the target.
    fn check_apart(&self, name: &str, spot: Option<TargetRange>, buffer: Region) -> Result<()> {
        let own = spot.filter(|spot| spot.target == self.comm.rank);
        if own.is_some_and(|spot| self.memory.part(spot.offset, spot.len).overlaps(buffer)) {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "{name}: a buffer overlaps the target's elements: use memory outside of them"
            );
        }
        Ok(())
    }
}

/// Applies `target = target op from`, element by element.
pub fn accumulate(window: &Window, from: Region, place: TargetAddr, by: &Change) -> Result<()> {
    const NAME: &str = "dtl_win_accumulate";
    device_only::refuse(NAME, from)?;
    let spot = window.spot(NAME, place, from.len())?;
    window.check_apart(NAME, spot, from)?;
    let Some(spot) = spot.filter(|_| by.op != DTL_OP_NO_OP) else { return Ok(()) };
    window.way.accumulate(spot, from, by).map(drop).map_err(|error| error.within(NAME))
}

/// Applies `target = target op from`; `result` receives the previous elements of the target.
pub fn get_accumulate(
    window: &Window,
    name: &str,
    (from, result): (Region, Region),
    place: TargetAddr,
    by: &Change,
) -> Result<()> {
    [from, result].into_iter().try_for_each(|buffer| device_only::refuse(name, buffer))?;
    if from.overlaps(result) {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "{name}: the buffers overlap: use two");
    }
    let spot = window.spot(name, place, result.len())?;
    window.check_apart(name, spot, from)?;
    window.check_apart(name, spot, result)?;
    let Some(spot) = spot else { return Ok(()) };
    window.way.get_accumulate(spot, from, result, by).map(drop).map_err(|error| error.within(name))
}

/// Returns true if `dtype` supports compare-and-swap: integers and bytes.
pub(super) fn is_swapped(dtype: dtl_dtype_t) -> bool {
    matches!(dtype, DTL_DTYPE_INT8..=DTL_DTYPE_UINT64 | DTL_DTYPE_BYTE | DTL_DTYPE_BOOL)
}

/// Checks that `dtype` supports compare-and-swap: integers and bytes.
pub fn check_swapped(dtype: dtl_dtype_t) -> Result<()> {
    if is_swapped(dtype) {
        return Ok(());
    }
    types::element_size(dtype).map_err(|error| error.within("dtl_win_compare_and_swap"))?;
    fail!(
        DTL_ERROR_TYPE,
        "dtl_win_compare_and_swap: {} is not compared: use an integer dtype, BYTE or BOOL",
        types::dtype_text(dtype)
    )
}

/// Stores `value` if the target equals `expected`; `result` receives the previous element.
pub fn compare_and_swap(window: &Window, swap: Swap, place: TargetAddr) -> Result<()> {
    let Swap { value, expected, result, .. } = swap;
    if result.overlaps(value) || result.overlaps(expected) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "dtl_win_compare_and_swap: result overlaps value or expected: use another place"
        );
    }
    const NAME: &str = "dtl_win_compare_and_swap";
    [value, expected, result]
        .into_iter()
        .try_for_each(|buffer| device_only::refuse(NAME, buffer))?;
    let spot = window.spot(NAME, place, result.len())?;
    [value, expected, result]
        .into_iter()
        .try_for_each(|buffer| window.check_apart(NAME, spot, buffer))?;
    let Some(spot) = spot else { return Ok(()) };
    window.way.compare_and_swap(spot, swap).map(drop).map_err(|error| error.within(NAME))
}
