//! Time and waiting: clocks, deadlines, fast measurement of durations, and loops that wait for
//! another thread or process: they first spin, then yield, then sleep.
//!
//! Where possible, a duration is measured at half the cost of two clock reads, with the time stamp
//! counter (TSC) of an x86 processor. This module uses the counter if Linux uses it for its own
//! clock: Linux has then verified that the counter runs at a constant rate and is synchronized
//! across all processors (Intel SDM vol. 3, 18.17.1; Linux, arch/x86/kernel/tsc.c). Reading the
//! counter directly avoids the fences and the conversion of a clock read. On all other systems this
//! module reads the clock.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Returns the time in nanoseconds since the first call to this function in this process.
#[inline]
pub fn now_ns() -> u64 {
    static START: AtomicU64 = AtomicU64::new(0);
    let now = node_ns();
    let start = match START.load(Ordering::Relaxed) {
        0 => START.fetch_max(now, Ordering::Relaxed).max(now),
        start => start,
    };
    now.saturating_sub(start)
}

/// Returns the time of the system's monotonic clock in nanoseconds. All processes on a node share
/// this clock.
pub fn node_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Returns the time of the system's coarse monotonic clock in nanoseconds. The clock advances every
/// few milliseconds; a read takes a few nanoseconds.
pub fn coarse_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC_COARSE)
}

/// Returns the time of a clock in nanoseconds; 0 if the system does not have the clock (every Linux
/// has the clocks used here).
fn read(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to the `timespec` behind the pointer, which lives through the call.
    let _ = unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec.unsigned_abs().wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec.unsigned_abs())
}

/// Time at which an operation times out, or never.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Option<u64>);

impl Deadline {
    /// Deadline that never passes.
    pub const NEVER: Deadline = Deadline(None);

    /// Creates a deadline `timeout_ns` nanoseconds from now; `u64::MAX` means never.
    #[inline]
    pub fn after(timeout_ns: u64) -> Self {
        if timeout_ns == u64::MAX {
            Self::NEVER
        } else {
            Deadline(Some(now_ns().saturating_add(timeout_ns)))
        }
    }

    /// Returns true if the deadline has passed. Does not read the clock if the deadline is
    /// infinite.
    pub fn passed(self) -> bool {
        self.0.is_some_and(|at| now_ns() >= at)
    }

    /// Returns the time until the deadline in nanoseconds; 0 if it has passed, `u64::MAX` if it is
    /// infinite.
    pub fn left_ns(self) -> u64 {
        self.0.map_or(u64::MAX, |at| at.saturating_sub(now_ns()))
    }

    /// Returns the deadline that is `by_ns` nanoseconds earlier than this one.
    pub fn earlier(self, by_ns: u64) -> Self {
        Deadline(self.0.map(|at| at.saturating_sub(by_ns)))
    }

    /// Returns true if the deadline is finite.
    pub fn is_finite(self) -> bool {
        self.0.is_some()
    }
}

/// Nanoseconds per tick of the time stamp counter; `None` if durations are measured with the clock,
/// not with the counter. Set once, at the first measurement.
static TICK_NS: OnceLock<Option<f64>> = OnceLock::new();
/// Time in nanoseconds over which the rate of the time stamp counter is measured, long compared
/// with a clock read (about 30 ns).
const MEASURE_NS: u64 = 300_000;

/// Timer that measures a duration; contains the start time in ticks or nanoseconds.
#[derive(Clone, Copy)]
pub struct TscTimer(u64);

impl TscTimer {
    /// Starts a timer. The first call in a process takes about a third of a millisecond if the rate
    /// of the time stamp counter must be measured.
    pub fn start() -> Self {
        TscTimer(if TICK_NS.get_or_init(measure).is_some() { ticks() } else { now_ns() })
    }

    /// Returns the time since the start of the timer in nanoseconds.
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

/// Reads the time stamp counter and the clock at nearly the same time, and returns both. Returns
/// the result of the fastest of 16 attempts, because another thread may have run on the processor
/// between the two reads.
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

/// Returns 0. Replaces the read of the time stamp counter on systems without one, where it is never
/// called because `measure` returns `None`.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn ticks() -> u64 {
    0
}

/// Number of unsuccessful polls after which a waiting thread yields instead of spinning, if nothing
/// is known about the load on the processors. Together these polls take a few times as long as the
/// transfer of a cache line.
const SPINS: u32 = 50;
/// Number of unsuccessful polls after which a waiting thread yields, if each thread or process has
/// a processor of its own. In that case, a yield does not help any other thread, and the yielding
/// thread may lose its processor for milliseconds.
const LONG_SPINS: u32 = 2_000;
/// Number of unsuccessful polls after which a waiting thread yields, if there are more waiting
/// threads than processors: a spinning thread can keep the thread that it waits for from running.
/// With four ranks on two processors, a broadcast followed by a barrier takes a sixth less time
/// with 1 poll than with 12; a barrier alone takes equally long.
const OVERSUBSCRIBED_SPINS: u32 = 1;
/// Duration in nanoseconds of a yield to a thread that soon waits itself. A yield takes half a
/// microsecond if no other thread is ready, and milliseconds if the other thread does not wait.
const SHARED_NS: Range<u64> = 2_000..500_000;
/// Number of polls, each followed by a yield, before the first sleep. A yield takes about half a
/// microsecond.
const YIELDS: u32 = 2_000;
/// Longest sleep between two polls.
const LONGEST_SLEEP: Duration = Duration::from_micros(500);
/// Number of polls, each followed by a yield, before the first sleep of a thread that other threads
/// can wake. Such a thread sleeps sooner than others, so that hundreds of waiting threads on a few
/// cores leave the cores to threads with work. It also sleeps longer (`LONGEST_REST`), because the
/// timeout is needed only for events that do not wake it.
const YIELDS_IF_WOKEN: u32 = 100;
const LONGEST_REST: Duration = Duration::from_millis(10);

/// State of one wait, which first spins, then yields, then sleeps between polls. Each wait needs a
/// new `Backoff`.
pub struct Backoff {
    polls: u32,
    spins: u32,
    /// Value that the `rest` closure of [`Backoff::pause_on`] stores through its first argument,
    /// for its next call.
    seen: u64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

/// Number of polls for which the waiting threads of a communicator spin before they yield. With a
/// processor for each thread, it adapts to the duration of yields: the system may run two threads
/// on one processor for a while.
pub struct SpinLimit {
    polls: AtomicU32,
    is_adapted: bool,
}

impl SpinLimit {
    /// Creates the limit. `is_oversubscribed` is true if there are more waiting threads than
    /// processors, and `None` if that is unknown.
    pub fn new(is_oversubscribed: Option<bool>) -> SpinLimit {
        let polls = match is_oversubscribed {
            Some(true) => OVERSUBSCRIBED_SPINS,
            Some(false) => LONG_SPINS,
            None => SPINS,
        };
        SpinLimit { polls: AtomicU32::new(polls), is_adapted: is_oversubscribed == Some(false) }
    }

    /// Calls `pause`, the first yield of a wait, and chooses the limit of later waits by the time
    /// that it takes.
    fn yield_with(&self, pause: impl FnOnce()) {
        let begin_ns = now_ns();
        pause();
        let is_shared = SHARED_NS.contains(&now_ns().saturating_sub(begin_ns));
        let polls = if is_shared { OVERSUBSCRIBED_SPINS } else { LONG_SPINS };
        // The number is only a hint: it guards no other memory.
        if self.polls.load(Ordering::Relaxed) != polls {
            self.polls.store(polls, Ordering::Relaxed);
        }
    }
}

/// Calls `attempt` until it returns a value or an error, and pauses between the calls. Returns
/// `None` if a call has returned `None` and `deadline` has passed.
pub fn poll<T, E>(
    deadline: Deadline,
    mut attempt: impl FnMut() -> Result<Option<T>, E>,
) -> Result<Option<T>, E> {
    let mut backoff = Backoff::new();
    loop {
        let done = attempt()?;
        if done.is_some() || deadline.passed() {
            return Ok(done);
        }
        backoff.pause();
    }
}

impl Backoff {
    /// Creates the state of a new wait.
    pub fn new() -> Self {
        Backoff { polls: 0, spins: SPINS, seen: 0 }
    }

    /// Pauses after an unsuccessful poll: spins, yields or sleeps, depending on the number of polls
    /// so far.
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

    /// Pauses after an unsuccessful poll, if another thread can wake this one. The closure `rest`
    /// sleeps for at most the duration in its second argument. In its first argument, the closure
    /// stores the state of the event that the thread waits for. The next call to the closure does
    /// not sleep if this state has changed. The closure returns false if it cannot sleep.
    pub fn pause_on(&mut self, limit: &SpinLimit, rest: impl FnOnce(&mut u64, Duration) -> bool) {
        if self.polls == 0 {
            self.spins = limit.polls.load(Ordering::Relaxed);
        }
        let spins = self.spins;
        if self.polls < spins {
            self.polls += 1;
            std::hint::spin_loop();
            return;
        }
        if self.polls == spins && limit.is_adapted {
            return limit.yield_with(|| self.pause());
        }
        let sleeps = self.polls.saturating_sub(spins + YIELDS).min(10);
        let limit = (Duration::from_micros(50) * (1 << sleeps)).min(LONGEST_REST);
        if self.polls >= spins + YIELDS_IF_WOKEN && rest(&mut self.seen, limit) {
            self.polls = self.polls.saturating_add(1).max(spins + YIELDS + 1);
        } else {
            self.pause();
        }
    }

    /// Returns true if the number of polls so far is a multiple of `of`.
    pub fn is_turn(&self, of: u32) -> bool {
        self.polls % of == 0
    }

    /// Returns true on every 64th poll after the first `SPINS` polls and, once the wait sleeps
    /// between polls, on every poll. Only when this function returns true do callers check
    /// deadlines and whether peers are alive.
    pub fn is_long(&self) -> bool {
        self.polls > SPINS && self.polls % 64 == 0 || self.polls > self.spins + YIELDS
    }
}

/// Time in nanoseconds that a waiting thread spins (`SPIN_NS`), and that it spins or yields in
/// total (`PATIENCE_NS`), before it sleeps until another thread wakes it. Both are longer than a
/// wake-up (about 30 us), so that the threads are still awake when parallel loops follow each other
/// quickly.
const SPIN_NS: u64 = 50_000;
const PATIENCE_NS: u64 = 200_000;
/// Time in nanoseconds that a waiting thread spins (`OVERSUBSCRIBED_SPIN_NS`), and that it spins or
/// yields in total (`OVERSUBSCRIBED_PATIENCE_NS`), before it sleeps, if there are more threads than
/// processors: a spinning thread then keeps another thread from running.
const OVERSUBSCRIBED_SPIN_NS: u64 = 2_000;
const OVERSUBSCRIBED_PATIENCE_NS: u64 = 50_000;
/// Number of polls between two reads of the clock.
const POLLS: u32 = 16;

/// State of one wait, in which the caller polls for a bounded time and then sleeps on a
/// [`futex`](super::futex).
pub struct FutexBackoff {
    polls: u32,
    begin_ns: Option<u64>,
    spin_ns: u64,
    limit_ns: u64,
}

impl FutexBackoff {
    /// Creates the state of a new wait. `is_oversubscribed` is true if there are more threads than
    /// processors.
    pub fn new(is_oversubscribed: bool) -> Self {
        let (spin_ns, limit_ns) = if is_oversubscribed {
            (OVERSUBSCRIBED_SPIN_NS, OVERSUBSCRIBED_PATIENCE_NS)
        } else {
            (SPIN_NS, PATIENCE_NS)
        };
        FutexBackoff { polls: 0, begin_ns: None, spin_ns, limit_ns }
    }

    /// Pauses after an unsuccessful poll: spins or yields. Returns false if the caller should sleep
    /// now.
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
#[cfg(test)]
#[path = "tests/wait.rs"]
mod wait_tests;
