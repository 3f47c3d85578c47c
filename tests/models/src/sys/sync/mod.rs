//! Atomics, locks and waiting: the library's files on loom's atomics, and modules of loom's in the
//! place of those that make system calls.

pub mod atomic;
#[path = "../../../../../src/sys/sync/atomic_update.rs"]
pub mod atomic_update;
pub mod backoff;
#[path = "../../../../../src/sys/sync/biased_trylock.rs"]
pub mod biased_trylock;
pub mod futex;
#[path = "../../../../../src/sys/sync/hints.rs"]
pub mod hints;
pub mod lock;
#[path = "../../../../../src/sys/sync/membarrier.rs"]
pub mod membarrier;
#[path = "../../../../../src/sys/sync/robust_rwlock.rs"]
pub mod robust_rwlock;
#[path = "../../../../../src/sys/sync/spinlock.rs"]
pub mod spinlock;
#[path = "../../../../../src/sys/sync/spsc_queue.rs"]
pub mod spsc_queue;
pub mod tls;

pub use atomic::*;
