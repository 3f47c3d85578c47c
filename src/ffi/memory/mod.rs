//! Entries about memory: allocation, copies, arrays.
//!
//! In reading order:
//! - `alloc`: allocate, free, describe, query a pointer
//! - `host_alloc`: register host memory, adopt and export memory
//! - `stream_ordered`: allocate and free in stream order
//! - `pool`: memory pools
//! - `transfer`: copies and fills that block
//! - `array`: arrays and DLPack

pub mod alloc;

pub mod host_alloc;

pub mod stream_ordered;

pub mod pool;

pub mod transfer;

pub mod array;
