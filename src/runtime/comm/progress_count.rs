//! Number of objects in this process that need library calls to make progress.

use crate::runtime::hot_globals::HOT;
use crate::sys::sync::AtomicUpdate;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of objects that need progress, in one word that every call reads before it blocks in a
/// transport. The value modulo [`RUNNING_ONE`] is the number of transports whose operations
/// progress only during calls. The value divided by [`RUNNING_ONE`] is the number of started
/// requests that need progress.
static MOVING: &AtomicU64 = &HOT.moving;
const RUNNING_ONE: u64 = 1 << 32;

/// Updates the number of open transports whose operations progress only during calls: increments it
/// if `comes` is true (a transport is opened), else decrements it (a transport is closed).
pub(super) fn count_transport(comes: bool) {
    let change = if comes { AtomicU64::fetch_add } else { AtomicU64::fetch_sub };
    change(MOVING, 1, Ordering::Relaxed);
}

/// Stores the number of started requests that need progress.
pub(super) fn set_running(length: usize) {
    let length = length as u64 * RUNNING_ONE;
    let set = |moving| Some(moving % RUNNING_ONE + length);
    let _before = MOVING.checked_update(Ordering::Relaxed, Ordering::Relaxed, set);
}

/// Returns true if started requests may need progress. In this case, waiting threads poll instead
/// of sleeping.
pub(super) fn has_running() -> bool {
    MOVING.load(Ordering::Relaxed) >= RUNNING_ONE
}

/// Returns true if a transport needs library calls to make progress.
pub(super) fn has_transports() -> bool {
    MOVING.load(Ordering::Relaxed) % RUNNING_ONE != 0
}

/// Returns true if no object in this process needs library calls to make progress.
pub(super) fn is_idle() -> bool {
    MOVING.load(Ordering::Relaxed) == 0
}

/// Sets all counts to 0 in a forked child.
pub(super) fn forget() {
    MOVING.store(0, Ordering::Relaxed);
}
