//! Element types beside the numbers of Rust: truth values, complex numbers, numbers of 16 bits, and
//! the pairs of a value and its index.
//!
//! Every bit pattern is a value of each type, so that any received bytes are one.

use crate::dtype::numbers;
use std::fmt;

/// Truth value of one byte: 0 is false, anything else is true. Its dtype is DTL_DTYPE_BOOL, and its
/// operations are the logical ones: [`LAND`](crate::LAND), [`LOR`](crate::LOR) and
/// [`LXOR`](crate::LXOR), whose results are 0 or 1.
///
/// It is not the type `bool` of Rust, for which only two bytes are valid.
///
/// ```
/// use dtl_binding::{Bool, Comm, LAND};
///
/// # fn main() -> dtl_binding::Result {
/// let comm = Comm::world()?;
/// let mut is_converged = Bool::from(true);
/// comm.allreduce_in_place(&mut is_converged, LAND)?;
/// assert!(is_converged.get());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct Bool(pub u8);

impl Bool {
    /// Returns true unless the byte is 0.
    #[must_use]
    pub fn get(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Bool {
    fn from(value: bool) -> Bool {
        Bool(value.into())
    }
}

impl From<Bool> for bool {
    fn from(value: Bool) -> bool {
        value.get()
    }
}

impl PartialEq for Bool {
    fn eq(&self, other: &Bool) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Bool {}

impl fmt::Debug for Bool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// Complex number of two `f32` (DTL_DTYPE_COMPLEX64) or two `f64` (DTL_DTYPE_COMPLEX128). Its
/// operations are [`SUM`](crate::SUM) and [`PROD`](crate::PROD).
///
/// It has the layout of `_Complex` in C, and no arithmetic: feature `num-complex` makes
/// `num_complex::Complex` an element, too.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(C)]
pub struct Complex<T> {
    /// Real part.
    pub re: T,
    /// Imaginary part.
    pub im: T,
}

numbers! { Bool: DTL_DTYPE_BOOL }
numbers! { Complex<f32>: DTL_DTYPE_COMPLEX64, Complex<f64>: DTL_DTYPE_COMPLEX128 }

/// Value and its index, for [`MINLOC`](crate::MINLOC) and [`MAXLOC`](crate::MAXLOC). The result has
/// the lowest or highest value of all ranks; of equal values, that with the lowest index.
///
/// The combinations of `V` and `I` are `f32`, `f64`, `i16`, `i32`, `i64` with `i32`, and `f64`, `i64`
/// with `i64` (see `DTL_DTYPE_FLOAT32_INT32` and the dtypes after it).
///
/// ```
/// use dtl_binding::{Comm, MAXLOC, Pair};
///
/// # fn main() -> dtl_binding::Result {
/// let comm = Comm::world()?;
/// let mut largest = Pair { value: 0.5, index: comm.rank()? };
/// comm.allreduce_in_place(&mut largest, MAXLOC)?;
/// assert_eq!(largest, Pair { value: 0.5, index: 0 });
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(C)]
pub struct Pair<V, I = i32> {
    /// Value that is compared.
    pub value: V,
    /// Position of the value: a rank, or an index in an array.
    pub index: I,
}

numbers! {
    Pair<f32, i32>: DTL_DTYPE_FLOAT32_INT32, Pair<f64, i32>: DTL_DTYPE_FLOAT64_INT32,
    Pair<i32, i32>: DTL_DTYPE_INT32_INT32, Pair<i64, i32>: DTL_DTYPE_INT64_INT32,
    Pair<i16, i32>: DTL_DTYPE_INT16_INT32, Pair<f64, i64>: DTL_DTYPE_FLOAT64_INT64,
    Pair<i64, i64>: DTL_DTYPE_INT64_INT64,
}

#[cfg(feature = "half")]
numbers! { half::f16: DTL_DTYPE_FLOAT16, half::bf16: DTL_DTYPE_BFLOAT16 }

#[cfg(feature = "num-complex")]
numbers! {
    num_complex::Complex<f32>: DTL_DTYPE_COMPLEX64,
    num_complex::Complex<f64>: DTL_DTYPE_COMPLEX128,
}
