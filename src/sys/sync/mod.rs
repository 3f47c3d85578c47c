//! Atomics, locks, waiting, time. In reading order:
//!
//! - `atomic`: atomics and fences, which the models replace by those of loom.
//! - `atomic_update`: atomic read-modify-write by a closure.
//! - `hints`: branch and prefetch hints.
//! - `clock`: nanoseconds and deadlines.
//! - `tsc`: durations by the processor's time stamp counter.
//! - `futex`: sleeping until a word changes.
//! - `backoff`: spinning, yielding, sleeping.
//! - `lock`: mutex, read-write lock and condition variable without poisoning.
//! - `spinlock`: lock for critical sections of a few instructions.
//! - `membarrier`: asymmetric fence with a cheap and an expensive half.
//! - `biased_trylock`: try-lock that is cheap for its first thread.
//! - `robust_rwlock`: read-write locks between processes that survive a dead holder.
//! - `spsc_queue`: queue of one writer and one reader.
//! - `tls`: thread-local pointers that are read without a function call.

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
