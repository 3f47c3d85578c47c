//! Call of a program's own operation. The rules for it are documented at dtl_op_fn_t;
//! `runtime::types` stores it.

use crate::abi::word::{dtl_dtype_t, dtl_op_fn_t};
use crate::sys::memory::buf::{Addr, Region};

/// A program's operation, taken over by value: destroying its number does not touch a copy.
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
    /// `None` for a NULL function.
    #[must_use]
    pub fn new(function: dtl_op_fn_t, user: Addr) -> Option<Self> {
        Some(UserOp { function: function?, user })
    }

    /// `into = into op from` over the whole elements that both hold; `from` is overwritten.
    ///
    /// Sound as far as the library goes: both regions are valid for the elements counted here,
    /// `from` for writing as well (the schedule gives scratch memory), and no reference to either
    /// exists during the call. What the function does beyond its contract is the program's doing:
    /// it named the function, as with every callback.
    pub fn apply(self, into: Region, from: Region, element: usize, dtype: dtl_dtype_t) {
        let count = into.len().min(from.len()) / element.max(1);
        self.apply_to_right(into, from, element, dtype);
        into.copy_from(from.part(0, count * element));
    }

    /// `right = left op right`, as the function itself does it; sound as `apply` is.
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
