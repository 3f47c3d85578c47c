//! The reports as JSON. The keys are documented in `--help`; they are only ever added to.

use crate::environment::Environment;
use crate::facts::{BackendFacts, Choice, DeviceFacts, Facts, KindFacts, MachineFacts};
use dtl::abi::runtime::DTL_ABI_VERSION;
use serde_json::{Value, json};

/// `dtl-info --json`.
pub(crate) fn facts(facts: &Facts) -> String {
    let launch = facts.launch.as_ref();
    let (kind, why, error) = choice(&facts.communicator);
    let (name, backend_why, backend_error) = choice(&facts.backend);
    written(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "abi_version": DTL_ABI_VERSION,
        "licence": env!("CARGO_PKG_LICENSE"),
        "machine": machine(&facts.machine),
        "backends": facts.backends.iter().map(backend).collect::<Vec<_>>(),
        "default_backend": { "name": name, "why": backend_why, "error": backend_error },
        "communicator": {
            "kind": kind,
            "why": why,
            "error": error,
            "launcher": launch.map(|launch| launch.launcher),
            "rank": launch.map(|launch| launch.rank),
            "size": launch.map(|launch| launch.size),
        },
    }))
}

/// `dtl-info --env --json`.
pub(crate) fn environment(environment: &Environment) -> String {
    let variables: Vec<_> = environment
        .variables
        .iter()
        .map(|v| json!({ "name": v.name, "meaning": v.meaning, "value": v.value, "origin": v.origin() }))
        .collect();
    written(&json!({
        "variables": variables,
        "complaints": environment.complaints,
        "error": environment.error,
    }))
}

fn written(value: &Value) -> String {
    format!("{value:#}\n")
}

type Parts<'a> = (Option<&'a str>, Option<&'a str>, Option<&'a str>);

fn choice(choice: &Result<Choice, String>) -> Parts<'_> {
    match choice {
        Ok(choice) => (Some(&choice.name), Some(&choice.why), None),
        Err(error) => (None, None, Some(error)),
    }
}

fn machine(machine: &MachineFacts) -> Value {
    json!({
        "hostname": machine.hostname,
        "cpus_online": machine.cpus_online,
        "cpus_allowed": machine.cpus_allowed,
        "cpu_quota_milli": machine.cpu_quota_milli,
        "cores": machine.cores,
        "threads_per_core": machine.threads_per_core,
        "sockets": machine.sockets,
        "numa_nodes": machine.numa_nodes,
        "l1d_bytes": machine.l1d_bytes,
        "l2_bytes": machine.l2_bytes,
        "l3_bytes": machine.l3_bytes,
        "memory_bytes": machine.memory_bytes,
        "memory_limit_bytes": machine.memory_limit_bytes,
    })
}

fn backend(backend: &BackendFacts) -> Value {
    json!({
        "name": backend.name,
        "available": backend.unavailable.is_none(),
        "reason": backend.unavailable,
        "builtin": backend.builtin,
        "auto_priority": backend.auto_priority,
        "components": backend.components,
        "devices": backend.devices.iter().map(device).collect::<Vec<_>>(),
        "memory_kinds": backend.memory_kinds.iter().map(memory_kind).collect::<Vec<_>>(),
    })
}

fn device(device: &DeviceFacts) -> Value {
    json!({
        "index": device.index,
        "name": device.name,
        "kind": device.kind,
        "compute_units": device.compute_units,
        "total_bytes": device.total_bytes,
        "free_bytes": device.free_bytes,
        "numa_node": device.numa_node,
        "pci": device.pci,
    })
}

fn memory_kind(kind: &KindFacts) -> Value {
    json!({
        "kind": kind.kind,
        "name": kind.name,
        "alignment_bytes": kind.alignment,
        "properties": kind.properties,
    })
}
