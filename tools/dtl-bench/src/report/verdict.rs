//! Table of performance targets in a report: each row that has a target, in each regime (class of
//! the distance between the processors), compared with the fastest peer (implementation that the
//! library is compared with) in that regime.

use super::notes::Notes;
use super::run::{Of, Row, Run};
use super::target::{self, By, Target};
use crate::stats::Regime;
use crate::table::digits;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Regimes that a report shows.
pub(crate) const SHOWN: [Regime; 3] = [Regime::Near, Regime::Far, Regime::Unknown];

/// Minimum number of batches for a comparison with the target.
const ENOUGH: u64 = 10;

/// Result of the comparison of a row with its target, in one regime (class of the distance between
/// the processors).
struct Finding<'a> {
    row: &'a Row,
    /// Name of the row with its configuration.
    name: String,
    size: String,
    regime: Regime,
    place: usize,
    target: &'static Target,
    /// Value of the library in nanoseconds.
    ours: f64,
    theirs: Option<f64>,
    peer: String,
    /// Value for which the target sets a limit: a ratio, or a time in nanoseconds.
    value: f64,
}

/// Returns the table, and the notes on missed targets.
pub(crate) fn text(runs: &[Run], notes: &Notes) -> String {
    let found = findings(runs);
    if found.is_empty() {
        return String::new();
    }
    let met = found.iter().filter(|one| one.is_met()).count();
    let mut text = format!(
        "\n## Targets\n\nA target is the ratio, or the difference, to the fastest peer that the maintainers aim \
         for. {met} of {} targets are met. Rows with fewer than {ENOUGH} batches are omitted.",
        found.len()
    );
    let crowds: BTreeSet<_> = runs
        .iter()
        .filter_map(|run| Some((run.shared_processors()?, run.head["ranks"].as_u64()?)))
        .collect();
    for (processors, ranks) in crowds {
        let _ = write!(text, " The {ranks} ranks share {processors} processors.");
    }
    text += "\n\n| test | size | regime | dtl | best peer | peer | dtl / peer | target | |";
    text += "\n|---|---|---|---|---|---|---|---|---|\n";
    for one in &found {
        text += &one.line();
        text.push('\n');
    }
    text + &unseen(runs, &found) + &reasons(&found, notes)
}

fn findings(runs: &[Run]) -> Vec<Finding<'_>> {
    let mut found: Vec<Finding> = Vec::new();
    for run in runs {
        for row in &run.rows {
            for regime in SHOWN {
                let Some(one) = finding(runs, run, row, regime) else { continue };
                let same = |known: &&mut Finding| {
                    (known.place, known.row.bytes, known.regime)
                        == (one.place, one.row.bytes, one.regime)
                };
                match found.iter_mut().find(same) {
                    None => found.push(one),
                    Some(known) if one.is_harder_than(known) => *known = one,
                    Some(_) => {}
                }
            }
        }
    }
    let place = |regime| SHOWN.iter().position(|&shown| shown == regime);
    found.sort_by_key(|one| (one.place, one.row.bytes, place(one.regime)));
    found
}

fn finding<'a>(runs: &[Run], run: &Run, row: &'a Row, regime: Regime) -> Option<Finding<'a>> {
    let (place, target) = target::of(run, row)?;
    let pair = row.at(regime).filter(|pair| pair.count >= ENOUGH)?;
    let (theirs, peer) = match (run.of(), target.by) {
        (Of::Threads, _) => {
            best_of_processes(runs, row, regime).map(|(theirs, peer)| (Some(theirs), peer))?
        }
        (_, By::Most) => (None, String::new()),
        _ => (Some(pair.theirs?), run.peer()?),
    };
    let (ours, by) = (row.unit.of(pair.ours), theirs.map(|theirs| row.unit.of(theirs)));
    let value = match target.by {
        By::Ratio => ours / by?,
        By::More => pair.ours - theirs?,
        By::Most => pair.ours,
    };
    let (name, size) = (run.of().row(&row.test), row.size());
    Some(Finding { row, name, size, regime, place, target, ours: pair.ours, theirs, peer, value })
}

/// Returns the lowest value that any other library reached in the runs between two processes, and
/// the name of that library. A row whose ranks are threads is compared with this value, because
/// runs with threads do not measure any other library.
fn best_of_processes(runs: &[Run], row: &Row, regime: Regime) -> Option<(f64, String)> {
    let pairs = runs.iter().filter(|run| run.of() == Of::Pair);
    let values = pairs.filter_map(|run| {
        let same =
            run.rows.iter().find(|other| (&other.test, other.bytes) == (&row.test, row.bytes))?;
        let pair = same.at(regime).filter(|pair| pair.count >= ENOUGH)?;
        Some((pair.theirs?, format!("{}, of two processes", run.peer()?)))
    });
    values.min_by(|a, b| a.0.total_cmp(&b.0))
}

impl Finding<'_> {
    fn is_met(&self) -> bool {
        self.target.is_met(self.row, self.regime, self.value)
    }

    fn is_harder_than(&self, other: &Finding) -> bool {
        if self.target.is_most(self.row) {
            self.value > other.value
        } else {
            self.value < other.value
        }
    }

    fn line(&self) -> String {
        let unit = self.row.unit;
        let with_unit =
            |nanoseconds: f64| format!("{} {}", digits(unit.of(nanoseconds)), unit.name());
        format!(
            "| {} | {} | {} | {} | {} | {} | {} | {} {} | {} |",
            self.name,
            self.size,
            self.regime.name(),
            with_unit(self.ours),
            self.theirs.map_or(String::new(), with_unit),
            self.peer,
            self.shown(self.value),
            if self.target.is_most(self.row) { "≤" } else { "≥" },
            self.aim(),
            if self.is_met() { "met" } else { "**missed**" },
        )
    }

    /// Formats a measured value.
    fn shown(&self, value: f64) -> String {
        match self.target.by {
            By::Ratio => format!("{value:.2}"),
            By::More => format!("{value:+.1} ns"),
            By::Most => format!("{:.2} ms", value / 1e6),
        }
    }

    /// Formats the target value.
    fn aim(&self) -> String {
        let aim = self.target.at(self.regime);
        match self.target.by {
            By::Ratio => format!("{aim}"),
            By::More => format!("+{aim} ns"),
            By::Most => format!("{} ms", aim / 1e6),
        }
    }

    /// Returns the name, size and regime of the row in one line of text.
    fn title(&self) -> String {
        let words = [&self.name[..], &self.size, self.regime.name()];
        words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

/// Returns a string that lists, for each regime (class of the distance between the processors) that
/// has results, the compared libraries for which a row of the table has too few batches in this
/// regime. Only runs between two processes are considered.
fn unseen(runs: &[Run], found: &[Finding]) -> String {
    let mut text = String::new();
    for regime in [Regime::Near, Regime::Far] {
        if !found.iter().any(|one| one.regime == regime) {
            continue;
        }
        let of_peer = |run: &Run| {
            let peer = run.peer().filter(|_| run.of() == Of::Pair)?;
            let wanted = || run.rows.iter().filter(|row| target::of(run, row).is_some());
            let is_missing = |row: &&Row| row.at(regime).is_none_or(|pair| pair.count < ENOUGH);
            let missing: Vec<String> = wanted().filter(is_missing).map(Row::title).collect();
            match missing.len() {
                0 => None,
                all if all == wanted().count() => Some(format!("{peer} (no row)")),
                _ => Some(format!("{peer} (not {})", missing.join(", "))),
            }
        };
        let peers: Vec<String> = runs.iter().filter_map(of_peer).collect();
        if !peers.is_empty() {
            let (regime, peers) = (regime.name(), peers.join("; "));
            let _ =
                write!(text, "\nToo few batches while the processors were {regime}: {peers}.\n");
        }
    }
    text
}

/// Lists the missed targets; rows with the same note are listed together.
fn reasons(found: &[Finding], notes: &Notes) -> String {
    let missed = || found.iter().filter(|one| !one.is_met());
    let note = |one: &Finding| notes.of_row(&one.name, &one.size, one.regime);
    let mut said: Vec<usize> = Vec::new();
    let mut lines = String::new();
    for one in missed() {
        let Some((place, why)) = note(one).filter(|(place, _)| !said.contains(place)) else {
            continue;
        };
        said.push(place);
        let same = missed().filter(|other| note(other).is_some_and(|other| other.0 == place));
        let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
        let _ = writeln!(lines, "- **{}**: {why}", titles(same));
    }
    let silent = titles(missed().filter(|one| note(one).is_none()));
    if !silent.is_empty() {
        let _ = writeln!(lines, "- No reason is noted for: {silent}.");
    }
    if lines.is_empty() {
        lines
    } else {
        format!("\n### Missed targets and their reasons\n\n{lines}")
    }
}

fn titles<'a>(all: impl Iterator<Item = &'a Finding<'a>>) -> String {
    let each =
        all.map(|one| format!("{} ({}, target {})", one.title(), one.shown(one.value), one.aim()));
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
#[path = "tests/verdict.rs"]
mod tests;
