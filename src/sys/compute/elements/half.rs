//! 16-bit floats. Their arithmetic is that of binary32, rounded to nearest even after each step.
//! Since 24 bits of precision are at least 2 * 11 + 2, the results equal those of 16-bit arithmetic
//! (Figueroa, "When is double rounding innocuous?", 1995).
//!
//! Conversions have no branches, so that the compiler can vectorize loops of conversions. They
//! never compute with subnormal numbers of binary32, which a program may have disabled. Method for
//! binary16: Fabian Giesen, "Half to float done quick" (2012), public domain.

use super::ops::{Arithmetic, Ordered};

/// binary16 number, stored as its bits.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Half(pub(super) u16);

/// bfloat16 number, stored as its bits.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Bf16(pub(super) u16);

/// Difference between the fraction widths of binary32 and binary16, in bits.
const SHIFT: u32 = 13;
/// Mask of the exponent field of a binary16, shifted left by SHIFT to its position in a binary32.
const HALF_EXPONENT: u32 = 0x7C00 << SHIFT;
/// Difference between the exponent biases of binary32 (127) and binary16 (15), shifted to the
/// exponent field of a binary32.
const REBIAS: u32 = (127 - 15) << 23;
/// 2^-14, the smallest normal binary16, as the bits of a binary32.
const LEAST_NORMAL: u32 = (127 - 14) << 23;
/// 2^16 as the bits of a binary32. The conversion to binary16 converts this number and all larger
/// numbers to infinity.
const BEYOND: u32 = (127 + 16) << 23;
const INFINITE: u32 = 255 << 23;

impl Half {
    #[inline]
    pub(super) fn wide(self) -> f32 {
        let sign = u32::from(self.0 & 0x8000) << 16;
        let moved = u32::from(self.0 & 0x7FFF) << SHIFT;
        let normal = moved + REBIAS;
        // A subnormal: its fraction under the exponent of 2^-14 is too large by 2^-14.
        let subnormal = f32::from_bits(moved + LEAST_NORMAL) - f32::from_bits(LEAST_NORMAL);
        let exponent = moved & HALF_EXPONENT;
        let finite = if exponent == 0 { subnormal.to_bits() } else { normal };
        let bits = if exponent == HALF_EXPONENT { normal + REBIAS } else { finite };
        f32::from_bits(bits | sign)
    }

    /// Rounds `value` to the nearest number of this type, ties to even. A NaN becomes the canonical
    /// NaN.
    #[inline]
    pub(super) fn rounded(value: f32) -> Self {
        /// Addend that rounds a number below 2^-14 and aligns its fraction with that of a binary16.
        const ALIGN: f32 = 0.5;
        let bits = value.to_bits() & 0x7FFF_FFFF;
        let sign = (value.to_bits() >> 16) & 0x8000;
        let small = (f32::from_bits(bits) + ALIGN).to_bits().wrapping_sub(ALIGN.to_bits());
        let odd = (bits >> SHIFT) & 1;
        let normal = bits.wrapping_sub(REBIAS).wrapping_add(0xFFF + odd) >> SHIFT;
        let finite = if bits < LEAST_NORMAL { small } else { normal };
        let number = if bits >= BEYOND { 0x7C00 } else { finite } | sign;
        Half(if bits > INFINITE { 0x7E00 } else { number } as u16)
    }
}

impl Bf16 {
    #[inline]
    pub(super) fn wide(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    /// Rounds `value` to the nearest number of this type, ties to even. A NaN becomes the canonical
    /// NaN.
    #[inline]
    pub(super) fn rounded(value: f32) -> Self {
        let bits = value.to_bits();
        let odd = (bits >> 16) & 1;
        let number = bits.wrapping_add(0x7FFF + odd) >> 16;
        Bf16(if bits & 0x7FFF_FFFF > INFINITE { 0x7FC0 } else { number } as u16)
    }
}

macro_rules! by_binary32 {
    ($($t:ty),+) => {$(
        impl Arithmetic for $t {
            fn sum(self, other: Self) -> Self { Self::rounded(self.wide() + other.wide()) }
            fn product(self, other: Self) -> Self { Self::rounded(self.wide() * other.wide()) }
        }
        impl Ordered for $t {
            const TOTAL: bool = false;
            fn lower(self, other: Self) -> Self {
                let (a, b) = (self.wide(), other.wide());
                if b < a || b.is_nan() { other } else { self }
            }
            fn higher(self, other: Self) -> Self {
                let (a, b) = (self.wide(), other.wide());
                if b > a || b.is_nan() { other } else { self }
            }
        }
    )+};
}
by_binary32!(Half, Bf16);
