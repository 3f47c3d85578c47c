//! The functions of MPI, with their parameters.
//!
//! A parameter type below names a Rust type here and a C type in the program of `tests/mpi_constants.rs`, so
//! that one list gives the types of function pointers and the check against mpi.h.

use std::ffi::{c_char, c_int, c_void};

/// `int`
pub type Int = c_int;
/// `double`
pub type Real = f64;
/// `int *`
pub type IntOut = *mut c_int;
/// `const int *`, one per rank or member
pub type Ints = *const c_int;
/// `MPI_Aint`
pub type Aint = isize;
/// `MPI_Aint *`
pub type AintOut = *mut isize;
/// `const MPI_Aint *`, one per rank
pub type Aints = *const isize;
/// `MPI_Count`
pub type Count = i64;
/// `MPI_Count *`
pub type CountOut = *mut i64;
/// `const MPI_Count *`, one per rank
pub type Counts = *const i64;
/// `const void *`
pub type In = *const c_void;
/// `void *`
pub type Out = *mut c_void;
/// `const char *`
pub type Text = *const c_char;
/// `char *`
pub type TextOut = *mut c_char;
/// `char ***`: argv of `MPI_Init`
pub type ArgvOut = *mut *mut *mut c_char;
/// `MPI_Comm`: a communicator. A handle of 4 bytes is passed in the low half, the callee does not look at the
/// other; one that is written to a word of 8 bytes needs that word to be 0 before.
pub type Comm = u64;
/// `MPI_Comm *`
pub type CommOut = *mut u64;
/// `MPI_Group`: a group
pub type Group = u64;
/// `MPI_Group *`
pub type GroupOut = *mut u64;
/// `MPI_Datatype`: a datatype
pub type Datatype = u64;
/// `MPI_Datatype *`
pub type DatatypeOut = *mut u64;
/// `MPI_Op`: an operation
pub type Op = u64;
/// `MPI_Op *`
pub type OpOut = *mut u64;
/// `MPI_Request`: a request
pub type Request = u64;
/// `MPI_Request *`
pub type RequestOut = *mut u64;
/// `MPI_Message`: a matched message
pub type Message = u64;
/// `MPI_Message *`
pub type MessageOut = *mut u64;
/// `MPI_Errhandler`: an error handler
pub type Errhandler = u64;
/// `MPI_Errhandler *`
pub type ErrhandlerOut = *mut u64;
/// `MPI_Info`: an info
pub type Info = u64;
/// `MPI_Info *`
pub type InfoOut = *mut u64;
/// `MPI_Win`: a window
pub type Win = u64;
/// `MPI_Win *`
pub type WinOut = *mut u64;
/// `MPI_Request *`: an array, its elements `handle_size` apart
pub type Requests = *mut c_void;
/// `const MPI_Status *`
pub type Status = *const c_void;
/// `MPI_Status *`: one or an array, its elements `status_size` apart
pub type StatusOut = *mut c_void;
/// `MPI_User_function *`
pub type UserFn = unsafe extern "C" fn(Out, Out, IntOut, DatatypeOut);
/// `MPI_User_function_c *`
pub type UserFnC = unsafe extern "C" fn(Out, Out, CountOut, DatatypeOut);
/// `MPI_Comm_errhandler_function *`. In C it has `...` at its end; x86-64 and aarch64 pass the first two the
/// same.
pub type ErrhandlerFn = unsafe extern "C" fn(CommOut, IntOut);

/// A function of MPI, as C writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// The types of its parameters, between commas; nothing if it has none.
    pub parameters: &'static str,
    /// The type of its result.
    pub result: &'static str,
    /// Whether every MPI since 3.0 has it.
    pub required: bool,
}

/// Gives the list to a macro, as `required { name(types) -> type; … } optional { … }`.
macro_rules! mpi_functions {
    ($callback:ident) => {
        $callback! {
            required {
                // start, end, questions
                MPI_Init(IntOut, ArgvOut) -> Int;
                MPI_Init_thread(IntOut, ArgvOut, Int, IntOut) -> Int;
                MPI_Initialized(IntOut) -> Int;
                MPI_Finalize() -> Int;
                MPI_Finalized(IntOut) -> Int;
                MPI_Query_thread(IntOut) -> Int;
                MPI_Is_thread_main(IntOut) -> Int;
                MPI_Abort(Comm, Int) -> Int;
                MPI_Get_version(IntOut, IntOut) -> Int;
                MPI_Get_library_version(TextOut, IntOut) -> Int;
                MPI_Get_processor_name(TextOut, IntOut) -> Int;
                MPI_Wtime() -> Real;
                MPI_Error_class(Int, IntOut) -> Int;
                MPI_Error_string(Int, TextOut, IntOut) -> Int;
                // communicators and groups
                MPI_Comm_rank(Comm, IntOut) -> Int;
                MPI_Comm_size(Comm, IntOut) -> Int;
                MPI_Comm_dup(Comm, CommOut) -> Int;
                MPI_Comm_idup(Comm, CommOut, RequestOut) -> Int;
                MPI_Comm_split(Comm, Int, Int, CommOut) -> Int;
                MPI_Comm_split_type(Comm, Int, Int, Info, CommOut) -> Int;
                MPI_Comm_create(Comm, Group, CommOut) -> Int;
                MPI_Comm_create_group(Comm, Group, Int, CommOut) -> Int;
                MPI_Comm_free(CommOut) -> Int;
                MPI_Comm_compare(Comm, Comm, IntOut) -> Int;
                MPI_Comm_test_inter(Comm, IntOut) -> Int;
                MPI_Comm_group(Comm, GroupOut) -> Int;
                MPI_Comm_get_attr(Comm, Int, Out, IntOut) -> Int;
                MPI_Comm_get_name(Comm, TextOut, IntOut) -> Int;
                MPI_Comm_set_name(Comm, Text) -> Int;
                MPI_Comm_create_errhandler(ErrhandlerFn, ErrhandlerOut) -> Int;
                MPI_Comm_set_errhandler(Comm, Errhandler) -> Int;
                MPI_Comm_get_errhandler(Comm, ErrhandlerOut) -> Int;
                MPI_Errhandler_free(ErrhandlerOut) -> Int;
                MPI_Group_size(Group, IntOut) -> Int;
                MPI_Group_rank(Group, IntOut) -> Int;
                MPI_Group_incl(Group, Int, Ints, GroupOut) -> Int;
                MPI_Group_translate_ranks(Group, Int, Ints, Group, IntOut) -> Int;
                MPI_Group_free(GroupOut) -> Int;
                // datatypes and operations
                MPI_Type_contiguous(Int, Datatype, DatatypeOut) -> Int;
                MPI_Type_create_resized(Datatype, Aint, Aint, DatatypeOut) -> Int;
                MPI_Type_commit(DatatypeOut) -> Int;
                MPI_Type_free(DatatypeOut) -> Int;
                MPI_Type_size(Datatype, IntOut) -> Int;
                MPI_Type_get_extent(Datatype, AintOut, AintOut) -> Int;
                MPI_Get_count(Status, Datatype, IntOut) -> Int;
                MPI_Get_elements_x(Status, Datatype, CountOut) -> Int;
                MPI_Op_create(UserFn, Int, OpOut) -> Int;
                MPI_Op_free(OpOut) -> Int;
                MPI_Reduce_local(In, Out, Int, Datatype, Op) -> Int;
                // messages
                MPI_Send(In, Int, Datatype, Int, Int, Comm) -> Int;
                MPI_Ssend(In, Int, Datatype, Int, Int, Comm) -> Int;
                MPI_Isend(In, Int, Datatype, Int, Int, Comm, RequestOut) -> Int;
                MPI_Issend(In, Int, Datatype, Int, Int, Comm, RequestOut) -> Int;
                MPI_Send_init(In, Int, Datatype, Int, Int, Comm, RequestOut) -> Int;
                MPI_Ssend_init(In, Int, Datatype, Int, Int, Comm, RequestOut) -> Int;
                MPI_Recv(Out, Int, Datatype, Int, Int, Comm, StatusOut) -> Int;
                MPI_Irecv(Out, Int, Datatype, Int, Int, Comm, RequestOut) -> Int;
                MPI_Recv_init(Out, Int, Datatype, Int, Int, Comm, RequestOut) -> Int;
                MPI_Sendrecv(In, Int, Datatype, Int, Int, Out, Int, Datatype, Int, Int, Comm, StatusOut) -> Int;
                MPI_Probe(Int, Int, Comm, StatusOut) -> Int;
                MPI_Iprobe(Int, Int, Comm, IntOut, StatusOut) -> Int;
                MPI_Mprobe(Int, Int, Comm, MessageOut, StatusOut) -> Int;
                MPI_Improbe(Int, Int, Comm, IntOut, MessageOut, StatusOut) -> Int;
                MPI_Mrecv(Out, Int, Datatype, MessageOut, StatusOut) -> Int;
                MPI_Imrecv(Out, Int, Datatype, MessageOut, RequestOut) -> Int;
                // requests
                MPI_Wait(RequestOut, StatusOut) -> Int;
                MPI_Test(RequestOut, IntOut, StatusOut) -> Int;
                MPI_Waitall(Int, Requests, StatusOut) -> Int;
                MPI_Testall(Int, Requests, IntOut, StatusOut) -> Int;
                MPI_Waitany(Int, Requests, IntOut, StatusOut) -> Int;
                MPI_Testany(Int, Requests, IntOut, IntOut, StatusOut) -> Int;
                MPI_Waitsome(Int, Requests, IntOut, IntOut, StatusOut) -> Int;
                MPI_Testsome(Int, Requests, IntOut, IntOut, StatusOut) -> Int;
                MPI_Start(RequestOut) -> Int;
                MPI_Startall(Int, Requests) -> Int;
                MPI_Request_free(RequestOut) -> Int;
                MPI_Request_get_status(Request, IntOut, StatusOut) -> Int;
                MPI_Cancel(RequestOut) -> Int;
                MPI_Test_cancelled(Status, IntOut) -> Int;
                // collectives, blocking and not
                MPI_Barrier(Comm) -> Int;
                MPI_Bcast(Out, Int, Datatype, Int, Comm) -> Int;
                MPI_Gather(In, Int, Datatype, Out, Int, Datatype, Int, Comm) -> Int;
                MPI_Gatherv(In, Int, Datatype, Out, Ints, Ints, Datatype, Int, Comm) -> Int;
                MPI_Scatter(In, Int, Datatype, Out, Int, Datatype, Int, Comm) -> Int;
                MPI_Scatterv(In, Ints, Ints, Datatype, Out, Int, Datatype, Int, Comm) -> Int;
                MPI_Allgather(In, Int, Datatype, Out, Int, Datatype, Comm) -> Int;
                MPI_Allgatherv(In, Int, Datatype, Out, Ints, Ints, Datatype, Comm) -> Int;
                MPI_Alltoall(In, Int, Datatype, Out, Int, Datatype, Comm) -> Int;
                MPI_Alltoallv(In, Ints, Ints, Datatype, Out, Ints, Ints, Datatype, Comm) -> Int;
                MPI_Reduce(In, Out, Int, Datatype, Op, Int, Comm) -> Int;
                MPI_Allreduce(In, Out, Int, Datatype, Op, Comm) -> Int;
                MPI_Reduce_scatter(In, Out, Ints, Datatype, Op, Comm) -> Int;
                MPI_Reduce_scatter_block(In, Out, Int, Datatype, Op, Comm) -> Int;
                MPI_Scan(In, Out, Int, Datatype, Op, Comm) -> Int;
                MPI_Exscan(In, Out, Int, Datatype, Op, Comm) -> Int;
                MPI_Ibarrier(Comm, RequestOut) -> Int;
                MPI_Ibcast(Out, Int, Datatype, Int, Comm, RequestOut) -> Int;
                MPI_Igather(In, Int, Datatype, Out, Int, Datatype, Int, Comm, RequestOut) -> Int;
                MPI_Igatherv(In, Int, Datatype, Out, Ints, Ints, Datatype, Int, Comm, RequestOut) -> Int;
                MPI_Iscatter(In, Int, Datatype, Out, Int, Datatype, Int, Comm, RequestOut) -> Int;
                MPI_Iscatterv(In, Ints, Ints, Datatype, Out, Int, Datatype, Int, Comm, RequestOut) -> Int;
                MPI_Iallgather(In, Int, Datatype, Out, Int, Datatype, Comm, RequestOut) -> Int;
                MPI_Iallgatherv(In, Int, Datatype, Out, Ints, Ints, Datatype, Comm, RequestOut) -> Int;
                MPI_Ialltoall(In, Int, Datatype, Out, Int, Datatype, Comm, RequestOut) -> Int;
                MPI_Ialltoallv(In, Ints, Ints, Datatype, Out, Ints, Ints, Datatype, Comm, RequestOut) -> Int;
                MPI_Ireduce(In, Out, Int, Datatype, Op, Int, Comm, RequestOut) -> Int;
                MPI_Iallreduce(In, Out, Int, Datatype, Op, Comm, RequestOut) -> Int;
                MPI_Ireduce_scatter(In, Out, Ints, Datatype, Op, Comm, RequestOut) -> Int;
                MPI_Ireduce_scatter_block(In, Out, Int, Datatype, Op, Comm, RequestOut) -> Int;
                MPI_Iscan(In, Out, Int, Datatype, Op, Comm, RequestOut) -> Int;
                MPI_Iexscan(In, Out, Int, Datatype, Op, Comm, RequestOut) -> Int;
                // windows
                MPI_Win_create(Out, Aint, Int, Info, Comm, WinOut) -> Int;
                MPI_Win_allocate(Aint, Int, Info, Comm, Out, WinOut) -> Int;
                MPI_Win_allocate_shared(Aint, Int, Info, Comm, Out, WinOut) -> Int;
                MPI_Win_shared_query(Win, Int, AintOut, IntOut, Out) -> Int;
                MPI_Win_create_dynamic(Info, Comm, WinOut) -> Int;
                MPI_Win_attach(Win, Out, Aint) -> Int;
                MPI_Win_detach(Win, In) -> Int;
                MPI_Win_free(WinOut) -> Int;
                MPI_Win_get_attr(Win, Int, Out, IntOut) -> Int;
                MPI_Win_set_errhandler(Win, Errhandler) -> Int;
                MPI_Win_fence(Int, Win) -> Int;
                MPI_Win_post(Group, Int, Win) -> Int;
                MPI_Win_start(Group, Int, Win) -> Int;
                MPI_Win_complete(Win) -> Int;
                MPI_Win_wait(Win) -> Int;
                MPI_Win_test(Win, IntOut) -> Int;
                MPI_Win_lock(Int, Int, Int, Win) -> Int;
                MPI_Win_lock_all(Int, Win) -> Int;
                MPI_Win_unlock(Int, Win) -> Int;
                MPI_Win_unlock_all(Win) -> Int;
                MPI_Win_flush(Int, Win) -> Int;
                MPI_Win_flush_all(Win) -> Int;
                MPI_Win_flush_local(Int, Win) -> Int;
                MPI_Win_flush_local_all(Win) -> Int;
                MPI_Win_sync(Win) -> Int;
                MPI_Put(In, Int, Datatype, Int, Aint, Int, Datatype, Win) -> Int;
                MPI_Get(Out, Int, Datatype, Int, Aint, Int, Datatype, Win) -> Int;
                MPI_Accumulate(In, Int, Datatype, Int, Aint, Int, Datatype, Op, Win) -> Int;
                MPI_Get_accumulate(In, Int, Datatype, Out, Int, Datatype, Int, Aint, Int, Datatype, Op, Win) -> Int;
                MPI_Fetch_and_op(In, Out, Datatype, Int, Aint, Op, Win) -> Int;
                MPI_Compare_and_swap(In, In, Out, Datatype, Int, Aint, Win) -> Int;
                MPI_Rput(In, Int, Datatype, Int, Aint, Int, Datatype, Win, RequestOut) -> Int;
                MPI_Rget(Out, Int, Datatype, Int, Aint, Int, Datatype, Win, RequestOut) -> Int;
                MPI_Raccumulate(In, Int, Datatype, Int, Aint, Int, Datatype, Op, Win, RequestOut) -> Int;
                MPI_Rget_accumulate(In, Int, Datatype, Out, Int, Datatype, Int, Aint, Int, Datatype, Op, Win, RequestOut) -> Int;
                MPI_Alloc_mem(Aint, Info, Out) -> Int;
                MPI_Free_mem(Out) -> Int;
            }
            optional {
                // handles of Fortran; which interface
                MPI_Comm_f2c(Int) -> Comm;
                MPI_Comm_fromint(Int) -> Comm;
                MPI_Comm_toint(Comm) -> Int;
                MPI_Abi_get_version(IntOut, IntOut) -> Int;
                MPI_Comm_idup_with_info(Comm, Info, CommOut, RequestOut) -> Int;
                // large counts
                MPI_Type_contiguous_c(Count, Datatype, DatatypeOut) -> Int;
                MPI_Reduce_local_c(In, Out, Count, Datatype, Op) -> Int;
                MPI_Send_c(In, Count, Datatype, Int, Int, Comm) -> Int;
                MPI_Ssend_c(In, Count, Datatype, Int, Int, Comm) -> Int;
                MPI_Isend_c(In, Count, Datatype, Int, Int, Comm, RequestOut) -> Int;
                MPI_Issend_c(In, Count, Datatype, Int, Int, Comm, RequestOut) -> Int;
                MPI_Send_init_c(In, Count, Datatype, Int, Int, Comm, RequestOut) -> Int;
                MPI_Ssend_init_c(In, Count, Datatype, Int, Int, Comm, RequestOut) -> Int;
                MPI_Recv_c(Out, Count, Datatype, Int, Int, Comm, StatusOut) -> Int;
                MPI_Irecv_c(Out, Count, Datatype, Int, Int, Comm, RequestOut) -> Int;
                MPI_Recv_init_c(Out, Count, Datatype, Int, Int, Comm, RequestOut) -> Int;
                MPI_Sendrecv_c(In, Count, Datatype, Int, Int, Out, Count, Datatype, Int, Int, Comm, StatusOut) -> Int;
                MPI_Mrecv_c(Out, Count, Datatype, MessageOut, StatusOut) -> Int;
                MPI_Imrecv_c(Out, Count, Datatype, MessageOut, RequestOut) -> Int;
                MPI_Bcast_c(Out, Count, Datatype, Int, Comm) -> Int;
                MPI_Gather_c(In, Count, Datatype, Out, Count, Datatype, Int, Comm) -> Int;
                MPI_Gatherv_c(In, Count, Datatype, Out, Counts, Aints, Datatype, Int, Comm) -> Int;
                MPI_Scatter_c(In, Count, Datatype, Out, Count, Datatype, Int, Comm) -> Int;
                MPI_Scatterv_c(In, Counts, Aints, Datatype, Out, Count, Datatype, Int, Comm) -> Int;
                MPI_Allgather_c(In, Count, Datatype, Out, Count, Datatype, Comm) -> Int;
                MPI_Allgatherv_c(In, Count, Datatype, Out, Counts, Aints, Datatype, Comm) -> Int;
                MPI_Alltoall_c(In, Count, Datatype, Out, Count, Datatype, Comm) -> Int;
                MPI_Alltoallv_c(In, Counts, Aints, Datatype, Out, Counts, Aints, Datatype, Comm) -> Int;
                MPI_Reduce_c(In, Out, Count, Datatype, Op, Int, Comm) -> Int;
                MPI_Allreduce_c(In, Out, Count, Datatype, Op, Comm) -> Int;
                MPI_Reduce_scatter_c(In, Out, Counts, Datatype, Op, Comm) -> Int;
                MPI_Reduce_scatter_block_c(In, Out, Count, Datatype, Op, Comm) -> Int;
                MPI_Scan_c(In, Out, Count, Datatype, Op, Comm) -> Int;
                MPI_Exscan_c(In, Out, Count, Datatype, Op, Comm) -> Int;
                MPI_Ibcast_c(Out, Count, Datatype, Int, Comm, RequestOut) -> Int;
                MPI_Igather_c(In, Count, Datatype, Out, Count, Datatype, Int, Comm, RequestOut) -> Int;
                MPI_Igatherv_c(In, Count, Datatype, Out, Counts, Aints, Datatype, Int, Comm, RequestOut) -> Int;
                MPI_Iscatter_c(In, Count, Datatype, Out, Count, Datatype, Int, Comm, RequestOut) -> Int;
                MPI_Iscatterv_c(In, Counts, Aints, Datatype, Out, Count, Datatype, Int, Comm, RequestOut) -> Int;
                MPI_Iallgather_c(In, Count, Datatype, Out, Count, Datatype, Comm, RequestOut) -> Int;
                MPI_Iallgatherv_c(In, Count, Datatype, Out, Counts, Aints, Datatype, Comm, RequestOut) -> Int;
                MPI_Ialltoall_c(In, Count, Datatype, Out, Count, Datatype, Comm, RequestOut) -> Int;
                MPI_Ialltoallv_c(In, Counts, Aints, Datatype, Out, Counts, Aints, Datatype, Comm, RequestOut) -> Int;
                MPI_Ireduce_c(In, Out, Count, Datatype, Op, Int, Comm, RequestOut) -> Int;
                MPI_Iallreduce_c(In, Out, Count, Datatype, Op, Comm, RequestOut) -> Int;
                MPI_Ireduce_scatter_c(In, Out, Counts, Datatype, Op, Comm, RequestOut) -> Int;
                MPI_Ireduce_scatter_block_c(In, Out, Count, Datatype, Op, Comm, RequestOut) -> Int;
                MPI_Iscan_c(In, Out, Count, Datatype, Op, Comm, RequestOut) -> Int;
                MPI_Iexscan_c(In, Out, Count, Datatype, Op, Comm, RequestOut) -> Int;
                MPI_Get_count_c(Status, Datatype, CountOut) -> Int;
                MPI_Op_create_c(UserFnC, Int, OpOut) -> Int;
                MPI_Type_size_c(Datatype, CountOut) -> Int;
                MPI_Type_get_extent_c(Datatype, CountOut, CountOut) -> Int;
                MPI_Put_c(In, Count, Datatype, Int, Aint, Count, Datatype, Win) -> Int;
                MPI_Get_c(Out, Count, Datatype, Int, Aint, Count, Datatype, Win) -> Int;
                MPI_Accumulate_c(In, Count, Datatype, Int, Aint, Count, Datatype, Op, Win) -> Int;
                MPI_Win_create_c(Out, Aint, Aint, Info, Comm, WinOut) -> Int;
                MPI_Win_allocate_c(Aint, Aint, Info, Comm, Out, WinOut) -> Int;
                // persistent collectives
                MPI_Barrier_init(Comm, Info, RequestOut) -> Int;
                MPI_Bcast_init(Out, Int, Datatype, Int, Comm, Info, RequestOut) -> Int;
                MPI_Gather_init(In, Int, Datatype, Out, Int, Datatype, Int, Comm, Info, RequestOut) -> Int;
                MPI_Gatherv_init(In, Int, Datatype, Out, Ints, Ints, Datatype, Int, Comm, Info, RequestOut) -> Int;
                MPI_Scatter_init(In, Int, Datatype, Out, Int, Datatype, Int, Comm, Info, RequestOut) -> Int;
                MPI_Scatterv_init(In, Ints, Ints, Datatype, Out, Int, Datatype, Int, Comm, Info, RequestOut) -> Int;
                MPI_Allgather_init(In, Int, Datatype, Out, Int, Datatype, Comm, Info, RequestOut) -> Int;
                MPI_Allgatherv_init(In, Int, Datatype, Out, Ints, Ints, Datatype, Comm, Info, RequestOut) -> Int;
                MPI_Alltoall_init(In, Int, Datatype, Out, Int, Datatype, Comm, Info, RequestOut) -> Int;
                MPI_Alltoallv_init(In, Ints, Ints, Datatype, Out, Ints, Ints, Datatype, Comm, Info, RequestOut) -> Int;
                MPI_Reduce_init(In, Out, Int, Datatype, Op, Int, Comm, Info, RequestOut) -> Int;
                MPI_Allreduce_init(In, Out, Int, Datatype, Op, Comm, Info, RequestOut) -> Int;
                MPI_Reduce_scatter_init(In, Out, Ints, Datatype, Op, Comm, Info, RequestOut) -> Int;
                MPI_Reduce_scatter_block_init(In, Out, Int, Datatype, Op, Comm, Info, RequestOut) -> Int;
                MPI_Scan_init(In, Out, Int, Datatype, Op, Comm, Info, RequestOut) -> Int;
                MPI_Exscan_init(In, Out, Int, Datatype, Op, Comm, Info, RequestOut) -> Int;
                MPI_Bcast_init_c(Out, Count, Datatype, Int, Comm, Info, RequestOut) -> Int;
                MPI_Gather_init_c(In, Count, Datatype, Out, Count, Datatype, Int, Comm, Info, RequestOut) -> Int;
                MPI_Gatherv_init_c(In, Count, Datatype, Out, Counts, Aints, Datatype, Int, Comm, Info, RequestOut) -> Int;
                MPI_Scatter_init_c(In, Count, Datatype, Out, Count, Datatype, Int, Comm, Info, RequestOut) -> Int;
                MPI_Scatterv_init_c(In, Counts, Aints, Datatype, Out, Count, Datatype, Int, Comm, Info, RequestOut) -> Int;
                MPI_Allgather_init_c(In, Count, Datatype, Out, Count, Datatype, Comm, Info, RequestOut) -> Int;
                MPI_Allgatherv_init_c(In, Count, Datatype, Out, Counts, Aints, Datatype, Comm, Info, RequestOut) -> Int;
                MPI_Alltoall_init_c(In, Count, Datatype, Out, Count, Datatype, Comm, Info, RequestOut) -> Int;
                MPI_Alltoallv_init_c(In, Counts, Aints, Datatype, Out, Counts, Aints, Datatype, Comm, Info, RequestOut) -> Int;
                MPI_Reduce_init_c(In, Out, Count, Datatype, Op, Int, Comm, Info, RequestOut) -> Int;
                MPI_Allreduce_init_c(In, Out, Count, Datatype, Op, Comm, Info, RequestOut) -> Int;
                MPI_Reduce_scatter_init_c(In, Out, Counts, Datatype, Op, Comm, Info, RequestOut) -> Int;
                MPI_Reduce_scatter_block_init_c(In, Out, Count, Datatype, Op, Comm, Info, RequestOut) -> Int;
                MPI_Scan_init_c(In, Out, Count, Datatype, Op, Comm, Info, RequestOut) -> Int;
                MPI_Exscan_init_c(In, Out, Count, Datatype, Op, Comm, Info, RequestOut) -> Int;
            }
        }
    };
}

macro_rules! describe {
    (required { $($name:ident($($type:ident),*) -> $result:ident;)+ }
     optional { $($maybe:ident($($maybe_type:ident),*) -> $maybe_result:ident;)+ }) => {
        /// Every function of the list.
        pub const FUNCTIONS: &[Function] = &[
            $(Function {
                name: stringify!($name),
                parameters: stringify!($($type),*),
                result: stringify!($result),
                required: true,
            },)+
            $(Function {
                name: stringify!($maybe),
                parameters: stringify!($($maybe_type),*),
                result: stringify!($maybe_result),
                required: false,
            },)+
        ];

        // Every parameter type is a type here, too.
        const _: () = {
            $(let _: Option<unsafe extern "C" fn($($type),*) -> $result> = None;)+
            $(let _: Option<unsafe extern "C" fn($($maybe_type),*) -> $maybe_result> = None;)+
        };
    };
}
mpi_functions!(describe);
