//! Communicators and requests: constants, descriptions, receive information.
//! dtl: section(ffi/comm/communicator)

use crate::abi::comm::rdma::dtl_rdma_config_t;
use crate::abi::handle::dtl_comm_t;
use crate::abi::status::dtl_status_t;
use std::ffi::{c_char, c_void};

/// Communicator of the job: all ranks that the launcher started. The first call that uses it, even
/// a local one, opens it. That call blocks until all ranks have done so, for at most 30 s, or
/// DTL_TIMEOUT if that is less (see dtl_comm_get_world). Destroying it has no effect.
/// Equivalent: MPI_COMM_WORLD.
pub const DTL_COMM_WORLD: dtl_comm_t = dtl_comm_t { id: 0x0600_0000_0000_0000 };
/// Communicator of this process alone. It is opened at its first use. Destroying it has no effect.
/// Equivalent: MPI_COMM_SELF.
pub const DTL_COMM_SELF: dtl_comm_t = dtl_comm_t { id: 0x0600_0010_0000_0000 };

/// Source of a receive or probe: any rank. Equivalent: MPI_ANY_SOURCE.
/// dtl: section(ffi/comm/p2p)
pub const DTL_ANY_SOURCE: i32 = -2;
/// Tag of a receive or probe: any tag. Equivalent: MPI_ANY_TAG.
pub const DTL_ANY_TAG: i32 = -1;
/// Source or destination that is no rank. The operation completes at once and transfers nothing.
/// The info of a receive or probe then has source DTL_PROC_NULL, tag DTL_ANY_TAG and size 0.
/// Equivalent: MPI_PROC_NULL.
pub const DTL_PROC_NULL: i32 = -3;
/// Color of dtl_comm_split: this rank gets no communicator. Equivalent: MPI_UNDEFINED.
/// dtl: section(ffi/comm/group)
pub const DTL_UNDEFINED: i32 = -4;
/// Index that dtl_request_wait_any returns if no request is active.
/// dtl: section(ffi/comm/request)
pub const DTL_NO_INDEX: u64 = u64::MAX;
/// Largest tag. The smallest is 0.
/// dtl: section(ffi/comm/p2p)
pub const DTL_TAG_MAX: i32 = 268_435_455;

/// Result of a receive or probe. Frozen: this struct never grows, because arrays of it are passed.
/// Equivalent: MPI_Status.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_recv_info_t {
    /// Rank of the sender.
    /// dtl: rank(null)
    pub source: i32,
    /// Tag of the message.
    pub tag: i32,
    /// Size of the whole message in bytes, even if it was truncated. With MPI's own messages it is
    /// 0 after a truncation if MPI does not report the size.
    pub size_bytes: u64,
    /// DTL_SUCCESS, DTL_ERROR_TRUNCATED, or the status with which the receive failed.
    pub status: dtl_status_t,
    /// Always 0.
    pub reserved0: u32,
    /// Always 0.
    pub reserved1: u64,
}

/// Description of a communicator for dtl_comm_open. Start from DTL_COMM_DESC_INIT.
/// dtl: section(ffi/comm/communicator)
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_comm_desc_t {
    /// sizeof(dtl_comm_desc_t), set by DTL_COMM_DESC_INIT.
    pub struct_size: u32,
    /// Rank of this process, 0 to size-1. Read only if size is not 0.
    /// dtl: rank
    pub rank: i32,
    /// Number of ranks. 0: rank and size come from the launcher's environment.
    pub size: i32,
    /// Must be 0.
    pub reserved: u32,
    /// 0, or an OR of DTL_COMM_DETERMINISTIC, DTL_COMM_NO_DUP (kind "mpi" only) and DTL_COMM_STAGE
    /// (kinds "mpi", "nccl" and "rdma", and registered kinds with the slot mem_register).
    /// dtl: flags(DTL_COMM_DETERMINISTIC|DTL_COMM_NO_DUP|DTL_COMM_STAGE)
    pub flags: u64,
    /// Kind: "auto", "self", "shm" (one node), "mpi", "hier" (several nodes: "shm" inside each,
    /// "mpi" between them), "nccl" (see `over`), "rdma" (InfiniBand and RoCE, see `rdma` and
    /// docs/how-to/use-rdma.md) or the name of a registered backend with a comm table. NULL means
    /// "auto", which never selects "nccl" or "rdma". Kind "threads" is opened by dtl_comm_threads.
    ///
    /// Kind "mpi" uses the MPI that the process has loaded, else the one that DTL_MPI_LIBRARY
    /// names, else one that fits the launcher. If the program has not initialised MPI, the library
    /// does, and the last dtl_finalize finalises it (see dtl_comm_from_mpi_fint). Messages and
    /// collectives are MPI's own if no rank has a time limit (timeout_ns, DTL_TIMEOUT) or requests
    /// DTL_COMM_DETERMINISTIC, and MPI provides a thread level other than MPI_THREAD_SERIALIZED.
    /// Functions then document which guarantees MPI does not give. Otherwise the library implements
    /// messages and collectives over MPI_Isend and MPI_Irecv, and all guarantees of this header
    /// hold. dtl_comm_info reports which of the two applies. docs/explanation/promises.md has a
    /// table.
    /// dtl: opt
    pub kind: *const c_char,
    /// Name that all ranks of the job share and that no other job on this node uses. NULL: from the
    /// launcher's environment.
    /// dtl: opt
    pub job: *const c_char,
    /// Time limit of each blocking call on the communicator, in nanoseconds. 0: from DTL_TIMEOUT,
    /// else DTL_TIMEOUT_INFINITE. Shortly before the limit a collective queries the state of the
    /// other ranks; with limits below 100 ms this can add up to 50 ms.
    pub timeout_ns: u64,
    /// Kind "mpi": address of the Fortran handle (MPI_Comm_c2f) of an intracommunicator of an
    /// initialised MPI. If size is 0, rank and size are taken from that communicator. NULL:
    /// MPI_COMM_WORLD. With any other kind it must be NULL.
    /// dtl: in opt
    pub mpi_comm: *const i32,
    /// Kind "rdma": its settings. NULL: the environment and the defaults. With any other kind it
    /// must be NULL.
    /// dtl: in opt
    pub rdma: *const dtl_rdma_config_t,
    /// Registered kinds: pointer that is passed unread to the backend's `open`. With any other kind
    /// it must be NULL.
    /// dtl: opaque opt
    pub config: *mut c_void,
    /// Kinds "nccl" and "rdma": existing communicator to open this one over. All its ranks make the
    /// call. Then rank and size must be 0 and job NULL, and timeout_ns 0 means the time limit of
    /// `over`. The call does not change `over`, which is not needed afterwards. With any other kind
    /// it must be null.
    ///
    /// Kind "nccl": if `over` is null, a communicator of kind "auto" is opened in its place.
    /// Collectives on device memory of backend "cuda" that the host cannot access are performed by
    /// NCCL. They use the device that is current in the calling thread when the communicator is
    /// opened; each rank needs a device of its own. All other operations use that underlying
    /// communicator (docs/how-to/use-nccl.md has a list).
    ///
    /// Kind "rdma": the ranks use `over` to exchange addresses while they open (see
    /// dtl_rdma_config_t.meeting).
    pub over: dtl_comm_t,
}

/// Flag of dtl_comm_desc_t: results of collectives are bitwise equal across kinds, runs and
/// timings, if need be at the cost of speed. Without it, reductions over several nodes ("hier")
/// combine operands node by node, and over "mpi" they are MPI's own. Every rank gets the identical
/// result with and without this flag. DTL_DETERMINISTIC=1 has the same effect.
pub const DTL_COMM_DETERMINISTIC: u64 = 1;

/// Flag of dtl_comm_desc_t, kind "mpi": messages travel on the named MPI communicator, not on a
/// duplicate. They match messages that the program sends and receives through MPI itself, as
/// MPI_BYTE with the same rank and tag. The MPI communicator must outlive this one. It must keep an
/// error handler that returns if errors are to be reported here. The library's internal messages
/// use a duplicate in any case.
pub const DTL_COMM_NO_DUP: u64 = 2;

/// Flag of dtl_comm_desc_t: stages device memory through host memory. Kind "nccl": collectives on
/// device memory that NCCL does not provide are staged over the underlying communicator; without
/// the flag they fail with DTL_ERROR_NOT_SUPPORTED. dtl_explain reports the first one. All ranks
/// must set the flag, or none. Kind "mpi": messages in device memory are staged even if MPI accepts
/// device pointers (docs/how-to/send-device-memory.md). Kind "rdma": large messages are staged even
/// if dtl_rdma_config_t.device_memory selects direct transfer. Registered kinds with the slot
/// mem_register: messages and collectives in device memory are staged. For these three, each rank
/// may choose.
pub const DTL_COMM_STAGE: u64 = 4;

/// Properties of a communicator, filled by dtl_comm_info. Start from DTL_COMM_INFO_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_comm_info_t {
    /// sizeof(dtl_comm_info_t), set by DTL_COMM_INFO_INIT.
    pub struct_size: u32,
    /// Rank of this process.
    /// dtl: rank
    pub rank: i32,
    /// Number of ranks.
    pub size: i32,
    /// Number of ranks that this process has found to have died or left (destroyed their handle or
    /// finalized). Calls on the communicator detect this. The number never decreases.
    pub failed_count: i32,
    /// Time limit of each blocking call, in nanoseconds.
    pub timeout_ns: u64,
    /// Name of the kind, e.g. "shm". Valid forever.
    /// dtl: lives(forever)
    pub kind: *const c_char,
    /// How the data moves and why, NUL-terminated, for humans.
    pub transport: [c_char; 128],
}

/// Copies an attribute when its communicator is duplicated.
///
/// Runs in the thread that calls dtl_comm_dup. It may call the library, but must not destroy
/// `comm`. No lock is held. It may block, but then the other ranks wait in dtl_comm_dup.
///
/// @param comm       Communicator that is duplicated.
/// @param key        Key of the attribute.
/// @param user       Pointer that was passed to dtl_comm_key_create.
/// @param value      Attribute of `comm`.
/// @param out_value  Attribute of the duplicate.
/// @param out_copy   1: the duplicate gets the attribute. 0: it does not.
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

/// Releases an attribute that was deleted or replaced, or that was on a destroyed communicator.
///
/// In the last case `comm` is stale. Runs in the thread that made the call. For DTL_COMM_WORLD,
/// DTL_COMM_SELF and all remaining communicators, that is the thread in the last dtl_finalize. No
/// lock is held. It may block and call the library; within dtl_finalize, calls return
/// DTL_ERROR_INVALID_STATE.
///
/// @param comm   Communicator that had the attribute.
/// @param key    Key of the attribute.
/// @param user   Pointer that was passed to dtl_comm_key_create.
/// @param value  The attribute.
/// dtl:user opaque
/// dtl:value opaque
pub type dtl_attribute_delete_fn_t =
    Option<unsafe extern "C" fn(comm: dtl_comm_t, key: i32, user: *mut c_void, value: *mut c_void)>;
