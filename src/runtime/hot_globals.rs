//! Process-wide flags that every message reads, kept in one cache line. Each word belongs to one
//! module, which documents it.

use crate::sys::os::open_state::Gate;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// Process-wide flags that every message reads, in one cache line.
#[repr(C, align(64))]
pub(super) struct Asked {
    /// `lifecycle`'s.
    pub(super) gate: Gate,
    /// `memory::hidden`'s: live allocations that the host cannot reach.
    pub(super) hidden: AtomicUsize,
    /// `comm::progress`'s: communication that needs progress.
    pub(super) moving: AtomicU64,
}

/// The process'.
pub(super) static ASKED: Asked =
    Asked { gate: Gate::new(), hidden: AtomicUsize::new(0), moving: AtomicU64::new(0) };
