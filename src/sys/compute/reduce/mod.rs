//! Element-wise reduction of raw buffers: `into[i] = into[i] op from[i]` (or `from[i] op into[i]`,
//! whose bits differ for zeros and NaNs) for every built-in pair of dtype and operation, and the
//! call of an operation that the program provides. Buffers need not be aligned. The two may be
//! identical, but must not overlap otherwise.
//!
//! `ops` defines the operations, on `arithmetic` (integers, floats), `half` (16-bit floats) and
//! `pair_types` (complex numbers, pairs). `simd` compiles them into loops, one for each instruction
//! set. `user` calls C. The dtypes that a program creates are in `runtime::types`.

mod arithmetic;
mod half;
mod ops;
mod pair_types;
mod simd;
#[cfg(test)]
mod tests;

use crate::abi::word::*;
use crate::sys::memory::buf::Region;
use half::{Bf16, Half};
use ops::*;
use pair_types::{Complex, Pair};
pub use simd::Level;
use simd::kernel_of;
use std::array;
use std::ffi::CStr;
use std::sync::LazyLock;

/// Function that folds `from` into `into` over the elements that both have.
pub type Kernel = fn(into: Region, from: Region);

/// Name (without its prefix) and size in bytes of the built-in dtypes, by number.
const DTYPES: [(&CStr, usize); 23] = [
    (c"INT8", 1),
    (c"INT16", 2),
    (c"INT32", 4),
    (c"INT64", 8),
    (c"UINT8", 1),
    (c"UINT16", 2),
    (c"UINT32", 4),
    (c"UINT64", 8),
    (c"FLOAT32", 4),
    (c"FLOAT64", 8),
    (c"BYTE", 1),
    (c"BOOL", 1),
    (c"FLOAT16", 2),
    (c"BFLOAT16", 2),
    (c"COMPLEX64", 8),
    (c"COMPLEX128", 16),
    (c"FLOAT32_INT32", 8),
    (c"FLOAT64_INT32", 16),
    (c"INT32_INT32", 8),
    (c"INT64_INT32", 16),
    (c"INT16_INT32", 8),
    (c"FLOAT64_INT64", 16),
    (c"INT64_INT64", 16),
];

/// Names of the built-in operations, by number.
const OP_NAMES: [&CStr; 14] = [
    c"SUM", c"PROD", c"MIN", c"MAX", c"LAND", c"LOR", c"BAND", c"BOR", c"LXOR", c"BXOR", c"MINLOC",
    c"MAXLOC", c"REPLACE", c"NO_OP",
];

/// Returns the size of a built-in dtype in bytes.
pub fn dtype_size(dtype: dtl_dtype_t) -> Option<usize> {
    Some(DTYPES.get(usize::try_from(dtype).ok()?)?.1)
}

/// Returns the name of a built-in dtype's constant without its prefix.
pub fn dtype_name(dtype: dtl_dtype_t) -> Option<&'static CStr> {
    Some(DTYPES.get(usize::try_from(dtype).ok()?)?.0)
}

/// Returns the name of a built-in operation's constant without its prefix.
pub fn op_name(op: dtl_reduce_op_t) -> Option<&'static CStr> {
    OP_NAMES.get(usize::try_from(op).ok()?).copied()
}

/// Returns true if a built-in operation is commutative.
pub fn commutes(op: dtl_reduce_op_t) -> bool {
    ![DTL_OP_REPLACE, DTL_OP_NO_OP].contains(&op)
}

/// Operand that the result replaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperandSide {
    /// Left operand: `into = into op from`.
    Left,
    /// Right operand: `into = from op into`.
    Right,
}

/// Kernels of one pair, one for each side.
#[derive(Clone, Copy)]
pub struct Kernels {
    /// Kernel of `into = into op from`.
    pub to_left: Kernel,
    /// Kernel of `into = from op into`.
    pub to_right: Kernel,
}

impl Kernels {
    fn of(kernel: impl Fn(OperandSide) -> Option<Kernel>) -> Option<Self> {
        Some(Kernels { to_left: kernel(OperandSide::Left)?, to_right: kernel(OperandSide::Right)? })
    }
}

/// Returns the fastest kernels of a built-in pair here; `None` if the dtype does not support `op`.
pub fn kernels(dtype: dtl_dtype_t, op: dtl_reduce_op_t) -> Option<&'static Kernels> {
    const OPS: usize = OP_NAMES.len();
    static ALL: LazyLock<[Option<Kernels>; DTYPES.len() * OPS]> = LazyLock::new(|| {
        array::from_fn(|pair| {
            let (dtype, op) = ((pair / OPS) as dtl_dtype_t, (pair % OPS) as dtl_reduce_op_t);
            Kernels::of(|side| kernel_at(Level::best(), side, dtype, op))
        })
    });
    let (dtype, op) = (usize::try_from(dtype).ok()?, usize::try_from(op).ok()?);
    if op < OPS { ALL.get(dtype.checked_mul(OPS)? + op)?.as_ref() } else { None }
}

/// Returns the kernels of an operation that is defined for all dtypes, whatever their elements are.
pub fn kernels_of_bytes(op: dtl_reduce_op_t) -> Option<&'static Kernels> {
    kernels(DTL_DTYPE_BYTE, op).filter(|_| kernel_of_bytes(OperandSide::Left, op).is_some())
}

fn kernel_of_bytes(side: OperandSide, op: dtl_reduce_op_t) -> Option<Kernel> {
    match (op, side) {
        (DTL_OP_REPLACE, OperandSide::Left) | (DTL_OP_NO_OP, OperandSide::Right) => {
            Some(|into, from| into.copy_from(from))
        }
        (DTL_OP_NO_OP, OperandSide::Left) | (DTL_OP_REPLACE, OperandSide::Right) => Some(|_, _| {}),
        _ => None,
    }
}

/// Returns the kernel of a built-in pair in one instruction set. All sets give equal bits.
pub fn kernel_at(
    level: Level,
    side: OperandSide,
    dtype: dtl_dtype_t,
    op: dtl_reduce_op_t,
) -> Option<Kernel> {
    dtype_size(dtype)?;
    let how = (level, side);
    kernel_of_bytes(side, op).or_else(|| match dtype {
        DTL_DTYPE_INT8 => integer::<i8>(how, op),
        DTL_DTYPE_INT16 => integer::<i16>(how, op),
        DTL_DTYPE_INT32 => integer::<i32>(how, op),
        DTL_DTYPE_INT64 => integer::<i64>(how, op),
        DTL_DTYPE_UINT8 => integer::<u8>(how, op),
        DTL_DTYPE_UINT16 => integer::<u16>(how, op),
        DTL_DTYPE_UINT32 => integer::<u32>(how, op),
        DTL_DTYPE_UINT64 => integer::<u64>(how, op),
        DTL_DTYPE_FLOAT32 => ordered::<f32>(how, op),
        DTL_DTYPE_FLOAT64 => ordered::<f64>(how, op),
        DTL_DTYPE_BYTE => bitwise(how, op),
        DTL_DTYPE_BOOL => logical::<u8>(how, op),
        DTL_DTYPE_FLOAT16 => ordered::<Half>(how, op),
        DTL_DTYPE_BFLOAT16 => ordered::<Bf16>(how, op),
        DTL_DTYPE_COMPLEX64 => arithmetic::<Complex<f32>>(how, op),
        DTL_DTYPE_COMPLEX128 => arithmetic::<Complex<f64>>(how, op),
        DTL_DTYPE_FLOAT32_INT32 => located::<f32, i32>(side, op),
        DTL_DTYPE_FLOAT64_INT32 => located::<f64, i32>(side, op),
        DTL_DTYPE_INT32_INT32 => located::<i32, i32>(side, op),
        DTL_DTYPE_INT64_INT32 => located::<i64, i32>(side, op),
        DTL_DTYPE_INT16_INT32 => located::<i16, i32>(side, op),
        DTL_DTYPE_FLOAT64_INT64 => located::<f64, i64>(side, op),
        DTL_DTYPE_INT64_INT64 => located::<i64, i64>(side, op),
        _ => None,
    })
}

type How = (Level, OperandSide);

/// Returns the kernel of a rule that picks an operand. Which of two operands that compare as equal
/// it picks depends on the side. All other rules give equal bits for both sides.
fn sided<R: Rule>((level, side): How) -> Kernel {
    match side {
        OperandSide::Left => kernel_of::<R>(level),
        OperandSide::Right => kernel_of::<Swapped<R>>(level),
    }
}

fn arithmetic<T: Arithmetic>(how: How, op: dtl_reduce_op_t) -> Option<Kernel> {
    Some(match op {
        DTL_OP_SUM => kernel_of::<Sum<T>>(how.0),
        DTL_OP_PROD => kernel_of::<Prod<T>>(how.0),
        _ => return None,
    })
}

fn ordered<T: Arithmetic + Ordered>(how: How, op: dtl_reduce_op_t) -> Option<Kernel> {
    Some(match op {
        DTL_OP_MIN => sided::<Min<T>>(how),
        DTL_OP_MAX => sided::<Max<T>>(how),
        _ => return arithmetic::<T>(how, op),
    })
}

/// Returns the kernel of an integer operation. Equal integers have equal bits, so MIN and MAX need
/// no variant with exchanged operands.
fn integer<T: Arithmetic + Ordered + Logical>(how: How, op: dtl_reduce_op_t) -> Option<Kernel> {
    match op {
        DTL_OP_MIN => Some(kernel_of::<Min<T>>(how.0)),
        DTL_OP_MAX => Some(kernel_of::<Max<T>>(how.0)),
        _ => {
            arithmetic::<T>(how, op).or_else(|| bitwise(how, op)).or_else(|| logical::<T>(how, op))
        }
    }
}

/// Returns the kernel of a bitwise operation: one loop over bytes serves every integer type.
fn bitwise(how: How, op: dtl_reduce_op_t) -> Option<Kernel> {
    Some(match op {
        DTL_OP_BAND => kernel_of::<BitAnd>(how.0),
        DTL_OP_BOR => kernel_of::<BitOr>(how.0),
        DTL_OP_BXOR => kernel_of::<BitXor>(how.0),
        _ => return None,
    })
}

fn logical<T: Logical>(how: How, op: dtl_reduce_op_t) -> Option<Kernel> {
    Some(match op {
        DTL_OP_LAND => kernel_of::<And<T>>(how.0),
        DTL_OP_LOR => kernel_of::<Or<T>>(how.0),
        DTL_OP_LXOR => kernel_of::<Xor<T>>(how.0),
        _ => return None,
    })
}

/// Returns the kernel of MINLOC or MAXLOC. Wide instructions do not help to compare pairs.
fn located<V, I>(side: OperandSide, op: dtl_reduce_op_t) -> Option<Kernel>
where
    V: PartialOrd + Copy + 'static,
    I: Ord + Copy + 'static,
    Pair<V, I>: Copy,
{
    Some(match op {
        DTL_OP_MINLOC => sided::<MinLoc<V, I>>((Level::PLAIN, side)),
        DTL_OP_MAXLOC => sided::<MaxLoc<V, I>>((Level::PLAIN, side)),
        _ => return None,
    })
}
