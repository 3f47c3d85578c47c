//! The command line of dtl-ctk.

use crate::case::{OPS, Op};
use crate::generate::Space;
use crate::shrink::{self, Change};
use clap::{Args, Parser, Subcommand};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

const AFTER: &str = "\
Exit status: 0 if all cases pass; 1 if one fails (the smallest form of it that still fails is on standard \
error, with the command that repeats it); 2 for a wrong command line; 3 if the kind cannot run here or \
files cannot be written.

Example: dtl-ctk run --kind shm --ranks 4 --cases 10000";

/// Test a kind of communicator: random cases, compared with a serial reference.
#[derive(Parser)]
#[command(name = "dtl-ctk", version, after_help = AFTER, max_term_width = 100)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run cases on a kind of communicator
    #[command(after_help = AFTER)]
    Run(Run),
    /// List what is checked: the names for --only
    List,
    /// Write cases to a file, a line of numbers each, for another implementation to run
    Cases(Cases),
}

/// What the cases are.
#[derive(Args, Clone, Debug)]
pub(crate) struct Choice {
    /// The cases depend on this, the number of ranks, --max-bytes and --only
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Number of cases
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) cases: u64,

    /// Largest buffer of a rank; sizes are spread evenly over the powers of two
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = parse_bytes)]
    pub(crate) max_bytes: u64,

    /// Only these operations (see dtl-ctk list), separated by commas
    #[arg(long, value_name = "OP,…", value_delimiter = ',', value_parser = parse_op)]
    pub(crate) only: Vec<Op>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Run {
    /// "self", "threads", "shm", "minimal" (five functions, registered by this program; ranks are threads), "faulty"
    /// (the same with a bug: shows what a failure looks like), or any other kind that the library knows
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: String,

    /// Number of ranks; under a launcher (dtlrun, mpirun, srun) that of the job
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub(crate) ranks: u64,

    #[command(flatten)]
    pub(crate) choice: Choice,

    /// Longest that a call may wait
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    pub(crate) timeout: Duration,

    /// Write a line for each case: number, description, hash of all ranks' outputs
    #[arg(long, value_name = "FILE")]
    pub(crate) digest: Option<PathBuf>,

    /// Only the case of this number
    #[arg(long, value_name = "K")]
    pub(crate) case: Option<u64>,

    /// Changes that make the case smaller, separated by commas
    #[arg(long, value_name = "CHANGE,…", value_delimiter = ',', requires = "case", long_help = shrink::HELP)]
    pub(crate) shrink: Vec<Change>,

    /// Do not look for the smallest failing form of a case
    #[arg(long)]
    pub(crate) no_shrink: bool,

    /// This process is to run the cases, not to start those that do
    #[arg(long, hide = true)]
    pub(crate) worker: bool,

    /// Where rank 0 writes which case it is in
    #[arg(long, hide = true)]
    pub(crate) progress: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Cases {
    #[command(flatten)]
    pub(crate) choice: Choice,

    /// Number of ranks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub(crate) ranks: u64,

    /// Where to write them
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
}

impl Choice {
    pub(crate) fn space(&self, ranks: u64) -> Space {
        let all = || OPS.iter().map(|(op, ..)| *op).collect();
        let ops = if self.only.is_empty() { all() } else { self.only.clone() };
        Space { seed: self.seed, ranks, max_bytes: self.max_bytes, ops }
    }

    /// As it is written on a command line.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut words = vec![format!("--seed={}", self.seed), format!("--max-bytes={}", self.max_bytes)];
        if !self.only.is_empty() {
            let names: Vec<&str> = self.only.iter().map(|op| op.name()).collect();
            words.push(format!("--only={}", names.join(",")));
        }
        words
    }
}

impl Run {
    pub(crate) fn numbers(&self) -> Range<u64> {
        self.case.map_or(0..self.choice.cases, |number| number..number + 1)
    }

    pub(crate) fn timeout_ns(&self) -> u64 {
        u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX)
    }

    /// The arguments that make the same run.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut words =
            vec!["run".to_owned(), format!("--kind={}", self.kind), format!("--ranks={}", self.ranks)];
        words.extend(self.choice.arguments());
        words.push(format!("--timeout={}ms", self.timeout.as_millis()));
        words.push(match self.case {
            Some(number) => format!("--case={number}"),
            None => format!("--cases={}", self.choice.cases),
        });
        if !self.shrink.is_empty() {
            let changes: Vec<String> = self.shrink.iter().map(Change::to_string).collect();
            words.push(format!("--shrink={}", changes.join(",")));
        }
        if let Some(path) = &self.digest {
            words.push(format!("--digest={}", path.display()));
        }
        words
    }
}

fn parse_op(text: &str) -> Result<Op, String> {
    Op::of_name(text).ok_or_else(|| "no such operation: see dtl-ctk list".to_owned())
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("B", 0)];
    let unit = units.iter().find_map(|(unit, bits)| text.strip_suffix(unit).map(|number| (number, *bits)));
    let (number, bits) = unit.unwrap_or((text, 0));
    let bytes = number.trim().parse::<u64>().ok().and_then(|number| number.checked_mul(1 << bits));
    bytes
        .filter(|bytes| *bytes <= 1 << 36)
        .ok_or_else(|| "expected a size as 64KiB, 4MiB, at most 64GiB".to_owned())
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let seconds = number.parse::<f64>().ok().map(|number| number * unit).filter(|seconds| *seconds >= 0.001);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "expected a time as 60s or 500ms".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times() {
        assert_eq!(parse_bytes("4MiB"), Ok(4 << 20));
        assert_eq!(parse_bytes("17"), Ok(17));
        assert_eq!(parse_time("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(parse_time("500ms"), Ok(Duration::from_millis(500)));
        for bad in ["", "x", "-1", "1TiB", "99999999999GiB"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_run_can_be_repeated_from_its_arguments() {
        let line = "dtl-ctk run --kind shm --ranks 3 --seed 5 --case 17 --only bcast,p2p --shrink h,d1";
        let Command::Run(run) = Options::parse_from(line.split(' ')).command else { panic!("run") };
        let again = std::iter::once("dtl-ctk".to_owned()).chain(run.arguments());
        let Command::Run(again) = Options::parse_from(again).command else { panic!("run") };
        assert_eq!(format!("{run:?}"), format!("{again:?}"));
    }
}
