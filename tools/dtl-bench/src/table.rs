//! Prints the results as a text table or as JSON; the module `json` converts them to JSON.

use crate::json;
use crate::machine;
use crate::out::say;
use crate::stats::{Regime, Samples, Summary};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use std::io::IsTerminal;
use std::time::Duration;

/// Unit in which the table shows a measured time of an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Unit {
    /// Nanoseconds.
    Nanoseconds,
    /// Microseconds.
    Microseconds,
    /// GB/s; the value is the number of bytes that one operation transfers.
    Bandwidth(f64),
    /// Millions of operations a second.
    Rate,
}

impl Unit {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Unit::Nanoseconds => "ns",
            Unit::Microseconds => "us",
            Unit::Bandwidth(_) => "GB/s",
            Unit::Rate => "M/s",
        }
    }

    pub(crate) fn of(self, nanoseconds: f64) -> f64 {
        match self {
            Unit::Nanoseconds => nanoseconds,
            Unit::Microseconds => nanoseconds / 1e3,
            Unit::Bandwidth(bytes) => bytes / nanoseconds,
            Unit::Rate => 1e3 / nanoseconds,
        }
    }

    /// Converts a ratio of times to a ratio of values.
    pub(crate) fn ratio(self, of_times: f64) -> f64 {
        if self.grows() { 1.0 / of_times } else { of_times }
    }

    /// Returns true if larger values are better.
    pub(crate) fn grows(self) -> bool {
        matches!(self, Unit::Bandwidth(_) | Unit::Rate)
    }
}

/// Row of the table: a test with the samples of each compared implementation (side).
pub(crate) struct Line {
    pub(crate) test: String,
    pub(crate) bytes: Option<u64>,
    pub(crate) unit: Unit,
    /// Name and samples of each implementation: the library first, then those that it is compared
    /// with.
    pub(crate) sides: Vec<(String, Samples)>,
}

/// Results of a run.
pub(crate) struct Table {
    /// Properties of the machine and of the run.
    pub(crate) head: Value,
    pub(crate) lines: Vec<Line>,
}

/// Minimum number of samples that each implementation (side) must have in a regime (class of the
/// distance between the processors) for the table to show this regime. If no regime has that many,
/// the table shows the regimes with the most samples.
const FEW: usize = 5;

impl Line {
    /// Returns the regimes (classes of the distance between the processors) with at least `FEW`
    /// samples of every implementation; if no regime has that many, returns those with the most
    /// samples. Each entry contains the statistics of every implementation.
    pub(crate) fn regimes(&self) -> Vec<(Regime, Vec<Summary>)> {
        let of = |regime: Regime| {
            let all: Option<Vec<_>> =
                self.sides.iter().map(|(_, samples)| samples.summary(regime)).collect();
            all.filter(|all| !all.is_empty()).map(|all| (regime, all))
        };
        let mut found: Vec<_> = Regime::ALL.into_iter().filter_map(of).collect();
        let count = |one: &(Regime, Vec<Summary>)| {
            one.1.iter().map(|summary| summary.count).min().unwrap_or(0)
        };
        let most = found.iter().map(count).max().unwrap_or(0);
        found.retain(|one| count(one) >= FEW.min(most));
        found
    }

    /// Returns the library's time divided by that of the implementation `side`, and the number of
    /// rounds of which it is the median.
    pub(crate) fn ratio(&self, side: usize, regime: Regime) -> Option<(f64, usize)> {
        self.sides[0].1.ratio(&self.sides[side].1, regime)
    }
}

/// Writes the table to standard output, as text or as JSON.
pub(crate) fn show(table: &Table, as_json: bool) {
    if as_json {
        say!("{:#}", json::table(table));
    } else {
        say!("{}", text(table).trim_end());
    }
}

fn text(table: &Table) -> String {
    let head = &table.head;
    let mut text = format!("{}\n", machine::line(&head["machine"]));
    if let Some(kind) = head["kind"].as_str() {
        let transport = head["transport"].as_str().unwrap_or_default();
        text += &format!("{kind}, {} ranks: {transport}\n", head["ranks"]);
    }
    if let Some(version) = head["peer"]["version"].as_str() {
        let name = head["peer"]["name"].as_str().unwrap_or_default();
        text += &format!("{name}: {version}\n");
    }
    let peers: Vec<&str> = table
        .lines
        .first()
        .iter()
        .flat_map(|line| line.sides.iter().skip(1))
        .map(|side| &*side.0)
        .collect();
    text += &format!(
        "\n{:<14}{:>9} {:<5}{:<8}{:>6}{:>10}{:>10}{:>10}",
        "test", "bytes", "unit", "regime", "n", "dtl p10", "best", "median"
    );
    for peer in &peers {
        text += &format!("{:>14}{:>8}", format!("{peer} p10"), "ratio");
    }
    text.push('\n');
    for line in &table.lines {
        for (regime, sides) in line.regimes() {
            text += &row(line, regime, &sides);
            text.push('\n');
        }
    }
    if !peers.is_empty() {
        text += "\nratio: dtl / peer; of times less is better, of GB/s and M/s more\n";
    }
    text
}

fn row(line: &Line, regime: Regime, sides: &[Summary]) -> String {
    let bytes = line.bytes.map_or(String::new(), |bytes| bytes.to_string());
    let (own, peers) = sides.split_at(1);
    let own = own[0];
    let of = |nanoseconds: f64| line.unit.of(nanoseconds);
    let mut text = format!(
        "{:<14}{bytes:>9} {:<5}{:<8}{:>6}",
        line.test,
        line.unit.name(),
        regime.name(),
        own.count
    );
    for value in [own.p10, own.best, own.median] {
        text += &format!("{:>10}", digits(of(value)));
    }
    for (side, peer) in (1..).zip(peers) {
        let ratio = line.ratio(side, regime).map_or(f64::NAN, |ratio| line.unit.ratio(ratio.0));
        text += &format!("{:>14}{ratio:>8.2}", digits(of(peer.p10)));
    }
    text
}

/// Formats a value with four significant digits (fewer for values below 1, more for values of 10000
/// and above).
pub(crate) fn digits(value: f64) -> String {
    let places = match value.abs() {
        above if above >= 1000.0 => 0,
        above if above >= 100.0 => 1,
        above if above >= 10.0 => 2,
        above if above >= 1.0 => 3,
        _ => 4,
    };
    format!("{value:.places$}")
}

/// Creates a progress bar on standard error, which is hidden if standard error is not a terminal.
pub(crate) fn bar(length: u64, template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(length);
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Progress bar for the steps of a measurement.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn new(steps: usize) -> Progress {
        Progress(bar(steps as u64, "{elapsed} {bar:30} {pos}/{len} {msg}, {eta} left"))
    }

    /// Creates a bar that redraws itself at regular intervals during long steps. Use only if this
    /// process does not measure during these steps.
    pub(crate) fn ticking(steps: usize) -> Progress {
        let bar = bar(steps as u64, "{elapsed}, row {pos} of {len}: {msg}");
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(500));
        }
        Progress(bar)
    }

    /// Shows that the next step begins. A bar without [`Progress::ticking`] is drawn only in this
    /// call, so that drawing does not disturb a measurement.
    pub(crate) fn next(&mut self, what: &str) {
        self.0.set_message(what.to_owned());
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
#[path = "tests/table.rs"]
mod tests;
