//! Backend tables: communication.
//! dtl: header(dtl_backend.h)

#![allow(
    clippy::type_complexity,
    reason = "shorthand for the slots' types would hide them from C readers"
)]

use crate::abi::devices::device::dtl_mem_info_t;
use crate::abi::status::dtl_status_t;
use crate::abi::word::{dtl_dtype_t, dtl_reduce_op_t};
use std::ffi::{c_char, c_void};

pub use super::vtable_coll::*;

/// Arguments of the slot `open` of a comm table.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_comm_open_t {
    /// sizeof(dtl_comm_open_t) of the library. Read only fields inside it.
    pub struct_size: u32,
    /// Rank that the caller or the launcher assigned, below `size`; -1 = none.
    /// dtl: rank
    pub rank: i32,
    /// Number of ranks that the caller or the launcher specified; -1 = none, and then `rank` is -1
    /// too.
    pub size: i32,
    /// 0.
    pub reserved: u32,
    /// Flags of the dtl_comm_desc_t.
    /// dtl: flags(DTL_COMM_DETERMINISTIC|DTL_COMM_NO_DUP|DTL_COMM_STAGE)
    pub flags: u64,
    /// Name of the job: the same on all ranks and in every open of the job, and different from the
    /// names of all other jobs on this node. It has any length and any characters ('/' too), and is
    /// never NULL. It is empty if neither the caller nor the launcher set one; a transport whose
    /// ranks find each other by the name then refuses more than one rank with
    /// DTL_ERROR_INVALID_ARGUMENT.
    /// dtl: lives(call)
    pub job: *const c_char,
    /// Time limit of the wait for the other ranks, in nanoseconds; at most 30 s.
    pub timeout_ns: u64,
    /// `config` of the dtl_comm_desc_t, which the library does not read.
    /// dtl: opaque
    pub config: *mut c_void,
}

/// Result of a completed operation, as the slot `test` of a comm table reports it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_comm_done_t {
    /// For a completed receive, the rank that sent the message. With DTL_ERROR_RANK_FAILURE, the
    /// rank that failed. Zeroed before the call.
    /// dtl: rank
    pub source: i32,
    /// DTL_SUCCESS, DTL_ERROR_TRUNCATED, DTL_ERROR_CANCELED, DTL_ERROR_RANK_FAILURE or another
    /// failure.
    pub status: dtl_status_t,
    /// For a receive, the match word of the message.
    pub match_word: u64,
    /// For a receive, the true size of the message, even if it was truncated.
    pub size_bytes: u64,
}

/// Maximum size in bytes of the key that the slot `win_create` of a comm table writes.
pub const DTL_WIN_KEY_BYTES: u32 = 256;

/// Flag of dtl_comm_vtable_t: slots are called only inside calls of the program, never by a thread
/// of the library. For transports over a layer that the program also calls and whose calls must be
/// serialised (for example an MPI that provides MPI_THREAD_SERIALIZED). Windows are then served
/// only by calls of the target.
pub const DTL_COMM_ONLY_IN_CALLS: u64 = 1;

/// Communication component: five required slots move bytes.
///
/// The library builds everything else on them: matching of tags, any-tag receives and several
/// communicators over one open table, probing, synchronous sends, cancellation, truncation and
/// collectives.
///
/// Messages. The library packs small messages and its control data into frames of at most 8192
/// bytes. Frames have match word 0, and up to 8 receives from DTL_ANY_SOURCE are always posted for
/// them. A larger message is sent separately, directly between the program's buffers, under a match
/// word of its own. Its receive names the source, has exactly the size of the message, and is
/// posted before the message is sent. So a table handles only: sends to any rank; match words below
/// 2^28; receives of exactly one match word from one rank or from any; messages that fit the
/// buffer. A rank may send to itself (close does so, with 0 bytes).
///
/// Order. Messages from one rank under one match word must be received in the order in which they
/// were sent, by the receives in the order in which they were posted, whether these name the source
/// or not.
///
/// Failures. If the transport detects that a rank died, it completes with DTL_ERROR_RANK_FAILURE
/// every operation that can no longer complete. It completes in the same way the oldest receive
/// from any source that is posted at that time, or all of them, or the next one if none is posted.
/// `source` is the rank that died. Other receives from any source accept messages from the living
/// ranks. Any other failure of a receive from any source, or of the send of a frame, means that the
/// whole transport has failed: it must not access any buffer any more, and all operations end with
/// that status. So do more than 16 failures of such receives for each rank that died. After an
/// invalid output (a number that is not a status, or a match word or source that differs from those
/// of the receive) or DTL_ERROR_NATIVE_BACKEND nothing can be sent or received either. The library
/// then keeps every buffer whose operation `test` has not completed, and never frees its own. Use
/// this status if the transport has failed and cannot stop its accesses.
///
/// Windows. Two groups of slots are for transports that access the memory of other ranks without
/// their help. Each group is complete or absent: transfers (win_create, win_attach, win_destroy,
/// win_put, win_get, win_flush), and atomics (win_atomics, win_accumulate, win_compare_and_swap),
/// which need the transfers. If a group is absent, the library implements it by messages that the
/// target serves. It always implements fences and locks in this way. The slots are used for windows
/// over all ranks of the communicator in their order (including a dtl_comm_dup); windows over some
/// of the ranks use messages. The library checks bounds before a call. `test` completes these
/// operations like any other; of the result, only the status is read. Operations are unordered,
/// except where win_flush and win_accumulate define an order. If an operation needs help from the
/// process of its target, `test` there may give it: the library calls `test` in every waiting call
/// and, while there is none, from a thread of its own (but see DTL_COMM_ONLY_IN_CALLS). Operations
/// on a dead rank end with DTL_ERROR_RANK_FAILURE.
///
/// Collectives. Two slots are for transports that execute collectives themselves (in a switch, or
/// with shared memory): coll_supports and coll_start, both or none, and the same on all ranks. The
/// library calls coll_supports for each collective, and uses its own algorithms for those that the
/// transport does not support. The slots are used on communicators over all ranks in their order,
/// including those of dtl_comm_dup. They are not used for reductions with a user-defined operation
/// or dtype, and for dtl_comm_neighbor_alltoallv. `test` completes a collective like any other
/// operation; of the result, only the status is read, and `source` with DTL_ERROR_RANK_FAILURE.
/// After a time limit, or the death of a rank, the library calls `cancel`, if that is not NULL, and
/// waits up to 5 s until `test` reports the operation as complete. No collective follows on that
/// context.
///
/// Memory. Three slots are for transports that access device memory, or that are faster with
/// registered buffers: mem_supports, mem_register and mem_deregister, all or none. Without them,
/// isend, irecv and the collectives get memory that the host can access. With them, they also get
/// addresses of device memory that mem_register has registered: isend and irecv for payloads that
/// are sent separately (frames are host memory), coll_supports and coll_start with memory_backend
/// set. The transport finds the registration by the address. The library registers an allocation
/// when a message or a collective first uses it, keeps the registration, and deregisters it before
/// the allocation is freed. The peer of a message may use another kind of memory. dtl_comm_register
/// registers buffers of the program with the same slots. The slots of a communicator must not free
/// memory that the program uses in messages.
///
/// Threads. The slots are called from any thread, but by one thread at a time for each communicator
/// of `open`. Only open, close, win_destroy, mem_register and mem_deregister may block. A slot must
/// not throw. It must not call dtl_comm_, dtl_win_ and dtl_request_ functions on any communicator,
/// because such a call may wait for a lock that the caller of the slot holds.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_comm_vtable_t {
    /// sizeof(dtl_comm_vtable_t).
    pub struct_size: u32,
    /// Number of bits of the match word that the transport compares, 28 to 64; 0 = 64. All match
    /// words are below 2^28.
    pub match_bits: u32,
    /// DTL_COMM_ONLY_IN_CALLS or 0.
    /// dtl: flags(DTL_COMM_ONLY_IN_CALLS)
    pub flags: u64,
    /// (required) Opens a communicator, and writes the transport's pointer to it, the rank of this
    /// process and the number of ranks.
    ///
    /// It is collective over the ranks. It is called each time the program opens a communicator of
    /// this kind, and creates an independent one each time, even if `args` are the same. All ranks
    /// of a job open in the same order. The transport counts the communicators of each job name
    /// separately, because processes that join later (dtl_comm_grow) have opened none of the other
    /// jobs. (dup and split do not call it: they share an open communicator.) It may wait for the
    /// other ranks up to args->timeout_ns; then it returns DTL_ERROR_TIMEOUT with a text that names
    /// the missing ranks. A failed open must not leave anything behind. A transport that opens only
    /// once in a process returns DTL_ERROR_NOT_SUPPORTED on every rank.
    ///
    /// Progress during open: this thread calls no other slot while open waits. Immediately before
    /// open, the library calls `test` about 30 times on each open communicator, so that queued
    /// messages can leave if there is room for them. Messages that are still queued after that may
    /// stay queued until open returns. A rank that waits for such a message then reaches its own
    /// open late or never, so that open can time out. A transport prevents this by sending its
    /// queued messages while open waits.
    pub open: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            args: *const dtl_comm_open_t,
            out_comm: *mut *mut c_void,
            out_rank: *mut i32,
            out_size: *mut i32,
        ) -> dtl_status_t,
    >,
    /// (required) Closes a communicator.
    ///
    /// No operation is pending, unless the transport has not completed it within a second; its
    /// buffer then stays valid until the process ends. Every send that `test` reported as done must
    /// still arrive, even at ranks that receive it later. The call is not collective: other ranks
    /// close at other times. They may treat a closed rank as one that died, after they have
    /// received what it sent.
    pub close: Option<unsafe extern "C" fn(self_: *mut c_void, comm: *mut c_void) -> dtl_status_t>,
    /// (required) Starts a send of size_bytes (0 is allowed; `buf` may then be NULL).
    ///
    /// `buf` must not change until the operation is done. *out_op is any number by which the
    /// transport identifies the operation. Sends to one rank under one match word are ordered as
    /// the calls. Transmit as much as possible immediately: to the program a small send is already
    /// complete, and its next call may be much later, or an `open` that waits for ranks that wait
    /// for this message. DTL_ERROR_BUSY means that there is no room now; the library calls again
    /// later. Any other failure is that of the send.
    pub isend: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            comm: *mut c_void,
            buf: *const c_void,
            size_bytes: u64,
            dest: i32,
            match_word: u64,
            out_op: *mut u64,
        ) -> dtl_status_t,
    >,
    /// (required) Starts a receive of at most size_bytes from `source` (a rank or DTL_ANY_SOURCE)
    /// under exactly this match word; `ignore` is 0.
    ///
    /// DTL_ERROR_BUSY means that there is no room now; the library calls again later. If one of the
    /// first receives, which follow `open`, fails otherwise, dtl_comm_open fails on this rank only.
    /// Where such a failure is predictable, `open` must fail on every rank instead.
    pub irecv: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            comm: *mut c_void,
            buf: *mut c_void,
            size_bytes: u64,
            source: i32,
            match_word: u64,
            ignore: u64,
            out_op: *mut u64,
        ) -> dtl_status_t,
    >,
    /// (required) Makes progress on all operations of the communicator and tests one.
    ///
    /// *out_done = 1: the operation is complete, and *out_result is filled. Its number may be used
    /// for another operation. *out_done = 0: it continues. A failed operation is complete, with its
    /// status in the result. If the slot itself returns a status other than DTL_SUCCESS, the test
    /// failed and the operation continues. Any other number in *out_done is treated as such a
    /// failure, with DTL_ERROR_NATIVE_BACKEND.
    pub test: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            comm: *mut c_void,
            op: u64,
            out_done: *mut i32,
            out_result: *mut dtl_comm_done_t,
        ) -> dtl_status_t,
    >,
    /// Requests cancellation of a receive (before close), or of a collective (after a failure). The
    /// operation then completes through `test`: with DTL_ERROR_CANCELED if it was cancelled,
    /// otherwise normally. NULL: a message from this rank to itself completes each receive that is
    /// still posted.
    /// dtl: opt
    pub cancel: Option<
        unsafe extern "C" fn(self_: *mut c_void, comm: *mut c_void, op: u64) -> dtl_status_t,
    >,
    /// (transfers) Makes memory of this rank accessible to the others.
    ///
    /// *out_win is the transport's pointer for this rank's side of a window, not NULL. `key`
    /// receives up to DTL_WIN_KEY_BYTES bytes with which other ranks access the memory,
    /// *out_key_bytes their number. The call is not collective and must not block; the library
    /// distributes the keys. `base` has size_bytes and stays valid until win_destroy. It is any
    /// memory of the program with any alignment; NULL and 0 on a rank that exposes none (it puts
    /// and gets like the others, and nothing accesses it). If the slot fails (for example for this
    /// kind of memory, or because there are too many windows), the window uses messages on all
    /// ranks, and dtl_explain has the text. Equivalents: ibv_reg_mr, ucp_mem_map with
    /// ucp_rkey_pack, fi_mr_reg, MPI_Win_attach.
    /// cbindgen:appended
    /// dtl: opt(win_attach==NULL&&win_destroy==NULL&&win_put==NULL&&win_get==NULL&&win_flush==NULL)
    pub win_create: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            comm: *mut c_void,
            base: *mut c_void,
            size_bytes: u64,
            out_win: *mut *mut c_void,
            key: *mut c_void,
            out_key_bytes: *mut u32,
        ) -> dtl_status_t,
    >,
    /// (transfers) Passes the key of a rank's memory to a window: the bytes that win_create wrote
    /// on that rank, aligned to 8.
    ///
    /// It is called once for each rank of the window (this one too), after all of them have called
    /// win_create and before any other call on the window except win_destroy. Ranks for which it is
    /// not called are not in the window. It must not block. If it fails, the window uses messages
    /// on all ranks. Equivalents: ucp_ep_rkey_unpack; copying address and rkey.
    /// dtl: opt(win_create==NULL&&win_atomics==NULL)
    pub win_attach: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            comm: *mut c_void,
            win: *mut c_void,
            rank: i32,
            key: *const c_void,
            key_bytes: u32,
        ) -> dtl_status_t,
    >,
    /// (transfers) Destroys what win_create created.
    ///
    /// After it returns, no rank changes the memory any more, whatever the other ranks do, and no
    /// buffer of this rank's operations on it is accessed. Incomplete operations never complete,
    /// and their numbers may be reused. Except after a failure, all operations are complete, and
    /// all ranks have reached this call. It is not collective. It may block briefly, but not for
    /// other ranks. Equivalents: ibv_dereg_mr, fi_close, MPI_Win_detach.
    /// dtl: opt(win_create==NULL&&win_atomics==NULL)
    pub win_destroy: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            comm: *mut c_void,
            win: *mut c_void,
        ) -> dtl_status_t,
    >,
    /// (transfers) Starts a copy of size_bytes (at least 1) to the target's memory.
    ///
    /// The destination begins `offset` bytes after the beginning of the target's memory, and lies
    /// inside it. The target may be this rank. *out_op identifies the operation, as in isend. It is
    /// done when `buf`, which does not change until then, is no longer needed; the bytes are at the
    /// target only after a later win_flush. DTL_ERROR_BUSY means that there is no room now; the
    /// library calls again later. Any other failure is that of the operation. Equivalents:
    /// IBV_WR_RDMA_WRITE, ucp_put_nbx, fi_write, MPI_Rput.
    /// dtl: opt(win_create==NULL&&win_atomics==NULL)
    pub win_put: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            comm: *mut c_void,
            win: *mut c_void,
            buf: *const c_void,
            size_bytes: u64,
            target: i32,
            offset: u64,
            out_op: *mut u64,
        ) -> dtl_status_t,
    >,
    /// (transfers) Starts a copy of size_bytes (at least 1) from the target's memory, at `offset`
    /// bytes after its beginning. It is done when the bytes are in `buf`. Target, *out_op and
    /// failures are those of win_put. Equivalents: IBV_WR_RDMA_READ, ucp_get_nbx, fi_read,
    /// MPI_Rget.
    /// dtl: opt(win_create==NULL&&win_atomics==NULL)
    pub win_get: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            comm: *mut c_void,
            win: *mut c_void,
            buf: *mut c_void,
            size_bytes: u64,
            target: i32,
            offset: u64,
            out_op: *mut u64,
        ) -> dtl_status_t,
    >,
    /// (transfers) Starts an operation that is done when all earlier operations of this rank on
    /// this window and target are complete at the target.
    ///
    /// A load by the target itself, and any rank's operation that starts afterwards, then sees
    /// their effects. It fails if one of them has failed unreported. DTL_ERROR_BUSY means that
    /// there is no room now; the library calls again later. Equivalents: a read after the writes,
    /// ucp_ep_flush_nbx, MPI_Win_flush.
    /// dtl: opt(win_create==NULL&&win_atomics==NULL)
    pub win_flush: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            comm: *mut c_void,
            win: *mut c_void,
            target: i32,
            out_op: *mut u64,
        ) -> dtl_status_t,
    >,
    /// (atomics) Reports whether the next two slots support a dtype on this window completely:
    /// *out_yes = 0 or 1.
    ///
    /// Support means each operation of the table at dtl_reduce_op_t, and compare-and-swap if the
    /// dtype is an integer, BYTE or BOOL. An operation that the hardware lacks can be implemented
    /// here by compare-and-swap. The slot is called once for each built-in dtype when the window is
    /// created. If one rank writes 0, the targets apply all operations of that dtype, by messages,
    /// so that the two methods never mix. It must not block. If it fails, the window uses messages
    /// on all ranks.
    /// dtl: opt(win_accumulate==NULL&&win_compare_and_swap==NULL)
    pub win_atomics: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            comm: *mut c_void,
            win: *mut c_void,
            dtype: dtl_dtype_t,
            out_yes: *mut i32,
        ) -> dtl_status_t,
    >,
    /// (atomics) Starts target[i] = target[i] op buf[i] for `count` elements (at least 1) at
    /// `offset` bytes after the beginning of the target's memory.
    ///
    /// The offset need not be a multiple of the element size. The results are those of the
    /// library's reductions (DTL_OP_SUM and the others). `result` is NULL, or receives the previous
    /// values; it does not overlap `buf`. `buf` may be NULL for NO_OP. Each element changes
    /// atomically with respect to all uses of these two slots on it with that dtype, including
    /// those of the target itself. Operations of one rank take place in the order of the calls. The
    /// operation is done when `buf` is no longer needed and `result` is filled. DTL_ERROR_BUSY
    /// means that there is no room now; the library calls again later. Equivalents:
    /// IBV_WR_ATOMIC_FETCH_AND_ADD, ucp_atomic_op_nbx, fi_fetch_atomic, MPI_Rget_accumulate.
    /// dtl: opt(win_atomics==NULL)
    pub win_accumulate: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            comm: *mut c_void,
            win: *mut c_void,
            buf: *const c_void,
            result: *mut c_void,
            count: u64,
            dtype: dtl_dtype_t,
            target: i32,
            offset: u64,
            op: dtl_reduce_op_t,
            out_op: *mut u64,
        ) -> dtl_status_t,
    >,
    /// (atomics) Starts a compare-and-swap of one element: if it equals *expected, *value is
    /// stored. *result receives the previous value. Offset, atomicity, order and failures are those
    /// of win_accumulate. Equivalents: IBV_WR_ATOMIC_CMP_AND_SWP, fi_compare_atomic,
    /// MPI_Compare_and_swap.
    /// dtl: opt(win_atomics==NULL)
    pub win_compare_and_swap: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            comm: *mut c_void,
            win: *mut c_void,
            value: *const c_void,
            expected: *const c_void,
            result: *mut c_void,
            dtype: dtl_dtype_t,
            target: i32,
            offset: u64,
            out_op: *mut u64,
        ) -> dtl_status_t,
    >,
    /// (collectives) Reports whether coll_start executes a collective: *out_yes = 0 or 1.
    ///
    /// The result must be the same on all ranks. Otherwise the collective fails on each of them:
    /// with DTL_ERROR_INVALID_ARGUMENT after about a second, or at the time limit. Use only fields
    /// that are equal on all ranks: collective, context, root, dtype, op, element_bytes,
    /// DTL_COLL_DETERMINISTIC, and `count` unless the collective has counts for each rank. The
    /// kind of memory may differ between ranks. So accept a collective of device memory only if it
    /// is also accepted of host memory. If it is not accepted, the library stages the buffers and
    /// calls the slot again, for host memory. The slot must not block. If it fails, the call of the
    /// program fails with that status.
    /// cbindgen:appended
    /// dtl: opt(coll_start==NULL)
    pub coll_supports: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            comm: *mut c_void,
            args: *const dtl_coll_args_t,
            out_yes: *mut i32,
        ) -> dtl_status_t,
    >,
    /// (collectives) Starts a collective that coll_supports has accepted.
    ///
    /// `args` and the ranges are valid during the call, the memory of the ranges until the
    /// operation is done. Data to send does not change until then. *out_op identifies the
    /// operation, as in isend. Every rank starts it; an operation is done on a rank when its
    /// buffers are no longer needed and its result is there. Results of reductions are those of the
    /// library's operations (DTL_OP_SUM and the others). DTL_ERROR_BUSY means that there is no room
    /// now; the library calls again later. Equivalents: ucc_collective_post, fi_allreduce, SHARP.
    /// dtl: opt(coll_supports==NULL)
    pub coll_start: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            comm: *mut c_void,
            args: *const dtl_coll_args_t,
            out_op: *mut u64,
        ) -> dtl_status_t,
    >,
    /// (memory) Reports how the transport accesses memory: *out_use = DTL_COMM_MEM_STAGED,
    /// DTL_COMM_MEM_ADDRESS or DTL_COMM_MEM_DMABUF.
    ///
    /// `info` describes an allocation that the host cannot access, or a buffer of
    /// dtl_comm_register, which may be host memory: backend "host", kind DTL_MEMORY_HOST. The
    /// backend, the device and the kind of the memory identify the hardware; dtl_device_info has
    /// the NUMA node and the PCI address of the device. Each call must return the same result for
    /// the same memory. The result may differ between ranks. The slot must not block. If the slot
    /// fails, dtl_comm_register fails with that status. Messages in memory that the host cannot
    /// access are then staged, and a warning is logged.
    /// cbindgen:appended
    /// dtl: opt(mem_register==NULL&&mem_deregister==NULL)
    pub mem_supports: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            comm: *mut c_void,
            info: *const dtl_mem_info_t,
            out_use: *mut i32,
        ) -> dtl_status_t,
    >,
    /// (memory) Registers memory that mem_supports has accepted, so that other slots may be called
    /// with addresses inside it.
    ///
    /// The range is info->size_bytes from info->base: a whole allocation, or a buffer of
    /// dtl_comm_register. Ranges of dtl_comm_register may overlap others. `dmabuf` is the file
    /// descriptor of the dma-buf that contains the range at `dmabuf_offset`, if mem_supports
    /// returned DTL_COMM_MEM_DMABUF, otherwise -1. The library closes it after the call. *out_reg
    /// is the transport's pointer for the registration, not NULL. DTL_ERROR_OUT_OF_MEMORY and
    /// DTL_ERROR_LIMIT: no more memory can be registered. The library then deregisters memory that
    /// is not in use and calls again. Any other failure, or nothing left to deregister: as for
    /// mem_supports.
    /// Equivalents: fi_mr_regattr, ucp_mem_map, ibv_reg_mr and ibv_reg_dmabuf_mr, ncclCommRegister.
    /// dtl: opt(mem_supports==NULL)
    pub mem_register: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            comm: *mut c_void,
            info: *const dtl_mem_info_t,
            dmabuf: i32,
            dmabuf_offset: u64,
            out_reg: *mut *mut c_void,
        ) -> dtl_status_t,
    >,
    /// (memory) Ends a registration of mem_register.
    ///
    /// No operation uses the memory, except after a failure, or if the program frees memory that a
    /// message still uses. The memory is still allocated. The library ends the remaining
    /// registrations before `close`. Equivalents: fi_close, ucp_mem_unmap, ibv_dereg_mr,
    /// ncclCommDeregister.
    /// dtl: opt(mem_supports==NULL)
    pub mem_deregister: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            comm: *mut c_void,
            reg: *mut c_void,
        ) -> dtl_status_t,
    >,
}
