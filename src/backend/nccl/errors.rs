//! What NCCL's results mean: which status of the library each is. Texts are NCCL's own.

use super::symbols::{Code, Functions};
use crate::abi::status::*;
use crate::error::Error;
use std::ffi::{CStr, c_char};
use std::ptr;

/// All is well.
pub const SUCCESS: Code = 0;
/// The call goes on by itself.
pub const IN_PROGRESS: Code = 7;
/// Another rank, or the way to it, is gone.
const REMOTE_ERROR: Code = 6;
/// A call that goes against NCCL's rules.
const INVALID_USAGE: Code = 5;

/// All codes, by nccl.h.
pub const NAMES: &[(Code, &str)] = &[
    (SUCCESS, "ncclSuccess"),
    (1, "ncclUnhandledCudaError"),
    (2, "ncclSystemError"),
    (3, "ncclInternalError"),
    (4, "ncclInvalidArgument"),
    (INVALID_USAGE, "ncclInvalidUsage"),
    (REMOTE_ERROR, "ncclRemoteError"),
    (IN_PROGRESS, "ncclInProgress"),
];

impl Functions {
    /// The error of a code; `what` was done.
    #[cold]
    #[must_use]
    pub fn error(&self, code: Code, what: &str) -> Error {
        let (status, advice) = match code {
            1 => (
                DTL_ERROR_NCCL,
                "; a call of CUDA's failed within it: is the driver that the loader finds \
                 (libcuda.so.1) the one of backend \
                 cuda, and new enough for this NCCL? NCCL_DEBUG=WARN tells more",
            ),
            2 => (
                DTL_ERROR_NCCL,
                "; a system call failed within it: NCCL_DEBUG=WARN tells which (memory locked, \
                 files, network)",
            ),
            INVALID_USAGE => (
                DTL_ERROR_INVALID_ARGUMENT,
                "; each rank needs a device of its own: choose it with dtl_backend_set_device (or \
                 CUDA_VISIBLE_DEVICES) before \
                 the communicator is opened",
            ),
            REMOTE_ERROR => (
                DTL_ERROR_CONNECTION_LOST,
                "; another rank has died or cannot be reached: dtl_comm_shrink, or end the job",
            ),
            _ => (DTL_ERROR_NCCL, "; NCCL_DEBUG=WARN tells more"),
        };
        Error::new(status, format!("{what}: {}{advice}", self.words(code)))
    }

    /// "NCCL says ncclX (17), its text (what it said last)".
    fn words(&self, code: Code) -> String {
        let name = NAMES
            .iter()
            .find(|(known, _)| *known == code)
            .map_or("a code without a name", |(_, name)| name);
        // SAFETY: takes a number; what comes back is null or a text that is never freed.
        let text = told(unsafe { (self.ncclGetErrorString)(code) });
        // SAFETY: takes no communicator, by nccl.h; what comes back is null or a text of the
        // library's.
        let last = self.ncclGetLastError.and_then(|last| told(unsafe { last(ptr::null_mut()) }));
        let mut words = format!("NCCL says {name} ({code})");
        for (before, said) in [(", ", text), (": ", last)] {
            if let Some(said) = said.filter(|said| !said.trim().is_empty()) {
                words.push_str(before);
                words.push_str(said.trim());
            }
        }
        words
    }
}

fn told(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, so a text with its NUL, by nccl.h.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
