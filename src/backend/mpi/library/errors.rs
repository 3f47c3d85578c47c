//! Conversion of MPI's error codes to a status of this library and a message with MPI's error class
//! and error string.

use super::abi::Int;
use super::mpi_library::Mpi;
use crate::abi::status::*;
use crate::error::{Error, Result};
use crate::from_c::text_in;
use std::ffi::c_int;

impl Mpi {
    /// Converts the code that the MPI function `call` returned to a result.
    pub fn check(&self, call: &'static str, code: c_int) -> Result<()> {
        if code == 0 { Ok(()) } else { Err(self.failure(call, code)) }
    }

    /// Returns the error class of an error code.
    pub fn class(&self, code: c_int) -> c_int {
        let mut class = code;
        // SAFETY: `class` is a writable number.
        unsafe { (self.call.MPI_Error_class)(code, &raw mut class) };
        class
    }

    /// Creates the error for an error code that the MPI function `call` returned.
    #[cold]
    pub fn failure(&self, call: &'static str, code: c_int) -> Error {
        let class = self.class(code);
        let is = |name| class == self.abi.int(name);
        let status = if is(Int::ErrNoMem) {
            DTL_ERROR_OUT_OF_MEMORY
        } else if is(Int::ErrProcFailed) || is(Int::ErrProcFailedPending) {
            DTL_ERROR_RANK_FAILURE
        } else {
            DTL_ERROR_MPI
        };
        Error::new(status, format!("{call}: MPI error class {class}: {}", self.text(code)))
    }

    fn text(&self, code: c_int) -> String {
        // MPI_MAX_ERROR_STRING is at most 512; MPICH's stack of calls extends over several lines.
        let mut text = [0_u8; 1024];
        let mut length: c_int = 0;
        // SAFETY: `text` has room for the longest text.
        unsafe { (self.call.MPI_Error_string)(code, text.as_mut_ptr().cast(), &raw mut length) };
        let text = text_in(&text);
        text.lines().map(str::trim).collect::<Vec<_>>().join("; ")
    }
}
