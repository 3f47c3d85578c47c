//! Settings: the table of environment variables, and the configuration that `dtl_init` adds.
//!
//! In reading order:
//! - `variables`: the list of environment variables

use super::log;
use crate::error::{Result, fail};
use crate::sys::sync::lock::RwLock;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

mod variables;
pub use variables::{VARIABLES, Variable};

/// Removes variables that a privileged program must not obey. Returns a warning for each variable.
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
    /// Program of the host compiler; `None` = search for one.
    pub program: Option<String>,
    /// Library of the device compiler; `None` = search for one.
    pub device_compiler: Option<String>,
    /// Folders in which programs are searched, separated by ':'.
    pub search_path: String,
    /// Folder in which compiler outputs are cached.
    pub cache: Option<PathBuf>,
    /// Time limit of a compiler run in nanoseconds, if it was set.
    pub timeout_ns: Option<u64>,
}

impl Compiler {
    /// Returns the time limit of a compiler run in nanoseconds.
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
    /// Time limit in nanoseconds of communicators whose description sets none.
    pub timeout_ns: Option<u64>,
    /// True if a degraded choice is an error.
    pub strict: bool,
    /// True if communicators are deterministic by default.
    pub deterministic: bool,
    /// Log level.
    pub log_level: Option<i32>,
    /// Folders and files that are searched for plugins before the installed plugins.
    pub plugin_path: Option<String>,
    /// MPI library to load if the process contains no MPI library.
    pub mpi_library: Option<String>,
    /// OpenCL loader library to load.
    pub device_library: Option<String>,
    /// NVIDIA driver library to load.
    pub driver_library: Option<String>,
    /// Library for collectives on device memory to load.
    pub collectives_library: Option<String>,
    /// Values, by name, of the variables that a communicator kind for fast networks parses itself.
    pub fabric: BTreeMap<&'static str, String>,
    /// Time limit in nanoseconds of a plugin's trial in a separate process; `None` = no trial.
    pub plugin_probe_ns: Option<u64>,
    /// Communicator kind between the nodes of kind "hier".
    pub hier_across: Option<String>,
    /// Simulated nodes of the job.
    pub fake_nodes: Option<String>,
    /// Bytes of unused host memory that the allocator retains.
    pub memory_keep: Option<u64>,
    /// Whether the host allocator requests huge pages, if it was set.
    pub huge_pages: Option<bool>,
    /// Settings of the compilers for kernels.
    pub compiler: Compiler,
    /// Path of the trace file.
    pub trace: Option<String>,
}

static CURRENT: RwLock<Option<Settings>> = RwLock::new(None);

/// Returns the present settings.
pub fn current() -> Settings {
    CURRENT.read().clone().unwrap_or_default()
}

/// Publishes new settings.
pub fn install(settings: Settings) {
    log::set_level(settings.log_level.unwrap_or(crate::abi::runtime::DTL_LOG_WARN));
    *CURRENT.write() = Some(settings);
}

/// Reads the settings from environment variables, passed as a map so that tests can vary them.
pub fn from_environment(variables: &BTreeMap<String, String>) -> Result<Settings> {
    let get =
        |name: &str| variables.get(name).map(String::as_str).filter(|value| !value.is_empty());
    let backend =
        ["DTL_BACKEND", "STEPMESH_BACKEND", "STEPMESH_BAKCEND"].iter().find_map(|name| get(name));
    let log_level = match get("DTL_LOG") {
        None => None,
        Some(word) => match log::level_from_name(word) {
            Some(level) => Some(level),
            None => {
                return fail!(
                    DTL_ERROR_INVALID_ARGUMENT,
                    "DTL_LOG={word}: use off, error, warn, info or debug"
                );
            }
        },
    };
    Ok(Settings {
        backend: backend.map(|name| alias(name).to_owned()),
        comm: get("DTL_COMM").map(str::to_owned),
        timeout_ns: get("DTL_TIMEOUT").map(|text| duration("DTL_TIMEOUT", text)).transpose()?,
        strict: get("DTL_STRICT")
            .map(|text| switch("DTL_STRICT", text))
            .transpose()?
            .unwrap_or(false),
        deterministic: get("DTL_DETERMINISTIC")
            .map(|text| switch("DTL_DETERMINISTIC", text))
            .transpose()?
            .unwrap_or(false),
        log_level,
        plugin_path: get("DTL_PLUGIN_PATH").map(str::to_owned),
        mpi_library: get("DTL_MPI_LIBRARY").map(str::to_owned),
        device_library: get("DTL_OPENCL_LIBRARY").map(str::to_owned),
        driver_library: get("DTL_CUDA_LIBRARY").map(str::to_owned),
        collectives_library: get("DTL_NCCL_LIBRARY").map(str::to_owned),
        fabric: VARIABLES
            .iter()
            .filter(|variable| variable.name.starts_with("DTL_RDMA_"))
            .filter_map(|variable| Some((variable.name, get(variable.name)?.to_owned())))
            .collect(),
        plugin_probe_ns: get("DTL_PLUGIN_PROBE").map(probe_limit).transpose()?.flatten(),
        hier_across: get("DTL_HIER_ACROSS").map(str::to_owned),
        fake_nodes: get("DTL_FAKE_NODES").map(str::to_owned),
        memory_keep: get("DTL_MEMORY_KEEP")
            .map(|text| bytes("DTL_MEMORY_KEEP", text))
            .transpose()?,
        huge_pages: get("DTL_HUGE_PAGES").map(|text| switch("DTL_HUGE_PAGES", text)).transpose()?,
        compiler: compiler(get)?,
        trace: get("DTL_TRACE").map(str::to_owned),
    })
}

fn compiler<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Result<Compiler> {
    let below = |name: &str, rest: &str| {
        let folder = get(name).map(Path::new).filter(|folder| folder.is_absolute());
        folder.map(|folder| folder.join(rest))
    };
    let named = get("DTL_CACHE_DIR").map(PathBuf::from);
    Ok(Compiler {
        program: get("DTL_CC").map(str::to_owned),
        device_compiler: get("DTL_NVRTC_LIBRARY").map(str::to_owned),
        search_path: get("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin").to_owned(),
        cache: named
            .or_else(|| below("XDG_CACHE_HOME", "dtl"))
            .or_else(|| below("HOME", ".cache/dtl")),
        timeout_ns: get("DTL_COMPILE_TIMEOUT")
            .map(|text| duration("DTL_COMPILE_TIMEOUT", text))
            .transpose()?,
    })
}

/// Returns warnings about variables that resemble the library's but are unknown, deprecated or
/// doubtful.
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
        if !VARIABLES.iter().any(|known| known.name == name) {
            let nearest = VARIABLES
                .iter()
                .min_by_key(|known| distance(known.name, name))
                .map_or("", |v| v.name);
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

/// Returns the backend name for an alias that StepMesh uses; returns any other name unchanged.
pub fn alias(name: &str) -> &str {
    match name {
        "GPU" => "cuda",
        "CPU" | "cpu" => "host",
        name => name,
    }
}

/// Parses DTL_PLUGIN_PROBE: "1", "0", or a time with its unit. Returns the limit in nanoseconds.
fn probe_limit(text: &str) -> Result<Option<u64>> {
    const NAME: &str = "DTL_PLUGIN_PROBE";
    const USUAL_NS: u64 = 10_000_000_000;
    match switch(NAME, text) {
        Ok(on) => Ok(on.then_some(USUAL_NS)),
        Err(_) if text.ends_with(|c: char| c.is_ascii_alphabetic()) => {
            duration(NAME, text).map(Some)
        }
        Err(_) => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{NAME}={text}: use 1, 0, or a time limit with its unit, such as 30s"
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

/// Parses a time and returns nanoseconds: "30s", "500ms", "10us", "5m", or a number of seconds.
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
    match digits.parse::<f64>() {
        Ok(value) if value > 0.0 && (value * unit_ns).is_finite() => Ok((value * unit_ns) as u64),
        _ => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{name}={text}: use a time above 0 such as 30s or 500ms"
        ),
    }
}

/// Parses a size and returns bytes: "4096", "64K", "512M", "2G", in units of 1024.
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
    match digits.parse::<u64>().ok().and_then(|value| value.checked_mul(1 << shift)) {
        Some(bytes) => Ok(bytes),
        None => {
            fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "{name}={text}: use a number of bytes such as 0, 512M or 2G"
            )
        }
    }
}

/// Returns the edit distance between two texts, for "did you mean".
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
