//! Backend tables: arguments of collectives and results of mem_supports, of the comm table.
//! dtl: header(dtl_backend.h)

use crate::abi::handle::dtl_backend_t;
use crate::abi::word::{dtl_dtype_t, dtl_enum_word_t, dtl_reduce_op_t};
use std::ffi::c_void;

/// Collective of a dtl_coll_args_t: dtl_comm_barrier and dtl_comm_ibarrier.
pub const DTL_COLLECTIVE_BARRIER: i32 = 0;
/// dtl_comm_bcast and dtl_comm_ibcast.
pub const DTL_COLLECTIVE_BCAST: i32 = 1;
/// dtl_comm_reduce and dtl_comm_ireduce.
pub const DTL_COLLECTIVE_REDUCE: i32 = 2;
/// dtl_comm_allreduce and dtl_comm_iallreduce.
pub const DTL_COLLECTIVE_ALLREDUCE: i32 = 3;
/// dtl_comm_gather and dtl_comm_igather.
pub const DTL_COLLECTIVE_GATHER: i32 = 4;
/// dtl_comm_gatherv and dtl_comm_igatherv.
pub const DTL_COLLECTIVE_GATHERV: i32 = 5;
/// dtl_comm_scatter and dtl_comm_iscatter.
pub const DTL_COLLECTIVE_SCATTER: i32 = 6;
/// dtl_comm_scatterv and dtl_comm_iscatterv.
pub const DTL_COLLECTIVE_SCATTERV: i32 = 7;
/// dtl_comm_allgather and dtl_comm_iallgather.
pub const DTL_COLLECTIVE_ALLGATHER: i32 = 8;
/// dtl_comm_allgatherv and dtl_comm_iallgatherv.
pub const DTL_COLLECTIVE_ALLGATHERV: i32 = 9;
/// dtl_comm_alltoall and dtl_comm_ialltoall.
pub const DTL_COLLECTIVE_ALLTOALL: i32 = 10;
/// dtl_comm_alltoallv and dtl_comm_ialltoallv.
pub const DTL_COLLECTIVE_ALLTOALLV: i32 = 11;
/// dtl_comm_reduce_scatter and dtl_comm_ireduce_scatter.
pub const DTL_COLLECTIVE_REDUCE_SCATTER: i32 = 12;
/// dtl_comm_reduce_scatter_block and dtl_comm_ireduce_scatter_block.
pub const DTL_COLLECTIVE_REDUCE_SCATTER_BLOCK: i32 = 13;
/// dtl_comm_scan and dtl_comm_iscan.
pub const DTL_COLLECTIVE_SCAN: i32 = 14;
/// dtl_comm_exscan and dtl_comm_iexscan.
pub const DTL_COLLECTIVE_EXSCAN: i32 = 15;

/// Flag of dtl_coll_args_t: the caller passed DTL_IN_PLACE. The buffer that it replaces is this
/// rank's part of the other buffer. For DTL_COLLECTIVE_REDUCE_SCATTER and its block form, `send` is
/// the whole buffer, and `recv` is this rank's block at its beginning.
pub const DTL_COLL_IN_PLACE: u64 = 1;
/// Flag of dtl_coll_args_t: the result of a reduction must have the bits of the library's own
/// algorithms (DTL_COMM_DETERMINISTIC). Support such a reduction only if its result is exact in any
/// order, as those of integers are.
pub const DTL_COLL_DETERMINISTIC: u64 = 2;

/// Range of memory of a dtl_coll_args_t.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_coll_range_t {
    /// First byte; any value if size_bytes is 0.
    /// dtl: opaque
    pub ptr: *mut c_void,
    /// Size in bytes.
    pub size_bytes: u64,
}

/// A collective for the slots coll_supports and coll_start of a comm table. The library has checked
/// the arguments of this rank. The host can access the buffers, unless memory_backend is set.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_coll_args_t {
    /// sizeof(dtl_coll_args_t) of the library. Read only fields inside it.
    pub struct_size: u32,
    /// DTL_COLLECTIVE_BARRIER to DTL_COLLECTIVE_EXSCAN.
    /// dtl: values(DTL_COLLECTIVE_)
    pub collective: i32,
    /// DTL_COLL_IN_PLACE and DTL_COLL_DETERMINISTIC, ored.
    /// dtl: flags(DTL_COLL_IN_PLACE|DTL_COLL_DETERMINISTIC)
    pub flags: u64,
    /// Number of the communicator of the call: 0 for the one that the program opened, other numbers
    /// for its duplicates. It is the same on all ranks. Collectives of one context are
    /// started in the same order on all ranks; those of different contexts may be in flight at the
    /// same time, in any order.
    pub context: u32,
    /// Rank of the root; -1 = none.
    /// dtl: rank
    pub root: i32,
    /// Type of an element; -1 for a barrier. A user-defined dtype occurs only without a reduction.
    pub dtype: dtl_dtype_t,
    /// Operation, a built-in one; -1 = the collective does not reduce.
    pub op: dtl_reduce_op_t,
    /// Elements of this rank's data. With blocks of equal size, elements of one block.
    pub count: u64,
    /// Size of an element in bytes; 0 for a barrier.
    pub element_bytes: u64,
    /// Data that this rank contributes: one range (the whole buffer, or blocks of equal size in
    /// rank order), or send_count ranges, one for each rank. For a bcast (on the root, too) and for
    /// a barrier: one empty range.
    /// dtl: len(send_count) lives(call)
    pub send: *const dtl_coll_range_t,
    /// Number of ranges of `send`, 1 or the number of ranks.
    pub send_count: u64,
    /// Destination of the result, in the form of `send`. For a bcast, the buffer of this rank: that
    /// of the root is read, the others are written. For a barrier: one empty range.
    /// dtl: len(recv_count) lives(call)
    pub recv: *const dtl_coll_range_t,
    /// Number of ranges of `recv`, 1 or the number of ranks.
    pub recv_count: u64,
    /// Backend of the buffers' memory, if that is device memory that mem_register has registered.
    /// Null if the host can access the buffers. It may differ between ranks.
    /// dtl: borrowed
    pub memory_backend: dtl_backend_t,
    /// Kind of that memory, DTL_MEMORY_... or a registered kind; 0 if memory_backend is null.
    /// dtl: values(DTL_MEMORY_)
    pub memory_kind: dtl_enum_word_t,
    /// Device of that memory; 0 if memory_backend is null.
    pub memory_device: i32,
    /// 0.
    pub reserved: u32,
}

/// Result of the slot mem_supports: messages in this memory are staged through host memory, and
/// dtl_comm_register has no effect on it.
pub const DTL_COMM_MEM_STAGED: i32 = 0;
/// Result of the slot mem_supports: the transport accesses this memory once mem_register has
/// registered it by its address.
pub const DTL_COMM_MEM_ADDRESS: i32 = 1;
/// Result of the slot mem_supports: the transport accesses this memory once mem_register has
/// registered it by a dma-buf, which the library exports from the memory's backend.
pub const DTL_COMM_MEM_DMABUF: i32 = 2;
