//! Datatypes and reduction operations: the meaning of their numbers, and the valid pairs of a
//! datatype and an operation. Built-in types and operations are in `sys::compute::elements`;
//! user-defined types and operations are stored here in tables of `id_table`, which assign their
//! numbers.

use super::id_table::{self, IdLookup, IdTable};
use crate::abi::word::*;
use crate::error::{Result, fail, failure};
use crate::sys::compute::callback::UserOp;
use crate::sys::compute::elements;
use crate::sys::memory::buf::{Addr, Region};
use std::ffi::{CStr, CString};

/// Function that computes `into = left op right`, element by element.
pub type Kernel = fn(into: Region, left: Region, right: Region);

/// Maximum length of a name in bytes.
const NAME_LIMIT: usize = 63;

static DTYPES: IdTable<Dtype> = IdTable::new(id_table::FIRST);
/// User-defined operations. Their numbers are disjoint from those of dtypes, so that an operation
/// passed as a dtype is rejected, and vice versa.
static OPS: IdTable<Op> = IdTable::new(FIRST_OP);
const FIRST_OP: i32 = 1 << 20;

struct Dtype {
    size: usize,
    name: CString,
}

struct Op {
    call: UserOp,
    commutes: bool,
    name: CString,
}

/// Valid pair of a dtype and an operation, as a copy that outlives the dtype and the operation.
#[derive(Clone, Copy)]
pub struct Reduction {
    /// Datatype: a DTL_DTYPE_ constant or the number of a user-defined datatype.
    pub dtype: dtl_dtype_t,
    /// Reduction operation: a DTL_OP_ constant or a user-defined operation.
    pub op: dtl_reduce_op_t,
    /// Size of an element in bytes.
    pub element: usize,
    /// True if the operation is commutative.
    pub commutes: bool,
    fold: Fold,
}

#[derive(Clone, Copy)]
enum Fold {
    Builtin(Kernel),
    User(UserOp),
}

impl Reduction {
    /// Returns true if the operation may need operands that are aligned to more than 16 bytes. Such
    /// an operation is user-defined, and the alignment of a type divides its size.
    pub fn may_need_alignment(&self) -> bool {
        matches!(self.fold, Fold::User(_)) && self.element % 32 == 0
    }

    /// Computes `into = into op from`, element by element; may overwrite `from` if the operation
    /// does not commute.
    pub fn apply(&self, into: Region, from: Region) {
        match self.fold {
            Fold::Builtin(kernel) => kernel(into, into, from),
            Fold::User(call) if self.commutes => {
                call.apply_to_right(from, into, self.element, self.dtype);
            }
            Fold::User(call) => call.apply(into, from, self.element, self.dtype),
        }
    }

    /// Computes `right = left op right`, element by element; does not change `left`.
    #[inline]
    pub fn apply_to_right(&self, left: Region, right: Region) {
        match self.fold {
            Fold::Builtin(kernel) => kernel(right, left, right),
            Fold::User(call) => call.apply_to_right(left, right, self.element, self.dtype),
        }
    }

    /// Returns the kernel of a built-in operation; `None` for a user-defined operation.
    pub fn kernel(&self) -> Option<Kernel> {
        match self.fold {
            Fold::Builtin(kernel) => Some(kernel),
            Fold::User(_) => None,
        }
    }

    /// Returns true if the operation is user-defined.
    pub fn is_own(&self) -> bool {
        matches!(self.fold, Fold::User(..))
    }
}

impl std::fmt::Debug for Reduction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", op_text(self.op), dtype_text(self.dtype))
    }
}

/// Returns the [`Reduction`] of a built-in dtype and a built-in operation. Returns `None` if either
/// is not built in, or if the operation does not support the dtype.
#[inline]
pub fn builtin(dtype: dtl_dtype_t, op: dtl_reduce_op_t) -> Option<Reduction> {
    let (element, fold) =
        (elements::dtype_size(dtype)?, Fold::Builtin(elements::kernel(dtype, op)?));
    Some(Reduction { dtype, op, element, commutes: elements::commutes(op), fold })
}

/// Returns the [`Reduction`] of a dtype and an operation, or an error if the operation does not
/// support the dtype.
pub fn reduction(dtype: dtl_dtype_t, op: dtl_reduce_op_t) -> Result<Reduction> {
    if let Some(builtin) = builtin(dtype, op) {
        return Ok(builtin);
    }
    let element = element_size(dtype)?;
    let (commutes, fold) = match (elements::op_name(op), elements::kernel_of_bytes(op)) {
        (None, _) => {
            let own = find_op(op)?;
            (own.commutes, Fold::User(own.call))
        }
        (Some(_), Some(kernel)) => (elements::commutes(op), Fold::Builtin(kernel)),
        (Some(name), None) => {
            return fail!(
                DTL_ERROR_TYPE,
                "DTL_OP_{} does not go with {}: see the table at dtl_reduce_op_t, or make an \
                 operation with dtl_op_create",
                name.to_string_lossy(),
                describe(dtype)
            );
        }
    };
    Ok(Reduction { dtype, op, element, commutes, fold })
}

/// Returns the element size of a dtype in bytes.
pub fn element_size(dtype: dtl_dtype_t) -> Result<usize> {
    elements::dtype_size(dtype).map_or_else(|| Ok(find_dtype(dtype)?.size), Ok)
}

/// Returns a human-readable name of a dtype.
pub fn describe(dtype: dtl_dtype_t) -> String {
    match elements::dtype_name(dtype) {
        Some(name) => format!("DTL_DTYPE_{}", name.to_string_lossy()),
        None => match DTYPES.find(dtype) {
            IdLookup::Live(own) => format!("dtype {dtype} (\"{}\")", own.name.to_string_lossy()),
            _ => format!("dtype {dtype}"),
        },
    }
}

fn find_dtype(dtype: dtl_dtype_t) -> Result<&'static Dtype> {
    let instead = "DTL_DTYPE_INT8 to DTL_DTYPE_INT64_INT64, or dtl_dtype_create";
    existing(DTYPES.find(dtype), "dtype", dtype, instead).map_err(|error| match OPS.find(dtype) {
        IdLookup::Live(op) => {
            error.within(&format!("dtype is op {dtype} (\"{}\")", op.name.to_string_lossy()))
        }
        _ => error,
    })
}

fn find_op(op: dtl_reduce_op_t) -> Result<&'static Op> {
    let instead = "DTL_OP_SUM to DTL_OP_NO_OP, or dtl_op_create";
    match (OPS.find(op), DTYPES.find(op)) {
        // Numbers of built-in operations and dtypes overlap: this one may not be meant as a dtype.
        (IdLookup::Never, _) if elements::dtype_name(op).is_some() => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "op {op} is none ({} has this number: are dtype and op exchanged?): use {instead}",
            describe(op)
        ),
        (found, IdLookup::Live(_)) => existing(found, "op", op, instead)
            .map_err(|error| error.within(&format!("op is {}", describe(op)))),
        (found, _) => existing(found, "op", op, instead),
    }
}

fn existing<'a, T>(
    found: IdLookup<'a, T>,
    noun: &str,
    number: i32,
    instead: &str,
) -> Result<&'a T> {
    match found {
        IdLookup::Live(value) => Ok(value),
        IdLookup::Destroyed => {
            fail!(
                DTL_ERROR_INVALID_HANDLE,
                "{noun} {number} was destroyed: make another, its number is not used again"
            )
        }
        IdLookup::Never => {
            fail!(DTL_ERROR_INVALID_ARGUMENT, "{noun} {number} is none: use {instead}")
        }
    }
}

/// Creates a dtype of `size` bytes.
pub fn create_dtype(size: u64, name: &str) -> Result<dtl_dtype_t> {
    let name = checked_name(name)?;
    let size = match isize::try_from(size) {
        Ok(size) if size > 0 => size.unsigned_abs(),
        _ => {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "size_bytes {size} of a dtype: use 1 to {}",
                isize::MAX
            );
        }
    };
    given(DTYPES.add(Dtype { size, name }), "dtypes")
}

/// Creates a user-defined operation that calls `function` with `user`.
pub fn create_op(
    function: dtl_op_fn_t,
    user: Addr,
    flags: u64,
    name: &str,
) -> Result<dtl_reduce_op_t> {
    let Some(call) = UserOp::new(function, user) else {
        return fail!(DTL_ERROR_NULL_POINTER, "fn is NULL: pass the operation's function");
    };
    if flags & !DTL_OP_COMMUTES != 0 {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "flags {flags:#x}: use DTL_OP_COMMUTES or 0");
    }
    let name = checked_name(name)?;
    given(OPS.add(Op { call, commutes: flags & DTL_OP_COMMUTES != 0, name }), "operations")
}

fn checked_name(name: &str) -> Result<CString> {
    match CString::new(name) {
        Ok(text) if (1..=NAME_LIMIT).contains(&name.len()) => Ok(text),
        _ => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "name has {} bytes: use 1 to {NAME_LIMIT}",
            name.len()
        ),
    }
}

fn given(number: Option<i32>, nouns: &str) -> Result<i32> {
    number.ok_or_else(|| {
        failure!(
            DTL_ERROR_LIMIT,
            "this process has made {} {nouns}, no more are possible: make them once and keep them",
            id_table::LIMIT
        )
    })
}

/// Destroys a user-defined dtype. Operations that already use it continue.
pub fn destroy_dtype(dtype: dtl_dtype_t) -> Result<()> {
    if elements::dtype_name(dtype).is_some() {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "{} is built in and stays", describe(dtype));
    }
    existing(DTYPES.destroy(dtype), "dtype", dtype, "one of dtl_dtype_create").map(drop)
}

/// Destroys a user-defined operation. Collectives that already use it continue.
pub fn destroy_op(op: dtl_reduce_op_t) -> Result<()> {
    if let Some(name) = elements::op_name(op) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "DTL_OP_{} is built in and stays",
            name.to_string_lossy()
        );
    }
    existing(OPS.destroy(op), "op", op, "one of dtl_op_create").map(drop)
}

/// Returns the name of a dtype; the string is never freed.
pub fn dtype_name(dtype: dtl_dtype_t) -> Result<&'static CStr> {
    elements::dtype_name(dtype).map_or_else(|| Ok(find_dtype(dtype)?.name.as_c_str()), Ok)
}

/// Returns the name of an operation; the string is never freed.
pub fn op_name(op: dtl_reduce_op_t) -> Result<&'static CStr> {
    elements::op_name(op).map_or_else(|| Ok(find_op(op)?.name.as_c_str()), Ok)
}

/// Invalidates all user-defined dtypes and operations, at finalize and in a forked child.
pub fn destroy_all() {
    DTYPES.destroy_all();
    OPS.destroy_all();
}

// Numbers of user-defined dtypes and operations differ between processes. Ranks that
// compare or report such numbers use portable numbers instead, which are equal on all ranks.
/// Base of the portable numbers of user-defined dtypes. A portable number is equal on all ranks.
/// The portable number of a dtype is this base plus the element size, which is capped so that the
/// sum fits into a signed 24-bit integer.
const DTYPE_OF_SIZE: i32 = 1 << 22;
/// Base of the portable numbers of user-defined operations. A portable number is equal on all
/// ranks. The portable number of an operation is this base, plus 1 if the operation commutes. The
/// base exceeds all nonportable operation numbers.
const OP_OF_FLAGS: i32 = 1 << 24;
const _: () = assert!(FIRST_OP + id_table::LIMIT as i32 <= OP_OF_FLAGS);

/// Returns the portable number of a dtype, which is equal on all ranks.
pub(super) fn portable_dtype(dtype: dtl_dtype_t) -> i32 {
    let size = |own: &Dtype| i32::try_from(own.size).unwrap_or(i32::MAX).min(DTYPE_OF_SIZE - 1);
    DTYPES.ever(dtype).map_or(dtype, |own| DTYPE_OF_SIZE + size(own))
}

/// Returns the portable number of an operation, which is equal on all ranks.
pub(super) fn portable_op(op: dtl_reduce_op_t) -> i32 {
    OPS.ever(op).map_or(op, |own| OP_OF_FLAGS + i32::from(own.commutes))
}

/// Returns a string that identifies a dtype: its name, or its number if the dtype was destroyed.
/// For the portable number of a user-defined dtype ([`portable_dtype`]), the string states the
/// element size.
pub fn dtype_text(dtype: dtl_dtype_t) -> String {
    match dtype.checked_sub(DTYPE_OF_SIZE) {
        Some(size @ 0..) if size == DTYPE_OF_SIZE - 1 => {
            format!("user-defined dtype of {size} bytes or more")
        }
        Some(size @ 0..) => format!("user-defined dtype of {size} bytes"),
        _ => dtype_name(dtype)
            .map_or_else(|_| format!("dtype {dtype}"), |name| name.to_string_lossy().into_owned()),
    }
}

/// Returns a string that describes an operation in reports. `op` is the operation's number or
/// portable number ([`portable_op`]).
pub fn op_text(op: dtl_reduce_op_t) -> String {
    match op.checked_sub(OP_OF_FLAGS) {
        Some(0) => "user-defined operation that does not commute".to_owned(),
        Some(1) => "user-defined operation".to_owned(),
        _ => op_name(op)
            .map_or_else(|_| format!("op {op}"), |name| name.to_string_lossy().into_owned()),
    }
}
