//! The library's ring, over memory whose words and bytes loom watches.

pub mod model;
#[path = "../../../../../src/backend/shm/ring.rs"]
mod ring;
