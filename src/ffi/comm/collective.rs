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

/// Blocks until every rank has called it.
///
/// Rules for all collectives. All ranks of the communicator make the same calls in the same order,
/// with the same count, dtype, op and root. Results do not depend on the order in which messages
/// arrive, and all ranks get the identical result. With DTL_COMM_DETERMINISTIC the result is
/// bitwise equal on every kind of communicator. Without the flag, two kinds group the operands
/// differently, so floating-point results may differ in rounding: "hier" (node by node), and "mpi"
/// with MPI's own collectives (see dtl_comm_desc_t), where MPI gives the guarantees.
///
/// Buffers must not overlap. A parameter accepts DTL_IN_PLACE only if its description says so:
/// `sbuf` (at the root, if only the root receives), whose data is then in the result buffer, or
/// `rbuf` of a scatter at the root, whose block then stays in `sbuf`. Anywhere else the call
/// returns DTL_ERROR_INVALID_ARGUMENT. For memory of devices see dtl_comm_send.
///
/// The nonblocking forms (dtl_comm_i...) return a request, see dtl_comm_ibarrier.
///
/// @return DTL_ERROR_RANK_FAILURE: a rank died, left or is absent; the text names it. A live rank
///         is absent if the call that created the communicator failed on it alone, or if it
///         destroyed the communicator after a failure. DTL_ERROR_TIMEOUT: the communicator's time
///         limit passed; the text names the operation that each rank is in. DTL_ERROR_BUSY: another
///         thread of this process is in a collective on `comm` (requests of collectives do not
///         count), or the call comes from a callback of a collective on `comm` (see dtl_op_fn_t).
///         DTL_ERROR_INVALID_ARGUMENT: an argument is invalid, or the ranks are in different
///         collectives or pass different counts; the text names them (see dtl_comm_dump).
///         Differences that cannot be detected end at the time limit. MPI's own collectives detect
///         neither differences nor deaths. DTL_ERROR_INVALID_STATE: an earlier collective failed,
///         so the ranks are out of step: call dtl_comm_shrink, or destroy the communicator.
///         DTL_ERROR_CANCELED: the communicator was destroyed meanwhile. DTL_ERROR_NOT_SUPPORTED:
///         NCCL does not provide the collective for device memory (kind "nccl", see
///         DTL_COMM_STAGE). Equivalent: MPI_Barrier.
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_comm_barrier(comm: dtl_comm_t) -> dtl_status_t {
    on_comm(Entry("dtl_comm_barrier"), comm, coll::barrier)
}

/// Copies `count` elements from the `buf` of the root to the `buf` of every rank.
///
/// @return DTL_ERROR_INVALID_RANK: `root` is not a rank. DTL_ERROR_RANK_FAILURE, DTL_ERROR_TIMEOUT,
///         DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_ARGUMENT: see
///         dtl_comm_barrier. Equivalent: MPI_Bcast.
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

/// Reduces `count` elements of every rank, element by element, into the `rbuf` of the root.
///
/// @param sbuf  `count` elements; DTL_IN_PLACE at the root.
/// @param rbuf  `count` elements at the root; not accessed elsewhere, where it may be NULL.
/// @param op    An operation for `dtype`, see the table at dtl_reduce_op_t. Operands are combined
///              in the order of ranks unless the operation commutes.
/// @return DTL_ERROR_INVALID_RANK: `root` is not a rank. DTL_ERROR_TYPE: `op` does not support
///         `dtype`. DTL_ERROR_RANK_FAILURE, DTL_ERROR_TIMEOUT, DTL_ERROR_BUSY,
///         DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_ARGUMENT: see dtl_comm_barrier.
/// Equivalent: MPI_Reduce.
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

/// Reduces `count` elements of every rank, element by element, into the `rbuf` of every rank.
///
/// @param sbuf  `count` elements, or DTL_IN_PLACE.
/// @return DTL_ERROR_TYPE: `op` does not support `dtype`. DTL_ERROR_RANK_FAILURE,
///         DTL_ERROR_TIMEOUT, DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_ARGUMENT:
///         see dtl_comm_barrier. Equivalent: MPI_Allreduce.
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

/// Reduces size x `count` elements of every rank. Rank r gets the r-th block of `count` elements.
///
/// @param sbuf   size x `count` elements. DTL_IN_PLACE: they are at `rbuf`, and the first `count`
///               elements there are then the result.
/// @param rbuf   `count` elements (in place size x `count`).
/// @param count  Elements of one block.
/// @return DTL_ERROR_TYPE: `op` does not support `dtype`. DTL_ERROR_RANK_FAILURE,
///         DTL_ERROR_TIMEOUT, DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_ARGUMENT:
///         see dtl_comm_barrier. Equivalent: MPI_Reduce_scatter_block.
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

/// Reduces the elements of every rank. Rank r gets the r-th block of the result, with rcounts[r]
/// elements.
///
/// @param sbuf     As many elements as the sum of `rcounts`. DTL_IN_PLACE: they are at `rbuf`, and
///                 the first rcounts[rank] elements there are then the result.
/// @param rcounts  One count per rank, the same on all ranks.
/// @return DTL_ERROR_TYPE: `op` does not support `dtype`. DTL_ERROR_RANK_FAILURE,
///         DTL_ERROR_TIMEOUT, DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_ARGUMENT:
///         see dtl_comm_barrier. The last is also returned if blocks of `rbuf` overlap.
/// Equivalent: MPI_Reduce_scatter.
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

/// Reduces the elements of ranks 0 to this one, element by element (inclusive prefix reduction).
///
/// @param sbuf  `count` elements, or DTL_IN_PLACE.
/// @return DTL_ERROR_TYPE: `op` does not support `dtype`. DTL_ERROR_RANK_FAILURE,
///         DTL_ERROR_TIMEOUT, DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_ARGUMENT:
///         see dtl_comm_barrier. Equivalent: MPI_Scan.
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

/// Reduces the elements of the ranks before this one, element by element (exclusive prefix
/// reduction). The `rbuf` of rank 0 is unchanged.
///
/// @param sbuf  `count` elements, or DTL_IN_PLACE.
/// @return DTL_ERROR_TYPE: `op` does not support `dtype`. DTL_ERROR_RANK_FAILURE,
///         DTL_ERROR_TIMEOUT, DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_ARGUMENT:
///         see dtl_comm_barrier. Equivalent: MPI_Exscan.
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

/// Collects one block of every rank at the root, in the order of ranks.
///
/// @param sbuf            `count_per_rank` elements; DTL_IN_PLACE at the root.
/// @param count_per_rank  Elements of one block.
/// @param rbuf            size x count_per_rank elements at the root; may be NULL elsewhere.
/// @return DTL_ERROR_INVALID_RANK: `root` is not a rank. DTL_ERROR_RANK_FAILURE, DTL_ERROR_TIMEOUT,
///         DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_ARGUMENT: see
///         dtl_comm_barrier. Equivalent: MPI_Gather.
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

/// Collects one block of every rank at the root. Sizes and positions of the blocks vary.
///
/// @param sbuf     `scount` elements; DTL_IN_PLACE at the root.
/// @param rcounts  Elements of each rank's block; read at the root only, may be NULL elsewhere.
/// @param rdispls  Position of each block in `rbuf`, in elements; NULL: one after the other.
/// @return DTL_ERROR_INVALID_RANK: `root` is not a rank. DTL_ERROR_RANK_FAILURE, DTL_ERROR_TIMEOUT,
///         DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_ARGUMENT: see
///         dtl_comm_barrier. The last is also returned if blocks of `rbuf` overlap.
/// Equivalent: MPI_Gatherv.
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

/// Distributes the blocks of the root, one to each rank in the order of ranks.
///
/// @param sbuf            size x count_per_rank elements at the root; may be NULL elsewhere.
/// @param count_per_rank  Elements of one block.
/// @param rbuf            `count_per_rank` elements; DTL_IN_PLACE at the root: its block stays in
///                        `sbuf`.
/// @return DTL_ERROR_INVALID_RANK: `root` is not a rank. DTL_ERROR_RANK_FAILURE, DTL_ERROR_TIMEOUT,
///         DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_ARGUMENT: see
///         dtl_comm_barrier. Equivalent: MPI_Scatter.
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

/// Distributes the blocks of the root, one to each rank. Sizes and positions of the blocks vary.
///
/// @param scounts  Elements of each rank's block; read at the root only, may be NULL elsewhere.
/// @param sdispls  Position of each block in `sbuf`, in elements; NULL: one after the other.
/// @param rbuf     `rcount` elements; DTL_IN_PLACE at the root.
/// @return DTL_ERROR_INVALID_RANK: `root` is not a rank. DTL_ERROR_RANK_FAILURE, DTL_ERROR_TIMEOUT,
///         DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE, DTL_ERROR_INVALID_ARGUMENT: see
///         dtl_comm_barrier. Equivalent: MPI_Scatterv.
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

/// Collects one block of every rank at every rank, in the order of ranks.
///
/// @param sbuf  `count_per_rank` elements, or DTL_IN_PLACE.
/// @param rbuf  size x count_per_rank elements.
/// @return DTL_ERROR_RANK_FAILURE, DTL_ERROR_TIMEOUT, DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE,
///         DTL_ERROR_INVALID_ARGUMENT: see dtl_comm_barrier. Equivalent: MPI_Allgather.
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

/// Collects one block of every rank at every rank. Sizes and positions of the blocks vary.
///
/// @param sbuf     `scount` elements, or DTL_IN_PLACE.
/// @param rcounts  Elements of each rank's block, the same on all ranks.
/// @param rdispls  Position of each block in `rbuf`, in elements; NULL: one after the other.
/// @return DTL_ERROR_RANK_FAILURE, DTL_ERROR_TIMEOUT, DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE,
///         DTL_ERROR_INVALID_ARGUMENT: see dtl_comm_barrier. The last is also returned if blocks of
///         `rbuf` overlap. Equivalent: MPI_Allgatherv.
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

/// Sends block r of `sbuf` to rank r, and receives block r of `rbuf` from rank r.
///
/// @param sbuf  size x count_per_rank elements. DTL_IN_PLACE: the blocks to send are at `rbuf`.
/// @param rbuf  size x count_per_rank elements.
/// @return DTL_ERROR_RANK_FAILURE, DTL_ERROR_TIMEOUT, DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE,
///         DTL_ERROR_INVALID_ARGUMENT: see dtl_comm_barrier. Equivalent: MPI_Alltoall.
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

/// Sends block r of `sbuf` to rank r, and receives block r of `rbuf` from it. Sizes and positions
/// vary.
///
/// @param sbuf     DTL_IN_PLACE: the blocks to send are at `rbuf` (`scounts` and `sdispls` are not
///                 read).
/// @param scounts  Elements of the block to each rank.
/// @param sdispls  Position of each block in `sbuf`, in elements; NULL: one after the other.
/// @param rcounts  Elements of the block from each rank.
/// @param rdispls  Position of each block in `rbuf`, in elements; NULL: one after the other.
/// @return DTL_ERROR_RANK_FAILURE, DTL_ERROR_TIMEOUT, DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE,
///         DTL_ERROR_INVALID_ARGUMENT: see dtl_comm_barrier. The last is also returned if blocks of
///         `rbuf` overlap. Equivalent: MPI_Alltoallv.
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

/// Sends one block to each rank of a list and receives one block from each rank of another. Every
/// rank of the communicator calls it. The lists must match: `dests` has a rank as often as the
/// `sources` of that rank has this one.
///
/// @param dests    Ranks to send to; DTL_PROC_NULL is skipped.
/// @param scounts  Elements of each of the `dest_count` blocks.
/// @param sdispls  Position of each block in `sbuf`, in elements; NULL: one after the other.
/// @param sources  Ranks to receive from. Several blocks from one rank are received in the order in
///                 which it sends them.
/// @param rcounts  Elements of each of the `source_count` blocks.
/// @param rdispls  Position of each block in `rbuf`, in elements; NULL: one after the other.
/// @return DTL_ERROR_INVALID_RANK: an element of `dests` or `sources` is not a rank.
///         DTL_ERROR_LIMIT: one of them has more than 2^20 elements.
///         DTL_ERROR_RANK_FAILURE, DTL_ERROR_TIMEOUT, DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE,
///         DTL_ERROR_INVALID_ARGUMENT: see dtl_comm_barrier. The last is also returned if blocks of
///         `rbuf` overlap. Equivalent: MPI_Neighbor_alltoallv.
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
