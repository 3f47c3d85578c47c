//! Ring and cells of the library, over memory whose words and bytes loom tracks.

pub mod memory;
pub mod model;
