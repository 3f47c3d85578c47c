//! Memory regions, and the model of the allocator.

pub mod buf;
pub mod heap;
