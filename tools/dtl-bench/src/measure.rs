//! Measuring method: the implementations that are compared (sides) run many short batches
//! alternately. The distance between two processors (round-trip time of a cache line) is measured
//! before and after each batch.
//!
//! The average of a long run would depend more on other load on the machine than on the measured
//! code.

use crate::out::Outcome;
use crate::stats::{Regime, Samples};
use std::time::{Duration, Instant};

/// Maximum number of warm-up batches of each compared implementation. Warm-up ends earlier if the
/// measuring time is over.
const WARM_UP: usize = 3;
/// Maximum number of batches of each compared implementation. Only very fast operations reach this
/// maximum.
const MOST: usize = 100_000;

/// Test in which one or more implementations (sides) do the same work.
pub(crate) trait Bench {
    /// Runs one batch of the implementation with the index `side`. Returns nanoseconds per
    /// operation.
    fn batch(&mut self, side: usize) -> Outcome<f64>;

    /// Returns the round-trip time, in nanoseconds, of a cache line between the two processors;
    /// `None` if it is unknown.
    fn distance(&mut self) -> Option<f64>;

    /// Returns, on every rank, the value of `go_on` that rank 0 passed. In a test that does not run
    /// on ranks, returns `go_on`.
    fn agree(&mut self, go_on: bool) -> Outcome<bool> {
        Ok(go_on)
    }
}

/// Runs batches of all compared implementations (sides) alternately, until each has used its
/// measuring time `budget`, and longer if they have no regime in common yet. Returns the samples of
/// each implementation.
pub(crate) fn in_turn(
    bench: &mut dyn Bench,
    sides: usize,
    budget: Duration,
) -> Outcome<Vec<Samples>> {
    let begin = Instant::now();
    for _ in 0..WARM_UP {
        (0..sides).try_for_each(|side| bench.batch(side).map(drop))?;
        if !bench.agree(begin.elapsed() < budget)? {
            break;
        }
    }
    let mut samples = vec![Samples::default(); sides];
    let begin = Instant::now();
    let mut before = bench.distance();
    for count in 1.. {
        for (side, samples) in samples.iter_mut().enumerate() {
            let took = bench.batch(side)?;
            let after = bench.distance();
            samples.push(Regime::of(before, after), took);
            before = after;
        }
        let spent = begin.elapsed() / sides.max(1) as u32;
        let has_values = || Regime::ALL.iter().any(|&at| samples.iter().all(|of| of.has(at)));
        let again = goes_on(count, spent, budget) || (spent < 40 * budget && !has_values());
        if !bench.agree(again)? {
            break;
        }
    }
    Ok(samples)
}

/// Returns true if another batch is needed after `count` batches and the time `spent` on each
/// compared implementation. Long operations get more time than `budget`, so that there are enough
/// samples for a percentile.
fn goes_on(count: usize, spent: Duration, budget: Duration) -> bool {
    let is_early =
        spent < budget || (count < 15 && spent < 4 * budget) || (count < 3 && spent < 40 * budget);
    is_early && count < MOST
}

#[cfg(test)]
#[path = "tests/measure.rs"]
mod tests;
