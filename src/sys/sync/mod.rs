//! Atomics, locks, waiting, time. In reading order:
//!
//! - `lock`: atomics and fences; mutex, read-write lock and condition variable without poisoning;
//!   the state of the library, which is reset in a forked child. The loom tests replace this
//!   module.
//! - `futex`: sleeping until a word changes.
//! - `wait`: clocks, deadlines, durations; spinning, yielding, sleeping.
//! - `spin_lock`: lock for critical sections of nanoseconds; waiting threads never sleep.
//! - `tls`: thread-local pointers that are read without a function call.

pub mod futex;
pub mod lock;
pub mod spin_lock;
pub mod tls;
pub mod wait;

pub use lock::{
    Arc, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUpdate, AtomicUsize, Ordering,
    compiler_fence, fence, nulls, size, thread_local, yield_now,
};
pub(crate) use lock::{const_fn, global};
