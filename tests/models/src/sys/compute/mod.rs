//! Thread teams of the library, on loom's atomics.

pub mod elements;
#[path = "../../../../../src/sys/compute/team.rs"]
pub mod team;
