//! Element types with two members: complex numbers, and pairs of value and index for MINLOC and
//! MAXLOC. Their memory layout is that of the corresponding C struct.

use super::arithmetic::Float;
use super::ops::{Arithmetic, Ordered};

/// Complex number: real part, imaginary part.
#[derive(Clone, Copy, PartialEq, Debug)]
#[repr(C)]
pub(super) struct Complex<T> {
    pub(super) re: T,
    pub(super) im: T,
}

impl<T: Float> Arithmetic for Complex<T> {
    fn sum(self, other: Self) -> Self {
        Complex { re: (self.re + other.re).one_nan(), im: (self.im + other.im).one_nan() }
    }

    /// Returns the product, computed by the textbook formula. Does not recover infinities as Annex
    /// G of the C standard specifies.
    fn product(self, other: Self) -> Self {
        let re = self.re * other.re - self.im * other.im;
        let im = self.re * other.im + self.im * other.re;
        Complex { re: re.one_nan(), im: im.one_nan() }
    }
}

/// Value with its index. Padding may be copied, but is never read as a value.
#[derive(Clone, Copy, PartialEq, Debug)]
#[repr(C)]
pub(super) struct Pair<V, I> {
    pub(super) value: V,
    pub(super) index: I,
}

impl<V: PartialOrd + Copy, I: Ord + Copy> Pair<V, I> {
    /// Returns the pair whose value is better according to `is_better`. A NaN (which does not
    /// compare equal to itself) wins over numbers. If neither pair is better, the pair with the
    /// lower index is returned.
    pub(super) fn better(self, other: Self, is_better: impl Fn(V, V) -> bool) -> Self {
        let is_nan = |pair: Self| pair.value.partial_cmp(&pair.value).is_none();
        let other_wins = match (is_nan(self), is_nan(other)) {
            (true, false) => false,
            (false, true) => true,
            _ if is_better(self.value, other.value) => false,
            _ if is_better(other.value, self.value) => true,
            _ => other.index < self.index,
        };
        if other_wins { other } else { self }
    }
}

impl<V: PartialOrd + Copy + 'static, I: Ord + Copy + 'static> Ordered for Pair<V, I> {
    const TOTAL: bool = false;

    fn lower(self, other: Self) -> Self {
        self.better(other, |a, b| a < b)
    }

    fn higher(self, other: Self) -> Self {
        self.better(other, |a, b| a > b)
    }
}
