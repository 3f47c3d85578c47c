//! Windows.

#[path = "../../../../../src/runtime/comm/rma/robust_rwlock.rs"]
pub mod robust_rwlock;
