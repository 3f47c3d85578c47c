//! User-defined dtypes and reduction operations: create, describe, destroy.

use crate::abi::status::dtl_status_t;
use crate::abi::word::{dtl_dtype_t, dtl_op_fn_t, dtl_reduce_op_t};
use crate::ffi::args::{self, Out};
use crate::ffi::guard::Entry;
use crate::runtime::types;
use crate::sys::memory::buf::Addr;
use std::ffi::{CStr, c_char, c_void};

/// Creates a user-defined dtype: `size_bytes` bytes without further meaning, for every call that
/// takes a dtype. It can be reduced with an operation from dtl_op_create, DTL_OP_REPLACE or
/// DTL_OP_NO_OP. Every rank creates its own; the numbers may differ between ranks, the sizes must
/// agree.
///
/// @param size_bytes  Size of an element in bytes with padding (sizeof), at least 1.
/// @param name        Name for texts, 1 to 63 bytes of UTF-8; copied, need not be unique.
/// @param out         The dtype, at least 4096. The caller owns it; destroy it with
///                    dtl_dtype_destroy. dtl_finalize and dtl_init_after_fork destroy all.
/// @return DTL_ERROR_INVALID_ARGUMENT: `size_bytes` or `name` is invalid. DTL_ERROR_LIMIT: this
///         process has created 65536 dtypes. Their numbers are never reused: create dtypes once and
///         keep them.
/// Threads: any. Equivalent: MPI_Type_contiguous of MPI_BYTE and MPI_Type_commit.
/// dtl:out owned(dtl_dtype_destroy)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_dtype_create(
    size_bytes: u64,
    name: *const c_char,
    out: *mut dtl_dtype_t,
) -> dtl_status_t {
    Entry("dtl_dtype_create").call(|_| {
        let out = Out::new(out, "out")?;
        // SAFETY: the caller's contract: NULL or a NUL-terminated text.
        let name = unsafe { args::text(name, "name") }?;
        out.put(types::create_dtype(size_bytes, name))
    })
}

/// Destroys a dtype from dtl_dtype_create. Calls and requests that have started with it continue.
///
/// @return DTL_ERROR_INVALID_ARGUMENT: the dtype is built-in, or was never created.
///         DTL_ERROR_INVALID_HANDLE: it was destroyed before.
/// Threads: any. Equivalent: MPI_Type_free.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_dtype_destroy(dtype: dtl_dtype_t) -> dtl_status_t {
    Entry("dtl_dtype_destroy").call(|_| types::destroy_dtype(dtype))
}

/// Returns the size of an element of a dtype, built-in or user-defined.
///
/// @param out_size_bytes  Size in bytes, with padding.
/// @return DTL_ERROR_INVALID_ARGUMENT: the dtype was never created. DTL_ERROR_INVALID_HANDLE: it
///         was destroyed.
/// Threads: any. Equivalent: MPI_Type_size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_dtype_size(
    dtype: dtl_dtype_t,
    out_size_bytes: *mut u64,
) -> dtl_status_t {
    Entry("dtl_dtype_size").call(|_| {
        Out::new(out_size_bytes, "out_size_bytes")?
            .put(types::element_size(dtype).map(|size| size as u64))
    })
}

/// Returns the name of a dtype: as passed to dtl_dtype_create, or "FLOAT64" for DTL_DTYPE_FLOAT64.
///
/// @param out_name  The text. It stays valid until the process ends; do not free it.
/// @return DTL_ERROR_INVALID_ARGUMENT: the dtype was never created. DTL_ERROR_INVALID_HANDLE: it
///         was destroyed.
/// Threads: any. Equivalent: MPI_Type_get_name.
/// dtl:out_name lives(forever)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_dtype_name(
    dtype: dtl_dtype_t,
    out_name: *mut *const c_char,
) -> dtl_status_t {
    Entry("dtl_dtype_name")
        .call(|_| Out::new(out_name, "out_name")?.put(types::dtype_name(dtype).map(CStr::as_ptr)))
}

/// Creates a user-defined reduction operation. It applies to every dtype, built-in or not: the
/// dtype is passed to the function. Every rank creates its own, with the same function. The numbers
/// may differ between ranks; the flags must agree.
///
/// @param fn     The function, see dtl_op_fn_t; it must be associative.
/// @param user   Pointer that is passed to each call; must stay valid until the last collective
///               with the operation is complete.
/// @param flags  DTL_OP_COMMUTES, or 0: the operands are then combined in the order of ranks.
/// @param name   Name for texts, 1 to 63 bytes of UTF-8; copied, need not be unique.
/// @param out    The operation, at least 4096. The caller owns it; destroy it with dtl_op_destroy.
///               dtl_finalize and dtl_init_after_fork destroy all.
/// @return DTL_ERROR_NULL_POINTER: `fn`, `name` or `out` is NULL. DTL_ERROR_INVALID_ARGUMENT:
///         `flags` or `name` is invalid. DTL_ERROR_LIMIT: this process has created 65536
///         operations. Their numbers are never reused: create operations once and keep them.
/// Threads: any. Equivalent: MPI_Op_create.
/// dtl:flags flags(DTL_OP_COMMUTES)
/// dtl:out owned(dtl_op_destroy)
/// dtl:fn until(last_use)
/// dtl:user opaque opt until(last_use)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_op_create(
    r#fn: dtl_op_fn_t,
    user: *mut c_void,
    flags: u64,
    name: *const c_char,
    out: *mut dtl_reduce_op_t,
) -> dtl_status_t {
    Entry("dtl_op_create").call(|_| {
        let out = Out::new(out, "out")?;
        // SAFETY: the caller's contract: NULL or a NUL-terminated text.
        let name = unsafe { args::text(name, "name") }?;
        out.put(types::create_op(r#fn, Addr::new(user), flags, name))
    })
}

/// Destroys an operation from dtl_op_create. A collective that is in progress with it continues, so
/// `user` must stay valid until it is complete.
///
/// @return DTL_ERROR_INVALID_ARGUMENT: the operation is built-in, or was never created.
///         DTL_ERROR_INVALID_HANDLE: it was destroyed before.
/// Threads: any. Equivalent: MPI_Op_free.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_op_destroy(op: dtl_reduce_op_t) -> dtl_status_t {
    Entry("dtl_op_destroy").call(|_| types::destroy_op(op))
}

/// Returns the name of an operation: as passed to dtl_op_create, or "SUM" for DTL_OP_SUM.
///
/// @param out_name  The text. It stays valid until the process ends; do not free it.
/// @return DTL_ERROR_INVALID_ARGUMENT: the operation was never created. DTL_ERROR_INVALID_HANDLE:
///         it was destroyed.
/// Threads: any.
/// dtl:out_name lives(forever)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_op_name(
    op: dtl_reduce_op_t,
    out_name: *mut *const c_char,
) -> dtl_status_t {
    Entry("dtl_op_name")
        .call(|_| Out::new(out_name, "out_name")?.put(types::op_name(op).map(CStr::as_ptr)))
}
