//! The part of the library's `rmw` that is modelled: the loop that changes one element.

#[path = "../../../../src/sys/rmw/cell.rs"]
pub mod cell;
