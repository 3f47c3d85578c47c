//! Memory: register host memory, adopt foreign memory, export a dma-buf.

use crate::abi::handle::dtl_backend_t;
use crate::abi::status::dtl_status_t;
use crate::abi::word::dtl_enum_word_t;
use crate::error::fail;
use crate::ffi::args::{self, Out};
use crate::ffi::guard::Entry;
use crate::runtime::device;
use crate::runtime::memory::{self, registered};
use crate::sys::memory::buf::Addr;
use std::ffi::c_void;

/// Registers host memory of the program (malloc, a vector) as DTL_MEMORY_PINNED memory of a
/// backend.
///
/// Its pages stay in place, the devices of the backend can access it, and copies from and to it do
/// not wait. Registration is slow, because each page is locked: register memory that is used often,
/// and once. Backend "host" locks the pages if RLIMIT_MEMLOCK permits; if not, `dtl_explain`
/// reports it. dtl_mem_unregister_host also ends a lock of the program on these pages. Backend
/// "opencl" cannot register.
///
/// @param backend     The backend. Its current device gets access; with "cuda", all its devices do.
/// @param ptr         First byte. The program continues to own the memory. It must exist until
///                    dtl_mem_unregister_host.
/// @param size_bytes  Size in bytes, at least 1.
/// @return DTL_ERROR_ALREADY_EXISTS: a part of the range is registered (the text names it).
///         DTL_ERROR_INVALID_ARGUMENT: a part of it is memory of the library (allocate that as
///         DTL_MEMORY_PINNED), nothing is mapped there, or `size_bytes` is 0.
///         DTL_ERROR_NOT_SUPPORTED: the backend does not register memory, or its driver does not
///         register memory of this type (file-backed, read-only).
///         DTL_ERROR_OUT_OF_MEMORY: no more pages can be locked.
/// Threads: any. Equivalent: cudaHostRegister.
/// dtl:ptr inout len(size_bytes) until(call_of:dtl_mem_unregister_host)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_register_host(
    backend: dtl_backend_t,
    ptr: *mut c_void,
    size_bytes: u64,
) -> dtl_status_t {
    Entry("dtl_mem_register_host").call(|inside| {
        let backend = device::pin_backend(inside, backend)?;
        check_size(size_bytes)?;
        // SAFETY: the caller's contract: it holds size_bytes until it is unregistered.
        let region = unsafe { args::region(ptr, size_bytes, "ptr") }?;
        registered::register(backend, region)
    })
}

fn check_size(size_bytes: u64) -> crate::error::Result<()> {
    const MOST: u64 = isize::MAX as u64;
    if size_bytes == 0 || size_bytes > MOST {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "size_bytes is {size_bytes}: use 1 to {MOST}");
    }
    Ok(())
}

/// Reverts dtl_mem_register_host. No copy or kernel may still use the memory. dtl_finalize
/// unregisters memory that is still registered, so that memory must still exist then.
///
/// @param ptr  First byte that was passed to dtl_mem_register_host. NULL has no effect.
/// @return DTL_ERROR_NOT_FOUND: `ptr` is not the first byte of memory registered with this backend.
/// Threads: any. Equivalent: cudaHostUnregister.
/// dtl:ptr address opt
#[unsafe(no_mangle)]
pub extern "C" fn dtl_mem_unregister_host(
    backend: dtl_backend_t,
    ptr: *mut c_void,
) -> dtl_status_t {
    Entry("dtl_mem_unregister_host").call(|inside| {
        let backend = device::pin_backend(inside, backend)?;
        if ptr.is_null() { Ok(()) } else { registered::unregister(&backend, Addr::new(ptr)) }
    })
}

/// Records memory of another allocator: a driver (cudaMalloc, clSVMAlloc), Kokkos, PyTorch or the
/// program.
///
/// Copies, messages and dtl_mem_query then treat it as memory of this backend, device and kind, and
/// check its bounds. The program continues to own the memory: the library never frees it.
///
/// Backend "cuda" queries its driver about unknown pointers, so adopting CUDA memory only avoids
/// that query. OpenCL has no such query: adopt memory from clSVMAlloc, which must be allocated in
/// the context of the streams of the backend. Adopting host memory with backend "host" and kind
/// DTL_MEMORY_HOST avoids the driver query for each message from and to it. The library does not
/// record memory of windows (dtl_win_allocate) as allocations: it may be adopted, and must be
/// released before its window is destroyed.
///
/// @param backend     The backend whose copies can access the memory. DTL_BACKEND_NULL = the
///                    current one of the thread.
/// @param device      The device on which the memory was allocated, from 0. 0 for a backend without
///                    devices.
/// @param kind        A memory kind of that backend (dtl_mem_kind_info).
/// @param ptr         First byte. It must stay valid until dtl_mem_release or dtl_finalize.
/// @param size_bytes  Size in bytes, at least 1.
/// @return DTL_ERROR_INVALID_ARGUMENT: `size_bytes` is 0; the range wraps around the address space;
///         a part of it is already recorded, or belongs to the library's host allocator, allocated
///         or free; the driver reports another device or kind, or does not recognise the address.
///         DTL_ERROR_ALREADY_EXISTS: a part of the range is adopted or registered (the text names
///         that memory).
///         DTL_ERROR_OUT_OF_BOUNDS: the backend has no such device, or the allocation of the driver
///         ends before the range does.
///         DTL_ERROR_NOT_SUPPORTED: the backend has no such kind, or no memory.
///         DTL_ERROR_UNAVAILABLE: the backend cannot run here.
/// Threads: any. May initialise the backend; does not wait for its work.
/// dtl:kind values(DTL_MEMORY_)
/// dtl:ptr inout len(size_bytes) until(call_of:dtl_mem_release)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_adopt(
    backend: dtl_backend_t,
    device: i32,
    kind: dtl_enum_word_t,
    ptr: *mut c_void,
    size_bytes: u64,
) -> dtl_status_t {
    Entry("dtl_mem_adopt").call(|inside| {
        let backend = device::pin_backend(inside, backend)?;
        if ptr.is_null() {
            return fail!(DTL_ERROR_NULL_POINTER, "ptr is NULL: pass the first byte of the memory");
        }
        check_size(size_bytes)?;
        // SAFETY: the caller's contract: size_bytes are valid at ptr until the memory is released.
        let region = unsafe { args::region(ptr, size_bytes, "ptr") }?;
        registered::adopt(backend, device, kind, region)
    })
}

/// Reverts dtl_mem_adopt: the library no longer recognises the memory. Its contents do not change.
///
/// No copy, message or kernel may still use it. If the library detects a pending message, that
/// message fails with DTL_ERROR_INVALID_STATE. Afterwards the pointer is treated as host memory,
/// unless a driver in use recognises it. dtl_finalize releases memory that is still adopted. While
/// memory is adopted, dtl_backend_unregister returns DTL_ERROR_BUSY.
///
/// @param backend  The backend that was passed to dtl_mem_adopt.
/// @param ptr      First byte that was passed to dtl_mem_adopt. NULL has no effect.
/// @return DTL_ERROR_NOT_FOUND: `ptr` is not the first byte of memory adopted with this backend.
/// Threads: any. Does not block.
/// dtl:ptr address opt
#[unsafe(no_mangle)]
pub extern "C" fn dtl_mem_release(backend: dtl_backend_t, ptr: *mut c_void) -> dtl_status_t {
    Entry("dtl_mem_release").call(|inside| {
        let backend = device::pin_backend(inside, backend)?;
        if ptr.is_null() { Ok(()) } else { registered::release(&backend, Addr::new(ptr)) }
    })
}

/// Exports device memory as a dma-buf: a file descriptor through which drivers of other devices
/// (RDMA adapters, other GPUs) access the same memory.
///
/// @param ptr               Address inside an allocation of a backend that exports dma-bufs
///                          ("cuda": with a driver from CUDA 11.7 on and open kernel modules).
/// @param size_bytes        Bytes from `ptr` on, at least 1.
/// @param out_fd            A new descriptor, written on success only. The caller owns it; close it
///                          with close(2). The memory must not be freed while something still uses
///                          the descriptor.
/// @param out_offset_bytes  Offset of `ptr` in the dma-buf, in bytes. Written on success only.
/// @return DTL_ERROR_NOT_FOUND: `ptr` is not inside an allocation of the library.
///         DTL_ERROR_OUT_OF_BOUNDS: the range extends beyond the end of the allocation.
///         DTL_ERROR_INVALID_ARGUMENT: `size_bytes` is 0.
///         DTL_ERROR_NOT_SUPPORTED: the backend or its driver exports no dma-bufs.
/// Threads: any. Equivalent: cuMemGetHandleForAddressRange; for ibv_reg_dmabuf_mr.
/// dtl:ptr len(size_bytes)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_export_dmabuf(
    ptr: *const c_void,
    size_bytes: u64,
    out_fd: *mut i32,
    out_offset_bytes: *mut u64,
) -> dtl_status_t {
    Entry("dtl_mem_export_dmabuf").call(|inside| {
        let fd = Out::new(out_fd, "out_fd")?;
        let offset = Out::new(out_offset_bytes, "out_offset_bytes")?;
        // SAFETY: the caller's contract: it holds size_bytes.
        let region = unsafe { args::region(ptr, size_bytes, "ptr") }?;
        if region.is_empty() {
            return fail!(DTL_ERROR_INVALID_ARGUMENT, "size_bytes is 0: export at least one byte");
        }
        args::put_both((fd, offset), memory::dmabuf(inside, region))
    })
}
