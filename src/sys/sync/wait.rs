//! Time and waiting: clocks, deadlines, cheap measurement of durations, and waits for another
//! thread or process that spin first, then yield, then sleep.
//!
//! Durations are measured at half the cost of two clock reads where that is possible. If Linux
//! derives its own clock from the time stamp counter of an x86 processor, it has verified that the
//! counter ticks at one rate, and in step on all processors (Intel SDM vol. 3, 18.17.1; Linux,
//! arch/x86/kernel/tsc.c). This module then reads the counter itself, without the clock's fences
//! and conversion. On all other systems it reads the clock.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};
use std::time::Duration;

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

/// Nanoseconds of a tick; `None` if the clock is read instead. Constant after its first use.
static TICK_NS: OnceLock<Option<f64>> = OnceLock::new();
/// Time for which ticks are counted to measure their rate, in nanoseconds. A clock read takes only
/// about 30.
const MEASURE_NS: u64 = 300_000;

/// Start time of a measured duration.
#[derive(Clone, Copy)]
pub struct TscTimer(u64);

impl TscTimer {
    /// Starts a timer. The first call of a process takes a third of a millisecond.
    pub fn start() -> Self {
        TscTimer(if TICK_NS.get_or_init(measure).is_some() { ticks() } else { now_ns() })
    }

    /// Returns the nanoseconds since the start.
    pub fn elapsed_ns(self) -> u64 {
        match TICK_NS.get_or_init(measure) {
            Some(tick_ns) => (ticks().saturating_sub(self.0) as f64 * tick_ns) as u64,
            None => now_ns().saturating_sub(self.0),
        }
    }
}

#[cold]
fn measure() -> Option<f64> {
    let source =
        std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    // Miri does not support the counter.
    if cfg!(any(not(target_arch = "x86_64"), miri)) || source.ok()?.trim() != "tsc" {
        return None;
    }
    let begin = both();
    while now_ns() - begin.1 < MEASURE_NS {}
    let end = both();
    (end.0 > begin.0).then(|| (end.1 - begin.1) as f64 / (end.0 - begin.0) as f64)
}

/// Reads ticks and nanoseconds at one moment. Of 16 tries it returns the shortest, because other
/// threads may have run on the processor between the reads.
fn both() -> (u64, u64) {
    let look = |_| {
        let (before, now) = (ticks(), now_ns());
        (ticks().saturating_sub(before), (before, now))
    };
    (0..16).map(look).min_by_key(|(took, _)| *took).map_or((0, 0), |(_, both)| both)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn ticks() -> u64 {
    // SAFETY: every processor of this architecture has the instruction; it touches no memory.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Returns 0. Never called: `measure` returns `None` where there is no counter.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn ticks() -> u64 {
    0
}

/// Number of polls that spin before the first yield: a few times as long as a cache line transfer.
const SPINS: u32 = 50;
/// Number of polls that spin before the first yield where each thread or process has a processor of
/// its own. There a yield helps no other thread, and may cost the processor for milliseconds.
const LONG_SPINS: u32 = 2_000;
/// Number of polls that spin before the first yield where there are more waiters than processors: a
/// spinning waiter can keep the thread that it waits for from running. Four ranks on two
/// processors: a broadcast and a barrier take a sixth less time with 1 than with 12; barriers alone
/// take as long.
const CROWDED_SPINS: u32 = 1;
/// Number of polls that yield before the first sleep (a yield takes about half a microsecond).
const YIELDS: u32 = 2_000;
/// Longest sleep between two polls.
const LONGEST_SLEEP: Duration = Duration::from_micros(500);
/// Number of polls that yield before the first sleep of a waiter that other threads can wake. Such
/// a waiter sleeps sooner, so that hundreds of threads on a few cores leave the cores to those with
/// work. It also sleeps longer, because the timeout only has to catch events that do not wake it.
const YIELDS_IF_WOKEN: u32 = 100;
const LONGEST_REST: Duration = Duration::from_millis(10);

/// Progress of one wait from spinning to sleeping. Each wait needs a new `Backoff`.
pub struct Backoff {
    polls: u32,
    spins: u32,
    /// First argument of `rest`, as its latest call stored it; see [`Backoff::pause_on`].
    seen: u64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the number of polls that spin. `is_crowded` is true if there are more waiters than
/// processors, and `None` if that is unknown.
pub fn spins(is_crowded: Option<bool>) -> u32 {
    match is_crowded {
        Some(true) => CROWDED_SPINS,
        Some(false) => LONG_SPINS,
        None => SPINS,
    }
}

impl Backoff {
    /// Creates the state of a new wait.
    pub fn new() -> Self {
        Backoff { polls: 0, spins: SPINS, seen: 0 }
    }

    /// Pauses between two polls that found nothing: spins, yields or sleeps.
    pub fn pause(&mut self) {
        self.polls = self.polls.saturating_add(1);
        if self.polls <= self.spins {
            std::hint::spin_loop();
        } else if self.polls <= self.spins + YIELDS {
            std::thread::yield_now();
        } else {
            let sleeps = (self.polls - self.spins - YIELDS).min(50);
            std::thread::sleep((Duration::from_micros(10) * sleeps).min(LONGEST_SLEEP));
        }
    }

    /// Pauses between two polls that found nothing, where another thread may wake this one. `rest`
    /// sleeps for at most the duration in its second argument, unless an event has occurred since
    /// the call that set its first argument; it returns whether it can sleep. `spins`: see
    /// [`spins`].
    pub fn pause_on(&mut self, spins: u32, rest: impl FnOnce(&mut u64, Duration) -> bool) {
        self.spins = spins;
        if self.polls < spins {
            self.polls += 1;
            std::hint::spin_loop();
            return;
        }
        let sleeps = self.polls.saturating_sub(spins + YIELDS).min(10);
        let limit = (Duration::from_micros(50) * (1 << sleeps)).min(LONGEST_REST);
        if self.polls >= spins + YIELDS_IF_WOKEN && rest(&mut self.seen, limit) {
            self.polls = self.polls.saturating_add(1).max(spins + YIELDS + 1);
        } else {
            self.pause();
        }
    }

    /// Returns true on every `of`-th poll.
    pub fn is_turn(&self, of: u32) -> bool {
        self.polls % of == 0
    }

    /// Returns true once the wait is past spinning: time to check clocks and the health of peers.
    pub fn is_long(&self) -> bool {
        self.polls > SPINS && self.polls % 64 == 0 || self.polls > self.spins + YIELDS
    }
}

/// Nanoseconds that a thread spins (`SPIN_NS`), and spins or yields (`PATIENCE_NS`), before it
/// sleeps until another thread wakes it. Both are longer than a wake-up (about 30 us), so that
/// loops in quick succession find all threads awake.
const SPIN_NS: u64 = 50_000;
const PATIENCE_NS: u64 = 200_000;
/// Nanoseconds that a thread spins (`CROWDED_SPIN_NS`), and spins or yields
/// (`CROWDED_PATIENCE_NS`), before it sleeps, where there are more threads than processors: a
/// spinning thread keeps another thread from running.
const CROWDED_SPIN_NS: u64 = 2_000;
const CROWDED_PATIENCE_NS: u64 = 50_000;
/// Number of polls between two reads of the clock.
const POLLS: u32 = 16;

/// One wait that, after a bounded time of polling, ends in a [`futex`](super::futex) sleep.
pub struct FutexBackoff {
    polls: u32,
    begin_ns: Option<u64>,
    spin_ns: u64,
    limit_ns: u64,
}

impl FutexBackoff {
    /// Creates the state of a new wait. `is_crowded`: there are more threads than processors.
    pub fn new(is_crowded: bool) -> Self {
        let (spin_ns, limit_ns) = if is_crowded {
            (CROWDED_SPIN_NS, CROWDED_PATIENCE_NS)
        } else {
            (SPIN_NS, PATIENCE_NS)
        };
        FutexBackoff { polls: 0, begin_ns: None, spin_ns, limit_ns }
    }

    /// Pauses between two polls that found nothing. Returns false when it is time to sleep.
    pub fn pause(&mut self) -> bool {
        self.polls += 1;
        if self.polls % POLLS != 0 {
            std::hint::spin_loop();
            return true;
        }
        self.look_at_clock()
    }

    fn look_at_clock(&mut self) -> bool {
        let now = now_ns();
        let waited = now - *self.begin_ns.get_or_insert(now);
        if waited >= self.spin_ns {
            std::thread::yield_now();
            self.polls = POLLS - 1; // from here on yield at each poll
        }
        waited < self.limit_ns
    }
}

#[cfg(test)]
#[path = "tests/tsc.rs"]
mod tsc_tests;
