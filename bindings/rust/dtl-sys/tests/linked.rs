//! A program that uses the declarations runs with the library that it is linked with.
//!
//! Needs libdtl.so.0.2: DTL_LIB_DIR=$PWD/build/stage/lib cargo test -p dtl-sys.

use std::ffi::CStr;

#[test]
fn versions_agree() {
    assert_eq!(dtl_sys::DTL_VERSION_STRING.to_str(), Ok(env!("CARGO_PKG_VERSION")));
    // SAFETY: the text lives for ever and ends with NUL.
    let linked = unsafe { CStr::from_ptr(dtl_sys::dtl_version_string()) };
    assert_eq!(linked, dtl_sys::DTL_VERSION_STRING);
    assert_eq!(dtl_sys::dtl_library_abi_version(), dtl_sys::DTL_ABI_VERSION);
}

#[test]
fn a_failed_call_leaves_its_text() {
    let mut backend = dtl_sys::DTL_BACKEND_NULL;
    // SAFETY: the name ends with NUL; the output is a local.
    let status = unsafe { dtl_sys::dtl_backend_get(c"no-such-backend".as_ptr(), &raw mut backend) };
    assert_eq!(status, dtl_sys::DTL_ERROR_NOT_FOUND);
    // SAFETY: the text ends with NUL and lives until this thread's next call.
    let text = unsafe { CStr::from_ptr(dtl_sys::dtl_last_error()) };
    assert!(text.to_string_lossy().contains("no-such-backend"), "{text:?}");
}
