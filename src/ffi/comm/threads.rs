//! Communicators: ranks that are threads of one process.

use crate::abi::handle::dtl_comm_t;
use crate::abi::status::dtl_status_t;
use crate::ffi::args::{Out, put_all};
use crate::ffi::guard::Entry;
use crate::runtime::comm::open::open_kind;

/// Opens a communicator of kind "threads": all its ranks are in this process. out[r] is rank r,
/// meant for one thread each, though any thread may use any of them; everything that a communicator
/// can do works, between these ranks. Messages are copied once, from buffer to buffer, by whichever
/// of sender and receiver comes second. A thread that waits long sleeps, so there may be far more
/// threads than cores.
///
/// Each rank is destroyed on its own (dtl_comm_destroy), and has left then: what it sent stays
/// receivable, but what needs it from then on ends with DTL_ERROR_RANK_FAILURE at the others:
/// receives from it, sends to it, collectives. A receive from DTL_ANY_SOURCE goes on waiting for
/// the others until something has needed the rank that left; then it ends like that, too. A thread
/// that merely ends has not left.
///
/// @param size        number of ranks, 1 to 4096. The ranks' tables of each other take 4 bytes for
///                    each pair: 256 KiB for 256 ranks, 64 MiB for 4096; pairs that talk take more.
/// @param timeout_ns  time limit in nanoseconds of each blocking call; 0 = from DTL_TIMEOUT, else
///                    DTL_TIMEOUT_INFINITE.
/// @param out         `size` communicators; yours. Written only if all are there.
/// @return DTL_ERROR_INVALID_ARGUMENT, DTL_ERROR_LIMIT: size. DTL_ERROR_OUT_OF_MEMORY.
///         DTL_ERROR_LIMIT: no handles left. After a failure nothing stays open.
/// Threads: any; not collective, one call makes all ranks. Equivalent: none in MPI (endpoints were
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
