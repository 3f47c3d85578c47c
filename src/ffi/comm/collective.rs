//! Collectives: blocking (dtl_comm_barrier has the rules for all collectives).

use super::collective_args::{self as arguments, BufferArgs, CArgs};
use crate::abi::handle::dtl_comm_t;
use crate::abi::status::dtl_status_t;
use crate::abi::word::{dtl_dtype_t, dtl_reduce_op_t};
use crate::error::Result;
use crate::ffi::guard::{self, Entry};
use crate::runtime::comm::coll::{self, CallMode, CollArgs, Kind};
use crate::runtime::comm::{self, Comm};
use std::ffi::c_void;
use std::ptr;

/// Executes a collective.
///
/// # Safety
/// As [`arguments::set`].
unsafe fn wait(entry: Entry, comm: dtl_comm_t, args: &CArgs) -> dtl_status_t {
    // SAFETY: passed on.
    on_comm(entry, comm, move |comm| unsafe { run(comm, args) })
}

/// Calls `run` with the communicator.
#[inline]
fn on_comm(
    entry: Entry,
    comm: dtl_comm_t,
    run: impl Fn(&Comm) -> Result<()> + Copy,
) -> dtl_status_t {
    guard::quick(
        guard::is_open_for_quick,
        move |visit| comm::keep(visit, comm).map(|comm| run(&comm)),
        move || general(entry, comm, run),
    )
}

/// Slow path of [`on_comm`].
#[cold]
#[inline(never)]
fn general(entry: Entry, comm: dtl_comm_t, run: impl Fn(&Comm) -> Result<()>) -> dtl_status_t {
    entry.hold(comm::hold, comm, |comm| run(comm))
}

/// # Safety
/// As [`arguments::set`].
unsafe fn run(comm: &Comm, args: &CArgs) -> Result<()> {
    let mut checked = CollArgs::new(args.kind);
    // SAFETY: passed on.
    unsafe { arguments::set(&mut checked, comm, args) }?;
    coll::wait(comm, coll::begin(comm, CallMode::Blocking, &checked))
}

/// Returns once every rank has called it.
///
/// Rules for all collectives. Every rank of the communicator makes the same calls in the same
/// order, with the same count, dtype, op and root. Results do not depend on the order in which
/// messages arrive, and all ranks get the identical result. With DTL_COMM_DETERMINISTIC it is
/// bitwise the same on every kind of communicator. Without, this holds on all but two, which group
/// the operands in another way, so that floating-point results may differ in rounding: "hier" (node
/// by node) and "mpi" with MPI's own collectives (see dtl_comm_desc_t), where the MPI determines
/// all of this. Buffers must not overlap. DTL_IN_PLACE where a call's text allows it (as sbuf, at
/// the root where only the root receives; as rbuf of a scatter, at the root): this rank's part lies
/// where its result goes. Anywhere else it is DTL_ERROR_INVALID_ARGUMENT.
///
/// The forms with an i return at once with a request (see dtl_comm_ibarrier).
///
/// @return DTL_ERROR_RANK_FAILURE: a rank died, left or is absent (named). A live rank is absent if
///         the call that made the communicator failed on it alone, or if it destroyed the
///         communicator after a failure. DTL_ERROR_TIMEOUT: the communicator's time limit; the text
///         names the operation that each rank is in. DTL_ERROR_BUSY: another thread of this process
///         is in a call of a collective on it (requests of collectives do not count), or this
///         thread is, in a function of the program's that it has called (see dtl_op_fn_t).
///         DTL_ERROR_INVALID_ARGUMENT: the ranks are not in the same collective, or with different
///         counts (named, see dtl_comm_dump; what cannot be found out ends with the time limit).
///         MPI's own collectives notice neither this nor deaths.
///         DTL_ERROR_INVALID_STATE: an earlier collective failed, so the ranks are out of step:
///         dtl_comm_shrink it, or destroy it.
/// Equivalent: MPI_Barrier.
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_comm_barrier(comm: dtl_comm_t) -> dtl_status_t {
    on_comm(Entry("dtl_comm_barrier"), comm, coll::barrier)
}

/// Copies `count` elements from the root's `buf` into everybody's.
///
/// @return as dtl_comm_barrier; DTL_ERROR_INVALID_RANK: root. Equivalent: MPI_Bcast.
/// dtl:buf inout len(count*dtype) opt(count==0)
/// dtl:root rank
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_bcast(
    comm: dtl_comm_t,
    buf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    root: i32,
) -> dtl_status_t {
    let args = CArgs { root, ..CArgs::new(Kind::Bcast, (ptr::null(), buf), count, dtype) };
    // SAFETY: the caller's contract.
    unsafe { wait(Entry("dtl_comm_bcast"), comm, &args) }
}

/// Folds everybody's `count` elements, one by one, into the root's `rbuf`.
///
/// @param sbuf  `count` elements; DTL_IN_PLACE at the root.
/// @param rbuf  `count` elements at the root; not touched elsewhere (may be NULL there).
/// @param op    DTL_OP_...; see there which dtypes it goes with. Operands are folded in the order
///              of ranks unless the operation commutes.
/// @return as dtl_comm_allreduce; DTL_ERROR_INVALID_RANK: root. Equivalent: MPI_Reduce.
/// dtl:sbuf len(count*dtype) opt(count==0) in_place(rank==root)
/// dtl:rbuf inout len(count*dtype) opt(rank!=root||count==0)
/// dtl:root rank
/// dtl:call blocks(comm) collective(comm)
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
    let args = CArgs { op, root, ..CArgs::new(Kind::Reduce, (sbuf, rbuf), count, dtype) };
    // SAFETY: the caller's contract.
    unsafe { wait(Entry("dtl_comm_reduce"), comm, &args) }
}

/// Folds everybody's `count` elements, one by one, into everybody's `rbuf`.
///
/// @param sbuf  `count` elements, or DTL_IN_PLACE.
/// @return as dtl_comm_barrier; DTL_ERROR_TYPE: op and dtype do not go together.
///         Equivalent: MPI_Allreduce.
/// dtl:sbuf len(count*dtype) opt(count==0) in_place
/// dtl:rbuf inout len(count*dtype) opt(count==0)
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.hot.dtl")]
pub unsafe extern "C" fn dtl_comm_allreduce(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    op: dtl_reduce_op_t,
) -> dtl_status_t {
    let args = move || CArgs { op, ..CArgs::new(Kind::Allreduce, (sbuf, rbuf), count, dtype) };
    guard::quick(
        guard::is_open_for_quick,
        move |visit| {
            let comm = comm::keep(visit, comm)?;
            // SAFETY: the caller's contract.
            let usual = unsafe { arguments::fast_allreduce(&comm, sbuf, rbuf, count, dtype, op) };
            // SAFETY: as above.
            Some(usual.unwrap_or_else(|| unsafe { run(&comm, &args()) }))
        },
        // SAFETY: as above.
        move || general(Entry("dtl_comm_allreduce"), comm, |comm| unsafe { run(comm, &args()) }),
    )
}

/// Folds everybody's size x `count` elements and gives rank r the r-th `count` of the result.
///
/// @param sbuf   size x count elements; DTL_IN_PLACE: they lie at `rbuf`, whose first `count` are
///               then the result.
/// @param rbuf   `count` elements (size x count in place).
/// @param count  elements of one block.
/// @return as dtl_comm_allreduce. Equivalent: MPI_Reduce_scatter_block.
/// dtl:sbuf len(size(comm)*count*dtype) opt(count==0) in_place
/// dtl:rbuf inout len(sbuf==DTL_IN_PLACE?size(comm)*count*dtype:count*dtype) opt(count==0)
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_reduce_scatter_block(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    op: dtl_reduce_op_t,
) -> dtl_status_t {
    let args = CArgs { op, ..CArgs::new(Kind::ReduceScatterBlock, (sbuf, rbuf), count, dtype) };
    // SAFETY: the caller's contract.
    unsafe { wait(Entry("dtl_comm_reduce_scatter_block"), comm, &args) }
}

/// Folds everybody's elements and gives rank r the r-th block of the result, of rcounts[r]
/// elements.
///
/// @param sbuf     the sum of rcounts elements; DTL_IN_PLACE: they lie at `rbuf`, whose first
///                 rcounts[rank] are then the result.
/// @param rcounts  size counts, the same on all ranks.
/// @return as dtl_comm_allreduce. Equivalent: MPI_Reduce_scatter.
/// dtl:sbuf len(sum(rcounts)*dtype) opt(sum(rcounts)==0) in_place
/// dtl:rcounts len(size(comm))
/// dtl:rbuf inout len((sbuf==DTL_IN_PLACE?sum(rcounts):rcounts[rank])*dtype)
/// dtl:rbuf opt(sbuf==DTL_IN_PLACE?sum(rcounts)==0:rcounts[rank]==0)
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_reduce_scatter(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    rcounts: *const u64,
    dtype: dtl_dtype_t,
    op: dtl_reduce_op_t,
) -> dtl_status_t {
    let (send, recv) = (BufferArgs::blocks(sbuf, rcounts, ptr::null()), BufferArgs::new(rbuf, 0));
    let args = CArgs { op, ..CArgs::varied(Kind::ReduceScatter, send, recv, dtype) };
    // SAFETY: the caller's contract.
    unsafe { wait(Entry("dtl_comm_reduce_scatter"), comm, &args) }
}

/// Folds, element by element, what ranks 0 ... this one give.
///
/// @param sbuf  `count` elements, or DTL_IN_PLACE.
/// @return as dtl_comm_allreduce. Equivalent: MPI_Scan.
/// dtl:sbuf len(count*dtype) opt(count==0) in_place
/// dtl:rbuf inout len(count*dtype) opt(count==0)
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_scan(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    op: dtl_reduce_op_t,
) -> dtl_status_t {
    let args = CArgs { op, ..CArgs::new(Kind::Scan, (sbuf, rbuf), count, dtype) };
    // SAFETY: the caller's contract.
    unsafe { wait(Entry("dtl_comm_scan"), comm, &args) }
}

/// Folds, element by element, what the ranks before this one give. Rank 0's `rbuf` stays as it is.
///
/// @param sbuf  `count` elements, or DTL_IN_PLACE.
/// @return as dtl_comm_allreduce. Equivalent: MPI_Exscan.
/// dtl:sbuf len(count*dtype) opt(count==0) in_place
/// dtl:rbuf inout len(count*dtype) opt(count==0)
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_exscan(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    op: dtl_reduce_op_t,
) -> dtl_status_t {
    let args = CArgs { op, ..CArgs::new(Kind::Exscan, (sbuf, rbuf), count, dtype) };
    // SAFETY: the caller's contract.
    unsafe { wait(Entry("dtl_comm_exscan"), comm, &args) }
}

/// Collects everybody's block at the root, in the order of ranks.
///
/// @param sbuf            count_per_rank elements; DTL_IN_PLACE at the root.
/// @param count_per_rank  elements in one block.
/// @param rbuf            size x count_per_rank elements at the root; may be NULL elsewhere.
/// @return as dtl_comm_barrier; DTL_ERROR_INVALID_RANK: root. Equivalent: MPI_Gather.
/// dtl:sbuf len(count_per_rank*dtype) opt(count_per_rank==0) in_place(rank==root)
/// dtl:rbuf inout len(size(comm)*count_per_rank*dtype) opt(rank!=root||count_per_rank==0)
/// dtl:root rank
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_gather(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    count_per_rank: u64,
    rbuf: *mut c_void,
    dtype: dtl_dtype_t,
    root: i32,
) -> dtl_status_t {
    let args = CArgs { root, ..CArgs::new(Kind::Gather, (sbuf, rbuf), count_per_rank, dtype) };
    // SAFETY: the caller's contract.
    unsafe { wait(Entry("dtl_comm_gather"), comm, &args) }
}

/// Collects everybody's block at the root, each with its own size and place.
///
/// @param sbuf     `scount` elements; DTL_IN_PLACE at the root.
/// @param rcounts  elements of each rank's block; read at the root only (may be NULL elsewhere).
/// @param rdispls  where each block begins in `rbuf`, in elements; NULL: one after the other.
/// @return as dtl_comm_gather; DTL_ERROR_INVALID_ARGUMENT: blocks overlap. Equivalent: MPI_Gatherv.
/// dtl:sbuf len(scount*dtype) opt(scount==0) in_place(rank==root)
/// dtl:rbuf inout len(?) opt(rank!=root||sum(rcounts)==0)
/// dtl:rcounts len(size(comm)) opt(rank!=root)
/// dtl:rdispls len(size(comm)) opt
/// dtl:root rank
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_gatherv(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    scount: u64,
    rbuf: *mut c_void,
    rcounts: *const u64,
    rdispls: *const u64,
    dtype: dtl_dtype_t,
    root: i32,
) -> dtl_status_t {
    let (send, recv) = (BufferArgs::new(sbuf, scount), BufferArgs::blocks(rbuf, rcounts, rdispls));
    let args = CArgs { root, ..CArgs::varied(Kind::Gatherv, send, recv, dtype) };
    // SAFETY: the caller's contract.
    unsafe { wait(Entry("dtl_comm_gatherv"), comm, &args) }
}

/// Hands the root's blocks out, one to each rank in their order.
///
/// @param sbuf            size x count_per_rank elements at the root; may be NULL elsewhere.
/// @param count_per_rank  elements in one block.
/// @param rbuf            count_per_rank elements; DTL_IN_PLACE at the root: its block stays in
///                        `sbuf`.
/// @return as dtl_comm_gather. Equivalent: MPI_Scatter.
/// dtl:sbuf len(size(comm)*count_per_rank*dtype) opt(rank!=root||count_per_rank==0)
/// dtl:rbuf out len(count_per_rank*dtype) opt(count_per_rank==0) in_place(rank==root)
/// dtl:root rank
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_scatter(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    count_per_rank: u64,
    rbuf: *mut c_void,
    dtype: dtl_dtype_t,
    root: i32,
) -> dtl_status_t {
    let args = CArgs { root, ..CArgs::new(Kind::Scatter, (sbuf, rbuf), count_per_rank, dtype) };
    // SAFETY: the caller's contract.
    unsafe { wait(Entry("dtl_comm_scatter"), comm, &args) }
}

/// Hands the root's blocks out, each with its own size and place.
///
/// @param scounts, sdispls  as rcounts and rdispls of dtl_comm_gatherv, of `sbuf` at the root.
/// @param rbuf              `rcount` elements; DTL_IN_PLACE at the root.
/// @return as dtl_comm_gather. Equivalent: MPI_Scatterv.
/// dtl:sbuf len(?) opt(rank!=root||sum(scounts)==0)
/// dtl:scounts len(size(comm)) opt(rank!=root)
/// dtl:sdispls len(size(comm)) opt
/// dtl:rbuf out len(rcount*dtype) opt(rcount==0) in_place(rank==root)
/// dtl:root rank
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_scatterv(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    scounts: *const u64,
    sdispls: *const u64,
    rbuf: *mut c_void,
    rcount: u64,
    dtype: dtl_dtype_t,
    root: i32,
) -> dtl_status_t {
    let (send, recv) = (BufferArgs::blocks(sbuf, scounts, sdispls), BufferArgs::new(rbuf, rcount));
    let args = CArgs { root, ..CArgs::varied(Kind::Scatterv, send, recv, dtype) };
    // SAFETY: the caller's contract.
    unsafe { wait(Entry("dtl_comm_scatterv"), comm, &args) }
}

/// Collects everybody's block at everybody, in the order of ranks.
///
/// @param sbuf  count_per_rank elements, or DTL_IN_PLACE.
/// @param rbuf  size x count_per_rank elements.
/// @return as dtl_comm_barrier. Equivalent: MPI_Allgather.
/// dtl:sbuf len(count_per_rank*dtype) opt(count_per_rank==0) in_place
/// dtl:rbuf inout len(size(comm)*count_per_rank*dtype) opt(count_per_rank==0)
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_allgather(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    count_per_rank: u64,
    rbuf: *mut c_void,
    dtype: dtl_dtype_t,
) -> dtl_status_t {
    let args = CArgs::new(Kind::Allgather, (sbuf, rbuf), count_per_rank, dtype);
    // SAFETY: the caller's contract.
    unsafe { wait(Entry("dtl_comm_allgather"), comm, &args) }
}

/// Collects everybody's block at everybody, each with its own size and place.
///
/// @param sbuf              `scount` elements, or DTL_IN_PLACE.
/// @param rcounts, rdispls  as in dtl_comm_gatherv, the same counts on all ranks.
/// @return as dtl_comm_gatherv. Equivalent: MPI_Allgatherv.
/// dtl:sbuf len(scount*dtype) opt(scount==0) in_place
/// dtl:rbuf inout len(?) opt(sum(rcounts)==0)
/// dtl:rcounts len(size(comm))
/// dtl:rdispls len(size(comm)) opt
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_allgatherv(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    scount: u64,
    rbuf: *mut c_void,
    rcounts: *const u64,
    rdispls: *const u64,
    dtype: dtl_dtype_t,
) -> dtl_status_t {
    let (send, recv) = (BufferArgs::new(sbuf, scount), BufferArgs::blocks(rbuf, rcounts, rdispls));
    let args = CArgs::varied(Kind::Allgatherv, send, recv, dtype);
    // SAFETY: the caller's contract.
    unsafe { wait(Entry("dtl_comm_allgatherv"), comm, &args) }
}

/// Block r of everybody's `sbuf` goes to rank r; block r of `rbuf` comes from rank r.
///
/// @param sbuf  size x count_per_rank elements; DTL_IN_PLACE: what is sent lies at `rbuf`.
/// @param rbuf  size x count_per_rank elements.
/// @return as dtl_comm_barrier. Equivalent: MPI_Alltoall.
/// dtl:sbuf len(size(comm)*count_per_rank*dtype) opt(count_per_rank==0) in_place
/// dtl:rbuf inout len(size(comm)*count_per_rank*dtype) opt(count_per_rank==0)
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_alltoall(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    count_per_rank: u64,
    rbuf: *mut c_void,
    dtype: dtl_dtype_t,
) -> dtl_status_t {
    let args = CArgs::new(Kind::Alltoall, (sbuf, rbuf), count_per_rank, dtype);
    // SAFETY: the caller's contract.
    unsafe { wait(Entry("dtl_comm_alltoall"), comm, &args) }
}

/// Sends block r of `sbuf` to rank r, receives block r of `rbuf` from it. Sizes and places vary.
///
/// @param sbuf              DTL_IN_PLACE: what is sent lies at `rbuf` (scounts and sdispls are not
///                          read).
/// @param scounts, sdispls  of the blocks to each rank, in elements; NULL sdispls: one after the
///                 other.
/// @param rcounts, rdispls  of the blocks from each rank.
/// @return as dtl_comm_barrier; DTL_ERROR_INVALID_ARGUMENT: blocks overlap. Equivalent:
///         MPI_Alltoallv.
/// dtl:sbuf len(?) opt(sum(scounts)==0) in_place
/// dtl:scounts len(size(comm)) opt(sbuf==DTL_IN_PLACE)
/// dtl:sdispls len(size(comm)) opt
/// dtl:rbuf inout len(?) opt(sum(rcounts)==0)
/// dtl:rcounts len(size(comm))
/// dtl:rdispls len(size(comm)) opt
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_alltoallv(
    comm: dtl_comm_t,
    sbuf: *const c_void,
    scounts: *const u64,
    sdispls: *const u64,
    rbuf: *mut c_void,
    rcounts: *const u64,
    rdispls: *const u64,
    dtype: dtl_dtype_t,
) -> dtl_status_t {
    let (send, recv) =
        (BufferArgs::blocks(sbuf, scounts, sdispls), BufferArgs::blocks(rbuf, rcounts, rdispls));
    let args = CArgs::varied(Kind::Alltoallv, send, recv, dtype);
    // SAFETY: the caller's contract.
    unsafe { wait(Entry("dtl_comm_alltoallv"), comm, &args) }
}

/// One block to each of some ranks and one from each of some ranks. Every rank of the communicator
/// calls it; the lists must fit: each rank is in dests here as often as this one is in sources
/// there.
///
/// @param dest_count, dests      ranks to send to; DTL_PROC_NULL is passed over.
/// @param scounts, sdispls       dest_count each, in elements; NULL sdispls: one after the other.
/// @param source_count, sources  ranks to receive from; of several blocks from one rank the first
///                               is the one that it sent first.
/// @return as dtl_comm_alltoallv; DTL_ERROR_INVALID_RANK. Equivalent: MPI_Neighbor_alltoallv.
/// dtl:dests len(dest_count) opt(dest_count==0) rank(null)
/// dtl:sbuf len(?) opt(sum(scounts)==0)
/// dtl:scounts len(dest_count) opt(dest_count==0)
/// dtl:sdispls len(dest_count) opt
/// dtl:sources len(source_count) opt(source_count==0) rank(null)
/// dtl:rbuf out len(?) opt(sum(rcounts)==0)
/// dtl:rcounts len(source_count) opt(source_count==0)
/// dtl:rdispls len(source_count) opt
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_neighbor_alltoallv(
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
) -> dtl_status_t {
    let send = BufferArgs::blocks(sbuf, scounts, sdispls).of(dest_count, dests);
    let recv = BufferArgs::blocks(rbuf, rcounts, rdispls).of(source_count, sources);
    let args = CArgs::varied(Kind::NeighborAlltoallv, send, recv, dtype);
    // SAFETY: the caller's contract.
    unsafe { wait(Entry("dtl_comm_neighbor_alltoallv"), comm, &args) }
}
