//! Memory sizes and processor name of this machine, from /proc and the control groups, and the
//! cores on which a thread may run.

use super::process::{affinity, listed};
use std::fs;

/// Returns the available and the total memory in bytes, bounded by the limit of the control group;
/// 0 = unknown.
pub fn memory() -> (u64, u64) {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let (mut free, mut total) = (field(&meminfo, "MemAvailable:"), field(&meminfo, "MemTotal:"));
    for (limit, used) in [
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ] {
        let number = |path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        if let (Some(limit), Some(used)) = (number(limit), number(used)) {
            total = total.min(limit);
            free = free.min(limit.saturating_sub(used));
        }
    }
    (free, total)
}

fn field(meminfo: &str, name: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}

/// Returns the CPU's name for display.
pub fn cpu_name() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
    model
        .and_then(|line| line.split(':').nth(1))
        .map_or_else(|| "CPU".to_owned(), |name| name.trim().to_owned())
}

/// Returns the logical cores on which the calling thread may run, as a bit mask. Cores beyond the
/// mask share the bits of those within it.
pub fn affinity_mask<const WORDS: usize>() -> [u64; WORDS] {
    let mut mask = [0; WORDS];
    for cpu in affinity() {
        if let Some(word) = mask.get_mut(cpu / 64 % WORDS) {
            *word |= 1 << (cpu % 64);
        }
    }
    mask
}

/// Returns the level-3 cache and the socket that contain all cores on which the calling thread may
/// run. Each is named by its lowest core number plus 1; 0 if there is none or it is unknown.
pub fn cache_and_socket() -> [u64; 2] {
    let cores = affinity();
    ["cache/index3/shared_cpu_list", "topology/core_siblings_list"].map(|file| {
        let first = cores.first().copied().unwrap_or(0);
        let path = format!("/sys/devices/system/cpu/cpu{first}/{file}");
        let members = listed(&fs::read_to_string(path).unwrap_or_default());
        let is_inside = cores.iter().all(|core| members.binary_search(core).is_ok());
        members.first().filter(|_| is_inside).map_or(0, |&first| first as u64 + 1)
    })
}
