//! Host memory: addresses and regions, allocation, pages. In reading order:
//!
//! - `buf`: addresses and regions of memory, aligned allocation, and the address ranges that never
//!   contain device memory.
//! - `copies`: copies of memory that two cores use.
//! - `host_pages`: page locking, search for unmapped pages.
//! - `heap`: the allocator of host memory.

pub mod buf;
mod copies;
pub mod heap;
pub mod host_pages;
