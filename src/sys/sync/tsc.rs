//! Measuring durations at half the cost of two clock reads.
//!
//! If Linux derives its own clock from the time stamp counter of an x86 processor, it has verified
//! that the counter ticks at one rate, and in step on all processors (Intel SDM vol. 3, 18.17.1;
//! Linux, arch/x86/kernel/tsc.c). This module then reads the counter itself, without the clock's
//! fences and conversion. On all other systems it reads the clock.

use super::clock::now_ns;
use std::sync::OnceLock;

/// Nanoseconds of a tick; `None` if the clock is read instead. Constant after its first use.
static TICK_NS: OnceLock<Option<f64>> = OnceLock::new();
/// Nanoseconds of counting ticks to measure their rate; a clock read takes only about 30.
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

#[cfg(test)]
#[path = "tests/tsc.rs"]
mod tests;
