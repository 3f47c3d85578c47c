//! Elements in the caller's memory: how many bytes, and whether they can be.

use crate::abi::word::dtl_dtype_t;
use crate::error::{Result, fail};
use crate::ffi::args;
use crate::runtime::comm::p2p::send_recv::Data;
use crate::runtime::types::element_size;
use crate::sys::compute::reduce::dtype_size;
use crate::sys::memory::buf::Region;
use crate::sys::sync::hints;
use std::ffi::c_void;

/// `count` elements of `dtype` at `pointer`.
///
/// # Safety
/// They stay valid until the operation that receives the region has ended.
#[inline]
pub(in crate::ffi) unsafe fn elements(
    pointer: *const c_void,
    count: u64,
    dtype: dtl_dtype_t,
    name: &str,
) -> Result<Region> {
    // SAFETY: passed on.
    match unsafe { fast_elements(pointer, count, dtype) } {
        Some(region) => Ok(region),
        // SAFETY: passed on.
        None => unsafe { elements_checked(pointer, count, dtype, name) },
    }
}

/// Fast path of [`elements`]: `pointer` is neither NULL nor DTL_IN_PLACE, and `count` is so small
/// that the size in bytes cannot overflow.
///
/// # Safety
/// The elements stay valid until the operation that receives the region has ended.
#[inline]
unsafe fn fast_elements(pointer: *const c_void, count: u64, dtype: dtl_dtype_t) -> Option<Region> {
    let beyond = pointer.addr().wrapping_sub(1) >> 62 | count.wrapping_sub(1) as usize >> 32;
    let size = hints::usual(dtype_size(dtype))?;
    // SAFETY: passed on.
    hints::usually(beyond == 0)
        .then(|| unsafe { Region::new(pointer.cast_mut(), count as usize * size) })
}

/// Fast path of [`data`]. `None`: the arguments need the general path.
///
/// # Safety
/// The elements stay valid until the operation that receives the region has ended.
#[inline]
pub(in crate::ffi) unsafe fn fast_data(
    pointer: *const c_void,
    count: u64,
    dtype: dtl_dtype_t,
) -> Option<Data> {
    // SAFETY: passed on.
    Some(Data { bytes: unsafe { fast_elements(pointer, count, dtype) }?, count, dtype })
}

/// General path of [`elements`], for arguments of any kind.
///
/// # Safety
/// The elements stay valid until the operation that receives the region has ended.
#[inline(never)]
unsafe fn elements_checked(
    pointer: *const c_void,
    count: u64,
    dtype: dtl_dtype_t,
    name: &str,
) -> Result<Region> {
    let size = element_size(dtype)? as u64;
    let Some(bytes) = count.checked_mul(size) else {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{name}: {count} elements of {size} bytes are more than memory can hold"
        );
    };
    // SAFETY: passed on.
    unsafe { args::region(pointer, bytes, name) }
}

/// Returns the [`elements`] with their count and dtype.
///
/// # Safety
/// The elements stay valid until the operation that receives the region has ended.
#[inline]
pub(in crate::ffi) unsafe fn data(
    pointer: *const c_void,
    count: u64,
    dtype: dtl_dtype_t,
    name: &str,
) -> Result<Data> {
    // SAFETY: passed on.
    Ok(Data { bytes: unsafe { elements(pointer, count, dtype, name) }?, count, dtype })
}
