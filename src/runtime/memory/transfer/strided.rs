//! Copies of strided elements. Adjacent axes are merged as far as possible. The number of remaining
//! axes determines how the elements are copied:
//!
//! | remaining axes | copy |
//! |---|---|
//! | none | one contiguous range |
//! | one | rows of a 2-D copy |
//! | more | 2-D copies, one for each position on the outer axes |
//! | any, if the host can access both sides | loop on the host |
//!
//! Elements of the destination must not overlap each other or elements of the source; the functions
//! check this.

use super::{carry_out, copy_rows};
use crate::abi::word::DTL_OPERATION_COPY;
use crate::error::{Result, fail};
use crate::runtime::component::Rows;
use crate::runtime::library_ops;
use crate::runtime::memory::handlers::{self, Axes};
use crate::runtime::memory::{Located, locate_around};
use crate::sys::handles::epoch::Guard;
use crate::sys::memory::buf::{Addr, Region};

/// Maximum number of axes.
pub const MOST_AXES: usize = 8;

/// Axis of a strided copy: number of elements, and their strides in bytes at the destination and
/// the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Axis {
    count: u64,
    dst: i64,
    src: i64,
}

/// Plan of a strided copy: its merged axes, outermost first, and the extents of destination and
/// source.
pub struct StridedPlan {
    axes: Vec<Axis>,
    /// Number of bytes that are contiguous in source and destination at each position on the axes.
    run: u64,
    /// Number of bytes of the destination before the start of its first element, and number of
    /// bytes from that start to the end of the destination.
    pub dst: (u64, u64),
    /// Number of bytes of the source before the start of its first element, and number of bytes
    /// from that start to the end of the source.
    pub src: (u64, u64),
}

impl StridedPlan {
    /// Checks a copy layout and merges its axes. Returns `None` if there is nothing to copy.
    pub fn new(axes: &Axes<'_>) -> Result<Option<StridedPlan>> {
        if axes.shape.len() > MOST_AXES {
            return fail!(
                DTL_ERROR_NOT_SUPPORTED,
                "a copy of shape {:?}: {} axes, at most {MOST_AXES} are copied; merge some, or \
                 copy in parts",
                axes.shape,
                axes.shape.len()
            );
        }
        if axes.element_bytes == 0 {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "element_bytes is 0; pass the size of an element"
            );
        }
        if axes.shape.contains(&0) {
            return Ok(None);
        }
        let Some(mut plan) = in_bytes(axes) else {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "shape {:?} with dst_strides {:?} and src_strides {:?}, elements of {} bytes: more \
                 bytes than memory can hold",
                axes.shape,
                axes.dst_strides,
                axes.src_strides,
                axes.element_bytes
            );
        };
        plan.axes.sort_by_key(|axis| {
            std::cmp::Reverse((axis.dst.unsigned_abs(), axis.src.unsigned_abs()))
        });
        if !is_apart(&plan.axes, axes.element_bytes) {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "dst_strides {:?} of shape {:?}, elements of {} bytes: destination elements \
                 overlap, or destination axes interleave",
                axes.dst_strides,
                axes.shape,
                axes.element_bytes
            );
        }
        plan.run = merge(&mut plan.axes, axes.element_bytes);
        Ok(Some(plan))
    }

    /// Copies the elements that `axes` describes from `src` to `dst`. Each region extends from the
    /// lowest to the highest byte of its elements. Fails if elements of the source and of the
    /// destination may overlap.
    pub fn copy(&self, inside: &Guard, axes: &Axes<'_>, dst: Region, src: Region) -> Result<()> {
        if dst.overlaps(src) && self.may_overlap(axes) {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "source {:?} and destination {:?} of shape {:?} overlap, or have other strides \
                 within one area: copy through a third buffer",
                axes.src,
                axes.dst,
                axes.shape
            );
        }
        let to = locate_around(inside, "destination", axes.dst, dst)?;
        let from = locate_around(inside, "source", axes.src, src)?;
        if library_ops::is_taken(DTL_OPERATION_COPY)
            && handlers::copy(inside, &to, &from, Some(axes))?
        {
            return Ok(());
        }
        self.by_pieces(inside, &to, &from).map_err(|error| {
            error.within(&format!(
                "copy of shape {:?} from strides {:?} to {:?}",
                axes.shape, axes.src_strides, axes.dst_strides
            ))
        })
    }

    /// Returns true if an element of the source may share a byte with an element of the
    /// destination. The caller must have checked that the regions of source and destination
    /// overlap. If both have the same strides, such as two planes of one grid, the result is exact.
    /// Otherwise the elements are assumed to share bytes.
    fn may_overlap(&self, axes: &Axes<'_>) -> bool {
        let distance = axes.dst.get() as i128 - axes.src.get() as i128;
        let is_same = self.axes.iter().all(|axis| axis.dst == axis.src);
        !is_same || reaches(&self.axes, distance, i128::from(self.run))
    }

    fn by_pieces(&self, inside: &Guard, to: &Located<'_>, from: &Located<'_>) -> Result<()> {
        let is_host = to.host_accessible()?
            && from.host_accessible()?
            && !library_ops::is_taken(DTL_OPERATION_COPY);
        // A 2-D copy requires pitches that are not negative and not less than the width of a row.
        let has_pitch = |stride: i64| u64::try_from(stride).is_ok_and(|pitch| pitch >= self.run);
        let last = self
            .axes
            .last()
            .copied()
            .filter(|axis| !is_host && has_pitch(axis.dst) && has_pitch(axis.src));
        let outer = self.axes.len() - usize::from(last.is_some());
        let outer = self.axes.get(..outer).unwrap_or_default();
        let mut at = [0_u64; MOST_AXES];
        loop {
            let dst = offset(self.dst.0, outer, &at, |axis| axis.dst);
            let src = offset(self.src.0, outer, &at, |axis| axis.src);
            match last {
                Some(Axis { count, dst: to_pitch, src: from_pitch }) => {
                    let pitches = (to_pitch as u64, from_pitch as u64);
                    let rows = Rows { pitches, width: self.run, height: count };
                    let span = |pitch: u64| pitch * (count - 1) + self.run;
                    let (to, from) =
                        (to.part(dst, span(pitches.0)), from.part(src, span(pitches.1)));
                    copy_rows(inside, &to, &from, rows)?;
                }
                None if is_host => {
                    let (to, from) = (to.part(dst, self.run), from.part(src, self.run));
                    to.place.region.copy_from(from.place.region);
                }
                None => carry_out(inside, &to.part(dst, self.run), &from.part(src, self.run))?,
            }
            if !step(&mut at, outer) {
                return Ok(());
            }
        }
    }
}

/// Returns a plan that is not merged yet: the axes of more than one element, with strides in bytes,
/// and the extents. Returns `None` if a number of bytes exceeds isize::MAX.
fn in_bytes(axes: &Axes<'_>) -> Option<StridedPlan> {
    let element = i64::try_from(axes.element_bytes).ok()?;
    let mut list = Vec::with_capacity(axes.shape.len());
    for (&count, (dst, src)) in axes.shape.iter().zip(axes.dst_strides.iter().zip(axes.src_strides))
    {
        if count > 1 {
            let (dst, src) = (dst.checked_mul(element)?, src.checked_mul(element)?);
            list.push(Axis { count, dst, src });
        }
    }
    let reach = |stride: fn(&Axis) -> i64| span(&list, stride, axes.element_bytes);
    let (dst, src) = (reach(|axis| axis.dst)?, reach(|axis| axis.src)?);
    Some(StridedPlan { axes: list, run: axes.element_bytes, dst, src })
}

/// Returns the number of bytes of the layout before its first element (nonzero only with negative
/// strides), and the number of bytes from the start of that element to the end of the layout.
/// Returns `None` if the sum of the two numbers exceeds isize::MAX.
fn span(axes: &[Axis], stride: fn(&Axis) -> i64, element: u64) -> Option<(u64, u64)> {
    let (mut below, mut above) = (0_u64, element);
    for axis in axes {
        let bytes = stride(axis).unsigned_abs().checked_mul(axis.count - 1)?;
        let side = if stride(axis) < 0 { &mut below } else { &mut above };
        *side = side.checked_add(bytes)?;
    }
    below.checked_add(above).filter(|bytes| *bytes <= isize::MAX as u64).map(|_| (below, above))
}

/// Returns true if, at the destination, the stride of each axis is at least the extent in bytes of
/// all inner axes, so that no two elements share a byte.
fn is_apart(axes: &[Axis], element: u64) -> bool {
    let mut reach = element;
    axes.iter().rev().all(|axis| {
        let step = axis.dst.unsigned_abs();
        let is_over = step >= reach;
        reach = reach.saturating_add(step.saturating_mul(axis.count - 1));
        is_over
    })
}

/// Merges axes whose elements are contiguous in source and destination. Returns the number of bytes
/// that are contiguous in both at each position on the remaining axes.
fn merge(axes: &mut Vec<Axis>, element: u64) -> u64 {
    let mut run = element;
    while let Some(inner) = axes.last().copied() {
        if inner.dst != run as i64 || inner.src != run as i64 {
            break;
        }
        run *= inner.count;
        axes.pop();
    }
    let mut at = axes.len().saturating_sub(1);
    while at > 0 {
        let pair = (axes.get(at - 1).copied(), axes.get(at).copied());
        if let (Some(outer), Some(inner)) = pair {
            let steps = |stride: i64| {
                i64::try_from(inner.count).ok().and_then(|count| stride.checked_mul(count))
            };
            if steps(inner.dst) == Some(outer.dst) && steps(inner.src) == Some(outer.src) {
                axes.remove(at);
                if let Some(outer) = axes.get_mut(at - 1) {
                    *outer = Axis { count: outer.count * inner.count, ..inner };
                }
            }
        }
        at -= 1;
    }
    run
}

/// Returns true if there are two positions on the axes whose distance in bytes differs from
/// `distance` by less than `run` bytes. The axes are listed outermost first, and the stride of each
/// is at least the extent in bytes of all inner axes, so only the two multiples of the outermost
/// stride that enclose `distance` need a check.
fn reaches(axes: &[Axis], distance: i128, run: i128) -> bool {
    let Some((axis, inner)) = axes.split_first() else { return distance.abs() < run };
    let stride = i128::from(axis.dst.unsigned_abs());
    let steps = distance.div_euclid(stride);
    [steps, steps + 1].into_iter().any(|steps| {
        steps.unsigned_abs() < u128::from(axis.count)
            && reaches(inner, distance - steps * stride, run)
    })
}

/// Returns the offset in bytes of the position `at` (one index for each axis). `first` is the
/// offset of position 0.
fn offset(first: u64, axes: &[Axis], at: &[u64; MOST_AXES], stride: fn(&Axis) -> i64) -> u64 {
    let steps = axes.iter().zip(at).map(|(axis, &at)| (at as i64).wrapping_mul(stride(axis)));
    steps.fold(first, |sum, step| sum.wrapping_add_signed(step))
}

/// Advances `at` to the next position; the last axis varies fastest. Returns false after the last
/// position.
fn step(at: &mut [u64; MOST_AXES], axes: &[Axis]) -> bool {
    for (axis, at) in axes.iter().zip(at).rev() {
        *at += 1;
        if *at < axis.count {
            return true;
        }
        *at = 0;
    }
    false
}

/// Returns the strides in elements of an array with contiguous elements, in which the last axis
/// varies fastest. A stride that overflows is i64::MAX, which no plan accepts.
pub fn dense(shape: &[u64]) -> Vec<i64> {
    let mut stride = 1_u64;
    let mut strides = Vec::with_capacity(shape.len());
    for &count in shape.iter().rev() {
        strides.push(i64::try_from(stride).unwrap_or(i64::MAX));
        stride = stride.saturating_mul(count.max(1));
    }
    strides.reverse();
    strides
}

/// Returns the lowest address of a strided layout: `below` bytes before its first element.
pub fn lowest(first: Addr, below: u64) -> Addr {
    Addr::new(first.ptr().wrapping_byte_sub(below as usize))
}

#[cfg(test)]
#[path = "tests/strided.rs"]
mod tests;
