//! Communicators: ranks that are threads of one process.

use crate::abi::handle::dtl_comm_t;
use crate::abi::status::dtl_status_t;
use crate::ffi::args::{Out, put_all};
use crate::ffi::guard::Entry;
use crate::runtime::comm::open::open_kind;

/// Opens a communicator of kind "threads": all its ranks are in this process. out[r] is rank r.
/// Each is meant for one thread, but any thread may use any of them. All operations on
/// communicators work between these ranks. A message is copied once, from buffer to buffer, by the
/// later one of sender and receiver. A thread that waits for long sleeps, so there may be many more
/// threads than cores.
///
/// Each rank is destroyed separately (dtl_comm_destroy) and has then left. Messages that it sent
/// can still be received. Operations of other ranks that need it from then on end with
/// DTL_ERROR_RANK_FAILURE: receives from it, sends to it, collectives. A receive from
/// DTL_ANY_SOURCE continues to wait for the other ranks until an operation has needed the rank that
/// left; then it ends with the same status. A thread that merely ends has not left.
///
/// @param size        Number of ranks, 1 to 4096. Their tables take 4 bytes per pair of ranks: 256
///                    KiB for 256 ranks, 64 MiB for 4096. Pairs that communicate take more.
/// @param timeout_ns  Time limit of each blocking call in nanoseconds. 0: from DTL_TIMEOUT, else
///                    DTL_TIMEOUT_INFINITE.
/// @param out         Room for `size` communicators, written only on success. The caller owns them;
///                    destroy each with dtl_comm_destroy.
/// @return DTL_ERROR_INVALID_ARGUMENT: `size` is less than 1. DTL_ERROR_LIMIT: `size` is more than
///         4096, or no handles are left. DTL_ERROR_OUT_OF_MEMORY: no memory for the tables. After a
///         failure nothing stays open.
/// Threads: any; not collective, one call opens all ranks. Equivalent: none in MPI (endpoints were
/// proposed for it); ncclCommInitAll.
/// dtl:out len(size) owned(dtl_comm_destroy)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_threads(
    size: i32,
    timeout_ns: u64,
    out: *mut dtl_comm_t,
) -> dtl_status_t {
    Entry("dtl_comm_threads").call(|inside| {
        Out::new(out, "out")?;
        put_all(out, &open_kind::threads(inside, size, timeout_ns)?, "out")
    })
}
