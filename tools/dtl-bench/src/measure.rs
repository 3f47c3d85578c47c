//! The method: many short batches of each side in turn, with a look at the processors' distance
//! between them.
//!
//! Averages of long runs say more about what else the machine does than about the code.

use crate::out::Outcome;
use crate::stats::{Regime, Samples};
use std::time::{Duration, Instant};

/// Batches that are not counted, if they are short.
const WARM_UP: usize = 3;
/// More than are needed, if something is very fast.
const MOST: usize = 100_000;

/// Something with one or more sides that do the same.
pub(crate) trait Bench {
    /// One batch of a side: nanoseconds per operation.
    fn batch(&mut self, side: usize) -> Outcome<f64>;

    /// A cache line's round trip between two processors in nanoseconds; `None`: it cannot be told.
    fn distance(&mut self) -> Option<f64>;

    /// Whether all ranks go on: what the first of them says.
    fn agree(&mut self, go_on: bool) -> Outcome<bool> {
        Ok(go_on)
    }
}

/// Measures all sides in turn, as long as there is time for each.
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

/// Long operations get more time, so that there is at least something to take a percentile of.
fn goes_on(count: usize, spent: Duration, budget: Duration) -> bool {
    let is_early =
        spent < budget || (count < 15 && spent < 4 * budget) || (count < 3 && spent < 40 * budget);
    is_early && count < MOST
}

#[cfg(test)]
#[path = "tests/measure.rs"]
mod tests;
