//! libdtl: one C ABI for devices, memory, streams, events, kernels and communicators.
//!
//! A call goes down this list: C -> [`ffi`] -> [`runtime`] -> [`backend`] -> [`sys`] -> driver.
//! The C interface is described as data in [`abi`]. ARCHITECTURE.md is the map.

pub mod abi;
pub mod backend;
pub mod error;
pub mod ffi;
mod from_c;
pub mod last_error;
pub mod runtime;
pub mod sys;
#[doc(hidden)]
pub mod tooling;

#[cfg(test)]
#[path = "../tests/golden/compare.rs"]
mod golden;
