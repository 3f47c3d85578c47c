//! TEMP
use crate::abi::word::*;
use crate::error::{Result, fail};
use crate::sys::buf::Region;
use crate::sys::reduce::{self, Kernel};
/// A pair of dtype and operation that go together.
#[derive(Clone, Copy)]
pub struct Reduction {
    kernel: Kernel,
    /// Bytes of an element.
    pub element: usize,
    /// Whether the operands may change places.
    pub commutes: bool,
}
impl Reduction {
    /// into = into ∘ from
    pub fn apply(&self, into: Region, from: Region) {
        (self.kernel)(into, from);
    }
}
/// Checks a pair of dtype and operation.
pub fn reduction(dtype: dtl_dtype_t, op: dtl_reduce_op_t) -> Result<Reduction> {
    let element = element_size(dtype)?;
    let Some(op_name) = reduce::op_name(op) else {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "op {op} is none: use DTL_OP_SUM to DTL_OP_BXOR");
    };
    match reduce::kernel(dtype, op) {
        Some(kernel) => Ok(Reduction { kernel, element, commutes: true }),
        None => {
            let dtype_name = reduce::dtype_name(dtype).unwrap_or("?");
            fail!(DTL_ERROR_TYPE, "DTL_OP_{op_name} does not go with DTL_DTYPE_{dtype_name}")
        }
    }
}
/// Size of a dtype's element in bytes.
pub fn element_size(dtype: dtl_dtype_t) -> Result<usize> {
    match reduce::dtype_size(dtype) {
        Some(size) => Ok(size),
        None => {
            fail!(DTL_ERROR_INVALID_ARGUMENT, "dtype {dtype} is none: use DTL_DTYPE_INT8 to DTL_DTYPE_BOOL")
        }
    }
}
/// text
pub fn dtype_text(dtype: i32) -> String {
    reduce::dtype_name(dtype).map_or_else(|| format!("dtype {dtype}"), str::to_owned)
}
/// text
pub fn op_text(op: i32) -> String {
    reduce::op_name(op).map_or_else(|| format!("op {op}"), str::to_owned)
}
