//! The command line of dtl-bench.

use crate::comm::Test;
use crate::model::Model;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::process;
use std::str::FromStr;
use std::time::Duration;

const AFTER: &str = "\
Values are the 10th percentile over many short batches, those of a peer from batches in turn with \
ours. A cache line \
is bounced between two processors around each batch: \"near\" is below 200 ns for a round trip, \
\"far\" above 300 ns \
(virtual machines move between the two), and only values of the same regime are compared.

Exit status: 0 if all was measured, 1 if a call failed or data arrived wrong, 2 for a wrong \
command line.

Examples:
  dtl-bench comm -n 2                          two processes and shared memory
  dtl-bench comm --kind threads -n 2           two threads
  mpirun -n 2 dtl-bench comm --vs mpi          the same on that MPI, in turn, with ratios
  dtl-bench report --output FOLDER             all of it, as a page with tables and plots";

/// Measure what calls, messages, allocations, loops and copies cost on this machine.
#[derive(Parser)]
#[command(name = "dtl-bench", version, after_help = AFTER, max_term_width = 100)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
#[command(rename_all = "snake_case")]
pub(crate) enum Command {
    /// Messages and collectives between ranks; run it under dtlrun or mpirun, or with -n
    Comm(Comm),
    /// Allocation and free, compared with this process' malloc
    Alloc(Sizes),
    /// Starting loops on several threads
    ParallelFor(ParallelFor),
    /// Calls of a backend's functions through the library, compared with direct calls
    Call(Call),
    /// Submission of an empty task with each selection policy, by one thread and by two threads at
    /// once
    Select(Call),
    /// Finding and invoking a dispatcher's handler, compared with a direct call of its function
    Dispatch(Call),
    /// Copies of host memory, against memcpy
    Copy(Sizes),
    /// Starting two processes with dtlrun
    Launch(Launch),
    /// Run all of these, or read their results, and write a page with tables and plots
    Report(Report),
    /// Growth of the cost of collectives up to a million ranks and more, computed from their steps
    Model(Model),
    /// Print the time at which the program began; `launch` starts this subcommand
    #[command(hide = true)]
    Now,
}

/// Common options: duration of the measurement, and output format.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// Measuring time for each row of the table and each compared implementation
    #[arg(long, value_name = "SECONDS", default_value = "0.25", value_parser = parse_seconds)]
    pub(crate) seconds: Duration,

    /// Run a very short measurement: --seconds 0.01
    #[arg(long, conflicts_with = "seconds")]
    pub(crate) quick: bool,

    /// Number of passes over all rows of the table; more passes reduce the effect of temporary load
    /// of the machine
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,

    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options for the placement of ranks and threads.
#[derive(Args, Clone, Debug)]
pub(crate) struct Place {
    /// Let the operating system move ranks and threads between processors
    #[arg(long)]
    pub(crate) no_pin: bool,
}

impl Common {
    /// Returns the measurement time for each row of the table and each implementation that is
    /// compared.
    pub(crate) fn budget(&self) -> Duration {
        if self.quick { Duration::from_millis(10) } else { self.seconds }
    }
}

/// Options of `comm`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Comm {
    /// Only these tests, separated by commas
    #[arg(long, value_name = "TEST,…", value_delimiter = ',', value_enum)]
    pub(crate) only: Vec<Test>,

    /// Message sizes (8, 64KiB, 1MiB, ...) to use instead of the default sizes of each test
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = parse_bytes)]
    pub(crate) sizes: Vec<usize>,

    /// Rows to measure instead of those that --only and --sizes select, as latency:8,bcast:64KiB
    #[arg(long, value_name = "TEST:SIZE,…", value_delimiter = ',', value_parser = parse_row)]
    pub(crate) rows: Vec<(Test, usize)>,

    /// Kind of communicator: auto, shm, threads, mpi, hier or a registered kind
    #[arg(long, value_name = "KIND", default_value = "auto")]
    pub(crate) kind: String,

    /// Number of ranks to start: processes with dtlrun, or threads if the kind is "threads"
    /// (default 2); omit it under a launcher, which sets the number
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(i32).range(2..=1024))]
    pub(crate) ranks: Option<i32>,

    /// Implementations to compare with, measured in alternating batches; mpi: the MPI whose mpirun
    /// started this program, or DTL_MPI_LIBRARY; ucx: the program ucx_perftest, for latency and
    /// bandwidth; methods: each copy method of kind shm, forced; prototype: the bare transfers
    /// between two processes, without matching, requests and checks
    #[arg(long, value_enum, value_name = "PEER,…", value_delimiter = ',')]
    pub(crate) vs: Vec<CommPeer>,

    #[command(flatten)]
    pub(crate) place: Place,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// Options of `alloc` and `copy`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Sizes {
    /// Block sizes (64, 4KiB, 16MiB, ...) to use instead of the default sizes
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = parse_some_bytes)]
    pub(crate) sizes: Vec<usize>,

    #[command(flatten)]
    pub(crate) place: Place,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// Options of `call`, `dispatch` and `select`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Call {
    #[command(flatten)]
    pub(crate) place: Place,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// Options of `launch`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Launch {
    /// Launcher to compare with, measured alternately; may include environment variables and
    /// options
    #[arg(long, value_name = "COMMAND")]
    pub(crate) mpirun: Option<Launcher>,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// Options of `parallel_for`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ParallelFor {
    /// Number of threads, including the caller [default: the number of allowed processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Option<u32>,

    /// Implementation to compare with, measured in alternating batches; libgomp: GCC's OpenMP,
    /// whose threads spin while they wait; tbb: oneTBB, compiled here with c++
    #[arg(long, value_enum, value_name = "PEER")]
    pub(crate) vs: Option<LoopPeer>,

    #[command(flatten)]
    pub(crate) place: Place,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// Options of `report`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Report {
    /// Files that dtl-bench has written with --json [default: run all measurements now]
    pub(crate) files: Vec<PathBuf>,

    /// Path of the page performance.md; plots and data go into the folder performance/ next to it
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub(crate) output: PathBuf,

    /// Only these parts
    #[arg(
        long,
        value_name = "PART,…",
        value_delimiter = ',',
        value_enum,
        conflicts_with = "files"
    )]
    pub(crate) only: Vec<Part>,

    /// Launcher of each MPI to compare with; may include environment variables and options, as in
    /// "I_MPI_FABRICS=shm /opt/mpi/bin/mpirun --bind-to core" [default: mpirun.openmpi and
    /// mpirun.mpich, else mpirun]
    #[arg(long, value_name = "COMMAND", conflicts_with = "files")]
    pub(crate) mpirun: Vec<Launcher>,

    /// Reuse the results of an earlier report in the output folder, and run only missing
    /// measurements
    #[arg(long, conflicts_with = "files")]
    pub(crate) resume: bool,

    /// Measuring time for each row of the table and each compared implementation
    #[arg(long, value_name = "SECONDS", default_value = "0.05", value_parser = parse_seconds, conflicts_with = "files")]
    seconds: Duration,

    /// Run a very short measurement: --seconds 0.01 --rounds 1
    #[arg(long, conflicts_with_all = ["seconds", "rounds", "files"])]
    quick: bool,

    /// Number of passes over all rows of the table
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000), conflicts_with = "files")]
    rounds: u32,
}

/// Part of a report.
#[derive(Clone, std::marker::Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Part {
    /// Messages and collectives between processes, against each MPI
    Comm,
    /// The same between threads
    Threads,
    /// Overhead of the communicator kind mpi over direct calls to each MPI
    Mpi,
    /// Collectives with small messages and 4 to 32 ranks
    Crowd,
    /// Large messages, against each copy method
    Methods,
    /// Messages, against UCX
    Ucx,
    /// Starting processes
    Launch,
    /// Allocations
    Alloc,
    /// Calls
    Call,
    /// Copies
    Copy,
    /// Loops
    ParallelFor,
}

impl Report {
    /// Returns the measurement time for each row of the table and each implementation that is
    /// compared.
    pub(crate) fn seconds(&self) -> Duration {
        if self.quick { Duration::from_millis(10) } else { self.seconds }
    }

    pub(crate) fn rounds(&self) -> u32 {
        if self.quick { 1 } else { self.rounds }
    }
}

/// Implementation of parallel loops to compare with.
#[derive(Clone, std::marker::Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoopPeer {
    /// libgomp.so.1
    Libgomp,
    /// oneTBB
    Tbb,
}

/// Implementation of messages and collectives to compare with.
#[derive(Clone, std::marker::Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CommPeer {
    /// MPI's own functions
    Mpi,
    /// ucx_perftest
    Ucx,
    /// Kind shm with each copy method for large messages (DTL_SHM_COPY)
    Methods,
    /// Bare shared-memory transfers of two processes, the least that a message can cost
    Prototype,
}

/// Command that starts processes: environment variables (NAME=value), a program and its options.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Launcher {
    pub(crate) variables: Vec<(String, String)>,
    pub(crate) words: Vec<String>,
}

impl Launcher {
    /// Returns the last three components of the program's path, such as mpi/bin/mpirun: the folders
    /// distinguish programs with the same name.
    pub(crate) fn name(&self) -> String {
        let mut parts: Vec<&str> = self.words[0].rsplit('/').take(3).collect();
        parts.reverse();
        parts.join("/")
    }

    /// Returns the command without standard input. The caller may add arguments.
    pub(crate) fn start(&self) -> process::Command {
        let mut command = process::Command::new(&self.words[0]);
        command.args(&self.words[1..]).stdin(process::Stdio::null());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Formats the command as it is entered on a command line.
    pub(crate) fn text(&self) -> String {
        let variables = self.variables.iter().map(|(name, value)| format!("{name}={value}"));
        variables.chain(self.words.iter().cloned()).collect::<Vec<_>>().join(" ")
    }
}

impl FromStr for Launcher {
    type Err = String;

    fn from_str(text: &str) -> Result<Launcher, String> {
        let mut words = text.split_whitespace().peekable();
        let mut variables = Vec::new();
        while let Some(variable) = words.peek().and_then(|word| variable(word)) {
            variables.push(variable);
            words.next();
        }
        let words: Vec<String> = words.map(str::to_owned).collect();
        if words.is_empty() {
            Err("it names no program".to_owned())
        } else {
            Ok(Launcher { variables, words })
        }
    }
}

/// Parses an assignment NAME=value, which a shell accepts before a command. Returns `None` if
/// `word` is not such an assignment.
fn variable(word: &str) -> Option<(String, String)> {
    let (name, value) = word.split_once('=')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then(|| (name.to_owned(), value.to_owned()))
}

/// Maximum size of a message in bytes.
const MAX_BYTES: usize = 1 << 30;

pub(crate) fn parse_bytes(text: &str) -> Result<usize, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("B", 0)];
    let unit =
        units.iter().find_map(|(unit, bits)| text.strip_suffix(unit).map(|number| (number, *bits)));
    let (number, bits) = unit.unwrap_or((text, 0));
    let bytes =
        number.trim().parse::<usize>().ok().and_then(|number| number.checked_mul(1 << bits));
    bytes
        .filter(|bytes| *bytes <= MAX_BYTES)
        .ok_or_else(|| "expected a size as 8, 64KiB or 4MiB, at most 1GiB".to_owned())
}

/// Parses a row of the table of `comm`: a test and a size.
fn parse_row(text: &str) -> Result<(Test, usize), String> {
    let (test, bytes) = text.split_once(':').ok_or("expected a test and a size as bcast:64KiB")?;
    Ok((Test::from_str(test, false)?, parse_bytes(bytes)?))
}

fn parse_some_bytes(text: &str) -> Result<usize, String> {
    parse_bytes(text).and_then(|bytes| {
        if bytes > 0 { Ok(bytes) } else { Err("expected at least 1 byte".to_owned()) }
    })
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').unwrap_or(text).parse::<f64>().ok();
    number
        .filter(|seconds| (0.001..=3600.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "expected seconds from 0.001 to 3600, as 0.25".to_owned())
}

#[cfg(test)]
#[path = "tests/options.rs"]
mod tests;
