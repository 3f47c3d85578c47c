//! Reduction operations: built-in ones, and ones from functions of the program.

use crate::{Dtype, Result, call, sys, text};
use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::slice;
use std::sync::Arc;

/// Built-in reduction operation. It fails with DTL_ERROR_TYPE for dtypes that it does not support,
/// see the table at `dtl_reduce_op_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltinOp(sys::dtl_reduce_op_t);

macro_rules! builtin {
    ($($(#[$doc:meta])* $name:ident: $op:ident),+ $(,)?) => {$(
        $(#[$doc])*
        pub const $name: BuiltinOp = BuiltinOp(sys::$op);
    )+};
}
builtin! {
    /// Sum.
    SUM: DTL_OP_SUM,
    /// Product.
    PROD: DTL_OP_PROD,
    /// Minimum.
    MIN: DTL_OP_MIN,
    /// Maximum.
    MAX: DTL_OP_MAX,
    /// Logical and.
    LAND: DTL_OP_LAND,
    /// Logical or.
    LOR: DTL_OP_LOR,
    /// Logical exclusive or.
    LXOR: DTL_OP_LXOR,
    /// Bitwise and.
    BAND: DTL_OP_BAND,
    /// Bitwise or.
    BOR: DTL_OP_BOR,
    /// Bitwise exclusive or.
    BXOR: DTL_OP_BXOR,
    /// The [`Pair`](crate::Pair) with the lower value.
    MINLOC: DTL_OP_MINLOC,
    /// The [`Pair`](crate::Pair) with the higher value.
    MAXLOC: DTL_OP_MAXLOC,
    /// The operand of the higher rank; in a window, an atomic put.
    REPLACE: DTL_OP_REPLACE,
    /// No change; in a window, an atomic get.
    NO_OP: DTL_OP_NO_OP,
}

/// Reduction operation for elements of type `T`: a [`BuiltinOp`] such as [`SUM`], or a reference to
/// an [`Op`].
pub trait Operator<T>: Copy + sealed::Sealed {
    /// Returns the number of the operation, for use with the functions in [`sys`].
    fn number(self) -> sys::dtl_reduce_op_t;
}

mod sealed {
    /// Prevents implementations that name an operation for other elements.
    pub trait Sealed {}
    impl Sealed for super::BuiltinOp {}
    impl<T> Sealed for &super::Op<T> {}
}

impl<T> Operator<T> for BuiltinOp {
    #[inline]
    fn number(self) -> sys::dtl_reduce_op_t {
        self.0
    }
}

impl<T> Operator<T> for &Op<T> {
    fn number(self) -> sys::dtl_reduce_op_t {
        self.number
    }
}

/// Reduction operation from a function of the program. Destroyed when dropped.
///
/// ```
/// use dtl_binding::{Comm, Op};
///
/// # fn main() -> dtl_binding::Result {
/// let comm = Comm::world()?;
/// let larger = Op::new("larger", true, |low: &i64, high: &mut i64| {
///     if low.abs() > high.abs() {
///         *high = *low;
///     }
/// })?;
/// let mut result = 0;
/// comm.allreduce(&-3, &mut result, &larger)?;
/// assert_eq!(result, -3);
/// # Ok(())
/// # }
/// ```
pub struct Op<T> {
    number: sys::dtl_reduce_op_t,
    /// Keeps the function that the library calls.
    _function: Arc<dyn Any + Send + Sync>,
    element: PhantomData<fn(T) -> T>,
}

impl<T> fmt::Debug for Op<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Op").field("number", &self.number).finish_non_exhaustive()
    }
}

impl<T: Dtype> Op<T> {
    /// Creates an operation. `function(low, high)` combines two elements: it stores `low op high`
    /// into `high`. `low` is the operand of the lower ranks. Every rank creates the operation, with
    /// the same function, which must be associative; `commutes` states whether it commutes.
    ///
    /// The function is called by threads that wait in a call on the communicator. A panic in it
    /// aborts the process.
    ///
    /// # Errors
    /// See `dtl_op_create`.
    pub fn new<F>(name: &str, commutes: bool, function: F) -> Result<Op<T>>
    where
        F: Fn(&T, &mut T) + Send + Sync + 'static,
    {
        // The library aligns its own copies of elements to 64 bytes.
        const { assert!(align_of::<T>() <= 64, "elements are aligned to at most 64 bytes") };
        let name = text::c_string("dtl_op_create", "name", name)?;
        let function = Arc::new(function);
        let user = Arc::as_ptr(&function).cast_mut().cast();
        let flags = if commutes { sys::DTL_OP_COMMUTES } else { 0 };
        let (mut number, combine): (_, sys::dtl_op_fn_t) = (0, Some(combine::<T, F>));
        // SAFETY: `combine` gets the function that its type names, which the value keeps until the
        // operation is destroyed. The operations that use it borrow the value.
        unsafe { call!(dtl_op_create(combine, user, flags, name.as_ptr(), &raw mut number)) }?;
        Ok(Op { number, _function: function, element: PhantomData })
    }
}

/// Combines `count` elements with the function at `user`.
extern "C" fn combine<T: Dtype, F: Fn(&T, &mut T)>(
    low: *const c_void,
    high: *mut c_void,
    count: u64,
    _dtype: sys::dtl_dtype_t,
    user: *mut c_void,
) {
    // SAFETY: `user` is the function that `Op::new` passed, which the `Op` keeps.
    let function = unsafe { &*user.cast_const().cast::<F>() };
    // SAFETY: an `Op<T>` is an operator only for elements of type `T`. The library passes `count`
    // elements that nobody writes during the call, aligned like the caller's buffers or to 64 bytes.
    let low = unsafe { slice::from_raw_parts(low.cast::<T>(), count as usize) };
    // SAFETY: the same, and the two do not overlap.
    let high = unsafe { slice::from_raw_parts_mut(high.cast::<T>(), count as usize) };
    low.iter().zip(high).for_each(|(low, high)| function(low, high));
}

impl<T> Drop for Op<T> {
    fn drop(&mut self) {
        // A drop has nobody to report a failure to.
        let _ = sys::dtl_op_destroy(self.number);
    }
}
