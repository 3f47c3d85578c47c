//! Measures tests that run within this process, and prints the results. Each test has one closure
//! that calls the library, and one closure for each peer (implementation that the library is
//! compared with). The closures run alternately.

use crate::machine;
use crate::measure::{self, Bench};
use crate::options::Common;
use crate::out::Outcome;
use crate::probe::Helper;
use crate::stats::Samples;
use crate::table::{self, Line, Progress, Table, Unit};
use serde_json::{Value, json};
use std::time::Instant;

/// Function that runs one batch (a number of repetitions of an operation) and returns nanoseconds
/// per operation.
pub(crate) type Batch<'a> = Box<dyn FnMut() -> Outcome<f64> + 'a>;

/// Test that becomes one row of the table: the library and the implementations that it is compared
/// with.
pub(crate) struct Case<'a> {
    pub(crate) test: &'static str,
    pub(crate) bytes: Option<usize>,
    pub(crate) unit: Unit,
    pub(crate) sides: Vec<(&'static str, Batch<'a>)>,
}

impl<'a> Case<'a> {
    /// Creates a test without a size, in nanoseconds. It compares batches of the library with those
    /// of one peer.
    pub(crate) fn new(
        test: &'static str,
        ours: impl FnMut() -> Outcome<f64> + 'a,
        (peer, theirs): (&'static str, impl FnMut() -> Outcome<f64> + 'a),
    ) -> Case<'a> {
        let sides: Vec<(_, Batch)> = vec![("dtl", Box::new(ours)), (peer, Box::new(theirs))];
        Case { test, bytes: None, unit: Unit::Nanoseconds, sides }
    }
}

/// Repeats an operation and returns nanoseconds per repetition.
pub(crate) fn time(repeats: usize, mut once: impl FnMut() -> Outcome) -> Outcome<f64> {
    let begin = Instant::now();
    for _ in 0..repeats {
        once()?;
    }
    Ok(begin.elapsed().as_nanos() as f64 / repeats as f64)
}

struct Turns<'a, 'b> {
    case: &'a mut Case<'b>,
    helper: Option<&'a mut Helper>,
}

impl Bench for Turns<'_, '_> {
    fn batch(&mut self, side: usize) -> Outcome<f64> {
        let (name, batch) = &mut self.case.sides[side];
        batch().map_err(|text| format!("{} of {name}: {text}", self.case.test))
    }

    fn distance(&mut self) -> Option<f64> {
        self.helper.as_mut()?.round_trip()
    }
}

/// Runs the test cases and measures their times. `helper` is a thread on another processor, for
/// tests whose time depends on the distance between two processors (round-trip time of a cache
/// line).
pub(crate) fn measure(
    mut cases: Vec<Case>,
    common: &Common,
    mut helper: Option<Helper>,
) -> Outcome<Vec<Line>> {
    let mut all: Vec<_> =
        cases.iter().map(|case| vec![Samples::default(); case.sides.len()]).collect();
    let mut progress = Progress::new(cases.len() * common.rounds as usize);
    for round in 0..common.rounds {
        for (case, samples) in cases.iter_mut().zip(&mut all) {
            progress.next(case.test);
            let sides = case.sides.len();
            let mut turns = Turns { case, helper: helper.as_mut() };
            let found = measure::in_turn(&mut turns, sides, common.budget())?;
            samples.iter_mut().zip(found).for_each(|(samples, found)| samples.append(round, found));
        }
    }
    let line = |(case, samples): (Case, Vec<Samples>)| Line {
        test: case.test.to_owned(),
        bytes: case.bytes.map(|bytes| bytes as u64),
        unit: case.unit,
        sides: case.sides.iter().map(|side| side.0.to_owned()).zip(samples).collect(),
    };
    Ok(cases.into_iter().zip(all).map(line).collect())
}

/// Prints the results with the properties of the machine and of the measurement, and with the
/// further properties in `more`.
pub(crate) fn show(
    measured: &str,
    lines: Vec<Line>,
    processors: usize,
    common: &Common,
    more: Value,
) {
    let mut head = json!({
        "measured": measured,
        "version": env!("CARGO_PKG_VERSION"),
        "machine": machine::facts(processors),
        "seconds": common.budget().as_secs_f64(),
        "rounds": common.rounds,
    });
    if let (Some(head), Value::Object(more)) = (head.as_object_mut(), more) {
        head.extend(more);
    }
    table::show(&Table { head, lines }, common.json);
}
