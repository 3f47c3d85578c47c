//! Waiting for another thread or process: spin a little, then yield, then sleep.

use std::time::Duration;

/// Polls that spin before the first yield: about as long as a cache line takes to arrive.
const SPINS: u32 = 50;
/// Polls that yield before the first sleep (a yield is about half a microsecond).
const YIELDS: u32 = 2_000;
/// The longest sleep between two polls.
const LONGEST_SLEEP: Duration = Duration::from_micros(500);

/// One wait's progress from spinning to sleeping. Make a new one for each wait.
#[derive(Default)]
pub struct Backoff {
    polls: u32,
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

    /// Whether the wait has got past spinning: time to look at clocks and at peers' health.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.polls > SPINS && self.polls % 64 == 0 || self.polls > SPINS + YIELDS
    }
}
