//! The library's teams, on loom's atomics.

pub mod elements;
#[path = "../../../../../src/sys/compute/team.rs"]
pub mod team;
