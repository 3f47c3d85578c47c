//! Process-wide flags that every message reads, kept in one cache line. Each word belongs to one
//! module, which documents the word.

use crate::sys::sync::lock::OpenState;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// Process-wide flags that every message reads, in one cache line.
#[repr(C, align(64))]
pub(super) struct HotGlobals {
    /// State of the library: owned by `lifecycle`.
    pub(super) gate: OpenState,
    /// Number of live allocations that the host cannot access: owned by `memory::device_only`.
    pub(super) hidden: AtomicUsize,
    /// Communication that needs progress: owned by `comm::progress_count`.
    pub(super) moving: AtomicU64,
}

/// The flags of this process.
pub(super) static HOT: HotGlobals =
    HotGlobals { gate: OpenState::new(), hidden: AtomicUsize::new(0), moving: AtomicU64::new(0) };
