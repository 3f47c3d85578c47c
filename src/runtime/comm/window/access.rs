//! Operations on targets: checked against the target's part and this rank's epochs, then handed to the window's way.
//! What is wrong is found before anything moves.

use super::Window;
use super::way::{Begun, Spot, Swap};
use crate::abi::comm::DTL_PROC_NULL;
use crate::abi::handle::dtl_request_t;
use crate::abi::word::*;
use crate::error::{Result, fail};
use crate::runtime::comm::recorder::Kind;
use crate::runtime::comm::request;
use crate::runtime::comm::types::{self, Reduction};
use crate::sys::buf::Region;

/// Where at which target.
#[derive(Clone, Copy)]
pub struct Place {
    /// A rank or DTL_PROC_NULL.
    pub target: i32,
    /// In the target's units.
    pub disp: u64,
}

impl Window {
    /// The bytes at the target; `None`: nobody's, or none.
    #[inline]
    fn spot(&self, name: &str, place: Place, len: usize) -> Result<Option<Spot>> {
        let Place { target, disp } = place;
        self.comm.check_open()?;
        if target == DTL_PROC_NULL {
            return Ok(None);
        }
        let part = self.check_target(name, target)?;
        self.epochs.check_access(name, target)?;
        let offset = disp.checked_mul(part.disp_unit);
        let end = offset.and_then(|offset| offset.checked_add(len as u64));
        match (offset, end) {
            (Some(offset), Some(end)) if end <= part.size => {
                // Not more than the target has, which fits its memory, and for a length also ours.
                Ok((len > 0).then_some(Spot { target, offset: offset as usize, len }))
            }
            _ => fail!(
                DTL_ERROR_OUT_OF_BOUNDS,
                "{name}: {len} bytes at displacement {disp} of target {target} (steps of {} bytes) are not in its window, \
                 which has {} bytes",
                part.disp_unit,
                part.size
            ),
        }
    }
}

/// Copies to the target; `from` is the caller's until a flush, unlock or fence.
pub fn put(window: &Window, from: Region, place: Place) -> Result<()> {
    match window.spot("dtl_win_put", place, from.len())? {
        Some(spot) => window.way.put(spot, from, false).map(drop),
        None => Ok(()),
    }
}

/// Copies from the target; `into` is the library's until a flush, unlock or fence.
pub fn get(window: &Window, into: Region, place: Place) -> Result<()> {
    match window.spot("dtl_win_get", place, into.len())? {
        Some(spot) => window.way.get(into, spot, false).map(drop),
        None => Ok(()),
    }
}

/// The same as requests.
pub fn rput(window: &Window, from: Region, place: Place) -> Result<dtl_request_t> {
    let spot = window.spot("dtl_win_rput", place, from.len())?;
    let begun = spot.map_or(Ok(Begun::Over), |spot| window.way.put(spot, from, true))?;
    request::of_window(&window.comm, (Kind::Put, place.target), &window.way, begun)
}

/// As `rput`.
pub fn rget(window: &Window, into: Region, place: Place) -> Result<dtl_request_t> {
    let spot = window.spot("dtl_win_rget", place, into.len())?;
    let begun = spot.map_or(Ok(Begun::Over), |spot| window.way.get(into, spot, true))?;
    request::of_window(&window.comm, (Kind::Get, place.target), &window.way, begun)
}

/// A dtype and operation that a target applies: built-in ones.
pub fn reduction(name: &str, dtype: dtl_dtype_t, op: dtl_reduce_op_t) -> Result<Reduction> {
    let by = types::reduction(dtype, op).map_err(|error| error.within(name))?;
    if by.is_own() {
        return fail!(
            DTL_ERROR_TYPE,
            "{name}: {} is an operation of this program, which the target may not know: use a built-in one",
            types::op_text(op)
        );
    }
    if dtype > DTL_DTYPE_INT64_INT64 {
        return fail!(
            DTL_ERROR_TYPE,
            "{name}: {} is a dtype of this program, which the target may not know: use a built-in one (dtl_win_put and \
             dtl_win_get take any)",
            types::dtype_text(dtype)
        );
    }
    Ok(by)
}

impl Window {
    /// A buffer of an accumulating operation lies apart from this rank's own elements that it changes.
    fn check_apart(&self, name: &str, spot: Option<Spot>, buffer: Region) -> Result<()> {
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

/// `target = target ∘ from`.
pub fn accumulate(window: &Window, from: Region, place: Place, by: &Reduction) -> Result<()> {
    let spot = window.spot("dtl_win_accumulate", place, from.len())?;
    window.check_apart("dtl_win_accumulate", spot, from)?;
    match spot {
        Some(_) if by.op == DTL_OP_NO_OP => Ok(()),
        Some(spot) => window.way.accumulate(spot, from, by).map(drop),
        None => Ok(()),
    }
}

/// The same, and what was there before goes to `result`.
pub fn get_accumulate(
    window: &Window,
    name: &str,
    (from, result): (Region, Region),
    place: Place,
    by: &Reduction,
) -> Result<()> {
    if from.overlaps(result) {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "{name}: the buffers overlap: use two");
    }
    let spot = window.spot(name, place, result.len())?;
    window.check_apart(name, spot, from)?;
    window.check_apart(name, spot, result)?;
    match spot {
        Some(spot) => window.way.get_accumulate(spot, from, result, by).map(drop),
        None => Ok(()),
    }
}

/// Whether elements of a dtype are compared and swapped: integers and bytes.
pub fn check_swapped(dtype: dtl_dtype_t) -> Result<()> {
    match dtype {
        DTL_DTYPE_INT8..=DTL_DTYPE_UINT64 | DTL_DTYPE_BYTE | DTL_DTYPE_BOOL => Ok(()),
        _ => {
            types::element_size(dtype)?;
            fail!(
                DTL_ERROR_TYPE,
                "dtl_win_compare_and_swap: {} is not compared: use an integer dtype, BYTE or BOOL",
                types::dtype_text(dtype)
            )
        }
    }
}

/// Stores `value` if the target holds `expected`; `result` gets what it held.
pub fn compare_and_swap(
    window: &Window,
    (value, expected, result): (Region, Region, Region),
    place: Place,
) -> Result<()> {
    if result.overlaps(value) || result.overlaps(expected) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "dtl_win_compare_and_swap: result overlaps value or expected: use another place"
        );
    }
    const NAME: &str = "dtl_win_compare_and_swap";
    let spot = window.spot(NAME, place, result.len())?;
    [value, expected, result].into_iter().try_for_each(|buffer| window.check_apart(NAME, spot, buffer))?;
    match spot {
        Some(spot) => window.way.compare_and_swap(spot, Swap { value, expected, result }).map(drop),
        None => Ok(()),
    }
}
