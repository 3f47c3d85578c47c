//! Reads the parts of a run's JSON that the report uses.

use crate::comm::{METHODS, PROTOTYPE};
use crate::out::Outcome;
use crate::stats::Regime;
use crate::table::Unit;
use serde_json::Value;
use std::path::Path;

const MIB: u64 = 1 << 20;

/// Configuration of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Of {
    /// Two processes.
    Pair,
    /// More ranks.
    Crowd(u64),
    /// Ranks that are threads.
    Threads,
    /// Ranks over an MPI.
    OverMpi,
    /// Two processes, with each copy method of large messages.
    Methods,
    /// Nothing between ranks.
    Process,
}

impl Of {
    /// Returns the name of a test, prefixed with the configuration unless this is `Pair` or
    /// `Process`.
    pub(crate) fn row(self, test: &str) -> String {
        match self {
            Of::Pair | Of::Process => test.to_owned(),
            Of::Methods => format!("copy method: {test}"),
            Of::Crowd(ranks) => format!("{ranks} ranks: {test}"),
            Of::Threads => format!("threads: {test}"),
            Of::OverMpi => format!("kind mpi: {test}"),
        }
    }
}

/// Results in a file that dtl-bench has written with --json.
pub(crate) struct Run {
    /// Properties of the run: the machine, the peer (the implementation that the library is
    /// compared with), the communicator kind and so on.
    pub(crate) head: Value,
    pub(crate) rows: Vec<Row>,
}

/// Row of a run: a test with a size.
pub(crate) struct Row {
    pub(crate) test: String,
    pub(crate) bytes: Option<u64>,
    pub(crate) unit: Unit,
    values: Vec<(Regime, Pair)>,
}

/// 10th percentiles, in nanoseconds, of the times measured with the library, with its peer and with
/// the bare prototype, and the number of samples measured with the library.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pair {
    pub(crate) ours: f64,
    /// Value measured with the peer (the implementation that the library is compared with); `None`
    /// if the run has no peer.
    pub(crate) theirs: Option<f64>,
    /// Value measured with the bare prototype, which is no peer.
    pub(crate) prototype: Option<f64>,
    /// Medians, over the rounds, of the library's time divided by these two.
    pub(crate) ratio: Option<f64>,
    pub(crate) of_prototype: Option<f64>,
    /// Number of rounds of which `ratio` is the median.
    pub(crate) rounds: u64,
    pub(crate) count: u64,
    /// True if the row missed its target in the first run, and these values are from the second.
    pub(crate) is_second: bool,
}

/// Minimum number of batches for a comparison with a target.
pub(crate) const ENOUGH: u64 = 10;

/// Minimum number of rounds for a comparison of the copy methods, if the run has as many.
pub(crate) const ROUNDS: u64 = 9;

/// Row and regime of a run: test, size and regime.
pub(crate) type Key = (String, Option<u64>, Regime);

impl Run {
    pub(crate) fn read(file: &Path) -> Outcome<Run> {
        let within = |error: String| format!("{}: {error}", file.display());
        let text = std::fs::read_to_string(file).map_err(|error| within(error.to_string()))?;
        Run::of_text(&text).map_err(within)
    }

    pub(crate) fn of_text(text: &str) -> Outcome<Run> {
        let parsed = serde_json::from_str(text);
        let head: Value = parsed.map_err(|error| match error.is_eof() {
            true => {
                format!("its end is missing ({} bytes are there): was the disk full?", text.len())
            }
            false => error.to_string(),
        })?;
        Run::of_head(head)
    }

    fn of_head(head: Value) -> Outcome<Run> {
        let rows = head.get("rows").and_then(Value::as_array);
        let (Some(rows), Some(_)) = (rows, head.get("measured").and_then(Value::as_str)) else {
            return Err(
                "not what dtl-bench writes with --json: no \"measured\" or no \"rows\"".to_owned()
            );
        };
        let rows: Option<Vec<Row>> = rows.iter().map(row).collect();
        let rows =
            rows.ok_or("a row lacks its test, unit or values: was it written by another version?")?;
        Ok(Run { head, rows })
    }

    /// Returns this run with the values of a second run in the places of `missed`, as far as the
    /// second run has enough batches there. They are marked in `head`.
    pub(crate) fn with_second(&self, second: &Run, missed: &[Key]) -> Outcome<Run> {
        let mut head = self.head.clone();
        let rows = head["rows"].as_array_mut().into_iter().flatten();
        for row in rows {
            let is_it =
                |other: &Value| (&other["test"], &other["bytes"]) == (&row["test"], &row["bytes"]);
            let again = second.head["rows"].as_array().into_iter().flatten().find(|&it| is_it(it));
            let Some(again) = again.cloned() else { continue };
            let of_row = |key: &&Key| row["test"] == *key.0 && row["bytes"].as_u64() == key.1;
            let regimes: Vec<_> = missed.iter().filter(of_row).map(|key| key.2.name()).collect();
            for regime in regimes {
                let values = &again["regimes"][regime];
                if values["dtl"]["count"].as_u64() >= Some(ENOUGH) {
                    row["regimes"][regime] = values.clone();
                    row["second_run"][regime] = true.into();
                }
            }
        }
        Run::of_head(head)
    }

    /// Returns the configuration of the run.
    pub(crate) fn of(&self) -> Of {
        match (self.measured(), self.text("kind"), self.head["ranks"].as_u64()) {
            ("comm", "threads", _) => Of::Threads,
            ("comm", "mpi", _) => Of::OverMpi,
            ("comm", ..) if self.head["peer"]["name"] == METHODS => Of::Methods,
            ("comm", _, Some(ranks @ 3..)) => Of::Crowd(ranks),
            ("comm", ..) => Of::Pair,
            _ => Of::Process,
        }
    }

    /// Returns the number of usable processors if there are fewer of them than ranks.
    pub(crate) fn shared_processors(&self) -> Option<u64> {
        let usable = self.head["machine"]["usable_cpus"].as_u64()?;
        self.head["ranks"].as_u64().filter(|&ranks| ranks > usable).map(|_| usable)
    }

    /// Describes the rate of each copy method of kind "shm" in a regime, for the latency of 1 MiB;
    /// `None` if the run has not measured it.
    pub(crate) fn copy_rates(&self, regime: Regime) -> Option<String> {
        let is_it = |row: &&Value| row["test"] == "latency" && row["bytes"] == MIB;
        let row = self.head["rows"].as_array()?.iter().filter(|_| self.of() == Of::Methods);
        let sides = row.filter(is_it).find_map(|row| row["regimes"][regime.name()].as_object())?;
        let rate = |(name, side): (&String, &Value)| {
            Some(format!("{name} {:.1} GB/s", MIB as f64 / side["p10_ns"].as_f64()?))
        };
        let rates: Vec<String> = sides
            .iter()
            .filter(|side| side.0 != "dtl" && side.0 != PROTOTYPE)
            .filter_map(rate)
            .collect();
        Some(rates.join(", "))
    }

    /// Returns the measured subcommand: "comm", "alloc" and so on.
    pub(crate) fn measured(&self) -> &str {
        self.text("measured")
    }

    /// Returns a string property of the run from `head`; empty if it is missing.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.head[key].as_str().unwrap_or_default()
    }

    /// Returns the name of the peer (the implementation that the library is compared with),
    /// followed by the version of the peer if it is known. Returns `None` if the run has no peer, or
    /// only the bare prototype.
    pub(crate) fn peer(&self) -> Option<String> {
        let peer = &self.head["peer"];
        let (name, version) =
            (peer["name"].as_str()?, peer["version"].as_str().unwrap_or_default());
        Some(match name {
            "mpi" => short(version),
            "ucx" => format!("UCX {version}"),
            METHODS => "best forced method".to_owned(),
            PROTOTYPE => return None,
            _ if version.is_empty() => name.to_owned(),
            _ => format!("{name} ({version})"),
        })
    }
}

/// Shortens a version string: removes the part after a comma or asterisk, and words such as
/// "Version:". "MPICH Version: 4.0.2" becomes "MPICH 4.0.2".
fn short(version: &str) -> String {
    let first = version.split([',', '*']).next().unwrap_or_default().trim_end_matches(" for Linux");
    first
        .replace("(R)", "")
        .replace(" Version:", "")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

fn row(value: &Value) -> Option<Row> {
    let unit = match (value["unit"].as_str()?, value["bytes_per_operation"].as_f64()) {
        ("ns", _) => Unit::Nanoseconds,
        ("us", _) => Unit::Microseconds,
        ("GB/s", Some(bytes)) => Unit::Bandwidth(bytes),
        ("M/s", _) => Unit::Rate,
        _ => return None,
    };
    let values = value["regimes"].as_object()?.iter().map(|(name, sides)| {
        let regime = Regime::ALL.into_iter().find(|regime| regime.name() == name)?;
        let is_second = value["second_run"][name] == true;
        Some((regime, Pair { is_second, ..pair(sides)? }))
    });
    let values: Option<Vec<_>> = values.collect();
    Some(Row {
        test: value["test"].as_str()?.to_owned(),
        bytes: value["bytes"].as_u64(),
        unit,
        values: values?,
    })
}

/// Extracts the values from `sides`, the results in JSON: the value for this library ("dtl"), the
/// lowest value of those that it is compared with, and the value of the bare prototype.
fn pair(sides: &Value) -> Option<Pair> {
    let ours = &sides["dtl"];
    let own = ours["p10_ns"].as_f64()?;
    let of = |side: &Value| {
        let ns = side["p10_ns"].as_f64()?;
        let ratio = side["time_ratio"].as_f64().unwrap_or(own / ns);
        Some((ns, ratio, side["rounds"].as_u64().unwrap_or(1)))
    };
    let theirs = sides.as_object()?.iter().filter(|(name, _)| *name != "dtl" && *name != PROTOTYPE);
    let theirs = theirs.filter_map(|(_, side)| of(side)).min_by(|a, b| a.0.total_cmp(&b.0));
    let prototype = of(&sides[PROTOTYPE]);
    Some(Pair {
        ours: own,
        theirs: theirs.map(|side| side.0),
        prototype: prototype.map(|side| side.0),
        ratio: theirs.map(|side| side.1),
        of_prototype: prototype.map(|side| side.1),
        rounds: theirs.map_or(0, |side| side.2),
        is_second: false,
        count: ours["count"].as_u64()?,
    })
}

impl Row {
    pub(crate) fn at(&self, regime: Regime) -> Option<Pair> {
        self.values.iter().find(|value| value.0 == regime).map(|value| value.1)
    }

    /// Formats the size of a row; returns an empty string if the row has none.
    pub(crate) fn size(&self) -> String {
        self.bytes.filter(|_| self.test != "barrier").map_or(String::new(), size)
    }

    /// Returns the test and the size as a title.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.test, self.size()).trim_end().to_owned()
    }

    /// Returns the library's value divided by the value of the library it is compared with, both in
    /// the unit of the row; `None` if there is no value to compare with.
    pub(crate) fn ratio(&self, pair: Pair) -> Option<f64> {
        pair.ratio.map(|ratio| self.unit.ratio(ratio))
    }
}

/// Formats a size: "8 B", "64 KiB".
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        whole if whole >= 1 << 20 && whole % (1 << 20) == 0 => format!("{} MiB", whole >> 20),
        whole if whole >= 1 << 10 && whole % (1 << 10) == 0 => format!("{} KiB", whole >> 10),
        bytes => format!("{bytes} B"),
    }
}

#[cfg(test)]
#[path = "tests/run.rs"]
mod tests;
