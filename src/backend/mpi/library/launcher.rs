//! Selection of the MPI libraries that fit the launcher of this process, in the order in which they
//! are tried.
//!
//! A launcher certainly works with the library of its own installation, and possibly with another
//! library of its family. So libraries from the installation of the launcher come before those that
//! the dynamic loader finds. Under the mpiexec of MPICH 5, the loader alone would find a
//! distribution's MPICH 4, because the older library name is tried first.
//!
//! `discovery` loads the libraries.

use crate::error::{Result, fail};
use crate::sys::os::{dl, process};
use std::path::{Path, PathBuf};

/// Function that returns the value of an environment variable.
pub type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Library to try: a path, or a soname for the loader.
#[derive(Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Path or soname to load.
    pub name: PathBuf,
    /// Reason why the library is tried.
    pub why: String,
}

/// Environment and ancestor processes, from which the launcher is determined.
pub struct LaunchContext<'a> {
    variable: Variable<'a>,
    /// Executables of the ancestor processes, beginning with the parent.
    programs: Vec<PathBuf>,
    /// True if the program runs with elevated privileges (set-uid, set-gid, file capabilities). In
    /// that case, the user must not be able to choose which libraries the program loads.
    is_privileged: bool,
}

/// Maximum number of ancestor processes that are examined. The launcher need not be the parent,
/// because it may start wrappers.
const LEVELS: usize = 16;

/// Names of the executables of launchers and of the daemons that start ranks on each node.
const LAUNCHERS: [&str; 13] = [
    "hydra_pmi_proxy",
    "hydra_bstrap_proxy",
    "mpiexec",
    "mpiexec.hydra",
    "mpiexec.gforker",
    "mpiexec.mpich",
    "mpirun",
    "mpispawn",
    "orted",
    "orterun",
    "prte",
    "prted",
    "prterun",
];

impl LaunchContext<'_> {
    /// Collects the environment and the ancestors of this process.
    pub fn of_this_process() -> Self {
        let is_privileged = dl::is_privileged();
        let mut programs = Vec::new();
        let mut pid = process::parent_pid();
        while programs.len() < LEVELS && pid > 1 {
            // The executable of another user's process cannot be read.
            programs.push(process::program_of(pid).unwrap_or_default());
            pid = process::parent_of(pid).unwrap_or(0);
        }
        LaunchContext { variable: &|name| std::env::var(name).ok(), programs, is_privileged }
    }

    /// Returns the path in the environment variable `name`; `None` if the variable is unset or
    /// empty, or if the process runs with elevated privileges.
    fn path(&self, name: &str) -> Option<PathBuf> {
        let folder =
            (self.variable)(name).filter(|folder| !self.is_privileged && !folder.is_empty());
        folder.map(PathBuf::from)
    }

    /// Returns the executable of the nearest ancestor process that is a launcher.
    fn launcher(&self) -> Option<&Path> {
        let is_one = |program: &&PathBuf| {
            program.file_name().is_some_and(|name| LAUNCHERS.iter().any(|known| name == *known))
        };
        self.programs.iter().filter(|_| !self.is_privileged).find(is_one).map(PathBuf::as_path)
    }
}

/// Returns the names of the libraries of the MPI families that can work with the launchers. No
/// other MPI is loaded, even if none of these is found.
fn names(launchers: Launchers) -> Vec<&'static str> {
    const HYDRA: &[&str] =
        &["libmpich.so.12", "libmpi.so.12", "libmpi_abi.so.1", "libmpi_abi.so.0"];
    // If both launchers are present, or neither is, both families fit.
    let fits = |own: bool, other: bool| own || !other;
    let mut names = Vec::new();
    if fits(launchers.open_mpi, launchers.hydra) {
        names.push("libmpi.so.40");
    }
    if fits(launchers.hydra, launchers.open_mpi) {
        names.extend(launchers.intel.then_some("libmpi.so.12"));
        names.extend(HYDRA);
    }
    if !launchers.hydra && !launchers.open_mpi {
        names.push("libmpi.so");
    }
    names
}

/// Returns the libraries to try, from these sources in this order: the installation that
/// OPAL_PREFIX (Open MPI) or I_MPI_ROOT (Intel MPI) names, the installation of the launcher's
/// executable, LD_LIBRARY_PATH, the dynamic loader. The loader comes last because it searches all
/// directories for one library name at a time: it would find the first name in a system directory
/// before the second name in LD_LIBRARY_PATH.
pub fn candidates(around: &LaunchContext<'_>) -> Vec<Candidate> {
    let launchers = Launchers::read(around.variable);
    let names = names(launchers);
    let mut found = Vec::new();
    let mut look = |folder: PathBuf, names: &[&str], why: &str| {
        let files = names.iter().map(|name| folder.join(name)).filter(|file| file.is_file());
        found.extend(files.map(|name| Candidate { name, why: why.to_owned() }));
    };
    if let Some(root) = around.path("OPAL_PREFIX").filter(|_| names.contains(&"libmpi.so.40")) {
        let why = "it is in the installation that OPAL_PREFIX names";
        look(root.join("lib"), &["libmpi.so.40"], why);
    }
    if let Some(root) = around.path("I_MPI_ROOT").filter(|_| launchers.intel) {
        let why = "it is in the installation that I_MPI_ROOT names";
        for lib in ["lib", "lib/release"] {
            look(root.join(lib), &["libmpi.so.12"], why);
        }
    }
    if let Some((program, root)) =
        around.launcher().and_then(|file| Some((file, file.parent()?.parent()?)))
    {
        let why = format!("it is installed with the launcher, {}", program.display());
        let multiarch = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
        for lib in ["lib", "lib64", "lib/release", &multiarch] {
            look(root.join(lib), &names, &why);
        }
    }
    for folder in around.path("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths) {
        if folder.is_absolute() {
            look(folder, &names, "it is in LD_LIBRARY_PATH");
        }
    }
    found.extend(names.iter().map(|name| Candidate {
        name: name.into(),
        why: "the loader finds it by this name".to_owned(),
    }));
    found
}

/// Launchers that started this process, as far as the environment shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Launchers {
    open_mpi: bool,
    hydra: bool,
    /// Hydra of Intel MPI.
    intel: bool,
    /// True for a launcher that can start MPI programs of several families: Slurm, PALS, or any
    /// launcher that supports PMIx.
    common: bool,
}

impl Launchers {
    fn read(variable: Variable<'_>) -> Self {
        let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
        let open_mpi = is_set("OMPI_COMM_WORLD_SIZE");
        let common = ["SLURM_STEP_ID", "PALS_RANKID"].iter().any(|name| is_set(name));
        Launchers {
            open_mpi,
            hydra: is_set("PMI_RANK") && is_set("PMI_SIZE"),
            intel: is_set("I_MPI_HYDRA_UUID"),
            common: common || (is_set("PMIX_RANK") && !open_mpi),
        }
    }
}

/// Returns an error if the launcher and the MPI library belong to different families. Otherwise
/// each process would start as a singleton with an MPI_COMM_WORLD of its own, or MPI_Init would
/// abort.
pub fn check_launcher(is_open_mpi: bool, file: &str, variable: Variable<'_>) -> Result<()> {
    let launchers = Launchers::read(variable);
    let (launcher, library, wanted) = match (launchers.open_mpi, launchers.hydra, is_open_mpi) {
        (true, false, false) => {
            ("Open MPI's (OMPI_COMM_WORLD_SIZE is set)", "no Open MPI", "Open MPI")
        }
        (false, true, true) if !launchers.common => {
            ("Hydra, MPICH's or Intel MPI's (PMI_RANK is set)", "Open MPI", "the MPICH family")
        }
        _ => return Ok(()),
    };
    fail!(
        DTL_ERROR_UNAVAILABLE,
        "the launcher is {launcher}, but {file} is {library}: each rank would start alone; use \
         that library's own \
         mpirun, or a library of {wanted} (DTL_MPI_LIBRARY, or the one the program is linked with)"
    )
}

#[cfg(test)]
#[path = "tests/launcher.rs"]
mod tests;
