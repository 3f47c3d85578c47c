//! User-defined dtypes and reduction operations: create, describe, destroy.

use crate::abi::status::dtl_status_t;
use crate::abi::word::{dtl_dtype_t, dtl_op_fn_t, dtl_reduce_op_t};
use crate::ffi::args::{self, Out};
use crate::ffi::guard::Entry;
use crate::runtime::types;
use crate::sys::memory::buf::Addr;
use std::ffi::{CStr, c_char, c_void};

/// Makes an element type of the program's own: `size_bytes` bytes without a meaning, for every call
/// that takes a dtype. Reduce it with an operation of dtl_op_create, DTL_OP_REPLACE or
/// DTL_OP_NO_OP. Every rank makes its own; numbers need not agree, sizes must.
///
/// @param size_bytes  size of an element, padding included: sizeof. At least 1.
/// @param name        for texts, 1 to 63 bytes of UTF-8; copied, need not be unique.
/// @param out         the dtype, at least 4096; destroy it with dtl_dtype_destroy. dtl_finalize and
///                    dtl_init_after_fork destroy all.
/// @return DTL_ERROR_INVALID_ARGUMENT: size or name. DTL_ERROR_LIMIT: numbers are never used again,
///         and 65536 dtypes were made in this process' life: make them once and keep them.
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

/// Destroys a dtype of dtl_dtype_create. Calls and requests that began with it go on.
///
/// @return DTL_ERROR_INVALID_ARGUMENT: a built-in dtype, or never made. DTL_ERROR_INVALID_HANDLE:
///         destroyed before. Threads: any. Equivalent: MPI_Type_free.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_dtype_destroy(dtype: dtl_dtype_t) -> dtl_status_t {
    Entry("dtl_dtype_destroy").call(|_| types::destroy_dtype(dtype))
}

/// Size of an element of a dtype, built-in or the program's own.
///
/// @param out_size_bytes  size in bytes, padding included.
/// @return DTL_ERROR_INVALID_ARGUMENT: never made. DTL_ERROR_INVALID_HANDLE: destroyed.
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

/// Name of a dtype: as given, or "FLOAT64" for DTL_DTYPE_FLOAT64.
///
/// @param out_name  the text. It stays valid until the process ends; do not free it.
/// @return as dtl_dtype_size. Threads: any. Equivalent: MPI_Type_get_name.
/// dtl:out_name lives(forever)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_dtype_name(
    dtype: dtl_dtype_t,
    out_name: *mut *const c_char,
) -> dtl_status_t {
    Entry("dtl_dtype_name")
        .call(|_| Out::new(out_name, "out_name")?.put(types::dtype_name(dtype).map(CStr::as_ptr)))
}

/// Makes a reduction operation of the program's own. It applies to every dtype, built-in or not:
/// the dtype is passed to the function. Every rank makes its own, of the same function. The numbers
/// may differ between ranks; the flags must agree.
///
/// @param fn     see dtl_op_fn_t; must be associative.
/// @param user   handed to each call; must live until the last collective with the operation is
///               over.
/// @param flags  DTL_OP_COMMUTES, or 0: operands are then taken in the order of ranks.
/// @param name   for texts, 1 to 63 bytes of UTF-8; copied, need not be unique.
/// @param out    the operation, at least 4096; destroy it with dtl_op_destroy. dtl_finalize and
///               dtl_init_after_fork destroy all.
/// @return DTL_ERROR_NULL_POINTER: fn, name or out. DTL_ERROR_INVALID_ARGUMENT: flags or name.
///         DTL_ERROR_LIMIT: numbers are never used again, and 65536 operations were made in this
///         process' life: make them once and keep them.
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

/// Destroys an operation of dtl_op_create. A collective that runs with it goes on, so keep what
/// `user` points to until it is over.
///
/// @return DTL_ERROR_INVALID_ARGUMENT: a built-in operation, or never made.
///         DTL_ERROR_INVALID_HANDLE: destroyed before. Threads: any. Equivalent: MPI_Op_free.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_op_destroy(op: dtl_reduce_op_t) -> dtl_status_t {
    Entry("dtl_op_destroy").call(|_| types::destroy_op(op))
}

/// Name of an operation: as given, or "SUM" for DTL_OP_SUM.
///
/// @param out_name  the text. It stays valid until the process ends; do not free it.
/// @return DTL_ERROR_INVALID_ARGUMENT: never made. DTL_ERROR_INVALID_HANDLE: destroyed.
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
