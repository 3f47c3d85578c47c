//! Communicators and requests: constants, descriptions, receive information.
//! dtl: section(ffi/comm/communicator)

use crate::abi::comm::rdma::dtl_rdma_config_t;
use crate::abi::handle::dtl_comm_t;
use crate::abi::status::dtl_status_t;
use std::ffi::{c_char, c_void};

/// The job's communicator: all ranks that the launcher started. Opened on first use; destroying it
/// does nothing. Equivalent: MPI_COMM_WORLD.
pub const DTL_COMM_WORLD: dtl_comm_t = dtl_comm_t { id: 0x0600_0000_0000_0000 };
/// This process alone. Opened on first use; destroying it does nothing. Equivalent: MPI_COMM_SELF.
pub const DTL_COMM_SELF: dtl_comm_t = dtl_comm_t { id: 0x0600_0010_0000_0000 };

/// As the source of a receive: any rank.
/// dtl: section(ffi/comm/p2p)
pub const DTL_ANY_SOURCE: i32 = -2;
/// As the tag of a receive: any tag.
pub const DTL_ANY_TAG: i32 = -1;
/// As a source or destination: nobody. The operation completes at once and moves nothing; the info
/// of a receive, or of a probe, has source DTL_PROC_NULL, tag DTL_ANY_TAG and size 0.
pub const DTL_PROC_NULL: i32 = -3;
/// As the color of dtl_comm_split: no communicator for this rank.
/// dtl: section(ffi/comm/group)
pub const DTL_UNDEFINED: i32 = -4;
/// What dtl_request_wait_any answers when no request is active.
/// dtl: section(ffi/comm/request)
pub const DTL_NO_INDEX: u64 = u64::MAX;
/// The largest tag; the smallest is 0.
/// dtl: section(ffi/comm/p2p)
pub const DTL_TAG_MAX: i32 = 268_435_455;

/// What a receive tells of its message. Frozen: this struct never grows (arrays of it are passed).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_recv_info_t {
    /// Rank that sent it.
    /// dtl: rank(null)
    pub source: i32,
    /// Its tag.
    pub tag: i32,
    /// Its true size in bytes, also when it was truncated (then 0 over MPI's own messages, if MPI
    /// does not tell).
    pub size_bytes: u64,
    /// DTL_SUCCESS, DTL_ERROR_TRUNCATED or why it failed.
    pub status: dtl_status_t,
    /// 0.
    pub reserved0: u32,
    /// 0.
    pub reserved1: u64,
}

/// Opens a communicator. Start from DTL_COMM_DESC_INIT.
/// dtl: section(ffi/comm/communicator)
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_comm_desc_t {
    /// sizeof(dtl_comm_desc_t), set by DTL_COMM_DESC_INIT.
    pub struct_size: u32,
    /// This process' rank, 0 ... size-1. Read only if size is set.
    /// dtl: rank
    pub rank: i32,
    /// Number of ranks; 0 = rank and size from the launcher's environment.
    pub size: i32,
    /// Must be 0.
    pub reserved: u32,
    /// DTL_COMM_DETERMINISTIC, DTL_COMM_NO_DUP (kind "mpi" only), DTL_COMM_STAGE (kinds "mpi",
    /// "nccl" and "rdma"), or 0.
    /// dtl: flags(DTL_COMM_DETERMINISTIC|DTL_COMM_NO_DUP|DTL_COMM_STAGE)
    pub flags: u64,
    /// "auto", "self", "shm" (one node), "mpi", "hier" (several nodes: "shm" inside each, "mpi"
    /// between them), "nccl" (see `over`), "rdma" (InfiniBand and RoCE, see `rdma`;
    /// docs/how-to/use-rdma.md) or the name of a registered backend with a comm table. NULL =
    /// "auto", which never takes "nccl" and "rdma". ("threads" is opened by dtl_comm_threads.)
    /// "mpi": over whichever MPI the process has or the launcher fits, or DTL_MPI_LIBRARY names; it
    /// is initialised if the program has not, and then finalised by the last dtl_finalize (see
    /// dtl_comm_from_mpi_fint). If no rank has a time limit (timeout_ns, DTL_TIMEOUT) or wants
    /// DTL_COMM_DETERMINISTIC, and MPI gave another level than MPI_THREAD_SERIALIZED, messages and
    /// collectives are MPI's own: the texts of the functions say what MPI does not promise. Else
    /// they are the library's, over MPI_Isend and MPI_Irecv, and everything in this file holds.
    /// dtl_comm_info tells which. Table: docs/explanation/promises.md.
    /// dtl: opt
    pub kind: *const c_char,
    /// Name that the ranks of one job share and no other job on this node uses; NULL = from the
    /// launcher's environment.
    /// dtl: opt
    pub job: *const c_char,
    /// Time limit in nanoseconds of each blocking call on the communicator; 0 = from DTL_TIMEOUT,
    /// else DTL_TIMEOUT_INFINITE. Collectives ask the other ranks where they are before it passes;
    /// if it is below 100 ms, for up to 50 ms more.
    pub timeout_ns: u64,
    /// Kind "mpi": address of the Fortran handle (MPI_Comm_c2f) of an intracommunicator of a
    /// running MPI, whose rank and size are then used if size is 0. NULL: MPI_COMM_WORLD. With any
    /// other kind it must be NULL.
    /// dtl: in opt
    pub mpi_comm: *const i32,
    /// Kind "rdma": its settings. NULL: the environment and the defaults. With any other kind it
    /// must be NULL.
    /// dtl: in opt
    pub rdma: *const dtl_rdma_config_t,
    /// Registered kinds: passed unread to the backend's `open`. With any other kind it must be
    /// NULL.
    /// dtl: opaque opt
    pub config: *mut c_void,
    /// Kind "nccl": the communicator that it is opened over, all of whose ranks call; null = over
    /// one that "auto" opens. Collectives of device memory (which the host cannot reach) of backend
    /// "cuda" are NCCL's then, on the device that is the calling thread's current one when it is
    /// opened; one device for each rank. Everything else goes as over that communicator, which is
    /// neither changed nor needed any longer. rank, size and job are 0 and NULL if it is named;
    /// timeout_ns 0 = its own. Kind "rdma": the communicator over which its ranks meet while it is
    /// opened (see dtl_rdma_config_t); the rest as said. Null for other kinds. What is whose:
    /// docs/how-to/use-nccl.md.
    pub over: dtl_comm_t,
}

/// Flag of dtl_comm_desc_t: collectives give results that are bitwise equal between kinds, runs and
/// timings, also where there are faster ones that are not: over several nodes ("hier") reductions
/// go node by node unless this is set, and over "mpi" they are MPI's own. Every rank gets the
/// identical result with and without it. Also DTL_DETERMINISTIC=1.
pub const DTL_COMM_DETERMINISTIC: u64 = 1;

/// Flag of dtl_comm_desc_t, kind "mpi": messages of the communicator travel on the MPI communicator
/// that is named, not on a duplicate: they match those that the program sends and receives through
/// MPI itself, as MPI_BYTE with the same rank and tag. That communicator must then live longer than
/// ours, and keep an error handler that returns if errors are to be seen here. The library's own
/// messages have a duplicate all the same.
pub const DTL_COMM_NO_DUP: u64 = 2;

/// Flag of dtl_comm_desc_t, kind "nccl": collectives of device memory that NCCL does not have
/// (DTL_ERROR_NOT_SUPPORTED else) are staged through host memory, over the communicator below.
/// dtl_explain tells of the first. All ranks set it or none. Kind "mpi": messages of device memory
/// are staged also where MPI would take the pointers (docs/how-to/send-device-memory.md); each rank
/// as it likes. Kind "rdma": the same where dtl_rdma_config_t.device_memory would have large ones
/// go directly.
pub const DTL_COMM_STAGE: u64 = 4;

/// What `dtl_comm_info` tells. Start from DTL_COMM_INFO_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_comm_info_t {
    /// sizeof(dtl_comm_info_t), set by DTL_COMM_INFO_INIT.
    pub struct_size: u32,
    /// This process' rank.
    /// dtl: rank
    pub rank: i32,
    /// Number of ranks.
    pub size: i32,
    /// Ranks that are gone as far as this process knows: died, or left (destroyed their handle or
    /// finalized). Grows with what calls on the communicator find out; never shrinks.
    pub failed_count: i32,
    /// Time limit in nanoseconds of each blocking call.
    pub timeout_ns: u64,
    /// The kind's name, e.g. "shm"; valid for ever.
    /// dtl: lives(forever)
    pub kind: *const c_char,
    /// How the data moves and why, NUL-terminated; for people.
    pub transport: [c_char; 128],
}

/// Copies an attribute when its communicator is duplicated.
///
/// Runs in the thread of dtl_comm_dup, and may call the library, but must not destroy `comm`. Locks
/// held: none. It may block, but then other ranks wait in dtl_comm_dup.
/// @param value      the attribute on `comm`.
/// @param out_value  what the duplicate gets.
/// @param out_copy   1 = the duplicate gets it, 0 = it does not.
/// @return DTL_SUCCESS, or a status with which dtl_comm_dup then fails.
/// dtl:user opaque
/// dtl:value opaque
/// dtl:out_value out opaque
/// dtl:out_copy out bool
/// dtl: section(ffi/comm/group)
pub type dtl_attribute_copy_fn_t = Option<
    unsafe extern "C" fn(
        comm: dtl_comm_t,
        key: i32,
        user: *mut c_void,
        value: *mut c_void,
        out_value: *mut *mut c_void,
        out_copy: *mut i32,
    ) -> dtl_status_t,
>;

/// Ends an attribute: it was deleted or replaced, or its communicator was destroyed (`comm` is
/// stale then). Runs in the thread that did so; for DTL_COMM_WORLD, DTL_COMM_SELF and whatever else
/// is left, that is the one in the last dtl_finalize. Locks held: none. It may block and call the
/// library (within dtl_finalize, calls answer DTL_ERROR_INVALID_STATE).
/// dtl:user opaque
/// dtl:value opaque
pub type dtl_attribute_delete_fn_t =
    Option<unsafe extern "C" fn(comm: dtl_comm_t, key: i32, user: *mut c_void, value: *mut c_void)>;
