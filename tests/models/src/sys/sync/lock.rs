//! Replacement of `sys::sync::lock` over loom's atomics, `Arc`s, statics and mutexes, with the same
//! names and interfaces.

pub use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
pub use loom::sync::{Arc, MutexGuard};
pub use loom::thread::yield_now;
/// Compiler fence: only the compiler could reorder here, and it does not reorder the programs that
/// loom runs.
pub use std::sync::atomic::compiler_fence;

pub fn nulls<T, const N: usize>() -> [AtomicPtr<T>; N] {
    std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut()))
}

/// Returns the second of two sizes.
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

/// Conditional read-modify-write of an atomic integer: a closure computes the next value.
pub trait AtomicUpdate {
    type Value;

    fn checked_update(
        &self,
        success: Ordering,
        failure: Ordering,
        next: impl FnMut(Self::Value) -> Option<Self::Value>,
    ) -> Result<Self::Value, Self::Value>;
}

macro_rules! checked_update {
    ($($atomic:ty: $value:ty),*) => { $(
        impl AtomicUpdate for $atomic {
            type Value = $value;

            fn checked_update(
                &self,
                success: Ordering,
                failure: Ordering,
                mut next: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut current = self.load(failure);
                while let Some(new) = next(current) {
                    match self.compare_exchange_weak(current, new, success, failure) {
                        Ok(old) => return Ok(old),
                        Err(seen) => current = seen,
                    }
                }
                Err(current)
            }
        }
    )* };
}

checked_update!(AtomicU32: u32, AtomicU64: u64, AtomicUsize: usize);

pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}
