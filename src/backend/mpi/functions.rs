//! MPI's functions, found by name in a library that was loaded: the same C signatures for every MPI.
//!
//! Handles travel as 64-bit words. MPI's own are pointers (Open MPI, standard binary interface) or
//! `int` (MPICH family): as an argument an `int` is the low half of a register or stack slot that the
//! callee does not look beyond, and in memory, on these little-endian machines, the first four bytes
//! of a word that begins as zero. So one set of types serves all.
//!
//! Not here: constants (`abi`, `constants`), finding the library (`find`).

use crate::error::{Result, fail};
use crate::sys::buf::Addr;
use std::ffi::{CStr, c_char, c_int, c_void};

#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!("handles as 64-bit words need a little-endian 64-bit machine");

/// A handle of MPI's: communicator, request, datatype …
pub type Handle = u64;
/// MPI_Count, MPI_Aint.
pub type Count = i64;

/// Room for an MPI_Status of any family; where its fields lie is in `abi`.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct Status(pub [u8; 48]);

impl Default for Status {
    fn default() -> Self {
        Self::new()
    }
}

impl Status {
    /// All zero.
    pub const fn new() -> Self {
        Status([0; 48])
    }

    /// The `int` at an offset; 0 beyond the end.
    #[inline]
    pub fn int(&self, offset: usize) -> c_int {
        match self.0.get(offset..offset + 4) {
            Some(&[a, b, c, d]) => c_int::from_ne_bytes([a, b, c, d]),
            _ => 0,
        }
    }
}

type Const = *const c_void;
type Mut = *mut c_void;
type Ints = *const c_int;
type Counts = *const Count;
/// What MPI calls to reduce: in, inout, number of elements, datatype.
pub type Reduce = unsafe extern "C" fn(Mut, Mut, *const c_int, *const Handle);
/// The same for numbers of elements beyond an `int`.
pub type ReduceLarge = unsafe extern "C" fn(Mut, Mut, *const Count, *const Handle);
/// Called for an error on a communicator: communicator, code (more arguments may follow).
pub type HandleError = unsafe extern "C" fn(*mut Handle, *mut c_int);
/// Called when an attribute goes away (with its communicator): communicator, key, value, extra.
pub type DeleteAttribute = unsafe extern "C" fn(Handle, c_int, Mut, Mut) -> c_int;
/// Called when a communicator with an attribute is duplicated.
pub type CopyAttribute = unsafe extern "C" fn(Handle, c_int, Mut, Mut, Mut, *mut c_int) -> c_int;

macro_rules! functions {
    (
        required { $($field:ident = $name:literal ($($arg:ty),*);)* }
        optional { $($maybe:ident = $maybe_name:literal ($($maybe_arg:ty),*) -> $maybe_result:ty;)* }
    ) => {
        /// The functions. Those in `Option` are newer than MPI-3.
        #[derive(Clone, Copy)]
        #[allow(missing_docs, reason = "named and specified by the MPI standard")]
        pub struct Functions {
            $(pub $field: unsafe extern "C" fn($($arg),*) -> c_int,)*
            $(pub $maybe: Option<unsafe extern "C" fn($($maybe_arg),*) -> $maybe_result>,)*
        }

        impl Functions {
            /// Finds them all; the first that is missing is named.
            ///
            /// # Safety
            /// `find` gives the functions of one MPI library, under the names of the MPI standard.
            pub unsafe fn resolve(find: &dyn Fn(&CStr) -> Option<Addr>) -> Result<Self> {
                $(let $field = match find($name) {
                    // SAFETY: the function of this name has this signature in the MPI standard.
                    Some(at) => unsafe {
                        std::mem::transmute::<Mut, unsafe extern "C" fn($($arg),*) -> c_int>(at.ptr())
                    },
                    None => return fail!(DTL_ERROR_UNAVAILABLE, "it has no function {}", $name.to_string_lossy()),
                };)*
                $(let $maybe = find($maybe_name).map(|at| {
                    // SAFETY: the function of this name has this signature in the MPI standard.
                    unsafe {
                        std::mem::transmute::<Mut, unsafe extern "C" fn($($maybe_arg),*) -> $maybe_result>(at.ptr())
                    }
                });)*
                Ok(Functions { $($field,)* $($maybe,)* })
            }
        }
    };
}

functions! {
    required {
        initialized = c"MPI_Initialized"(*mut c_int);
        finalized = c"MPI_Finalized"(*mut c_int);
        init_thread = c"MPI_Init_thread"(Mut, Mut, c_int, *mut c_int);
        finalize = c"MPI_Finalize"();
        query_thread = c"MPI_Query_thread"(*mut c_int);
        is_thread_main = c"MPI_Is_thread_main"(*mut c_int);
        get_library_version = c"MPI_Get_library_version"(*mut c_char, *mut c_int);
        get_version = c"MPI_Get_version"(*mut c_int, *mut c_int);
        error_class = c"MPI_Error_class"(c_int, *mut c_int);
        error_string = c"MPI_Error_string"(c_int, *mut c_char, *mut c_int);

        comm_rank = c"MPI_Comm_rank"(Handle, *mut c_int);
        comm_size = c"MPI_Comm_size"(Handle, *mut c_int);
        comm_dup = c"MPI_Comm_dup"(Handle, *mut Handle);
        comm_dup_with_info = c"MPI_Comm_dup_with_info"(Handle, Handle, *mut Handle);
        comm_split = c"MPI_Comm_split"(Handle, c_int, c_int, *mut Handle);
        comm_split_type = c"MPI_Comm_split_type"(Handle, c_int, c_int, Handle, *mut Handle);
        comm_create_group = c"MPI_Comm_create_group"(Handle, Handle, c_int, *mut Handle);
        comm_group = c"MPI_Comm_group"(Handle, *mut Handle);
        comm_test_inter = c"MPI_Comm_test_inter"(Handle, *mut c_int);
        comm_free = c"MPI_Comm_free"(*mut Handle);
        comm_set_errhandler = c"MPI_Comm_set_errhandler"(Handle, Handle);
        comm_create_errhandler = c"MPI_Comm_create_errhandler"(HandleError, *mut Handle);
        comm_get_attr = c"MPI_Comm_get_attr"(Handle, c_int, Mut, *mut c_int);
        comm_set_attr = c"MPI_Comm_set_attr"(Handle, c_int, Mut);
        comm_create_keyval = c"MPI_Comm_create_keyval"(CopyAttribute, DeleteAttribute, *mut c_int, Mut);
        group_incl = c"MPI_Group_incl"(Handle, c_int, Ints, *mut Handle);
        group_free = c"MPI_Group_free"(*mut Handle);

        send = c"MPI_Send"(Const, c_int, Handle, c_int, c_int, Handle);
        ssend = c"MPI_Ssend"(Const, c_int, Handle, c_int, c_int, Handle);
        isend = c"MPI_Isend"(Const, c_int, Handle, c_int, c_int, Handle, *mut Handle);
        issend = c"MPI_Issend"(Const, c_int, Handle, c_int, c_int, Handle, *mut Handle);
        recv = c"MPI_Recv"(Mut, c_int, Handle, c_int, c_int, Handle, *mut Status);
        irecv = c"MPI_Irecv"(Mut, c_int, Handle, c_int, c_int, Handle, *mut Handle);
        iprobe = c"MPI_Iprobe"(c_int, c_int, Handle, *mut c_int, *mut Status);
        improbe = c"MPI_Improbe"(c_int, c_int, Handle, *mut c_int, *mut Handle, *mut Status);
        imrecv = c"MPI_Imrecv"(Mut, c_int, Handle, *mut Handle, *mut Handle);
        test = c"MPI_Test"(*mut Handle, *mut c_int, *mut Status);
        wait = c"MPI_Wait"(*mut Handle, *mut Status);
        cancel = c"MPI_Cancel"(*mut Handle);
        test_cancelled = c"MPI_Test_cancelled"(*const Status, *mut c_int);
        request_free = c"MPI_Request_free"(*mut Handle);
        send_init = c"MPI_Send_init"(Const, c_int, Handle, c_int, c_int, Handle, *mut Handle);
        recv_init = c"MPI_Recv_init"(Mut, c_int, Handle, c_int, c_int, Handle, *mut Handle);
        start = c"MPI_Start"(*mut Handle);

        type_contiguous = c"MPI_Type_contiguous"(c_int, Handle, *mut Handle);
        type_create_struct = c"MPI_Type_create_struct"(c_int, Ints, Counts, *const Handle, *mut Handle);
        type_commit = c"MPI_Type_commit"(*mut Handle);
        type_free = c"MPI_Type_free"(*mut Handle);
        op_create = c"MPI_Op_create"(Reduce, c_int, *mut Handle);
        op_free = c"MPI_Op_free"(*mut Handle);

        barrier = c"MPI_Barrier"(Handle);
        bcast = c"MPI_Bcast"(Mut, c_int, Handle, c_int, Handle);
        reduce = c"MPI_Reduce"(Const, Mut, c_int, Handle, Handle, c_int, Handle);
        allreduce = c"MPI_Allreduce"(Const, Mut, c_int, Handle, Handle, Handle);
        gather = c"MPI_Gather"(Const, c_int, Handle, Mut, c_int, Handle, c_int, Handle);
        scatter = c"MPI_Scatter"(Const, c_int, Handle, Mut, c_int, Handle, c_int, Handle);
        allgather = c"MPI_Allgather"(Const, c_int, Handle, Mut, c_int, Handle, Handle);
        alltoall = c"MPI_Alltoall"(Const, c_int, Handle, Mut, c_int, Handle, Handle);
        gatherv = c"MPI_Gatherv"(Const, c_int, Handle, Mut, Ints, Ints, Handle, c_int, Handle);
        scatterv = c"MPI_Scatterv"(Const, Ints, Ints, Handle, Mut, c_int, Handle, c_int, Handle);
        allgatherv = c"MPI_Allgatherv"(Const, c_int, Handle, Mut, Ints, Ints, Handle, Handle);
        alltoallv = c"MPI_Alltoallv"(Const, Ints, Ints, Handle, Mut, Ints, Ints, Handle, Handle);
        reduce_scatter = c"MPI_Reduce_scatter"(Const, Mut, Ints, Handle, Handle, Handle);
        reduce_scatter_block = c"MPI_Reduce_scatter_block"(Const, Mut, c_int, Handle, Handle, Handle);
        scan = c"MPI_Scan"(Const, Mut, c_int, Handle, Handle, Handle);
        exscan = c"MPI_Exscan"(Const, Mut, c_int, Handle, Handle, Handle);

        ibarrier = c"MPI_Ibarrier"(Handle, *mut Handle);
        ibcast = c"MPI_Ibcast"(Mut, c_int, Handle, c_int, Handle, *mut Handle);
        ireduce = c"MPI_Ireduce"(Const, Mut, c_int, Handle, Handle, c_int, Handle, *mut Handle);
        iallreduce = c"MPI_Iallreduce"(Const, Mut, c_int, Handle, Handle, Handle, *mut Handle);
        igather = c"MPI_Igather"(Const, c_int, Handle, Mut, c_int, Handle, c_int, Handle, *mut Handle);
        iscatter = c"MPI_Iscatter"(Const, c_int, Handle, Mut, c_int, Handle, c_int, Handle, *mut Handle);
        iallgather = c"MPI_Iallgather"(Const, c_int, Handle, Mut, c_int, Handle, Handle, *mut Handle);
        ialltoall = c"MPI_Ialltoall"(Const, c_int, Handle, Mut, c_int, Handle, Handle, *mut Handle);
        igatherv = c"MPI_Igatherv"(Const, c_int, Handle, Mut, Ints, Ints, Handle, c_int, Handle, *mut Handle);
        iscatterv = c"MPI_Iscatterv"(Const, Ints, Ints, Handle, Mut, c_int, Handle, c_int, Handle, *mut Handle);
        iallgatherv = c"MPI_Iallgatherv"(Const, c_int, Handle, Mut, Ints, Ints, Handle, Handle, *mut Handle);
        ialltoallv = c"MPI_Ialltoallv"(Const, Ints, Ints, Handle, Mut, Ints, Ints, Handle, Handle, *mut Handle);
        ireduce_scatter = c"MPI_Ireduce_scatter"(Const, Mut, Ints, Handle, Handle, Handle, *mut Handle);
        ireduce_scatter_block = c"MPI_Ireduce_scatter_block"(Const, Mut, c_int, Handle, Handle, Handle, *mut Handle);
        iscan = c"MPI_Iscan"(Const, Mut, c_int, Handle, Handle, Handle, *mut Handle);
        iexscan = c"MPI_Iexscan"(Const, Mut, c_int, Handle, Handle, Handle, *mut Handle);
    }
    optional {
        comm_f2c = c"MPI_Comm_f2c"(c_int) -> Handle;
        comm_fromint = c"MPI_Comm_fromint"(c_int) -> Handle;
        abi_get_version = c"MPI_Abi_get_version"(*mut c_int, *mut c_int) -> c_int;
        get_elements_x = c"MPI_Get_elements_x"(*const Status, Handle, *mut Count) -> c_int;
        get_elements_c = c"MPI_Get_elements_c"(*const Status, Handle, *mut Count) -> c_int;
        send_c = c"MPI_Send_c"(Const, Count, Handle, c_int, c_int, Handle) -> c_int;
        ssend_c = c"MPI_Ssend_c"(Const, Count, Handle, c_int, c_int, Handle) -> c_int;
        isend_c = c"MPI_Isend_c"(Const, Count, Handle, c_int, c_int, Handle, *mut Handle) -> c_int;
        issend_c = c"MPI_Issend_c"(Const, Count, Handle, c_int, c_int, Handle, *mut Handle) -> c_int;
        recv_c = c"MPI_Recv_c"(Mut, Count, Handle, c_int, c_int, Handle, *mut Status) -> c_int;
        irecv_c = c"MPI_Irecv_c"(Mut, Count, Handle, c_int, c_int, Handle, *mut Handle) -> c_int;
        imrecv_c = c"MPI_Imrecv_c"(Mut, Count, Handle, *mut Handle, *mut Handle) -> c_int;
    }
}
