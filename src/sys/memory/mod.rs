//! Addresses, regions, host memory. In reading order:
//!
//! - `buf`: addresses and regions of memory.
//! - `host_pages`: aligned allocation, page locking, what is mapped.
//! - `heap`: the allocator of host memory.
//! - `dlpack`: tensors that other libraries share.

pub mod buf;
pub mod dlpack;
pub mod heap;
pub mod host_pages;
