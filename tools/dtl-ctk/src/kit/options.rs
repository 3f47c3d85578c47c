//! What a run of named tests is asked for, and how a worker process is told.

use crate::kit::catalog::{self, COMPONENTS, Test};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// What is tested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A backend of the library's registry, or "sample".
    Backend(String),
    /// A kind of communicator.
    Kind(String),
    /// A plugin file.
    Plugin(PathBuf),
    /// Nothing but the library: abi tests only.
    Library,
}

/// Where the ranks of comm tests are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Place {
    /// Processes, started by dtlrun or --launcher
    Processes,
    /// Threads of one process
    Threads,
}

/// Kernels to test instead of the kit's own source.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Kernels {
    /// A file whose kernel the exec.module tests use instead of source of language 0.
    /// DTL_LANGUAGE_PTX if it ends in .ptx, DTL_LANGUAGE_SPIRV in .spv, else DTL_LANGUAGE_BINARY
    #[arg(long, value_name = "FILE")]
    pub(crate) binary: Option<PathBuf>,

    /// The kernel in it [default: add]
    #[arg(long, value_name = "NAME", requires = "binary")]
    pub(crate) kernel: Option<String>,

    /// Its arguments, as in dtl_kernel_get. A kernel of "pi" must add the int to element i of the
    /// int array, as the kit's own kernel does. Kernels of other signatures are launched with a
    /// pointer to 4000 bytes and zeros; their results are not checked [default: pi]
    #[arg(long, value_name = "LETTERS", requires = "binary")]
    pub(crate) signature: Option<String>,
}

impl Kernels {
    fn arguments(&self) -> impl Iterator<Item = String> {
        let file = self.binary.as_ref().map(|path| format!("--binary={}", path.display()));
        let kernel = self.kernel.as_ref().map(|name| format!("--kernel={name}"));
        [file, kernel, self.signature.as_ref().map(|letters| format!("--signature={letters}"))]
            .into_iter()
            .flatten()
    }
}

/// A run of named tests.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) target: Target,
    /// Empty: those that the backend has.
    pub(crate) components: Vec<String>,
    pub(crate) patterns: Vec<String>,
    pub(crate) ranks: u64,
    pub(crate) place: Option<Place>,
    pub(crate) launcher: Option<String>,
    /// Longest that a test may take.
    pub(crate) limit: Duration,
    /// Communicators have no time limit.
    pub(crate) no_time_limit: bool,
    pub(crate) json: Option<PathBuf>,
    pub(crate) junit: Option<PathBuf>,
    pub(crate) expect: Option<PathBuf>,
    pub(crate) stress: Option<u64>,
    /// Failures after which no more tests are run.
    pub(crate) max_failures: Option<u64>,
    pub(crate) time: bool,
    pub(crate) verbose: bool,
    /// A fault of the backend "sample".
    pub(crate) fault: Option<String>,
    pub(crate) kernels: Kernels,
}

/// The hidden command that runs tests for `drive`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Work {
    #[arg(long)]
    pub(crate) backend: Option<String>,
    #[arg(long)]
    pub(crate) plugin: Option<PathBuf>,
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// Number of ranks that are threads; 0: this process is one rank
    #[arg(long, default_value_t = 0)]
    pub(crate) threads: u64,
    /// Longest that a call may wait, in milliseconds
    #[arg(long)]
    pub(crate) call_ms: u64,
    /// Open communicators without a time limit
    #[arg(long)]
    pub(crate) no_time_limit: bool,
    /// Names of tests, a line each
    #[arg(long)]
    pub(crate) names: PathBuf,
    /// Where to write what happens
    #[arg(long)]
    pub(crate) report: PathBuf,
    /// Components that the user named: generic stand-ins are tested, too
    #[arg(long, value_delimiter = ',')]
    pub(crate) named: Vec<String>,
    /// Length of stress tests in seconds
    #[arg(long, default_value_t = 0)]
    pub(crate) stress: u64,
    /// A fault of the backend "sample"
    #[arg(long)]
    pub(crate) fault: Option<String>,
    /// Failures after which to end; 0: no limit
    #[arg(long, default_value_t = 0)]
    pub(crate) max_failures: u64,
    /// Measure instead of testing
    #[arg(long)]
    pub(crate) time: bool,
    #[command(flatten)]
    pub(crate) kernels: Kernels,
}

impl Wanted {
    /// The tests, in order.
    pub(crate) fn tests(&self) -> Vec<&'static Test> {
        let wanted = |test: &Test| {
            let component = test.component();
            let named = self.components.iter().any(|name| name == component);
            let fits = match &self.target {
                _ if !self.components.is_empty() => named,
                Target::Kind(_) => component == "comm",
                Target::Library => component == "abi",
                Target::Backend(_) | Target::Plugin(_) => true,
            };
            fits && (!test.body.is_first() || self.has_tables())
                && (self.patterns.is_empty()
                    || self.patterns.iter().any(|one| catalog::matches(one, test.name)))
        };
        let all = || catalog::all().map(|(_, test)| test);
        COMPONENTS
            .iter()
            .flat_map(|name| all().filter(move |test| test.component() == *name))
            .filter(|test| wanted(test))
            .collect()
    }

    /// Whether the backend is registered through tables, whose slots the first stage calls.
    fn has_tables(&self) -> bool {
        match &self.target {
            Target::Backend(name) | Target::Kind(name) => {
                ["sample", "minimal", "faulty"].contains(&name.as_str())
            }
            Target::Plugin(_) => true,
            Target::Library => false,
        }
    }

    /// Where the ranks are.
    pub(crate) fn place(&self) -> Place {
        let threaded = match &self.target {
            Target::Kind(name) | Target::Backend(name) => {
                name == "self" || crate::worker::is_threaded(name)
            }
            Target::Plugin(_) | Target::Library => false,
        };
        let natural =
            if threaded && self.launcher.is_none() { Place::Threads } else { Place::Processes };
        self.place.unwrap_or(natural)
    }

    /// The name of what is tested.
    pub(crate) fn subject(&self) -> String {
        match &self.target {
            Target::Backend(name) | Target::Kind(name) => name.clone(),
            Target::Plugin(path) => path.display().to_string(),
            Target::Library => "the library".to_owned(),
        }
    }

    /// The arguments of a worker.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut words = vec!["work".to_owned()];
        match &self.target {
            Target::Backend(name) => words.push(format!("--backend={name}")),
            Target::Kind(name) => words.push(format!("--kind={name}")),
            Target::Plugin(path) => words.push(format!("--plugin={}", path.display())),
            Target::Library => {}
        }
        if !self.components.is_empty() {
            words.push(format!("--named={}", self.components.join(",")));
        }
        words.extend(self.kernels.arguments());
        words.extend(self.fault.iter().map(|name| format!("--fault={name}")));
        words.push(format!("--call-ms={}", (self.limit / 3).as_millis()));
        words.extend(self.no_time_limit.then(|| "--no-time-limit".to_owned()));
        words
    }
}

/// Whether a test is one of several ranks.
pub(crate) fn is_of_ranks(test: &Test) -> bool {
    test.body.is_of_ranks()
}
