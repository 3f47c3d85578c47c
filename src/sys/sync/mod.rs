//! Atomics, locks, waiting, time. In reading order:
//!
//! - `atomic`: atomics and fences, which the models replace by those of loom.
//! - `hints`: branch and prefetch hints.
//! - `futex`: sleeping until a word changes.
//! - `wait`: clocks, deadlines, durations; spinning, yielding, sleeping.
//! - `lock`: mutex, read-write lock and condition variable without poisoning.
//! - `membarrier`: asymmetric fence with a cheap and an expensive half.
//! - `atomic_lock`: spin lock, try-lock that is cheap for its first thread, read-write lock between
//!   processes that survives a dead holder; atomic read-modify-write by a closure.
//! - `tls`: thread-local pointers that are read without a function call.

mod atomic;
pub mod atomic_lock;
pub mod futex;
pub mod hints;
pub mod lock;
pub(crate) mod membarrier;
pub mod tls;
pub mod wait;

pub use atomic_lock::AtomicUpdate;

pub use atomic::{
    Arc, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence,
    nulls, size, thread_local, yield_now,
};
pub(crate) use atomic::{const_fn, global};
