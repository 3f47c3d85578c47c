//! The page's text.

use super::notes::Notes;
use super::run::{Of, Pair, Row, Run};
use super::verdict::{self, SHOWN};
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
counts (with more ranks than processors: several in a row, bcast and reduce each with a barrier). Up to 1 MiB a first repetition in each batch is not counted, as another side's batch came before. All messages use the \
same two buffers. Data are verified before each row. UCX is the program ucx_perftest, a run of it (its median \
latency, its mean time for a message of a stream) in turn with 21 batches of the library's, of which the median counts. Ratios are dtl / peer: of times less \
is better, of GB/s and M/s more.";

/// What a page is made of.
pub(crate) struct Parts<'a> {
    pub(crate) runs: &'a [Run],
    /// What could not be measured.
    pub(crate) missing: &'a [String],
    pub(crate) notes: &'a Notes,
    /// Titles and files.
    pub(crate) pictures: &'a [(String, String)],
}

/// The whole page.
pub(crate) fn text(parts: &Parts) -> String {
    let runs = parts.runs;
    let machines: BTreeSet<String> = runs.iter().map(|run| machine::line(&run.head["machine"])).collect();
    let versions: BTreeSet<&str> = runs.iter().map(|run| run.text("version")).collect();
    let machines = machines.into_iter().collect::<Vec<_>>().join("; ");
    let versions = versions.into_iter().collect::<Vec<_>>().join("; ");
    let mut text = format!(
        "# Performance\n\nMeasured with libdtl {versions} on: {machines}. Made by `dtl-bench report`, which writes this page \
         for any machine; what is said here is true of this one.\n\n{METHOD}\n\n"
    );
    text += &verdict::text(runs, parts.notes);
    if !parts.pictures.is_empty() {
        text += "\n## Latency and bandwidth\n\n";
    }
    for (title, file) in parts.pictures {
        put(&mut text, &format!("![{title}]({file})"));
    }
    for run in runs.iter().filter(|run| !is_only_of_plots(run, runs)) {
        text += &section(run);
    }
    if !parts.missing.is_empty() {
        text += "\n## What could not be measured\n\n";
    }
    parts.missing.iter().for_each(|missing| put(&mut text, &format!("- {missing}")));
    text
}

/// Whether it has nothing but latency and bandwidth, where another run of the same has more.
fn is_only_of_plots(run: &Run, runs: &[Run]) -> bool {
    let is_curve = |run: &Run| {
        run.of() == Of::Pair && run.rows.iter().all(|row| ["latency", "bandwidth"].contains(&&*row.test))
    };
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

fn section(run: &Run) -> String {
    let peer = run.peer();
    let title = match run.measured() {
        "comm" => format!("Messages and collectives, kind {}, {} ranks", run.text("kind"), run.head["ranks"]),
        "alloc" => "Allocations".to_owned(),
        "parallel_for" => format!("Loops on {} threads", run.head["threads"]),
        "call" => "Calls of a backend that does nothing".to_owned(),
        "copy" => "Copies".to_owned(),
        "launch" => "Starting two processes".to_owned(),
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
        let mut line = format!("| {} | {} | {} |", row.test, row.size(), row.unit.name());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_all_its_parts() {
        let text = r#"{"measured": "copy", "version": "1", "machine": {"cpu": "X"}, "peer": {"name": "memcpy"}, "rows":
            [{"test": "copy", "bytes": 8, "unit": "ns", "regimes": {"any": {"dtl": {"p10_ns": 10, "count": 9},
            "memcpy": {"p10_ns": 5, "count": 9}}}}]}"#;
        let runs = [Run::of_text(text).expect("a run")];
        let (missing, pictures) = (["MPI: none".to_owned()], [("a plot".to_owned(), "p/a.svg".to_owned())]);
        let page = super::text(&Parts {
            runs: &runs,
            missing: &missing,
            notes: &Notes::default(),
            pictures: &pictures,
        });
        for part in [
            "![a plot](p/a.svg)",
            "## Copies: memcpy",
            "| copy | 8 B | ns | 10.00 | 5.000 | 2.00 |",
            "- MPI: none",
        ] {
            assert!(page.contains(part), "no {part} in\n{page}");
        }
    }
}
