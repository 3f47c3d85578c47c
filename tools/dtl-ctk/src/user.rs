//! User-defined element type and two user-defined reduction operations that this program registers,
//! once per process. This module contains the user callbacks that the library calls; the module
//! `reference` contains an independent implementation of the operations.

use crate::data::{USER_DTYPE, USER_MATRIX, USER_SUM};
use crate::kit::outcome::{Called, output};
use dtl_sys::*;
use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;

/// Element of the user-defined type: six numbers below 251.
type Element = [u32; 6];

/// Values that the library assigned on registration to the user-defined dtype and to the reduction
/// operations on it: the sum (commutative) and the matrix product (not commutative).
static MADE: OnceLock<[i32; 3]> = OnceLock::new();

/// Registers the user-defined type and reduction operations. Must be called before any rank runs
/// cases.
pub(crate) fn make() -> Called {
    let (bytes, none) = (size_of::<Element>() as u64, ptr::null_mut());
    let (sum, matrix) = (c"ctk sum".as_ptr(), c"ctk matrix".as_ptr());
    let dtype = output!(0, dtl_dtype_create(bytes, c"ctk".as_ptr()))?;
    // The functions keep to dtl_op_fn_t and use no `user`.
    let sum = output!(0, dtl_op_create(Some(add), none, DTL_OP_COMMUTES, sum))?;
    let matrix = output!(0, dtl_op_create(Some(multiply), none, 0, matrix))?;
    let _ = MADE.set([dtype, sum, matrix]);
    Ok(())
}

/// Returns the registered dtype for the placeholder `USER_DTYPE`, and any other dtype unchanged.
pub(crate) fn dtype(dtype: dtl_dtype_t) -> dtl_dtype_t {
    if dtype == USER_DTYPE { made(0) } else { dtype }
}

/// Returns the registered operation for the placeholders `USER_SUM` and `USER_MATRIX`, and any
/// other operation unchanged.
pub(crate) fn operation(op: dtl_reduce_op_t) -> dtl_reduce_op_t {
    match op {
        USER_SUM => made(1),
        USER_MATRIX => made(2),
        _ => op,
    }
}

fn made(index: usize) -> i32 {
    MADE.get().map_or(-1, |made| made[index])
}

extern "C" fn add(
    left: *const c_void,
    right: *mut c_void,
    count: u64,
    _dtype: dtl_dtype_t,
    _user: *mut c_void,
) {
    // SAFETY: the library passes the arguments that this function requires.
    unsafe { each(left, right, count, |a, b| std::array::from_fn(|at| (a[at] + b[at]) % 251)) }
}

extern "C" fn multiply(
    left: *const c_void,
    right: *mut c_void,
    count: u64,
    _dtype: dtl_dtype_t,
    _user: *mut c_void,
) {
    let product = |[a, b, c, d, n, _]: Element, [e, f, g, h, m, last]: Element| {
        let entries = [a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h, n + m];
        let [e, f, g, h, m] = entries.map(|entry| entry % 251);
        [e, f, g, h, m, last]
    };
    // SAFETY: the library passes the arguments that this function requires.
    unsafe { each(left, right, count, product) }
}

/// Combines each element of `left` with the corresponding element of `right`, and stores the result
/// in `right`.
///
/// # Safety
/// Both arrays must have `count` elements, and they must not overlap.
unsafe fn each(
    left: *const c_void,
    right: *mut c_void,
    count: u64,
    fold: impl Fn(Element, Element) -> Element,
) {
    let (left, right) = (left.cast::<Element>(), right.cast::<Element>());
    for index in 0..count as usize {
        let (left, right) = (left.wrapping_add(index), right.wrapping_add(index));
        // SAFETY: `index` is below the count; buffers need not be aligned, as their owner's are
        // not.
        let a = unsafe { left.read_unaligned() };
        // SAFETY: likewise.
        let b = unsafe { right.read_unaligned() };
        // SAFETY: likewise, and nobody else uses `right` in this call.
        unsafe { right.write_unaligned(fold(a, b)) };
    }
}
