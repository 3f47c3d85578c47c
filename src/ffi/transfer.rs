//! Copies and fills.

use super::args::{self, Out};
use super::guard;
use crate::abi::handle::dtl_backend_t;
use crate::abi::status::dtl_status_t;
use crate::abi::word::DTL_MEMORY_DEVICE;
use crate::error::{Result, fail};
use crate::runtime::transfer::Rows;
use crate::runtime::{device, memory, transfer};
use std::ffi::c_void;

/// Copies between any two kinds of memory and returns when it is done. Whose memory each side is
/// is found out from the pointers; what dtl_mem_alloc did not make is host memory.
///
/// @param dst, src    size_bytes each; they must not overlap. NULL only for 0 bytes.
/// @return DTL_ERROR_OUT_OF_BOUNDS: a side runs over the end of its allocation.
///         DTL_ERROR_INVALID_ARGUMENT: they overlap. DTL_ERROR_NOT_SUPPORTED: no way between them.
/// Equivalent: cudaMemcpy with cudaMemcpyDefault.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_copy(dst: *mut c_void, src: *const c_void, size_bytes: u64) -> dtl_status_t {
    guard::call(|inside| {
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
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_copy_2d(
    dst: *mut c_void,
    dst_pitch_bytes: u64,
    src: *const c_void,
    src_pitch_bytes: u64,
    width_bytes: u64,
    height: u64,
) -> dtl_status_t {
    guard::call(|inside| {
        // SAFETY: the caller's contract: both sides hold `height` rows.
        let dst = unsafe { rows(dst, dst_pitch_bytes, width_bytes, height, "dst") }?;
        // SAFETY: as above.
        let src = unsafe { rows(src, src_pitch_bytes, width_bytes, height, "src") }?;
        transfer::copy_2d(inside, dst, src, width_bytes, height)
    })
}

unsafe fn rows(ptr: *const c_void, pitch: u64, width: u64, height: u64, name: &str) -> Result<Rows> {
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
    Ok(Rows { region: unsafe { args::region(ptr, span, name) }?, pitch })
}

/// Sets size_bytes bytes to `value`. Equivalent: cudaMemset.
///
/// @return DTL_ERROR_OUT_OF_BOUNDS: over the end of its allocation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_fill(dst: *mut c_void, value: u8, size_bytes: u64) -> dtl_status_t {
    guard::call(|inside| {
        // SAFETY: the caller's contract.
        transfer::fill(inside, unsafe { args::region(dst, size_bytes, "dst") }?, value)
    })
}

/// Allocates DTL_MEMORY_DEVICE memory and copies host memory into it.
///
/// @param out  the device memory; free it with dtl_mem_free.
/// @return as dtl_mem_alloc and dtl_mem_copy; after a failure nothing stays allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_to_device(
    backend: dtl_backend_t,
    host: *const c_void,
    size_bytes: u64,
    out: *mut *mut c_void,
) -> dtl_status_t {
    guard::call(|inside| {
        let out = Out::new(out, "out")?;
        let backend = device::backend(inside, backend)?;
        // SAFETY: the caller's contract.
        let host = unsafe { args::region(host, size_bytes, "host") }?;
        let addr = memory::alloc(memory::Owner::Program, backend, DTL_MEMORY_DEVICE, size_bytes, 0)?;
        // SAFETY: just allocated with this size.
        let there = unsafe { args::region(addr.ptr(), size_bytes, "out") }?;
        if let Err(error) = transfer::copy(inside, there, host) {
            memory::free(memory::Owner::Program, backend, addr)?;
            return Err(error);
        }
        out.set(addr.ptr());
        Ok(())
    })
}

/// Copies a backend's memory into host memory.
///
/// @param device_memory  inside an allocation of this backend.
/// @param host           size_bytes of host memory.
/// @return DTL_ERROR_INVALID_ARGUMENT: device_memory is not this backend's. Else as dtl_mem_copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_to_host(
    backend: dtl_backend_t,
    device_memory: *const c_void,
    host: *mut c_void,
    size_bytes: u64,
) -> dtl_status_t {
    guard::call(|inside| {
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
