//! Text of the page.

use super::notes::Notes;
use super::run::{Of, Pair, Row, Run};
use super::verdict::{self, SHOWN};
use crate::machine;
use crate::stats::Regime;
use crate::table::digits;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const METHOD: &str = "\
## How it was measured

- Each value is the 10th percentile over many short batches. Batches of the library and of the peer
  (the implementation that it is compared with) alternate in the same processes.
- *near*, *far*: a cache line is exchanged between the two processors before and after each batch,
  and only batches of the same class are compared. *near* is a round trip below 200 ns, *far* above
  300 ns; virtual machines move between them every few seconds. *any*: the distance was not
  measured.
- With several rounds (passes over the rows), a ratio is the median of the ratios of the rounds. A
  round counts for the distance, *near* or *far*, that most of its batches have.
- Each rank is pinned to a processor.
- *latency* is half of a round trip. *bandwidth* is a window of messages (64 up to 64 KiB, 8 up to
  1 MiB, 2 above), until the receiver confirms the last one.
- A collective begins after a barrier; the largest mean of a rank counts. With more ranks than
  processors, 20 calls in a row are timed, until the last rank returns; the time of one call then
  includes context switches.
- *pair* is an allocation and its free; *pool*, the same from a pool. *held* is 64 blocks allocated,
  then freed; *touched*, one block whose pages are all written. *to main* is the time from the
  launcher's start until both processes are in main; *to the end*, until both have ended.
- Up to 1 MiB the first call of a batch is not timed, because the batch of the peer ran before it.
  All messages use the same two buffers. Results are verified before each row is timed.
- UCX is measured by its own program, ucx_perftest. Its runs alternate with 21 batches of the
  library, of which the median counts. The value of UCX is its median latency, or its mean time per
  message of a stream.
- The bare prototype (`--vs prototype`) is a small program of two processes in the same run: shared
  memory and copies by the kernel without matching, requests, checks and failure handling, by the
  fastest of five ways at that size and distance. It shows what the memory system allows, and is no
  peer. Its column shows the median run.
- The automatic choice of the copy method is compared with each method, forced by `DTL_SHM_COPY`, in
  the same processes: the peer is the fastest of them.
- dtl / peer is below 1 where the library is faster in time, and above 1 where it is faster in GB/s
  or M/s. The ratio in parentheses is computed from values of the same run; the column dtl has the
  median of all runs. Kind mpi runs over each MPI, so its tables have both values in each cell: dtl /
  MPI alone.
";

/// Contents of a page.
pub(crate) struct Parts<'a> {
    pub(crate) runs: &'a [Run],
    /// Messages that name what could not be measured.
    pub(crate) missing: &'a [String],
    pub(crate) notes: &'a Notes,
    /// Titles and file names of the plots.
    pub(crate) pictures: &'a [(String, String)],
}

/// Formats the complete page.
pub(crate) fn text(parts: &Parts) -> String {
    let runs = parts.runs;
    let versions: BTreeSet<&str> = runs.iter().map(|run| run.text("version")).collect();
    let versions = versions.into_iter().collect::<Vec<_>>().join("; ");
    let mut text = format!(
        "# Performance\n\nResults of libdtl {versions}. `dtl-bench report` writes the same page for \
         your machine. *near* and *far* are the distance between the two processors; numbers in \
         parentheses are ratios dtl / peer ([How it was measured](#how-it-was-measured)).\n",
    );
    if !parts.pictures.is_empty() {
        text += "\n## Latency and bandwidth\n\n";
    }
    for (title, file) in parts.pictures {
        put(&mut text, &format!("![{title}]({file})"));
    }
    let machines = machines(runs);
    for (machine, runs) in &machines {
        put(&mut text, &format!("\n## {machine}{}", class(runs)));
        for (title, runs) in groups(runs) {
            text += &group(&title, &runs);
        }
        text += &verdict::text(runs, parts.notes);
    }
    if machines.len() > 1 {
        text += &verdict::by_machine(&machines);
    }
    if !parts.missing.is_empty() {
        text += "\n## Not measured\n\n";
    }
    parts.missing.iter().for_each(|missing| put(&mut text, &format!("- {missing}")));
    text + "\n" + METHOD
}

/// Groups the runs by machine.
pub(super) fn machines(runs: &[Run]) -> Vec<(String, Vec<&Run>)> {
    let mut machines: BTreeMap<String, Vec<&Run>> = BTreeMap::new();
    for run in runs {
        machines.entry(machine::line(&run.head["machine"])).or_default().push(run);
    }
    machines.into_iter().collect()
}

/// Describes the class of a machine, for a title: the round trip of a cache line, and the rates at
/// which kind "shm" copies a message of 1 MiB by each method, near and far.
fn class(runs: &[&Run]) -> String {
    let trips = |regime: Regime| {
        let trips = runs.iter().filter_map(|run| run.head["round_trip_ns"].as_f64());
        let trip = trips.filter(|&trip| Regime::of(Some(trip), Some(trip)) == regime);
        trip.min_by(f64::total_cmp).map(|trip| format!("cache line {trip} ns"))
    };
    let mut text = String::new();
    for regime in [Regime::Near, Regime::Far] {
        let rates = runs.iter().filter_map(|run| run.copy_rates(regime));
        let parts: Vec<String> = trips(regime).into_iter().chain(rates).collect();
        if !parts.is_empty() {
            let _ = write!(text, "; {}: {}", regime.name(), parts.join(", "));
        }
    }
    text
}

/// Returns true if the run has only rows of the tests latency and bandwidth, and another run with
/// the same configuration, compared with the same library, also has rows of other tests.
fn is_only_of_plots(run: &Run, runs: &[&Run]) -> bool {
    let is_curve = |run: &Run| {
        run.of() == Of::Pair
            && run.rows.iter().all(|row| ["latency", "bandwidth"].contains(&&*row.test))
    };
    let key = |run: &Run| {
        let of = |key: &str| run.head[key].to_string();
        (
            run.measured().to_owned(),
            [of("kind"), of("ranks"), of("machine"), of("transport")],
            run.peer(),
        )
    };
    is_curve(run) && runs.iter().any(|other| !is_curve(other) && key(other) == key(run))
}

fn put(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// Groups the runs by title. Runs of one configuration that are compared with different
/// implementations have the same title.
fn groups<'a>(runs: &[&'a Run]) -> Vec<(String, Vec<&'a Run>)> {
    let mut groups: Vec<(String, Vec<&Run>)> = Vec::new();
    for &run in runs.iter().filter(|run| !is_only_of_plots(run, runs)) {
        let title = title(run);
        match groups.iter_mut().find(|group| group.0 == title) {
            Some(group) => group.1.push(run),
            None => groups.push((title, vec![run])),
        }
    }
    groups
}

fn title(run: &Run) -> String {
    match run.measured() {
        "comm" if run.of() == Of::Methods => "Choice of the copy method, kind shm".to_owned(),
        "comm" => format!(
            "Messages and collectives, kind {}, {} ranks{}",
            run.text("kind"),
            run.head["ranks"],
            run.shared_processors()
                .map_or(String::new(), |count| format!(" on {count} processors"))
        ),
        "alloc" => "Allocations".to_owned(),
        "parallel_for" => format!("Loops on {} threads", run.head["threads"]),
        "call" => "Calls of a backend that does nothing".to_owned(),
        "copy" => "Copies".to_owned(),
        "dispatch" => "Dispatch".to_owned(),
        "launch" => "Starting two processes".to_owned(),
        other => other.to_owned(),
    }
}

/// Formats one table for each regime (class of the distance between the processors: near, far or
/// unknown).
fn group(title: &str, runs: &[&Run]) -> String {
    let transports: BTreeSet<&str> = runs.iter().map(|run| run.text("transport")).collect();
    let mut transports =
        transports.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ");
    if !transports.is_empty() {
        transports += ".\n";
    }
    let mut text = String::new();
    for regime in SHOWN {
        let is_there = |run: &&&Run| run.rows.iter().any(|row| row.at(regime).is_some());
        let there: Vec<&Run> = runs.iter().filter(is_there).copied().collect();
        if there.is_empty() {
            continue;
        }
        let place = match regime {
            Regime::Unknown => String::new(),
            known => format!(", {}", known.name()),
        };
        text += &format!("\n### {title}{place}\n{transports}\n");
        if there.iter().any(|run| run.shared_processors().is_some()) {
            put(
                &mut text,
                "Ranks share processors here: an MPI whose ranks poll without yielding \
                waits for the end of a time slice.\n",
            );
        }
        text += &table(&there, regime);
    }
    text
}

/// Writes a table with one column for each peer (an implementation that the library is compared
/// with), and one for the bare prototype. The library's value is the median of all runs; each ratio
/// compares values from the same run. Kind mpi runs over the peer itself, so there each cell has the library's value of the run.
fn table(runs: &[&Run], regime: Regime) -> String {
    let is_over_peer = runs.iter().all(|run| run.of() == Of::OverMpi);
    let (mut head, mut rule) = ("| test | size | unit |".to_owned(), "|---|---|---|".to_owned());
    if !is_over_peer {
        head += " dtl |";
        rule += "---|";
    }
    for peer in runs.iter().filter_map(|run| run.peer()) {
        let _ = write!(head, " {}{peer} |", if is_over_peer { "over " } else { "" });
        rule += "---|";
    }
    let has_prototype = |row: &Row| row.at(regime).is_some_and(|pair| pair.prototype.is_some());
    let has_prototype = runs.iter().any(|run| run.rows.iter().any(has_prototype));
    if has_prototype {
        head += " bare prototype |";
        rule += "---|";
    }
    let mut text = format!("{head}\n{rule}\n");
    let mut done: Vec<(&str, Option<u64>)> = Vec::new();
    for row in runs.iter().flat_map(|run| &run.rows) {
        let key = (&*row.test, row.bytes);
        let in_run =
            |run: &Run| run.rows.iter().find(|row| (&*row.test, row.bytes) == key)?.at(regime);
        let mut ours: Vec<f64> =
            runs.iter().filter_map(|run| in_run(run)).map(|pair| pair.ours).collect();
        if done.contains(&key) || ours.is_empty() {
            continue;
        }
        done.push(key);
        ours.sort_by(f64::total_cmp);
        let own = digits(row.unit.of(ours[ours.len() / 2]));
        let mut line = format!("| {} | {} | {} |", row.test, row.size(), row.unit.name());
        if !is_over_peer {
            let _ = write!(line, " {own} |");
        }
        for run in runs.iter().filter(|run| run.peer().is_some()) {
            line += &in_run(run).map_or(" |".to_owned(), |pair| cell(row, pair, is_over_peer));
        }
        if has_prototype {
            let pairs = runs.iter().filter_map(|run| in_run(run));
            let mut pairs: Vec<Pair> = pairs
                .map(|pair| Pair { theirs: pair.prototype, ratio: pair.of_prototype, ..pair })
                .collect();
            pairs.retain(|pair| pair.theirs.is_some());
            pairs.sort_by(|a, b| a.theirs.partial_cmp(&b.theirs).unwrap_or(Ordering::Equal));
            let middle = pairs.get(pairs.len() / 2);
            line += &middle.map_or(" |".to_owned(), |&pair| cell(row, pair, false));
        }
        put(&mut text, &line);
    }
    text
}

/// Formats a table cell: the value measured with the comparison library, and the ratio of libdtl's
/// value to it. If `with_own`, the library's value comes first.
fn cell(row: &Row, pair: Pair, with_own: bool) -> String {
    let Some((theirs, ratio)) = pair.theirs.zip(row.ratio(pair)) else { return " |".to_owned() };
    let value = |nanoseconds: f64| digits(row.unit.of(nanoseconds));
    let own = if with_own { format!("{} / ", value(pair.ours)) } else { String::new() };
    format!(" {own}{} ({ratio:.2}) |", value(theirs))
}

#[cfg(test)]
#[path = "tests/page.rs"]
mod tests;
