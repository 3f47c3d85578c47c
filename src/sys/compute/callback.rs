//! Calls of C functions of the program, on behalf of communicators, as safe functions.

use crate::abi::comm::communicator::{dtl_attribute_copy_fn_t, dtl_attribute_delete_fn_t};
use crate::abi::handle::dtl_comm_t;
use crate::abi::status::{DTL_SUCCESS, dtl_status_t};
use crate::sys::memory::buf::Addr;

/// Calls the copy function of an attribute. Returns `Ok(None)` if the attribute is not copied.
pub fn copy_attribute(
    function: dtl_attribute_copy_fn_t,
    (comm, key): (dtl_comm_t, i32),
    (user, value): (Addr, Addr),
) -> Result<Option<Addr>, dtl_status_t> {
    let Some(function) = function else { return Ok(None) };
    let (mut copied, mut wanted) = (std::ptr::null_mut(), 0);
    // SAFETY: the creator of the key passed this function for exactly these arguments; the outputs
    // are locals that live through the call.
    let status =
        unsafe { function(comm, key, user.ptr(), value.ptr(), &raw mut copied, &raw mut wanted) };
    match status {
        DTL_SUCCESS => Ok((wanted != 0).then(|| Addr::new(copied))),
        status => Err(status),
    }
}

/// Calls the delete function of an attribute.
pub fn delete_attribute(
    function: dtl_attribute_delete_fn_t,
    (comm, key): (dtl_comm_t, i32),
    (user, value): (Addr, Addr),
) {
    if let Some(function) = function {
        // SAFETY: the creator of the key passed this function for exactly these arguments.
        unsafe { function(comm, key, user.ptr(), value.ptr()) }
    }
}
