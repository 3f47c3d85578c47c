//! Command line of dtl-ctk, for the process that the user starts and for its workers.

use crate::api::limit_of;
use crate::case::{OPS, Op};
use crate::generate::Space;
use crate::kit::catalog::COMPONENTS;
use crate::kit::costs::Costs;
use crate::publish::Publish;
use crate::sample::fault;
use crate::shrink::{self, Change};
use crate::worker::is_threaded;
use clap::{Args, Parser, Subcommand, ValueEnum};
use dtl::tooling::settings;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

const AFTER: &str = "\
Exit status: 0 if all tests and cases pass; 1 if one fails (of a random case the smallest form \
that still fails is on standard error, with the command that repeats it); 2 for a wrong command \
line; 3 if the backend cannot run here or files cannot be written.

Examples:
  dtl-ctk run --plugin ./libfoo.so                     all named tests of what it has
  dtl-ctk run --kind shm --ranks 4                     the named tests of communicators
  dtl-ctk run --kind shm --ranks 4 --cases 10000       random cases instead
  dtl-ctk explain memory.device.aligned_as_asked       what is behind a name";

/// Test backends: named tests of every component, and random cases for communicators.
#[derive(Parser)]
#[command(name = "dtl-ctk", version, after_help = AFTER, max_term_width = 100)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run tests on a backend, a plugin file or a kind of communicator
    #[command(after_help = AFTER)]
    Run(Box<Run>),
    /// List the named tests or, with --cases, the operations of random cases
    List(List),
    /// Explain what a test checks, why, and what usually causes its failure
    Explain {
        /// Its name
        test: String,
    },
    /// Run the named tests, measure slots and library, and write one page to publish
    #[command(after_help = AFTER)]
    Report(Box<Publish>),
    /// Show two reports side by side: tests that differ, and costs with their ratio
    ///
    /// Exit status: 0 if all tests have the same outcome; 1 if one differs; 2 if a file is no
    /// report, or the two have no test in common.
    Compare {
        /// JSON of a report
        first: PathBuf,
        /// JSON of another report
        second: PathBuf,
    },
    /// Check the nine requirements of a new backend in the files of its folder
    ///
    /// It reads the files. It neither builds nor runs anything.
    Checklist {
        /// Folder with the sources of the backend
        folder: PathBuf,
    },
    /// Write random cases to a file, one line of numbers each, for another implementation to run
    Cases(Cases),
}

#[derive(Args, Debug)]
pub(crate) struct List {
    /// List the operations that --only accepts for random cases
    #[arg(long)]
    pub(crate) cases: bool,

    /// List the faults that can be planted in the backend sample, each with a test that finds it
    #[arg(long)]
    pub(crate) faults: bool,

    /// Only tests of these components
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = parse_component)]
    pub(crate) component: Vec<String>,

    /// Only matching tests; * stands for any text
    #[arg(long, value_name = "PATTERN,…", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
}

/// Options that select the random cases.
#[derive(Args, Clone, Debug)]
pub(crate) struct Choice {
    /// Seed. The cases also depend on the number of ranks, --max-bytes and --only
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Number of cases
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) cases: u64,

    /// Largest buffer of a rank; sizes are spread evenly over the powers of two
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = parse_bytes)]
    pub(crate) max_bytes: u64,

    /// Only these operations (see dtl-ctk list --cases), separated by commas
    #[arg(long, value_name = "OP,…", value_delimiter = ',', value_parser = parse_op)]
    pub(crate) only: Vec<Op>,
}

/// Options of `run`: named tests or, with --cases or --case, random cases.
#[derive(Args, Clone, Debug)]
pub(crate) struct Run {
    /// Backend of the library ("host", "null", ...), or "sample" (registered by this program)
    #[arg(long, value_name = "NAME", group = "target")]
    pub(crate) backend: Option<String>,

    /// A plugin file
    #[arg(long, value_name = "FILE", group = "target")]
    pub(crate) plugin: Option<PathBuf>,

    /// Kind of communicator: "self", "threads", "shm", "minimal" (five functions, registered by
    /// this program; ranks are threads), "faulty" (minimal with a planted fault, to show a
    /// failure), or any other registered kind
    #[arg(long, value_name = "KIND", group = "target")]
    pub(crate) kind: Option<String>,

    /// Number of ranks of comm tests; under a launcher (dtlrun, mpirun, srun) the number that it
    /// has started [default: 1 for random cases and kind self, else 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub(crate) ranks: Option<u64>,

    /// Only these tests (* stands for any text; "memory.host" selects all of its tests); for random
    /// cases only these operations
    #[arg(long, value_name = "PATTERN,…", value_delimiter = ',')]
    pub(crate) only: Vec<String>,

    /// Time limit of each call of a random case, or of each named test [default: 60s, 30s]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) timeout: Option<Duration>,

    /// Open communicators without a time limit, which selects other code paths in some kinds. A
    /// test or case that hangs is killed
    #[arg(long)]
    pub(crate) no_time_limit: bool,

    /// Command that starts ranks as processes, instead of dtlrun; {ranks} is replaced by their
    /// number: "mpirun -n {ranks}"
    #[arg(long, value_name = "COMMAND")]
    pub(crate) launcher: Option<String>,

    #[command(flatten)]
    pub(crate) named: Named,

    #[command(flatten)]
    pub(crate) random: Random,

    #[command(flatten)]
    pub(crate) worker: Worker,
}

/// Options of named tests.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Named tests")]
pub(crate) struct Named {
    /// Only tests of these components: abi, device, memory, transfer, exec, comm. If the backend
    /// has no table for a component that is named here, the library's generic implementation is
    /// tested
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = parse_component)]
    pub(crate) component: Vec<String>,

    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write the results as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,

    /// File of expected failures, with lines "pattern" = "reason"; an expected failure that passes
    /// is a failure
    #[arg(long, value_name = "FILE")]
    pub(crate) expect: Option<PathBuf>,

    /// End the run after this many failures
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_failures: Option<u64>,

    /// Also run the stress tests (threads with random operations), each for this number of seconds
    #[arg(long, value_name = "SECONDS")]
    pub(crate) stress: Option<u64>,

    /// Also measure how long calls take
    #[arg(long)]
    pub(crate) time: bool,

    /// Print a line for every test, including those that pass or are skipped
    #[arg(long, short)]
    pub(crate) verbose: bool,

    /// Plant a fault in the backend sample, to see its failure (see dtl-ctk list --faults)
    #[arg(long, value_name = "FAULT", value_parser = parse_fault)]
    pub(crate) fault: Option<String>,

    #[command(flatten)]
    pub(crate) kernels: Kernels,

    /// What ranks are
    #[arg(long, value_name = "WHAT", value_enum)]
    pub(crate) ranks_as: Option<Place>,

    /// True for `report`, whose page is all that is printed.
    #[arg(skip)]
    pub(crate) quiet: bool,
}

/// Kernels to test in place of the kit's own source.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Kernels {
    /// File with a kernel that the exec.module tests use instead of the kit's source in language 0.
    /// Its language is DTL_LANGUAGE_PTX if its name ends in .ptx, DTL_LANGUAGE_SPIRV if it ends in
    /// .spv, else DTL_LANGUAGE_BINARY. The tests launch the kernel in one dimension, without shared
    /// memory. Kernels "place", "group_place", "sums" and "fails" of the file are tested, too, with
    /// three dimensions, with shared memory, and with a failure
    #[arg(long, value_name = "FILE")]
    pub(crate) binary: Option<PathBuf>,

    /// Name of the kernel in that file [default: add]
    #[arg(long, value_name = "NAME", requires = "binary")]
    pub(crate) kernel: Option<String>,

    /// Parameters of the kernel, as in dtl_kernel_get. A kernel of "pi" must add the int to each
    /// element of the int array, as the kit's own kernel does. Kernels with other signatures are
    /// launched with a pointer to 4000 bytes and zeros; their results are not checked [default: pi]
    #[arg(long, value_name = "LETTERS", requires = "binary")]
    pub(crate) signature: Option<String>,
}

/// Form in which the ranks of comm tests run: as processes or as threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Place {
    /// Processes, started by dtlrun or --launcher
    Processes,
    /// Threads of one process
    Threads,
}

/// Options of random cases, which --cases or --case selects.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Random cases")]
pub(crate) struct Random {
    /// Run this number of random cases instead of named tests
    #[arg(long, value_name = "N")]
    pub(crate) cases: Option<u64>,

    /// Seed. The cases also depend on the number of ranks, --max-bytes and --only
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Largest buffer of a rank; sizes are spread evenly over the powers of two
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = parse_bytes)]
    pub(crate) max_bytes: u64,

    /// Write a line for each case: number, description, hash of all ranks' outputs
    #[arg(long, value_name = "FILE")]
    pub(crate) digest: Option<PathBuf>,

    /// Run only the case with this number
    #[arg(long, value_name = "K")]
    pub(crate) case: Option<u64>,

    /// Reductions that make the case smaller, separated by commas
    #[arg(long, value_name = "CHANGE,…", value_delimiter = ',', requires = "case")]
    #[arg(long_help = shrink::HELP)]
    pub(crate) shrink: Vec<Change>,

    /// Do not search for the smallest failing form of a case
    #[arg(long)]
    pub(crate) no_shrink: bool,
}

/// Options that the driver adds for the processes that it starts.
#[derive(Args, Clone, Debug)]
pub(crate) struct Worker {
    /// Run the tests or cases in this process, as a worker
    #[arg(long, hide = true)]
    pub(crate) worker: bool,

    /// File with the names of the tests, one on each line
    #[arg(long, hide = true)]
    pub(crate) names: Option<PathBuf>,

    /// Path of the file for the worker's report or, for random cases, for the number of rank 0's
    /// current case
    #[arg(long, hide = true)]
    pub(crate) report: Option<PathBuf>,

    /// Measure costs instead of running tests
    #[arg(long, hide = true, value_enum)]
    pub(crate) costs: Option<Costs>,

    /// Number of ranks that are threads; 0: this process is one rank
    #[arg(long, hide = true, default_value_t = 0)]
    pub(crate) threads: u64,
}

/// Object under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    /// Name of a backend in the library's registry, or "sample" (the backend that this program
    /// registers).
    Backend(&'a str),
    /// Kind of communicator.
    Kind(&'a str),
    /// Plugin file.
    Plugin(&'a Path),
    /// Only the library itself, for which only the tests of component "abi" exist.
    Library,
}

impl Run {
    /// Parses a command line.
    pub(crate) fn of(words: &str) -> Run {
        match Options::parse_from(["dtl-ctk", "run"].into_iter().chain(words.split(' '))).command {
            Command::Run(run) => *run,
            _ => unreachable!("the command is run"),
        }
    }

    /// Fails if the options contradict each other.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.kind.as_deref() == Some("self") && self.ranks.is_some_and(|ranks| ranks != 1) {
            return Err(format!("kind self has one rank, not {}", self.ranks.unwrap_or(1)));
        }
        if !self.is_random() && self.random.digest.is_some() {
            return Err("--digest is for random cases: give their number with --cases".to_owned());
        }
        if self.is_random() {
            if self.kind.is_none() {
                return Err("random cases want --kind".to_owned());
            }
            let wrong =
                |name: &String| parse_op(name).err().map(|error| format!("{name}: {error}"));
            return self.only.iter().find_map(wrong).map_or(Ok(()), Err);
        }
        let is_abi = |names: &[String]| !names.is_empty() && names.iter().all(|name| name == "abi");
        if self.target() == Target::Library && !is_abi(&self.named.component) {
            return Err(
                "what is to be tested? Give --backend, --plugin or --kind (or --component abi)"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Returns true if the run executes random test cases, false if it executes named tests.
    pub(crate) fn is_random(&self) -> bool {
        self.random.cases.is_some() || self.random.case.is_some()
    }

    pub(crate) fn target(&self) -> Target<'_> {
        match (&self.backend, &self.plugin, &self.kind) {
            (Some(name), ..) => Target::Backend(name),
            (_, Some(path), _) => Target::Plugin(path),
            (.., Some(kind)) => Target::Kind(kind),
            _ => Target::Library,
        }
    }

    /// Returns the value of --backend or --kind; `None` if neither is given.
    pub(crate) fn name(&self) -> Option<&str> {
        self.backend.as_deref().or(self.kind.as_deref())
    }

    /// Returns the name of the backend or communicator kind under test, the path of the plugin
    /// file, or "the library".
    pub(crate) fn subject(&self) -> String {
        match self.target() {
            Target::Backend(name) | Target::Kind(name) => name.to_owned(),
            Target::Plugin(path) => path.display().to_string(),
            Target::Library => "the library".to_owned(),
        }
    }

    /// Returns the number of ranks that run the communicator tests or the random test cases.
    pub(crate) fn ranks(&self) -> u64 {
        let is_one = self.is_random() || self.kind.as_deref() == Some("self");
        self.ranks.unwrap_or(if is_one { 1 } else { 2 })
    }

    /// Returns whether the ranks run as processes or as threads.
    pub(crate) fn place(&self) -> Place {
        let threaded = self.name().is_some_and(|name| name == "self" || is_threaded(name));
        let (is_random, is_launched) = (self.is_random(), self.launcher.is_some());
        let natural = match threaded && (is_random || !is_launched) {
            true => Place::Threads,
            false => Place::Processes,
        };
        if is_random { natural } else { self.named.ranks_as.unwrap_or(natural) }
    }

    /// Returns the time limit of a named test, or of one library call in a random case.
    pub(crate) fn limit(&self) -> Duration {
        let seconds = if self.is_random() { 60 } else { 30 };
        self.timeout.unwrap_or(Duration::from_secs(seconds))
    }

    /// Returns the time limit of one library call in nanoseconds.
    pub(crate) fn call_ns(&self) -> u64 {
        let part = if self.is_random() { 1 } else { 3 };
        u64::try_from((self.limit() / part).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the time limit, in nanoseconds, that is set when a communicator is opened;
    /// DTL_TIMEOUT_INFINITE with --no-time-limit.
    pub(crate) fn comm_limit_ns(&self) -> u64 {
        limit_of(self.call_ns(), self.no_time_limit)
    }

    /// Returns the time without progress after which a worker process (which runs the tests or
    /// cases) is killed. This limit ends runs in which ranks spin or sleep forever. For random
    /// cases whose calls have their own time limit, it is more than three times that limit.
    pub(crate) fn patience(&self) -> Duration {
        match self.is_random() && !self.no_time_limit {
            true => self.limit() * 3 + Duration::from_secs(40),
            false => self.limit(),
        }
    }

    /// Returns the options that select the random cases.
    pub(crate) fn choice(&self) -> Choice {
        Choice {
            seed: self.random.seed,
            cases: self.random.cases.unwrap_or(1000),
            max_bytes: self.random.max_bytes,
            only: self.only.iter().filter_map(|name| parse_op(name).ok()).collect(),
        }
    }

    /// Returns the range of case numbers of the random test cases to run.
    pub(crate) fn numbers(&self) -> Range<u64> {
        self.random.case.map_or(0..self.choice().cases, |number| number..number + 1)
    }

    /// Returns the arguments that repeat a run of random cases, or start a worker for named tests.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let file = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let list = |names: Vec<String>| (!names.is_empty()).then(|| names.join(","));
        let (named, random, is_random) = (&self.named, &self.random, self.is_random());
        let of_cases = |value: String| is_random.then_some(value);
        let cases = of_cases(self.choice().cases.to_string()).filter(|_| random.case.is_none());
        let values = [
            ("backend", self.backend.clone()),
            ("plugin", file(&self.plugin)),
            ("kind", self.kind.clone()),
            ("ranks", of_cases(self.ranks().to_string())),
            ("seed", of_cases(random.seed.to_string())),
            ("max-bytes", of_cases(random.max_bytes.to_string())),
            ("only", list(self.only.clone()).filter(|_| is_random)),
            ("component", list(named.component.clone())),
            ("binary", file(&named.kernels.binary)),
            ("kernel", named.kernels.kernel.clone()),
            ("signature", named.kernels.signature.clone()),
            ("fault", named.fault.clone()),
            ("stress", named.stress.map(|seconds| seconds.to_string())),
            ("timeout", Some(format!("{}ms", self.limit().as_millis()))),
            ("case", random.case.map(|number| number.to_string())),
            ("cases", cases),
            ("no-time-limit", self.no_time_limit.then(String::new)),
            ("shrink", list(random.shrink.iter().map(Change::to_string).collect())),
            ("digest", file(&random.digest)),
        ];
        let word = |(name, value): (&str, Option<String>)| match value?.as_str() {
            "" => Some(format!("--{name}")),
            value => Some(format!("--{name}={value}")),
        };
        std::iter::once("run".to_owned()).chain(values.into_iter().filter_map(word)).collect()
    }
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
}

fn parse_component(text: &str) -> Result<String, String> {
    match COMPONENTS.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!("components are {}", COMPONENTS.join(", "))),
    }
}

fn parse_fault(text: &str) -> Result<String, String> {
    match fault::is_known(text) {
        true => Ok(text.to_owned()),
        false => Err("no such fault: see dtl-ctk list --faults".to_owned()),
    }
}

fn parse_op(text: &str) -> Result<Op, String> {
    Op::of_name(text).ok_or_else(|| "no such operation: see dtl-ctk list --cases".to_owned())
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("B", 0)];
    let unit =
        units.iter().find_map(|(unit, bits)| text.strip_suffix(unit).map(|number| (number, *bits)));
    let (number, bits) = unit.unwrap_or((text, 0));
    let bytes = number.trim().parse::<u64>().ok().and_then(|number| number.checked_mul(1 << bits));
    bytes
        .filter(|bytes| *bytes <= 1 << 36)
        .ok_or_else(|| "expected a size as 64KiB, 4MiB, at most 64GiB".to_owned())
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let limit = settings::duration("--timeout", text).ok().map(Duration::from_nanos);
    limit
        .filter(|limit| *limit >= Duration::from_millis(1))
        .ok_or_else(|| "expected a time as 60s or 500ms".to_owned())
}

#[cfg(test)]
mod tests;
