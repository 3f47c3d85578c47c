//! The library's teams, on loom's atomics.

pub mod shared_atomics;
#[path = "../../../../../src/sys/compute/team.rs"]
pub mod team;
#[path = "../../../../../src/sys/compute/work_stealing.rs"]
pub mod work_stealing;
