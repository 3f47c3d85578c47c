//! The doers: each implements the component traits of `runtime::backend`.

pub mod local;
pub mod matching;
pub mod operations;
pub mod shm;
