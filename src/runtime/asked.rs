//! What every message asks of the whole process, in one line of the cache. Each word belongs to one
//! module, which says what it means.

use crate::sys::os::open_state::Gate;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// See the module's text.
#[repr(C, align(64))]
pub(super) struct Asked {
    /// `lifecycle`'s.
    pub(super) gate: Gate,
    /// `memory::hidden`'s: live allocations that the host cannot reach.
    pub(super) hidden: AtomicUsize,
    /// `comm::progress`'s: what wants to be moved on.
    pub(super) moving: AtomicU64,
}

/// The process'.
pub(super) static ASKED: Asked =
    Asked { gate: Gate::new(), hidden: AtomicUsize::new(0), moving: AtomicU64::new(0) };
