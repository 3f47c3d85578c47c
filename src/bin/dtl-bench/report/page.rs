//! The page's text.

use super::run::{Pair, Row, Run, size};
use super::target;
use crate::machine;
use crate::stats::Regime;
use crate::table::digits;
use std::collections::BTreeSet;
use std::fmt::Write;

const METHOD: &str = "\
Each value is the 10th percentile over many short batches; batches of a peer are measured in turn with the library's, in \
the same processes. A cache line is bounced between two processors around each batch, and only batches of the same \
regime are compared: *near* is below 200 ns for a round trip, *far* above 300 ns (virtual machines move between the two \
every few seconds), *any* where that was not looked at. Ranks stay on a processor each. In latency, a rank waits for the \
other's answer, and half of the round trip counts; bandwidth is a window of messages (64 up to 64 KiB, 8 up to 1 MiB, 2 \
above) until the receiver says that it has all; each collective begins after a barrier, and the mean of all ranks \
counts. Up to 1 MiB a first repetition in each batch is not counted, as another side's batch came before. All messages use the \
same two buffers. Data are verified before each row. Ratios are dtl / peer: of times less \
is better, of GB/s and M/s more.";

/// The whole page; `pictures` are titles and files.
pub(crate) fn text(runs: &[Run], pictures: &[(String, String)]) -> String {
    let mut text = "# Performance\n\n".to_owned();
    let machines: BTreeSet<String> = runs.iter().map(|run| machine::line(&run.head["machine"])).collect();
    let versions: BTreeSet<&str> = runs.iter().map(|run| run.text("version")).collect();
    let all = |set: Vec<&str>| set.join("; ");
    let machines = all(machines.iter().map(String::as_str).collect());
    let versions = all(versions.into_iter().collect());
    put(
        &mut text,
        &format!(
            "Measured with libdtl {versions} on: {machines}. Made by `dtl-bench report`, which writes this page for any machine; \
         what is said here is true of this one.\n"
        ),
    );
    put(&mut text, METHOD);
    put(&mut text, "");
    for (title, file) in pictures {
        put(&mut text, &format!("![{title}]({file})"));
    }
    if !pictures.is_empty() {
        put(&mut text, "");
    }
    text += &best(runs);
    for run in runs.iter().filter(|run| !is_only_of_plots(run, runs)) {
        text += &section(run);
    }
    text
}

/// Whether it has nothing but latency and bandwidth, where another run of the same has more.
fn is_only_of_plots(run: &Run, runs: &[Run]) -> bool {
    let is_curve = |run: &Run| run.rows.iter().all(|row| ["latency", "bandwidth"].contains(&&*row.test));
    let key = |run: &Run| {
        let of = |key: &str| run.head[key].to_string();
        (run.measured().to_owned(), [of("kind"), of("ranks"), of("machine"), of("transport")], run.peer())
    };
    is_curve(run) && runs.iter().any(|other| !is_curve(other) && key(other) == key(run))
}

fn put(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// The regimes that a report shows.
const SHOWN: [Regime; 3] = [Regime::Near, Regime::Far, Regime::Unknown];

fn section(run: &Run) -> String {
    let peer = run.peer();
    let title = match run.measured() {
        "comm" => format!("Messages and collectives, kind {}, {} ranks", run.text("kind"), run.head["ranks"]),
        "alloc" => "Allocations".to_owned(),
        "parallel_for" => format!("Loops on {} threads", run.head["threads"]),
        "call" => "Calls of a backend that does nothing".to_owned(),
        "copy" => "Copies".to_owned(),
        other => other.to_owned(),
    };
    let mut text =
        peer.as_ref().map_or_else(|| format!("\n## {title}\n"), |peer| format!("\n## {title}: {peer}\n"));
    if !run.text("transport").is_empty() {
        put(&mut text, &format!("{}.\n", run.text("transport")));
    }
    let is_there = |regime: &Regime| run.rows.iter().any(|row| row.at(*regime).is_some());
    let regimes: Vec<Regime> = SHOWN.into_iter().filter(is_there).collect();
    let peer = peer.map(|_| run.head["peer"]["name"].as_str().unwrap_or("peer"));
    let (mut head, mut rule) = ("| test | size | unit |".to_owned(), "|---|---|---|".to_owned());
    for regime in &regimes {
        let _ = write!(head, " {}: dtl |", regime.name());
        rule += "---|";
        if let Some(peer) = peer {
            let _ = write!(head, " {peer} | ratio |");
            rule += "---|---|";
        }
    }
    put(&mut text, &head);
    put(&mut text, &rule);
    for row in &run.rows {
        let mut line =
            format!("| {} | {} | {} |", row.test, row.bytes.map_or(String::new(), size), row.unit.name());
        for &regime in &regimes {
            line += &cells(row, row.at(regime), peer.is_some());
        }
        put(&mut text, &line);
    }
    text
}

fn cells(row: &Row, pair: Option<Pair>, has_peer: bool) -> String {
    let Some(pair) = pair else { return if has_peer { " | | |" } else { " |" }.to_owned() };
    let mut text = format!(" {} |", digits(row.unit.of(pair.ours)));
    if has_peer {
        let theirs = pair.theirs.map_or(String::new(), |theirs| digits(row.unit.of(theirs)));
        let ratio = row.ratio(pair).map_or(String::new(), |ratio| format!("{ratio:.2}"));
        let _ = write!(text, " {theirs} | {ratio} |");
    }
    text
}

/// Batches below which a value decides nothing.
const ENOUGH: u64 = 10;

/// A row's ratio to the peer that is hardest to beat.
struct Hardest<'a> {
    row: &'a Row,
    regime: Regime,
    ratio: f64,
    peer: String,
}

/// Each row that has a target, in each regime, against the peer that is hardest to beat.
fn best(runs: &[Run]) -> String {
    let mut found: Vec<Hardest> = Vec::new();
    for run in runs.iter().filter(|run| run.text("kind") != "mpi") {
        let Some(peer) = run.peer() else { continue };
        for row in &run.rows {
            for regime in SHOWN {
                let pair = row.at(regime).filter(|pair| pair.count >= ENOUGH);
                let Some(ratio) = pair.and_then(|pair| row.ratio(pair)) else { continue };
                let same = |one: &&mut Hardest| {
                    (&one.row.test, one.row.bytes, one.regime) == (&row.test, row.bytes, regime)
                };
                let one = Hardest { row, regime, ratio, peer: peer.clone() };
                match found.iter_mut().find(same) {
                    None => found.push(one),
                    Some(known) if is_harder(row, ratio, known.ratio) => *known = one,
                    Some(_) => {}
                }
            }
        }
    }
    let of = |one: &Hardest| target::of(one.row, one.regime);
    found.retain(|one| of(one).is_some());
    let place = |regime| SHOWN.iter().position(|&shown| shown == regime);
    found.sort_by_key(|one| (of(one).map(|target| target.0), one.row.bytes, place(one.regime)));
    let mut lines = String::new();
    let mut met = 0;
    for one in &found {
        let target = of(one).map_or(1.0, |target| target.1);
        let is_met = target::is_met(one.row, target, one.ratio);
        met += usize::from(is_met);
        lines += &line(one, target, is_met);
    }
    if found.is_empty() {
        return String::new();
    }
    format!(
        "## Against the best peer\n\n{met} of {} targets are met. What has fewer than {ENOUGH} batches is left out here.\n\n\
         | test | size | regime | dtl / best peer | target | | peer |\n|---|---|---|---|---|---|---|\n{lines}",
        found.len()
    )
}

fn line(one: &Hardest, target: f64, is_met: bool) -> String {
    format!(
        "| {} | {} | {} | {:.2} | {} {target} | {} | {} |\n",
        one.row.test,
        one.row.bytes.map_or(String::new(), size),
        one.regime.name(),
        one.ratio,
        if one.row.unit.grows() { "≥" } else { "≤" },
        if is_met { "met" } else { "**missed**" },
        one.peer
    )
}

fn is_harder(row: &Row, ratio: f64, than: f64) -> bool {
    if row.unit.grows() { ratio < than } else { ratio > than }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(peer: &str, theirs: f64) -> Run {
        let text = format!(
            r#"{{"measured": "comm", "version": "1", "kind": "shm", "ranks": 2, "machine": {{"cpu": "X"}},
            "peer": {{"name": "mpi", "version": "{peer}"}}, "rows": [{{"test": "latency", "bytes": 8, "unit": "us",
            "regimes": {{"near": {{"dtl": {{"p10_ns": 100, "count": 10}}, "mpi": {{"p10_ns": {theirs}, "count": 10}}}}}}}}]}}"#
        );
        Run::of(&text).expect("a run")
    }

    #[test]
    fn the_best_peer_counts() {
        let runs = [run("A", 500.0), run("B", 110.0), run("C", 200.0)];
        let page = text(&runs, &[("a plot".to_owned(), "performance/a.svg".to_owned())]);
        assert!(page.contains("| latency | 8 B | near | 0.91 | ≤ 0.6 | **missed** | B |"), "{page}");
        assert!(
            page.contains("0 of 1 targets are met") && page.contains("![a plot](performance/a.svg)"),
            "{page}"
        );
        assert!(page.contains("| latency | 8 B | us | 0.1000 | 0.2000 | 0.50 |"), "{page}");
        let page = text(&runs[..1], &[]);
        assert!(page.contains("| latency | 8 B | near | 0.20 | ≤ 0.6 | met | A |"), "{page}");
    }
}
