//! Owner of the work that the calling thread runs: a stream or executor, identified by the address
//! of the object that keeps its order. A piece of work that waits for work queued behind itself
//! would deadlock, so such waits fail.

use crate::error::{Result, fail};
use std::cell::Cell;

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// Runs a piece of work that belongs to the owner `of`.
pub(super) fn during<T>(of: usize, work: impl FnOnce() -> T) -> T {
    let before = CURRENT.replace(of);
    let result = work();
    CURRENT.set(before);
    result
}

/// Returns true if the calling thread runs work of the owner `of`.
pub(super) fn is(of: usize) -> bool {
    of != 0 && CURRENT.get() == of
}

/// Returns the error of work that waits for a later event of its own stream, which is a deadlock.
pub(super) fn refused<T>() -> Result<T> {
    fail!(
        DTL_ERROR_INVALID_STATE,
        "the event is recorded behind the work that waits for it; wait in another thread"
    )
}
