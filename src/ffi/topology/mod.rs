//! Entries about the placement of ranks.
//!
//! In reading order:
//! - `neighbors`: nodes of ranks, CPUs of threads
//! - `cart`: Cartesian grids of ranks

pub mod neighbors;

pub mod cart;
