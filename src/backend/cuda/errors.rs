//! Conversion of `CUresult` codes into statuses of the library. Error messages contain the driver's
//! names and descriptions of the codes.

use super::symbols::*;
use crate::abi::status::*;
use crate::error::{Error, Result};
use std::ffi::{CStr, c_char};

/// Returns true if `code` reports an error that makes the context unusable: its memory, streams and
/// events are lost.
pub fn is_lost(code: CUresult) -> bool {
    matches!(
        code,
        CUDA_ERROR_DEINITIALIZED
            | CUDA_ERROR_ECC_UNCORRECTABLE
            | CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUDA_ERROR_CONTAINED
            | CUDA_ERROR_ILLEGAL_ADDRESS
            | CUDA_ERROR_LAUNCH_TIMEOUT
            | CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUDA_ERROR_ASSERT
            | CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUDA_ERROR_MISALIGNED_ADDRESS
            | CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUDA_ERROR_INVALID_PC
            | CUDA_ERROR_LAUNCH_FAILED
            | CUDA_ERROR_TENSOR_MEMORY_LEAK
            | CUDA_ERROR_MPS_CLIENT_TERMINATED
            | CUDA_ERROR_EXTERNAL_DEVICE
    )
}

impl Functions {
    /// Converts a driver result into a `Result`. `what` names the operation for the error message.
    pub fn check(&self, code: CUresult, what: &str) -> Result<()> {
        if code == CUDA_SUCCESS { Ok(()) } else { Err(self.error(code, what)) }
    }

    /// Converts the result of a call that releases a resource. A lost context counts as success,
    /// because its resources no longer exist.
    pub fn check_release(&self, code: CUresult, what: &str) -> Result<()> {
        if code == CUDA_SUCCESS || is_lost(code) { Ok(()) } else { Err(self.error(code, what)) }
    }

    /// Converts an error code of the driver into an `Error`. `what` names the failed operation for
    /// the error message.
    #[cold]
    pub fn error(&self, code: CUresult, what: &str) -> Error {
        let (status, advice) = match code {
            CUDA_ERROR_OUT_OF_MEMORY => {
                (DTL_ERROR_OUT_OF_MEMORY, "; free memory of that kind, or ask for less")
            }
            CUDA_ERROR_NOT_SUPPORTED => {
                (DTL_ERROR_NOT_SUPPORTED, "; this device or driver cannot do it")
            }
            CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED => (
                DTL_ERROR_ALREADY_EXISTS,
                "; the program or another library has registered a part of it: use that, or take \
                 it back first",
            ),
            CUDA_ERROR_DEVICE_UNAVAILABLE => (
                DTL_ERROR_UNAVAILABLE,
                "; another process has the device (its compute mode), or it was taken away",
            ),
            CUDA_ERROR_NOT_INITIALIZED
            | CUDA_ERROR_STUB_LIBRARY
            | CUDA_ERROR_NO_DEVICE
            | CUDA_ERROR_SYSTEM_NOT_READY
            | CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => (DTL_ERROR_UNAVAILABLE, ""),
            code if is_lost(code) => (
                DTL_ERROR_DEVICE_LOST,
                "; the device is lost to this process with all its memory: its calls fail from now \
                 on, destroy what was \
                 made on it, then start a new process (compute-sanitizer finds a kernel's fault)",
            ),
            _ => (DTL_ERROR_CUDA, ""),
        };
        Error::new(status, format!("{what}: {}{advice}", self.words(code)))
    }

    /// Formats a driver code as "CUDA says NAME (17), DESCRIPTION", with the driver's name and
    /// description of the code.
    pub fn words(&self, code: CUresult) -> String {
        let text_of = |ask: unsafe extern "C" fn(CUresult, *mut *const c_char) -> CUresult| {
            let mut text = std::ptr::null();
            // SAFETY: `text` is valid for writing a pointer. The driver sets it to null or to a
            // string that it never frees.
            let known = unsafe { ask(code, &raw mut text) } == CUDA_SUCCESS && !text.is_null();
            // SAFETY: `text` is not null, so it points to a NUL-terminated string that the driver
            // never frees.
            known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        let name = text_of(self.cuGetErrorName)
            .unwrap_or_else(|| "a code that the driver has no name for".into());
        let text = text_of(self.cuGetErrorString).map(|text| format!(", {text}"));
        format!("CUDA says {name} ({code}){}", text.unwrap_or_default())
    }
}
