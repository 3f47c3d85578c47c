//! Arithmetic of integers, binary32 and binary64. Integers wrap around. No floating-point operation
//! is fused or reordered. Every NaN result of arithmetic is replaced by one canonical NaN, because
//! every rank must get identical bits: an instruction propagates the NaN of one of its operands,
//! and the compiler decides which operand that is.

use super::ops::{Arithmetic, Logical, Ordered};

macro_rules! integers {
    ($($t:ty),+) => {$(
        impl Arithmetic for $t {
            fn sum(self, other: Self) -> Self { self.wrapping_add(other) }
            fn product(self, other: Self) -> Self { self.wrapping_mul(other) }
        }
        impl Ordered for $t {
            const TOTAL: bool = true;
            fn lower(self, other: Self) -> Self { self.min(other) }
            fn higher(self, other: Self) -> Self { self.max(other) }
        }
        impl Logical for $t {
            fn is_true(self) -> bool { self != 0 }
            fn truth(value: bool) -> Self { Self::from(value) }
        }
    )+};
}
integers!(i8, i16, i32, i64, u8, u16, u32, u64);

/// Floating-point type of the components of a complex number.
pub(super) trait Float:
    Copy
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + 'static
{
    /// Returns the number itself, or the canonical NaN if it is a NaN.
    fn one_nan(self) -> Self;
}

macro_rules! floats {
    ($($t:ident $nan:literal),+) => {$(
        impl Float for $t {
            fn one_nan(self) -> Self { if self.is_nan() { $t::from_bits($nan) } else { self } }
        }
        impl Arithmetic for $t {
            fn sum(self, other: Self) -> Self { (self + other).one_nan() }
            fn product(self, other: Self) -> Self { (self * other).one_nan() }
        }
        impl Ordered for $t {
            const TOTAL: bool = false;
            fn lower(self, other: Self) -> Self {
                if other < self || other.is_nan() { other } else { self }
            }
            fn higher(self, other: Self) -> Self {
                if other > self || other.is_nan() { other } else { self }
            }
        }
    )+};
}
floats!(f32 0x7FC0_0000, f64 0x7FF8_0000_0000_0000);
