//! Memory of the program's own that devices reach, and memory of devices that other drivers reach.

use super::args::{self, Out};
use super::guard;
use crate::abi::handle::dtl_backend_t;
use crate::abi::status::dtl_status_t;
use crate::error::fail;
use crate::runtime::device;
use crate::runtime::memory::{self, registered};
use crate::sys::buf::Addr;
use std::ffi::c_void;

/// Makes host memory that the program has (malloc, a vector's) DTL_MEMORY_PINNED memory of a backend: its pages stay in place,
/// the backend's devices reach it, copies from and to it do not wait. It takes long (each page is locked): register what is
/// used often, once. Backend "host" locks the pages where the limit allows (else `dtl_explain` says so), and a lock of the program's own
/// on them ends with dtl_mem_unregister_host; "opencl" cannot.
///
/// @param backend     for its current device, and with "cuda" for all.
/// @param ptr         first byte; the memory stays the program's and must not go before dtl_mem_unregister_host.
/// @param size_bytes  at least 1.
/// @return DTL_ERROR_ALREADY_EXISTS: a part of it is registered (the text has which); DTL_ERROR_INVALID_ARGUMENT: a part of it
///         is memory of the library (allocate that as DTL_MEMORY_PINNED), nothing is mapped there, or size_bytes; DTL_ERROR_NOT_SUPPORTED: the backend
///         registers none, or the driver not such memory (a file's, read-only); DTL_ERROR_OUT_OF_MEMORY: no more pages can be
///         locked.
/// Threads: any. Equivalent: cudaHostRegister.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_register_host(
    backend: dtl_backend_t,
    ptr: *mut c_void,
    size_bytes: u64,
) -> dtl_status_t {
    guard::call(|inside| {
        let backend = device::pin_backend(inside, backend)?;
        // SAFETY: the caller's contract: it holds size_bytes until it is unregistered.
        let region = unsafe { args::region(ptr, size_bytes, "ptr") }?;
        if region.is_empty() {
            return fail!(DTL_ERROR_INVALID_ARGUMENT, "size_bytes is 0: register at least one byte");
        }
        registered::register(backend, region)
    })
}

/// Takes dtl_mem_register_host back. No copy or kernel may still use the memory. dtl_finalize does it for what is left: then the
/// memory must still be there.
///
/// @param ptr  as it was registered; NULL: nothing happens.
/// @return DTL_ERROR_NOT_FOUND: it is not the first byte of memory that is registered with this backend.
/// Threads: any. Equivalent: cudaHostUnregister.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_mem_unregister_host(backend: dtl_backend_t, ptr: *mut c_void) -> dtl_status_t {
    guard::call(|inside| {
        let backend = device::pin_backend(inside, backend)?;
        if ptr.is_null() {
            return Ok(());
        }
        registered::unregister(&backend, Addr::new(ptr))
    })
}

/// Gives a dma-buf of device memory: a file descriptor by which the drivers of other devices (RDMA adapters, other GPUs) reach
/// the same memory.
///
/// @param ptr               within an allocation of a backend that has them ("cuda", of a driver since CUDA 11.7 with open kernel
///                          modules), size_bytes from there.
/// @param out_fd            a new descriptor; close(2) it. The memory must not be freed before what uses it has let go.
/// @param out_offset_bytes  where in the dma-buf `ptr` is.
/// @return DTL_ERROR_NOT_FOUND: no allocation of the library; DTL_ERROR_OUT_OF_BOUNDS: over its end; DTL_ERROR_NOT_SUPPORTED: the
///         backend or its driver gives none. Outputs are written on success only.
/// Threads: any. Equivalent: cuMemGetHandleForAddressRange; for ibv_reg_dmabuf_mr.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_export_dmabuf(
    ptr: *const c_void,
    size_bytes: u64,
    out_fd: *mut i32,
    out_offset_bytes: *mut u64,
) -> dtl_status_t {
    guard::call(|inside| {
        let (fd, offset) = (Out::new(out_fd, "out_fd")?, Out::new(out_offset_bytes, "out_offset_bytes")?);
        // SAFETY: the caller's contract: it holds size_bytes.
        let region = unsafe { args::region(ptr, size_bytes, "ptr") }?;
        if region.is_empty() {
            return fail!(DTL_ERROR_INVALID_ARGUMENT, "size_bytes is 0: export at least one byte");
        }
        let (made, begin) = memory::dmabuf(inside, region)?;
        fd.set(made);
        offset.set(begin);
        Ok(())
    })
}
