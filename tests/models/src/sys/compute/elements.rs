//! Part of `elements` that is modelled: the loop that changes one element.

#[path = "../../../../../src/sys/compute/elements/cell.rs"]
pub mod cell;
