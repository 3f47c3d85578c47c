//! Slots for windows that do it wrong, for the tests of what the library makes of that.

use super::put;
use super::window::{create, put_there, rank};
use dtl_sys::*;
use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// What those say that fail.
pub(crate) const TEXT: &str = "no registers left on port 2";

fn fail() -> dtl_status_t {
    let text = CString::new(TEXT).unwrap_or_default();
    // SAFETY: a text that lives through the call.
    let _ = unsafe { dtl_backend_set_error(text.as_ptr()) };
    DTL_ERROR_BACKEND
}

pub(crate) unsafe extern "C" fn create_fails(
    _: *mut c_void,
    _: *mut c_void,
    _: *mut c_void,
    _: u64,
    _: *mut *mut c_void,
    _: *mut c_void,
    _: *mut u32,
) -> dtl_status_t {
    fail()
}

pub(crate) unsafe extern "C" fn create_null(
    _: *mut c_void,
    _: *mut c_void,
    _: *mut c_void,
    _: u64,
    out_win: *mut *mut c_void,
    _: *mut c_void,
    _: *mut u32,
) -> dtl_status_t {
    put(out_win, ptr::null_mut())
}

pub(crate) unsafe extern "C" fn create_long_key(
    own: *mut c_void,
    comm: *mut c_void,
    base: *mut c_void,
    size_bytes: u64,
    out_win: *mut *mut c_void,
    key: *mut c_void,
    out_key_bytes: *mut u32,
) -> dtl_status_t {
    // SAFETY: the library's call, passed on.
    let status = unsafe { create(own, comm, base, size_bytes, out_win, key, out_key_bytes) };
    put(out_key_bytes, DTL_WIN_KEY_BYTES + 1);
    status
}

pub(crate) unsafe extern "C" fn attach_fails(
    _: *mut c_void,
    _: *mut c_void,
    _: *mut c_void,
    _: i32,
    _: *const c_void,
    _: u32,
) -> dtl_status_t {
    fail()
}

/// A put that does something else.
macro_rules! another_put {
    ($name:ident, |$args:ident| $body:expr) => {
        pub(crate) unsafe extern "C" fn $name(
            own: *mut c_void,
            comm: *mut c_void,
            window: *mut c_void,
            buffer: *const c_void,
            size_bytes: u64,
            target: i32,
            offset: u64,
            out_op: *mut u64,
        ) -> dtl_status_t {
            let $args = (own, comm, window, buffer, size_bytes, target, offset, out_op);
            $body
        }
    };
}

another_put!(put_nonsense, |_args| 31_337);
another_put!(put_fails, |_args| fail());
another_put!(put_ends_badly, |args| {
    // SAFETY: the library's call.
    let rank = unsafe { rank(args.1) };
    let op = rank.next_op();
    rank.finish(op, (0, 0, 0), DTL_ERROR_BACKEND);
    put(args.7, op)
});
another_put!(put_is_busy, |args| {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    if CALLS.fetch_add(1, Ordering::Relaxed) % 2 == 0 {
        return DTL_ERROR_BUSY;
    }
    // SAFETY: the library's call, passed on.
    unsafe { put_there(args.0, args.1, args.2, args.3, args.4, args.5, args.6, args.7) }
});
