//! Conversion of libibverbs errors to statuses of this library, with advice for the user.

use super::functions::*;
use crate::abi::status::*;
use crate::error::Error;
use crate::from_c::text_at;
use std::io;

/// Creates the error for a libibverbs call that failed with the errno value `code`.
#[cold]
pub(crate) fn call_failed(what: &str, code: i32) -> Error {
    let error = io::Error::from_raw_os_error(code);
    let (status, advice) = match code {
        libc::ENOMEM if what == "ibv_reg_mr" => (
            DTL_ERROR_OUT_OF_MEMORY,
            "; registered memory is locked: raise the limit of locked memory (ulimit -l)",
        ),
        libc::ENOMEM => (
            DTL_ERROR_OUT_OF_MEMORY,
            "; the device or its limits of locked memory (ulimit -l) have no room left",
        ),
        libc::EMFILE | libc::ENFILE => {
            (DTL_ERROR_LIMIT, "; no descriptors are left: raise that limit (ulimit -n)")
        }
        libc::EACCES | libc::EPERM => {
            (DTL_ERROR_UNAVAILABLE, "; ask for access to /dev/infiniband")
        }
        libc::EIO | libc::ENODEV => (
            DTL_ERROR_DEVICE_LOST,
            "; the device has failed or was removed: \"rdma link\" and dmesg tell",
        ),
        _ => (DTL_ERROR_VERBS, ""),
    };
    Error::new(status, format!("{what}: {error}{advice}"))
}

/// Creates the error for a failed libibverbs call that has set errno.
pub(crate) fn last_failed(what: &str) -> Error {
    call_failed(what, io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// Returns true if the failure `status` may be transient (caused by an interrupted network path or
/// a failed queue pair), so that a later work request may succeed. Soft-RoCE reports a local
/// operation error when the interface is down.
pub(crate) fn may_pass(status: u32) -> bool {
    matches!(
        status,
        WC_LOC_QP_OP_ERR
            | WC_RETRY_EXC_ERR
            | WC_RNR_RETRY_EXC_ERR
            | WC_WR_FLUSH_ERR
            | WC_REM_OP_ERR
            | WC_REM_ABORT_ERR
            | WC_RESP_TIMEOUT_ERR
            | WC_GENERAL_ERR
    )
}

/// Formats a completion's status: libibverbs' description, the numeric codes and advice.
pub(crate) fn completion_text(calls: &Functions, status: u32, vendor: u32) -> String {
    // SAFETY: the function takes a number and returns a text that is never freed.
    let text = unsafe { (calls.ibv_wc_status_str)(status) };
    // SAFETY: libibverbs returned the text, which is null or NUL-terminated.
    let meaning = unsafe { text_at(text) }.unwrap_or_else(|| "unknown".to_owned());
    let advice = match status {
        WC_RETRY_EXC_ERR => {
            ": its machine, the cable or a switch does not answer (DTL_RDMA_TIMEOUT and \
             DTL_RDMA_RETRIES say how long to try)"
        }
        WC_RNR_RETRY_EXC_ERR => ": it has no receive posted (DTL_RDMA_RECEIVER_RETRIES)",
        WC_REM_ACCESS_ERR => ": the memory there is not registered any more",
        WC_FATAL_ERR => ": the device has failed",
        _ => "",
    };
    format!("{meaning} (status {status}, vendor's {vendor:#x}){advice}")
}

/// Prefixes the error message with "on this rank", for reports that the connection to a peer is
/// lost because of this error.
pub(crate) fn here(error: Error) -> Error {
    error.within("on this rank")
}
