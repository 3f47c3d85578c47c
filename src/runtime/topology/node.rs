//! Structure of this machine, from /proc and /sys: cores, caches, memory, and the limits of this
//! process's control groups. A field is 0 if the system does not report its value.

use super::count;
use crate::abi::comm::topology::dtl_topology_t;
use crate::from_c::blank;
use crate::runtime::copy_text;
use crate::sys::os::process::{affinity, listed, usable_cores};
use std::fs;

/// Reads the structure of this machine.
pub fn topology() -> dtl_topology_t {
    dtl_topology_t { cpus_allowed: count(affinity().len()), ..Tree { root: "" }.topology() }
}

/// Root directory below which the files of /proc and /sys are read; "" = the system's own files.
struct Tree<'a> {
    root: &'a str,
}

impl Tree<'_> {
    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(format!("{}{path}", self.root)).ok().map(|text| text.trim().to_owned())
    }

    fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    fn topology(&self) -> dtl_topology_t {
        let online = listed(&self.text("/sys/devices/system/cpu/online").unwrap_or_default());
        let nodes = listed(&self.text("/sys/devices/system/node/online").unwrap_or_default());
        let cpus = if online.is_empty() { usable_cores() as usize } else { online.len() };
        let memory_bytes = self.memory_bytes();
        let mut told = dtl_topology_t {
            cpus_online: count(cpus),
            // A kernel without NUMA has no such file, and one node.
            numa_nodes: count(nodes.len().max(1)),
            cpu_quota_milli: self.cpu_quota().unwrap_or(0),
            memory_bytes,
            memory_limit_bytes: self.memory_limit().filter(|&it| it < memory_bytes).unwrap_or(0),
            ..blank()
        };
        self.cores(&online, &mut told);
        self.caches(online.first().copied().unwrap_or(0), &mut told);
        let hostname = self.text("/proc/sys/kernel/hostname").unwrap_or_default();
        copy_text(&mut told.hostname, &hostname);
        told
    }

    fn memory_bytes(&self) -> u64 {
        let meminfo = self.text("/proc/meminfo").unwrap_or_default();
        let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib = total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        kib.map_or(0, |kib| kib * 1024)
    }

    fn cores(&self, online: &[usize], told: &mut dtl_topology_t) {
        let mut cores = Vec::new();
        for cpu in online {
            let folder = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
            let package = self.text(&format!("{folder}/physical_package_id"));
            // Core numbers restart in each package, and in some machines in each die of a package.
            let die = self.text(&format!("{folder}/die_id"));
            let core = self.text(&format!("{folder}/core_id"));
            let siblings = self.text(&format!("{folder}/thread_siblings_list")).unwrap_or_default();
            told.threads_per_core = told.threads_per_core.max(count(listed(&siblings).len()));
            if let (Some(package), Some(core)) = (package, core) {
                cores.push((package, die, core));
            }
        }
        cores.sort_unstable();
        cores.dedup();
        told.cores = count(cores.len());
        cores.dedup_by(|a, b| a.0 == b.0);
        told.sockets = count(cores.len());
    }

    fn caches(&self, cpu: usize, told: &mut dtl_topology_t) {
        for index in 0..16 {
            let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cache/index{index}");
            let Some(level) = self.number(&format!("{folder}/level")) else { return };
            let kind = self.text(&format!("{folder}/type")).unwrap_or_default();
            let bytes = self.text(&format!("{folder}/size")).map_or(0, |size| bytes_of(&size));
            match level {
                1 if kind != "Instruction" => told.l1d_bytes = bytes,
                2 if kind != "Instruction" => told.l2_bytes = bytes,
                3 => told.l3_bytes = bytes,
                _ => {}
            }
        }
    }

    /// Returns the lowest of the memory limits, in bytes, of this process's cgroup and of that
    /// cgroup's ancestors.
    fn memory_limit(&self) -> Option<u64> {
        let unified = self
            .groups("")
            .into_iter()
            .filter_map(|group| self.number(&format!("{group}/memory.max")));
        let old = self.groups("memory").into_iter();
        let old = old.filter_map(|group| self.number(&format!("{group}/memory.limit_in_bytes")));
        unified.chain(old).min()
    }

    fn cpu_quota(&self) -> Option<u64> {
        let unified = self.groups("").into_iter().filter_map(|group| {
            let text = self.text(&format!("{group}/cpu.max"))?;
            let (quota, period) = text.split_once(' ')?;
            per_mille(quota.parse().ok()?, period.parse().ok()?)
        });
        let old = self.groups("cpu").into_iter().filter_map(|group| {
            // -1, which does not parse as a number here, means no limit.
            let quota = self.number(&format!("{group}/cpu.cfs_quota_us"))?;
            per_mille(quota, self.number(&format!("{group}/cpu.cfs_period_us"))?)
        });
        unified.chain(old).min()
    }

    /// Returns the directories of this process's cgroup and of its ancestors. `controller` names a
    /// cgroup v1 controller; "" selects cgroup v2, which has one hierarchy.
    fn groups(&self, controller: &str) -> Vec<String> {
        let all = self.text("/proc/self/cgroup").unwrap_or_default();
        let own = all.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|name| name == controller).then_some(path)
        });
        let top = if controller.is_empty() { String::new() } else { format!("/{controller}") };
        let mut path = own.unwrap_or("/").trim_end_matches('/');
        let mut folders = Vec::new();
        loop {
            folders.push(format!("/sys/fs/cgroup{top}{path}"));
            match path.rfind('/') {
                Some(end) => path = path.get(..end).unwrap_or_default(),
                None => return folders,
            }
        }
    }
}

fn per_mille(quota: u64, period: u64) -> Option<u64> {
    quota.checked_mul(1000)?.checked_div(period).filter(|&millis| millis > 0)
}

/// Parses a size such as "32K" or "32768". Returns the number of bytes, or 0 if the string is not a
/// size.
fn bytes_of(text: &str) -> u64 {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match text.get(digits.len()..) {
        Some("K") => 1 << 10,
        Some("M") => 1 << 20,
        Some("G") => 1 << 30,
        _ => 1,
    };
    digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).unwrap_or(0)
}

#[cfg(test)]
#[path = "tests/node.rs"]
mod tests;
