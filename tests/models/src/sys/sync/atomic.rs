//! The library's `sys::sync` with loom's atomics, shares and statics. Same names, same shapes.

pub use loom::sync::Arc;
pub use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
pub use loom::thread::yield_now;
/// Only the compiler may reorder here, and loom's programs are not reordered by it.
pub use std::sync::atomic::compiler_fence;

pub fn nulls<T, const N: usize>() -> [AtomicPtr<T>; N] {
    std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut()))
}

/// The second of two sizes.
pub const fn size(_real: usize, model: usize) -> usize {
    model
}

macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis fn $($rest:tt)+) => { $(#[$meta])* $vis fn $($rest)+ };
}

macro_rules! global {
    ($(#[$meta:meta])* static $name:ident: $of:ty = $value:expr;) => {
        loom::lazy_static! { $(#[$meta])* static ref $name: $of = $value; }
    };
}

macro_rules! model_thread_local {
    (static $name:ident: $of:ty = const $value:block;) => {
        loom::thread_local! { static $name: $of = $value; }
    };
}

pub(crate) use {const_fn, global, model_thread_local as thread_local};
