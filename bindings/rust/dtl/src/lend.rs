//! Buffers that are lent to the library: what makes it sound to pass borrowed memory.
//!
//! # Blocking calls
//! A blocking call borrows its buffers and gives them back when it returns. By the contract of
//! `dtl_comm_send` nothing accesses the buffers after the return, with one exception: a registered
//! kind (a plugin's transport) may be unable to release the buffer of a message that was matched
//! before a time limit passed or a rank died. The call then fails 5 s later, and its text states
//! that the transport has not given the buffer back. No later call ends this state, not even
//! `dtl_comm_destroy`: the transport may access the buffer as long as the process runs. Safe code
//! could free or change the buffer after any return, and an unwinding panic would return too. So
//! `ended` then writes the text to standard error and aborts the process. Built-in kinds always
//! release the buffers. A program that has to survive this state calls the functions of
//! [`sys`] with buffers that it never frees.
//!
//! # Operations in a scope
//! The buffers of nonblocking operations are borrowed until their [`scope`](crate::scope()) ends.
//! The scope returns, or unwinds, only after `close` has ended every request that is still in
//! flight. The scope itself has the list of the handles. So it does not matter whether a
//! [`Request`](crate::Request) is dropped or leaked. A request that cannot be cancelled (a
//! collective, a send of an MPI library) is waited for, without a limit. If that takes 5 s, the state
//! of the request is written to standard error once.
//!
//! A wait that fails may leave its request in flight, if the transport has failed. `close` is called
//! for each such request, too; it has no effect on one that is complete.
//!
//! # Finalization
//! `dtl_finalize` invalidates all handles, so that `close` could no longer determine whether a
//! buffer is in use. Therefore a [`Library`](crate::Library) does not finalize the library while a
//! scope is open. The same holds while a [`Memory`](crate::Memory) exists, which can be a buffer.
//!
//! # Epochs
//! One-sided operations borrow their buffers until their epoch ends. The unlock is repeated while it
//! returns DTL_ERROR_TIMEOUT, which means that operations still use their buffers. If the epoch does
//! not exist any more, because its end was called through [`sys`], the process is aborted.
//!
//! A fence that fails may leave operations in flight. Their targets are then locked and unlocked, as
//! an unlock completes all operations on a target. If one cannot be locked, nothing shows when its
//! operations end, and the process is aborted. There is one exception: where ranks access the memory
//! with loads and stores, each operation was complete when its call returned.

use crate::error::failure;
use crate::{Error, Result, sys};
use std::io::Write;
use std::ptr;
use std::time::{Duration, Instant};

/// Part of the text of a failed operation whose buffer the transport has not released.
const NOT_RELEASED: &str = "has not given the buffer back";

/// Converts the status of a call to which buffers were lent. Returns only if the library has
/// released them, or if the call has started an operation with them.
#[inline]
pub(crate) fn lent(call: &'static str, status: sys::dtl_status_t) -> Result {
    if status == sys::DTL_SUCCESS { Ok(()) } else { Err(ended(call, status)) }
}

/// Returns the error of a failed call whose buffers the library has released. Otherwise aborts the
/// process.
#[cold]
fn ended(call: &'static str, status: sys::dtl_status_t) -> Error {
    let error = failure(call, status);
    if error.text.contains(NOT_RELEASED) {
        abort(&error);
    }
    error
}

/// Writes the error to standard error and aborts the process.
pub(crate) fn abort(error: &Error) -> ! {
    report(&format!(
        "{error}. The process is aborted, because the caller of this safe function may reuse the \
         buffer. To continue instead, call dtl_binding::sys::{} with a buffer that is never freed.",
        error.call
    ));
    std::process::abort()
}

fn report(text: &str) {
    // Nobody can be told that standard error is closed.
    let _ = writeln!(std::io::stderr(), "dtl: {text}");
}

/// Calls a function that borrows buffers, and turns its status into a [`Result`], see [`lent`].
macro_rules! lend {
    ($name:ident($($argument:expr),* $(,)?)) => {
        $crate::lend::lent(stringify!($name), $crate::sys::$name($($argument),*))
    };
}
pub(crate) use lend;

/// Time after which a wait of [`close`] is reported.
const REPORT: Duration = Duration::from_secs(5);

/// Ends a request: cancels it, or waits until it is complete. Returns when nothing accesses its
/// buffers any more.
pub(crate) fn close(request: sys::dtl_request_t) {
    const CALL: &str = "dtl_request_destroy";
    let mut is_reported = false;
    loop {
        match sys::dtl_request_destroy(request) {
            // The second: a wait has completed it, or its communicator was destroyed. The third and
            // the fourth: the library was finalized, or copied by a fork, in unsafe code.
            sys::DTL_SUCCESS
            | sys::DTL_ERROR_INVALID_HANDLE
            | sys::DTL_ERROR_INVALID_STATE
            | sys::DTL_ERROR_FORKED => return,
            // It cannot be cancelled.
            sys::DTL_ERROR_BUSY | sys::DTL_ERROR_NOT_SUPPORTED => {
                let infinite = sys::DTL_TIMEOUT_INFINITE;
                let limit = if is_reported { infinite } else { REPORT.as_nanos() as u64 };
                let start = Instant::now();
                // SAFETY: NULL is allowed: no information is wanted.
                let status = unsafe { sys::dtl_request_wait(request, limit, ptr::null_mut()) };
                // The failure of an operation that nobody waits for is discarded.
                let outcome = lent("dtl_request_wait", status);
                if let Err(error) = outcome {
                    if status == sys::DTL_ERROR_TIMEOUT && !is_reported && start.elapsed() >= REPORT
                    {
                        report(&format!("{error}. The scope waits until the request is complete."));
                        is_reported = true;
                    }
                }
            }
            // Another thread is destroying the communicator, and the request with it.
            sys::DTL_ERROR_CANCELED => std::thread::yield_now(),
            status @ sys::DTL_ERROR_TIMEOUT => {
                if !is_reported {
                    let error = failure(CALL, status);
                    report(&format!("{error}. Waiting until the transport releases the buffer."));
                }
                is_reported = true;
            }
            status => abort(&failure(CALL, status)),
        }
    }
}
