//! Atomics, locks, waiting, time. In reading order:
//!
//! - `atomic`: the atomics and fences that the models replace by loom's.
//! - `atomic_update`: read-modify-write by a closure.
//! - `hints`: likely, unlikely, prefetch.
//! - `clock`: nanoseconds and deadlines.
//! - `tsc`: durations by the processor's time stamp counter.
//! - `futex`: sleeping until a word changes.
//! - `backoff`: spinning, yielding, sleeping.
//! - `lock`: mutex, read-write lock and condition variable without poisoning.
//! - `spinlock`: a lock for a few instructions.
//! - `membarrier`: a fence of two halves of different cost.
//! - `biased_trylock`: a try-lock that is cheap for its first thread.
//! - `robust_rwlock`: read-write locks between processes that survive a dead holder.
//! - `spsc_queue`: a queue of one writer and one reader.
//! - `tls`: thread pointers without a call.

mod atomic;
pub mod atomic_update;
pub mod backoff;
pub mod biased_trylock;
pub mod clock;
pub mod futex;
pub mod hints;
pub mod lock;
pub(in crate::sys) mod membarrier;
pub mod robust_rwlock;
pub mod spinlock;
pub mod spsc_queue;
pub mod tls;
pub mod tsc;

pub use atomic::{
    Arc, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence,
    nulls, size, thread_local, yield_now,
};
pub(crate) use atomic::{const_fn, global};
