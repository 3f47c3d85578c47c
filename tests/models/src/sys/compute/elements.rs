//! The part of the library's `elements` that is modelled: the loop that changes one element.

#[path = "../../../../../src/sys/compute/elements/cell.rs"]
pub mod cell;
