//! Whose work the calling thread is doing: a stream's or executor's, by the address of what keeps
//! its order. Who waits for something behind the work that it is itself would wait for ever.

use crate::error::{Result, fail};
use std::cell::Cell;

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// Does a piece of work of that one.
pub(super) fn during<T>(of: usize, work: impl FnOnce() -> T) -> T {
    let before = CURRENT.replace(of);
    let result = work();
    CURRENT.set(before);
    result
}

/// Whether the calling thread does work of that one.
pub(super) fn is(of: usize) -> bool {
    of != 0 && CURRENT.get() == of
}

/// What a wait for an event behind the waiting work itself answers.
#[cold]
pub(super) fn refused<T>() -> Result<T> {
    fail!(
        DTL_ERROR_INVALID_STATE,
        "the event is recorded behind the work that waits for it; wait in another thread"
    )
}
