//! Module functions of the backend "sample". Its devices compute on the host; therefore the backend
//! "host" compiles their modules. A launch queues work on a stream of "sample"; this work launches
//! the kernel on a stream of "host" and waits for it.

use super::exec::stream;
use super::memory::move_bytes;
use super::{Const, Out, Ptr, Status, fault};
use dtl_sys::*;
use std::ffi::c_char;
use std::ptr;

/// Converts the id of a handle from the backend "host" to the pointer that "sample" uses to
/// identify the same object.
fn token(id: u64) -> Ptr {
    ptr::without_provenance_mut(id as usize)
}

fn host() -> Result<dtl_backend_t, dtl_status_t> {
    let mut host = DTL_BACKEND_NULL;
    // SAFETY: a NUL-terminated name and a writable local.
    match unsafe { dtl_backend_get(c"host".as_ptr(), &raw mut host) } {
        DTL_SUCCESS => Ok(host),
        status => Err(status),
    }
}

pub(super) unsafe extern "C" fn module_compile(
    _: Ptr,
    _device: i32,
    source: *const dtl_source_t,
    log: dtl_text_fn_t,
    log_user: Ptr,
    out_module: Out,
) -> Status {
    let host = match host() {
        Ok(host) => host,
        Err(status) => return status,
    };
    let mut module = DTL_MODULE_NULL;
    // SAFETY: the library's source and a writable local.
    let status = unsafe { dtl_module_compile(host, 0, source, &raw mut module) };
    let (mut text, mut length) = (vec![0_u8; 1 << 16], 0);
    // SAFETY: as much room as is told.
    let told =
        unsafe { dtl_module_log(module, text.as_mut_ptr().cast(), 1 << 16, &raw mut length) };
    if let Some(log) =
        log.filter(|_| told == DTL_SUCCESS && !fault::is("exec.module_compile.no_log"))
    {
        // SAFETY: `length` bytes of text, and the library's own function.
        unsafe { log(log_user, text.as_ptr().cast(), length) };
    }
    if status == DTL_SUCCESS {
        // SAFETY: a writable output of the slot's.
        unsafe { out_module.write(token(module.id)) };
    }
    if fault::is("exec.module_compile.another_status") && status != DTL_SUCCESS {
        DTL_ERROR_BACKEND
    } else {
        status
    }
}

pub(super) unsafe extern "C" fn module_destroy(_: Ptr, module: Ptr) -> Status {
    if_fault!("exec.module_destroy.refuses" => return DTL_ERROR_BACKEND);
    dtl_module_destroy(dtl_module_t { id: module.addr() as u64 })
}

pub(super) unsafe extern "C" fn kernel_get(
    _: Ptr,
    module: Ptr,
    name: *const c_char,
    signature: *const c_char,
    out_kernel: Out,
) -> Status {
    let mut kernel = DTL_KERNEL_NULL;
    // SAFETY: the library's texts and a writable local.
    let status = unsafe {
        dtl_kernel_get(dtl_module_t { id: module.addr() as u64 }, name, signature, &raw mut kernel)
    };
    if status == DTL_SUCCESS {
        // SAFETY: a writable output of the slot's.
        unsafe { out_kernel.write(token(kernel.id)) };
    }
    if fault::is("exec.kernel_get.another_status") && status != DTL_SUCCESS {
        DTL_ERROR_BACKEND
    } else {
        status
    }
}

pub(super) unsafe extern "C" fn kernel_destroy(_: Ptr, kernel: Ptr) -> Status {
    if_fault!("exec.kernel_destroy.refuses" => return DTL_ERROR_BACKEND);
    dtl_kernel_destroy(dtl_kernel_t { id: kernel.addr() as u64 })
}

/// Launches a kernel on a stream of the backend "host" and waits for it.
fn run(kernel: dtl_kernel_t, shape: &dtl_launch_t, args: &[Vec<u64>], sizes: &[u64]) -> Status {
    let host = match host() {
        Ok(host) => host,
        Err(status) => return status,
    };
    let mut own = DTL_STREAM_NULL;
    // SAFETY: a writable local.
    let made = unsafe { dtl_stream_create(host, 0, 0, &raw mut own) };
    if made != DTL_SUCCESS {
        return made;
    }
    let pointers: Vec<Const> = args.iter().map(|arg| arg.as_ptr().cast()).collect();
    let count = pointers.len() as u64;
    // SAFETY: `count` arguments of these sizes, which the call copies.
    let status =
        unsafe { dtl_kernel_launch(own, kernel, shape, pointers.as_ptr(), sizes.as_ptr(), count) };
    let waited = dtl_stream_wait(own, DTL_TIMEOUT_INFINITE);
    let _ = dtl_stream_destroy(own);
    if status == DTL_SUCCESS { waited } else { status }
}

pub(super) unsafe extern "C" fn kernel_launch(
    _: Ptr,
    on: Ptr,
    kernel: Ptr,
    shape: *const dtl_launch_t,
    args: *const Const,
    sizes: *const u64,
    count: u64,
) -> Status {
    // SAFETY: the library passes a valid shape.
    let shape = unsafe { *shape };
    let (mut copies, mut lengths) = (Vec::new(), Vec::new());
    for index in 0..count as usize {
        // SAFETY: `count` arguments.
        let arg = unsafe { args.wrapping_add(index).read() };
        // SAFETY: and as many sizes.
        let size = unsafe { sizes.wrapping_add(index).read() };
        let mut copy = vec![0_u64; (size as usize).div_ceil(8)];
        move_bytes(copy.as_mut_ptr().cast(), arg, size);
        copies.push(copy);
        lengths.push(size);
    }
    let id = kernel.addr() as u64;
    let work = move || run(dtl_kernel_t { id }, &shape, &copies, &lengths);
    if_fault!("exec.kernel_launch.at_once" => return work());
    if !fault::is("exec.kernel_launch.nothing") {
        stream(on).push(work);
    }
    DTL_SUCCESS
}
