//! Owner of the work that the calling thread is doing: a stream or executor, identified by the
//! address of the object that keeps its order. Work that waits for something queued behind itself
//! would wait for ever, so such waits are refused.

use crate::error::{Result, fail};
use std::cell::Cell;

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// Does a piece of work that `of` owns.
pub(super) fn during<T>(of: usize, work: impl FnOnce() -> T) -> T {
    let before = CURRENT.replace(of);
    let result = work();
    CURRENT.set(before);
    result
}

/// Returns true if the calling thread is doing work that `of` owns.
pub(super) fn is(of: usize) -> bool {
    of != 0 && CURRENT.get() == of
}

/// Makes the error for a wait for an event behind the waiting work itself.
pub(super) fn refused<T>() -> Result<T> {
    fail!(
        DTL_ERROR_INVALID_STATE,
        "the event is recorded behind the work that waits for it; wait in another thread"
    )
}
