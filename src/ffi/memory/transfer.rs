//! Copies and fills: blocking.

use crate::abi::handle::dtl_backend_t;
use crate::abi::status::dtl_status_t;
use crate::abi::word::DTL_MEMORY_DEVICE;
use crate::error::{Result, fail};
use crate::ffi::args::{self, Out};
use crate::ffi::guard::Entry;
use crate::runtime::component::Rows;
use crate::runtime::memory::handlers::Axes;
use crate::runtime::memory::transfer::{self, strided};
use crate::runtime::memory::{Owner, Request};
use crate::runtime::{device, memory};
use crate::sys::handles::epoch::Guard;
use crate::sys::memory::buf::{Addr, Region};
use std::ffi::c_void;

/// Copies between any two kinds of memory, and blocks until the copy is complete. The memory of
/// each side is determined as in dtl_mem_query; an unknown pointer is host memory.
///
/// @param dst         `size_bytes` bytes. NULL only for 0 bytes.
/// @param src         `size_bytes` bytes. Must not overlap `dst`. NULL only for 0 bytes.
/// @param size_bytes  Bytes to copy.
/// @return DTL_ERROR_OUT_OF_BOUNDS: a side extends beyond the end of its allocation.
///         DTL_ERROR_INVALID_ARGUMENT: the two sides overlap.
///         DTL_ERROR_NOT_SUPPORTED: there is no path between the two memories.
/// Equivalent: cudaMemcpy with cudaMemcpyDefault.
/// dtl:dst out len(size_bytes) opt(size_bytes==0)
/// dtl:src len(size_bytes) opt(size_bytes==0)
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_copy(
    dst: *mut c_void,
    src: *const c_void,
    size_bytes: u64,
) -> dtl_status_t {
    Entry("dtl_mem_copy").call(|inside| {
        // SAFETY: the caller's contract: both sides hold size_bytes.
        let dst = unsafe { args::region(dst, size_bytes, "dst") }?;
        // SAFETY: as above.
        let src = unsafe { args::region(src, size_bytes, "src") }?;
        transfer::copy(inside, dst, src)
    })
}

/// Copies rows of a 2D region, which are a pitch apart on each side. Blocks until the copy is
/// complete. The memory of each side is determined as in dtl_mem_query.
///
/// @param dst              First byte of the first row. NULL only if nothing is copied.
/// @param dst_pitch_bytes  Bytes from one row of `dst` to the next, at least `width_bytes`.
/// @param src              First byte of the first row. NULL only if nothing is copied.
/// @param src_pitch_bytes  Bytes from one row of `src` to the next, at least `width_bytes`.
/// @param width_bytes      Bytes per row.
/// @param height           Number of rows.
/// @return DTL_ERROR_OUT_OF_BOUNDS: a side extends beyond the end of its allocation.
///         DTL_ERROR_INVALID_ARGUMENT: the two sides overlap, a pitch is smaller than
///         `width_bytes`, or the rows exceed the address space.
///         DTL_ERROR_NOT_SUPPORTED: there is no path between the two memories.
/// Equivalent: cudaMemcpy2D.
/// dtl:dst out len(?) opt(width_bytes==0||height==0)
/// dtl:src len(?) opt(width_bytes==0||height==0)
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_copy_2d(
    dst: *mut c_void,
    dst_pitch_bytes: u64,
    src: *const c_void,
    src_pitch_bytes: u64,
    width_bytes: u64,
    height: u64,
) -> dtl_status_t {
    Entry("dtl_mem_copy_2d").call(|inside| {
        // SAFETY: the caller's contract: both sides hold `height` rows.
        let dst = unsafe { rows(dst, dst_pitch_bytes, width_bytes, height, "dst") }?;
        // SAFETY: as above.
        let src = unsafe { rows(src, src_pitch_bytes, width_bytes, height, "src") }?;
        let pitches = (dst_pitch_bytes, src_pitch_bytes);
        transfer::copy_2d(inside, dst, src, Rows { pitches, width: width_bytes, height })
    })
}

unsafe fn rows(
    ptr: *const c_void,
    pitch: u64,
    width: u64,
    height: u64,
    name: &str,
) -> Result<Region> {
    if pitch < width {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{name}_pitch_bytes {pitch} is less than width_bytes {width}"
        );
    }
    let span = match height.checked_sub(1).filter(|_| width > 0) {
        None => Some(0),
        Some(gaps) => pitch.checked_mul(gaps).and_then(|bytes| bytes.checked_add(width)),
    };
    let Some(span) = span else {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{name}: {height} rows {pitch} bytes apart are more than memory can hold"
        );
    };
    // SAFETY: passed on.
    unsafe { args::region(ptr, span, name) }
}

/// Copies strided elements: a part of a grid, a transposed matrix, a halo.
///
/// Blocks until the copy is complete. Axes that are contiguous are merged. The rest is copied as
/// one block, by rows (dtl_mem_copy_2d), by several such copies, or by a loop on the host.
///
/// @param dst            First element of the destination.
/// @param dst_strides    `ndim` distances from one element to the next along an axis, in elements;
///                       may be negative. NULL = contiguous, the last axis varies fastest.
/// @param src            First element of the source.
/// @param src_strides    `ndim` distances, in elements; may be negative, and 0 repeats an element.
///                       NULL = contiguous, the last axis varies fastest.
/// @param shape          `ndim` numbers of elements, each at least 0. If one is 0, nothing is
///                       copied.
/// @param ndim           Number of axes, at most 8. 0 is one element.
/// @param element_bytes  Size of an element in bytes, at least 1. For distances that are not a
///                       multiple of it, pass a smaller element and one more axis.
/// @return DTL_ERROR_NOT_SUPPORTED: `ndim` is above 8, or there is no path between the two
///         memories. The text has shape and strides.
///         DTL_ERROR_OUT_OF_BOUNDS: elements lie outside the allocation that contains the first
///         one, or other elements are in an allocation and the first one is not.
///         DTL_ERROR_INVALID_ARGUMENT: elements of the destination overlap each other or the source
///         (if the strides of the two differ, overlapping extents suffice); `ndim`, a shape or
///         `element_bytes` is not valid; or the extents exceed the address space. Also if
///         destination axes interleave: an outer stride is smaller than the extent of an inner
///         axis, as with strides [6, 4] and shape [2, 3], even if no elements overlap. Then copy in
///         parts, one for each position on an axis.
/// Equivalent: cudaMemcpy3D; MPI_Type_create_subarray on both sides.
/// dtl:dst_strides len(ndim) opt
/// dtl:src_strides len(ndim) opt
/// dtl:shape len(ndim) opt(ndim==0)
/// dtl:dst out len(?) opt(?)
/// dtl:src len(?) opt(?)
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_copy_strided(
    dst: *mut c_void,
    dst_strides: *const i64,
    src: *const c_void,
    src_strides: *const i64,
    shape: *const i64,
    ndim: i32,
    element_bytes: u64,
) -> dtl_status_t {
    Entry("dtl_mem_copy_strided").call(|inside| {
        let sides = (dst, dst_strides, src, src_strides);
        // SAFETY: passed on.
        unsafe { strided(inside, sides, (shape, ndim), element_bytes) }
    })
}

/// First elements and strides of the sides: destination, source.
type Sides = (*mut c_void, *const i64, *const c_void, *const i64);

/// Performs dtl_mem_copy_strided.
///
/// # Safety
/// The lists are null or have `ndim` values, and the elements that they lead to are valid.
pub(crate) unsafe fn strided(
    inside: &Guard,
    (dst, dst_strides, src, src_strides): Sides,
    (shape, ndim): (*const i64, i32),
    element_bytes: u64,
) -> Result<()> {
    let axes = axis_count(ndim)?;
    // SAFETY: passed on.
    let shape = unsafe { list(shape, axes, "shape") }?;
    // SAFETY: passed on.
    let dst_strides = unsafe { list(dst_strides, axes, "dst_strides") }?;
    // SAFETY: passed on.
    let src_strides = unsafe { list(src_strides, axes, "src_strides") }?;
    if shape.is_none() && axes > 0 {
        return fail!(DTL_ERROR_NULL_POINTER, "shape is NULL for {ndim} axes");
    }
    let shape = &counts(shape.unwrap_or_default())?;
    // A missing list of strides: the elements lie in a row.
    let dense = strided::dense(shape);
    let axes = Axes {
        dst: Addr::new(dst),
        src: Addr::new(src.cast_mut()),
        shape,
        dst_strides: dst_strides.as_ref().unwrap_or(&dense),
        src_strides: src_strides.as_ref().unwrap_or(&dense),
        element_bytes,
    };
    let Some(plan) = strided::StridedPlan::new(&axes)? else { return Ok(()) };
    // SAFETY: the caller's contract: the elements are there, and so is what lies between them.
    let to = unsafe { side(axes.dst, plan.dst, "dst") }?;
    // SAFETY: as above.
    let from = unsafe { side(axes.src, plan.src, "src") }?;
    plan.copy(inside, &axes, to, from)
}

/// Returns the region from the lowest byte of a side to its last.
unsafe fn side(first: Addr, (below, above): (u64, u64), name: &str) -> Result<Region> {
    if first.is_null() || (first.get() as u64) < below {
        return fail!(
            DTL_ERROR_NULL_POINTER,
            "{name} is NULL, or its strides lead below address 0"
        );
    }
    // SAFETY: passed on.
    unsafe { args::region(strided::lowest(first, below).ptr(), below + above, name) }
}

/// Returns the number of axes to read: at most one more than is supported, which is enough to
/// refuse it.
fn axis_count(ndim: i32) -> Result<usize> {
    match usize::try_from(ndim) {
        Ok(count) => Ok(count.min(strided::MOST_AXES + 1)),
        Err(_) => fail!(DTL_ERROR_INVALID_ARGUMENT, "ndim {ndim}: use 0 to {}", strided::MOST_AXES),
    }
}

/// Converts the counts of elements along the axes, none of which may be negative.
fn counts(shape: Vec<i64>) -> Result<Vec<u64>> {
    match shape.iter().position(|&count| count < 0) {
        None => Ok(shape.into_iter().map(|count| count as u64).collect()),
        Some(axis) => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "shape[{axis}] is {}: use 0 or more elements",
            shape.get(axis).copied().unwrap_or_default()
        ),
    }
}

/// Copies a list that may be NULL.
unsafe fn list(pointer: *const i64, count: usize, name: &str) -> Result<Option<Vec<i64>>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's contract: `count` elements.
    unsafe { args::slice(pointer, count, name) }.map(|list| Some(list.to_vec()))
}

/// Sets each byte of memory to a value, and blocks until that is done.
///
/// @param dst         `size_bytes` bytes. NULL only for 0 bytes.
/// @param value       Value of each byte.
/// @param size_bytes  Bytes to set.
/// @return DTL_ERROR_OUT_OF_BOUNDS: `dst` extends beyond the end of its allocation.
/// Equivalent: cudaMemset.
/// dtl:dst out len(size_bytes) opt(size_bytes==0)
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_fill(
    dst: *mut c_void,
    value: u8,
    size_bytes: u64,
) -> dtl_status_t {
    Entry("dtl_mem_fill").call(|inside| {
        // SAFETY: the caller's contract.
        transfer::fill(inside, unsafe { args::region(dst, size_bytes, "dst") }?, value)
    })
}

/// Allocates DTL_MEMORY_DEVICE memory and copies host memory into it. Blocks until the copy is
/// complete. After a failure nothing stays allocated.
///
/// @param host        `size_bytes` bytes.
/// @param size_bytes  Bytes to allocate and copy, at least 1.
/// @param out         The device memory. The caller owns it; free it with dtl_mem_free.
/// @return DTL_ERROR_OUT_OF_MEMORY: there is not enough memory.
///         DTL_ERROR_NOT_SUPPORTED: the backend has no device memory, or there is no path to it.
///         DTL_ERROR_INVALID_ARGUMENT: `size_bytes` is 0.
///         DTL_ERROR_OUT_OF_BOUNDS: `host` extends beyond the end of its allocation.
///         DTL_ERROR_BUSY: another thread is unregistering the backend.
/// dtl:host len(size_bytes)
/// dtl:out owned(dtl_mem_free)
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_to_device(
    backend: dtl_backend_t,
    host: *const c_void,
    size_bytes: u64,
    out: *mut *mut c_void,
) -> dtl_status_t {
    Entry("dtl_mem_to_device").call(|inside| {
        let out = Out::new(out, "out")?;
        let backend = device::backend(inside, backend)?;
        // SAFETY: the caller's contract.
        let host = unsafe { args::region(host, size_bytes, "host") }?;
        let wanted = Request { kind: DTL_MEMORY_DEVICE, size: size_bytes, align: 0 };
        let addr = memory::alloc(Owner::Program, backend, &wanted, None)?;
        // SAFETY: just allocated with this size.
        let there = unsafe { args::region(addr.ptr(), size_bytes, "out") }?;
        let copied = transfer::copy(inside, there, host);
        if copied.is_err() {
            memory::free(Owner::Program, backend, addr)?;
        }
        out.put(copied.map(|()| addr.ptr()))
    })
}

/// Copies memory of a backend into host memory, and blocks until the copy is complete.
///
/// @param device_memory  Address inside an allocation of this backend.
/// @param host           `size_bytes` bytes. Must not overlap `device_memory`.
/// @param size_bytes     Bytes to copy, at least 1.
/// @return DTL_ERROR_INVALID_ARGUMENT: `device_memory` does not belong to this backend, the two
///         sides overlap, or `size_bytes` is 0.
///         DTL_ERROR_OUT_OF_BOUNDS: a side extends beyond the end of its allocation.
///         DTL_ERROR_NOT_SUPPORTED: there is no path between the two memories.
/// dtl:device_memory len(size_bytes)
/// dtl:host out len(size_bytes)
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_to_host(
    backend: dtl_backend_t,
    device_memory: *const c_void,
    host: *mut c_void,
    size_bytes: u64,
) -> dtl_status_t {
    Entry("dtl_mem_to_host").call(|inside| {
        // SAFETY: the caller's contract.
        let from = unsafe { args::region(device_memory, size_bytes, "device_memory") }?;
        // SAFETY: as above.
        let to = unsafe { args::region(host, size_bytes, "host") }?;
        let wanted = device::backend(inside, backend)?;
        let found = memory::locate(inside, "device_memory", from)?;
        if !found.owner.is_some_and(|owner| std::ptr::eq(owner, wanted)) {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "device_memory was not allocated by backend {}",
                wanted.name()
            );
        }
        transfer::copy(inside, to, from)
    })
}
