//! Time: nanoseconds of the monotonic clock, and deadlines.

use std::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds since the first call in this process.
#[must_use]
pub fn now_ns() -> u64 {
    static START: AtomicU64 = AtomicU64::new(0);
    let now = node_ns();
    let start = match START.load(Ordering::Relaxed) {
        0 => START.fetch_max(now, Ordering::Relaxed).max(now),
        start => start,
    };
    now.saturating_sub(start)
}

/// Nanoseconds of the monotonic clock as the system has it: the same for every process of the node.
#[must_use]
#[inline]
pub fn node_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds of a clock that moves every few milliseconds, and is read in a few nanoseconds.
#[must_use]
#[inline]
pub fn coarse_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC_COARSE)
}

/// Every Linux has these clocks; 0 if it had not.
#[inline]
fn read(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the value that the pointer is to, which lives through the call.
    let _ = unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec.unsigned_abs().wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec.unsigned_abs())
}

/// A point in time after which an operation gives up; `u64::MAX` nanoseconds = never.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Option<u64>);

impl Deadline {
    /// Never.
    pub const NEVER: Deadline = Deadline(None);

    /// `timeout_ns` from now; `u64::MAX` = never.
    #[must_use]
    pub fn after(timeout_ns: u64) -> Self {
        if timeout_ns == u64::MAX {
            Self::NEVER
        } else {
            Deadline(Some(now_ns().saturating_add(timeout_ns)))
        }
    }

    /// Whether it has passed. Free for a deadline that never comes.
    #[must_use]
    pub fn passed(self) -> bool {
        self.0.is_some_and(|at| now_ns() >= at)
    }

    /// Nanoseconds left; `u64::MAX` = for ever.
    #[must_use]
    pub fn left_ns(self) -> u64 {
        self.0.map_or(u64::MAX, |at| at.saturating_sub(now_ns()))
    }

    /// So many nanoseconds before it.
    #[must_use]
    pub fn earlier(self, by_ns: u64) -> Self {
        Deadline(self.0.map(|at| at.saturating_sub(by_ns)))
    }

    /// Whether it ever comes.
    #[must_use]
    pub fn is_finite(self) -> bool {
        self.0.is_some()
    }
}
