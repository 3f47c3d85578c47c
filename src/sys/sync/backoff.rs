//! Waiting for another thread or process: spin a little, then yield, then sleep.

use super::clock::now_ns;
use std::time::Duration;

/// Polls that spin before the first yield: a few times as long as a cache line takes to arrive.
const SPINS: u32 = 50;
/// Polls that spin before the first yield where each thread or process has a processor of its own:
/// a yield would help none of them, and may give the processor to something else for milliseconds.
const LONG_SPINS: u32 = 2_000;
/// Polls that spin before the first yield where there are more waiters than processors: a spinning
/// waiter can keep the one that it waits for from running. Four ranks on two processors: a
/// broadcast and a barrier take a sixth less time with 1 than with 12, barriers alone as long.
const CROWDED_SPINS: u32 = 1;
/// Polls that yield before the first sleep (a yield is about half a microsecond).
const YIELDS: u32 = 2_000;
/// The longest sleep between two polls.
const LONGEST_SLEEP: Duration = Duration::from_micros(500);
/// Where the sleeper is woken, it goes to sleep sooner, so that hundreds of threads on a few cores
/// leave these to those with work, and sleeps longer: the clock only has to show what does not wake
/// it.
const YIELDS_IF_WOKEN: u32 = 100;
const LONGEST_REST: Duration = Duration::from_millis(10);

/// One wait's progress from spinning to sleeping. Make a new one for each wait.
pub struct Backoff {
    polls: u32,
    spins: u32,
    /// First argument of `rest`, as its last call left it; see [`Backoff::pause_on`].
    seen: u64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns how many polls spin. `is_crowded`: more waiters than processors; `None`: unknown.
#[must_use]
pub fn spins(is_crowded: Option<bool>) -> u32 {
    match is_crowded {
        Some(true) => CROWDED_SPINS,
        Some(false) => LONG_SPINS,
        None => SPINS,
    }
}

impl Backoff {
    /// A fresh wait.
    #[must_use]
    pub fn new() -> Self {
        Backoff { polls: 0, spins: SPINS, seen: 0 }
    }

    /// Call between two polls that found nothing.
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
    /// sleeps for at most the given time, unless there is news since the call that set its first
    /// argument; it returns whether it can sleep. `spins`: the result of [`spins`].
    #[inline]
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

    /// Whether this poll is one of every `of`-th.
    #[inline]
    #[must_use]
    pub fn is_turn(&self, of: u32) -> bool {
        self.polls % of == 0
    }

    /// Whether the wait has got past spinning: time to look at clocks and at peers' health.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.polls > SPINS && self.polls % 64 == 0 || self.polls > self.spins + YIELDS
    }
}

/// Time to spin, and to spin or yield, before a thread that another one can wake sleeps: longer
/// than a wake-up takes (some 30 us), so that loops in quick succession find all threads awake.
const SPIN_NS: u64 = 50_000;
const PATIENCE_NS: u64 = 200_000;
/// Time to spin, and to spin or yield, before the sleep where there are more threads than
/// processors: a spinning thread keeps another one from running.
const CROWDED_SPIN_NS: u64 = 2_000;
const CROWDED_PATIENCE_NS: u64 = 50_000;
/// Polls from one look at the clock to the next.
const POLLS: u32 = 16;

/// One wait that ends in the sleep of a [`futex`](super::futex), after a bounded time.
pub struct FutexBackoff {
    polls: u32,
    begin_ns: Option<u64>,
    spin_ns: u64,
    limit_ns: u64,
}

impl FutexBackoff {
    /// A fresh wait.
    #[must_use]
    pub fn new(is_crowded: bool) -> Self {
        let (spin_ns, limit_ns) = if is_crowded {
            (CROWDED_SPIN_NS, CROWDED_PATIENCE_NS)
        } else {
            (SPIN_NS, PATIENCE_NS)
        };
        FutexBackoff { polls: 0, begin_ns: None, spin_ns, limit_ns }
    }

    /// Call between two polls that found nothing; false = it is time to sleep.
    #[inline]
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
