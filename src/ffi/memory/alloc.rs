//! Memory: allocate, free, describe, query a pointer, share between processes.

use crate::abi::devices::device::{
    dtl_mem_handle_t, dtl_mem_info_t, dtl_mem_kind_info_t, dtl_mem_stats_t,
};
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

/// Allocates memory on the calling thread's current device.
///
/// @param kind        DTL_MEMORY_HOST, DEVICE, PINNED, MANAGED, SHARED or a registered kind. One
///                    that the default dispatcher has a handler for (DTL_OPERATION_ALLOC) is
///                    allocated by that.
/// @param size_bytes  at least 1.
/// @param alignment   a power of two in bytes; 0 = the alignment that dtl_mem_kind_info reports for
///                    the kind (host: 64).
/// @param out         its first byte. Yours until dtl_mem_free with the same backend, by any
///                    thread; not zeroed. Of the host: in a block of up to 63 bytes more (sizes up
///                    to 256), above at most a quarter more; what is freed is kept within a budget
///                    (see dtl_mem_trim).
/// @return DTL_ERROR_OUT_OF_MEMORY; DTL_ERROR_NOT_SUPPORTED: the backend has no such kind;
///         DTL_ERROR_INVALID_ARGUMENT: size or alignment; DTL_ERROR_BUSY: another thread is
///         unregistering the backend; DTL_ERROR_LIMIT (SHARED of backend "host", which takes a
///         descriptor for each block): no file descriptors left. *out is written on success only.
/// Equivalent: cudaMalloc.
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

/// Frees what dtl_mem_alloc or dtl_mem_import gave. NULL is success. No copy or kernel may still
/// use it. Memory that several processes have stays until the last of them frees it or ends. It may
/// wait for all work of the device (CUDA, kinds other than DEVICE).
///
/// @return DTL_ERROR_INVALID_ARGUMENT: not a live allocation of this backend (freed twice, not its
///         first byte, another backend's); nothing is freed.
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

/// The end of a fast path that has done its work. If something is `due`, it is done here, outside
/// the epoch and out of line, so that the fast path calls nothing.
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

/// Describes a memory kind of a backend: who can access it, its alignment.
///
/// @param out_info  start from DTL_MEM_KIND_INFO_INIT.
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

/// Counts a backend's live allocations.
///
/// @param out_stats  start from DTL_MEM_STATS_INIT.
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

/// Gives back to the system what is kept of a backend's freed memory for later dtl_mem_alloc. Of
/// backend "cuda" that is what its devices' pools have; of "host" up to DTL_MEMORY_KEEP bytes
/// (default 256 MiB, or an eighth of the most that was used), besides the slabs that threads
/// allocate from: what the calling thread and threads that have ended keep goes at once, what
/// others keep within their next 256 frees. For "host" it also returns the free memory of malloc to
/// the system: that of the program, and that of the library's own tables (communicators, queues).
/// Other backends keep nothing.
///
/// Equivalent: malloc_trim.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_mem_trim(backend: dtl_backend_t) -> dtl_status_t {
    Entry("dtl_mem_trim").call(|inside| memory::trim(device::backend(inside, backend)?))
}

/// Describes the memory that a pointer lies in: an allocation of the library, memory announced to
/// it (dtl_mem_adopt, dtl_mem_register_host, imported arrays), or memory that the program allocated
/// through a driver, if that driver is in use and knows the pointer. Copies and messages treat the
/// pointer accordingly, with one exception: they do not query a driver about the program's image,
/// its stacks and its heap (brk), and treat these as host memory. This function does query it
/// there, because the program may have registered host memory with a driver.
///
/// A driver is in use once a call has used its backend, or once dtl_init, the opening of a
/// communicator or this function has found that the program initialised it. Backend "cuda" knows
/// pointers from cudaMalloc, cudaMallocAsync, cuMemMap, cudaMallocManaged, cudaHostAlloc and
/// cudaHostRegister; registered backends with the slot pointer_info know theirs; "opencl" knows
/// none.
///
/// @param ptr       any address; it is not read.
/// @param out_info  start from DTL_MEM_INFO_INIT. For memory that a driver knows, base and
///                  size_bytes are the driver's.
/// @return DTL_ERROR_NOT_FOUND: the pointer lies in none of these; copies and messages treat it as
///         host memory. Any other failure of the slot pointer_info or of the driver's query: its
///         status. Copies and messages with the pointer fail with it, too, unless another driver
///         knows the pointer.
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

/// Describes an allocation so that other processes of the node can have the same memory
/// (dtl_mem_import).
///
/// The handle is plain data: send it as sizeof(dtl_mem_handle_t) bytes by any message, or write it
/// to a file. It serves any number of imports, as long as this process lives and has not freed the
/// allocation; exporting again gives an equally good one. Of backend "host": kind
/// DTL_MEMORY_SHARED, between processes of one user and one PID namespace; every such block takes
/// one file descriptor in the process that allocated it (none where it is imported), and its pages
/// are taken when it is allocated. Any thread; of one allocation also at once.
///
/// @param ptr  the first byte of what dtl_mem_alloc gave (for a place inside send the offset too).
/// @param out  the handle; not written on failure.
/// @return DTL_ERROR_NOT_SUPPORTED: memory of this kind cannot be exported (allocate one whose
///         properties have DTL_MEMORY_EXPORTABLE: the text names it for backend "host"), it was
///         imported (pass on the handle that it came from), or it belongs to a pool;
///         DTL_ERROR_NOT_FOUND: no live allocation;
///         DTL_ERROR_INVALID_ARGUMENT: not its first byte, or freed meanwhile;
///         DTL_ERROR_UNAVAILABLE, DTL_ERROR_MEMORY: /proc cannot be read, or is of another PID
///         namespace (mount this one's); DTL_ERROR_LIMIT: no file descriptor left (one is used
///         during the call); DTL_ERROR_INVALID_STATE: the program has closed the block's.
/// Equivalent: cudaIpcGetMemHandle.
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

/// Makes memory that another process exported memory of this one, too: both read and write the same
/// bytes. What one writes the other finds there after a message, a barrier or an atomic operation
/// between them.
///
/// The result is an allocation like any other (dtl_mem_query, dtl_mem_copy, windows, messages,
/// statistics), yours until dtl_mem_free with the same backend, by any thread, also after the other
/// process has freed it or has ended. Addresses differ from process to process: put offsets into
/// shared memory, not pointers. Importing again, or what this very process exported, gives one more
/// mapping at another address, freed by itself. A forked child has the memory at the same place as
/// its parent, but not as an allocation of its own: it imports again. Until it ends or calls exec,
/// it keeps what its parent had, memory and descriptors, also when that frees them. Two mappings of
/// one block are two addresses: dtl_mem_copy does not see that they overlap, and of windows each
/// rank gives a part of its own.
///
/// @param backend         the backend that the memory was exported from, in this process.
/// @param handle          what dtl_mem_export wrote; read during the call only.
/// @param out             the first byte, with the alignment that the exporter requested (host: of
///                        a page at least).
/// @param out_size_bytes  its size in bytes, as it was allocated; NULL = not wanted.
/// @return DTL_ERROR_INVALID_HANDLE: null, or stale: the exporter has freed it or has ended (get a
///         new handle; free only when all have imported); DTL_ERROR_INVALID_ARGUMENT: not what
///         dtl_mem_export wrote, damaged, or of another backend (the text names it);
///         DTL_ERROR_NOT_SUPPORTED: it comes from another node or PID namespace (send data
///         instead), or the backend imports nothing; DTL_ERROR_MEMORY: the system does not let this
///         process at the other's memory (another user, fewer privileges); DTL_ERROR_LIMIT: no file
///         descriptor left (two are used during the call); DTL_ERROR_OUT_OF_MEMORY: no addresses
///         left; DTL_ERROR_INCOMPATIBLE_ABI: written by a library with another format. Outputs are
///         written on success only.
/// Equivalent: cudaIpcOpenMemHandle; for host memory MPI_Win_allocate_shared comes near.
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
