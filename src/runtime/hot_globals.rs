//! Process-wide flags that every message reads, kept in one cache line. Each word belongs to one
//! module, which documents it.

use crate::sys::os::open_state::OpenState;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// Process-wide flags that every message reads, in one cache line.
#[repr(C, align(64))]
pub(super) struct HotGlobals {
    /// `lifecycle`'s.
    pub(super) gate: OpenState,
    /// `memory::hidden`'s: live allocations that the host cannot reach.
    pub(super) hidden: AtomicUsize,
    /// `comm::progress`'s: communication that needs progress.
    pub(super) moving: AtomicU64,
}

/// The process'.
pub(super) static HOT: HotGlobals =
    HotGlobals { gate: OpenState::new(), hidden: AtomicUsize::new(0), moving: AtomicU64::new(0) };
