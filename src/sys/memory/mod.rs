//! Addresses, regions, host memory. In reading order:
//!
//! - `buf`: addresses and regions of memory, aligned allocation, ranges that only ever contain host
//!   memory.
//! - `host_pages`: page locking, search for unmapped pages.
//! - `heap`: the allocator of host memory.
//! - `dlpack`: tensors exchanged with other libraries.

pub mod buf;
pub mod dlpack;
pub mod heap;
pub mod host_pages;
