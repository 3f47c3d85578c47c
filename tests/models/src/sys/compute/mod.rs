//! The library's teams, on loom's atomics.

pub mod shared_atomics;
#[path = "../../../../../src/sys/compute/team.rs"]
pub mod team;
