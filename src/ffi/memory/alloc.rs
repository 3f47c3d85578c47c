//! Memory: allocate, free, describe, query a pointer, share between processes.

use crate::abi::devices::device::*;
use crate::abi::handle::dtl_backend_t;
use crate::abi::status::{DTL_SUCCESS, dtl_status_t};
use crate::abi::word::{DTL_MEMORY_HOST, DTL_OPERATION_ALLOC, dtl_enum_word_t};
use crate::ffi::args::{self, Out};
use crate::ffi::guard::{self, Entry, UNTRACED};
use crate::from_c::check_pointer;
use crate::runtime::memory::{host_alloc, ipc_handle};
use crate::runtime::{device, library_ops, memory};
use crate::sys::memory::buf::Addr;
use std::ffi::c_void;

/// Allocates memory on the current device of the calling thread.
///
/// If the default dispatcher has a handler for the kind (DTL_OPERATION_ALLOC), that handler
/// allocates. Host sizes up to 256 bytes are rounded up by less than 64 bytes, larger ones by at
/// most a quarter. Freed host memory is cached within a budget (see dtl_mem_trim).
///
/// @param kind        DTL_MEMORY_HOST, DEVICE, PINNED, MANAGED, SHARED or a registered kind.
/// @param size_bytes  Size in bytes, at least 1.
/// @param alignment   Power of two in bytes. 0 = the alignment that dtl_mem_kind_info reports for
///                    the kind (host: 64).
/// @param out         First byte. Not zeroed. Written on success only. The caller owns it; free it
///                    with dtl_mem_free of the same backend, in any thread.
/// @return DTL_ERROR_OUT_OF_MEMORY: there is not enough memory.
///         DTL_ERROR_NOT_SUPPORTED: the backend has no such kind.
///         DTL_ERROR_INVALID_ARGUMENT: the size or the alignment is not valid.
///         DTL_ERROR_BUSY: another thread is unregistering the backend.
///         DTL_ERROR_LIMIT: no file descriptor is left (kind SHARED of backend "host" uses one per
///         block).
/// Threads: any. Equivalent: cudaMalloc.
/// dtl:kind values(DTL_MEMORY_)
/// dtl:out owned(dtl_mem_free)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_alloc(
    backend: dtl_backend_t,
    kind: dtl_enum_word_t,
    size_bytes: u64,
    alignment: u64,
    out: *mut *mut c_void,
) -> dtl_status_t {
    /// By C's convention, so that it cannot unwind: the fast path jumps to it.
    #[cold]
    #[inline(never)]
    extern "C" fn alloc(
        backend: dtl_backend_t,
        kind: dtl_enum_word_t,
        size_bytes: u64,
        alignment: u64,
        out: *mut *mut c_void,
    ) -> dtl_status_t {
        Entry("dtl_mem_alloc").call(|inside| {
            let out = Out::new(out, "out")?;
            let (owner, backend) = (memory::Owner::Program, device::backend(inside, backend)?);
            let wanted = memory::Request { kind, size: size_bytes, align: alignment };
            out.put(memory::alloc(owner, backend, &wanted, None).map(Addr::ptr))
        })
    }

    guard::quick(
        move || guard::is_open_for(backend),
        move |visit| {
            let is_own = kind == DTL_MEMORY_HOST && !library_ops::is_taken(DTL_OPERATION_ALLOC);
            if !is_own
                || !host_alloc::allows_fast_path(alignment)
                || out.is_null()
                || !out.is_aligned()
            {
                return None;
            }
            let quick = host_alloc::quick_alloc(size_bytes)?;
            drop(visit);
            // SAFETY: the caller's contract: a non-null pointer passed as an output is writable.
            unsafe { out.write(quick.addr.ptr()) };
            Some(quick_end(quick.due))
        },
        move || alloc(backend, kind, size_bytes, alignment, out),
    )
}

/// Frees memory from dtl_mem_alloc or dtl_mem_import.
///
/// No copy or kernel may still use it. Memory shared by several processes exists until the last of
/// them frees it or ends. The call may wait for all work of the device (CUDA, kinds other than
/// DEVICE).
///
/// @param ptr  First byte of the allocation. NULL has no effect.
/// @return DTL_ERROR_INVALID_ARGUMENT: `ptr` is not a live allocation of this backend (freed twice,
///         not its first byte, of another backend). Nothing is freed.
/// Threads: any. Equivalent: cudaFree.
/// dtl:ptr address opt
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_mem_free(backend: dtl_backend_t, ptr: *mut c_void) -> dtl_status_t {
    /// By C's convention, so that it cannot unwind: the fast path jumps to it.
    #[cold]
    #[inline(never)]
    extern "C" fn free(backend: dtl_backend_t, ptr: *mut c_void) -> dtl_status_t {
        Entry("dtl_mem_free").call(|inside| {
            let backend = device::backend(inside, backend)?;
            memory::free(memory::Owner::Program, backend, Addr::new(ptr))
        })
    }

    guard::quick(
        move || guard::is_open_for(backend),
        move |visit| {
            let due = host_alloc::quick_free(Addr::new(ptr))?;
            drop(visit);
            Some(quick_end(due))
        },
        move || free(backend, ptr),
    )
}

/// Ends a fast path that succeeded. Deferred work, if `due`, is done out of line and outside the
/// epoch, so that the fast path calls nothing.
fn quick_end(due: bool) -> dtl_status_t {
    if due { afterwards() } else { DTL_SUCCESS }
}

#[cold]
#[inline(never)]
extern "C" fn afterwards() -> dtl_status_t {
    UNTRACED.call(|_| {
        host_alloc::housekeeping();
        Ok(())
    })
}

/// Describes a memory kind of a backend: accessibility and alignment.
///
/// @param out_info  Start from DTL_MEM_KIND_INFO_INIT.
/// @return DTL_ERROR_NOT_SUPPORTED: the backend has no such kind.
/// dtl:kind values(DTL_MEMORY_)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_kind_info(
    backend: dtl_backend_t,
    kind: dtl_enum_word_t,
    out_info: *mut dtl_mem_kind_info_t,
) -> dtl_status_t {
    Entry("dtl_mem_kind_info").call(|inside| {
        let backend = device::backend(inside, backend)?;
        // SAFETY: the caller's contract.
        unsafe { args::fill(out_info, "out_info", || memory::kind_info(backend, kind)) }
    })
}

/// Returns the number and size of the live allocations of a backend.
///
/// @param out_stats  Start from DTL_MEM_STATS_INIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_stats(
    backend: dtl_backend_t,
    out_stats: *mut dtl_mem_stats_t,
) -> dtl_status_t {
    Entry("dtl_mem_stats").call(|inside| {
        let backend = device::backend(inside, backend)?;
        // SAFETY: the caller's contract.
        unsafe { args::fill(out_stats, "out_stats", || memory::stats(backend)) }
    })
}

/// Returns cached free memory of a backend to the system.
///
/// For backend "cuda" this is the memory of the pools of its devices. For "host" it is up to
/// DTL_MEMORY_KEEP bytes (default 256 MiB, or an eighth of the peak use if that is more), and the
/// slabs from which threads allocate. Slabs of the calling thread and of threads that have ended
/// are returned immediately, those of other threads within their next 256 frees. For "host" the
/// free memory of malloc is returned too: that of the program, and that of internal tables of the
/// library (communicators, queues). For "cuda", and for registered backends with the slot
/// register_host, it frees the host buffers through which messages are staged. Other backends cache
/// nothing.
///
/// Equivalent: malloc_trim.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_mem_trim(backend: dtl_backend_t) -> dtl_status_t {
    Entry("dtl_mem_trim").call(|inside| memory::trim(device::backend(inside, backend)?))
}

/// Describes the memory that a pointer refers to.
///
/// It may be an allocation of the library, memory recorded by it (dtl_mem_adopt,
/// dtl_mem_register_host, imported arrays), or memory that the program allocated through a driver,
/// if that driver is in use and recognises the pointer. Copies and messages treat the pointer
/// accordingly, with one exception: they do not query a driver about the image, stacks and heap
/// (brk) of the program, and treat these as host memory. This function does, because the program
/// may have registered host memory with a driver.
///
/// A driver is in use once a call has used its backend. It is also in use once dtl_init, the
/// opening of a communicator or this function has found that the program initialised it. Backend
/// "cuda" recognises pointers from cudaMalloc, cudaMallocAsync, cuMemMap, cudaMallocManaged,
/// cudaHostAlloc and cudaHostRegister. Registered backends with the slot pointer_info recognise
/// theirs, "opencl" none.
///
/// @param ptr       Any address. It is not read.
/// @param out_info  Start from DTL_MEM_INFO_INIT. For memory that a driver recognises, base and
///                  size_bytes are those of the driver.
/// @return The status of the slot pointer_info or of the driver query if that fails. Copies and
///         messages with the pointer then fail too, unless another driver recognises it.
///         DTL_ERROR_NOT_FOUND: the pointer refers to none of these. Copies and messages treat it
///         as host memory.
/// Equivalent: cudaPointerGetAttributes.
/// dtl:ptr address opt
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_query(
    ptr: *const c_void,
    out_info: *mut dtl_mem_info_t,
) -> dtl_status_t {
    Entry("dtl_mem_query").call(|_| {
        // SAFETY: the caller's contract.
        unsafe { args::fill(out_info, "out_info", || memory::query(Addr::new(ptr.cast_mut()))) }
    })
}

/// Creates a handle by which other processes of the node can map the same memory (dtl_mem_import).
///
/// The handle is plain data: send it as sizeof(dtl_mem_handle_t) bytes in a message, or write it to
/// a file. It serves any number of imports while this process lives and has not freed the
/// allocation. Exporting again returns an equivalent handle. For backend "host" the kind is
/// DTL_MEMORY_SHARED, between processes of one user and one PID namespace. Each such block uses one
/// file descriptor in the process that allocated it, and none in processes that import it. Its
/// pages are reserved when it is allocated.
///
/// @param ptr  First byte from dtl_mem_alloc. For an address inside the allocation, send its offset
///             too.
/// @param out  The handle, written on success only. There is nothing to free.
/// @return DTL_ERROR_NOT_SUPPORTED: memory of this kind cannot be exported (use a kind with
///         DTL_MEMORY_EXPORTABLE; for backend "host" the text names it), it was imported (pass the
///         original handle on), or it belongs to a pool.
///         DTL_ERROR_NOT_FOUND: `ptr` is not inside a live allocation.
///         DTL_ERROR_INVALID_ARGUMENT: `ptr` is not its first byte, or another thread freed it.
///         DTL_ERROR_UNAVAILABLE: /proc belongs to another PID namespace. Mount that of this one.
///         DTL_ERROR_MEMORY: /proc cannot be read.
///         DTL_ERROR_LIMIT: no file descriptor is left (one is used during the call).
///         DTL_ERROR_INVALID_STATE: the program closed the file descriptor of the block.
/// Threads: any, several at once with one allocation. Equivalent: cudaIpcGetMemHandle.
/// dtl:ptr address
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_export(
    ptr: *const c_void,
    out: *mut dtl_mem_handle_t,
) -> dtl_status_t {
    Entry("dtl_mem_export").call(|inside| {
        let out = Out::new(out, "out")?;
        check_pointer(ptr, "ptr")?;
        out.put(ipc_handle::export(inside, Addr::new(ptr.cast_mut())))
    })
}

/// Maps memory that another process exported, so that both access the same bytes.
///
/// Writes of one process are visible to the other after a message, a barrier or an atomic operation
/// between them.
///
/// The result is an ordinary allocation (dtl_mem_query, dtl_mem_copy, windows, messages,
/// statistics). It remains valid after the other process frees the memory or ends. Addresses differ
/// between processes, so store offsets in shared memory, not pointers. Each import is a further
/// mapping at another address, even of memory that this process exported. Free each mapping
/// separately. dtl_mem_copy does not detect that two mappings of one block overlap, and in a window
/// each rank must expose a different part.
///
/// A forked child has the memory at the address that its parent has, but not as an allocation: it
/// has to import it. Until it ends or calls exec, it keeps the memory and the descriptors of its
/// parent, even if the parent frees them.
///
/// @param backend         The backend from which the memory was exported, in this process.
/// @param handle          Handle from dtl_mem_export. Read during the call only.
/// @param out             First byte, with the alignment that the exporter requested (host: at
///                        least that of a page). Written on success only. The caller owns it; free
///                        it with dtl_mem_free of the same backend, in any thread.
/// @param out_size_bytes  Size of the allocation in bytes, written on success only; may be NULL.
/// @return DTL_ERROR_INVALID_HANDLE: the handle is null or stale: the exporter freed the memory or
///         ended. Get a new handle, and free the memory only after all processes have imported it.
///         DTL_ERROR_INVALID_ARGUMENT: the handle does not come from dtl_mem_export, is damaged, or
///         belongs to another backend (the text names it).
///         DTL_ERROR_NOT_SUPPORTED: the handle comes from another node or PID namespace (send data
///         instead), or the backend does not import.
///         DTL_ERROR_MEMORY: the operating system denies access to the memory of the exporter
///         (another user, fewer privileges).
///         DTL_ERROR_LIMIT: no file descriptor is left (two are used during the call).
///         DTL_ERROR_OUT_OF_MEMORY: the address space is exhausted.
///         DTL_ERROR_INCOMPATIBLE_ABI: a library with another format wrote the handle.
/// Equivalent: cudaIpcOpenMemHandle; for host memory MPI_Win_allocate_shared is similar.
/// dtl:out owned(dtl_mem_free)
/// dtl:out_size_bytes opt
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_mem_import(
    backend: dtl_backend_t,
    handle: *const dtl_mem_handle_t,
    out: *mut *mut c_void,
    out_size_bytes: *mut u64,
) -> dtl_status_t {
    Entry("dtl_mem_import").call(|inside| {
        let out = Out::new(out, "out")?;
        let out_size = Out::optional(out_size_bytes, "out_size_bytes")?;
        // SAFETY: the caller's contract: a handle that is not null can be read.
        let handle = unsafe { args::read(handle, "handle") }?;
        let (addr, size) = ipc_handle::import(device::backend(inside, backend)?, &handle)?;
        out.set(addr.ptr());
        if let Some(out) = out_size {
            out.set(size);
        }
        Ok(())
    })
}
