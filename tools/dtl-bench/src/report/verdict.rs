//! Table of performance targets in a report: each row that has a target, in each regime (class of
//! the distance between the processors), compared with the fastest peer (implementation that the
//! library is compared with) in that regime.

use super::notes::Notes;
use super::run::{ENOUGH, Key, Of, Pair, ROUNDS, Row, Run};
use super::target::{self, By, CHOICE, OF_PROTOTYPE, Target};
use crate::stats::Regime;
use crate::table::digits;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Regimes that a report shows.
pub(crate) const SHOWN: [Regime; 3] = [Regime::Near, Regime::Far, Regime::Unknown];

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
    /// Values of the run from which the verdict is.
    pair: Pair,
    theirs: Option<f64>,
    peer: String,
    /// Value for which the target sets a limit: a ratio, or a time in nanoseconds.
    value: f64,
}

/// Returns the rows of a run of `comm` that miss their targets in this run, except those of a second
/// run.
pub(crate) fn missed(run: &Run) -> Vec<Key> {
    let is_first = |one: &Finding| !one.is_met() && !one.pair.is_second;
    let found = if run.measured() == "comm" { findings(&[run]) } else { Vec::new() };
    let key = |one: &Finding| (one.row.test.clone(), one.row.bytes, one.regime);
    found.iter().filter(|one| is_first(one)).map(key).collect()
}

/// Returns the table for the runs of a machine, and the notes on missed targets.
pub(crate) fn text(runs: &[&Run], notes: &Notes) -> String {
    let found = findings(runs);
    if found.is_empty() {
        return String::new();
    }
    let met = found.iter().filter(|one| one.is_met()).count();
    let mut text = format!(
        "\n### Targets\n\nA target is the maintainers' aim for the ratio, or difference, to the \
         fastest peer. A row of two processes is also met if the library takes at most \
         {OF_PROTOTYPE} times as long as the bare prototype in the same run. {met} of {} targets are \
         met. Rows with fewer than {ENOUGH} batches are omitted, and rows of copy methods with \
         fewer than {ROUNDS} rounds near, or far. *second run*: the row missed at first and was \
         measured again; the second values count.",
        found.len()
    );
    let crowds: BTreeSet<_> = runs
        .iter()
        .filter_map(|run| Some((run.shared_processors()?, run.head["ranks"].as_u64()?)))
        .collect();
    for (processors, ranks) in crowds {
        let _ = write!(text, " The {ranks} ranks share {processors} processors.");
    }
    text += &choice(&found);
    text += "\n\n| test | size | regime | dtl | best peer | peer | dtl / peer | target | bare \
             prototype | time of dtl / prototype | |";
    text += "\n|---|---|---|---|---|---|---|---|---|---|---|\n";
    for one in &found {
        text += &one.line();
        text.push('\n');
    }
    text + &unseen(runs, &found) + &reasons(&found, notes)
}

/// States how many rows keep the bounds of the automatic choice of the copy method.
fn choice(found: &[Finding]) -> String {
    let (each, share, all) = CHOICE;
    let times: Vec<f64> = found
        .iter()
        .filter(|one| one.target.of == Of::Methods)
        .filter_map(|one| one.pair.ratio)
        .collect();
    let (Some(worst), count) = (times.iter().copied().max_by(f64::total_cmp), times.len()) else {
        return String::new();
    };
    let within = times.iter().filter(|&&time| time <= each).count();
    let is_met = within as f64 >= share * count as f64 && worst <= all;
    format!(
        "\n\nAutomatic choice of the copy method: {within} of {count} rows ({:.0} %) take at most {each} \
         of the time of the best forced method; the largest ratio is {worst:.2}. The bound ({:.0} % \
         within {each}, all within {all}) is {}.",
        100.0 * within as f64 / count as f64,
        100.0 * share,
        verdict(is_met)
    )
}

fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "**missed**" }
}

/// Returns a table of the rows that hold on some machines only, or on none, with a column for each
/// machine.
pub(crate) fn by_machine(machines: &[(String, Vec<&Run>)]) -> String {
    let found: Vec<Vec<Finding>> = machines.iter().map(|machine| findings(&machine.1)).collect();
    let mut rows: BTreeMap<_, Vec<Option<bool>>> = BTreeMap::new();
    for (machine, found) in found.iter().enumerate() {
        for one in found {
            let key = (one.order(), [&one.name[..], &one.size, one.regime.name()]);
            let of_row = rows.entry(key).or_insert_with(|| vec![None; machines.len()]);
            of_row[machine] = Some(one.is_met());
        }
    }
    let total = rows.len();
    rows.retain(|_, met| met.contains(&Some(false)));
    let mut text = format!(
        "\n## Targets on all machines\n\n{} of {total} targets are met on every machine that has \
         measured the row. The others:\n\n| test | size | regime |",
        total - rows.len()
    );
    machines.iter().for_each(|(name, _)| text += &format!(" {name} |"));
    text += &format!("\n|---|---|---|{}\n", "---|".repeat(machines.len()));
    for ((_, words), met) in rows {
        let cells = met.iter().map(|met| met.map_or("", verdict));
        let _ = writeln!(
            text,
            "| {} |",
            words.into_iter().chain(cells).collect::<Vec<_>>().join(" | ")
        );
    }
    text
}

fn findings<'a>(runs: &[&'a Run]) -> Vec<Finding<'a>> {
    let mut found: Vec<Finding> = Vec::new();
    for &run in runs {
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
    found.sort_by_key(Finding::order);
    found
}

fn finding<'a>(runs: &[&Run], run: &Run, row: &'a Row, regime: Regime) -> Option<Finding<'a>> {
    let (place, target) = target::of(run, row)?;
    let pair = row.at(regime).filter(|pair| pair.count >= ENOUGH)?;
    let wanted = run.head["rounds"].as_u64().map_or(0, |rounds| rounds.min(ROUNDS));
    if run.of() == Of::Methods && pair.rounds < wanted {
        return None;
    }
    let (theirs, peer) = match (run.of(), target.by) {
        (Of::Threads, _) => {
            best_of_processes(runs, row, regime).map(|(theirs, peer)| (Some(theirs), peer))?
        }
        (_, By::Most) => (None, String::new()),
        _ => (Some(pair.theirs?), run.peer()?),
    };
    let (ours, by) = (row.unit.of(pair.ours), theirs.map(|theirs| row.unit.of(theirs)));
    let value = match target.by {
        By::Ratio if run.of() == Of::Threads => ours / by?,
        By::Ratio => row.ratio(pair)?,
        By::More => pair.ours - theirs?,
        By::Most => pair.ours,
    };
    let (name, size) = (run.of().row(&row.test), row.size());
    Some(Finding { row, name, size, regime, place, target, pair, theirs, peer, value })
}

/// Returns the lowest value that any other library reached in the runs between two processes, and
/// the name of that library. A row whose ranks are threads is compared with this value, because
/// runs with threads do not measure any other library.
fn best_of_processes(runs: &[&Run], row: &Row, regime: Regime) -> Option<(f64, String)> {
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
    /// Returns a key for sorting: the place of the target, the size, and the regime.
    fn order(&self) -> (usize, Option<u64>, Option<usize>) {
        let regime = SHOWN.iter().position(|&shown| shown == self.regime);
        (self.place, self.row.bytes, regime)
    }

    /// Returns the ratio of the library's time to that of the prototype, in rows that it decides.
    fn of_prototype(&self) -> Option<f64> {
        self.pair.of_prototype.filter(|_| self.target.of == Of::Pair)
    }

    fn is_met(&self) -> bool {
        self.target.is_met(self.row, self.regime, self.value)
            || self.of_prototype().is_some_and(|ratio| ratio <= OF_PROTOTYPE)
    }

    fn is_harder_than(&self, other: &Finding) -> bool {
        if self.is_met() != other.is_met() {
            return other.is_met();
        }
        if self.target.is_most(self.row) {
            self.value > other.value
        } else {
            self.value < other.value
        }
    }

    fn line(&self) -> String {
        format!(
            "| {} | {} | {} | {} | {} | {} | {} | {} {} | {} | {} | {}{} |",
            self.name,
            self.size,
            self.regime.name(),
            self.with_unit(self.pair.ours),
            self.theirs.map_or(String::new(), |theirs| self.with_unit(theirs)),
            self.peer,
            self.shown(self.value),
            if self.target.is_most(self.row) { "≤" } else { "≥" },
            self.aim(),
            self.pair.prototype.map_or(String::new(), |prototype| self.with_unit(prototype)),
            self.pair.of_prototype.map_or(String::new(), |ratio| format!("{ratio:.2}")),
            verdict(self.is_met()),
            if self.pair.is_second { ", second run" } else { "" },
        )
    }

    fn with_unit(&self, nanoseconds: f64) -> String {
        format!("{} {}", digits(self.row.unit.of(nanoseconds)), self.row.unit.name())
    }

    /// Describes the row of a missed target: the library, the peer and the prototype.
    fn miss(&self) -> String {
        let peer = if self.peer.is_empty() { String::new() } else { format!(" of {}", self.peer) };
        let prototype = self.pair.prototype.zip(self.of_prototype()).map(|(prototype, ratio)| {
            format!("; bare prototype {} ({ratio:.2})", self.with_unit(prototype))
        });
        format!(
            "{}: {}, {}{peer}, target {}{}",
            self.title(),
            self.with_unit(self.pair.ours),
            self.shown(self.value),
            self.aim(),
            prototype.unwrap_or_default()
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
fn unseen(runs: &[&Run], found: &[Finding]) -> String {
    let mut text = String::new();
    for regime in [Regime::Near, Regime::Far] {
        if !found.iter().any(|one| one.regime == regime) {
            continue;
        }
        let of_peer = |run: &&Run| {
            let peer = run.peer().filter(|_| run.of() == Of::Pair)?;
            let wanted = || run.rows.iter().filter(|row| target::of(run, row).is_some());
            let is_missing = |row: &&Row| row.at(regime).is_none_or(|pair| pair.count < ENOUGH);
            let missing: Vec<String> = wanted().filter(is_missing).map(Row::title).collect();
            match missing.len() {
                0 => None,
                all if all == wanted().count() => Some(format!("{peer} (all)")),
                _ => Some(format!("{peer} ({})", missing.join(", "))),
            }
        };
        let peers: Vec<String> = runs.iter().filter_map(of_peer).collect();
        if !peers.is_empty() {
            let (regime, peers) = (regime.name(), peers.join("; "));
            let _ = write!(text, "\nRows with too few batches {regime}: {peers}.\n");
        }
    }
    text
}

/// Lists the missed targets, each in one line, under the note on them.
fn reasons(found: &[Finding], notes: &Notes) -> String {
    let mut by_note: BTreeMap<Option<usize>, (String, Vec<String>)> = BTreeMap::new();
    for one in found.iter().filter(|one| !one.is_met()) {
        let note = notes.of_row(&one.name, &one.size, one.regime);
        let why = note.map_or("No reason is noted for:", |note| note.1);
        let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
        let place = note.map(|note| note.0);
        by_note.entry(place).or_insert((why, Vec::new())).1.push(one.miss());
    }
    let mut text = String::new();
    for (why, rows) in by_note.values() {
        let _ = writeln!(text, "- {why}\n  - {}", rows.join("\n  - "));
    }
    if text.is_empty() {
        text
    } else {
        format!("\n#### Missed targets and their reasons\n\n{text}")
    }
}

#[cfg(test)]
#[path = "tests/verdict.rs"]
mod tests;
