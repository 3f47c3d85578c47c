//! Process-wide flags that are read for every message, in one cache line. Each field is owned by
//! one module, which documents the field.

use crate::sys::sync::lock::OpenState;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// Process-wide flags that are read for every message, in one cache line.
#[repr(C, align(64))]
pub(super) struct HotGlobals {
    /// State of the library. Owned by `lifecycle`.
    pub(super) gate: OpenState,
    /// Number of live allocations that the host cannot access. Owned by `memory::device_only`.
    pub(super) hidden: AtomicUsize,
    /// Number of transports and of started requests that need progress. Owned by
    /// `comm::progress_count`.
    pub(super) moving: AtomicU64,
}

/// Flags of this process that are read for every message.
pub(super) static HOT: HotGlobals =
    HotGlobals { gate: OpenState::new(), hidden: AtomicUsize::new(0), moving: AtomicU64::new(0) };
