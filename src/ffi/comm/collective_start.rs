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

/// Starts a barrier. Does not block. The request is complete when every rank has started the
/// barrier.
///
/// Rules for all nonblocking collectives. The parameters are those of the blocking form. The
/// buffers must not be accessed until the request is complete; arrays of counts, displacements and
/// ranks may be reused when the call returns. Every rank starts its collectives, blocking and
/// nonblocking, in the same order. Every waiting call, and dtl_request_test, makes progress on
/// them. The communicator's time limit does not end them; the death of a rank does. The call
/// returns errors in this rank's arguments, the request those of other ranks.
///
/// @param out  The request; complete it with dtl_request_wait or dtl_request_test. It cannot be
///             cancelled.
/// @return DTL_ERROR_LIMIT: too many requests in flight. DTL_ERROR_RANK_FAILURE: a rank died, left
///         or is absent. DTL_ERROR_BUSY: another thread is in a collective on `comm`.
///         DTL_ERROR_INVALID_STATE: an earlier collective on `comm` failed.
///         DTL_ERROR_INVALID_ARGUMENT: an argument is invalid, or the calls of the ranks differ.
/// Equivalent: MPI_Ibarrier.
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

/// Starts a dtl_comm_bcast, with its parameters. The rules are those of dtl_comm_ibarrier.
///
/// @return DTL_ERROR_INVALID_RANK: `root` is not a rank. DTL_ERROR_LIMIT, DTL_ERROR_RANK_FAILURE,
///         DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_ARGUMENT: see
///         dtl_comm_ibarrier. Equivalent: MPI_Ibcast.
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

/// Starts a dtl_comm_reduce, with its parameters. The rules are those of dtl_comm_ibarrier.
///
/// @return DTL_ERROR_INVALID_RANK: `root` is not a rank. DTL_ERROR_TYPE: `op` does not support
///         `dtype`. DTL_ERROR_LIMIT, DTL_ERROR_RANK_FAILURE, DTL_ERROR_BUSY,
///         DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_ARGUMENT: see dtl_comm_ibarrier.
/// Equivalent: MPI_Ireduce.
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

/// Starts a dtl_comm_allreduce, with its parameters. The rules are those of dtl_comm_ibarrier.
///
/// @return DTL_ERROR_TYPE: `op` does not support `dtype`. DTL_ERROR_LIMIT, DTL_ERROR_RANK_FAILURE,
///         DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_ARGUMENT: see
///         dtl_comm_ibarrier. Equivalent: MPI_Iallreduce.
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

/// Starts a dtl_comm_reduce_scatter_block, with its parameters. The rules are those of
/// dtl_comm_ibarrier.
///
/// @return DTL_ERROR_TYPE: `op` does not support `dtype`. DTL_ERROR_LIMIT, DTL_ERROR_RANK_FAILURE,
///         DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_ARGUMENT: see
///         dtl_comm_ibarrier.
/// Equivalent: MPI_Ireduce_scatter_block.
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

/// Starts a dtl_comm_reduce_scatter, with its parameters. The rules are those of dtl_comm_ibarrier.
///
/// @return DTL_ERROR_TYPE: `op` does not support `dtype`. DTL_ERROR_LIMIT, DTL_ERROR_RANK_FAILURE,
///         DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_ARGUMENT: see
///         dtl_comm_ibarrier. Equivalent: MPI_Ireduce_scatter.
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

/// Starts a dtl_comm_scan, with its parameters. The rules are those of dtl_comm_ibarrier.
///
/// @return DTL_ERROR_TYPE: `op` does not support `dtype`. DTL_ERROR_LIMIT, DTL_ERROR_RANK_FAILURE,
///         DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_ARGUMENT: see
///         dtl_comm_ibarrier. Equivalent: MPI_Iscan.
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

/// Starts a dtl_comm_exscan, with its parameters. The rules are those of dtl_comm_ibarrier.
///
/// @return DTL_ERROR_TYPE: `op` does not support `dtype`. DTL_ERROR_LIMIT, DTL_ERROR_RANK_FAILURE,
///         DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_ARGUMENT: see
///         dtl_comm_ibarrier. Equivalent: MPI_Iexscan.
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

/// Starts a dtl_comm_gather, with its parameters. The rules are those of dtl_comm_ibarrier.
///
/// @return DTL_ERROR_INVALID_RANK: `root` is not a rank. DTL_ERROR_LIMIT, DTL_ERROR_RANK_FAILURE,
///         DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_ARGUMENT: see
///         dtl_comm_ibarrier. Equivalent: MPI_Igather.
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

/// Starts a dtl_comm_gatherv, with its parameters. The rules are those of dtl_comm_ibarrier.
///
/// @return DTL_ERROR_INVALID_RANK: `root` is not a rank. DTL_ERROR_LIMIT, DTL_ERROR_RANK_FAILURE,
///         DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_ARGUMENT: see
///         dtl_comm_ibarrier. Equivalent: MPI_Igatherv.
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

/// Starts a dtl_comm_scatter, with its parameters. The rules are those of dtl_comm_ibarrier.
///
/// @return DTL_ERROR_INVALID_RANK: `root` is not a rank. DTL_ERROR_LIMIT, DTL_ERROR_RANK_FAILURE,
///         DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_ARGUMENT: see
///         dtl_comm_ibarrier. Equivalent: MPI_Iscatter.
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

/// Starts a dtl_comm_scatterv, with its parameters. The rules are those of dtl_comm_ibarrier.
///
/// @return DTL_ERROR_INVALID_RANK: `root` is not a rank. DTL_ERROR_LIMIT, DTL_ERROR_RANK_FAILURE,
///         DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_ARGUMENT: see
///         dtl_comm_ibarrier. Equivalent: MPI_Iscatterv.
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

/// Starts a dtl_comm_allgather, with its parameters. The rules are those of dtl_comm_ibarrier.
///
/// @return DTL_ERROR_LIMIT, DTL_ERROR_RANK_FAILURE, DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE,
///         DTL_ERROR_INVALID_ARGUMENT: see dtl_comm_ibarrier. Equivalent: MPI_Iallgather.
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

/// Starts a dtl_comm_allgatherv, with its parameters. The rules are those of dtl_comm_ibarrier.
///
/// @return DTL_ERROR_LIMIT, DTL_ERROR_RANK_FAILURE, DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE,
///         DTL_ERROR_INVALID_ARGUMENT: see dtl_comm_ibarrier. Equivalent: MPI_Iallgatherv.
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

/// Starts a dtl_comm_alltoall, with its parameters. The rules are those of dtl_comm_ibarrier.
///
/// @return DTL_ERROR_LIMIT, DTL_ERROR_RANK_FAILURE, DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE,
///         DTL_ERROR_INVALID_ARGUMENT: see dtl_comm_ibarrier. Equivalent: MPI_Ialltoall.
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

/// Starts a dtl_comm_alltoallv, with its parameters. The rules are those of dtl_comm_ibarrier.
///
/// @return DTL_ERROR_LIMIT, DTL_ERROR_RANK_FAILURE, DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE,
///         DTL_ERROR_INVALID_ARGUMENT: see dtl_comm_ibarrier. Equivalent: MPI_Ialltoallv.
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

/// Starts a dtl_comm_neighbor_alltoallv, with its parameters. The rules are those of
/// dtl_comm_ibarrier.
///
/// @return DTL_ERROR_INVALID_RANK: a neighbor is not a rank. DTL_ERROR_LIMIT: a list has more than
///         2^20 elements, or too many requests are in flight. DTL_ERROR_RANK_FAILURE,
///         DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_ARGUMENT: see
///         dtl_comm_ibarrier. Equivalent: MPI_Ineighbor_alltoallv.
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
