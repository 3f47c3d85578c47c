//! What the library says of this machine: backends, plugins, devices, memory kinds, automatic
//! choices.

use crate::plugins::{self, Tried};
use dtl::abi::device::*;
use dtl::abi::enums::DTL_ENUM_MEMORY;
use dtl::abi::environment::*;
use dtl::abi::word::*;
use dtl::error::Result;
use dtl::runtime::backend::Comm;
use dtl::runtime::comm::open;
use dtl::runtime::environment::{self, Need};
use dtl::runtime::launch::{self, Launch};
use dtl::runtime::registry::{self, Backend};
use dtl::runtime::{
    device, enums, explain, lifecycle, memory, settings, topology, zeroed_kind_info,
};
use dtl::sys::epoch;
use std::ffi::c_char;

/// Everything that is shown.
pub(crate) struct Facts {
    pub(crate) machine: MachineFacts,
    pub(crate) backends: Vec<BackendFacts>,
    /// What the library tried to load.
    pub(crate) plugins: Vec<Tried>,
    /// What plugins registered and need.
    pub(crate) environments: Vec<EnvironmentFacts>,
    /// The default backend, or why there is none.
    pub(crate) backend: std::result::Result<Choice, String>,
    /// The world communicator's kind, or why there is none.
    pub(crate) communicator: std::result::Result<Choice, String>,
    /// What the launcher said; `None`: no launcher.
    pub(crate) launch: Option<Launch>,
}

/// This node. `None`: the system does not tell, or there is no limit.
pub(crate) struct MachineFacts {
    pub(crate) hostname: Option<String>,
    pub(crate) cpus_online: Option<i32>,
    /// The CPUs that this program may run on.
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

/// What a backend needs to be there.
pub(crate) struct EnvironmentFacts {
    pub(crate) name: String,
    pub(crate) version: String,
    /// "idle", "started", "failed" ...; "unknown": somebody needs it and nobody has registered it.
    pub(crate) state: &'static str,
    /// Why it cannot be used here; `None` = it can.
    pub(crate) unavailable: Option<String>,
    pub(crate) depends: Vec<String>,
    /// The backends that need it.
    pub(crate) backends: Vec<String>,
}

/// Something chosen, and why.
pub(crate) struct Choice {
    pub(crate) name: String,
    pub(crate) why: String,
}

pub(crate) struct BackendFacts {
    pub(crate) name: String,
    pub(crate) builtin: bool,
    /// Why it cannot run here; `None` = it can.
    pub(crate) unavailable: Option<String>,
    /// What it has chosen to run with, and why: the MPI library.
    pub(crate) chosen: Option<String>,
    /// `None` = never chosen automatically.
    pub(crate) auto_priority: Option<i32>,
    pub(crate) components: Vec<&'static str>,
    pub(crate) devices: Vec<DeviceFacts>,
    pub(crate) memory_kinds: Vec<KindFacts>,
}

pub(crate) struct DeviceFacts {
    pub(crate) index: i32,
    pub(crate) name: String,
    pub(crate) kind: &'static str,
    pub(crate) compute_units: Option<u32>,
    pub(crate) total_bytes: Option<u64>,
    pub(crate) free_bytes: Option<u64>,
    pub(crate) numa_node: Option<i32>,
    pub(crate) pci: Option<String>,
}

pub(crate) struct KindFacts {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) alignment: u64,
    pub(crate) properties: Vec<&'static str>,
}

const COMPONENTS: [(u32, &str); 5] = [
    (DTL_COMPONENT_DEVICE, "device"),
    (DTL_COMPONENT_MEMORY, "memory"),
    (DTL_COMPONENT_TRANSFER, "transfer"),
    (DTL_COMPONENT_EXEC, "exec"),
    (DTL_COMPONENT_COMM, "comm"),
];

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

/// Opens the library and asks.
pub(crate) fn gather() -> Result<Facts> {
    lifecycle::admit(dtl::ffi::host::builtin)?;
    let backends: Vec<_> = registry::all(&epoch::enter()).into_iter().map(describe).collect();
    let launch = launch::from_environment();
    let communicator = launch.clone().and_then(|launch| communicator(launch.as_ref()));
    Ok(Facts {
        machine: machine(),
        backends,
        plugins: plugins::tried(),
        environments: environments(),
        backend: default_backend().map_err(|error| error.to_string()),
        communicator: communicator
            .map_err(|error| error.within("the world communicator").to_string()),
        launch: launch.unwrap_or_default(),
    })
}

fn machine() -> MachineFacts {
    let told = topology::node();
    let number = |value: i32| Some(value).filter(|&value| value != 0);
    let bytes = |value: u64| Some(value).filter(|&value| value != 0);
    MachineFacts {
        hostname: Some(text_of(&told.hostname)).filter(|name| !name.is_empty()),
        cpus_online: number(told.cpus_online),
        cpus_allowed: topology::affinity().unwrap_or_default(),
        cpu_quota_milli: bytes(told.cpu_quota_milli),
        cores: number(told.cores),
        threads_per_core: number(told.threads_per_core),
        sockets: number(told.sockets),
        numa_nodes: number(told.numa_nodes),
        l1d_bytes: bytes(told.l1d_bytes),
        l2_bytes: bytes(told.l2_bytes),
        l3_bytes: bytes(told.l3_bytes),
        memory_bytes: bytes(told.memory_bytes),
        memory_limit_bytes: bytes(told.memory_limit_bytes),
    }
}

fn environments() -> Vec<EnvironmentFacts> {
    let registered: Vec<_> = (0..environment::count()).filter_map(environment::at).collect();
    let mut all: Vec<_> = registered.iter().map(describe_environment).collect();
    for backend in registry::all(&epoch::enter()) {
        for need in &backend.needs {
            let known = all.iter().position(|one| one.name == need.name);
            let at = known.unwrap_or_else(|| {
                all.push(missing_environment(need));
                all.len() - 1
            });
            all.get_mut(at)
                .into_iter()
                .for_each(|one| one.backends.push(backend.name().to_owned()));
        }
    }
    all
}

fn describe_environment(info: &environment::Info) -> EnvironmentFacts {
    let [name, version, depends, ..] = info.texts.map(|text| text.to_string_lossy().into_owned());
    let answer = Need::parse(&name).and_then(|need| environment::availability(&need));
    EnvironmentFacts {
        name,
        version,
        state: match info.state {
            DTL_ENVIRONMENT_STARTING => "starting",
            DTL_ENVIRONMENT_STARTED => "started",
            DTL_ENVIRONMENT_STOPPING => "stopping",
            DTL_ENVIRONMENT_FAILED => "failed",
            _ => "idle",
        },
        unavailable: answer.err().map(|error| error.text().to_owned()),
        depends: depends.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect(),
        backends: Vec::new(),
    }
}

fn missing_environment(need: &Need) -> EnvironmentFacts {
    EnvironmentFacts {
        name: need.name.clone(),
        version: String::new(),
        state: "unknown",
        unavailable: environment::availability(need).err().map(|error| error.text().to_owned()),
        depends: Vec::new(),
        backends: Vec::new(),
    }
}

fn default_backend() -> Result<Choice> {
    let inside = epoch::enter();
    let chosen = registry::by_name(&inside, None)?;
    Ok(Choice { name: chosen.name().to_owned(), why: recorded("backend", chosen.name()) })
}

/// The kind that the world communicator would have. Opens nothing, so no other rank is needed.
fn communicator(launch: Option<&Launch>) -> Result<Choice> {
    let named = settings::current().comm.filter(|kind| kind != "auto");
    let chosen = open::choose(named.as_deref(), None, launch)?;
    chosen.comm.as_deref().map_or(Ok(()), Comm::check_environment)?;
    let name = chosen.name().to_owned();
    let why = if named.is_some() {
        "DTL_COMM names it".to_owned()
    } else {
        recorded("communicator", &name)
    };
    Ok(Choice { name, why })
}

/// The recorded reason of a choice, without the name and "because" that it begins with.
fn recorded(topic: &str, name: &str) -> String {
    let record = explain::of(topic).unwrap_or_default();
    let reason = record.strip_prefix(name).unwrap_or(&record).trim_start_matches(", ");
    reason.strip_prefix("because ").unwrap_or(reason).to_owned()
}

fn describe(backend: &Backend) -> BackendFacts {
    let mut unavailable = backend.availability().err();
    let (mut devices, mut memory_kinds) = (Vec::new(), Vec::new());
    if unavailable.is_none() && backend.device.is_some() {
        // A registered one may fail here; the others are shown all the same.
        match self::devices(backend) {
            Ok(found) => devices = found,
            Err(error) => unavailable = Some(error.text().to_owned()),
        }
    }
    if unavailable.is_none() && backend.memory.is_some() {
        memory_kinds = self::memory_kinds(backend);
    }
    BackendFacts {
        name: backend.name().to_owned(),
        builtin: backend.builtin,
        chosen: explain::of(backend.name()).filter(|_| unavailable.is_none()),
        unavailable,
        auto_priority: Some(backend.auto_priority).filter(|&priority| priority != i32::MIN),
        components: component_names(backend),
        devices,
        memory_kinds,
    }
}

/// The components' names.
pub(crate) fn component_names(backend: &Backend) -> Vec<&'static str> {
    names(&COMPONENTS.map(|(bit, name)| (u64::from(bit), name)), backend.components().into())
}

fn names(table: &[(u64, &'static str)], bits: u64) -> Vec<&'static str> {
    table.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect()
}

fn devices(backend: &Backend) -> Result<Vec<DeviceFacts>> {
    (0..backend.device()?.count()?).map(|index| describe_device(backend, index)).collect()
}

fn describe_device(backend: &Backend, index: i32) -> Result<DeviceFacts> {
    let mut info = empty_device_info();
    device::info(backend, index, &mut info)?;
    // Not every backend can tell; that is no failure.
    let (free, total) = device::memory_info(backend, index).unwrap_or((0, 0));
    let known = |value: u64| Some(value).filter(|&value| value != 0);
    Ok(DeviceFacts {
        index,
        name: text_of(&info.name),
        kind: device_kind(info.kind),
        compute_units: Some(info.compute_units).filter(|&units| units != 0),
        total_bytes: known(info.total_bytes).or(known(total)),
        free_bytes: known(free),
        numa_node: Some(info.numa_node).filter(|&node| node >= 0),
        pci: Some(text_of(&info.pci)).filter(|pci| !pci.is_empty()),
    })
}

fn empty_device_info() -> dtl_device_info_t {
    dtl_device_info_t {
        struct_size: size_of::<dtl_device_info_t>() as u32,
        numa_node: -1,
        kind: 0,
        total_bytes: 0,
        compute_units: 0,
        max_block_threads: 0,
        max_block: [0; 3],
        max_grid: [0; 3],
        name: [0; 128],
        pci: [0; 32],
    }
}

fn device_kind(word: dtl_enum_word_t) -> &'static str {
    match word {
        DTL_DEVICE_CPU => "cpu",
        DTL_DEVICE_GPU => "gpu",
        DTL_DEVICE_ACCELERATOR => "accelerator",
        DTL_DEVICE_NONE => "none",
        0 => "unknown",
        _ => name_in(&[], word),
    }
}

/// The name of a word in a list, else the one that it is registered under.
fn name_in(list: &[(dtl_enum_word_t, &'static str)], word: dtl_enum_word_t) -> &'static str {
    let listed = list.iter().find(|row| row.0 == word).map(|row| row.1);
    let registered = || enums::name(word).ok()?.to_str().ok();
    listed.or_else(registered).unwrap_or("registered")
}

/// The kinds that the backend has, registered ones too.
fn memory_kinds(backend: &Backend) -> Vec<KindFacts> {
    let mut found = Vec::new();
    let count = enums::count(DTL_ENUM_MEMORY).unwrap_or(0) as u64;
    let words = (0..count).filter_map(|index| enums::at(DTL_ENUM_MEMORY, index).ok());
    for word in words.filter(|&word| word != DTL_MEMORY_UNDEFINED) {
        let kind = name_in(&KINDS, word);
        let mut info = zeroed_kind_info();
        if memory::kind_info(backend, word, &mut info).is_ok() {
            let (alignment, properties) = (info.alignment, names(&PROPERTIES, info.properties));
            found.push(KindFacts { kind, name: text_of(&info.name), alignment, properties });
        }
    }
    found
}

/// A NUL-terminated field as text.
fn text_of(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
