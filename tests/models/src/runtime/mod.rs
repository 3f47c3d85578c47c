//! Items that the modelled files use from `crate::runtime`.

pub mod comm;
#[path = "../../../../src/runtime/op_kind.rs"]
pub mod op_kind;
pub mod policy;
pub mod trace;

/// First number of a user-defined dtype or operation. The models have none.
pub mod id_table {
    pub const FIRST: i32 = 4096;
}

/// Names for texts, which no model reads.
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

/// Types of posted messages.
pub mod component {
    use crate::sys::memory::buf::Region;

    #[derive(Clone, Copy)]
    pub struct Post {
        pub what: u32,
        pub data: Region,
    }

    #[derive(Clone, Copy)]
    pub struct Member {
        pub rank: i32,
        pub place: u32,
    }

    pub trait CollMailbox: Send + Sync {
        fn room(&self) -> usize;
        fn post(&self, number: u64, what: u32, data: Region) -> bool;
        fn look(&self, rank: i32, number: u64) -> Option<Post>;
        fn finish(&self, number: u64, met: bool);
        fn leave(&self);
        fn has_left(&self, rank: i32) -> bool;
    }
}
