//! Settings: the table of environment variables, and the configuration that `dtl_init` adds.
//!
//! In reading order:
//! - `variables`: the list of environment variables

use super::log;
use crate::error::{Result, fail, failure};
use crate::sys::sync::lock::RwLock;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

mod variables;
pub use variables::VARIABLES;

/// If the program has more privileges than the user that started it (`is_privileged`), removes the
/// environment variables that such a program must ignore. Returns a warning for each removed
/// variable.
pub fn withhold(variables: &mut BTreeMap<String, String>, is_privileged: bool) -> Vec<String> {
    let names = variables::LOADING_CODE.iter().filter(|_| is_privileged);
    let dropped = names.filter(|name| variables.remove(**name).is_some());
    dropped
        .map(|name| format!("{name} is ignored: this program runs with raised privileges"))
        .collect()
}

/// Settings of the compilers for kernels.
#[derive(Clone, Debug, Default)]
pub struct Compiler {
    /// Executable of the host compiler; `None` = search for one.
    pub program: Option<String>,
    /// Shared library of the device compiler; `None` = search for one.
    pub device_compiler: Option<String>,
    /// Directories that are searched for executables, separated by ':' (the value of PATH).
    pub search_path: String,
    /// Directory of the cache of compiler outputs; `None` = no directory is set.
    pub cache: Option<PathBuf>,
    /// Limit in bytes for the directory of the cache, if it was set; 0 = no output is reused.
    pub cache_bytes: Option<u64>,
    /// Time limit of a compiler run in nanoseconds, if it was set.
    pub timeout_ns: Option<u64>,
}

impl Compiler {
    /// Returns the time limit, in nanoseconds, for one run of the compiler.
    pub fn limit_ns(&self) -> u64 {
        self.timeout_ns.unwrap_or(120_000_000_000)
    }
}

/// Settings of this process; created by `dtl_init`, read by all modules.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Default backend, which a NULL name selects.
    pub backend: Option<String>,
    /// Kind of the world communicator.
    pub comm: Option<String>,
    /// Default time limit in nanoseconds for communicators that are created without an explicit
    /// time limit.
    pub timeout_ns: Option<u64>,
    /// True if an automatic choice returns an error where it would otherwise fall back from the
    /// preferred alternative to a worse one (DTL_STRICT=1).
    pub strict: bool,
    /// True if communicators are deterministic by default.
    pub deterministic: bool,
    /// Log level.
    pub log_level: Option<i32>,
    /// Plugin files and directories of plugins, separated by ':', that are searched before the
    /// installed plugins.
    pub plugin_path: Option<String>,
    /// MPI library to load if the process contains no MPI library.
    pub mpi_library: Option<String>,
    /// OpenCL loader library to load.
    pub device_library: Option<String>,
    /// NVIDIA driver library to load.
    pub driver_library: Option<String>,
    /// Library to load for collectives on device memory.
    pub collectives_library: Option<String>,
    /// Values, by name, of the environment variables that the communicator kind "rdma" parses
    /// itself.
    pub fabric: BTreeMap<&'static str, String>,
    /// Time limit in nanoseconds for a test load of a plugin in a separate process; `None` = no
    /// test load.
    pub plugin_probe_ns: Option<u64>,
    /// Kind of the inter-node communicator inside a hierarchical communicator (kind "hier").
    pub hier_across: Option<String>,
    /// Value of DTL_FAKE_NODES, which describes the simulated nodes of the job.
    pub fake_nodes: Option<String>,
    /// Maximum number of bytes of unused host memory that the allocator retains for later
    /// allocations.
    pub memory_keep: Option<u64>,
    /// True if the host allocator requests huge pages; `None` = not set.
    pub huge_pages: Option<bool>,
    /// Settings of the compilers for kernels.
    pub compiler: Compiler,
    /// Path of the trace file.
    pub trace: Option<String>,
}

static CURRENT: RwLock<Option<Settings>> = RwLock::new(None);

/// Returns the current settings.
pub fn current() -> Settings {
    CURRENT.read().clone().unwrap_or_default()
}

/// Publishes new settings.
pub fn install(settings: Settings) {
    log::set_level(settings.log_level.unwrap_or(crate::abi::runtime::DTL_LOG_WARN));
    *CURRENT.write() = Some(settings);
}

/// Environment variables by name.
struct Values<'a>(&'a BTreeMap<String, String>);

impl Values<'_> {
    /// Returns the value of a variable; `None` if the variable is unset or empty.
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(str::to_owned)
    }

    /// Returns the value of a variable, converted by `parse`, which also receives the variable's
    /// name.
    fn parsed<T>(&self, name: &str, parse: fn(&str, &str) -> Result<T>) -> Result<Option<T>> {
        self.get(name).map(|text| parse(name, text)).transpose()
    }
}

/// Reads the settings from environment variables, passed as a map so that tests can vary them.
pub fn from_environment(variables: &BTreeMap<String, String>) -> Result<Settings> {
    let values = Values(variables);
    let backend = ["DTL_BACKEND", "STEPMESH_BACKEND", "STEPMESH_BAKCEND"]
        .iter()
        .find_map(|name| values.get(name));
    Ok(Settings {
        log_level: values.parsed("DTL_LOG", level)?,
        backend: backend.map(|name| alias(name).to_owned()),
        comm: values.text("DTL_COMM"),
        timeout_ns: values.parsed("DTL_TIMEOUT", duration)?,
        strict: values.parsed("DTL_STRICT", switch)?.unwrap_or(false),
        deterministic: values.parsed("DTL_DETERMINISTIC", switch)?.unwrap_or(false),
        plugin_path: values.text("DTL_PLUGIN_PATH"),
        mpi_library: values.text("DTL_MPI_LIBRARY"),
        device_library: values.text("DTL_OPENCL_LIBRARY"),
        driver_library: values.text("DTL_CUDA_LIBRARY"),
        collectives_library: values.text("DTL_NCCL_LIBRARY"),
        fabric: VARIABLES
            .iter()
            .filter(|(name, _)| name.starts_with("DTL_RDMA_"))
            .filter_map(|(name, _)| Some((*name, values.text(name)?)))
            .collect(),
        plugin_probe_ns: values.parsed("DTL_PLUGIN_PROBE", probe_limit)?.flatten(),
        hier_across: values.text("DTL_HIER_ACROSS"),
        fake_nodes: values.text("DTL_FAKE_NODES"),
        memory_keep: values.parsed("DTL_MEMORY_KEEP", bytes)?,
        huge_pages: values.parsed("DTL_HUGE_PAGES", switch)?,
        compiler: compiler(&values)?,
        trace: values.text("DTL_TRACE"),
    })
}

fn compiler(values: &Values) -> Result<Compiler> {
    let below = |name: &str, rest: &str| {
        let folder = values.get(name).map(Path::new).filter(|folder| folder.is_absolute());
        folder.map(|folder| folder.join(rest))
    };
    let named = values.get("DTL_CACHE_DIR").map(PathBuf::from);
    Ok(Compiler {
        program: values.text("DTL_CC"),
        device_compiler: values.text("DTL_NVRTC_LIBRARY"),
        search_path: values.get("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin").to_owned(),
        cache: named
            .or_else(|| below("XDG_CACHE_HOME", "dtl"))
            .or_else(|| below("HOME", ".cache/dtl")),
        cache_bytes: values.parsed("DTL_CACHE_BYTES", bytes)?,
        timeout_ns: values.parsed("DTL_COMPILE_TIMEOUT", duration)?,
    })
}

/// Returns warnings about unknown variables that begin with DTL_, and about STEPMESH_BAKCEND, a
/// misspelled name that the library still accepts.
pub fn complaints(variables: &BTreeMap<String, String>) -> Vec<String> {
    let mut complaints = Vec::new();
    // DTL_TEST_, DTL_FAKE_VERBS_ and DTL_BUILD_ belong to the project's own tests and scripts,
    // DTL_LIB_DIR to builds of Rust programs, DTL_BACKEND_NAME_... to backends.
    const OTHERS: [&str; 5] =
        ["DTL_TEST_", "DTL_FAKE_VERBS_", "DTL_BUILD_", "DTL_LIB_DIR", "DTL_BACKEND_"];
    let ours = |name: &&String| {
        name.starts_with("DTL_") && !OTHERS.iter().any(|others| name.starts_with(others))
    };
    for name in variables.keys().filter(ours) {
        if !VARIABLES.iter().any(|(known, _)| known == name) {
            let nearest = VARIABLES.iter().map(|(known, _)| *known);
            let nearest = nearest.min_by_key(|known| distance(known, name)).unwrap_or("");
            complaints
                .push(format!("unknown environment variable {name}: did you mean {nearest}?"));
        }
    }
    if variables.contains_key("STEPMESH_BAKCEND") {
        complaints.push(
            "STEPMESH_BAKCEND is a misspelling: use DTL_BACKEND (or STEPMESH_BACKEND)".into(),
        );
    }
    complaints
}

/// Returns the backend name for a device name of the StepMesh library ("GPU", "CPU", "cpu");
/// returns any other name unchanged.
pub fn alias(name: &str) -> &str {
    match name {
        "GPU" => "cuda",
        "CPU" | "cpu" => "host",
        name => name,
    }
}

/// Parses a log level.
fn level(name: &str, text: &str) -> Result<i32> {
    log::level_from_name(text).ok_or_else(|| {
        failure!(DTL_ERROR_INVALID_ARGUMENT, "{name}={text}: use off, error, warn, info or debug")
    })
}

/// Parses the time limit for the test load of a plugin: "1" (the default limit), "0" (no test
/// load), or a time with its unit. Returns nanoseconds; `None` = no test load.
fn probe_limit(name: &str, text: &str) -> Result<Option<u64>> {
    const USUAL_NS: u64 = 10_000_000_000;
    match switch(name, text) {
        Ok(on) => Ok(on.then_some(USUAL_NS)),
        Err(_) if text.ends_with(|c: char| c.is_ascii_alphabetic()) => {
            duration(name, text).map(Some)
        }
        Err(_) => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{name}={text}: use 1, 0, or a time limit with its unit, such as 30s"
        ),
    }
}

fn switch(name: &str, text: &str) -> Result<bool> {
    match text {
        "1" | "on" | "yes" | "true" => Ok(true),
        "0" | "off" | "no" | "false" => Ok(false),
        _ => fail!(DTL_ERROR_INVALID_ARGUMENT, "{name}={text}: use 1 or 0"),
    }
}

/// Parses a time such as "30s", "500ms", "10us" or "5m", or a number of seconds. Returns
/// nanoseconds.
pub fn duration(name: &str, text: &str) -> Result<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_ns = match text.get(digits.len()..).unwrap_or("") {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "" | "s" => 1e9,
        "m" => 60e9,
        "h" => 3600e9,
        unit => {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "{name}={text}: unknown unit {unit}; use ms, s, m or h"
            );
        }
    };
    match digits.parse::<f64>().map(|value| value * unit_ns) {
        Ok(ns) if ns >= 1.0 && ns.is_finite() => Ok(ns as u64),
        _ => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{name}={text}: use a time of 1 ns or more, such as 30s or 500ms"
        ),
    }
}

/// Parses a size such as "4096", "64K", "512M" or "2G" (powers of 1024). Returns bytes.
pub fn bytes(name: &str, text: &str) -> Result<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text.get(digits.len()..).unwrap_or("") {
        "" => 0,
        "k" | "K" | "KiB" => 10,
        "m" | "M" | "MiB" => 20,
        "g" | "G" | "GiB" => 30,
        unit => {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "{name}={text}: unknown unit {unit}; use K, M or G"
            );
        }
    };
    digits.parse::<u64>().ok().and_then(|value| value.checked_mul(1 << shift)).ok_or_else(|| {
        failure!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{name}={text}: use a number of bytes such as 0, 512M or 2G"
        )
    })
}

/// Returns the edit distance between two strings, to suggest a name for a misspelled one.
pub fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut next = vec![left];
        for (y, &above) in b.iter().zip(row.iter().skip(1)) {
            left = (diagonal + usize::from(x != *y)).min(left + 1).min(above + 1);
            diagonal = above;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests;
