//! The library's functions for a driver: those of the linked library, or those that it passed to
//! the plugin.

use crate::sys;
use std::ffi::{CStr, CString};
use std::sync::OnceLock;

/// Origin of the functions.
enum Host {
    #[cfg(feature = "program")]
    Linked,
    Passed(&'static sys::dtl_host_api_t),
}

/// Set by the first registration or by the entry of the plugin. Both origins are the same library.
static HOST: OnceLock<Host> = OnceLock::new();

/// From now on, uses the functions of the linked library.
#[cfg(feature = "program")]
pub(super) fn set_linked() {
    let _ = HOST.set(Host::Linked); // a second registration changes nothing
}

/// From now on, uses the functions that the library passed to the plugin.
pub(super) fn set_passed(host: &'static sys::dtl_host_api_t) {
    let _ = HOST.set(Host::Passed(host)); // a second load changes nothing
}

/// Sets the text of the failure that a slot is about to return.
pub(super) fn set_error(text: &str) {
    let bytes: Vec<u8> = text.bytes().filter(|byte| *byte != 0).collect();
    let text = CString::new(bytes).unwrap_or_default();
    // Without the text the status remains, so that a failure here is ignored.
    match HOST.get() {
        #[cfg(feature = "program")]
        Some(Host::Linked) => {
            // SAFETY: the text ends with NUL.
            let _ = unsafe { sys::dtl_backend_set_error(text.as_ptr()) };
        }
        Some(Host::Passed(host)) => {
            if let Some(set_error) = host.set_error {
                // SAFETY: the text ends with NUL.
                let _ = unsafe { set_error(text.as_ptr()) };
            }
        }
        None => {}
    }
}

/// Writes a line to the library's log, at a level from DTL_LOG_ERROR to DTL_LOG_DEBUG. The line is
/// dropped if the level is not logged, and in a program, which has no function for it
/// (`dtl_host_api_t.log`). Do not call it on a data path. Any thread may call it.
pub fn log(level: i32, text: &str) {
    let Some(Host::Passed(host)) = HOST.get() else { return };
    let Some(log) = host.log else { return };
    let text = CString::new(text.replace('\0', "")).unwrap_or_default();
    // SAFETY: the text ends with NUL. A line that cannot be written is lost.
    let _ = unsafe { log(level, text.as_ptr()) };
}

/// Returns the text of dtl_kernel.h, which sources of language 0 may include
/// (`dtl_kernel_header`). Empty if the library is older than the function. Any thread may call it.
#[must_use]
pub fn kernel_header() -> &'static str {
    let text = match HOST.get() {
        #[cfg(feature = "program")]
        Some(Host::Linked) => sys::dtl_kernel_header(),
        Some(Host::Passed(host)) if has(host) => match host.kernel_header {
            Some(kernel_header) => kernel_header(),
            None => c"".as_ptr(),
        },
        _ => c"".as_ptr(),
    };
    // SAFETY: the text ends with NUL and lives until the process ends.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or_default()
}

/// Returns true if the struct of the library has the function `kernel_header`.
fn has(host: &sys::dtl_host_api_t) -> bool {
    let end = std::mem::offset_of!(sys::dtl_host_api_t, kernel_header) + size_of::<usize>();
    host.struct_size as usize >= end
}
