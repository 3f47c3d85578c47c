//! Atomic read-modify-write with a function, for the integer atomics.
//!
//! The standard library deprecates `fetch_update` in favour of `try_update`, which the minimum
//! compiler (`rust-version` in Cargo.toml) does not have. Once the minimum compiler has
//! `try_update`, replace this trait by that method.

use crate::sys::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Conditional read-modify-write of an atomic integer: a closure computes the next value.
pub trait AtomicUpdate {
    /// Integer type of the atomic.
    type Value;

    /// Replaces the value `v` by `next(v)` in one atomic step and returns `v`. If `next` returns
    /// `None`, stores nothing. `success` orders the read-modify-write, `failure` the loads before
    /// it.
    ///
    /// # Errors
    /// The current value, if `next` returned `None` for it.
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
