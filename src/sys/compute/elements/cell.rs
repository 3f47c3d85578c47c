//! Element that several processes change, with the compare-and-swap loop for every operation that
//! the processor has no instruction for.

use crate::sys::sync::AtomicU64;
use crate::sys::sync::Ordering::{self, AcqRel, Acquire};

/// Atomic of one width.
pub trait Cell {
    /// Integer type of the value.
    type Bits: Copy;
    /// Returns the value.
    fn load(&self, order: Ordering) -> Self::Bits;
    /// Stores `to` if the value is `from`. Returns the old value, as `Err` if it was not `from`.
    fn swap_if(
        &self,
        from: Self::Bits,
        to: Self::Bits,
        orders: (Ordering, Ordering),
    ) -> Result<Self::Bits, Self::Bits>;
}

macro_rules! cells {
    ($($atomic:ty: $bits:ty),+) => {$(
        impl $crate::sys::compute::elements::cell::Cell for $atomic {
            type Bits = $bits;
            fn load(&self, order: $crate::sys::sync::Ordering) -> $bits { self.load(order) }
            fn swap_if(
                &self, from: $bits, to: $bits,
                (done, not): ($crate::sys::sync::Ordering, $crate::sys::sync::Ordering),
            ) -> Result<$bits, $bits> {
                self.compare_exchange(from, to, done, not)
            }
        }
    )+};
}
pub(crate) use cells;
cells!(AtomicU64: u64);

/// Replaces the value by the result of `apply`, and returns the old value. The next thread that
/// changes the cell sees everything that this thread has written before.
pub fn update<C: Cell>(cell: &C, mut apply: impl FnMut(C::Bits) -> C::Bits) -> C::Bits {
    let mut was = cell.load(Acquire);
    loop {
        match cell.swap_if(was, apply(was), (AcqRel, Acquire)) {
            Ok(was) => return was,
            Err(now) => was = now,
        }
    }
}
