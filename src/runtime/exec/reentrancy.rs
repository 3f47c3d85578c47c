//! Record of the stream or executor whose work the calling thread runs, identified by the address
//! of the object that orders the work. A piece of work that waits for work queued after itself
//! would deadlock; with this record, the library detects such a wait, which then fails with an
//! error.

use crate::error::{Result, fail};
use std::cell::Cell;

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// Runs `work`. Until `work` returns, records that the calling thread runs work of the stream or
/// executor `of`.
pub(super) fn during<T>(of: usize, work: impl FnOnce() -> T) -> T {
    let before = CURRENT.replace(of);
    let result = work();
    CURRENT.set(before);
    result
}

/// Returns true if the calling thread runs work of the stream or executor `of`.
pub(super) fn is(of: usize) -> bool {
    of != 0 && CURRENT.get() == of
}

/// Returns the error for a piece of work that waits for work queued after it on the same stream or
/// executor. Such a wait would deadlock.
pub(super) fn refused<T>() -> Result<T> {
    fail!(
        DTL_ERROR_INVALID_STATE,
        "the event is recorded behind the work that waits for it; wait in another thread"
    )
}
