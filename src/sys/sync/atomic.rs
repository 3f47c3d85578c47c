//! Building blocks of the lock-free code: atomics, fences, `Arc`, process-wide and thread-local
//! values. Here they are the language's own and cost nothing.
//!
//! `tests/models` compiles the files that use this module a second time, with a module of the same
//! name and shape whose atomics are loom's: there every interleaving and every value that the
//! memory model lets a load return is tried. docs/explanation/concurrency.md lists what each model
//! covers. Locks: `lock`.

pub use std::sync::Arc;
pub use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence,
};
pub use std::thread::yield_now;
pub use std::thread_local;

/// Null pointers in a row.
#[must_use]
pub const fn nulls<T, const N: usize>() -> [AtomicPtr<T>; N] {
    [const { AtomicPtr::new(std::ptr::null_mut()) }; N]
}

/// The first of two sizes. A model takes the second, small enough to reach every corner.
#[must_use]
pub const fn size(real: usize, _model: usize) -> usize {
    real
}

/// A `const fn`. (Nothing that holds a modelled atomic can be made in a constant.)
macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis fn $($rest:tt)+) => { $(#[$meta])* $vis const fn $($rest)+ };
}

/// A static. (A model makes it anew for each of its runs.)
macro_rules! global {
    ($(#[$meta:meta])* $vis:vis static $name:ident: $of:ty = $value:expr;) => {
        $(#[$meta])* $vis static $name: $of = $value;
    };
}

pub(crate) use const_fn;
pub(crate) use global;
