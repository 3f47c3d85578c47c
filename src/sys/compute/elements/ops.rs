//! Reduction operations, each on two elements. The traits here describe the elements; `arithmetic`,
//! `half` and `pair_types` implement them. The loops are in `simd`.

use std::marker::PhantomData;

/// Operation on one dtype. It is a type and not a closure, so that a function pointer can refer to
/// a loop compiled for this operation.
pub(super) trait Rule: 'static {
    type Element: Copy;
    /// `of(a, b)` and `of(b, a)` have the same bits, for all elements.
    const COMMUTES: bool;
    fn of(left: Self::Element, right: Self::Element) -> Self::Element;
}

/// Elements that can be added and multiplied.
pub(super) trait Arithmetic: Copy + 'static {
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
}

/// Element types with minimum and maximum operations. If only one operand is a NaN, the result is
/// that NaN. If both are NaNs, the result is the right operand.
pub(super) trait Ordered: Copy + 'static {
    /// Values that compare equal have the same bits, and none is a NaN.
    const TOTAL: bool;
    fn lower(self, other: Self) -> Self;
    fn higher(self, other: Self) -> Self;
}

/// Elements with a truth value: false is 0.
pub(super) trait Logical: Copy + 'static {
    fn is_true(self) -> bool;
    fn truth(value: bool) -> Self;
}

macro_rules! rules {
    ($($name:ident<$t:ident: $can:ident>($a:ident, $b:ident) $of:expr, $commutes:expr;)+) => {$(
        pub(super) struct $name<$t>(PhantomData<$t>);
        impl<$t: $can> Rule for $name<$t> {
            type Element = $t;
            const COMMUTES: bool = $commutes;
            #[inline]
            fn of($a: $t, $b: $t) -> $t { $of }
        }
    )+};
}
rules! {
    Sum<T: Arithmetic>(a, b) a.sum(b), true;
    Prod<T: Arithmetic>(a, b) a.product(b), true;
    Min<T: Ordered>(a, b) a.lower(b), T::TOTAL;
    Max<T: Ordered>(a, b) a.higher(b), T::TOTAL;
    And<T: Logical>(a, b) T::truth(a.is_true() & b.is_true()), true;
    Or<T: Logical>(a, b) T::truth(a.is_true() | b.is_true()), true;
    Xor<T: Logical>(a, b) T::truth(a.is_true() ^ b.is_true()), true;
}

macro_rules! bit_rules {
    ($($name:ident($a:ident, $b:ident) $of:expr;)+) => {$(
        pub(super) struct $name;
        impl Rule for $name {
            type Element = u8;
            const COMMUTES: bool = true;
            #[inline]
            fn of($a: u8, $b: u8) -> u8 { $of }
        }
    )+};
}
bit_rules! {
    BitAnd(a, b) a & b;
    BitOr(a, b) a | b;
    BitXor(a, b) a ^ b;
}
