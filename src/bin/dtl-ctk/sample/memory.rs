//! Memory and transfer tables of the backend "sample".

use super::exec::{self, Stream};
use super::{put, put_text, state};
use dtl::abi::device::*;
use dtl::abi::status::*;
use dtl::abi::vtable::*;
use dtl::abi::word::*;
use std::alloc::{self, Layout};
use std::ffi::c_void;
use std::sync::atomic::Ordering;

/// What kind_info calls its HOST memory.
pub(crate) const HOST_NAME: &str = "sample host memory";

pub(super) fn memory_table() -> dtl_memory_vtable_t {
    dtl_memory_vtable_t {
        struct_size: size_of::<dtl_memory_vtable_t>() as u32,
        reserved: 0,
        alloc: Some(take),
        free: Some(give_back),
        kind_info: Some(kind_info),
        memory_info: Some(memory_info),
    }
}

pub(super) fn transfer_table() -> dtl_transfer_vtable_t {
    dtl_transfer_vtable_t {
        struct_size: size_of::<dtl_transfer_vtable_t>() as u32,
        reserved: 0,
        copy: Some(copy),
        copy_async: Some(copy_async),
        copy_2d: Some(copy_2d),
        fill: Some(fill),
    }
}

fn is_known(kind: u64) -> bool {
    kind == DTL_MEMORY_HOST || kind == DTL_MEMORY_DEVICE
}

unsafe extern "C" fn take(
    own: *mut c_void,
    size: u64,
    alignment: u64,
    kind: u64,
    out: *mut *mut c_void,
) -> dtl_status_t {
    if !is_known(kind) {
        return DTL_ERROR_NOT_SUPPORTED;
    }
    let Ok(layout) = Layout::from_size_align(size as usize, alignment.max(16) as usize) else {
        return DTL_ERROR_OUT_OF_MEMORY;
    };
    // SAFETY: size is at least 1 by the contract.
    let pointer = unsafe { alloc::alloc(layout) };
    if pointer.is_null() {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    state(own).allocations.fetch_add(1, Ordering::SeqCst);
    put(out, pointer.cast())
}

unsafe extern "C" fn give_back(
    _: *mut c_void,
    pointer: *mut c_void,
    size: u64,
    alignment: u64,
    _: u64,
) -> dtl_status_t {
    let Ok(layout) = Layout::from_size_align(size as usize, alignment.max(16) as usize) else {
        return DTL_ERROR_INVALID_ARGUMENT;
    };
    // SAFETY: what `take` gave, with its size and alignment, by the contract.
    unsafe { alloc::dealloc(pointer.cast(), layout) };
    DTL_SUCCESS
}

unsafe extern "C" fn kind_info(_: *mut c_void, kind: u64, out: *mut dtl_mem_kind_info_t) -> dtl_status_t {
    if !is_known(kind) {
        return DTL_ERROR_NOT_SUPPORTED;
    }
    // SAFETY: the library passes its own zeroed struct.
    let out = unsafe { &mut *out };
    let is_host = kind == DTL_MEMORY_HOST;
    let (own, name) = if is_host {
        (DTL_MEMORY_HOST_ACCESSIBLE, HOST_NAME)
    } else {
        (DTL_MEMORY_DEVICE_ACCESSIBLE, "sample device memory")
    };
    out.properties = own | DTL_MEMORY_THREAD_SAFE;
    out.alignment = 16;
    put_text(name, out.name.as_mut_ptr(), out.name.len());
    DTL_SUCCESS
}

unsafe extern "C" fn memory_info(_: *mut c_void, free: *mut u64, total: *mut u64) -> dtl_status_t {
    put(free, 0);
    put(total, 0)
}

/// Copies bytes that do not overlap.
pub(super) fn move_bytes(dst: *mut c_void, src: *const c_void, size: u64) {
    // SAFETY: both ranges are valid and apart by the contract of copies.
    unsafe { dst.cast::<u8>().copy_from_nonoverlapping(src.cast(), size as usize) }
}

unsafe extern "C" fn copy(
    _: *mut c_void,
    dst: *mut c_void,
    _: u64,
    src: *const c_void,
    _: u64,
    size: u64,
) -> dtl_status_t {
    move_bytes(dst, src, size);
    DTL_SUCCESS
}

unsafe extern "C" fn copy_async(
    _: *mut c_void,
    stream: *mut c_void,
    dst: *mut c_void,
    _: u64,
    src: *const c_void,
    _: u64,
    size: u64,
) -> dtl_status_t {
    let (to, from) = (dst.expose_provenance(), src.expose_provenance());
    let stream: &Stream = exec::stream(stream);
    stream.push(move || {
        let to = std::ptr::with_exposed_provenance_mut(to);
        move_bytes(to, std::ptr::with_exposed_provenance(from), size);
        DTL_SUCCESS
    });
    DTL_SUCCESS
}

unsafe extern "C" fn copy_2d(
    _: *mut c_void,
    dst: *mut c_void,
    _: u64,
    dst_pitch: u64,
    src: *const c_void,
    _: u64,
    src_pitch: u64,
    width: u64,
    height: u64,
) -> dtl_status_t {
    for row in 0..height {
        let to = dst.wrapping_byte_add((row * dst_pitch) as usize);
        move_bytes(to, src.wrapping_byte_add((row * src_pitch) as usize), width);
    }
    DTL_SUCCESS
}

unsafe extern "C" fn fill(_: *mut c_void, dst: *mut c_void, _: u64, value: u8, size: u64) -> dtl_status_t {
    // SAFETY: a valid range by the contract of fills.
    unsafe { dst.cast::<u8>().write_bytes(value, size as usize) };
    DTL_SUCCESS
}
