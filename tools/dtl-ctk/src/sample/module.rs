//! Module functions of the backend "sample". Its devices compute on the host; therefore the backend
//! "host" compiles their modules. A launch queues work on a stream of "sample"; this work launches
//! the kernel on a stream of "host" and waits for it.

use super::exec::stream;
use super::memory::move_bytes;
use super::{Const, Out, Ptr, Status, fault, put};
use dtl_sys::*;
use std::ffi::c_char;
use std::ptr;
use std::sync::Arc;

/// Kernel of the backend "host". The handle of a kernel and each of its queued launches hold a
/// reference. The kernel is destroyed with the last reference.
struct Compiled(dtl_kernel_t);

impl Drop for Compiled {
    fn drop(&mut self) {
        let _ = dtl_kernel_destroy(self.0);
    }
}

/// Converts the id of a module of the backend "host" to the pointer that "sample" uses to identify
/// it.
fn token(id: u64) -> Ptr {
    ptr::without_provenance_mut(id as usize)
}

/// Returns the status of a function that ended with `status`. With the injected fault `name`, it
/// replaces the status of a failure.
fn answer(status: Status, name: &str) -> Status {
    if fault::is(name) && status != DTL_SUCCESS { DTL_ERROR_BACKEND } else { status }
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
        put(out_module, token(module.id));
    }
    answer(status, "exec.module_compile.another_status")
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
    if signature.is_null() {
        // Wrong arguments would be detected only when the launch runs, which is too late.
        return DTL_ERROR_INVALID_ARGUMENT;
    }
    let mut kernel = DTL_KERNEL_NULL;
    // SAFETY: the library's texts and a writable local.
    let status = unsafe {
        dtl_kernel_get(dtl_module_t { id: module.addr() as u64 }, name, signature, &raw mut kernel)
    };
    if status == DTL_SUCCESS {
        put(out_kernel, Arc::into_raw(Arc::new(Compiled(kernel))).cast_mut().cast());
    }
    answer(status, "exec.kernel_get.another_status")
}

pub(super) unsafe extern "C" fn kernel_destroy(_: Ptr, kernel: Ptr) -> Status {
    if_fault!("exec.kernel_destroy.refuses" => return DTL_ERROR_BACKEND);
    // SAFETY: the reference from kernel_get, which the library releases once.
    drop(unsafe { Arc::from_raw(kernel.cast_const().cast::<Compiled>()) });
    DTL_SUCCESS
}

/// Launches a kernel on a stream of the backend "host" and waits for it.
fn run(kernel: &Compiled, shape: &dtl_launch_t, args: &[Vec<u64>], sizes: &[u64]) -> Status {
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
    let status = unsafe {
        dtl_kernel_launch(own, kernel.0, shape, pointers.as_ptr(), sizes.as_ptr(), count)
    };
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
    let kernel = kernel.cast_const().cast::<Compiled>();
    // SAFETY: a kernel of kernel_get, whose reference outlives this call.
    unsafe { Arc::increment_strong_count(kernel) };
    // SAFETY: the reference that was just counted.
    let kernel = unsafe { Arc::from_raw(kernel) };
    let work = move || run(&kernel, &shape, &copies, &lengths);
    if_fault!("exec.kernel_launch.at_once" => return work());
    if !fault::is("exec.kernel_launch.nothing") {
        stream(on).push(work);
    }
    DTL_SUCCESS
}
