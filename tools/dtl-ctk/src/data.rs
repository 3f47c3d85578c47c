//! Data of the test cases: element types, the formula for each input, and the hash of the outputs.
//! This module does not depend on communicators. tests/oracle/element.h has the same formulas in C.
//!
//! Operands of reductions are small, so that the result is exact for every dtype and any order of
//! operands.

use dtl_sys::*;

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// Fill byte of receive buffers, which makes it possible to detect writes to bytes that must not be
/// written.
pub(crate) const FILLER: u8 = 0xA5;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    Signed,
    Unsigned,
    Float,
    Byte,
    Bool,
    /// Complex number: real and imaginary part.
    Complex,
    /// Pair of a value and an index.
    Pair,
    /// Six 32-bit numbers below 251, for user-defined operations.
    User,
}

/// Numbers by which dtl-ctk refers to its user-defined dtype and to its two user-defined
/// operations. The module `user` maps these numbers to those that the library assigned.
pub(crate) const USER_DTYPE: dtl_dtype_t = 100;
pub(crate) const USER_SUM: dtl_reduce_op_t = 100;
pub(crate) const USER_MATRIX: dtl_reduce_op_t = 101;

/// Element type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Type {
    pub(crate) dtype: dtl_dtype_t,
    pub(crate) name: &'static str,
    pub(crate) size: usize,
    pub(crate) class: Class,
}

const fn ty(dtype: dtl_dtype_t, name: &'static str, size: usize, class: Class) -> Type {
    Type { dtype, name, size, class }
}

pub(crate) const TYPES: [Type; 24] = [
    ty(DTL_DTYPE_INT8, "int8", 1, Class::Signed),
    ty(DTL_DTYPE_INT16, "int16", 2, Class::Signed),
    ty(DTL_DTYPE_INT32, "int32", 4, Class::Signed),
    ty(DTL_DTYPE_INT64, "int64", 8, Class::Signed),
    ty(DTL_DTYPE_UINT8, "uint8", 1, Class::Unsigned),
    ty(DTL_DTYPE_UINT16, "uint16", 2, Class::Unsigned),
    ty(DTL_DTYPE_UINT32, "uint32", 4, Class::Unsigned),
    ty(DTL_DTYPE_UINT64, "uint64", 8, Class::Unsigned),
    ty(DTL_DTYPE_FLOAT32, "float32", 4, Class::Float),
    ty(DTL_DTYPE_FLOAT64, "float64", 8, Class::Float),
    ty(DTL_DTYPE_BYTE, "byte", 1, Class::Byte),
    ty(DTL_DTYPE_BOOL, "bool", 1, Class::Bool),
    ty(DTL_DTYPE_FLOAT16, "float16", 2, Class::Float),
    ty(DTL_DTYPE_BFLOAT16, "bfloat16", 2, Class::Float),
    ty(DTL_DTYPE_COMPLEX64, "complex64", 8, Class::Complex),
    ty(DTL_DTYPE_COMPLEX128, "complex128", 16, Class::Complex),
    ty(DTL_DTYPE_FLOAT32_INT32, "float32_int32", 8, Class::Pair),
    ty(DTL_DTYPE_FLOAT64_INT32, "float64_int32", 16, Class::Pair),
    ty(DTL_DTYPE_INT32_INT32, "int32_int32", 8, Class::Pair),
    ty(DTL_DTYPE_INT64_INT32, "int64_int32", 16, Class::Pair),
    ty(DTL_DTYPE_INT16_INT32, "int16_int32", 8, Class::Pair),
    ty(DTL_DTYPE_FLOAT64_INT64, "float64_int64", 16, Class::Pair),
    ty(DTL_DTYPE_INT64_INT64, "int64_int64", 16, Class::Pair),
    ty(USER_DTYPE, "user", 24, Class::User),
];

/// Reduction operations with their names.
pub(crate) const REDUCTIONS: [(dtl_reduce_op_t, &str); 16] = [
    (DTL_OP_SUM, "sum"),
    (DTL_OP_PROD, "prod"),
    (DTL_OP_MIN, "min"),
    (DTL_OP_MAX, "max"),
    (DTL_OP_LAND, "land"),
    (DTL_OP_LOR, "lor"),
    (DTL_OP_BAND, "band"),
    (DTL_OP_BOR, "bor"),
    (DTL_OP_LXOR, "lxor"),
    (DTL_OP_BXOR, "bxor"),
    (DTL_OP_MINLOC, "minloc"),
    (DTL_OP_MAXLOC, "maxloc"),
    (DTL_OP_REPLACE, "replace"),
    (DTL_OP_NO_OP, "no_op"),
    (USER_SUM, "user sum"),
    (USER_MATRIX, "user matrix product"),
];

pub(crate) fn reduction_name(op: dtl_reduce_op_t) -> &'static str {
    REDUCTIONS.into_iter().find(|(known, _)| *known == op).map_or("?", |(_, name)| name)
}

/// Returns true if a reduction operation is defined for a class of types.
pub(crate) fn go_together(op: dtl_reduce_op_t, class: Class) -> bool {
    let is_integer = matches!(class, Class::Signed | Class::Unsigned);
    match op {
        DTL_OP_REPLACE | DTL_OP_NO_OP => true,
        DTL_OP_MINLOC | DTL_OP_MAXLOC => class == Class::Pair,
        USER_SUM | USER_MATRIX => class == Class::User,
        DTL_OP_SUM | DTL_OP_PROD if class == Class::Complex => true,
        DTL_OP_SUM | DTL_OP_PROD | DTL_OP_MIN | DTL_OP_MAX => is_integer || class == Class::Float,
        DTL_OP_LAND | DTL_OP_LOR | DTL_OP_LXOR => is_integer || class == Class::Bool,
        _ => is_integer || class == Class::Byte,
    }
}

/// Mixes the bits of a number (last step of splitmix64).
pub(crate) fn mix(number: u64) -> u64 {
    let mut z = number;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Origin of an input: all parameters on which its values depend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// Key from which the step's data is generated (result of [`key`]).
    pub(crate) key: u64,
    /// Rank in the case's communicator that provides the input.
    pub(crate) source: u64,
    /// Number of ranks of the job. The values are small enough for an exact reduction over that
    /// many operands.
    pub(crate) ranks: u64,
}

/// Returns the key from which a step's data is generated, in the communicator with the given color.
pub(crate) fn key(seed: u64, case: u64, step: u64, color: u64) -> u64 {
    [case, step, color]
        .into_iter()
        .fold(mix(seed ^ GOLDEN), |key, part| mix(key ^ part.wrapping_mul(GOLDEN)))
}

/// Fills `out` with the input elements that `from` determines, starting at element index `block` x
/// 2^40. With a `reduction`, the values are small operands; otherwise they are arbitrary, because
/// the test step only copies them.
pub(crate) fn fill(
    out: &mut [u8],
    ty: Type,
    reduction: Option<dtl_reduce_op_t>,
    from: Origin,
    block: u64,
) {
    let key = mix(from.key ^ (from.source + 1).wrapping_mul(GOLDEN));
    for (index, element) in out.chunks_exact_mut(ty.size).enumerate() {
        let word = mix(key.wrapping_add(((block << 40) + index as u64).wrapping_mul(GOLDEN)));
        encode(element, ty, input(word, ty, reduction, from));
    }
}

/// Returns the value of an input element, derived from the random number `word`.
fn input(word: u64, ty: Type, reduction: Option<dtl_reduce_op_t>, from: Origin) -> i64 {
    let signed = matches!(ty.class, Class::Signed | Class::Float);
    let modulo = |count: u64| (word % count) as i64;
    match (ty.class, reduction) {
        (Class::Pair, _) => return join(modulo(5) - 2, (word >> 32) as i64 % 100),
        (Class::User, _) => return join_six(word.to_le_bytes().map(|byte| byte % 251)),
        // Two factors with parts of 1 and -1: no product has a negative zero.
        (Class::Complex, Some(DTL_OP_PROD)) if from.source > 1 => return join(1, 0),
        (Class::Complex, Some(DTL_OP_PROD)) => {
            return join(1 - 2 * modulo(2), 1 - 2 * ((word >> 32) as i64 % 2));
        }
        (Class::Complex, _) => return join(modulo(3) - 1, (word >> 32) as i64 % 3 - 1),
        _ => {}
    }
    match reduction {
        Some(DTL_OP_SUM) => {
            let limit = (100 / from.ranks).clamp(1, 7);
            if signed { modulo(2 * limit + 1) - limit as i64 } else { modulo(limit + 1) }
        }
        Some(DTL_OP_PROD) => {
            let value = if from.source < 3 { 1 + modulo(2) } else { 1 };
            if signed && word & 2 != 0 { -value } else { value }
        }
        Some(DTL_OP_MIN | DTL_OP_MAX) => modulo(101) - if signed { 50 } else { 0 },
        Some(DTL_OP_LAND | DTL_OP_LOR | DTL_OP_LXOR) if ty.class != Class::Bool => modulo(3),
        _ if ty.class == Class::Bool => modulo(2),
        // Any bits, but no floating-point numbers that a copy through a register could change.
        _ if ty.class == Class::Float => modulo(if ty.size == 2 { 256 } else { 1 << 20 }),
        _ => word as i64,
    }
}

/// Packs the two parts of a pair or complex number (32 bits each) into one 64-bit value.
pub(crate) fn join(first: i64, second: i64) -> i64 {
    (first << 32) | i64::from(second as u32)
}

/// Splits a value created by [`join`] into its two 32-bit halves.
pub(crate) fn parts(value: i64) -> (i64, i64) {
    (value >> 32, i64::from(value as i32))
}

/// Packs the first six of eight 8-bit numbers into one value (48 bits, little-endian).
fn join_six(numbers: [u8; 8]) -> i64 {
    i64::from_le_bytes(numbers) & ((1 << 48) - 1)
}

/// Returns the types of the two parts of a pair or complex number, and the offset of the second
/// part.
fn parts_of(ty: Type) -> Option<(Type, Type, usize)> {
    // For each element of a pair: no copy of the table, whose first types these are.
    let of = |dtype: dtl_dtype_t| TYPES.iter().find(|ty| ty.dtype == dtype).copied();
    let (first, second) = match ty.dtype {
        DTL_DTYPE_COMPLEX64 => (DTL_DTYPE_FLOAT32, DTL_DTYPE_FLOAT32),
        DTL_DTYPE_COMPLEX128 => (DTL_DTYPE_FLOAT64, DTL_DTYPE_FLOAT64),
        DTL_DTYPE_FLOAT32_INT32 => (DTL_DTYPE_FLOAT32, DTL_DTYPE_INT32),
        DTL_DTYPE_FLOAT64_INT32 => (DTL_DTYPE_FLOAT64, DTL_DTYPE_INT32),
        DTL_DTYPE_INT32_INT32 => (DTL_DTYPE_INT32, DTL_DTYPE_INT32),
        DTL_DTYPE_INT64_INT32 => (DTL_DTYPE_INT64, DTL_DTYPE_INT32),
        DTL_DTYPE_INT16_INT32 => (DTL_DTYPE_INT16, DTL_DTYPE_INT32),
        DTL_DTYPE_FLOAT64_INT64 => (DTL_DTYPE_FLOAT64, DTL_DTYPE_INT64),
        DTL_DTYPE_INT64_INT64 => (DTL_DTYPE_INT64, DTL_DTYPE_INT64),
        _ => return None,
    };
    // Natural alignment: no member is larger than half of the element.
    Some((of(first)?, of(second)?, ty.size / 2))
}

/// Replaces the padding of each pair with the expected bytes, because a reduction may leave the
/// padding in any state.
pub(crate) fn settle_padding(is: &mut [u8], expected: &[u8], ty: Type) {
    let Some((first, second, place)) = parts_of(ty) else { return };
    for (is, expected) in is.chunks_exact_mut(ty.size).zip(expected.chunks_exact(ty.size)) {
        is[first.size..place].copy_from_slice(&expected[first.size..place]);
        is[place + second.size..].copy_from_slice(&expected[place + second.size..]);
    }
}

/// Encodes a small whole number as binary16.
fn half(value: i64) -> u16 {
    let bits = (value as f32).to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    // Exponents count from 127 there, from 15 here.
    if value == 0 { 0 } else { sign | ((bits >> 13) - ((127 - 15) << 10)) as u16 & 0x7FFF }
}

/// Decodes a finite binary16 number and truncates it to an integer.
fn whole(bits: u16) -> i64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let size = (1.0 + fraction / 1024.0) * f64::from(exponent - 15).exp2();
    let value = if exponent == 0 { 0 } else { size as i64 };
    if bits >> 15 == 1 { -value } else { value }
}

/// Stores a value as an element, truncated to the width of the element type.
pub(crate) fn encode(element: &mut [u8], ty: Type, value: i64) {
    if let Some((first, second, place)) = parts_of(ty) {
        let (a, b) = parts(value);
        element.fill(0);
        encode(&mut element[..first.size], first, a);
        return encode(&mut element[place..place + second.size], second, b);
    }
    match (ty.class, ty.size) {
        (Class::User, _) => {
            for (number, byte) in element.chunks_exact_mut(4).zip(value.to_le_bytes()) {
                number.copy_from_slice(&u32::from(byte).to_le_bytes());
            }
        }
        (Class::Float, 2) if ty.dtype == DTL_DTYPE_FLOAT16 => {
            element.copy_from_slice(&half(value).to_le_bytes());
        }
        (Class::Float, 2) => element.copy_from_slice(&(value as f32).to_le_bytes()[2..]),
        (Class::Float, 4) => element.copy_from_slice(&(value as f32).to_le_bytes()),
        (Class::Float, _) => element.copy_from_slice(&(value as f64).to_le_bytes()),
        (_, size) => element.copy_from_slice(&value.to_le_bytes()[..size]),
    }
}

/// Returns the value of an element.
pub(crate) fn decode(element: &[u8], ty: Type) -> i64 {
    if let Some((first, second, place)) = parts_of(ty) {
        let (a, b) = (&element[..first.size], &element[place..place + second.size]);
        return join(decode(a, first), decode(b, second));
    }
    let mut bytes = [0; 8];
    if ty.class == Class::User {
        bytes.iter_mut().zip(element.chunks_exact(4)).for_each(|(byte, number)| *byte = number[0]);
        return i64::from_le_bytes(bytes);
    }
    bytes[..ty.size].copy_from_slice(element);
    let raw = u64::from_le_bytes(bytes);
    let unused = 64 - 8 * ty.size as u32;
    match ty.class {
        Class::Float if ty.dtype == DTL_DTYPE_FLOAT16 => whole(raw as u16),
        Class::Float if ty.size == 2 => f32::from_bits((raw as u32) << 16) as i64,
        Class::Float if ty.size == 4 => f32::from_bits(raw as u32) as i64,
        Class::Float => f64::from_bits(raw) as i64,
        Class::Signed => ((raw << unused) as i64) >> unused,
        _ => raw as i64,
    }
}

/// Formats an element: its value, or its bytes if it is not a single number.
pub(crate) fn show(element: &[u8], ty: Type) -> String {
    if element.len() != ty.size {
        return format!("{element:?}");
    }
    match (ty.class, ty.size, element.try_into(), element.try_into()) {
        (Class::Float, 4, Ok(bytes), _) => f32::from_le_bytes(bytes).to_string(),
        (Class::Float, 8, _, Ok(bytes)) => f64::from_le_bytes(bytes).to_string(),
        (Class::Signed, ..) | (Class::Float, 2, ..) => decode(element, ty).to_string(),
        (Class::Complex | Class::Pair | Class::User, ..) => format!("{element:?}"),
        _ => (decode(element, ty) as u64).to_string(),
    }
}

/// Adds the bytes of an output to a hash.
pub(crate) fn hash(before: u64, bytes: &[u8]) -> u64 {
    let mut hash = before;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash ^ u64::from_le_bytes(word));
    }
    mix(hash ^ (bytes.len() as u64).wrapping_mul(GOLDEN))
}

/// Adds a number to a hash.
pub(crate) fn hash_number(before: u64, number: u64) -> u64 {
    mix(before ^ number)
}

/// Random number generator that produces the same sequence for the same seed on all machines.
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64, case: u64) -> Random {
        Random { state: key(seed, case, u64::MAX, 0) }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mix(self.state)
    }

    /// Returns a number in 0 ... `count` - 1; 0 if `count` is 0.
    pub(crate) fn below(&mut self, count: u64) -> u64 {
        self.next() % count.max(1)
    }

    /// Returns true with a probability of `percent` in 100.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Returns a random number in 0 ... `most`. It is 0 in 12 of 100 calls; otherwise each range
    /// between two powers of two has the same probability.
    pub(crate) fn spread(&mut self, most: u64) -> u64 {
        if self.chance(12) || most == 0 {
            return 0;
        }
        let bits = self.below(u64::from(64 - most.leading_zeros()));
        ((1 << bits) + self.below(1 << bits)).min(most)
    }

    /// Returns the numbers 0 ... `count` - 1 in random order.
    pub(crate) fn permutation(&mut self, count: u64) -> Vec<u64> {
        let mut order: Vec<u64> = (0..count).collect();
        for index in (1..order.len()).rev() {
            order.swap(index, self.below(index as u64 + 1) as usize);
        }
        order
    }
}

#[cfg(test)]
mod tests;
