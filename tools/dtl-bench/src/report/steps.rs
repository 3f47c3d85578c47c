//! Plan of the runs for a report: this program is run with each subcommand, under each launcher.
//! This module also determines which of the libraries with which the report compares this library
//! are not installed on this machine.

use super::run::{Key, Run};
use crate::library::own_file;
use crate::machine;
use crate::options::{Launcher, Part, Report};
use crate::out::Outcome;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Sizes for the plots, in addition to the sizes of the tests.
const CURVE: &str = "1,256,4KiB,16KiB,256KiB,4MiB";
const CURVE_ROWS: usize = 2 * 6;
/// Number of rows that `comm` measures with its default sizes.
const COMM_ROWS: usize = 37;
/// Options that select collectives with small messages, for ranks that share processors.
const CROWD: [&str; 4] = ["--only", "barrier,allreduce,bcast,reduce", "--sizes", "8,1KiB"];
const CROWD_ROWS: usize = 7;
const CROWDS: [&str; 4] = ["4", "8", "16", "32"];
/// Options for measuring the library's overhead when it sends its messages through an MPI library.
const OVER: [&str; 4] = ["--only", "latency,bandwidth,rate", "--sizes", "8,64KiB,1MiB"];
const OVER_ROWS: usize = 7;
/// Options that select the measurements of the copy methods of large messages.
const METHODS: &str = "comm -n 2 --vs methods,prototype \
    --only latency,bandwidth,bidirectional,bcast,reduce,allreduce,allgather,alltoall \
    --sizes=32KiB,64KiB,256KiB,1MiB,8MiB";
/// Number of their rows; each one of 8 MiB takes as long as four others.
const METHODS_ROWS: usize = 8 * (4 + 4);
/// Rows that are compared with UCX. Each batch of UCX measurements starts two processes, so a row
/// takes some times as long as others (`UCX_TIME`) until it has enough batches.
const UCX: &str = "comm -n 2 --vs ucx,prototype --rows=latency:8,latency:1KiB,latency:8KiB,\
    latency:64KiB,latency:1MiB,bandwidth:64KiB,bandwidth:1MiB";
const UCX_ROWS: usize = 7;
const UCX_TIME: f64 = 2.0;
const UCX_BATCH: f64 = 0.3;
const ALLOC_ROWS: usize = 19;
const MALLOCS: [(&str, &str); 2] =
    [("jemalloc", "libjemalloc.so.2"), ("mimalloc", "libmimalloc.so.2")];

/// One run of this program.
pub(crate) struct Step {
    pub(crate) part: Part,
    /// Name of the step's file.
    pub(crate) name: String,
    /// Environment, launcher, program and arguments.
    pub(crate) command: Launcher,
    /// Estimated duration in seconds.
    pub(crate) seconds: f64,
}

impl Step {
    /// Returns this step for only those rows of a run of `comm` that are in `keys`; `None` if there
    /// are none. `took` is the duration of the run.
    pub(crate) fn of_rows(&self, keys: &[Key], run: &Run, took: Duration) -> Option<Step> {
        let mut rows: Vec<String> =
            keys.iter().map(|(test, bytes, _)| format!("{test}:{}", bytes.unwrap_or(0))).collect();
        rows.dedup();
        let share = rows.len() as f64 / run.rows.len() as f64;
        let Launcher { variables, mut words } = self.command.clone();
        words.extend(["--rows".to_owned(), rows.join(",")]);
        (!rows.is_empty()).then(|| Step {
            part: self.part,
            name: self.name.clone(),
            command: Launcher { variables, words },
            seconds: 1.0 + share * took.as_secs_f64(),
        })
    }
}

/// Plan of a report: the runs to execute, and messages that name what is missing on this machine.
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    pub(crate) missing: Vec<String>,
    own: String,
    rounds: u32,
    row: f64,
}

impl Plan {
    /// Creates the plan of all runs that the options request.
    pub(crate) fn new(wanted: &Report) -> Outcome<Plan> {
        let own = own_file()?.display().to_string();
        let (steps, missing) = (Vec::new(), Vec::new());
        let (rounds, row) = (wanted.rounds(), wanted.seconds().as_secs_f64());
        let mut plan = Plan { steps, missing, own, rounds, row };
        let launchers = launchers(&wanted.mpirun);
        (1..).zip(&launchers).for_each(|(number, launcher)| plan.under(launcher, number));
        if launchers.is_empty() {
            plan.without();
        }
        let threads = ["comm", "--kind", "threads", "-n", "2"];
        plan.add(Part::Threads, "threads", None, &threads, (COMM_ROWS, 1));
        let methods: Vec<&str> = METHODS.split(' ').collect();
        plan.add(Part::Methods, "methods", None, &methods, (METHODS_ROWS, 6));
        if wanted.only.is_empty() || wanted.only.contains(&Part::Ucx) {
            plan.ucx();
        }
        plan.add(Part::Launch, "launch", None, &["launch"], (2, 1));
        plan.allocators();
        plan.add(Part::Call, "call", None, &["call"], (5, 2));
        plan.add(Part::Copy, "copy", None, &["copy"], (8, 2));
        for peer in ["libgomp", "tbb"] {
            let words = ["parallel_for", "--vs", peer];
            plan.add(Part::ParallelFor, &format!("parallel_for-{peer}"), None, &words, (3, 2));
        }
        plan.steps.retain(|step| wanted.only.is_empty() || wanted.only.contains(&step.part));
        Ok(plan)
    }

    /// Adds a run that measures `rows` rows for each of `sides` implementations: the library and
    /// those that it is compared with. The estimated duration of the run depends on both numbers.
    fn add(
        &mut self,
        part: Part,
        name: &str,
        launcher: Option<(&Launcher, &str)>,
        arguments: &[&str],
        (rows, sides): (usize, usize),
    ) {
        // Long operations take more than their share, and every row a moment.
        let each = (1.3 * self.row + 0.05) * f64::from(self.rounds);
        let seconds = 0.5 + (rows * sides) as f64 * each;
        let (mut variables, mut words) = (Vec::new(), Vec::new());
        if let Some((launcher, ranks)) = launcher {
            variables.clone_from(&launcher.variables);
            words.clone_from(&launcher.words);
            words.extend(["-n".to_owned(), ranks.to_owned()]);
            variables.extend(library_beside(launcher));
            if ranks.parse().is_ok_and(|ranks: usize| ranks > machine::shared_processors()) {
                variables.extend(oversubscribed());
            }
        }
        words.push(self.own.clone());
        words.extend(arguments.iter().map(|&word| word.to_owned()));
        let (row, rounds) = (self.row.to_string(), self.rounds.to_string());
        words.extend(["--json", "--seconds", &row, "--rounds", &rounds].map(str::to_owned));
        let command = Launcher { variables, words };
        self.steps.push(Step { part, name: name.to_owned(), command, seconds });
    }

    /// Adds all runs that compare the library with the MPI library to which `launcher` belongs.
    fn under(&mut self, launcher: &Launcher, number: u32) {
        let name = |what: &str| format!("mpi-{number}{what}");
        let (pair, comm) = (Some((launcher, "2")), ["comm", "--vs", "mpi"]);
        let with_prototype = ["comm", "--vs", "mpi,prototype"];
        self.add(Part::Comm, &name(""), pair, &with_prototype, (COMM_ROWS, 3));
        let curve = ["--only", "latency,bandwidth", "--sizes", CURVE];
        self.add(Part::Comm, &name("-curve"), pair, &[&comm[..], &curve].concat(), (CURVE_ROWS, 2));
        let over = [&comm[..], &["--kind", "mpi"], &OVER].concat();
        self.add(Part::Mpi, &name("-over"), pair, &over, (OVER_ROWS, 2));
        for ranks in CROWDS {
            let crowd = [&comm[..], &CROWD].concat();
            let (name, of) = (name(&format!("-{ranks}")), Some((launcher, ranks)));
            self.add(Part::Crowd, &name, of, &crowd, (CROWD_ROWS, 2));
            self.limit_rounds(2); // no regimes there, and some MPIs take milliseconds for each
        }
        let text = launcher.text();
        self.add(Part::Launch, &name("-launch"), None, &["launch", "--mpirun", &text], (2, 2));
        self.limit_rounds(1); // some launchers take half a second
    }

    /// Limits the number of rounds (passes over the rows) of the last step.
    fn limit_rounds(&mut self, most: u32) {
        let Some(step) = self.steps.last_mut().filter(|_| self.rounds > most) else { return };
        step.seconds *= f64::from(most) / f64::from(self.rounds);
        let words = &mut step.command.words;
        if let Some(at) = words.iter().position(|word| word == "--rounds") {
            words[at + 1] = most.to_string();
        }
    }

    /// Adds the runs for a machine without an MPI installation.
    fn without(&mut self) {
        self.missing.push("MPI: no mpirun is installed; name one with --mpirun".to_owned());
        let comm = ["comm", "-n", "2"];
        let with_prototype = [&comm[..], &["--vs", "prototype"]].concat();
        self.add(Part::Comm, "comm", None, &with_prototype, (COMM_ROWS, 2));
        let curve = ["--only", "latency,bandwidth", "--sizes", CURVE];
        self.add(Part::Comm, "comm-curve", None, &[&comm[..], &curve].concat(), (CURVE_ROWS, 1));
        for ranks in CROWDS {
            let crowd = [&["comm", "-n", ranks][..], &CROWD].concat();
            self.add(Part::Crowd, &format!("comm-{ranks}"), None, &crowd, (CROWD_ROWS, 1));
        }
    }

    fn ucx(&mut self) {
        if Command::new("ucx_perftest").arg("-h").output().is_err() {
            self.missing.push("UCX: ucx_perftest is not installed (ucx-utils)".to_owned());
            return;
        }
        let words: Vec<&str> = UCX.split(' ').collect();
        self.row *= UCX_TIME;
        self.add(Part::Ucx, "ucx", None, &words, (UCX_ROWS, 1));
        self.row /= UCX_TIME;
        if let Some(step) = self.steps.last_mut() {
            step.seconds += UCX_BATCH * 6.0 * f64::from(self.rounds) * UCX_ROWS as f64;
        }
    }

    fn allocators(&mut self) {
        self.add(Part::Alloc, "alloc", None, &["alloc"], (ALLOC_ROWS, 2));
        for (name, library) in MALLOCS {
            // The loader complains and goes on without it.
            let tried =
                Command::new(&self.own).arg("--version").env("LD_PRELOAD", library).output();
            if !tried.is_ok_and(|output| output.status.success() && output.stderr.is_empty()) {
                self.missing.push(format!("{name}: {library} is not installed"));
                continue;
            }
            self.add(Part::Alloc, &format!("alloc-{name}"), None, &["alloc"], (ALLOC_ROWS, 2));
            if let Some(step) = self.steps.last_mut() {
                step.command.variables.push(("LD_PRELOAD".to_owned(), library.to_owned()));
            }
        }
    }
}

/// Returns environment variables that permit any MPI implementation to start more ranks than there
/// are processors.
fn oversubscribed() -> [(String, String); 2] {
    let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    [
        of("OMPI_MCA_rmaps_base_oversubscribe", "1"),
        of("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
    ]
}

/// Returns the launchers in `named`, or the installed launchers if `named` is empty.
fn launchers(named: &[Launcher]) -> Vec<Launcher> {
    if !named.is_empty() {
        return named.to_vec();
    }
    let is_there = |name: &&str| in_path(name).is_some();
    let mut found = vec!["mpirun.openmpi", "mpirun.mpich"];
    found.retain(is_there);
    if found.is_empty() {
        found.extend(Some("mpirun").filter(is_there));
    }
    let launcher = |name: &str| Launcher { variables: Vec::new(), words: vec![name.to_owned()] };
    found.into_iter().map(launcher).collect()
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Returns the environment variable that selects the MPI library in the `lib` folder next to the
/// launcher's folder, so that the loader does not choose another MPI.
fn library_beside(launcher: &Launcher) -> Option<(String, String)> {
    let variable = "DTL_MPI_LIBRARY";
    if launcher.variables.iter().any(|(name, _)| name == variable)
        || std::env::var_os(variable).is_some()
    {
        return None;
    }
    let program = &launcher.words[0];
    let file = if program.contains('/') { Some(PathBuf::from(program)) } else { in_path(program) }?;
    let folder = file.parent()?.parent()?.join("lib");
    let names = ["libmpi.so.40", "libmpi.so.12", "libmpi.so"];
    let library =
        names.iter().map(|name| folder.join(name)).find(|file: &PathBuf| Path::is_file(file))?;
    Some((variable.to_owned(), library.display().to_string()))
}
