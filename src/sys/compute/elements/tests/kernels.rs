//! Tests that compare the kernels of every dtype and operation with a straightforward
//! implementation, and the instruction sets with each other.

use super::*;
use proptest::prelude::*;

pub(super) fn region<T>(data: &mut [T]) -> Region {
    // SAFETY: the slice outlives the fold that uses it.
    unsafe { Region::new(data.as_mut_ptr().cast(), size_of_val(data)) }
}

/// Returns the bytes of elements without the padding between and after their members.
pub(super) fn without_padding(dtype: dtl_dtype_t, bytes: &[u8]) -> Vec<u8> {
    let (element, padding) = match dtype {
        DTL_DTYPE_FLOAT64_INT32 | DTL_DTYPE_INT64_INT32 => (16, 12..16),
        DTL_DTYPE_INT16_INT32 => (8, 2..4),
        _ => (1, 1..1),
    };
    let places = (0..element).cycle().zip(bytes);
    places.filter(|(place, _)| !padding.contains(place)).map(|(_, byte)| *byte).collect()
}

/// Returns the result of the kernel for a pair of dtype and operation, after checking that all
/// instruction sets give equal results.
fn folded<T: Copy>(dtype: dtl_dtype_t, op: dtl_reduce_op_t, into: &[T], from: &[T]) -> Vec<T> {
    let bytes = |data: &mut [T]| {
        // SAFETY: elements without padding; the slice is not changed while the copy is made.
        unsafe { region(data).as_slice() }.to_vec()
    };
    let mut results = Level::all().into_iter().map(|level| {
        let (mut into, mut from) = (into.to_vec(), from.to_vec());
        let kernel = kernel_at(level, dtype, op).unwrap();
        kernel(region(&mut into), region(&mut into), region(&mut from));
        into
    });
    let mut first = results.next().unwrap();
    for mut other in results {
        assert_eq!(bytes(&mut first), bytes(&mut other), "dtype {dtype}, op {op}: levels differ");
    }
    first
}

/// Returns all pairs of dtype and operation; under Miri, a fifth of the pairs, in which every dtype
/// and every operation occurs.
pub(super) fn pairs() -> impl Iterator<Item = (dtl_dtype_t, dtl_reduce_op_t)> {
    (0..23).flat_map(|dtype| (0..14).map(move |op| (dtype, op))).step_by(if cfg!(miri) {
        5
    } else {
        1
    })
}

#[test]
fn pairs_that_make_no_sense_have_no_kernel() {
    assert!(kernel(DTL_DTYPE_FLOAT64, DTL_OP_BAND).is_none());
    assert!(kernel(DTL_DTYPE_COMPLEX64, DTL_OP_MIN).is_none());
    assert!(kernel(DTL_DTYPE_INT32, DTL_OP_MINLOC).is_none());
    assert!(kernel(DTL_DTYPE_INT32_INT32, DTL_OP_SUM).is_none());
    assert!(kernel(99, DTL_OP_REPLACE).is_none());
    assert!(kernel(DTL_DTYPE_INT32, 99).is_none());
    let pairs = (0..40).flat_map(|d| (-1..20).map(move |o| (d, o)));
    let expected = 8 * 10 + 4 * 4 + 3 + 3 + 2 * 2 + 7 * 2 + 23 * 2;
    assert_eq!(pairs.filter(|(d, o)| kernel(*d, *o).is_some()).count(), expected);
}

#[test]
fn names_and_sizes_are_those_of_the_constants() {
    assert_eq!(dtype_name(DTL_DTYPE_INT64_INT64), Some(c"INT64_INT64"));
    assert_eq!(dtype_name(DTL_DTYPE_BFLOAT16), Some(c"BFLOAT16"));
    assert_eq!((dtype_name(23), op_name(14)), (None, None));
    assert_eq!((op_name(DTL_OP_BXOR), op_name(DTL_OP_NO_OP)), (Some(c"BXOR"), Some(c"NO_OP")));
    assert_eq!(dtype_size(DTL_DTYPE_FLOAT64_INT32), Some(size_of::<Pair<f64, i32>>()));
    assert_eq!(dtype_size(DTL_DTYPE_INT64_INT32), Some(size_of::<Pair<i64, i32>>()));
    assert_eq!(dtype_size(DTL_DTYPE_INT16_INT32), Some(size_of::<Pair<i16, i32>>()));
    assert_eq!(dtype_size(DTL_DTYPE_COMPLEX128), Some(size_of::<Complex<f64>>()));
}

/// Returns 2^exponent exactly, for the exponents of normal numbers.
fn power(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// Returns the value of a 16-bit float, computed from the definition of the format.
fn meaning(bits: u16, fraction_bits: i32, bias: i32) -> f64 {
    let fraction = f64::from(bits & ((1 << fraction_bits) - 1)) / power(fraction_bits);
    let exponents = 1 << (15 - fraction_bits);
    let exponent = i32::from(bits >> fraction_bits) & (exponents - 1);
    let magnitude = match exponent {
        0 => fraction * power(1 - bias),
        e if e == exponents - 1 && fraction == 0.0 => f64::INFINITY,
        e if e == exponents - 1 => f64::NAN,
        e => (1.0 + fraction) * power(e - bias),
    };
    if bits & 0x8000 != 0 { -magnitude } else { magnitude }
}

/// Checks that every 16-bit value is unchanged by a conversion to binary32 and back, and that a
/// number between two adjacent values is rounded to the nearer value or, if both are equally near,
/// to the even value.
fn check_format(fraction_bits: i32, bias: i32, wide: fn(u16) -> f32, rounded: fn(f32) -> u16) {
    let infinite = 0x7FFF >> fraction_bits << fraction_bits;
    for bits in (0..=u16::MAX).step_by(if cfg!(miri) { 97 } else { 1 }) {
        let exact = meaning(bits, fraction_bits, bias);
        let (wide_value, sign) = (wide(bits), bits & 0x8000);
        if exact.is_nan() {
            assert!(wide_value.is_nan(), "{bits:#x}");
            assert_eq!(rounded(wide_value), infinite | 1 << (fraction_bits - 1), "one NaN");
            continue;
        }
        assert_eq!(f64::from(wide_value).to_bits(), exact.to_bits(), "{bits:#x}");
        assert_eq!(rounded(wide_value), bits);
        if exact.is_infinite() {
            continue;
        }
        let above = bits + 1; // in magnitude; the first beyond the largest is infinity
        let next = match above & 0x7FFF == infinite {
            true => power(bias + 1).copysign(exact),
            false => meaning(above, fraction_bits, bias),
        };
        let middle = ((exact + next) / 2.0) as f32;
        assert_eq!(f64::from(middle), (exact + next) / 2.0, "the middle is a binary32");
        assert_eq!(rounded(middle), if bits & 1 == 0 { bits } else { above }, "{bits:#x}: a tie");
        assert_eq!(
            rounded(f32::from_bits(middle.to_bits() - 1)),
            bits,
            "{bits:#x}: below the middle"
        );
        assert_eq!(
            rounded(f32::from_bits(middle.to_bits() + 1)),
            above,
            "{bits:#x}: above the middle"
        );
        assert_eq!(rounded(middle) & 0x8000, sign);
    }
}

#[test]
fn binary16_converts_as_defined() {
    check_format(10, 15, |bits| Half(bits).wide(), |value| Half::rounded(value).0);
}

#[test]
fn bfloat16_converts_as_defined() {
    check_format(7, 127, |bits| Bf16(bits).wide(), |value| Bf16::rounded(value).0);
}

#[test]
fn locations() {
    const NAN: f64 = f64::NAN;
    type Located = (f64, i32);
    let cases: [(Located, Located, bool, bool); 8] = [
        // left, right: true where the right operand wins MINLOC, MAXLOC
        ((1.0, 5), (2.0, 3), false, true),
        ((2.0, 5), (1.0, 9), true, false),
        ((1.0, 5), (1.0, 3), true, true),
        ((1.0, 3), (1.0, 5), false, false),
        ((NAN, 5), (1.0, 3), false, false),
        ((1.0, 5), (NAN, 9), true, true),
        ((NAN, 5), (NAN, 3), true, true),
        ((NAN, 3), (NAN, 5), false, false),
    ];
    for (left, right, min, max) in cases {
        for (op, right_wins) in [(DTL_OP_MINLOC, min), (DTL_OP_MAXLOC, max)] {
            let pair = |(value, index)| Pair { value, index };
            let (mut into, mut from) = ([pair(left)], [pair(right)]);
            let kernel = kernel(DTL_DTYPE_FLOAT64_INT32, op).unwrap();
            kernel(region(&mut into), region(&mut into), region(&mut from));
            let winner = if right_wins { right } else { left };
            assert_eq!((into[0].value.to_bits(), into[0].index), (winner.0.to_bits(), winner.1));
        }
    }
}

macro_rules! integers_by_rules {
    ($a:expr, $b:expr; $($t:ident $dtype:ident),+) => {$(
        type Rule = fn($t, $t) -> $t;
        let rules: [(dtl_reduce_op_t, Rule); 12] = [
            (DTL_OP_SUM, |a, b| a.wrapping_add(b)), (DTL_OP_PROD, |a, b| a.wrapping_mul(b)),
            (DTL_OP_MIN, |a, b| a.min(b)), (DTL_OP_MAX, |a, b| a.max(b)),
            (DTL_OP_LAND, |a, b| $t::from(a != 0 && b != 0)),
            (DTL_OP_LOR, |a, b| $t::from(a != 0 || b != 0)),
            (DTL_OP_LXOR, |a, b| $t::from((a != 0) != (b != 0))),
            (DTL_OP_BAND, |a, b| a & b), (DTL_OP_BOR, |a, b| a | b), (DTL_OP_BXOR, |a, b| a ^ b),
            (DTL_OP_REPLACE, |_, b| b), (DTL_OP_NO_OP, |a, _| a),
        ];
        let a: Vec<$t> = $a.iter().map(|n| *n as $t).collect();
        let b: Vec<$t> = $b.iter().map(|n| *n as $t).collect();
        for (op, rule) in rules {
            let expected: Vec<$t> = a.iter().zip(&b).map(|(a, b)| rule(*a, *b)).collect();
            prop_assert_eq!(folded($dtype, op, &a, &b), expected);
        }
    )+};
}

macro_rules! floats_by_rules {
    ($a:expr, $b:expr; $t:ident $bits:ident $dtype:ident) => {{
        let least = |a: $t, b: $t, less: bool| match (a.is_nan(), b.is_nan()) {
            (_, true) => b,
            (true, _) => a,
            _ if less => b,
            _ => a,
        };
        let one_nan = |x: $t| if x.is_nan() { $t::NAN } else { x };
        for op in [DTL_OP_SUM, DTL_OP_PROD, DTL_OP_MIN, DTL_OP_MAX] {
            let rule = |(a, b): (&$bits, &$bits)| {
                let (a, b) = ($t::from_bits(*a), $t::from_bits(*b));
                let result = match op {
                    DTL_OP_SUM => one_nan(a + b),
                    DTL_OP_PROD => one_nan(a * b),
                    DTL_OP_MIN => least(a, b, b < a),
                    _ => least(a, b, b > a),
                };
                result.to_bits()
            };
            let expected: Vec<$bits> = $a.iter().zip(&$b).map(rule).collect();
            prop_assert_eq!(folded($dtype, op, &$a, &$b), expected, "op {}", op);
        }
    }};
}

/// Generates arbitrary bit patterns, with a preference for the patterns of special values such as
/// NaN and infinity.
fn words() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let special =
        [0, f64::NAN.to_bits(), u64::MAX, f64::INFINITY.to_bits(), (-0.0_f64).to_bits(), 1];
    let word = || prop_oneof![4 => any::<u64>(), 1 => proptest::sample::select(special.to_vec())];
    proptest::collection::vec((word(), word()), 0..100)
}

proptest! {
    #[test]
    fn integers_match_the_plain_rules(pairs in words()) {
        let (a, b): (Vec<u64>, Vec<u64>) = pairs.into_iter().unzip();
        integers_by_rules!(a, b; i8 DTL_DTYPE_INT8);
        { integers_by_rules!(a, b; i16 DTL_DTYPE_INT16); }
        { integers_by_rules!(a, b; i32 DTL_DTYPE_INT32); }
        { integers_by_rules!(a, b; i64 DTL_DTYPE_INT64); }
        { integers_by_rules!(a, b; u8 DTL_DTYPE_UINT8); }
        { integers_by_rules!(a, b; u16 DTL_DTYPE_UINT16); }
        { integers_by_rules!(a, b; u32 DTL_DTYPE_UINT32); }
        { integers_by_rules!(a, b; u64 DTL_DTYPE_UINT64); }
    }

    #[test]
    fn floats_match_the_plain_rules(pairs in words()) {
        let (a, b): (Vec<u64>, Vec<u64>) = pairs.into_iter().unzip();
        floats_by_rules!(a, b; f64 u64 DTL_DTYPE_FLOAT64);
        let (a, b): (Vec<u32>, Vec<u32>) = a.iter().zip(&b).map(|(a, b)| ((a >> 32) as u32,
            (b >> 32) as u32)).unzip();
        floats_by_rules!(a, b; f32 u32 DTL_DTYPE_FLOAT32);
    }

    #[test]
    fn sixteen_bit_floats_are_rounded_once(pairs in words()) {
        let (a, b): (Vec<u16>, Vec<u16>) = pairs.iter().map(|(a, b)| ((a >> 48) as u16,
            (b >> 48) as u16)).unzip();
        for (dtype, fraction, bias) in [(DTL_DTYPE_FLOAT16, 10, 15), (DTL_DTYPE_BFLOAT16, 7, 127)] {
            for op in [DTL_OP_SUM, DTL_OP_PROD, DTL_OP_MIN, DTL_OP_MAX] {
                let results = folded(dtype, op, &a, &b);
                for (index, result) in results.iter().enumerate() {
                    let (a, b) = (meaning(a[index], fraction, bias), meaning(b[index], fraction,
                        bias));
                    // Sum and product of two 16-bit floats; binary64 may round the sum of bfloat16s
                    // far apart, where the smaller one only breaks ties.
                    let exact = match op {
                        DTL_OP_SUM => f64::from(a as f32 + b as f32),
                        DTL_OP_PROD => f64::from(a as f32 * b as f32),
                        _ if a.is_nan() || b.is_nan() => f64::NAN,
                        DTL_OP_MIN => if b < a { b } else { a },
                        _ => if b > a { b } else { a },
                    };
                    let got = meaning(*result, fraction, bias);
                    if exact.is_nan() {
                        prop_assert!(got.is_nan());
                    } else if dtype == DTL_DTYPE_FLOAT16 {
                        prop_assert_eq!(*result, Half::rounded(exact as f32).0);
                    } else {
                        prop_assert_eq!(*result, Bf16::rounded(exact as f32).0);
                    }
                }
            }
        }
    }

    #[test]
    fn complex_numbers_match_the_plain_formula(pairs in words()) {
        let split = |n: &u64| Complex { re: f32::from_bits((n >> 32) as u32),
            im: f32::from_bits(*n as u32) };
        let a: Vec<_> = pairs.iter().map(|pair| split(&pair.0)).collect();
        let b: Vec<_> = pairs.iter().map(|pair| split(&pair.1)).collect();
        let one_nan = |x: f32| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() };
        for op in [DTL_OP_SUM, DTL_OP_PROD] {
            let results = folded(DTL_DTYPE_COMPLEX64, op, &a, &b);
            for ((a, b), got) in a.iter().zip(&b).zip(results) {
                let (re, im) = match op {
                    DTL_OP_SUM => (a.re + b.re, a.im + b.im),
                    _ => (a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re),
                };
                prop_assert_eq!((got.re.to_bits(), got.im.to_bits()), (one_nan(re), one_nan(im)));
            }
        }
    }

    /// Checks that a kernel produces bitwise equal results, including for NaNs and zeros, whether
    /// the result replaces the left operand, the right operand or neither of them.
    #[test]
    fn the_place_of_the_result_does_not_matter(
        a in proptest::collection::vec(any::<u8>(), 64),
            b in proptest::collection::vec(any::<u8>(), 64)
    ) {
        let zeros = |sign| (0..8).flat_map(|_| [0, 0, 0, 0, 0, 0, 0, sign]).collect::<Vec<u8>>();
        for (left, right) in [(a, b), (zeros(0), zeros(0x80)), (zeros(0x80), zeros(0)),
            (vec![0xFF; 64], vec![0x7F; 64])] {
            for (dtype, op) in pairs() {
                for level in Level::all() {
                    let Some(kernel) = kernel_at(level, dtype, op) else { continue };
                    let [mut a, mut b, mut c, mut d] = [&left, &right, &left, &right]
                        .map(Vec::clone);
                    let mut e = vec![1; left.len()];
                    kernel(region(&mut e), region(&mut a), region(&mut b));
                    prop_assert_eq!((&a, &b), (&left, &right), "the operands stay");
                    kernel(region(&mut a), region(&mut a), region(&mut b));
                    kernel(region(&mut d), region(&mut c), region(&mut d));
                    prop_assert_eq!((&b, &c), (&right, &left), "the other operand stays");
                    let [a, d, e] = [&a, &d, &e].map(|bytes| without_padding(dtype, bytes));
                    prop_assert_eq!((&a, &a), (&d, &e), "dtype {}, op {}", dtype, op);
                }
            }
        }
    }

    /// Checks that the reduction of an unaligned buffer into itself gives the same result as the
    /// reduction of one of two equal buffers into the other.
    #[test]
    fn places_do_not_matter(bytes in proptest::collection::vec(any::<u8>(), 64..400),
        shift in 0..16_usize) {
        for (dtype, op) in pairs() {
            for level in Level::all() {
                let Some(kernel) = kernel_at(level, dtype, op) else { continue };
                let len = (bytes.len() - 16) / 16 * 16;
                let (mut plain, mut moved) = (bytes[..len].to_vec(), vec![0; len + 16]);
                moved[shift..shift + len].copy_from_slice(&plain);
                let mut same = plain.clone();
                kernel(region(&mut plain), region(&mut plain), region(&mut same));
                let odd = region(&mut moved).part(shift, len);
                kernel(odd, odd, odd);
                let [moved, plain] =
                    [&moved[shift..shift + len], &plain].map(|bytes| without_padding(dtype, bytes));
                prop_assert_eq!(moved, plain, "dtype {}, op {}", dtype, op);
            }
        }
    }
}
