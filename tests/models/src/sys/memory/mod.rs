//! Regions of memory, and the allocator's model.

pub mod buf;
pub mod heap;
