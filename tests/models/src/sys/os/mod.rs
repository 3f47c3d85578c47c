//! Shared memory of loom's.

pub mod shm_segment;
