//! Queries of OpenCL objects: values, strings, and lists of handles.

use super::symbols::*;
use crate::sys::memory::buf::Addr;
use std::ptr;

/// Queries a list of handles by calling `ask` twice: for the number of entries, then for the
/// entries.
pub(super) fn ids(
    ask: impl Fn(cl_uint, *mut *mut c_void, *mut cl_uint) -> cl_int,
) -> std::result::Result<Vec<Addr>, cl_int> {
    let mut count = 0;
    let code = ask(0, ptr::null_mut(), &raw mut count);
    if code < 0 {
        return Err(code);
    }
    if count == 0 {
        return Ok(Vec::new());
    }
    let mut all = vec![ptr::null_mut(); count as usize];
    let code = ask(count, all.as_mut_ptr(), ptr::null_mut());
    if code < 0 { Err(code) } else { Ok(all.into_iter().map(Addr::new).collect()) }
}

/// Placeholder for a string that cannot be queried.
pub(super) const UNKNOWN: &str = "?";

/// Queries a string by calling `ask`; `None` if the query fails.
pub(super) fn text(ask: impl Fn(usize, *mut c_void, *mut usize) -> cl_int) -> Option<String> {
    let mut size = 0;
    if ask(0, ptr::null_mut(), &raw mut size) < 0 {
        return None;
    }
    let mut bytes = vec![0u8; size];
    let code = ask(size, bytes.as_mut_ptr().cast(), ptr::null_mut());
    let text = String::from_utf8_lossy(&bytes);
    (code >= 0).then(|| text.trim_end_matches('\0').trim().to_owned())
}

/// Plain-old-data type, for values that OpenCL writes as bytes: every bit pattern is valid.
pub(super) trait Pod: Default + Copy {}
impl Pod for i32 {}
impl Pod for u32 {}
impl Pod for u64 {}
impl Pod for usize {}
impl Pod for [usize; 8] {}

/// Queries a value by calling `ask` with the size in bytes and the address of the output. Returns
/// the result code of a failed query.
pub(super) fn query<T: Pod>(
    ask: impl FnOnce(usize, *mut c_void) -> cl_int,
) -> std::result::Result<T, cl_int> {
    let mut value = T::default();
    let code = ask(size_of::<T>(), (&raw mut value).cast());
    if code < 0 { Err(code) } else { Ok(value) }
}
