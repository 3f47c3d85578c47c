//! Time: nanoseconds of the monotonic clock, and deadlines.

use std::sync::atomic::{AtomicU64, Ordering};

/// Returns the nanoseconds since the first call of this function in this process.
pub fn now_ns() -> u64 {
    static START: AtomicU64 = AtomicU64::new(0);
    let now = node_ns();
    let start = match START.load(Ordering::Relaxed) {
        0 => START.fetch_max(now, Ordering::Relaxed).max(now),
        start => start,
    };
    now.saturating_sub(start)
}

/// Returns the nanoseconds of the system's monotonic clock, which all processes of the node share.
pub fn node_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Returns the nanoseconds of a coarse clock. The clock advances every few milliseconds; a read
/// takes a few nanoseconds.
pub fn coarse_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC_COARSE)
}

/// Reads a clock, in nanoseconds. Every Linux has these clocks; 0 for a missing clock.
fn read(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to the `timespec` behind the pointer, which lives through the call.
    let _ = unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec.unsigned_abs().wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec.unsigned_abs())
}

/// Time at which an operation times out; `u64::MAX` nanoseconds mean never.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Option<u64>);

impl Deadline {
    /// Deadline that never passes.
    pub const NEVER: Deadline = Deadline(None);

    /// Creates a deadline `timeout_ns` nanoseconds from now; `u64::MAX` means never.
    pub fn after(timeout_ns: u64) -> Self {
        if timeout_ns == u64::MAX {
            Self::NEVER
        } else {
            Deadline(Some(now_ns().saturating_add(timeout_ns)))
        }
    }

    /// Returns true if the deadline has passed. Reads no clock if the deadline is infinite.
    pub fn passed(self) -> bool {
        self.0.is_some_and(|at| now_ns() >= at)
    }

    /// Returns the nanoseconds until the deadline; `u64::MAX` if it is infinite.
    pub fn left_ns(self) -> u64 {
        self.0.map_or(u64::MAX, |at| at.saturating_sub(now_ns()))
    }

    /// Returns the deadline that is `by_ns` nanoseconds earlier.
    pub fn earlier(self, by_ns: u64) -> Self {
        Deadline(self.0.map(|at| at.saturating_sub(by_ns)))
    }

    /// Returns true if the deadline is finite.
    pub fn is_finite(self) -> bool {
        self.0.is_some()
    }
}
