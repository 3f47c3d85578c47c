//! The command line of dtl-ctk.

use crate::api::limit_of;
use crate::case::{OPS, Op};
use crate::generate::Space;
use crate::kit::catalog::COMPONENTS;
use crate::kit::options::{Kernels, Place, Target, Wanted, Work};
use crate::sample::fault::FAULTS;
use crate::shrink::{self, Change};
use clap::{Args, Parser, Subcommand};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

const AFTER: &str = "\
Exit status: 0 if all tests and cases pass; 1 if one fails (of a random case the smallest form \
that still \
fails is on standard error, with the command that repeats it); 2 for a wrong command line; 3 if \
the backend \
cannot run here or files cannot be written.

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
    Run(Box<RunOptions>),
    /// List the named tests, or (--cases) the operations of random cases
    List(List),
    /// Tell what a test checks, why, and what its failure usually means
    Explain {
        /// Its name
        test: String,
    },
    /// Answer the nine boxes of a new backend from the files of its folder
    Checklist {
        /// The folder of its sources
        folder: PathBuf,
    },
    /// Write random cases to a file, a line of numbers each, for another implementation to run
    Cases(Cases),
    /// Run tests for another process of dtl-ctk
    #[command(hide = true)]
    Work(Work),
}

#[derive(Args, Debug)]
pub(crate) struct List {
    /// The operations that --only of random cases knows
    #[arg(long)]
    pub(crate) cases: bool,

    /// The faults that the backend sample can be given, each with a test that finds it
    #[arg(long)]
    pub(crate) faults: bool,

    /// Only tests of these components
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = parse_component)]
    pub(crate) component: Vec<String>,

    /// Only tests that match; * stands for any text
    #[arg(long, value_name = "PATTERN,…", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
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

    /// Only these operations (see dtl-ctk list --cases), separated by commas
    #[arg(long, value_name = "OP,…", value_delimiter = ',', value_parser = parse_op)]
    pub(crate) only: Vec<Op>,
}

/// What `run` takes. It becomes a [`Run`] of random cases or a [`Wanted`] of named tests.
#[derive(Args, Clone, Debug)]
pub(crate) struct RunOptions {
    /// A backend of the library's ("host", "null", ...), or "sample" (registered by this program)
    #[arg(long, value_name = "NAME", group = "target")]
    pub(crate) backend: Option<String>,

    /// A plugin file
    #[arg(long, value_name = "FILE", group = "target")]
    pub(crate) plugin: Option<PathBuf>,

    /// A kind of communicator: "self", "threads", "shm", "minimal" (five functions, registered by
    /// this program; ranks are threads), "faulty" (the same with a bug: shows what a failure looks
    /// like), or any other that the library knows
    #[arg(long, value_name = "KIND", group = "target")]
    pub(crate) kind: Option<String>,

    /// Number of ranks of comm tests; under a launcher (dtlrun, mpirun, srun) that of the job
    /// [default: 1 for random cases and kind self, else 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub(crate) ranks: Option<u64>,

    /// Only these tests (* stands for any text; "memory.host" is all of its tests); of random cases
    /// only these operations
    #[arg(long, value_name = "PATTERN,…", value_delimiter = ',')]
    pub(crate) only: Vec<String>,

    /// Longest that a call of a random case or a named test may take [default: 60s, 30s]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) timeout: Option<Duration>,

    /// Open communicators without a time limit: some kinds then work in another way. A test or case
    /// that hangs is ended from outside
    #[arg(long)]
    pub(crate) no_time_limit: bool,

    /// What starts ranks that are processes, instead of dtlrun; {ranks} is their number: "mpirun -n
    /// {ranks}"
    #[arg(long, value_name = "COMMAND")]
    pub(crate) launcher: Option<String>,

    #[command(flatten)]
    pub(crate) named: Named,

    #[command(flatten)]
    pub(crate) random: Random,
}

/// Options of named tests.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Named tests")]
pub(crate) struct Named {
    /// Only tests of these components: abi, device, memory, transfer, exec, comm. What the backend
    /// has no table for is tested if it is named here: the library's generic version
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = parse_component)]
    pub(crate) component: Vec<String>,

    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write the results as JUnit's XML
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,

    /// Failures that are expected: lines "pattern" = "reason"; a test that passes although it is
    /// there is a failure
    #[arg(long, value_name = "FILE")]
    pub(crate) expect: Option<PathBuf>,

    /// End the run after this many failures
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_failures: Option<u64>,

    /// Also run threads with random operations for so many seconds each
    #[arg(long, value_name = "SECONDS")]
    pub(crate) stress: Option<u64>,

    /// Also measure what calls take
    #[arg(long)]
    pub(crate) time: bool,

    /// A line for every test, also for those that pass or are skipped
    #[arg(long, short)]
    pub(crate) verbose: bool,

    /// Give the backend sample a fault, to see what its failure looks like (see dtl-ctk list
    /// --faults)
    #[arg(long, value_name = "FAULT", value_parser = parse_fault)]
    pub(crate) fault: Option<String>,

    #[command(flatten)]
    pub(crate) kernels: Kernels,

    /// What ranks are
    #[arg(long, value_name = "WHAT", value_enum)]
    pub(crate) ranks_as: Option<Place>,
}

/// Options of random cases: --cases or --case chooses them.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Random cases")]
pub(crate) struct Random {
    /// Run so many random cases instead of named tests
    #[arg(long, value_name = "N")]
    pub(crate) cases: Option<u64>,

    /// The cases depend on this, the number of ranks, --max-bytes and --only
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Largest buffer of a rank; sizes are spread evenly over the powers of two
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = parse_bytes)]
    pub(crate) max_bytes: u64,

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

/// A run of random cases.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) kind: String,
    pub(crate) ranks: u64,
    pub(crate) choice: Choice,
    /// Longest that a call may wait.
    pub(crate) timeout: Duration,
    pub(crate) digest: Option<PathBuf>,
    pub(crate) case: Option<u64>,
    pub(crate) shrink: Vec<Change>,
    pub(crate) no_shrink: bool,
    pub(crate) no_time_limit: bool,
    pub(crate) launcher: Option<String>,
    pub(crate) worker: bool,
    pub(crate) progress: Option<PathBuf>,
}

/// What `run` is to do.
pub(crate) enum Task {
    Random(Run),
    Named(Wanted),
}

impl RunOptions {
    /// Makes sense of the options together.
    pub(crate) fn task(self) -> Result<Task, String> {
        if self.kind.as_deref() == Some("self") && self.ranks.is_some_and(|ranks| ranks != 1) {
            return Err(format!("kind self has one rank, not {}", self.ranks.unwrap_or(1)));
        }
        let random = self.random.cases.is_some() || self.random.case.is_some();
        if !random && self.random.digest.is_some() {
            return Err("--digest is for random cases: give their number with --cases".to_owned());
        }
        if random {
            self.random_cases().map(Task::Random)
        } else {
            self.named_tests().map(Task::Named)
        }
    }

    fn random_cases(self) -> Result<Run, String> {
        let Some(kind) = self.kind else { return Err("random cases want --kind".to_owned()) };
        let only =
            self.only.iter().map(|name| parse_op(name).map_err(|error| format!("{name}: {error}")));
        let random = self.random;
        Ok(Run {
            kind,
            ranks: self.ranks.unwrap_or(1),
            choice: Choice {
                seed: random.seed,
                cases: random.cases.unwrap_or(1000),
                max_bytes: random.max_bytes,
                only: only.collect::<Result<_, _>>()?,
            },
            timeout: self.timeout.unwrap_or(Duration::from_secs(60)),
            digest: random.digest,
            case: random.case,
            shrink: random.shrink,
            no_shrink: random.no_shrink,
            no_time_limit: self.no_time_limit,
            launcher: self.launcher,
            worker: random.worker,
            progress: random.progress,
        })
    }

    fn named_tests(self) -> Result<Wanted, String> {
        let only_abi = !self.named.component.is_empty()
            && self.named.component.iter().all(|name| name == "abi");
        let target = match (self.backend, self.plugin, self.kind.clone()) {
            (Some(name), ..) => Target::Backend(name),
            (_, Some(path), _) => Target::Plugin(path),
            (.., Some(kind)) => Target::Kind(kind),
            _ if only_abi => Target::Library,
            _ => {
                return Err(
                    "what is to be tested? Give --backend, --plugin or --kind (or --component abi)"
                        .to_owned(),
                );
            }
        };
        let natural = if self.kind.as_deref() == Some("self") { 1 } else { 2 };
        Ok(Wanted {
            target,
            components: self.named.component,
            patterns: self.only,
            ranks: self.ranks.unwrap_or(natural),
            place: self.named.ranks_as,
            launcher: self.launcher,
            limit: self.timeout.unwrap_or(Duration::from_secs(30)),
            no_time_limit: self.no_time_limit,
            json: self.named.json,
            junit: self.named.junit,
            expect: self.named.expect,
            stress: self.named.stress,
            max_failures: self.named.max_failures,
            time: self.named.time,
            verbose: self.named.verbose,
            fault: self.named.fault,
            kernels: self.named.kernels,
        })
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

    /// As it is written on a command line.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut words =
            vec![format!("--seed={}", self.seed), format!("--max-bytes={}", self.max_bytes)];
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

    /// The time limit of communicators.
    pub(crate) fn limit_ns(&self) -> u64 {
        limit_of(self.timeout_ns(), self.no_time_limit)
    }

    /// How long ranks may be in one case before they are ended. Where calls have time limits of
    /// their own, this is for ranks that spin or sleep for ever.
    pub(crate) fn patience(&self) -> Duration {
        if self.no_time_limit { self.timeout } else { self.timeout * 3 + Duration::from_secs(40) }
    }

    /// The arguments that make the same run.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut words = vec![
            "run".to_owned(),
            format!("--kind={}", self.kind),
            format!("--ranks={}", self.ranks),
        ];
        words.extend(self.choice.arguments());
        words.push(format!("--timeout={}ms", self.timeout.as_millis()));
        words.push(match self.case {
            Some(number) => format!("--case={number}"),
            None => format!("--cases={}", self.choice.cases),
        });
        words.extend(self.no_time_limit.then(|| "--no-time-limit".to_owned()));
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

fn parse_component(text: &str) -> Result<String, String> {
    let known = COMPONENTS.contains(&text);
    if known {
        Ok(text.to_owned())
    } else {
        Err(format!("components are {}", COMPONENTS.join(", ")))
    }
}

fn parse_fault(text: &str) -> Result<String, String> {
    let known = FAULTS.iter().any(|(name, _)| *name == text);
    if known {
        Ok(text.to_owned())
    } else {
        Err("no such fault: see dtl-ctk list --faults".to_owned())
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
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let seconds =
        number.parse::<f64>().ok().map(|number| number * unit).filter(|seconds| *seconds >= 0.001);
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
        let line = "dtl-ctk run --kind shm --ranks 3 --seed 5 --case 17 --only bcast,p2p --shrink \
            h,d1 --no-time-limit";
        let task =
            |words: &mut dyn Iterator<Item = String>| match Options::parse_from(words).command {
                Command::Run(run) => match run.task() {
                    Ok(Task::Random(run)) => run,
                    _ => panic!("random cases"),
                },
                _ => panic!("run"),
            };
        let run = task(&mut line.split(' ').map(str::to_owned));
        let again = task(&mut std::iter::once("dtl-ctk".to_owned()).chain(run.arguments()));
        assert_eq!(format!("{run:?}"), format!("{again:?}"));
    }
}
