//! The method: many short batches of each side in turn, and the distance of the processors around
//! each batch.
//!
//! Averages of long runs depend more on other load of the machine than on the code.

use crate::out::Outcome;
use crate::stats::{Regime, Samples};
use std::time::{Duration, Instant};

/// Number of warm-up batches, if batches are short.
const WARM_UP: usize = 3;
/// Limit on the number of batches of very fast operations.
const MOST: usize = 100_000;

/// Test with one or more sides that do the same work.
pub(crate) trait Bench {
    /// Runs one batch of a side and returns nanoseconds per operation.
    fn batch(&mut self, side: usize) -> Outcome<f64>;

    /// Returns a cache line's round trip between two processors in nanoseconds; `None` if unknown.
    fn distance(&mut self) -> Option<f64>;

    /// Returns the first rank's decision to continue, on all ranks.
    fn agree(&mut self, go_on: bool) -> Outcome<bool> {
        Ok(go_on)
    }
}

/// Measures all sides in turn until the time for each is used up.
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
        if !bench.agree(goes_on(count, begin.elapsed() / sides.max(1) as u32, budget))? {
            break;
        }
    }
    Ok(samples)
}

/// Returns true to run another batch. Long operations get more time, so that there are enough
/// samples for a percentile.
fn goes_on(count: usize, spent: Duration, budget: Duration) -> bool {
    let is_early =
        spent < budget || (count < 15 && spent < 4 * budget) || (count < 3 && spent < 40 * budget);
    is_early && count < MOST
}

#[cfg(test)]
#[path = "tests/measure.rs"]
mod tests;
