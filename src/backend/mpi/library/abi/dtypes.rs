//! Mapping of the library's dtypes and operations to datatypes and operations of MPI.

use super::Handle;
use crate::abi::word::*;

/// Returns MPI's datatype with the layout of `dtype`. Returns `None` for the 16-bit floats, the
/// pairs with an index of 64 bits (FLOAT64_INT64, INT64_INT64) and the dtypes created by
/// `dtl_dtype_create`, because MPI has no such datatypes.
pub const fn datatype(dtype: dtl_dtype_t) -> Option<Handle> {
    Some(match dtype {
        DTL_DTYPE_INT8 => Handle::Int8,
        DTL_DTYPE_INT16 => Handle::Int16,
        DTL_DTYPE_INT32 => Handle::Int32,
        DTL_DTYPE_INT64 => Handle::Int64,
        DTL_DTYPE_UINT8 => Handle::UInt8,
        DTL_DTYPE_UINT16 => Handle::UInt16,
        DTL_DTYPE_UINT32 => Handle::UInt32,
        DTL_DTYPE_UINT64 => Handle::UInt64,
        DTL_DTYPE_FLOAT32 => Handle::Float,
        DTL_DTYPE_FLOAT64 => Handle::Double,
        DTL_DTYPE_BYTE => Handle::Byte,
        DTL_DTYPE_BOOL => Handle::CBool,
        DTL_DTYPE_COMPLEX64 => Handle::CFloatComplex,
        DTL_DTYPE_COMPLEX128 => Handle::CDoubleComplex,
        DTL_DTYPE_FLOAT32_INT32 => Handle::FloatInt,
        DTL_DTYPE_FLOAT64_INT32 => Handle::DoubleInt,
        DTL_DTYPE_INT32_INT32 => Handle::IntInt,
        // `long` has 64 bits on all supported platforms.
        DTL_DTYPE_INT64_INT32 => Handle::LongInt,
        DTL_DTYPE_INT16_INT32 => Handle::ShortInt,
        _ => return None,
    })
}

/// Returns the MPI operation that corresponds to `op`. Its result can differ from that of the
/// library's operation where MPI does not define the result: for NaN operands of MIN, MAX, MINLOC
/// and MAXLOC, and for PROD of complex numbers. REPLACE and NO_OP are for one-sided operations
/// only. Returns `None` for operations created by `dtl_op_create`.
pub const fn operation(op: dtl_reduce_op_t) -> Option<Handle> {
    Some(match op {
        DTL_OP_SUM => Handle::Sum,
        DTL_OP_PROD => Handle::Prod,
        DTL_OP_MIN => Handle::Min,
        DTL_OP_MAX => Handle::Max,
        DTL_OP_LAND => Handle::Land,
        DTL_OP_LOR => Handle::Lor,
        DTL_OP_LXOR => Handle::Lxor,
        DTL_OP_BAND => Handle::Band,
        DTL_OP_BOR => Handle::Bor,
        DTL_OP_BXOR => Handle::Bxor,
        DTL_OP_MINLOC => Handle::Minloc,
        DTL_OP_MAXLOC => Handle::Maxloc,
        DTL_OP_REPLACE => Handle::Replace,
        DTL_OP_NO_OP => Handle::NoOp,
        _ => return None,
    })
}
