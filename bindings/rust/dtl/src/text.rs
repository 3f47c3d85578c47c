//! Conversion of C strings: returned strings, fixed-size fields, and strings of variable length.

use crate::{Error, Result, check, sys};
use std::ffi::{CStr, CString, c_char};

/// Converts a C string; empty for NULL. Invalid UTF-8 is replaced.
///
/// # Safety
/// `text` must be NULL or point to a NUL-terminated string that does not change during the call.
#[must_use]
pub unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's contract.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Returns the string in a fixed-size field, up to the NUL or the end of the field.
#[must_use]
pub fn field(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads a string of variable length through a function with the parameters `(buf, cap, out_len)`:
/// first the length, then the string. Retries if the string has grown between the two calls.
///
/// `read` passes its arguments to a function of the library: a buffer of `cap` writable bytes (NULL
/// for 0) and the output for the length.
///
/// # Errors
///
/// Errors from `read`, except `DTL_ERROR_BUFFER_TOO_SMALL`.
pub fn read_text(
    call: &'static str,
    mut read: impl FnMut(*mut c_char, u64, *mut u64) -> sys::dtl_status_t,
) -> Result<String> {
    let mut length = 0;
    check(call, read(std::ptr::null_mut(), 0, &raw mut length))?;
    loop {
        let mut bytes = vec![0_u8; length as usize + 1];
        let status = read(bytes.as_mut_ptr().cast(), bytes.len() as u64, &raw mut length);
        if status == sys::DTL_ERROR_BUFFER_TOO_SMALL && length as usize >= bytes.len() {
            continue;
        }
        check(call, status)?;
        bytes.truncate(length as usize);
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
}

/// Converts a string for a parameter of the function `call` to a C string.
pub(crate) fn c_string(call: &'static str, parameter: &str, text: &str) -> Result<CString> {
    CString::new(text)
        .map_err(|_| Error::argument(call, format!("{parameter}: the text has a NUL inside")))
}
