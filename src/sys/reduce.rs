//! Element-wise reduction of raw buffers: `into[i] = into[i] ∘ from[i]` for every built-in pair of
//! dtype and operation. Buffers need not be aligned.

use super::buf::Region;
use crate::abi::word::*;

/// Size of a built-in dtype in bytes.
#[must_use]
pub fn dtype_size(dtype: dtl_dtype_t) -> Option<usize> {
    Some(match dtype {
        DTL_DTYPE_INT8 | DTL_DTYPE_UINT8 | DTL_DTYPE_BYTE | DTL_DTYPE_BOOL => 1,
        DTL_DTYPE_INT16 | DTL_DTYPE_UINT16 => 2,
        DTL_DTYPE_INT32 | DTL_DTYPE_UINT32 | DTL_DTYPE_FLOAT32 => 4,
        DTL_DTYPE_INT64 | DTL_DTYPE_UINT64 | DTL_DTYPE_FLOAT64 => 8,
        _ => return None,
    })
}

/// The constant's name without its prefix, for error texts.
#[must_use]
pub fn op_name(op: dtl_reduce_op_t) -> Option<&'static str> {
    const NAMES: [&str; 10] = ["SUM", "PROD", "MIN", "MAX", "LAND", "LOR", "BAND", "BOR", "LXOR", "BXOR"];
    NAMES.get(usize::try_from(op).ok()?).copied()
}

/// The constant's name without its prefix, for error texts.
#[must_use]
pub fn dtype_name(dtype: dtl_dtype_t) -> Option<&'static str> {
    const NAMES: [&str; 12] = [
        "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "FLOAT32", "FLOAT64",
        "BYTE", "BOOL",
    ];
    NAMES.get(usize::try_from(dtype).ok()?).copied()
}

/// Folds `from` into `into` over the elements that both hold.
pub type Kernel = fn(into: Region, from: Region);

/// The kernel of a pair, or `None` if the two do not go together.
#[must_use]
pub fn kernel(dtype: dtl_dtype_t, op: dtl_reduce_op_t) -> Option<Kernel> {
    match dtype {
        DTL_DTYPE_INT8 => integer::<i8>(op),
        DTL_DTYPE_INT16 => integer::<i16>(op),
        DTL_DTYPE_INT32 => integer::<i32>(op),
        DTL_DTYPE_INT64 => integer::<i64>(op),
        DTL_DTYPE_UINT8 => integer::<u8>(op),
        DTL_DTYPE_UINT16 => integer::<u16>(op),
        DTL_DTYPE_UINT32 => integer::<u32>(op),
        DTL_DTYPE_UINT64 => integer::<u64>(op),
        DTL_DTYPE_FLOAT32 => float::<f32>(op),
        DTL_DTYPE_FLOAT64 => float::<f64>(op),
        DTL_DTYPE_BYTE => bitwise::<u8>(op),
        DTL_DTYPE_BOOL => logical::<u8>(op),
        _ => None,
    }
}

fn fold<T: Copy>(into: Region, from: Region, combine: impl Fn(T, T) -> T) {
    let count = into.len().min(from.len()) / size_of::<T>();
    let (to, other) = (into.addr().ptr().cast::<T>(), from.addr().ptr().cast::<T>());
    for index in 0..count {
        let (a, b) = (to.wrapping_add(index), other.wrapping_add(index));
        // SAFETY: index < count, so the element lies in the region that its maker vouches for.
        let left = unsafe { a.read_unaligned() };
        // SAFETY: as above.
        let right = unsafe { b.read_unaligned() };
        // SAFETY: as above; T is a plain number, any bits are valid.
        unsafe { a.write_unaligned(combine(left, right)) };
    }
}

trait Integer: Copy + Ord + Default + PartialEq + 'static {
    fn add(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn truth(value: bool) -> Self;
    fn is_true(self) -> bool {
        self != Self::default()
    }
}

macro_rules! integers {
    ($($t:ty),+) => {$(
        impl Integer for $t {
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            fn mul(self, other: Self) -> Self { self.wrapping_mul(other) }
            fn and(self, other: Self) -> Self { self & other }
            fn or(self, other: Self) -> Self { self | other }
            fn xor(self, other: Self) -> Self { self ^ other }
            fn truth(value: bool) -> Self { Self::from(value) }
        }
    )+};
}
integers!(i8, i16, i32, i64, u8, u16, u32, u64);

fn integer<T: Integer>(op: dtl_reduce_op_t) -> Option<Kernel> {
    Some(match op {
        DTL_OP_SUM => |into, from| fold(into, from, T::add),
        DTL_OP_PROD => |into, from| fold(into, from, T::mul),
        DTL_OP_MIN => |into, from| fold::<T>(into, from, Ord::min),
        DTL_OP_MAX => |into, from| fold::<T>(into, from, Ord::max),
        _ => return bitwise::<T>(op).or_else(|| logical::<T>(op)),
    })
}

fn bitwise<T: Integer>(op: dtl_reduce_op_t) -> Option<Kernel> {
    Some(match op {
        DTL_OP_BAND => |into, from| fold(into, from, T::and),
        DTL_OP_BOR => |into, from| fold(into, from, T::or),
        DTL_OP_BXOR => |into, from| fold(into, from, T::xor),
        _ => return None,
    })
}

fn logical<T: Integer>(op: dtl_reduce_op_t) -> Option<Kernel> {
    Some(match op {
        DTL_OP_LAND => |into, from| fold::<T>(into, from, |a, b| T::truth(a.is_true() && b.is_true())),
        DTL_OP_LOR => |into, from| fold::<T>(into, from, |a, b| T::truth(a.is_true() || b.is_true())),
        DTL_OP_LXOR => |into, from| fold::<T>(into, from, |a, b| T::truth(a.is_true() != b.is_true())),
        _ => return None,
    })
}

trait Float: Copy + PartialOrd + std::ops::Add<Output = Self> + std::ops::Mul<Output = Self> + 'static {
    fn is_nan(self) -> bool;
}

impl Float for f32 {
    fn is_nan(self) -> bool {
        f32::is_nan(self)
    }
}

impl Float for f64 {
    fn is_nan(self) -> bool {
        f64::is_nan(self)
    }
}

fn float<T: Float>(op: dtl_reduce_op_t) -> Option<Kernel> {
    Some(match op {
        DTL_OP_SUM => |into, from| fold::<T>(into, from, |a, b| a + b),
        DTL_OP_PROD => |into, from| fold::<T>(into, from, |a, b| a * b),
        DTL_OP_MIN => |into, from| fold::<T>(into, from, |a, b| if b < a || b.is_nan() { b } else { a }),
        DTL_OP_MAX => |into, from| fold::<T>(into, from, |a, b| if b > a || b.is_nan() { b } else { a }),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn region<T>(data: &mut [T]) -> Region {
        // SAFETY: the slice outlives the fold that uses it.
        unsafe { Region::new(data.as_mut_ptr().cast(), size_of_val(data)) }
    }

    #[test]
    fn pairs_that_make_no_sense_have_no_kernel() {
        assert!(kernel(DTL_DTYPE_FLOAT64, DTL_OP_BAND).is_none());
        assert!(kernel(DTL_DTYPE_FLOAT32, DTL_OP_LAND).is_none());
        assert!(kernel(DTL_DTYPE_BYTE, DTL_OP_SUM).is_none());
        assert!(kernel(DTL_DTYPE_BOOL, DTL_OP_BXOR).is_none());
        assert!(kernel(99, DTL_OP_SUM).is_none());
        assert!(kernel(DTL_DTYPE_INT32, 99).is_none());
        let pairs = (0..12).flat_map(|d| (0..10).map(move |o| (d, o)));
        assert_eq!(pairs.filter(|(d, o)| kernel(*d, *o).is_some()).count(), 8 * 10 + 2 * 4 + 3 + 3);
    }

    #[test]
    fn a_nan_on_either_side_wins() {
        for op in [DTL_OP_MIN, DTL_OP_MAX] {
            for (a, b) in [(f64::NAN, 1.0), (1.0, f64::NAN)] {
                let (mut into, mut from) = ([a], [b]);
                kernel(DTL_DTYPE_FLOAT64, op).unwrap()(region(&mut into), region(&mut from));
                assert!(into[0].is_nan());
            }
        }
    }

    proptest! {
        #[test]
        fn int32_matches_the_scalar_rules(pairs in proptest::collection::vec((any::<i32>(), any::<i32>()), 0..40)) {
            type Rule = fn(i32, i32) -> i32;
            let rules: [(dtl_reduce_op_t, Rule); 10] = [
                (DTL_OP_SUM, i32::wrapping_add), (DTL_OP_PROD, i32::wrapping_mul),
                (DTL_OP_MIN, |a, b| a.min(b)), (DTL_OP_MAX, |a, b| a.max(b)),
                (DTL_OP_LAND, |a, b| i32::from(a != 0 && b != 0)), (DTL_OP_LOR, |a, b| i32::from(a != 0 || b != 0)),
                (DTL_OP_LXOR, |a, b| i32::from((a != 0) != (b != 0))),
                (DTL_OP_BAND, |a, b| a & b), (DTL_OP_BOR, |a, b| a | b), (DTL_OP_BXOR, |a, b| a ^ b),
            ];
            for (op, rule) in rules {
                let mut into: Vec<i32> = pairs.iter().map(|p| p.0).collect();
                let mut from: Vec<i32> = pairs.iter().map(|p| p.1).collect();
                let expected: Vec<i32> = pairs.iter().map(|p| rule(p.0, p.1)).collect();
                kernel(DTL_DTYPE_INT32, op).unwrap()(region(&mut into), region(&mut from));
                prop_assert_eq!(into, expected);
            }
        }
    }
}
