//! Element that several processes change, with the compare-and-swap loop for every operation that
//! the processor has no instruction for.

use crate::sys::sync::AtomicUpdate;
use crate::sys::sync::Ordering::{AcqRel, Acquire};

/// Replaces the value by the result of `apply`, and returns the old value. The next thread that
/// changes the cell sees everything that this thread has written before.
pub fn update<C: AtomicUpdate<Value: Copy>>(
    cell: &C,
    mut apply: impl FnMut(C::Value) -> C::Value,
) -> C::Value {
    let changed = cell.checked_update(AcqRel, Acquire, |was| Some(apply(was)));
    changed.unwrap_or_else(|was| was)
}
