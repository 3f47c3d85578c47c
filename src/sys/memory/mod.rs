//! Addresses, regions, host memory. In reading order:
//!
//! - `buf`: addresses and regions of memory, aligned allocation, ranges that only ever contain host
//!   memory.
//! - `host_pages`: page locking, search for unmapped pages.
//! - `heap`: the allocator of host memory.

pub mod buf;
pub mod heap;
pub mod host_pages;
