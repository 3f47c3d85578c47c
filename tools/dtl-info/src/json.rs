//! Reports as JSON. `--help` documents the keys. Later versions may add keys, but never remove or
//! rename them.

use crate::environment::Environment;
use crate::facts::{
    BackendFacts, Choice, DeviceFacts, EnvironmentFacts, Facts, KindFacts, MachineFacts,
};
use crate::plugins::{Found, Listing, Tried};
use dtl_sys::DTL_ABI_VERSION;
use serde_json::{Value, json};

/// Formats the report of `dtl-info --json`.
pub(crate) fn facts(facts: &Facts) -> String {
    let launch = facts.launch.as_ref();
    let (kind, why, error) = choice(&facts.communicator);
    let (name, backend_why, backend_error) = choice(&facts.backend);
    written(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "abi_version": DTL_ABI_VERSION,
        "licence": env!("CARGO_PKG_LICENSE"),
        "machine": machine(&facts.machine),
        "backends": facts.backends.iter().map(|one| backend(one, &facts.plugins)).collect::<Vec<_>>(),
        "plugins": facts.plugins.iter().map(tried).collect::<Vec<_>>(),
        "environments": facts.environments.iter().map(environment_facts).collect::<Vec<_>>(),
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

/// Formats the report of `dtl-info --env --json`.
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

/// Formats the report of `dtl-info --plugins --json`.
pub(crate) fn plugins(listing: &Listing) -> String {
    let places = listing.places.iter();
    let places = places
        .map(|(path, origin, fault)| json!({ "path": path, "origin": origin, "fault": fault }));
    written(&json!({
        "folders": places.collect::<Vec<_>>(),
        "plugins": listing.files.iter().map(found).collect::<Vec<_>>(),
    }))
}

fn found(found: &Found) -> Value {
    let manifest = found.manifest.as_ref();
    let error = manifest.and_then(|manifest| manifest.as_ref().err());
    let manifest = manifest.and_then(|manifest| manifest.as_ref().ok()).map(|manifest| {
        json!({
            "name": manifest.name,
            "version": manifest.version,
            "description": manifest.description,
            "file": manifest.file,
            "entry": manifest.entry,
            "abi": manifest.abi.map(|(low, high)| [low, high]),
            "components": manifest.components,
            "environments": manifest.environments,
        })
    });
    json!({
        "path": found.path,
        "origin": found.origin,
        "manifest": manifest,
        "manifest_error": error,
        "fault": found.fault,
    })
}

fn tried(tried: &Tried) -> Value {
    let (status, reason) = tried.failure.clone().unzip();
    json!({
        "path": tried.path,
        "origin": tried.origin,
        "state": tried.state,
        "status": status,
        "reason": reason,
        "name": tried.name,
        "version": tried.version,
        "description": tried.description,
        "abi_version": tried.abi_version,
        "backends": tried.backends,
    })
}

fn environment_facts(environment: &EnvironmentFacts) -> Value {
    json!({
        "name": environment.name,
        "version": environment.version,
        "state": environment.state,
        "available": environment.unavailable.is_none(),
        "reason": environment.unavailable,
        "depends": environment.depends,
        "backends": environment.backends,
    })
}

fn backend(backend: &BackendFacts, plugins: &[Tried]) -> Value {
    let plugin = plugins.iter().find(|plugin| plugin.backends.contains(&backend.name));
    json!({
        "name": backend.name,
        "available": backend.unavailable.is_none(),
        "reason": backend.unavailable,
        "chosen": backend.chosen,
        "builtin": backend.builtin,
        "plugin": plugin.map(|plugin| &plugin.path),
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
