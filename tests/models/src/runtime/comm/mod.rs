//! The library's flight recorder and the state of its requests.

pub mod diagnostics;
pub mod model;
pub mod p2p;

/// First number of a user-defined dtype or operation, of which the models have none.
pub mod id_table {
    pub const FIRST: i32 = 4096;
}

/// Names for texts, which no model looks at.
pub mod types {
    pub fn portable_dtype(dtype: i32) -> i32 {
        dtype
    }

    pub fn portable_op(op: i32) -> i32 {
        op
    }

    pub fn dtype_text(dtype: i32) -> String {
        dtype.to_string()
    }

    pub fn op_text(op: i32) -> String {
        op.to_string()
    }
}
