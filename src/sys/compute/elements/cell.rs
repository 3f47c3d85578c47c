//! Update of an element that several processes access concurrently: a compare-and-swap loop for
//! operations for which the processor has no atomic instruction.

use crate::sys::sync::AtomicUpdate;
use crate::sys::sync::Ordering::{AcqRel, Acquire};

/// Atomically replaces the value of `cell` with the result of `apply`, and returns the old value. A
/// thread that changes the cell afterwards sees everything that this thread has written before the
/// call.
pub fn update<C: AtomicUpdate<Value: Copy>>(
    cell: &C,
    mut apply: impl FnMut(C::Value) -> C::Value,
) -> C::Value {
    let changed = cell.checked_update(AcqRel, Acquire, |was| Some(apply(was)));
    changed.unwrap_or_else(|was| was)
}
