//! Types of buffer elements, and the dtypes that describe them.

use crate::library::generation;
use crate::text::c_string;
use crate::{Result, call, sys};
use std::slice;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Type whose values may be overwritten with any bytes.
///
/// # Safety
/// Every bit pattern of the size of the type must be a valid value of the type.
pub unsafe trait Plain: Copy + Send + Sync + 'static {}

// SAFETY: an array has the elements one after the other, and nothing else.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Type of buffer elements: numbers, and structs with `#[derive(Dtype)]`.
///
/// ```
/// use dtl_binding::{Comm, Dtype, sys};
///
/// #[derive(Clone, Copy, Debug, Default, PartialEq, Dtype)]
/// #[repr(C)]
/// struct Particle {
///     position: [f64; 3],
///     id: u64,
/// }
///
/// # fn main() -> dtl_binding::Result {
/// let comm = Comm::world()?;
/// let mut first = Particle { position: [0.5; 3], id: 7 };
/// comm.bcast(&mut first, 0)?;
/// # assert_eq!(first.id, 7);
/// # Ok(())
/// # }
/// ```
///
/// The fields must be [`Plain`], so that any received bytes are a value:
///
/// ```compile_fail,E0277
/// # use dtl_binding::Dtype;
/// #[derive(Clone, Copy, Dtype)]
/// #[repr(C)]
/// struct Flagged {
///     value: f64,
///     is_valid: bool, // two of the 256 bytes are a bool
/// }
/// ```
///
/// There must be no padding, because its bytes are not initialized:
///
/// ```compile_fail,E0080
/// # use dtl_binding::Dtype;
/// #[derive(Clone, Copy, Dtype)]
/// #[repr(C)]
/// struct Padded {
///     id: u32, // 4 bytes of padding follow
///     value: f64,
/// }
/// ```
///
/// The layout must be the same on all ranks (`repr(C)`), and generic types are not supported.
///
/// ```compile_fail
/// # use dtl_binding::Dtype;
/// #[derive(Clone, Copy, Dtype)]
/// struct WithoutLayout {
///     value: f64,
/// }
/// ```
/// ```compile_fail
/// # use dtl_binding::Dtype;
/// #[derive(Clone, Copy, Dtype)]
/// #[repr(C)]
/// struct Generic<T> {
///     value: T,
/// }
/// ```
///
/// # Safety
/// The dtype must have the size of the type.
pub unsafe trait Dtype: Plain {
    /// Returns the dtype of the type. Creates it at the first call if it is user-defined.
    ///
    /// # Errors
    /// See `dtl_dtype_create`.
    fn dtype() -> Result<sys::dtl_dtype_t>;
}

macro_rules! numbers {
    ($($number:ty: $dtype:ident),+ $(,)?) => {$(
        // SAFETY: numbers have no invalid bits.
        unsafe impl $crate::Plain for $number {}
        // SAFETY: the dtype of this number.
        unsafe impl $crate::Dtype for $number {
            #[inline]
            fn dtype() -> $crate::Result<$crate::sys::dtl_dtype_t> {
                Ok($crate::sys::$dtype)
            }
        }
    )+};
}
pub(crate) use numbers;

numbers! {
    i8: DTL_DTYPE_INT8, i16: DTL_DTYPE_INT16, i32: DTL_DTYPE_INT32, i64: DTL_DTYPE_INT64,
    u8: DTL_DTYPE_UINT8, u16: DTL_DTYPE_UINT16, u32: DTL_DTYPE_UINT32, u64: DTL_DTYPE_UINT64,
    f32: DTL_DTYPE_FLOAT32, f64: DTL_DTYPE_FLOAT64,
}

/// Byte without a meaning, which other languages pass as DTL_DTYPE_BYTE. In a collective, all ranks
/// pass the same dtype; that of a `u8` is DTL_DTYPE_UINT8, an integer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Byte(pub u8);

numbers! { Byte: DTL_DTYPE_BYTE }

impl Byte {
    /// Returns the elements of a slice as bytes without a meaning.
    #[must_use]
    pub fn of(bytes: &[u8]) -> &[Byte] {
        // SAFETY: the two types have one layout.
        unsafe { slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
    }

    /// Returns the elements of a slice as bytes without a meaning.
    #[must_use]
    pub fn of_mut(bytes: &mut [u8]) -> &mut [Byte] {
        // SAFETY: the two types have one layout, and the borrow is exclusive.
        unsafe { slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len()) }
    }
}

/// User-defined dtype of one type, created at its first use. `#[derive(Dtype)]` makes one `static`
/// of this type for each struct.
#[derive(Debug, Default)]
pub struct DtypeCell {
    /// Dtype in the lower half, generation of the library in the upper half. 0: not created.
    cached: AtomicU64,
    creating: Mutex<()>,
}

impl DtypeCell {
    /// Creates a cell without a dtype.
    #[must_use]
    pub const fn new() -> DtypeCell {
        DtypeCell { cached: AtomicU64::new(0), creating: Mutex::new(()) }
    }

    /// Returns the dtype for `size` bytes. Creates it at the first call, and at the first call
    /// after the library was finalized. The name is for texts; its first 63 bytes are used.
    ///
    /// # Errors
    /// See `dtl_dtype_create`.
    #[inline]
    pub fn get(&self, size: usize, name: &str) -> Result<sys::dtl_dtype_t> {
        match self.current() {
            Some(dtype) => Ok(dtype),
            None => self.create(size, name),
        }
    }

    /// Returns the dtype, if it was created since the library was last finalized.
    #[inline]
    fn current(&self) -> Option<sys::dtl_dtype_t> {
        let cached = self.cached.load(Ordering::Acquire);
        (cached >> 32 == u64::from(generation())).then_some(cached as sys::dtl_dtype_t)
    }

    #[cold]
    fn create(&self, size: usize, name: &str) -> Result<sys::dtl_dtype_t> {
        // A panic of another thread has left the cell as it was.
        let _alone = self.creating.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(dtype) = self.current() {
            return Ok(dtype);
        }
        let generation = generation();
        let old = self.cached.load(Ordering::Acquire);
        // Another user of the library may have kept it initialized.
        if old != 0 && size_of_dtype(old as sys::dtl_dtype_t) == Some(size as u64) {
            self.cached.store(entry(generation, old as sys::dtl_dtype_t), Ordering::Release);
            return Ok(old as sys::dtl_dtype_t);
        }
        let end = (0..=63.min(name.len())).rev().find(|end| name.is_char_boundary(*end));
        let name =
            c_string("dtl_dtype_create", "name", name.get(..end.unwrap_or(0)).unwrap_or(""))?;
        let mut dtype = 0;
        // SAFETY: the name ends with NUL; the output is a local.
        unsafe { call!(dtl_dtype_create(size as u64, name.as_ptr(), &raw mut dtype)) }?;
        self.cached.store(entry(generation, dtype), Ordering::Release);
        Ok(dtype)
    }
}

/// Returns the value of [`DtypeCell::cached`] for a dtype.
fn entry(generation: u32, dtype: sys::dtl_dtype_t) -> u64 {
    u64::from(generation) << 32 | u64::from(dtype as u32)
}

/// Returns the size of a dtype; `None` if it was destroyed.
fn size_of_dtype(dtype: sys::dtl_dtype_t) -> Option<u64> {
    let mut size = 0;
    // SAFETY: the output is a local.
    unsafe { call!(dtl_dtype_size(dtype, &raw mut size)) }.ok().map(|()| size)
}
