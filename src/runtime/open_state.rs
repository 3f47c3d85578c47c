//! State of the library, which determines whether calls are admitted. It is separate from
//! `lifecycle`, so that modules on which `lifecycle` depends can read it.

use super::hot_globals::HOT;
use crate::abi::handle::dtl_backend_t;
use crate::error::{Result, fail};
use crate::sys::{handles::epoch, sync::lock::OpenState};
use std::cell::Cell;

/// State of the library; only `lifecycle` changes it.
pub(super) static GATE: &OpenState = &HOT.gate;

thread_local! {
    /// True in threads that the library has started and that run user callbacks.
    static IS_OWN_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Returns true in a thread that [`enter_own_thread`] has marked.
pub(super) fn is_own_thread() -> bool {
    IS_OWN_THREAD.get()
}

/// Marks the calling thread as a thread of the library until the thread ends. Such a thread runs
/// user callbacks that were submitted to streams and executors, and finalize waits for the thread.
pub fn enter_own_thread() {
    IS_OWN_THREAD.set(true);
}

/// Returns true if calls are admitted and not traced. Fast path of [`admit`].
pub fn is_open() -> bool {
    GATE.state() == OpenState::OPEN
}

/// Returns true if calls are admitted.
pub(super) fn lets_pass() -> bool {
    matches!(GATE.state(), OpenState::OPEN | OpenState::TRACED)
}

/// Returns true if calls are admitted and traced.
pub fn is_traced() -> bool {
    GATE.state() == OpenState::TRACED
}

/// Returns true if the library is open and `backend` is the backend whose memory of the kinds HOST,
/// DEVICE and MANAGED comes from the library's own allocator. Calls that take only a few
/// nanoseconds check nothing else.
pub fn is_open_for(backend: dtl_backend_t) -> bool {
    backend.id != 0 && GATE.pass() == backend.id
}

/// Returns true if the library is open. A call that takes only a few nanoseconds needs no further
/// check if this function returns true.
pub fn is_open_for_quick() -> bool {
    GATE.pass() != 0
}

/// Returns true if this process is a forked child that has not yet reinitialized the library.
pub fn is_fork() -> bool {
    GATE.state() == OpenState::FORKED
}

pub(super) fn forked_inside() -> Result<()> {
    fail!(
        DTL_ERROR_INVALID_STATE,
        "at the fork another thread was inside a dtl_ call (or a stream or executor was at work): \
         what it had locked and half done stays so in this process, which cannot use the library; \
         fork while nobody uses it"
    )
}

/// Returns a guard for code that may run in any state of the library and that takes a lock. A child
/// process that is forked while the guard exists detects that this thread was inside the library.
/// Fails in a forked child if another thread may have held a lock at the time of the fork.
pub fn aside() -> Result<epoch::ForkGuard> {
    if is_fork() && epoch::another_was_inside() {
        forked_inside()?;
    }
    Ok(epoch::aside())
}
