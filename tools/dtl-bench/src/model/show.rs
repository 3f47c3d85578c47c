//! Tables and JSON of a model.

use super::wanted::{Kind, Model};
use super::{Row, plot};
use crate::out::{Outcome, say};
use crate::table::digits;
use dtl::tooling::schedules::STEP_BYTES;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

/// Explanations of the table's columns.
const LEGEND: [&str; 6] = [
    "data: bytes of a rank's data or, where there are blocks, of a block",
    "messages, bytes sent: of all ranks together; most …: of the rank that sends or receives most",
    "steps: the longest chain of messages of which each waits for the one before",
    "time: LogGP; all ranks begin at once, copies and sums cost nothing",
    "partners: most ranks that a rank sends to or receives from",
    "comm, links, list + scratch: bytes that a rank keeps, for the communicator and its transport \
     before anything is \
     sent; for the partners; for the steps and what they work in, while they run",
];

/// Function that returns true if a note applies to a row.
type Meant = fn(&Row) -> bool;

/// Notes on the table: the meanings of the marks `~` and `*`, and which ranks are neighbours in
/// neighbor_alltoallv. A note is printed only if its function returns true for a row.
const NOTES: [(Meant, &str); 3] = [
    (
        |row| !row.counts.is_exact || !row.times.is_exact,
        "~ told from some ranks; steps and time: as if their partners were as far as they are. \
         Others are of all ranks",
    ),
    (
        |row| row.uses_mailboxes,
        "* uses mailboxes in shared memory, without messages; the row has what is sent where \
         a communicator has none (there are 64)",
    ),
    (
        |row| row.op == "neighbor_alltoallv",
        "neighbor_alltoallv: with two neighbours, those beside a rank in a ring",
    ),
];

fn legend(rows: &[Row]) -> Vec<&'static str> {
    let notes = NOTES.iter().filter(|(is_meant, _)| rows.iter().any(is_meant));
    LEGEND.into_iter().chain(notes.map(|(_, note)| *note)).collect()
}

/// Formats a number below 10^12 as a decimal integer, and a larger number in the form 1.235e12.
fn number(value: u128) -> String {
    if value < 1_000_000_000_000 { value.to_string() } else { format!("{:.3e}", value as f64) }
}

/// Formats a time in nanoseconds.
pub(crate) fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e6 => format!("{} us", digits(ns / 1e3)),
        ns if ns < 1e9 => format!("{} ms", digits(ns / 1e6)),
        ns => format!("{} s", digits(ns / 1e9)),
    }
}

/// Describes the network of the model.
fn head(wanted: &Model) -> String {
    let mut text = format!("LogGP: {}", wanted.network.text());
    if let Some(each) = wanted.per_node {
        let _ = write!(text, "; {each} ranks on each node, within it {}", wanted.within.text());
    }
    let kind = match wanted.kind {
        Kind::Mpi => "mpi (with a time limit; what MPI itself keeps is not counted)",
        Kind::Rdma => {
            "rdma (links with their slots, as configured by default; what the device's library \
             keeps is not counted)"
        }
        Kind::Shm => "shm (links with their rings, shared memory)",
    };
    let _ = write!(text, "\nMemory of kind {kind}, {STEP_BYTES} bytes for a step");
    text
}

const COLUMNS: [&str; 14] = [
    "op",
    "ranks",
    "data",
    "algorithm",
    "messages",
    "most messages",
    "bytes sent",
    "most bytes",
    "steps",
    "time",
    "partners",
    "comm",
    "links",
    "list + scratch",
];

fn cells(row: &Row) -> [String; 14] {
    let (counts, times, memory) = (&row.counts, &row.times, &row.memory);
    let sure = |is_exact: bool, text: String| if is_exact { text } else { format!("~{text}") };
    [
        row.op.to_owned(),
        row.ranks.to_string(),
        row.bytes.to_string(),
        format!("{}{}", row.algorithm, if row.uses_mailboxes { " *" } else { "" }),
        sure(counts.is_exact, number(counts.messages)),
        counts.most_messages.to_string(),
        sure(counts.is_exact, number(counts.bytes)),
        number(counts.most_bytes.into()),
        sure(times.is_exact, times.steps.to_string()),
        sure(times.is_exact, time(times.ns)),
        counts.most_partners.to_string(),
        number(memory.comm.into()),
        number(memory.partners.into()),
        format!("{} + {}", number(memory.list.into()), number(memory.scratch.into())),
    ]
}

/// Formats the results as readable tables.
pub(crate) fn text(wanted: &Model, rows: &[Row]) -> String {
    let table: Vec<[String; 14]> = rows.iter().map(cells).collect();
    let width = |at: usize| {
        let cells = table.iter().map(|row| row[at].chars().count());
        cells.chain([COLUMNS[at].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..COLUMNS.len()).map(width).collect();
    let line = |cells: &[String]| {
        let cells = cells.iter().zip(&widths).enumerate().map(|(at, (cell, width))| match at {
            0 | 3 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut text = format!("{}\n\n{}\n", head(wanted), line(&COLUMNS.map(str::to_owned)));
    table.iter().for_each(|row| text += &(line(row) + "\n"));
    text + "\n" + &legend(rows).join("\n") + "\n"
}

/// Formats the results as JSON. Integers that do not fit into 64 bits are written as floating-point
/// numbers.
pub(crate) fn json(wanted: &Model, rows: &[Row]) -> Value {
    let large = |value: u128| {
        u64::try_from(value).map_or_else(|_| json!(value as f64), |value| json!(value))
    };
    let network = |network: super::wanted::Network| {
        json!({
            "latency_ns": network.latency, "overhead_ns": network.overhead, "gap_ns": network.gap,
            "gap_per_byte_ns": network.gap_per_byte,
        })
    };
    let row = |row: &Row| {
        let (counts, memory) = (&row.counts, &row.memory);
        json!({
            "op": row.op, "ranks": row.ranks, "bytes": row.bytes, "algorithm": row.algorithm,
            "uses_mailboxes": row.uses_mailboxes,
            "messages": { "total": large(counts.messages), "most": counts.most_messages },
            "message_bytes": { "total": large(counts.bytes), "most": counts.most_bytes },
            "partners": counts.most_partners, "counts_are_exact": counts.is_exact,
            "steps": row.times.steps, "time_ns": row.times.ns, "time_is_exact": row.times.is_exact,
            "memory_bytes": {
                "comm": memory.comm, "links": memory.partners, "list": memory.list, "scratch": memory.scratch,
            },
        })
    };
    json!({
        "measured": Value::Null, "modelled": "collectives", "version": env!("CARGO_PKG_VERSION"),
        "network": network(wanted.network), "within_node": network(wanted.within), "per_node": wanted.per_node,
        "root": wanted.root, "element": wanted.element, "commutes": !wanted.ordered,
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
    })
}

/// Writes plots and tables into a folder.
pub(crate) fn write(folder: &Path, wanted: &Model, rows: &[Row]) -> Outcome {
    let put = |name: &str, text: &str| {
        let file = folder.join(name);
        std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))
    };
    let pictures = plot::pictures(rows);
    for picture in &pictures {
        let drawn = picture.draw().map_err(|error| format!("{}: {error}", picture.file))?;
        put(&picture.file, &drawn)?;
    }
    put("tables.md", &page(wanted, rows))?;
    say!(
        "{}: {} row(s), {} plot(s)",
        folder.join("tables.md").display(),
        rows.len(),
        pictures.len()
    );
    Ok(())
}

/// Interval of the rows in the file tables.md: the file contains the first of every `SHOWN` rows of
/// a table, and the last row. The plots show all rows.
const SHOWN: usize = 4;

fn page(wanted: &Model, rows: &[Row]) -> String {
    let mut text = format!(
        "# Collectives by number of ranks\n\nMade by `dtl-bench model`. {}.\n\n",
        head(wanted)
    );
    text += &legend(rows)
        .into_iter()
        .map(|line| format!("- {}\n", line.replace('*', "\\*")))
        .collect::<String>();
    text.truncate(text.trim_end().len());
    let (mut title, mut first) = (None, 0);
    for (at, row) in rows.iter().enumerate() {
        let is_last = rows.get(at + 1).is_none_or(|next| next.ranks < row.ranks);
        if title != Some((row.op, row.bytes)) {
            (title, first) = (Some((row.op, row.bytes)), at);
            let _ = write!(text, "\n\n## {}, {} bytes\n\n| ranks | ", row.op, row.bytes);
            text +=
                &(COLUMNS[3..].join(" | ") + " |\n" + &"|---".repeat(COLUMNS.len() - 2) + "|\n");
        }
        if (at - first) % SHOWN != 0 && !is_last {
            continue;
        }
        let cells = cells(row);
        let _ = writeln!(text, "| {} | {} |", cells[1], cells[3..].join(" | "));
    }
    text
}

#[cfg(test)]
#[path = "tests/show.rs"]
mod tests;
