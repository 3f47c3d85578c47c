//! MPI functions, resolved by name in the loaded library, with the same C signatures for every MPI
//! implementation.
//!
//! The list at the end of this file generates the function pointers, and C declarations that
//! `tests/mpi_constants.rs` compiles with each mpicc against its mpi.h. Each type in the list is a
//! Rust type of this file, and a type of the same name in that test's C program.
//!
//! Handles are passed as 64-bit words. MPI handles are pointers (Open MPI, standard ABI) or `int`
//! (MPICH family). As an argument an `int` is the low half of a register or stack slot, and the
//! callee does not read the high half. In memory, an `int` is the first four bytes of a word that
//! is zeroed beforehand, because the supported machines are little-endian. So one set of types
//! serves all MPI ABIs.
//!
//! The modules `abi` and `constants` contain the MPI constants. The module `discovery` finds the
//! library.

pub use crate::backend::symbol_table::Function;
use crate::backend::symbol_table::function_table;
pub use crate::sys::compute::callback::Status;
use std::ffi::{c_char, c_int, c_void};

#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!("handles as 64-bit words need a little-endian 64-bit machine");

/// MPI handle: communicator, request, datatype ...
pub type Handle = u64;

/// `int`
pub type Int = c_int;
/// `int *`
pub type IntOut = *mut c_int;
/// `const int *`, an array
pub type Ints = *const c_int;
/// `MPI_Aint`
pub type Aint = isize;
/// `const MPI_Aint *`, an array
pub type Aints = *const isize;
/// `MPI_Count`
pub type Count = i64;
/// `const MPI_Count *`, an array
pub type Counts = *const Count;
/// `MPI_Count *`
pub type CountOut = *mut Count;
/// `const void *`
pub type In = *const c_void;
/// `void *`
pub type Out = *mut c_void;
/// `char *`
pub type TextOut = *mut c_char;
/// `const char *`
pub type Text = *const c_char;
/// `char **`, an array of arguments
pub type Argv = *mut *mut c_char;
/// `char ***`, the argv of main
pub type ArgvOut = *mut *mut *mut c_char;
/// `MPI_Comm`
pub type Comm = Handle;
/// `MPI_Comm *`
pub type CommOut = *mut Handle;
/// `MPI_Group`
pub type Group = Handle;
/// `MPI_Group *`
pub type GroupOut = *mut Handle;
/// `MPI_Datatype`
pub type Datatype = Handle;
/// `MPI_Datatype *`
pub type DatatypeOut = *mut Handle;
/// `const MPI_Datatype *`, an array whose elements have the size of MPI's handles
pub type Datatypes = *const Handle;
/// `MPI_Op`
pub type Op = Handle;
/// `MPI_Op *`
pub type OpOut = *mut Handle;
/// `MPI_Request *`
pub type RequestOut = *mut Handle;
/// `MPI_Message *`
pub type MessageOut = *mut Handle;
/// `MPI_Errhandler`
pub type Errhandler = Handle;
/// `MPI_Info`
pub type Info = Handle;
/// `MPI_Win`
pub type Win = Handle;
/// `MPI_Win *`
pub type WinOut = *mut Handle;
/// `const MPI_Status *`
pub type StatusIn = *const Status;
/// `MPI_Status *`
pub type StatusOut = *mut Status;
/// `MPI_User_function *`, called to reduce, with the arguments in, inout, number of elements and
/// datatype
pub type UserFn = unsafe extern "C" fn(Out, Out, Ints, Datatypes);
/// `MPI_Comm_copy_attr_function *`, called when a communicator with an attribute is duplicated
pub type CopyFn = unsafe extern "C" fn(Comm, Int, Out, Out, Out, IntOut) -> Int;
/// `MPI_Comm_delete_attr_function *`, called when an attribute is deleted, with the arguments
/// communicator, key, value and extra state
pub type DeleteFn = unsafe extern "C" fn(Comm, Int, Out, Out) -> Int;

function_table! {
    required {
        // functions of every message, in one cache line
        MPI_Send(In, Int, Datatype, Int, Int, Comm) -> Int;
        MPI_Recv(Out, Int, Datatype, Int, Int, Comm, StatusOut) -> Int;
        MPI_Isend(In, Int, Datatype, Int, Int, Comm, RequestOut) -> Int;
        MPI_Irecv(Out, Int, Datatype, Int, Int, Comm, RequestOut) -> Int;
        MPI_Test(RequestOut, IntOut, StatusOut) -> Int;
        MPI_Wait(RequestOut, StatusOut) -> Int;

        // initialization, finalization, queries
        MPI_Initialized(IntOut) -> Int;
        MPI_Finalized(IntOut) -> Int;
        MPI_Init_thread(IntOut, ArgvOut, Int, IntOut) -> Int;
        MPI_Finalize() -> Int;
        MPI_Query_thread(IntOut) -> Int;
        MPI_Is_thread_main(IntOut) -> Int;
        MPI_Get_library_version(TextOut, IntOut) -> Int;
        MPI_Error_class(Int, IntOut) -> Int;
        MPI_Error_string(Int, TextOut, IntOut) -> Int;

        // communicators, groups
        MPI_Comm_rank(Comm, IntOut) -> Int;
        MPI_Comm_size(Comm, IntOut) -> Int;
        MPI_Comm_dup(Comm, CommOut) -> Int;
        MPI_Comm_split(Comm, Int, Int, CommOut) -> Int;
        MPI_Comm_create_group(Comm, Group, Int, CommOut) -> Int;
        MPI_Comm_group(Comm, GroupOut) -> Int;
        MPI_Comm_test_inter(Comm, IntOut) -> Int;
        MPI_Comm_free(CommOut) -> Int;
        MPI_Comm_set_errhandler(Comm, Errhandler) -> Int;
        MPI_Comm_get_attr(Comm, Int, Out, IntOut) -> Int;
        MPI_Comm_set_attr(Comm, Int, Out) -> Int;
        MPI_Comm_create_keyval(CopyFn, DeleteFn, IntOut, Out) -> Int;
        MPI_Group_incl(Group, Int, Ints, GroupOut) -> Int;
        MPI_Group_free(GroupOut) -> Int;

        // other messages
        MPI_Ssend(In, Int, Datatype, Int, Int, Comm) -> Int;
        MPI_Issend(In, Int, Datatype, Int, Int, Comm, RequestOut) -> Int;
        MPI_Send_init(In, Int, Datatype, Int, Int, Comm, RequestOut) -> Int;
        MPI_Recv_init(Out, Int, Datatype, Int, Int, Comm, RequestOut) -> Int;
        MPI_Start(RequestOut) -> Int;
        MPI_Iprobe(Int, Int, Comm, IntOut, StatusOut) -> Int;
        MPI_Improbe(Int, Int, Comm, IntOut, MessageOut, StatusOut) -> Int;
        MPI_Imrecv(Out, Int, Datatype, MessageOut, RequestOut) -> Int;
        MPI_Cancel(RequestOut) -> Int;
        MPI_Test_cancelled(StatusIn, IntOut) -> Int;
        MPI_Request_free(RequestOut) -> Int;

        // datatypes, operations
        MPI_Type_contiguous(Int, Datatype, DatatypeOut) -> Int;
        MPI_Type_create_struct(Int, Ints, Aints, Datatypes, DatatypeOut) -> Int;
        MPI_Type_commit(DatatypeOut) -> Int;
        MPI_Type_free(DatatypeOut) -> Int;
        MPI_Op_create(UserFn, Int, OpOut) -> Int;
        MPI_Op_free(OpOut) -> Int;

        // blocking collectives
        MPI_Barrier(Comm) -> Int;
        MPI_Bcast(Out, Int, Datatype, Int, Comm) -> Int;
        MPI_Reduce(In, Out, Int, Datatype, Op, Int, Comm) -> Int;
        MPI_Allreduce(In, Out, Int, Datatype, Op, Comm) -> Int;
        MPI_Gather(In, Int, Datatype, Out, Int, Datatype, Int, Comm) -> Int;
        MPI_Scatter(In, Int, Datatype, Out, Int, Datatype, Int, Comm) -> Int;
        MPI_Allgather(In, Int, Datatype, Out, Int, Datatype, Comm) -> Int;
        MPI_Alltoall(In, Int, Datatype, Out, Int, Datatype, Comm) -> Int;
        MPI_Gatherv(In, Int, Datatype, Out, Ints, Ints, Datatype, Int, Comm) -> Int;
        MPI_Scatterv(In, Ints, Ints, Datatype, Out, Int, Datatype, Int, Comm) -> Int;
        MPI_Allgatherv(In, Int, Datatype, Out, Ints, Ints, Datatype, Comm) -> Int;
        MPI_Alltoallv(In, Ints, Ints, Datatype, Out, Ints, Ints, Datatype, Comm) -> Int;
        MPI_Reduce_scatter(In, Out, Ints, Datatype, Op, Comm) -> Int;
        MPI_Scan(In, Out, Int, Datatype, Op, Comm) -> Int;
        MPI_Exscan(In, Out, Int, Datatype, Op, Comm) -> Int;

        // nonblocking collectives
        MPI_Ibarrier(Comm, RequestOut) -> Int;
        MPI_Ibcast(Out, Int, Datatype, Int, Comm, RequestOut) -> Int;
        MPI_Ireduce(In, Out, Int, Datatype, Op, Int, Comm, RequestOut) -> Int;
        MPI_Iallreduce(In, Out, Int, Datatype, Op, Comm, RequestOut) -> Int;
        MPI_Igather(In, Int, Datatype, Out, Int, Datatype, Int, Comm, RequestOut) -> Int;
        MPI_Iscatter(In, Int, Datatype, Out, Int, Datatype, Int, Comm, RequestOut) -> Int;
        MPI_Iallgather(In, Int, Datatype, Out, Int, Datatype, Comm, RequestOut) -> Int;
        MPI_Ialltoall(In, Int, Datatype, Out, Int, Datatype, Comm, RequestOut) -> Int;
        MPI_Igatherv(In, Int, Datatype, Out, Ints, Ints, Datatype, Int, Comm, RequestOut) -> Int;
        MPI_Iscatterv(In, Ints, Ints, Datatype, Out, Int, Datatype, Int, Comm, RequestOut) -> Int;
        MPI_Iallgatherv(In, Int, Datatype, Out, Ints, Ints, Datatype, Comm, RequestOut) -> Int;
        MPI_Ialltoallv(In, Ints, Ints, Datatype, Out, Ints, Ints, Datatype, Comm, RequestOut)
            -> Int;
        MPI_Ireduce_scatter(In, Out, Ints, Datatype, Op, Comm, RequestOut) -> Int;
        MPI_Iscan(In, Out, Int, Datatype, Op, Comm, RequestOut) -> Int;
        MPI_Iexscan(In, Out, Int, Datatype, Op, Comm, RequestOut) -> Int;

        // windows
        MPI_Put(In, Int, Datatype, Int, Aint, Int, Datatype, Win) -> Int;
        MPI_Get(Out, Int, Datatype, Int, Aint, Int, Datatype, Win) -> Int;
        MPI_Rput(In, Int, Datatype, Int, Aint, Int, Datatype, Win, RequestOut) -> Int;
        MPI_Rget(Out, Int, Datatype, Int, Aint, Int, Datatype, Win, RequestOut) -> Int;
        MPI_Accumulate(In, Int, Datatype, Int, Aint, Int, Datatype, Op, Win) -> Int;
        MPI_Get_accumulate(In, Int, Datatype, Out, Int, Datatype, Int, Aint, Int, Datatype, Op,
            Win) -> Int;
        MPI_Fetch_and_op(In, Out, Datatype, Int, Aint, Op, Win) -> Int;
        MPI_Compare_and_swap(In, In, Out, Datatype, Int, Aint, Win) -> Int;
        MPI_Win_flush(Int, Win) -> Int;
        MPI_Win_flush_all(Win) -> Int;
        MPI_Win_flush_local(Int, Win) -> Int;
        MPI_Win_flush_local_all(Win) -> Int;
        MPI_Win_create(Out, Aint, Int, Info, Comm, WinOut) -> Int;
        MPI_Win_allocate(Aint, Int, Info, Comm, Out, WinOut) -> Int;
        MPI_Win_lock_all(Int, Win) -> Int;
        MPI_Win_unlock_all(Win) -> Int;
        MPI_Win_get_attr(Win, Int, Out, IntOut) -> Int;
        MPI_Win_set_errhandler(Win, Errhandler) -> Int;
        MPI_Win_free(WinOut) -> Int;
    }
    optional {
        // processes
        MPI_Comm_spawn(Text, Argv, Int, Info, Int, Comm, CommOut, IntOut) -> Int;
        MPI_Comm_get_parent(CommOut) -> Int;
        MPI_Intercomm_create(Comm, Int, Comm, Int, Int, CommOut) -> Int;
        MPI_Intercomm_merge(Comm, Int, CommOut) -> Int;

        // Fortran handles, ABI version, sizes
        MPI_Comm_f2c(Int) -> Comm;
        MPI_Comm_fromint(Int) -> Comm;
        MPI_Abi_get_version(IntOut, IntOut) -> Int;
        MPI_Get_elements_x(StatusIn, Datatype, CountOut) -> Int;
        MPI_Get_elements_c(StatusIn, Datatype, CountOut) -> Int;
        // extensions of some MPIs: query for CUDA device memory, writable statuses
        MPIX_Query_cuda_support() -> Int;
        MPI_Status_set_elements_x(StatusOut, Datatype, Count) -> Int;
        MPI_Status_set_elements_c(StatusOut, Datatype, Count) -> Int;

        // large counts
        MPI_Isend_c(In, Count, Datatype, Int, Int, Comm, RequestOut) -> Int;
        MPI_Issend_c(In, Count, Datatype, Int, Int, Comm, RequestOut) -> Int;
        MPI_Irecv_c(Out, Count, Datatype, Int, Int, Comm, RequestOut) -> Int;
        MPI_Send_init_c(In, Count, Datatype, Int, Int, Comm, RequestOut) -> Int;
        MPI_Recv_init_c(Out, Count, Datatype, Int, Int, Comm, RequestOut) -> Int;
        MPI_Imrecv_c(Out, Count, Datatype, MessageOut, RequestOut) -> Int;

        // collectives with large counts
        MPI_Bcast_c(Out, Count, Datatype, Int, Comm) -> Int;
        MPI_Reduce_c(In, Out, Count, Datatype, Op, Int, Comm) -> Int;
        MPI_Allreduce_c(In, Out, Count, Datatype, Op, Comm) -> Int;
        MPI_Gather_c(In, Count, Datatype, Out, Count, Datatype, Int, Comm) -> Int;
        MPI_Scatter_c(In, Count, Datatype, Out, Count, Datatype, Int, Comm) -> Int;
        MPI_Allgather_c(In, Count, Datatype, Out, Count, Datatype, Comm) -> Int;
        MPI_Alltoall_c(In, Count, Datatype, Out, Count, Datatype, Comm) -> Int;
        MPI_Gatherv_c(In, Count, Datatype, Out, Counts, Aints, Datatype, Int, Comm) -> Int;
        MPI_Scatterv_c(In, Counts, Aints, Datatype, Out, Count, Datatype, Int, Comm) -> Int;
        MPI_Allgatherv_c(In, Count, Datatype, Out, Counts, Aints, Datatype, Comm) -> Int;
        MPI_Alltoallv_c(In, Counts, Aints, Datatype, Out, Counts, Aints, Datatype, Comm) -> Int;
        MPI_Reduce_scatter_c(In, Out, Counts, Datatype, Op, Comm) -> Int;
        MPI_Scan_c(In, Out, Count, Datatype, Op, Comm) -> Int;
        MPI_Exscan_c(In, Out, Count, Datatype, Op, Comm) -> Int;
        MPI_Ibcast_c(Out, Count, Datatype, Int, Comm, RequestOut) -> Int;
        MPI_Ireduce_c(In, Out, Count, Datatype, Op, Int, Comm, RequestOut) -> Int;
        MPI_Iallreduce_c(In, Out, Count, Datatype, Op, Comm, RequestOut) -> Int;
        MPI_Igather_c(In, Count, Datatype, Out, Count, Datatype, Int, Comm, RequestOut) -> Int;
        MPI_Iscatter_c(In, Count, Datatype, Out, Count, Datatype, Int, Comm, RequestOut) -> Int;
        MPI_Iallgather_c(In, Count, Datatype, Out, Count, Datatype, Comm, RequestOut) -> Int;
        MPI_Ialltoall_c(In, Count, Datatype, Out, Count, Datatype, Comm, RequestOut) -> Int;
        MPI_Igatherv_c(In, Count, Datatype, Out, Counts, Aints, Datatype, Int, Comm, RequestOut)
            -> Int;
        MPI_Iscatterv_c(In, Counts, Aints, Datatype, Out, Count, Datatype, Int, Comm, RequestOut)
            -> Int;
        MPI_Iallgatherv_c(In, Count, Datatype, Out, Counts, Aints, Datatype, Comm, RequestOut)
            -> Int;
        MPI_Ialltoallv_c(In, Counts, Aints, Datatype, Out, Counts, Aints, Datatype, Comm,
            RequestOut) -> Int;
        MPI_Ireduce_scatter_c(In, Out, Counts, Datatype, Op, Comm, RequestOut) -> Int;
        MPI_Iscan_c(In, Out, Count, Datatype, Op, Comm, RequestOut) -> Int;
        MPI_Iexscan_c(In, Out, Count, Datatype, Op, Comm, RequestOut) -> Int;
    }
}
