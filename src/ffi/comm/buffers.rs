//! Registration of buffers with a communicator.

use crate::abi::handle::dtl_comm_t;
use crate::abi::status::dtl_status_t;
use crate::error::fail;
use crate::ffi::args;
use crate::ffi::guard::Entry;
use crate::runtime::comm::{self, open::buffers};
use crate::sys::memory::buf::Addr;
use std::ffi::c_void;

/// Registers a buffer with a communicator, for buffers that are reused: operations then need not
/// register or copy the buffer each time. Not collective. It never changes the result of an
/// operation, and no operation requires it.
///
/// Kind "rdma": the network device sends large messages from the buffer and receives them into it,
/// also if the program allocated the memory itself (malloc). Without this call they are copied
/// through registered memory. Memory of dtl_mem_alloc is registered at its first use anyway. Kind
/// "nccl", device memory: ncclCommRegister, if NCCL has it (2.19 or newer); then register the
/// buffers of all ranks. Registered kinds with the slot mem_register: that slot decides. Device
/// memory that the communicator accesses directly: the allocation is registered now instead of at
/// its first use, and stays registered. Other memory and other kinds: no effect.
///
/// @param buf         First byte. The memory must exist until dtl_comm_deregister, or until the
///                    communicator is destroyed, which deregisters it. Registered buffers of one
///                    communicator do not overlap.
/// @param size_bytes  Size in bytes, at least 1. Memory that the library allocated: at most up to
///                    the end of the allocation.
/// @return DTL_ERROR_ALREADY_EXISTS: a part of the range is already registered with this
///         communicator (the text names it). DTL_ERROR_NULL_POINTER: `buf` is NULL.
///         DTL_ERROR_INVALID_ARGUMENT: `size_bytes` is 0, or larger than the address space.
///         DTL_ERROR_OUT_OF_BOUNDS: the range leaves the allocation in which it begins.
///         DTL_ERROR_OUT_OF_MEMORY: no more memory can be registered (RLIMIT_MEMLOCK, limits of the
///         device). DTL_ERROR_BUSY: kind "nccl", and a collective is in flight. DTL_ERROR_TIMEOUT:
///         kind "nccl", and NCCL did not complete the registration; the communicator's collectives
///         of device memory fail from then on. Other statuses are those of the transport (slots
///         mem_supports and mem_register), or of the export of device memory as a dma-buf. After a
///         failure, messages in device memory are staged. A later call tries to register again.
/// Threads: any. Equivalent: ncclCommRegister, ucp_mem_map, fi_mr_reg, ibv_reg_mr.
/// dtl:buf inout len(size_bytes) until(call_of:dtl_comm_deregister)
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_register(
    comm: dtl_comm_t,
    buf: *mut c_void,
    size_bytes: u64,
) -> dtl_status_t {
    Entry("dtl_comm_register").wait(
        |inside| {
            let comm = comm::pin(inside, comm)?;
            // SAFETY: the caller's contract: it holds size_bytes until it is deregistered.
            let buffer = unsafe { args::region(buf, size_bytes, "buf") }?;
            if buffer.is_empty() {
                return fail!(DTL_ERROR_INVALID_ARGUMENT, "size_bytes is 0: use at least 1");
            }
            Ok((comm, buffer))
        },
        |(comm, buffer)| buffers::register(&comm, buffer),
    )
}

/// Ends the registration of a buffer. Not collective. The communicator may keep the registration of
/// an allocation of the library until the memory is freed.
///
/// @param buf  `buf` of dtl_comm_register.
/// @return DTL_ERROR_NOT_FOUND: `buf` is not the first byte of a buffer that is registered with
///         this communicator. DTL_ERROR_NULL_POINTER: `buf` is NULL. DTL_ERROR_BUSY: an operation
///         in flight uses the buffer (kind "nccl": a collective of the communicator is in flight);
///         it stays registered. Kinds for which dtl_comm_register has no effect do not return it.
///         Other failures are those of the transport; the buffer is not registered any more.
/// Threads: any. Equivalent: ncclCommDeregister, ucp_mem_unmap, ibv_dereg_mr.
/// dtl:buf address
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_deregister(comm: dtl_comm_t, buf: *mut c_void) -> dtl_status_t {
    Entry("dtl_comm_deregister").wait(
        |inside| {
            let comm = comm::pin(inside, comm)?;
            if buf.is_null() {
                return fail!(
                    DTL_ERROR_NULL_POINTER,
                    "buf is NULL: pass `buf` of dtl_comm_register"
                );
            }
            Ok(comm)
        },
        |comm| buffers::deregister(&comm, Addr::new(buf)),
    )
}
