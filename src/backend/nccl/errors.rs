//! Conversion of NCCL result codes to status codes of this library. The error messages contain
//! NCCL's descriptions.

use super::symbols::*;
use crate::abi::status::*;
use crate::backend::symbol_table::constant_names;
use crate::error::Error;
use std::ffi::{CStr, c_char};
use std::ptr;

/// All NCCL result codes, with their names.
const NAMES: &[(ncclResult_t, &str)] = constant_names! {
    ncclSuccess ncclUnhandledCudaError ncclSystemError ncclInternalError ncclInvalidArgument
    ncclInvalidUsage ncclRemoteError ncclInProgress
};

impl Functions {
    /// Creates the error for a result code; `what` names the failed action.
    #[cold]
    pub fn error(&self, code: ncclResult_t, what: &str) -> Error {
        let (status, advice) = match code {
            ncclUnhandledCudaError => (
                DTL_ERROR_NCCL,
                "; a call of CUDA's failed within it: is the driver that the loader finds \
                 (libcuda.so.1) the one of backend \
                 cuda, and new enough for this NCCL? NCCL_DEBUG=WARN tells more",
            ),
            ncclSystemError => (
                DTL_ERROR_NCCL,
                "; a system call failed within it: NCCL_DEBUG=WARN tells which (memory locked, \
                 files, network)",
            ),
            ncclInvalidUsage => (
                DTL_ERROR_INVALID_ARGUMENT,
                "; each rank needs a device of its own: choose it with dtl_backend_set_device (or \
                 CUDA_VISIBLE_DEVICES) before the communicator is opened",
            ),
            ncclRemoteError => (
                DTL_ERROR_CONNECTION_LOST,
                "; another rank has died or cannot be reached: dtl_comm_shrink, or end the job",
            ),
            _ => (DTL_ERROR_NCCL, "; NCCL_DEBUG=WARN tells more"),
        };
        Error::new(status, format!("{what}: {}{advice}", self.words(code)))
    }

    /// Formats a result code as text: its name and number, NCCL's description, and NCCL's last
    /// error message, if there is one.
    fn words(&self, code: ncclResult_t) -> String {
        let name = NAMES
            .iter()
            .find(|(known, _)| *known == code)
            .map_or("a code without a name", |(_, name)| name);
        // SAFETY: the function takes a number and returns null or a text that is never freed.
        let text = text_of(unsafe { (self.ncclGetErrorString)(code) });
        // SAFETY: the function takes no communicator, by nccl.h; it returns null or a library text.
        let last = self.ncclGetLastError.and_then(|last| text_of(unsafe { last(ptr::null_mut()) }));
        let mut words = format!("NCCL says {name} ({code})");
        for (before, part) in [(", ", text), (": ", last)] {
            if let Some(part) = part.filter(|part| !part.trim().is_empty()) {
                words.push_str(before);
                words.push_str(part.trim());
            }
        }
        words
    }
}

fn text_of(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the pointer is not null, so it refers to a NUL-terminated text, by nccl.h.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
