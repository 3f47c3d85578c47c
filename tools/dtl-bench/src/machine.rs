//! Properties of the measured machine, and the placement of this program's threads.

use crate::options::Place;
use crate::out::complain;
use dtl::tooling::os::{affinity, cpu_name, topology, usable_cores};
use serde_json::{Value, json};

/// Returns the properties of this machine for tables and reports: enough to compare machines,
/// without the machine's name. `processors` is a result of [`shared_processors`] that was obtained
/// before any thread was pinned.
pub(crate) fn facts(processors: usize) -> Value {
    let built = topology();
    json!({
        "cpu": processor(),
        "cpus": built.cpus_online,
        "cores": built.cores,
        "usable_cpus": processors,
        "l2_bytes": built.l2_bytes,
        "l3_bytes": built.l3_bytes,
        "memory_bytes": built.memory_bytes,
        "kernel": kernel(),
    })
}

/// Returns the processor's name, with family and model if the system has them: several generations
/// can have one name in virtual machines.
fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value = |key: &str| {
        let mut fields = info.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim())
    };
    match (value("cpu family"), value("model")) {
        (Some(family), Some(model)) => format!("{} family {family} model {model}", cpu_name()),
        _ => cpu_name(),
    }
}

fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// Formats the result of [`facts`] as one readable line.
pub(crate) fn line(facts: &Value) -> String {
    format!(
        "{}, {} core(s), {} of {} processor(s) usable",
        facts["cpu"].as_str().unwrap_or("CPU"),
        facts["cores"],
        facts["usable_cpus"],
        facts["cpus"]
    )
}

/// Returns the number of processors that are available to all ranks of this node together. In a
/// process that a launcher has bound to one processor, returns the number of all processors of the
/// machine. Call before [`pin`].
pub(crate) fn shared_processors() -> usize {
    match affinity().len() {
        0 | 1 => topology().cpus_online.max(1) as usize,
        _ => usable_cores() as usize,
    }
}

/// Returns the processor to which this thread is bound, if it is bound to exactly one.
pub(crate) fn only_processor() -> Option<usize> {
    match affinity()[..] {
        [only] => Some(only),
        _ => None,
    }
}

/// Binds this thread to a processor ([`pin`]) unless `place` forbids it. Returns the number of
/// available processors ([`shared_processors`]), determined before the binding.
pub(crate) fn settle(place: &Place) -> usize {
    let processors = shared_processors();
    if !place.no_pin {
        pin(0);
    }
    processors
}

/// Binds this thread to the processor with the index `place` in its affinity mask (modulo the
/// number of processors in the mask), unless a launcher has already bound it to one processor.
pub(crate) fn pin(place: usize) {
    let allowed = affinity();
    if allowed.len() < 2 {
        return;
    }
    if let Err(error) = subprocess::bind(allowed[place % allowed.len()]) {
        complain!("dtl-bench: cannot stay on one processor ({error}): values will vary more");
    }
}
