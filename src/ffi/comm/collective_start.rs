//! Collectives: nonblocking, completed by dtl_request_wait.

use super::collective_args::{self as arguments, BufferArgs, CArgs};
use crate::abi::handle::{dtl_comm_t, dtl_request_t};
use crate::abi::status::dtl_status_t;
use crate::abi::word::{dtl_dtype_t, dtl_reduce_op_t};
use crate::ffi::args::Out;
use crate::ffi::guard::Entry;
use crate::runtime::comm;
use crate::runtime::comm::coll::{self, CallMode, CollArgs, Kind};
use crate::runtime::comm::p2p::request;
use std::ffi::c_void;
use std::ptr;

/// Starts a collective as a request.
///
/// # Safety
/// As [`arguments::set`].
#[inline(never)]
unsafe fn start(
    entry: Entry,
    comm: dtl_comm_t,
    args: &CArgs,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    entry.call(|inside| {
        let out = Out::new(out, "out")?;
        let comm = comm::get(inside, comm)?;
        let mut checked = CollArgs::new(args.kind);
        // SAFETY: passed on.
        unsafe { arguments::set(&mut checked, comm, args) }?;
        let begun = coll::begin(comm, CallMode::Request, &checked)?;
        out.put(request::collective(comm, begun))
    })
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
/// @return as dtl_comm_barrier, without DTL_ERROR_TIMEOUT; DTL_ERROR_LIMIT: too many requests in
///         flight. Failures of other ranks are returned when the request is waited for.
///         Equivalent: MPI_Ibarrier.
/// dtl:out owned(dtl_request_wait|dtl_request_test)
/// dtl:call collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_ibarrier(
    comm: dtl_comm_t,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    let args = CArgs::new(Kind::Barrier, (ptr::null(), ptr::null_mut()), 0, -1);
    // SAFETY: the caller's contract.
    unsafe { start(Entry("dtl_comm_ibarrier"), comm, &args, out) }
}

/// Begins a dtl_comm_bcast as a request: see dtl_comm_ibarrier.
///
/// @return as dtl_comm_bcast, without DTL_ERROR_TIMEOUT; DTL_ERROR_LIMIT: too many
///         requests in flight. Equivalent: MPI_Ibcast.
/// dtl:buf inout len(count*dtype) opt(count==0) until(request)
/// dtl:root rank
/// dtl:out owned(dtl_request_wait|dtl_request_test)
/// dtl:call collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_ibcast(
    comm: dtl_comm_t,
    buf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    root: i32,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    let args = CArgs { root, ..CArgs::new(Kind::Bcast, (ptr::null(), buf), count, dtype) };
    // SAFETY: the caller's contract.
    unsafe { start(Entry("dtl_comm_ibcast"), comm, &args, out) }
}

/// Begins a dtl_comm_reduce as a request: see dtl_comm_ibarrier.
///
/// @return as dtl_comm_reduce, without DTL_ERROR_TIMEOUT; DTL_ERROR_LIMIT: too many
///         requests in flight. Equivalent: MPI_Ireduce.
/// dtl:sbuf len(count*dtype) opt(count==0) in_place(rank==root) until(request)
/// dtl:rbuf inout len(count*dtype) opt(rank!=root||count==0) until(request)
/// dtl:root rank
/// dtl:out owned(dtl_request_wait|dtl_request_test)
/// dtl:call collective(comm)
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
    let args = CArgs { op, root, ..CArgs::new(Kind::Reduce, (sbuf, rbuf), count, dtype) };
    // SAFETY: the caller's contract.
    unsafe { start(Entry("dtl_comm_ireduce"), comm, &args, out) }
}

/// Begins a dtl_comm_allreduce as a request: see dtl_comm_ibarrier.
///
/// @return as dtl_comm_allreduce, without DTL_ERROR_TIMEOUT; DTL_ERROR_LIMIT: too many
///         requests in flight. Equivalent: MPI_Iallreduce.
/// dtl:sbuf len(count*dtype) opt(count==0) in_place until(request)
/// dtl:rbuf inout len(count*dtype) opt(count==0) until(request)
/// dtl:out owned(dtl_request_wait|dtl_request_test)
/// dtl:call collective(comm)
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
    let args = CArgs { op, ..CArgs::new(Kind::Allreduce, (sbuf, rbuf), count, dtype) };
    // SAFETY: the caller's contract.
    unsafe { start(Entry("dtl_comm_iallreduce"), comm, &args, out) }
}

/// Begins a dtl_comm_reduce_scatter_block as a request: see dtl_comm_ibarrier.
///
/// @return as dtl_comm_reduce_scatter_block, without DTL_ERROR_TIMEOUT; DTL_ERROR_LIMIT:
///         too many requests in flight. Equivalent: MPI_Ireduce_scatter_block.
/// dtl:sbuf len(size(comm)*count*dtype) opt(count==0) in_place until(request)
/// dtl:out owned(dtl_request_wait|dtl_request_test)
/// dtl:rbuf inout len(sbuf==DTL_IN_PLACE?size(comm)*count*dtype:count*dtype) opt(count==0)
/// dtl:rbuf until(request)
/// dtl:call collective(comm)
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
    let args = CArgs { op, ..CArgs::new(Kind::ReduceScatterBlock, (sbuf, rbuf), count, dtype) };
    // SAFETY: the caller's contract.
    unsafe { start(Entry("dtl_comm_ireduce_scatter_block"), comm, &args, out) }
}

/// Begins a dtl_comm_reduce_scatter as a request: see dtl_comm_ibarrier.
///
/// @return as dtl_comm_reduce_scatter, without DTL_ERROR_TIMEOUT; DTL_ERROR_LIMIT:
///         too many requests in flight. Equivalent: MPI_Ireduce_scatter.
/// dtl:sbuf len(sum(rcounts)*dtype) opt(sum(rcounts)==0) in_place until(request)
/// dtl:rcounts len(size(comm))
/// dtl:out owned(dtl_request_wait|dtl_request_test)
/// dtl:rbuf inout len((sbuf==DTL_IN_PLACE?sum(rcounts):rcounts[rank])*dtype)
/// dtl:rbuf opt(sbuf==DTL_IN_PLACE?sum(rcounts)==0:rcounts[rank]==0) until(request)
/// dtl:call collective(comm)
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
    let (send, recv) = (BufferArgs::blocks(sbuf, rcounts, ptr::null()), BufferArgs::new(rbuf, 0));
    let args = CArgs { op, ..CArgs::varied(Kind::ReduceScatter, send, recv, dtype) };
    // SAFETY: the caller's contract.
    unsafe { start(Entry("dtl_comm_ireduce_scatter"), comm, &args, out) }
}

/// Begins a dtl_comm_scan as a request: see dtl_comm_ibarrier.
///
/// @return as dtl_comm_scan, without DTL_ERROR_TIMEOUT; DTL_ERROR_LIMIT: too many
///         requests in flight. Equivalent: MPI_Iscan.
/// dtl:sbuf len(count*dtype) opt(count==0) in_place until(request)
/// dtl:rbuf inout len(count*dtype) opt(count==0) until(request)
/// dtl:out owned(dtl_request_wait|dtl_request_test)
/// dtl:call collective(comm)
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
    let args = CArgs { op, ..CArgs::new(Kind::Scan, (sbuf, rbuf), count, dtype) };
    // SAFETY: the caller's contract.
    unsafe { start(Entry("dtl_comm_iscan"), comm, &args, out) }
}

/// Begins a dtl_comm_exscan as a request: see dtl_comm_ibarrier.
///
/// @return as dtl_comm_exscan, without DTL_ERROR_TIMEOUT; DTL_ERROR_LIMIT: too many
///         requests in flight. Equivalent: MPI_Iexscan.
/// dtl:sbuf len(count*dtype) opt(count==0) in_place until(request)
/// dtl:rbuf inout len(count*dtype) opt(count==0) until(request)
/// dtl:out owned(dtl_request_wait|dtl_request_test)
/// dtl:call collective(comm)
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
    let args = CArgs { op, ..CArgs::new(Kind::Exscan, (sbuf, rbuf), count, dtype) };
    // SAFETY: the caller's contract.
    unsafe { start(Entry("dtl_comm_iexscan"), comm, &args, out) }
}

/// Begins a dtl_comm_gather as a request: see dtl_comm_ibarrier.
///
/// @return as dtl_comm_gather, without DTL_ERROR_TIMEOUT; DTL_ERROR_LIMIT: too many
///         requests in flight. Equivalent: MPI_Igather.
/// dtl:sbuf len(count_per_rank*dtype) opt(count_per_rank==0) in_place(rank==root) until(request)
/// dtl:rbuf inout len(size(comm)*count_per_rank*dtype) opt(rank!=root||count_per_rank==0)
/// dtl:rbuf until(request)
/// dtl:root rank
/// dtl:out owned(dtl_request_wait|dtl_request_test)
/// dtl:call collective(comm)
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
    let args = CArgs { root, ..CArgs::new(Kind::Gather, (sbuf, rbuf), count_per_rank, dtype) };
    // SAFETY: the caller's contract.
    unsafe { start(Entry("dtl_comm_igather"), comm, &args, out) }
}

/// Begins a dtl_comm_gatherv as a request: see dtl_comm_ibarrier.
///
/// @return as dtl_comm_gatherv, without DTL_ERROR_TIMEOUT; DTL_ERROR_LIMIT: too many
///         requests in flight. Equivalent: MPI_Igatherv.
/// dtl:sbuf len(scount*dtype) opt(scount==0) in_place(rank==root) until(request)
/// dtl:rbuf inout len(?) opt(rank!=root||sum(rcounts)==0) until(request)
/// dtl:rcounts len(size(comm)) opt(rank!=root)
/// dtl:rdispls len(size(comm)) opt
/// dtl:root rank
/// dtl:out owned(dtl_request_wait|dtl_request_test)
/// dtl:call collective(comm)
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
    let (send, recv) = (BufferArgs::new(sbuf, scount), BufferArgs::blocks(rbuf, rcounts, rdispls));
    let args = CArgs { root, ..CArgs::varied(Kind::Gatherv, send, recv, dtype) };
    // SAFETY: the caller's contract.
    unsafe { start(Entry("dtl_comm_igatherv"), comm, &args, out) }
}

/// Begins a dtl_comm_scatter as a request: see dtl_comm_ibarrier.
///
/// @return as dtl_comm_scatter, without DTL_ERROR_TIMEOUT; DTL_ERROR_LIMIT: too many
///         requests in flight. Equivalent: MPI_Iscatter.
/// dtl:sbuf len(size(comm)*count_per_rank*dtype) opt(rank!=root||count_per_rank==0) until(request)
/// dtl:rbuf out len(count_per_rank*dtype) opt(count_per_rank==0) in_place(rank==root)
/// dtl:rbuf until(request)
/// dtl:root rank
/// dtl:out owned(dtl_request_wait|dtl_request_test)
/// dtl:call collective(comm)
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
    let args = CArgs { root, ..CArgs::new(Kind::Scatter, (sbuf, rbuf), count_per_rank, dtype) };
    // SAFETY: the caller's contract.
    unsafe { start(Entry("dtl_comm_iscatter"), comm, &args, out) }
}

/// Begins a dtl_comm_scatterv as a request: see dtl_comm_ibarrier.
///
/// @return as dtl_comm_scatterv, without DTL_ERROR_TIMEOUT; DTL_ERROR_LIMIT: too many
///         requests in flight. Equivalent: MPI_Iscatterv.
/// dtl:sbuf len(?) opt(rank!=root||sum(scounts)==0) until(request)
/// dtl:scounts len(size(comm)) opt(rank!=root)
/// dtl:sdispls len(size(comm)) opt
/// dtl:rbuf out len(rcount*dtype) opt(rcount==0) in_place(rank==root) until(request)
/// dtl:root rank
/// dtl:out owned(dtl_request_wait|dtl_request_test)
/// dtl:call collective(comm)
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
    let (send, recv) = (BufferArgs::blocks(sbuf, scounts, sdispls), BufferArgs::new(rbuf, rcount));
    let args = CArgs { root, ..CArgs::varied(Kind::Scatterv, send, recv, dtype) };
    // SAFETY: the caller's contract.
    unsafe { start(Entry("dtl_comm_iscatterv"), comm, &args, out) }
}

/// Begins a dtl_comm_allgather as a request: see dtl_comm_ibarrier.
///
/// @return as dtl_comm_allgather, without DTL_ERROR_TIMEOUT; DTL_ERROR_LIMIT: too many
///         requests in flight. Equivalent: MPI_Iallgather.
/// dtl:sbuf len(count_per_rank*dtype) opt(count_per_rank==0) in_place until(request)
/// dtl:rbuf inout len(size(comm)*count_per_rank*dtype) opt(count_per_rank==0) until(request)
/// dtl:out owned(dtl_request_wait|dtl_request_test)
/// dtl:call collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_iallgather(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    count_per_rank: u64,
    rbuf: *mut c_void,
    dtype: dtl_dtype_t,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    let args = CArgs::new(Kind::Allgather, (sbuf, rbuf), count_per_rank, dtype);
    // SAFETY: the caller's contract.
    unsafe { start(Entry("dtl_comm_iallgather"), comm, &args, out) }
}

/// Begins a dtl_comm_allgatherv as a request: see dtl_comm_ibarrier.
///
/// @return as dtl_comm_allgatherv, without DTL_ERROR_TIMEOUT; DTL_ERROR_LIMIT: too many
///         requests in flight. Equivalent: MPI_Iallgatherv.
/// dtl:sbuf len(scount*dtype) opt(scount==0) in_place until(request)
/// dtl:rbuf inout len(?) opt(sum(rcounts)==0) until(request)
/// dtl:rcounts len(size(comm))
/// dtl:rdispls len(size(comm)) opt
/// dtl:out owned(dtl_request_wait|dtl_request_test)
/// dtl:call collective(comm)
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
    let (send, recv) = (BufferArgs::new(sbuf, scount), BufferArgs::blocks(rbuf, rcounts, rdispls));
    let args = CArgs::varied(Kind::Allgatherv, send, recv, dtype);
    // SAFETY: the caller's contract.
    unsafe { start(Entry("dtl_comm_iallgatherv"), comm, &args, out) }
}

/// Begins a dtl_comm_alltoall as a request: see dtl_comm_ibarrier.
///
/// @return as dtl_comm_alltoall, without DTL_ERROR_TIMEOUT; DTL_ERROR_LIMIT: too many
///         requests in flight. Equivalent: MPI_Ialltoall.
/// dtl:sbuf len(size(comm)*count_per_rank*dtype) opt(count_per_rank==0) in_place until(request)
/// dtl:rbuf inout len(size(comm)*count_per_rank*dtype) opt(count_per_rank==0) until(request)
/// dtl:out owned(dtl_request_wait|dtl_request_test)
/// dtl:call collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_ialltoall(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    count_per_rank: u64,
    rbuf: *mut c_void,
    dtype: dtl_dtype_t,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    let args = CArgs::new(Kind::Alltoall, (sbuf, rbuf), count_per_rank, dtype);
    // SAFETY: the caller's contract.
    unsafe { start(Entry("dtl_comm_ialltoall"), comm, &args, out) }
}

/// Begins a dtl_comm_alltoallv as a request: see dtl_comm_ibarrier.
///
/// @return as dtl_comm_alltoallv, without DTL_ERROR_TIMEOUT; DTL_ERROR_LIMIT: too many
///         requests in flight. Equivalent: MPI_Ialltoallv.
/// dtl:sbuf len(?) opt(sum(scounts)==0) in_place until(request)
/// dtl:scounts len(size(comm)) opt(sbuf==DTL_IN_PLACE)
/// dtl:sdispls len(size(comm)) opt
/// dtl:rbuf inout len(?) opt(sum(rcounts)==0) until(request)
/// dtl:rcounts len(size(comm))
/// dtl:rdispls len(size(comm)) opt
/// dtl:out owned(dtl_request_wait|dtl_request_test)
/// dtl:call collective(comm)
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
    let (send, recv) =
        (BufferArgs::blocks(sbuf, scounts, sdispls), BufferArgs::blocks(rbuf, rcounts, rdispls));
    let args = CArgs::varied(Kind::Alltoallv, send, recv, dtype);
    // SAFETY: the caller's contract.
    unsafe { start(Entry("dtl_comm_ialltoallv"), comm, &args, out) }
}

/// Begins a dtl_comm_neighbor_alltoallv as a request: see dtl_comm_ibarrier.
///
/// @return as dtl_comm_neighbor_alltoallv, without DTL_ERROR_TIMEOUT; DTL_ERROR_LIMIT:
///         too many requests in flight. Equivalent: MPI_Ineighbor_alltoallv.
/// dtl:dests len(dest_count) opt(dest_count==0) rank(null)
/// dtl:sbuf len(?) opt(sum(scounts)==0) until(request)
/// dtl:scounts len(dest_count) opt(dest_count==0)
/// dtl:sdispls len(dest_count) opt
/// dtl:sources len(source_count) opt(source_count==0) rank(null)
/// dtl:rbuf out len(?) opt(sum(rcounts)==0) until(request)
/// dtl:rcounts len(source_count) opt(source_count==0)
/// dtl:rdispls len(source_count) opt
/// dtl:out owned(dtl_request_wait|dtl_request_test)
/// dtl:call collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_ineighbor_alltoallv(
    comm: dtl_comm_t,
    dests: *const i32,
    dest_count: u64,
    sbuf: *const c_void,
    scounts: *const u64,
    sdispls: *const u64,
    sources: *const i32,
    source_count: u64,
    rbuf: *mut c_void,
    rcounts: *const u64,
    rdispls: *const u64,
    dtype: dtl_dtype_t,
    out: *mut dtl_request_t,
) -> dtl_status_t {
    let send = BufferArgs::blocks(sbuf, scounts, sdispls).of(dest_count, dests);
    let recv = BufferArgs::blocks(rbuf, rcounts, rdispls).of(source_count, sources);
    let args = CArgs::varied(Kind::NeighborAlltoallv, send, recv, dtype);
    // SAFETY: the caller's contract.
    unsafe { start(Entry("dtl_comm_ineighbor_alltoallv"), comm, &args, out) }
}
