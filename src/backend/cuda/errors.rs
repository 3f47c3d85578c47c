//! What the driver's results mean: which status of the library each is. Names and texts are the
//! driver's own.

use super::symbols::{Code, Functions};
use crate::abi::status::*;
use crate::error::{Error, Result};
use std::ffi::{CStr, c_char};

/// All is well.
pub const SUCCESS: Code = 0;
/// Asked too early: the work is still to be done.
pub const NOT_READY: Code = 600;
/// The device or the driver has no such thing.
pub const NOT_SUPPORTED: Code = 801;
/// An argument is not valid; of a pointer query: the driver does not know the address.
pub const INVALID_VALUE: Code = 1;
/// Not enough memory.
pub const OUT_OF_MEMORY: Code = 2;
/// Host memory that was registered before.
pub const ALREADY_REGISTERED: Code = 712;
/// What cuIpcOpenMemHandle says of what the calling process exported.
pub const OF_THIS_PROCESS: Code = NO_CONTEXT;
/// The call needs a current context (CUDA_ERROR_INVALID_CONTEXT).
pub const NO_CONTEXT: Code = 201;
/// What it says of what is no more.
pub const IS_GONE: Code = 400;
/// The driver has no device.
pub const NO_DEVICE: Code = 100;

/// Codes that this library treats apart, by cuda.h. The last ones leave a context that nothing can
/// be done with.
pub const NAMES: &[(Code, &str)] = &[
    (SUCCESS, "CUDA_SUCCESS"),
    (NOT_READY, "CUDA_ERROR_NOT_READY"),
    (NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"),
    (INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"),
    (OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"),
    (NO_DEVICE, "CUDA_ERROR_NO_DEVICE"),
    (OF_THIS_PROCESS, "CUDA_ERROR_INVALID_CONTEXT"),
    (IS_GONE, "CUDA_ERROR_INVALID_HANDLE"),
    (ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"),
    (3, "CUDA_ERROR_NOT_INITIALIZED"),
    (4, "CUDA_ERROR_DEINITIALIZED"),
    (34, "CUDA_ERROR_STUB_LIBRARY"),
    (46, "CUDA_ERROR_DEVICE_UNAVAILABLE"),
    (802, "CUDA_ERROR_SYSTEM_NOT_READY"),
    (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
    (214, "CUDA_ERROR_ECC_UNCORRECTABLE"),
    (220, "CUDA_ERROR_NVLINK_UNCORRECTABLE"),
    (226, "CUDA_ERROR_CONTAINED"),
    (700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
    (702, "CUDA_ERROR_LAUNCH_TIMEOUT"),
    (709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"),
    (710, "CUDA_ERROR_ASSERT"),
    (714, "CUDA_ERROR_HARDWARE_STACK_ERROR"),
    (715, "CUDA_ERROR_ILLEGAL_INSTRUCTION"),
    (716, "CUDA_ERROR_MISALIGNED_ADDRESS"),
    (717, "CUDA_ERROR_INVALID_ADDRESS_SPACE"),
    (718, "CUDA_ERROR_INVALID_PC"),
    (719, "CUDA_ERROR_LAUNCH_FAILED"),
    (721, "CUDA_ERROR_TENSOR_MEMORY_LEAK"),
    (810, "CUDA_ERROR_MPS_CLIENT_TERMINATED"),
    (911, "CUDA_ERROR_EXTERNAL_DEVICE"),
];

/// Whether nothing can be done any more with the context that answered it: its memory, streams and
/// events are gone.
#[must_use]
pub fn is_lost(code: Code) -> bool {
    matches!(code, 4 | 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 810 | 911)
}

impl Functions {
    /// A result as one of the library's; `what` was done.
    #[inline]
    pub fn check(&self, code: Code, what: &str) -> Result<()> {
        if code == SUCCESS { Ok(()) } else { Err(self.error(code, what)) }
    }

    /// The same for what gives something back: with a lost context that is gone already.
    #[inline]
    pub fn check_release(&self, code: Code, what: &str) -> Result<()> {
        if code == SUCCESS || is_lost(code) { Ok(()) } else { Err(self.error(code, what)) }
    }

    /// The error of a code.
    #[cold]
    #[must_use]
    pub fn error(&self, code: Code, what: &str) -> Error {
        let (status, advice) = match code {
            OUT_OF_MEMORY => {
                (DTL_ERROR_OUT_OF_MEMORY, "; free memory of that kind, or ask for less")
            }
            NOT_SUPPORTED => (DTL_ERROR_NOT_SUPPORTED, "; this device or driver cannot do it"),
            ALREADY_REGISTERED => (
                DTL_ERROR_ALREADY_EXISTS,
                "; the program or another library has registered a part of it: use that, or take \
                 it back first",
            ),
            46 => (
                DTL_ERROR_UNAVAILABLE,
                "; another process has the device (its compute mode), or it was taken away",
            ),
            3 | 34 | NO_DEVICE | 802 | 803 => (DTL_ERROR_UNAVAILABLE, ""),
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

    /// "CUDA_ERROR_X (17), the driver's text".
    #[must_use]
    pub fn words(&self, code: Code) -> String {
        let told = |ask: unsafe extern "C" fn(Code, *mut *const c_char) -> Code| {
            let mut text = std::ptr::null();
            // SAFETY: room for a pointer; what comes back is null or a text that the driver never
            // frees.
            let known = unsafe { ask(code, &raw mut text) } == SUCCESS && !text.is_null();
            // SAFETY: not null, so such a text.
            known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        let name = told(self.cuGetErrorName)
            .unwrap_or_else(|| "a code that the driver has no name for".into());
        match told(self.cuGetErrorString) {
            Some(text) => format!("CUDA says {name} ({code}), {text}"),
            None => format!("CUDA says {name} ({code})"),
        }
    }
}
