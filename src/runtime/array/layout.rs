//! Memory layout of an array: shape and strides, and a check of the extent in bytes.

use crate::error::{Error, Result, fail, failure};

/// Memory layout of the elements of an array.
pub(super) struct Layout {
    pub(super) shape: Box<[i64]>,
    pub(super) strides: Box<[i64]>,
    pub(super) count: u64,
    /// Extent in bytes, from the first element to the end of the last element.
    pub(super) bytes: u64,
    pub(super) is_contiguous: bool,
}

impl Layout {
    /// Creates a contiguous layout in row-major order.
    pub(super) fn compact(shape: &[i64], element: u64) -> Result<Self> {
        if let Some((at, n)) = shape.iter().enumerate().find(|(_, n)| **n < 0) {
            return fail!(DTL_ERROR_INVALID_ARGUMENT, "shape[{at}] is {n}: use 0 or more");
        }
        let mut strides = vec![0; shape.len()].into_boxed_slice();
        let mut next: i64 = 1;
        for (stride, n) in strides.iter_mut().zip(shape).rev() {
            *stride = next;
            // An empty dimension counts as 1, so that the strides of the others are as without it.
            next = next.checked_mul((*n).max(1)).ok_or_else(|| too_large(shape, element))?;
        }
        let is_empty = shape.contains(&0);
        let count = if is_empty { 0 } else { next as u64 };
        let whole = (next as u64).checked_mul(element).filter(|bytes| *bytes <= i64::MAX as u64);
        let bytes = whole.ok_or_else(|| too_large(shape, element))?;
        let bytes = if is_empty { 0 } else { bytes };
        Ok(Layout { shape: shape.into(), strides, count, bytes, is_contiguous: true })
    }

    /// Creates a layout with strides from another library. Strides of dimensions with at most one
    /// element are replaced by row-major strides.
    pub(super) fn with_strides(shape: &[i64], given: &[i64], element: u64) -> Result<Self> {
        let mut layout = Layout::compact(shape, element)?;
        if layout.count == 0 {
            return Ok(layout);
        }
        let mut last: i64 = 0;
        for (at, ((stride, n), wanted)) in
            layout.strides.iter_mut().zip(shape).zip(given).enumerate()
        {
            if *n > 1 && stride != wanted {
                if *wanted < 0 {
                    return fail!(
                        DTL_ERROR_NOT_SUPPORTED,
                        "strides[{at}] is {wanted}: elements before the first one are not \
                         supported; pass a copy"
                    );
                }
                *stride = *wanted;
                layout.is_contiguous = false;
            }
            let reach = (*n - 1).checked_mul(*stride).and_then(|reach| last.checked_add(reach));
            last = reach.ok_or_else(|| too_far(shape, given, element))?;
        }
        let bytes =
            (last as u64 + 1).checked_mul(element).filter(|bytes| *bytes <= i64::MAX as u64);
        layout.bytes = bytes.ok_or_else(|| too_far(shape, given, element))?;
        Ok(layout)
    }
}

/// Creates the error for an array whose strides make its extent exceed `i64::MAX` bytes, although
/// its shape alone does not. The error names the stride of the dimension with the largest extent.
fn too_far(shape: &[i64], strides: &[i64], element: u64) -> Error {
    let reach =
        |(_, (n, stride)): &(usize, (&i64, &i64))| i128::from(**n - 1) * i128::from(**stride);
    let farthest = shape.iter().zip(strides).enumerate().max_by_key(reach);
    let (at, stride) = farthest.map_or((0, 0), |(at, (_, stride))| (at, *stride));
    failure!(
        DTL_ERROR_INVALID_ARGUMENT,
        "strides[{at}] is {stride} elements of {element} bytes: with shape {shape:?} that is more \
         than memory can hold"
    )
}

fn too_large(shape: &[i64], element: u64) -> Error {
    failure!(
        DTL_ERROR_INVALID_ARGUMENT,
        "shape {shape:?} of elements of {element} bytes is more than memory can hold"
    )
}
