//! Copies and fills: blocking.

use crate::abi::handle::dtl_backend_t;
use crate::abi::status::dtl_status_t;
use crate::abi::word::DTL_MEMORY_DEVICE;
use crate::error::{Result, fail, failure};
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

/// Copies between any two kinds of memory and returns when the copy is complete. The memory of each
/// side is looked up as in dtl_mem_query; a pointer that is not found is host memory.
///
/// @param dst, src    size_bytes each; they must not overlap. NULL only for 0 bytes.
/// @return DTL_ERROR_OUT_OF_BOUNDS: a side runs over the end of its allocation.
///         DTL_ERROR_INVALID_ARGUMENT: they overlap. DTL_ERROR_NOT_SUPPORTED: no way between them.
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

/// Copies `height` rows of `width_bytes`; rows start a pitch apart on each side.
///
/// @param dst_pitch_bytes, src_pitch_bytes  at least width_bytes.
/// @return as dtl_mem_copy.
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

/// Copies elements that lie apart: a part of a grid, a transposed matrix, a halo. Axes that lie in
/// a row are put together; what is left is copied in a row, by rows (dtl_mem_copy_2d), by several
/// such copies, or by a loop of the host.
///
/// @param dst, src  the first element of each side.
/// @param dst_strides, src_strides  ndim each: distance from one element to the next along the
///                  axis, in elements, also negative; 0 on the source repeats it. NULL: the
///                  elements lie in a row, the last axis the fastest.
/// @param shape     ndim counts of elements, 0 or more; with a 0 nothing is copied.
/// @param ndim      up to 8; 0 is one element.
/// @param element_bytes  at least 1. For distances that are no multiple of an element, pass a
///                  smaller element and one more axis.
/// @return DTL_ERROR_NOT_SUPPORTED: more axes, or no way between the memories; the text has shape
///         and strides.
///         DTL_ERROR_OUT_OF_BOUNDS: elements lie outside the allocation that the first one is in,
///         above or below; or the first is in none, and others are. DTL_ERROR_INVALID_ARGUMENT:
///         elements of the destination lie on each other, or on elements of the source (where the
///         strides of the two differ, it is enough that their areas do), or axes of the destination
///         are woven: one steps by less than all that a finer one reaches, as with strides [12,
///         8], shape [2, 3] and 2 bytes, although no elements meet (copy in parts, one for each
///         position on an axis). Else as dtl_mem_copy.
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

/// Where the sides begin, and their strides: destination, source.
type Sides = (*mut c_void, *const i64, *const c_void, *const i64);

/// As dtl_mem_copy_strided.
///
/// # Safety
/// As there.
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
    let in_bytes = |strides: Option<Vec<i64>>, name: &str| match strides {
        Some(strides) => strides_in_bytes(&strides, element_bytes, name),
        None => strided::dense(shape, element_bytes).ok_or_else(|| {
            failure!(DTL_ERROR_INVALID_ARGUMENT, "shape {shape:?}: more bytes than memory can hold")
        }),
    };
    let axes = Axes {
        dst: Addr::new(dst),
        src: Addr::new(src.cast_mut()),
        shape,
        dst_strides: &in_bytes(dst_strides, "dst_strides")?,
        src_strides: &in_bytes(src_strides, "src_strides")?,
        element_bytes,
    };
    let Some(plan) = strided::StridedPlan::new(&axes)? else { return Ok(()) };
    // SAFETY: the caller's contract: the elements are there, and so is what lies between them.
    let to = unsafe { side(axes.dst, plan.dst, "dst") }?;
    // SAFETY: as above.
    let from = unsafe { side(axes.src, plan.src, "src") }?;
    plan.copy(inside, &axes, to, from)
}

/// From a side's lowest byte to its last.
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

/// Number of axes to read: one more than is supported is enough to be refused with.
fn axis_count(ndim: i32) -> Result<usize> {
    match usize::try_from(ndim) {
        Ok(count) => Ok(count.min(strided::MOST_AXES + 1)),
        Err(_) => fail!(DTL_ERROR_INVALID_ARGUMENT, "ndim {ndim}: use 0 to {}", strided::MOST_AXES),
    }
}

/// Counts of elements along the axes, none of which may be negative.
fn counts(shape: Vec<i64>) -> Result<Vec<u64>> {
    match shape.iter().position(|&count| count < 0) {
        None => Ok(shape.into_iter().map(i64::cast_unsigned).collect()),
        Some(axis) => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "shape[{axis}] is {}: use 0 or more elements",
            shape.get(axis).copied().unwrap_or_default()
        ),
    }
}

/// Strides in bytes.
fn strides_in_bytes(strides: &[i64], element_bytes: u64, name: &str) -> Result<Vec<i64>> {
    let bytes = |&stride: &i64| stride.checked_mul(i64::try_from(element_bytes).ok()?);
    strides.iter().map(bytes).collect::<Option<_>>().ok_or_else(|| {
        failure!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{name} {strides:?} of {element_bytes} bytes: more bytes than memory can hold"
        )
    })
}

/// Copies a list that may be NULL.
unsafe fn list(pointer: *const i64, count: usize, name: &str) -> Result<Option<Vec<i64>>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's contract: `count` elements.
    unsafe { args::slice(pointer, count, name) }.map(|list| Some(list.to_vec()))
}

/// Sets size_bytes bytes to `value`. Equivalent: cudaMemset.
///
/// @return DTL_ERROR_OUT_OF_BOUNDS: over the end of its allocation.
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

/// Allocates DTL_MEMORY_DEVICE memory and copies host memory into it.
///
/// @param out  the device memory; free it with dtl_mem_free.
/// @return as dtl_mem_alloc and dtl_mem_copy; after a failure nothing stays allocated.
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

/// Copies a backend's memory into host memory.
///
/// @param device_memory  inside an allocation of this backend.
/// @param host           size_bytes of host memory.
/// @return DTL_ERROR_INVALID_ARGUMENT: device_memory is not this backend's. Else as dtl_mem_copy.
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
