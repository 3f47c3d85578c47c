//! Arithmetic of the backend "sample" on window elements: integers, bytes, bools and doubles.

use dtl_sys::*;

/// Operation on elements of a dtype.
#[derive(Clone, Copy)]
pub(crate) struct Update {
    pub(crate) dtype: dtl_dtype_t,
    pub(crate) op: dtl_reduce_op_t,
    pub(crate) size: usize,
}

/// Returns the size of an element; `None` if the backend does not support its type.
pub(crate) fn size_of_element(dtype: dtl_dtype_t) -> Option<usize> {
    match dtype {
        DTL_DTYPE_INT8 | DTL_DTYPE_UINT8 | DTL_DTYPE_BYTE | DTL_DTYPE_BOOL => Some(1),
        DTL_DTYPE_INT16 | DTL_DTYPE_UINT16 => Some(2),
        DTL_DTYPE_INT32 | DTL_DTYPE_UINT32 => Some(4),
        DTL_DTYPE_INT64 | DTL_DTYPE_UINT64 | DTL_DTYPE_FLOAT64 => Some(8),
        _ => None,
    }
}

/// Returns the unsigned dtype of the same size, for an injected fault that treats signed elements
/// as unsigned.
pub(crate) fn unsigned(dtype: dtl_dtype_t) -> dtl_dtype_t {
    match dtype {
        DTL_DTYPE_INT8 => DTL_DTYPE_UINT8,
        DTL_DTYPE_INT16 => DTL_DTYPE_UINT16,
        DTL_DTYPE_INT32 => DTL_DTYPE_UINT32,
        DTL_DTYPE_INT64 => DTL_DTYPE_UINT64,
        other => other,
    }
}

impl Update {
    /// Computes `left op right`.
    pub(crate) fn apply(self, left: [u8; 8], right: [u8; 8]) -> [u8; 8] {
        match self.op {
            DTL_OP_REPLACE => right,
            DTL_OP_NO_OP => left,
            _ if self.dtype == DTL_DTYPE_FLOAT64 => {
                self.float(f64::from_ne_bytes(left), f64::from_ne_bytes(right)).to_ne_bytes()
            }
            _ => self.encode(self.integer(self.decode(left), self.decode(right))),
        }
    }

    /// Decodes an element. The type `i128` can represent every signed or unsigned element, and the
    /// low 64 bits of the product of two elements are exact.
    fn decode(self, bytes: [u8; 8]) -> i128 {
        let (raw, unused) = (u64::from_le_bytes(bytes), 64 - 8 * self.size as u32);
        let is_signed = (DTL_DTYPE_INT8..=DTL_DTYPE_INT64).contains(&self.dtype);
        if is_signed { i128::from(((raw << unused) as i64) >> unused) } else { i128::from(raw) }
    }

    fn encode(self, value: i128) -> [u8; 8] {
        (value as u64).to_le_bytes()
    }

    fn integer(self, left: i128, right: i128) -> i128 {
        let (a, b) = (left != 0, right != 0);
        match self.op {
            DTL_OP_SUM => left + right,
            DTL_OP_PROD => left.wrapping_mul(right),
            DTL_OP_MIN => left.min(right),
            DTL_OP_MAX => left.max(right),
            DTL_OP_LAND => (a && b).into(),
            DTL_OP_LOR => (a || b).into(),
            DTL_OP_LXOR => (a != b).into(),
            DTL_OP_BAND => left & right,
            DTL_OP_BOR => left | right,
            _ => left ^ right,
        }
    }

    /// Computes a floating-point result. If a sum or product is NaN, returns the positive quiet NaN
    /// without payload. If an operand of a minimum or maximum is NaN, returns this operand.
    fn float(self, left: f64, right: f64) -> f64 {
        let plain =
            |value: f64| if value.is_nan() { f64::from_bits(0x7FF8_0000_0000_0000) } else { value };
        match self.op {
            DTL_OP_SUM => plain(left + right),
            DTL_OP_PROD => plain(left * right),
            _ if left.is_nan() => left,
            _ if right.is_nan() => right,
            DTL_OP_MIN => left.min(right),
            _ => left.max(right),
        }
    }
}
