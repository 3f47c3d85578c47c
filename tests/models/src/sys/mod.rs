//! Items that the modelled files use from `crate::sys`: the library's table and epoch, on loom's
//! atomics.

pub mod compute;
pub mod handles;
pub mod journal_model;
pub mod memory;
pub mod model;
pub mod os;
pub mod sync;
pub mod team_model;
pub mod window_model;
