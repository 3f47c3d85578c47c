//! Elements in the caller's memory: conversion of a pointer, a count and a datatype into a region,
//! with checks of the size.

use crate::abi::word::dtl_dtype_t;
use crate::error::{Result, fail};
use crate::ffi::args;
use crate::hints;
use crate::runtime::comm::p2p::send_recv::Data;
use crate::runtime::types::element_size;
use crate::sys::compute::elements::dtype_size;
use crate::sys::memory::buf::Region;
use std::ffi::c_void;

/// Creates a region over `count` elements of `dtype` at `pointer`.
///
/// # Safety
/// The caller must keep the elements valid until the operation that receives the region has ended.
#[inline]
pub(crate) unsafe fn elements(
    pointer: *const c_void,
    count: u64,
    dtype: dtl_dtype_t,
    name: &str,
) -> Result<Region> {
    // SAFETY: the caller guarantees that the elements stay valid until the operation has ended.
    match unsafe { fast_elements(pointer, count, dtype) } {
        Some(region) => Ok(region),
        // SAFETY: the caller guarantees that the elements stay valid until the operation has ended.
        None => unsafe { elements_checked(pointer, count, dtype, name) },
    }
}

/// Fast path of [`elements`]. Returns `None` if `pointer` is NULL or DTL_IN_PLACE, or if `count` is
/// so large that the size in bytes could overflow.
///
/// # Safety
/// The caller must keep the elements valid until the operation that receives the region has ended.
#[inline]
unsafe fn fast_elements(pointer: *const c_void, count: u64, dtype: dtl_dtype_t) -> Option<Region> {
    let beyond = pointer.addr().wrapping_sub(1) >> 62 | count.wrapping_sub(1) as usize >> 32;
    let size = hints::usual(dtype_size(dtype))?;
    // SAFETY: the caller guarantees that the elements stay valid until the operation has ended.
    hints::usually(beyond == 0)
        .then(|| unsafe { Region::new(pointer.cast_mut(), count as usize * size) })
}

/// Fast path of [`data`]. Returns `None` if `pointer`, `count` or `dtype` needs the general path.
///
/// # Safety
/// The caller must keep the elements valid until the operation that receives the region has ended.
#[inline]
pub(crate) unsafe fn fast_data(
    pointer: *const c_void,
    count: u64,
    dtype: dtl_dtype_t,
) -> Option<Data> {
    // SAFETY: the caller guarantees that the elements stay valid until the operation has ended.
    Some(Data { bytes: unsafe { fast_elements(pointer, count, dtype) }?, count, dtype })
}

/// General path of [`elements`], for arbitrary arguments.
///
/// # Safety
/// The caller must keep the elements valid until the operation that receives the region has ended.
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
    // SAFETY: the caller guarantees that the elements stay valid until the operation has ended.
    unsafe { args::region(pointer, bytes, name) }
}

/// Creates a region over the elements and returns it with their count and datatype.
///
/// # Safety
/// The caller must keep the elements valid until the operation that receives the region has ended.
pub(crate) unsafe fn data(
    pointer: *const c_void,
    count: u64,
    dtype: dtl_dtype_t,
    name: &str,
) -> Result<Data> {
    // SAFETY: the caller guarantees that the elements stay valid until the operation has ended.
    Ok(Data { bytes: unsafe { elements(pointer, count, dtype, name) }?, count, dtype })
}
