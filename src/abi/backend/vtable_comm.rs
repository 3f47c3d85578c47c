//! Backend tables: communication.
//! dtl: header(dtl_backend.h)

#![allow(
    clippy::type_complexity,
    reason = "shorthand for the slots' types would hide them from C readers"
)]

use crate::abi::status::dtl_status_t;
use crate::abi::word::{dtl_dtype_t, dtl_reduce_op_t};
use std::ffi::{c_char, c_void};

/// Arguments of a comm table's `open`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_comm_open_t {
    /// sizeof(dtl_comm_open_t) of the library; read only fields inside it.
    pub struct_size: u32,
    /// Rank that the caller or launcher names, below size; -1 = none did.
    /// dtl: rank
    pub rank: i32,
    /// Number of ranks that the caller or launcher names; -1 = none did, then rank is -1, too.
    pub size: i32,
    /// 0.
    pub reserved: u32,
    /// Flags of the dtl_comm_desc_t.
    /// dtl: flags(DTL_COMM_DETERMINISTIC|DTL_COMM_NO_DUP|DTL_COMM_STAGE)
    pub flags: u64,
    /// The job's name: the same on all ranks and in every open of the job, and no other job on this
    /// node has it. Any length, any characters ('/', too). Never NULL; empty = neither the caller
    /// nor the launcher names one, so a transport whose ranks meet by it refuses more than one rank
    /// with DTL_ERROR_INVALID_ARGUMENT.
    /// dtl: lives(call)
    pub job: *const c_char,
    /// How long to wait for the other ranks, in nanoseconds; at most 30 s.
    pub timeout_ns: u64,
    /// `config` of the dtl_comm_desc_t, unread.
    /// dtl: opaque
    pub config: *mut c_void,
}

/// What a comm table's `test` tells of a completed operation.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_comm_done_t {
    /// For a completed receive, the rank that sent. With DTL_ERROR_RANK_FAILURE, the rank that
    /// failed. Zeroed before the call.
    /// dtl: rank
    pub source: i32,
    /// DTL_SUCCESS, DTL_ERROR_TRUNCATED, DTL_ERROR_CANCELED, DTL_ERROR_RANK_FAILURE ...
    pub status: dtl_status_t,
    /// A receive: the message's match word.
    pub match_word: u64,
    /// A receive: the message's true size, also when truncated.
    pub size_bytes: u64,
}

/// Most bytes of the key that a comm table's `win_create` gives.
pub const DTL_WIN_KEY_BYTES: u32 = 256;

/// Flag of dtl_comm_vtable_t: the slots are called in calls of the program only, never by a thread
/// of the library's own, which nothing would keep apart from the program's calls of what is below
/// (an MPI that gave MPI_THREAD_SERIALIZED, say). Windows are then served by the target's calls
/// only.
pub const DTL_COMM_ONLY_IN_CALLS: u64 = 1;

/// The comm component: five required slots move bytes. The library makes all the rest of them:
/// matching of tags, any tag and communicators in one table's messages, probing, synchronous sends,
/// withdrawal, truncation, collectives.
///
/// For that it packs small messages and its own control words into frames of at most 8192 bytes,
/// which travel under match word 0 and are received by up to 8 receives from DTL_ANY_SOURCE that
/// are always posted. A larger message travels alone, straight from and to the program's buffers,
/// under a word of its own, to a receive that names its source, has exactly its size and is posted
/// before the message is sent. So a table sees nothing but: sends to any rank, match words below
/// 2^28, receives of exactly one word from one rank or from any, messages that fit. A rank may send
/// to itself (close does so, with no bytes).
///
/// What the slots must keep: two messages of one rank under one word are received in the order
/// sent, by receives in the order posted, whichever of them names its source.
///
/// Failures: a death that the transport notices is DTL_ERROR_RANK_FAILURE on every operation that
/// can no longer complete, and on one or all receives from any source that are posted at that time
/// (if none is, on the next), with `source` set to the rank that died; others take messages of the
/// living. Any other failure of a receive from any source, or of a frame's send, means that the
/// transport is done for: it touches no buffer any more, and all operations end with that status.
/// After an output that cannot be (a number that is no status, another match word or source than
/// the receive's) nothing can be sent or received either, but the library keeps each buffer that
/// `test` has not given back, and never frees its own.
///
/// Windows: two groups of slots for transports that reach other ranks' memory without their help,
/// each whole or absent: transfers (win_create, win_attach, win_destroy, win_put, win_get,
/// win_flush), and atomics (win_atomics, win_accumulate, win_compare_and_swap), which need the
/// transfers. NULL: what is absent is made of messages that the target serves. So are fences and
/// locks in any case. The slots are used for windows of all of the communicator's ranks in their
/// order (those of dtl_comm_dup too); for windows of some of them messages are. Bounds are checked
/// before. An operation is polled by `test`, as any other is, and has a word of the same kind (of
/// its result only the status is read). Operations have no order among themselves, except where
/// win_flush and win_accumulate define one. The work that they need of their target's process may
/// be done by `test` there: the library calls it in every call that waits, and in a thread of its
/// own while none does (but see DTL_COMM_ONLY_IN_CALLS). On a dead rank they end with
/// DTL_ERROR_RANK_FAILURE.
///
/// Thread: any, but one at a time for each communicator that `open` gave. Only open, close and
/// win_destroy may block. A slot must not throw. It must not call dtl_comm_, dtl_win_ and
/// dtl_request_ functions, on any communicator: such a call may wait for a lock that the slot's own
/// caller holds. `test` also makes progress on all operations of its comm.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_comm_vtable_t {
    /// sizeof(dtl_comm_vtable_t).
    pub struct_size: u32,
    /// Bits of the match word that the transport matches, 28 to 64; 0 = 64. All words are below
    /// 2^28.
    pub match_bits: u32,
    /// DTL_COMM_ONLY_IN_CALLS or 0.
    /// dtl: flags(DTL_COMM_ONLY_IN_CALLS)
    pub flags: u64,
    /// (required) Opens the communicator: its own pointer, this process' rank and the number of
    /// ranks. Collective over the ranks, and called as often as the program opens one of this kind:
    /// each is a communicator of its own, though `args` may be the same. All ranks of a job open in
    /// one order. (dup and split do not open: they share one.) May wait, until args->timeout_ns has
    /// passed: then DTL_ERROR_TIMEOUT, ranks are missing; name them. A failed open leaves nothing
    /// behind. While it waits, this thread calls no other slot. Just before, the library calls
    /// `test` some 30 times on each communicator that is open, so messages that were sent on them
    /// and find room can leave. Do not rely on more than that: a message that is still queued then
    /// may stay queued until open returns, and a rank that waits for it reaches its own open late
    /// or never. To be independent of this, send the queued messages while open waits.
    /// DTL_ERROR_NOT_SUPPORTED, on every rank: it opens only once in a process.
    pub open: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            args: *const dtl_comm_open_t,
            out_comm: *mut *mut c_void,
            out_rank: *mut i32,
            out_size: *mut i32,
        ) -> dtl_status_t,
    >,
    /// (required) Closes what open gave. No operation is pending, unless the transport has not
    /// ended them within a second; their buffers then stay valid for ever. What was sent must still
    /// arrive: each send that `test` called done, also at ranks that read it later. Not collective:
    /// others close when they do, and may see a rank that closed as one that died, once they have
    /// what it sent.
    pub close: Option<unsafe extern "C" fn(self_: *mut c_void, comm: *mut c_void) -> dtl_status_t>,
    /// (required) Starts a send of size_bytes (0 allowed; `buf` may then be NULL). `buf` stays
    /// untouched until the operation is done. *out_op is the transport's own word for it. The order
    /// of sends to one rank under one word is the order of the calls. Move at once what there is
    /// room for: to the program a small send is over now, and its next call may be far away, or an
    /// `open` that waits for ranks which wait for this message. DTL_ERROR_BUSY: no room now; the
    /// library calls again later. Any other failure is that of the send.
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
    /// under exactly this match word; `ignore` is 0. DTL_ERROR_BUSY: no room now; the library calls
    /// again later. Any other failure of the first ones, which follow `open`, is that of
    /// dtl_comm_open on this rank only: make `open` fail where it is known before, on every rank.
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
    /// (required) Makes progress and asks after one operation. Done: *out_done = 1, *out_result
    /// filled, the operation is over; its word may be used for another one. A status other than
    /// success means that asking failed and the operation lives on; a failed operation is done with
    /// its status in the result. Any other number than 0 and 1 in *out_done is a failed call too,
    /// with DTL_ERROR_NATIVE_BACKEND.
    pub test: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            comm: *mut c_void,
            op: u64,
            out_done: *mut i32,
            out_result: *mut dtl_comm_done_t,
        ) -> dtl_status_t,
    >,
    /// Tries to withdraw a receive. It then completes through `test`, with DTL_ERROR_CANCELED if it
    /// was withdrawn and as usual if it was too late. Used before close only. NULL: a message from
    /// this rank to itself ends each receive that is still posted.
    /// dtl: opt
    pub cancel: Option<
        unsafe extern "C" fn(self_: *mut c_void, comm: *mut c_void, op: u64) -> dtl_status_t,
    >,
    /// (transfers) Makes memory of this rank reachable for the others: *out_win is the transport's
    /// own pointer for this rank's side of a window, not NULL; `key` gets up to DTL_WIN_KEY_BYTES
    /// bytes with which other ranks find the memory, *out_key_bytes how many. Not collective, must
    /// not block: the library carries the keys. `base` has size_bytes and stays valid until
    /// win_destroy. Any memory of the program's, any alignment; NULL and 0 on a rank that has none
    /// (it puts and gets like the others, nobody reaches it). A failure (not of this memory; no
    /// more windows): messages do it, on all ranks, and dtl_explain has the text. Equivalents:
    /// ibv_reg_mr, ucp_mem_map with ucp_rkey_pack, fi_mr_reg, MPI_Win_attach.
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
    /// (transfers) Tells a window how a rank's memory is found: `key` is what that rank's
    /// win_create gave, the same bytes, aligned to 8. Called once for each rank of the window (this
    /// one too), before anything else but win_destroy, when all of them have made theirs. Ranks
    /// that it is not called for are not in the window. Must not block. A failure: as for
    /// win_create. Equivalents: ucp_ep_rkey_unpack; copying address and rkey.
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
    /// (transfers) Ends what win_create gave. When it returns, nobody changes the memory any more,
    /// whatever other ranks are at, and no buffer of this rank's operations on it is touched; those
    /// that are not over never will be, and their words are free. Usually all are over, and all
    /// ranks have come here; not so after a failure. Not collective; may block for a moment, but
    /// not for other ranks. Equivalents: ibv_dereg_mr, fi_close, MPI_Win_detach.
    /// dtl: opt(win_create==NULL&&win_atomics==NULL)
    pub win_destroy: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            comm: *mut c_void,
            win: *mut c_void,
        ) -> dtl_status_t,
    >,
    /// (transfers) Starts a copy of size_bytes (at least 1) to `offset` bytes behind the beginning
    /// of the target's memory, inside of it; the target may be this rank. *out_op as for isend. It
    /// is done when `buf`, unchanged until then, is needed no longer; there only with a later
    /// win_flush. DTL_ERROR_BUSY: no room now; the library calls again later. Any other failure is
    /// that of the operation. Equivalents: IBV_WR_RDMA_WRITE, ucp_put_nbx, fi_write, MPI_Rput.
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
    /// (transfers) The reverse, else as win_put: done when the bytes are in `buf`. Equivalents:
    /// IBV_WR_RDMA_READ, ucp_get_nbx, fi_read, MPI_Rget.
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
    /// (transfers) Starts an operation that is done when all operations on this window that this
    /// rank started before on that target are done there: a load by the target itself, or any
    /// rank's operation that starts afterwards, finds what they left. It fails if one of them has
    /// failed without having been reported. DTL_ERROR_BUSY as for win_put. Equivalents: a read
    /// behind the writes, ucp_ep_flush_nbx, MPI_Win_flush.
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
    /// (atomics) Whether the next two slots do all of a dtype on this window: each operation of the
    /// table at dtl_reduce_op_t, and compare and swap if it is an integer, BYTE or BOOL. *out_yes =
    /// 0 or 1. Called when the window is made, once for each built-in dtype. If one rank writes 0,
    /// the targets apply all operations of that dtype, by messages, so that the two ways never mix.
    /// An operation that the hardware lacks can be made here of its compare and swap. Must not
    /// block. A failure: as for win_create.
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
    /// (atomics) Starts there[i] = there[i] op buf[i] for `count` elements (at least 1) from
    /// `offset` bytes on, which may be no multiple of their size. The results are those of the
    /// library's reductions (DTL_OP_SUM and its kin). `result`: NULL, or room for what was there
    /// before, not overlapping `buf`; which may be NULL for NO_OP. Each element is changed as a
    /// whole, whoever else uses these two slots on it with that dtype, the target itself included;
    /// those of one rank happen in the order of the calls. Done when `buf` is needed no longer and
    /// `result` is there. DTL_ERROR_BUSY as for win_put. Equivalents: IBV_WR_ATOMIC_FETCH_AND_ADD,
    /// ucp_atomic_op_nbx, fi_fetch_atomic, MPI_Rget_accumulate.
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
    /// (atomics) Starts on one element: if it equals *expected, *value is stored; *result gets what
    /// it was. Else as win_accumulate. Equivalents: IBV_WR_ATOMIC_CMP_AND_SWP, fi_compare_atomic,
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
}
