//! The part of the library's `shared_atomics` that is modelled: the loop that changes one element.

#[path = "../../../../../src/sys/compute/shared_atomics/cell.rs"]
pub mod cell;
