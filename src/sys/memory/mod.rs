//! Addresses, regions, host memory. In reading order:
//!
//! - `buf`: addresses and regions of memory.
//! - `host_pages`: aligned allocation, page locking, search for unmapped pages, the page that a
//!   fork wipes, ranges that only ever contain host memory.
//! - `heap`: the allocator of host memory.
//! - `dlpack`: tensors exchanged with other libraries.

pub mod buf;
pub mod dlpack;
pub mod heap;
pub mod host_pages;
