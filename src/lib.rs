//! libdtl: one C ABI for devices, memory, streams, events, kernels and communicators.
//!
//! Call path from top to bottom: C -> [`ffi`] -> [`runtime`] -> [`backend`] -> [`sys`] -> driver.
//! [`abi`] describes the C interface as data. ARCHITECTURE.md is an overview of the source.

pub mod abi;
pub mod backend;
pub mod error;
pub mod ffi;
mod from_c;
pub mod hints;
pub mod last_error;
pub mod runtime;
pub mod sys;
#[doc(hidden)]
pub mod tooling;

#[cfg(test)]
#[path = "../tests/golden/compare.rs"]
mod golden;
