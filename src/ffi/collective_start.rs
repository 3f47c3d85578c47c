//! Collectives as requests: the same, begun here and ended by dtl_request_wait.

use super::args::Out;
use super::collective_args as arguments;
use super::guard;
use crate::abi::handle::{dtl_comm_t, dtl_request_t};
use crate::abi::status::dtl_status_t;
use crate::abi::word::{dtl_dtype_t, dtl_reduce_op_t};
use crate::error::Result;
use crate::runtime::comm::begun::{Begun, Caller};
use crate::runtime::comm::{self, request};
use crate::sys::epoch::Guard;
use std::ffi::c_void;

fn start(
    inside: &Guard,
    comm: dtl_comm_t,
    out: *mut dtl_request_t,
    prepare: impl FnOnce(Caller<'_>) -> Result<Begun>,
) -> Result<()> {
    let out = Out::new(out, "out")?;
    let comm = comm::get(inside, comm)?;
    let run = prepare(Caller::starting(comm))?;
    out.set(request::collective(comm, run)?);
    Ok(())
}

/// Begins a barrier and returns at once; the request is done when every rank has begun it.
///
/// Of all collectives with an i: the arguments are those of the form without it, and the buffers
/// must stay untouched until the request is done (the arrays of counts, places and ranks only until
/// the call returns). Every rank begins its collectives, of both forms, in the same order. Any call
/// that waits, and dtl_request_test, moves them on. The communicator's time limit does not end
/// them; a death does.
///
/// @param out  the request; dtl_request_wait or _test ends it. It cannot be cancelled.
/// @return as dtl_comm_barrier, without DTL_ERROR_TIMEOUT. Failures of other ranks are told when
///         the request is waited for. Equivalent: MPI_Ibarrier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_ibarrier(
    comm: dtl_comm_t,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    guard::call("dtl_comm_ibarrier", |inside| start(inside, comm, out, arguments::barrier))
}

/// Begins a dtl_comm_bcast as a request: see dtl_comm_ibarrier. Equivalent: MPI_Ibcast.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_ibcast(
    comm: dtl_comm_t,
    buf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    root: i32,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    guard::call("dtl_comm_ibcast", |inside| {
        start(inside, comm, out, |comm| {
            // SAFETY: the caller's contract.
            unsafe { arguments::bcast(comm, buf, count, dtype, root) }
        })
    })
}

/// Begins a dtl_comm_reduce as a request: see dtl_comm_ibarrier. Equivalent: MPI_Ireduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_ireduce(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    op: dtl_reduce_op_t,
    root: i32,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    guard::call("dtl_comm_ireduce", |inside| {
        start(inside, comm, out, |comm| {
            // SAFETY: the caller's contract.
            unsafe { arguments::reduce(comm, sbuf, rbuf, count, dtype, op, root) }
        })
    })
}

/// Begins a dtl_comm_allreduce as a request: see dtl_comm_ibarrier. Equivalent: MPI_Iallreduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_iallreduce(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    op: dtl_reduce_op_t,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    guard::call("dtl_comm_iallreduce", |inside| {
        start(inside, comm, out, |comm| {
            // SAFETY: the caller's contract.
            unsafe { arguments::allreduce(comm, sbuf, rbuf, count, dtype, op) }
        })
    })
}

/// Begins a dtl_comm_reduce_scatter_block as a request: see dtl_comm_ibarrier. Equivalent:
/// MPI_Ireduce_scatter_block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_ireduce_scatter_block(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    op: dtl_reduce_op_t,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    guard::call("dtl_comm_ireduce_scatter_block", |inside| {
        start(inside, comm, out, |comm| {
            // SAFETY: the caller's contract.
            unsafe { arguments::reduce_scatter_block(comm, sbuf, rbuf, count, dtype, op) }
        })
    })
}

/// Begins a dtl_comm_reduce_scatter as a request: see dtl_comm_ibarrier. Equivalent:
/// MPI_Ireduce_scatter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_ireduce_scatter(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    rcounts: *const u64,
    dtype: dtl_dtype_t,
    op: dtl_reduce_op_t,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    guard::call("dtl_comm_ireduce_scatter", |inside| {
        start(inside, comm, out, |comm| {
            // SAFETY: the caller's contract.
            unsafe { arguments::reduce_scatter(comm, sbuf, rbuf, rcounts, dtype, op) }
        })
    })
}

/// Begins a dtl_comm_scan as a request: see dtl_comm_ibarrier. Equivalent: MPI_Iscan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_iscan(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    op: dtl_reduce_op_t,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    guard::call("dtl_comm_iscan", |inside| {
        start(inside, comm, out, |comm| {
            // SAFETY: the caller's contract.
            unsafe { arguments::scan(comm, sbuf, rbuf, count, dtype, op) }
        })
    })
}

/// Begins a dtl_comm_exscan as a request: see dtl_comm_ibarrier. Equivalent: MPI_Iexscan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_iexscan(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    op: dtl_reduce_op_t,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    guard::call("dtl_comm_iexscan", |inside| {
        start(inside, comm, out, |comm| {
            // SAFETY: the caller's contract.
            unsafe { arguments::exscan(comm, sbuf, rbuf, count, dtype, op) }
        })
    })
}

/// Begins a dtl_comm_gather as a request: see dtl_comm_ibarrier. Equivalent: MPI_Igather.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_igather(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    count_per_rank: u64,
    rbuf: *mut c_void,
    dtype: dtl_dtype_t,
    root: i32,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    guard::call("dtl_comm_igather", |inside| {
        start(inside, comm, out, |comm| {
            // SAFETY: the caller's contract.
            unsafe { arguments::gather(comm, sbuf, count_per_rank, rbuf, dtype, root) }
        })
    })
}

/// Begins a dtl_comm_gatherv as a request: see dtl_comm_ibarrier. Equivalent: MPI_Igatherv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_igatherv(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    scount: u64,
    rbuf: *mut c_void,
    rcounts: *const u64,
    rdispls: *const u64,
    dtype: dtl_dtype_t,
    root: i32,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    guard::call("dtl_comm_igatherv", |inside| {
        start(inside, comm, out, |comm| {
            // SAFETY: the caller's contract.
            unsafe { arguments::gatherv(comm, sbuf, scount, rbuf, rcounts, rdispls, dtype, root) }
        })
    })
}

/// Begins a dtl_comm_scatter as a request: see dtl_comm_ibarrier. Equivalent: MPI_Iscatter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_iscatter(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    count_per_rank: u64,
    rbuf: *mut c_void,
    dtype: dtl_dtype_t,
    root: i32,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    guard::call("dtl_comm_iscatter", |inside| {
        start(inside, comm, out, |comm| {
            // SAFETY: the caller's contract.
            unsafe { arguments::scatter(comm, sbuf, count_per_rank, rbuf, dtype, root) }
        })
    })
}

/// Begins a dtl_comm_scatterv as a request: see dtl_comm_ibarrier. Equivalent: MPI_Iscatterv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_iscatterv(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    scounts: *const u64,
    sdispls: *const u64,
    rbuf: *mut c_void,
    rcount: u64,
    dtype: dtl_dtype_t,
    root: i32,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    guard::call("dtl_comm_iscatterv", |inside| {
        start(inside, comm, out, |comm| {
            // SAFETY: the caller's contract.
            unsafe { arguments::scatterv(comm, sbuf, scounts, sdispls, rbuf, rcount, dtype, root) }
        })
    })
}

/// Begins a dtl_comm_allgather as a request: see dtl_comm_ibarrier. Equivalent: MPI_Iallgather.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_iallgather(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    count_per_rank: u64,
    rbuf: *mut c_void,
    dtype: dtl_dtype_t,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    guard::call("dtl_comm_iallgather", |inside| {
        start(inside, comm, out, |comm| {
            // SAFETY: the caller's contract.
            unsafe { arguments::allgather(comm, sbuf, count_per_rank, rbuf, dtype) }
        })
    })
}

/// Begins a dtl_comm_allgatherv as a request: see dtl_comm_ibarrier. Equivalent: MPI_Iallgatherv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_iallgatherv(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    scount: u64,
    rbuf: *mut c_void,
    rcounts: *const u64,
    rdispls: *const u64,
    dtype: dtl_dtype_t,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    guard::call("dtl_comm_iallgatherv", |inside| {
        start(inside, comm, out, |comm| {
            // SAFETY: the caller's contract.
            unsafe { arguments::allgatherv(comm, sbuf, scount, rbuf, rcounts, rdispls, dtype) }
        })
    })
}

/// Begins a dtl_comm_alltoall as a request: see dtl_comm_ibarrier. Equivalent: MPI_Ialltoall.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_ialltoall(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    count_per_rank: u64,
    rbuf: *mut c_void,
    dtype: dtl_dtype_t,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    guard::call("dtl_comm_ialltoall", |inside| {
        start(inside, comm, out, |comm| {
            // SAFETY: the caller's contract.
            unsafe { arguments::alltoall(comm, sbuf, count_per_rank, rbuf, dtype) }
        })
    })
}

/// Begins a dtl_comm_alltoallv as a request: see dtl_comm_ibarrier. Equivalent: MPI_Ialltoallv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_ialltoallv(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    scounts: *const u64,
    sdispls: *const u64,
    rbuf: *mut c_void,
    rcounts: *const u64,
    rdispls: *const u64,
    dtype: dtl_dtype_t,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    guard::call("dtl_comm_ialltoallv", |inside| {
        start(inside, comm, out, |comm| {
            // SAFETY: the caller's contract.
            unsafe {
                arguments::alltoallv(comm, sbuf, scounts, sdispls, rbuf, rcounts, rdispls, dtype)
            }
        })
    })
}

/// Begins a dtl_comm_neighbor_alltoallv as a request: see dtl_comm_ibarrier. Equivalent:
/// MPI_Ineighbor_alltoallv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_ineighbor_alltoallv(
    comm: dtl_comm_t,
    dest_count: u64,
    dests: *const i32,
    sbuf: *const c_void,
    scounts: *const u64,
    sdispls: *const u64,
    source_count: u64,
    sources: *const i32,
    rbuf: *mut c_void,
    rcounts: *const u64,
    rdispls: *const u64,
    dtype: dtl_dtype_t,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    guard::call("dtl_comm_ineighbor_alltoallv", |inside| {
        start(inside, comm, out, |comm| {
            // SAFETY: the caller's contract.
            unsafe {
                arguments::neighbor_alltoallv(
                    comm,
                    dest_count,
                    dests,
                    sbuf,
                    scounts,
                    sdispls,
                    source_count,
                    sources,
                    rbuf,
                    rcounts,
                    rdispls,
                    dtype,
                )
            }
        })
    })
}
