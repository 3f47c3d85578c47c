//! Shared memory of kind "shm".

#[path = "../../../../../src/backend/shm/memory/cells.rs"]
pub mod cells;
#[path = "../../../../../src/backend/shm/memory/ring.rs"]
pub mod ring;
#[path = "../../../../../src/backend/shm/memory/rndv_claims.rs"]
pub mod rndv_claims;
