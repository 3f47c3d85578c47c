//! Elements of two members: complex numbers, and pairs of value and index for MINLOC and MAXLOC.
//! They are laid out as C lays out the struct.

use super::arithmetic::Float;
use super::ops::Arithmetic;

/// Real part, imaginary part.
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

    /// The plain formula: infinities are not repaired as C's Annex G does.
    #[inline]
    fn product(self, other: Self) -> Self {
        let re = self.re * other.re - self.im * other.im;
        let im = self.re * other.im + self.im * other.re;
        Complex { re: re.one_nan(), im: im.one_nan() }
    }
}

/// A value and where it is. Padding is copied along at most, never looked at.
#[derive(Clone, Copy, PartialEq, Debug)]
#[repr(C)]
pub(super) struct Pair<V, I> {
    pub(super) value: V,
    pub(super) index: I,
}

impl<V: PartialOrd + Copy, I: Ord + Copy> Pair<V, I> {
    /// The better one. A NaN (which does not compare with itself) beats numbers; where neither is
    /// better, the lower index decides.
    #[inline]
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
