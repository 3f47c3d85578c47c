//! The library's ring and cells, over memory whose words and bytes loom watches.

pub mod memory;
pub mod model;
