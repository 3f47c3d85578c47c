//! Waiting for another thread or process: spin a little, then yield, then sleep.

use std::time::Duration;

/// Polls that spin before the first yield: about as long as a cache line takes to arrive.
const SPINS: u32 = 50;
/// Polls that yield before the first sleep (a yield is about half a microsecond).
const YIELDS: u32 = 2_000;
/// The longest sleep between two polls.
const LONGEST_SLEEP: Duration = Duration::from_micros(500);
/// Where the sleeper is woken, it goes to sleep sooner, so that hundreds of threads on a few cores leave
/// these to those with work, and sleeps longer: the clock only has to show what does not wake it.
const YIELDS_IF_WOKEN: u32 = 100;
const LONGEST_REST: Duration = Duration::from_millis(10);

/// One wait's progress from spinning to sleeping. Make a new one for each wait.
#[derive(Default)]
pub struct Backoff {
    polls: u32,
    /// What a rest was told last; see [`Backoff::pause_on`].
    seen: u64,
}

impl Backoff {
    /// A fresh wait.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Call between two polls that found nothing.
    pub fn pause(&mut self) {
        self.polls = self.polls.saturating_add(1);
        if self.polls <= SPINS {
            std::hint::spin_loop();
        } else if self.polls <= SPINS + YIELDS {
            std::thread::yield_now();
        } else {
            let sleeps = (self.polls - SPINS - YIELDS).min(50);
            std::thread::sleep((Duration::from_micros(10) * sleeps).min(LONGEST_SLEEP));
        }
    }

    /// As [`Backoff::pause`], where there may be somebody who wakes: `rest` sleeps for the given time at
    /// most unless there is news since the call that set its first argument, and answers whether it can.
    pub fn pause_on(&mut self, rest: impl FnOnce(&mut u64, Duration) -> bool) {
        let sleeps = self.polls.saturating_sub(SPINS + YIELDS).min(10);
        let limit = (Duration::from_micros(50) * (1 << sleeps)).min(LONGEST_REST);
        if self.polls >= SPINS + YIELDS_IF_WOKEN && rest(&mut self.seen, limit) {
            self.polls = self.polls.saturating_add(1).max(SPINS + YIELDS + 1);
        } else {
            self.pause();
        }
    }

    /// Whether the wait has got past spinning: time to look at clocks and at peers' health.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.polls > SPINS && self.polls % 64 == 0 || self.polls > SPINS + YIELDS
    }
}
