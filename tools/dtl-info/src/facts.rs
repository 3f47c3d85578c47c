//! Properties of this machine as the library reports them: backends, plugins, devices, memory
//! kinds, automatic choices.

use crate::library::{self, component_names, explained, shown, unavailable};
use crate::plugins::{self, Tried};
use dtl::tooling::launch::{self, Launch};
use dtl::tooling::{Requirement, choose_world, needs_of};
use dtl_binding::sys::*;
use dtl_binding::{
    Backend, Device, Environment, Library, Result, affinity, backends, environments, field,
    member_name, members, topology,
};
use std::mem::ManuallyDrop;

/// Properties that the reports show.
pub(crate) struct Facts {
    pub(crate) machine: MachineFacts,
    pub(crate) backends: Vec<BackendFacts>,
    /// Plugin files that the library has tried to load.
    pub(crate) plugins: Vec<Tried>,
    /// Environments (services that backends require) that are registered, or that a backend names
    /// as a requirement.
    pub(crate) environments: Vec<EnvironmentFacts>,
    /// Default backend, or the reason why there is none.
    pub(crate) backend: std::result::Result<Choice, String>,
    /// Kind of the world communicator, or the reason why there is none.
    pub(crate) communicator: std::result::Result<Choice, String>,
    /// Job that the launcher describes; `None` without a launcher.
    pub(crate) launch: Option<Launch>,
}

/// Properties of this node. A field is `None` if the operating system does not report the value or,
/// for a quota or limit, does not impose one.
pub(crate) struct MachineFacts {
    pub(crate) hostname: Option<String>,
    pub(crate) cpus_online: Option<i32>,
    /// CPUs on which this program may run.
    pub(crate) cpus_allowed: Vec<i32>,
    pub(crate) cpu_quota_milli: Option<u64>,
    pub(crate) cores: Option<i32>,
    pub(crate) threads_per_core: Option<i32>,
    pub(crate) sockets: Option<i32>,
    pub(crate) numa_nodes: Option<i32>,
    pub(crate) l1d_bytes: Option<u64>,
    pub(crate) l2_bytes: Option<u64>,
    pub(crate) l3_bytes: Option<u64>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) memory_limit_bytes: Option<u64>,
}

/// Environment, a service that backends require. It is registered, or a backend names it as a
/// requirement.
pub(crate) struct EnvironmentFacts {
    pub(crate) name: String,
    pub(crate) version: String,
    /// State of the environment: "idle", "started", "failed" ..., or "unknown" if a backend
    /// requires the environment but it is not registered.
    pub(crate) state: &'static str,
    /// Reason why the environment cannot be used here; `None` if it can.
    pub(crate) unavailable: Option<String>,
    pub(crate) depends: Vec<String>,
    /// Backends that require the environment.
    pub(crate) backends: Vec<String>,
}

/// Choice of a backend or of a communicator kind, with its reason.
pub(crate) struct Choice {
    pub(crate) name: String,
    pub(crate) why: String,
}

pub(crate) struct BackendFacts {
    pub(crate) name: String,
    pub(crate) builtin: bool,
    /// Reason why the backend cannot run here; `None` if it can.
    pub(crate) unavailable: Option<String>,
    /// MPI library that the backend "mpi" has selected, and the reason; `None` for other backends.
    pub(crate) chosen: Option<String>,
    /// Priority of the backend in the automatic choice; `None` if it is never chosen automatically.
    pub(crate) auto_priority: Option<i32>,
    pub(crate) components: Vec<&'static str>,
    pub(crate) devices: Vec<DeviceFacts>,
    pub(crate) memory_kinds: Vec<KindFacts>,
}

pub(crate) struct DeviceFacts {
    pub(crate) index: i32,
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) compute_units: Option<u32>,
    pub(crate) total_bytes: Option<u64>,
    pub(crate) free_bytes: Option<u64>,
    pub(crate) numa_node: Option<i32>,
    pub(crate) pci: Option<String>,
}

pub(crate) struct KindFacts {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) alignment: u64,
    pub(crate) properties: Vec<&'static str>,
}

const KINDS: [(dtl_enum_word_t, &str); 5] = [
    (DTL_MEMORY_HOST, "host"),
    (DTL_MEMORY_DEVICE, "device"),
    (DTL_MEMORY_PINNED, "pinned"),
    (DTL_MEMORY_MANAGED, "managed"),
    (DTL_MEMORY_SHARED, "shared"),
];

const PROPERTIES: [(u64, &str); 7] = [
    (DTL_MEMORY_HOST_ACCESSIBLE, "host_accessible"),
    (DTL_MEMORY_DEVICE_ACCESSIBLE, "device_accessible"),
    (DTL_MEMORY_UNIFIED, "unified"),
    (DTL_MEMORY_ATOMICS, "atomics"),
    (DTL_MEMORY_PAGEABLE, "pageable"),
    (DTL_MEMORY_THREAD_SAFE, "thread_safe"),
    (DTL_MEMORY_EXPORTABLE, "exportable"),
];

/// Initialises the library and collects all properties.
pub(crate) fn gather() -> Result<Facts> {
    // The end of the process ends it: a plugin that fails in its destroy spoils no report.
    let library = ManuallyDrop::new(Library::init()?);
    let backends: Vec<_> =
        backends()?.map(|backend| describe(backend, &library)).collect::<Result<_>>()?;
    let launch = launch::from_environment();
    let communicator = launch.clone().and_then(|launch| communicator(launch.as_ref()));
    Ok(Facts {
        machine: machine()?,
        environments: environment_facts(&backends),
        backends,
        plugins: plugins::tried(),
        backend: default_backend(&library).map_err(|error| shown(&error)),
        communicator: communicator
            .map_err(|error| error.within("the world communicator").to_string()),
        launch: launch.unwrap_or_default(),
    })
}

/// Returns a number that is 0 if it is unknown.
fn known<T: Default + PartialEq>(value: T) -> Option<T> {
    Some(value).filter(|value| *value != T::default())
}

fn machine() -> Result<MachineFacts> {
    let told = topology()?;
    Ok(MachineFacts {
        hostname: Some(field(&told.hostname)).filter(|name| !name.is_empty()),
        cpus_online: known(told.cpus_online),
        cpus_allowed: affinity().unwrap_or_default(),
        cpu_quota_milli: known(told.cpu_quota_milli),
        cores: known(told.cores),
        threads_per_core: known(told.threads_per_core),
        sockets: known(told.sockets),
        numa_nodes: known(told.numa_nodes),
        l1d_bytes: known(told.l1d_bytes),
        l2_bytes: known(told.l2_bytes),
        l3_bytes: known(told.l3_bytes),
        memory_bytes: known(told.memory_bytes),
        memory_limit_bytes: known(told.memory_limit_bytes),
    })
}

fn environment_facts(backends: &[BackendFacts]) -> Vec<EnvironmentFacts> {
    let registered = environments().unwrap_or_default();
    let mut all: Vec<_> = registered.into_iter().map(describe_environment).collect();
    for backend in backends {
        for need in needs_of(&backend.name) {
            let known = all.iter().position(|one| one.name == need.name);
            let at = known.unwrap_or_else(|| {
                all.push(missing_environment(need));
                all.len() - 1
            });
            all.get_mut(at).into_iter().for_each(|one| one.backends.push(backend.name.clone()));
        }
    }
    all
}

fn describe_environment(info: Environment) -> EnvironmentFacts {
    EnvironmentFacts {
        unavailable: info.unavailable().unwrap_or_else(|error| Some(error.text)),
        state: match info.state {
            DTL_ENVIRONMENT_STARTING => "starting",
            DTL_ENVIRONMENT_STARTED => "started",
            DTL_ENVIRONMENT_STOPPING => "stopping",
            DTL_ENVIRONMENT_FAILED => "failed",
            _ => "idle",
        },
        name: info.name,
        version: info.version,
        depends: info.depends,
        backends: Vec::new(),
    }
}

fn missing_environment(need: Requirement) -> EnvironmentFacts {
    EnvironmentFacts {
        name: need.name,
        version: String::new(),
        state: "unknown",
        unavailable: need.unavailable,
        depends: Vec::new(),
        backends: Vec::new(),
    }
}

fn default_backend(library: &Library) -> Result<Choice> {
    let name = library::default_backend()?.name(library)?;
    Ok(Choice { why: recorded("backend", &name), name })
}

/// Returns the communicator kind (such as "shm" or "mpi") that the world communicator would have.
/// Does not open a communicator, so the other ranks need not take part.
fn communicator(launch: Option<&Launch>) -> dtl::tooling::Result<Choice> {
    let chosen = choose_world(launch)?;
    let why = if chosen.is_named {
        "DTL_COMM names it".to_owned()
    } else {
        recorded("communicator", &chosen.name)
    };
    Ok(Choice { name: chosen.name, why })
}

/// Returns the reason that `dtl_explain` lists under `topic` for the automatic choice of `name`,
/// without the name and "because" at the beginning.
fn recorded(topic: &str, name: &str) -> String {
    let record = explained(topic).unwrap_or_default();
    let reason = record.strip_prefix(name).unwrap_or(&record).trim_start_matches(", ");
    reason.strip_prefix("because ").unwrap_or(reason).to_owned()
}

fn describe(backend: Backend, library: &Library) -> Result<BackendFacts> {
    let info = backend.info()?;
    let has = |component: u32| info.components & component != 0;
    let mut unavailable = unavailable(backend);
    let (mut devices, mut memory_kinds) = (Vec::new(), Vec::new());
    if unavailable.is_none() && has(DTL_COMPONENT_DEVICE) {
        // A registered one may fail here; the others are shown all the same.
        match self::devices(backend) {
            Ok(found) => devices = found,
            Err(error) => unavailable = Some(error.text),
        }
    }
    if unavailable.is_none() && has(DTL_COMPONENT_MEMORY) {
        memory_kinds = self::memory_kinds(backend);
    }
    let name = backend.name(library)?;
    Ok(BackendFacts {
        builtin: info.is_builtin != 0,
        chosen: explained(&name).filter(|_| unavailable.is_none()),
        name,
        unavailable,
        auto_priority: Some(info.auto_priority).filter(|&priority| priority != i32::MIN),
        components: component_names(info.components),
        devices,
        memory_kinds,
    })
}

fn names(table: &[(u64, &'static str)], bits: u64) -> Vec<&'static str> {
    table.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect()
}

fn devices(backend: Backend) -> Result<Vec<DeviceFacts>> {
    backend.devices()?.map(describe_device).collect()
}

fn describe_device(device: Device) -> Result<DeviceFacts> {
    let info = device.info()?;
    // Not every backend can tell; that is no failure.
    let (free, total) = device.memory().unwrap_or((0, 0));
    Ok(DeviceFacts {
        index: device.index,
        name: field(&info.name),
        kind: device_kind(info.kind),
        compute_units: known(info.compute_units),
        total_bytes: known(info.total_bytes).or(known(total)),
        free_bytes: known(free),
        numa_node: Some(info.numa_node).filter(|&node| node >= 0),
        pci: Some(field(&info.pci)).filter(|pci| !pci.is_empty()),
    })
}

fn device_kind(word: dtl_enum_word_t) -> String {
    let name = match word {
        DTL_DEVICE_CPU => "cpu",
        DTL_DEVICE_GPU => "gpu",
        DTL_DEVICE_ACCELERATOR => "accelerator",
        DTL_DEVICE_NONE => "none",
        0 => "unknown",
        _ => return name_in(&[], word),
    };
    name.to_owned()
}

/// Returns the name of an enumeration member from `list`, or else the name under which the member
/// is registered.
fn name_in(list: &[(dtl_enum_word_t, &'static str)], word: dtl_enum_word_t) -> String {
    let listed = list.iter().find(|row| row.0 == word).map(|row| row.1.to_owned());
    let registered = || member_name(word).ok();
    listed.or_else(registered).unwrap_or_else(|| "registered".to_owned())
}

/// Returns the memory kinds of the backend, both built-in and registered ones.
fn memory_kinds(backend: Backend) -> Vec<KindFacts> {
    let words = members(DTL_ENUM_MEMORY).unwrap_or_default().into_iter();
    let words = words.filter(|&word| word != DTL_MEMORY_UNDEFINED);
    let describe = |word| {
        let info = backend.memory_kind(word).ok()?;
        let (alignment, properties) = (info.alignment, names(&PROPERTIES, info.properties));
        let (kind, name) = (name_in(&KINDS, word), field(&info.name));
        Some(KindFacts { kind, name, alignment, properties })
    };
    words.filter_map(describe).collect()
}
