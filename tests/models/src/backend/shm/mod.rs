//! The library's ring and cells, over memory whose words and bytes loom watches.

#[path = "../../../../../src/backend/shm/cells.rs"]
mod cells;
#[path = "../../../../../src/backend/shm/claims.rs"]
pub mod claims;
pub mod model;
#[path = "../../../../../src/backend/shm/ring.rs"]
mod ring;
