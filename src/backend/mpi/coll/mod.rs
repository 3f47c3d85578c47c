//! MPI's own collectives.
//!
//! In reading order:
//! - `collective`: arguments in MPI's terms
//! - `large_count`: counts above INT_MAX

pub(super) mod collective;
pub(super) mod large_count;
