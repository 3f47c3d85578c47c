//! Collectives. Rules that hold for all of them are in the text of dtl_comm_barrier.

use super::comm::elements;
use super::guard;
use crate::abi::handle::dtl_comm_t;
use crate::abi::status::dtl_status_t;
use crate::abi::word::{dtl_dtype_t, dtl_reduce_op_t};
use crate::error::{Result, fail};
use crate::runtime::comm::collective;
use crate::runtime::comm::types::{element_size, reduction};
use crate::runtime::comm::{self, Comm};
use crate::sys::buf::Region;
use std::ffi::c_void;

/// Returns once every rank has called it.
///
/// Of all collectives: every rank of the communicator makes the same calls in the same order, with
/// the same count, dtype, op and root. Buffers must not overlap. Results do not depend on the order
/// in which messages arrive, and all ranks get the identical result.
///
/// @return DTL_ERROR_RANK_FAILURE: a rank died (named). DTL_ERROR_TIMEOUT: the communicator's time
///         limit. DTL_ERROR_BUSY: another thread of this process is in a collective on it.
///         DTL_ERROR_INVALID_STATE: an earlier collective failed, so the ranks are out of step:
///         destroy the communicator. DTL_ERROR_INVALID_ARGUMENT: a rank sent another size.
/// Equivalent: MPI_Barrier.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_comm_barrier(comm: dtl_comm_t) -> dtl_status_t {
    guard::hold(|inside| comm::hold(inside, comm), collective::barrier)
}

/// Copies `count` elements from the root's `buf` into everybody's.
///
/// @return as dtl_comm_barrier; DTL_ERROR_INVALID_RANK: root. Equivalent: MPI_Bcast.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_bcast(
    comm: dtl_comm_t,
    buf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    root: i32,
) -> dtl_status_t {
    guard::hold(
        |inside| comm::hold(inside, comm),
        // SAFETY: the caller's contract.
        |comm| collective::bcast(comm, unsafe { elements(buf, count, dtype, "buf") }?, root),
    )
}

/// Folds everybody's `count` elements, one by one, into the root's `rbuf`.
///
/// @param rbuf  `count` elements at the root; not read elsewhere (may be NULL there).
/// @param op    DTL_OP_…; see there which dtypes it goes with.
/// @return as dtl_comm_barrier; DTL_ERROR_TYPE: op and dtype do not go together.
/// Equivalent: MPI_Reduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_reduce(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    op: dtl_reduce_op_t,
    root: i32,
) -> dtl_status_t {
    guard::hold(
        |inside| comm::hold(inside, comm),
        |comm| {
            let by = reduction(dtype, op)?;
            // SAFETY: the caller's contract.
            let send = unsafe { elements(sbuf, count, dtype, "sbuf") }?;
            // SAFETY: as above; read at the root only.
            let recv = unsafe { at_root(comm, root, rbuf, count, dtype, "rbuf") }?;
            collective::reduce(comm, send, recv, by, root)
        },
    )
}

/// Folds everybody's `count` elements, one by one, into everybody's `rbuf`.
///
/// @return as dtl_comm_reduce. Equivalent: MPI_Allreduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_allreduce(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    op: dtl_reduce_op_t,
) -> dtl_status_t {
    guard::hold(
        |inside| comm::hold(inside, comm),
        |comm| {
            let by = reduction(dtype, op)?;
            // SAFETY: the caller's contract.
            let send = unsafe { elements(sbuf, count, dtype, "sbuf") }?;
            // SAFETY: as above.
            let recv = unsafe { elements(rbuf, count, dtype, "rbuf") }?;
            collective::allreduce(comm, send, recv, by)
        },
    )
}

/// Collects everybody's block at the root, in the order of ranks.
///
/// @param sbuf            count_per_rank elements.
/// @param count_per_rank  elements in one block.
/// @param rbuf            size × count_per_rank elements at the root; may be NULL elsewhere.
/// @return as dtl_comm_barrier; DTL_ERROR_INVALID_RANK: root. Equivalent: MPI_Gather.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_gather(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    count_per_rank: u64,
    rbuf: *mut c_void,
    dtype: dtl_dtype_t,
    root: i32,
) -> dtl_status_t {
    guard::hold(
        |inside| comm::hold(inside, comm),
        |comm| {
            let all = for_all(comm, count_per_rank)?;
            // SAFETY: the caller's contract.
            let send = unsafe { elements(sbuf, count_per_rank, dtype, "sbuf") }?;
            // SAFETY: as above.
            let recv = unsafe { at_root(comm, root, rbuf, all, dtype, "rbuf") }?;
            collective::gather(comm, send, recv, root)
        },
    )
}

/// Hands the root's blocks out, one to each rank in their order.
///
/// @param sbuf            size × count_per_rank elements at the root; may be NULL elsewhere.
/// @param count_per_rank  elements in one block.
/// @param rbuf            count_per_rank elements.
/// @return as dtl_comm_gather. Equivalent: MPI_Scatter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_scatter(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    count_per_rank: u64,
    rbuf: *mut c_void,
    dtype: dtl_dtype_t,
    root: i32,
) -> dtl_status_t {
    guard::hold(
        |inside| comm::hold(inside, comm),
        |comm| {
            let all = for_all(comm, count_per_rank)?;
            // SAFETY: the caller's contract.
            let send = unsafe { at_root(comm, root, sbuf, all, dtype, "sbuf") }?;
            // SAFETY: as above.
            let recv = unsafe { elements(rbuf, count_per_rank, dtype, "rbuf") }?;
            collective::scatter(comm, send, recv, root)
        },
    )
}

/// Collects everybody's block at everybody, in the order of ranks.
///
/// @param sbuf  count_per_rank elements.
/// @param rbuf  size × count_per_rank elements.
/// @return as dtl_comm_barrier. Equivalent: MPI_Allgather.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_allgather(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    count_per_rank: u64,
    rbuf: *mut c_void,
    dtype: dtl_dtype_t,
) -> dtl_status_t {
    guard::hold(
        |inside| comm::hold(inside, comm),
        |comm| {
            let all = for_all(comm, count_per_rank)?;
            // SAFETY: the caller's contract.
            let send = unsafe { elements(sbuf, count_per_rank, dtype, "sbuf") }?;
            // SAFETY: as above.
            let recv = unsafe { elements(rbuf, all, dtype, "rbuf") }?;
            collective::allgather(comm, send, recv)
        },
    )
}

/// Block r of everybody's `sbuf` goes to rank r; block r of `rbuf` comes from rank r.
///
/// @param sbuf, rbuf  size × count_per_rank elements each.
/// @return as dtl_comm_barrier. Equivalent: MPI_Alltoall.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_alltoall(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    count_per_rank: u64,
    rbuf: *mut c_void,
    dtype: dtl_dtype_t,
) -> dtl_status_t {
    guard::hold(
        |inside| comm::hold(inside, comm),
        |comm| {
            let all = for_all(comm, count_per_rank)?;
            // SAFETY: the caller's contract.
            let send = unsafe { elements(sbuf, all, dtype, "sbuf") }?;
            // SAFETY: as above.
            let recv = unsafe { elements(rbuf, all, dtype, "rbuf") }?;
            collective::alltoall(comm, send, recv, element_size(dtype)? * count_per_rank as usize)
        },
    )
}

/// Elements in one block for each rank.
fn for_all(comm: &Comm, count_per_rank: u64) -> Result<u64> {
    match count_per_rank.checked_mul(u64::from(comm.size().unsigned_abs())) {
        Some(all) => Ok(all),
        None => {
            fail!(DTL_ERROR_INVALID_ARGUMENT, "count_per_rank {count_per_rank} is more than memory can hold")
        }
    }
}

/// A buffer that only the root has.
unsafe fn at_root(
    comm: &Comm,
    root: i32,
    pointer: *const c_void,
    count: u64,
    dtype: dtl_dtype_t,
    name: &str,
) -> Result<Region> {
    if comm.rank() != root {
        element_size(dtype)?;
        return Ok(Region::EMPTY);
    }
    // SAFETY: passed on.
    unsafe { elements(pointer, count, dtype, name) }
}
