//! Faulty window functions of a comm table, for tests of the library's reaction to them.

use super::window::{create, put_there, rank};
use super::{Const, Out, Ptr, Status, put};
use dtl_sys::*;
use std::ffi::CString;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Error message that the failing functions set.
pub(crate) const TEXT: &str = "no registers left on port 2";

fn fail() -> Status {
    let text = CString::new(TEXT).unwrap_or_default();
    // SAFETY: a text that lives through the call.
    let _ = unsafe { dtl_backend_set_error(text.as_ptr()) };
    DTL_ERROR_BACKEND
}

pub(crate) unsafe extern "C" fn create_fails(
    _: Ptr,
    _: Ptr,
    _: Ptr,
    _: u64,
    _: Out,
    _: Ptr,
    _: *mut u32,
) -> Status {
    fail()
}

pub(crate) unsafe extern "C" fn create_null(
    _: Ptr,
    _: Ptr,
    _: Ptr,
    _: u64,
    out_win: Out,
    _: Ptr,
    _: *mut u32,
) -> Status {
    put(out_win, ptr::null_mut())
}

pub(crate) unsafe extern "C" fn create_long_key(
    own: Ptr,
    comm: Ptr,
    base: Ptr,
    size_bytes: u64,
    out_win: Out,
    key: Ptr,
    out_key_bytes: *mut u32,
) -> Status {
    // SAFETY: the library's call, passed on.
    let status = unsafe { create(own, comm, base, size_bytes, out_win, key, out_key_bytes) };
    put(out_key_bytes, DTL_WIN_KEY_BYTES + 1);
    status
}

pub(crate) unsafe extern "C" fn attach_fails(
    _: Ptr,
    _: Ptr,
    _: Ptr,
    _: i32,
    _: Const,
    _: u32,
) -> Status {
    fail()
}

/// Defines a faulty implementation of `win_put`. `$args` is the tuple of its arguments.
macro_rules! another_put {
    ($name:ident, |$args:ident| $body:expr) => {
        pub(crate) unsafe extern "C" fn $name(
            own: Ptr,
            comm: Ptr,
            window: Ptr,
            buffer: Const,
            size_bytes: u64,
            target: i32,
            offset: u64,
            out_op: *mut u64,
        ) -> Status {
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
