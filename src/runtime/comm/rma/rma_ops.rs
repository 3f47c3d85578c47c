//! One-sided operations: each call checks that the accessed bytes are inside the target's window
//! memory and that this rank has an open access epoch, then passes the operation to the RMA path of
//! the window. Errors are detected before any data is transferred.

use super::{RankWindow, Window};
use crate::abi::comm::communicator::DTL_PROC_NULL;
use crate::abi::handle::dtl_request_t;
use crate::abi::word::*;
use crate::error::{Error, Result, fail, failure};
use crate::runtime::comm::op_desc::Kind;
use crate::runtime::comm::p2p::request;
use crate::runtime::comm::rma_path::{Change, RmaStart, TargetRange};
pub use crate::runtime::component::RmaOp;
use crate::runtime::memory::device_only;
use crate::runtime::trace::{self, Args};
use crate::runtime::types;
use crate::sys::compute::elements;
use crate::sys::memory::buf::Region;

/// Location that a one-sided operation accesses: target rank and displacement.
#[derive(Clone, Copy)]
pub struct TargetAddr {
    /// Target rank, or DTL_PROC_NULL.
    pub target: i32,
    /// Displacement in the target's window memory, in displacement units of the target.
    pub disp: u64,
}

impl Window {
    /// Returns the range of `len` bytes at the target. Returns `None` if the window is not open,
    /// the range is not inside the target's window memory, or this rank has no open access epoch to
    /// the target.
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

    /// Validates an address and returns the range of `len` bytes that begins at it. Returns `None`
    /// if the target is DTL_PROC_NULL or `len` is 0.
    fn spot(&self, name: &str, place: TargetAddr, len: usize) -> Result<Option<TargetRange>> {
        trace::about(|| {
            Args::NONE.bytes(len as u64).peer(place.target).comm(self.comm.handle().id)
        });
        if place.target == DTL_PROC_NULL {
            return self.comm.check_open().map(|()| None);
        }
        self.find(place, len)
            .map(|spot| (len > 0).then_some(spot))
            .ok_or_else(|| self.why_not(name, place, len))
    }

    #[cold]
    fn why_not(&self, name: &str, place: TargetAddr, len: usize) -> Error {
        let TargetAddr { target, disp } = place;
        match self.comm.check_open().and_then(|()| self.check_target(name, target)) {
            Err(error) => error,
            Ok(_) if !self.epochs.would_admit(target) => failure!(
                DTL_ERROR_INVALID_STATE,
                "{name}: no epoch is open for target {target}: call dtl_win_fence (all ranks), \
                 dtl_win_lock or dtl_win_lock_all first"
            ),
            Ok(RankWindow { size, disp_unit, .. }) => failure!(
                DTL_ERROR_OUT_OF_BOUNDS,
                "{name}: {len} bytes at displacement {disp} of target {target} (steps of \
                 {disp_unit} bytes) are not in its window, which has {size} bytes"
            ),
        }
    }
}

/// Checks an operation and starts it. The library may access the operation's buffers until the next
/// flush, unlock or fence.
pub fn run(window: &Window, name: &str, place: TargetAddr, op: RmaOp) -> Result<()> {
    window.start(name, place, op, false).map(drop)
}

/// Checks a put or get and starts it. The returned request completes when the operation is complete
/// locally.
pub fn run_as_request(
    window: &Window,
    name: &str,
    place: TargetAddr,
    op: RmaOp,
) -> Result<dtl_request_t> {
    let kind = if let RmaOp::Put(_) = op { Kind::Put } else { Kind::Get };
    let begun = window.start(name, place, op, true)?;
    request::of_window(&window.comm, (kind, place.target), &window.path, begun)
}

/// Returns the parameters of an accumulate operation with a built-in dtype and reduction
/// operation. Every target can apply such an operation.
pub fn change(dtype: dtl_dtype_t, op: dtl_reduce_op_t) -> Result<Change> {
    let update = elements::update(dtype, op).ok_or_else(|| no_change(dtype, op))?;
    Ok(Change { dtype, op, update })
}

/// Returns the error for a dtype and a reduction operation that a target cannot apply, because at
/// least one of them is not built in.
#[cold]
fn no_change(dtype: dtl_dtype_t, op: dtl_reduce_op_t) -> Error {
    match types::reduction(dtype, op) {
        Err(error) => error,
        Ok(by) if by.is_own() => failure!(
            DTL_ERROR_TYPE,
            "{} is an operation of this program, which the target may not know: use a built-in one",
            types::op_text(op)
        ),
        Ok(_) => failure!(
            DTL_ERROR_TYPE,
            "{} is a dtype of this program, which the target may not know: use a built-in one \
             (dtl_win_put and dtl_win_get take any)",
            types::dtype_text(dtype)
        ),
    }
}

impl Window {
    fn start(&self, name: &str, place: TargetAddr, op: RmaOp, wants_op: bool) -> Result<RmaStart> {
        let buffers = op.buffers();
        buffers.into_iter().try_for_each(|buffer| device_only::refuse(name, buffer))?;
        let [result, from, expected] = buffers;
        if result.overlaps(from) || result.overlaps(expected) {
            return Err(overlap(name, &op));
        }
        let len = if result.is_empty() { from.len() } else { result.len() };
        let spot = self.spot(name, place, len)?;
        let spot = match op {
            RmaOp::Put(_) | RmaOp::Get(_) => spot,
            RmaOp::Accumulate { by, .. } if by.op == DTL_OP_NO_OP && result.is_empty() => {
                self.check_apart(name, spot, buffers)?;
                None
            }
            _ => self.check_apart(name, spot, buffers).map(|()| spot)?,
        };
        let Some(spot) = spot else { return Ok(None) };
        self.path.start(spot, &op, wants_op).map_err(|error| self.failed(name, error))
    }

    /// Checks that no buffer of an accumulate operation overlaps the elements that the operation
    /// changes, if this rank is the target.
    fn check_apart(
        &self,
        name: &str,
        spot: Option<TargetRange>,
        buffers: [Region; 3],
    ) -> Result<()> {
        let Some(spot) = spot.filter(|spot| spot.target == self.comm.rank) else { return Ok(()) };
        let elements = self.memory.part(spot.offset, spot.len);
        if buffers.into_iter().any(|buffer| elements.overlaps(buffer)) {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "{name}: a buffer overlaps the target's elements: use memory outside of them"
            );
        }
        Ok(())
    }
}

#[cold]
fn overlap(name: &str, op: &RmaOp) -> Error {
    let text = match op {
        RmaOp::CompareAndSwap(_) => "result overlaps value or expected: use another place",
        _ => "the buffers overlap: use two",
    };
    failure!(DTL_ERROR_INVALID_ARGUMENT, "{name}: {text}")
}

/// Returns true if `dtype` supports compare-and-swap: an integer dtype, BYTE or BOOL.
pub(super) fn is_swapped(dtype: dtl_dtype_t) -> bool {
    matches!(dtype, DTL_DTYPE_INT8..=DTL_DTYPE_UINT64 | DTL_DTYPE_BYTE | DTL_DTYPE_BOOL)
}

/// Checks that `dtype` supports compare-and-swap: an integer dtype, BYTE or BOOL.
pub fn check_swapped(dtype: dtl_dtype_t) -> Result<()> {
    if is_swapped(dtype) {
        return Ok(());
    }
    types::element_size(dtype)?;
    fail!(
        DTL_ERROR_TYPE,
        "{} is not compared: use an integer dtype, BYTE or BOOL",
        types::dtype_text(dtype)
    )
}
