//! Atomics, locks and waiting: the library's files on loom's atomics, and modules of loom's in the
//! place of those that make system calls.

pub mod atomic;
#[path = "../../../../../src/sys/sync/atomic_lock.rs"]
pub mod atomic_lock;
pub mod futex;
#[path = "../../../../../src/sys/sync/hints.rs"]
pub mod hints;
pub mod lock;
#[path = "../../../../../src/sys/sync/membarrier.rs"]
pub mod membarrier;
pub mod tls;
pub mod wait;

pub use atomic::*;
pub use atomic_lock::AtomicUpdate;
