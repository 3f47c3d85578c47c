//! MPI's own collectives.
//!
//! In reading order:
//! - `collective`: conversion of arguments
//! - `large_count`: counts above INT_MAX
//! - `reduce_op`: reduction operations

pub(super) mod collective;
pub(super) mod large_count;
pub(super) mod reduce_op;
