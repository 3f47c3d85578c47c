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

/// Makes host memory that the program has (malloc, a vector's) DTL_MEMORY_PINNED memory of a
/// backend: its pages stay in place, the backend's devices reach it, copies from and to it do not
/// wait. It takes long (each page is locked): register what is used often, once. Backend "host"
/// locks the pages where the limit allows (`dtl_explain` reports if not), and a lock of the
/// program's own on them ends with dtl_mem_unregister_host; "opencl" cannot.
///
/// @param backend     for its current device, and with "cuda" for all.
/// @param ptr         first byte; the memory stays the program's and must not go before
///                    dtl_mem_unregister_host.
/// @param size_bytes  at least 1.
/// @return DTL_ERROR_ALREADY_EXISTS: a part of it is registered (the text has which);
///         DTL_ERROR_INVALID_ARGUMENT: a part of it is memory of the library (allocate that as
///         DTL_MEMORY_PINNED), nothing is mapped there, or size_bytes; DTL_ERROR_NOT_SUPPORTED: the
///         backend registers none, or the driver not such memory (a file's, read-only);
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

/// Takes dtl_mem_register_host back. No copy or kernel may still use the memory. dtl_finalize does
/// it for what is left: then the memory must still be there.
///
/// @param ptr  as it was registered; NULL: nothing happens.
/// @return DTL_ERROR_NOT_FOUND: it is not the first byte of memory that is registered with this
///         backend.
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

/// Announces memory that another allocator made: a driver's own functions (cudaMalloc, clSVMAlloc),
/// Kokkos, PyTorch, or an allocator of the program. Copies, messages and dtl_mem_query then treat
/// it as memory of this backend, device and kind, and check its bounds. The program keeps
/// ownership: the library never frees the memory.
///
/// Backend "cuda" queries its driver about unknown pointers, so memory of CUDA needs this call only
/// to avoid that query. OpenCL has no such query: adopt memory of clSVMAlloc, which must be
/// allocated in the context of the backend's streams. Adopting host memory with backend "host" and
/// kind DTL_MEMORY_HOST avoids the driver query for each message from and to it. The library does
/// not know memory of windows (dtl_win_allocate) as allocations: it may be adopted, and is released
/// before its window is destroyed.
///
/// @param backend     the backend whose copies reach the memory; null: the thread's current
///                    one.
/// @param device      the device that the memory was allocated on, from 0; 0 for a backend
///                    without devices.
/// @param kind        a memory kind of that backend (dtl_mem_kind_info).
/// @param ptr         its first byte. It must stay valid until dtl_mem_release or
///                    dtl_finalize.
/// @param size_bytes  its size in bytes, at least 1.
/// @return DTL_ERROR_NULL_POINTER: ptr is NULL. DTL_ERROR_INVALID_ARGUMENT: size_bytes is 0; the
///         range wraps around the address space; a part of it is memory that the library knows
///         already, or of its allocator for host memory, free or not; the driver reports another
///         device or kind, or does not know the address.
///         DTL_ERROR_ALREADY_EXISTS: a part of the range is adopted or registered (the text names
///         that memory). DTL_ERROR_OUT_OF_BOUNDS: the backend has no such device, or the driver's
///         allocation ends before the range does. DTL_ERROR_NOT_SUPPORTED: the backend has no such
///         kind, or no memory. DTL_ERROR_UNAVAILABLE: the backend cannot run here.
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

/// Reverts dtl_mem_adopt. The library forgets the memory; its contents stay. No copy, message or
/// kernel may still use it: if the library notices a pending message, that message fails with
/// DTL_ERROR_INVALID_STATE. Afterwards the pointer is treated as host memory, unless a driver in
/// use knows it. dtl_finalize releases memory that is still adopted. As long as memory is adopted,
/// dtl_backend_unregister returns DTL_ERROR_BUSY.
///
/// @param backend  the backend that was passed to dtl_mem_adopt.
/// @param ptr      the first byte that was passed to dtl_mem_adopt; NULL: the call has no
///                 effect.
/// @return DTL_ERROR_NOT_FOUND: ptr is not the first byte of memory adopted with this backend.
/// Threads: any. Does not block.
/// dtl:ptr address opt
#[unsafe(no_mangle)]
pub extern "C" fn dtl_mem_release(backend: dtl_backend_t, ptr: *mut c_void) -> dtl_status_t {
    Entry("dtl_mem_release").call(|inside| {
        let backend = device::pin_backend(inside, backend)?;
        if ptr.is_null() { Ok(()) } else { registered::release(&backend, Addr::new(ptr)) }
    })
}

/// Gives a dma-buf of device memory: a file descriptor by which the drivers of other devices (RDMA
/// adapters, other GPUs) reach the same memory.
///
/// @param ptr               within an allocation of a backend that has them ("cuda", of a driver
///                          since CUDA 11.7 with open kernel modules), size_bytes from there.
/// @param out_fd            a new descriptor; close(2) it. The memory must not be freed before what
///                          uses it has let go.
/// @param out_offset_bytes  where in the dma-buf `ptr` is.
/// @return DTL_ERROR_NOT_FOUND: no allocation of the library; DTL_ERROR_OUT_OF_BOUNDS: over its
///         end; DTL_ERROR_NOT_SUPPORTED: the backend or its driver gives none. Outputs are written
///         on success only.
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
