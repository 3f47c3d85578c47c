//! Shared memory over loom.

pub mod shm_segment;
