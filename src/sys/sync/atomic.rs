//! Building blocks of the lock-free code: atomics, fences, `Arc`, process-wide and thread-local
//! values. This module re-exports those of the standard library at no cost.
//!
//! `tests/models` compiles the files that use this module a second time, with a module of equal
//! name and shape whose atomics are those of loom. There, every interleaving is tried, and every
//! value that the memory model allows a load to return. docs/explanation/concurrency.md lists what
//! each model covers. Locks are in `lock`.

pub use std::sync::Arc;
pub use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence,
};
pub use std::thread::yield_now;
pub use std::thread_local;

/// Returns an array of `N` null pointers.
pub const fn nulls<T, const N: usize>() -> [AtomicPtr<T>; N] {
    [const { AtomicPtr::new(std::ptr::null_mut()) }; N]
}

/// Returns `real`. In a model, returns `_model`, which is small enough to reach every corner case.
pub const fn size(real: usize, _model: usize) -> usize {
    real
}

/// Declares a `const fn`. (A model declares a plain one: modelled atomics cannot be constants.)
macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis fn $($rest:tt)+) => { $(#[$meta])* $vis const fn $($rest)+ };
}

/// Declares a static. (A model re-creates the value for each of its runs.)
macro_rules! global {
    ($(#[$meta:meta])* $vis:vis static $name:ident: $of:ty = $value:expr;) => {
        $(#[$meta])* $vis static $name: $of = $value;
    };
}

pub(crate) use const_fn;
pub(crate) use global;
