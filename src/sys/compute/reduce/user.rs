//! Calls of a reduction operation that the program provides. The rules for such functions are
//! documented at dtl_op_fn_t; `runtime::types` stores the operation.

use crate::abi::word::{dtl_dtype_t, dtl_op_fn_t};
use crate::sys::memory::buf::{Addr, Region};

/// Copy of a reduction operation of the program. Destroying the operation does not affect it.
#[derive(Clone, Copy)]
pub struct UserOp {
    function: extern "C" fn(
        *const std::ffi::c_void,
        *mut std::ffi::c_void,
        u64,
        dtl_dtype_t,
        *mut std::ffi::c_void,
    ),
    user: Addr,
}

impl UserOp {
    /// Creates the operation; returns `None` for a NULL function.
    pub fn new(function: dtl_op_fn_t, user: Addr) -> Option<Self> {
        Some(UserOp { function: function?, user })
    }

    /// Computes `into = into op from` over the whole elements of both; `from` is overwritten.
    ///
    /// Sound within the responsibility of the library: both regions are valid for the elements
    /// counted here, `from` for writing as well (the schedule passes scratch memory), and no
    /// reference to either region exists during the call. The program is responsible for anything
    /// that the function does beyond its contract: it provided the function, as with every
    /// callback.
    pub fn apply(self, into: Region, from: Region, element: usize, dtype: dtl_dtype_t) {
        let count = into.len().min(from.len()) / element.max(1);
        self.apply_to_right(into, from, element, dtype);
        into.copy_from(from.part(0, count * element));
    }

    /// Computes `right = left op right`, as the C function does; sound by the argument of `apply`.
    pub fn apply_to_right(self, left: Region, right: Region, element: usize, dtype: dtl_dtype_t) {
        let count = left.len().min(right.len()) / element.max(1);
        if count > 0 {
            (self.function)(
                left.addr().ptr(),
                right.addr().ptr(),
                count as u64,
                dtype,
                self.user.ptr(),
            );
        }
    }
}
