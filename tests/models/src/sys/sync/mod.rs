//! Atomics, locks and waiting: the library's files on loom's atomics, and modules over loom in
//! place of those that make system calls.

pub mod futex;
pub mod lock;
#[path = "../../../../../src/sys/sync/spin_lock.rs"]
pub mod spin_lock;
pub mod tls;
pub mod wait;

pub use lock::*;
