//! The machine that is measured, and where this program's threads run on it.

use crate::options::Place;
use crate::out::complain;
use dtl::tooling::os::{affinity, cpu_name, topology, usable_cores};
use serde_json::{Value, json};

/// For tables and reports: enough to compare, nothing that tells whose machine it is.
/// Processors are those that [`shared_processors`] told, before any thread was pinned.
pub(crate) fn facts(processors: usize) -> Value {
    let built = topology();
    json!({
        "cpu": cpu_name(),
        "cpus": built.cpus_online,
        "cores": built.cores,
        "usable_cpus": processors,
        "l2_bytes": built.l2_bytes,
        "l3_bytes": built.l3_bytes,
        "memory_bytes": built.memory_bytes,
        "kernel": kernel(),
    })
}

fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// For people.
pub(crate) fn line(facts: &Value) -> String {
    format!(
        "{}, {} core(s), {} of {} processor(s) usable",
        facts["cpu"].as_str().unwrap_or("CPU"),
        facts["cores"],
        facts["usable_cpus"],
        facts["cpus"]
    )
}

/// Processors that the ranks of this node share. A process that a launcher has bound to one sees
/// only that: then all that the machine has. To be asked before [`pin`].
pub(crate) fn shared_processors() -> usize {
    match affinity().len() {
        0 | 1 => topology().cpus_online.max(1) as usize,
        _ => usable_cores() as usize,
    }
}

/// The processor that this thread runs on, if it is the only one it may.
pub(crate) fn only_processor() -> Option<usize> {
    match affinity()[..] {
        [only] => Some(only),
        _ => None,
    }
}

/// What [`shared_processors`] tells, and then [`pin`]s this thread if that is wanted.
pub(crate) fn settle(place: &Place) -> usize {
    let processors = shared_processors();
    if !place.no_pin {
        pin(0);
    }
    processors
}

/// Lets this thread run on one processor only, the `place`-th of those it may use. A launcher may
/// have done so.
pub(crate) fn pin(place: usize) {
    let allowed = affinity();
    if allowed.len() < 2 {
        return;
    }
    if let Err(error) = subprocess::bind(allowed[place % allowed.len()]) {
        complain!("dtl-bench: cannot stay on one processor ({error}): values will vary more");
    }
}
