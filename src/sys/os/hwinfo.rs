//! Properties of this machine: memory, cores and their topology, caches, the CPU's name, and the
//! share that control groups leave to this process, from /proc and /sys. A value not reported is 0.

use std::fs;
use std::io::Read;

/// A number that processes on one running kernel share, and that other nodes do not have.
pub fn node_id() -> std::io::Result<u64> {
    // Random, made anew by each boot.
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(crate::sys::compute::fnv::of(boot.as_bytes()))
}

/// Free and total bytes of memory, bounded by the control group; 0 = unknown.
#[must_use]
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

/// Returns the remedy for a failed allocation: the number of mappings may be exhausted.
#[must_use]
pub fn memory_advice() -> &'static str {
    let most = fs::read_to_string("/proc/sys/vm/max_map_count")
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok());
    // The query itself may take mappings, and the failed allocation may have needed several.
    if most.zip(mappings()).is_some_and(|(most, now)| now + 16 >= most) {
        return "this process has as many mappings as vm.max_map_count allows: free some, or raise \
            that (sysctl)";
    }
    "free some, or raise the limit (ulimit -v, memory.max of the control group)"
}

/// Mappings of this process. Counted without memory for their text.
fn mappings() -> Option<u64> {
    let mut file = fs::File::open("/proc/self/maps").ok()?;
    let (mut text, mut count) = ([0; 4096], 0);
    loop {
        match file.read(&mut text) {
            Ok(0) => return Some(count),
            Ok(read) => {
                count += text.iter().take(read).filter(|byte| **byte == b'\n').count() as u64
            }
            Err(_) => return None,
        }
    }
}

/// Cores that this process may use: its affinity, bounded by the control group's quota.
#[must_use]
pub fn usable_cores() -> u32 {
    std::thread::available_parallelism()
        .map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX))
}

/// The CPU's name for people.
#[must_use]
pub fn cpu_name() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
    model
        .and_then(|line| line.split(':').nth(1))
        .map_or_else(|| "CPU".to_owned(), |name| name.trim().to_owned())
}

/// Returns the CPUs (hardware threads) that the calling thread may run on, ascending; none: the
/// kernel does not report them.
#[must_use]
pub fn affinity() -> Vec<usize> {
    // The kernel refuses a set smaller than its own, whose size it does not report.
    for words in [16_usize, 256, 4096] {
        let mut set = vec![0_u64; words];
        // SAFETY: the set has the size that is passed; 0 is the calling thread.
        let rc = unsafe { libc::sched_getaffinity(0, words * 8, set.as_mut_ptr().cast()) };
        if rc == 0 {
            let is_in =
                |cpu: &usize| set.get(cpu / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1);
            return (0..words * 64).filter(is_in).collect();
        }
    }
    Vec::new()
}

/// Structure of the machine. 0: not reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// CPUs (hardware threads) in use by the system.
    pub cpus: usize,
    /// Physical cores.
    pub cores: usize,
    /// Hardware threads of one core.
    pub threads_per_core: usize,
    /// Processor packages.
    pub sockets: usize,
    /// NUMA nodes.
    pub numa_nodes: usize,
    /// Bytes of the first-level data cache of a core.
    pub l1d_bytes: u64,
    /// Bytes of the second-level cache.
    pub l2_bytes: u64,
    /// Bytes of one third-level cache.
    pub l3_bytes: u64,
    /// Bytes of memory of the whole machine.
    pub memory_bytes: u64,
    /// Bytes that the control groups allow; 0 = no limit.
    pub memory_limit_bytes: u64,
    /// Thousandths of a CPU that the control groups allow; 0 = no limit.
    pub quota_millicpus: u64,
    /// The node's name.
    pub hostname: String,
}

/// Reads how this machine is built.
#[must_use]
pub fn topology() -> Topology {
    Tree { root: "" }.topology()
}

/// The files of /proc and /sys below some folder.
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

    fn topology(&self) -> Topology {
        let online = self.text("/sys/devices/system/cpu/online").unwrap_or_default();
        let online = listed(&online);
        let mut told = Topology { cpus: online.len(), ..Topology::default() };
        if told.cpus == 0 {
            told.cpus = usable_cores() as usize;
        }
        self.cores(&online, &mut told);
        self.caches(online.first().copied().unwrap_or(0), &mut told);
        let nodes = self.text("/sys/devices/system/node/online").unwrap_or_default();
        // A kernel without NUMA has no such file, and one node.
        told.numa_nodes = listed(&nodes).len().max(1);
        told.memory_bytes = field(&self.text("/proc/meminfo").unwrap_or_default(), "MemTotal:");
        told.memory_limit_bytes =
            self.memory_limit().filter(|&limit| limit < told.memory_bytes).unwrap_or(0);
        told.quota_millicpus = self.cpu_quota().unwrap_or(0);
        told.hostname = self.text("/proc/sys/kernel/hostname").unwrap_or_default();
        told
    }

    fn cores(&self, online: &[usize], told: &mut Topology) {
        let mut cores = Vec::new();
        for cpu in online {
            let folder = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
            let package = self.text(&format!("{folder}/physical_package_id"));
            // Cores are numbered anew in each package, and in some machines in each die of it.
            let die = self.text(&format!("{folder}/die_id"));
            let core = self.text(&format!("{folder}/core_id"));
            let siblings = self.text(&format!("{folder}/thread_siblings_list")).unwrap_or_default();
            told.threads_per_core = told.threads_per_core.max(listed(&siblings).len());
            if let (Some(package), Some(core)) = (package, core) {
                cores.push((package, die, core));
            }
        }
        cores.sort();
        cores.dedup();
        told.cores = cores.len();
        cores.dedup_by(|a, b| a.0 == b.0);
        told.sockets = cores.len();
    }

    fn caches(&self, cpu: usize, told: &mut Topology) {
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

    /// The least limit of this process' control group and those around it.
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
            // -1, which is no number here, is no limit.
            let quota = self.number(&format!("{group}/cpu.cfs_quota_us"))?;
            per_mille(quota, self.number(&format!("{group}/cpu.cfs_period_us"))?)
        });
        unified.chain(old).min()
    }

    /// The folders of this process' control group and of those around it. `controller`: that of the
    /// first version of control groups; "" = the second version, which has one hierarchy.
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

/// The numbers of a list as "0-3,8"; what is no number is passed over.
#[must_use]
pub fn listed(text: &str) -> Vec<usize> {
    /// No machine has as many; a nonsensical range must not fill the memory.
    const MOST: usize = 1 << 18;
    let ranges = text.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    });
    ranges.flatten().take(MOST).collect()
}

/// A size as "32K" or "32768".
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
mod tests {
    use super::*;

    /// A folder that goes when the test ends.
    struct Folder(String);

    impl Folder {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root =
                std::env::temp_dir().join(format!("dtl-machine-{name}-{}", std::process::id()));
            for (path, text) in files {
                let file = root.join(path);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            Folder(root.to_str().unwrap().to_owned())
        }

        fn topology(&self) -> Topology {
            Tree { root: &self.0 }.topology()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn lists_and_sizes() {
        assert_eq!(listed("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!((listed(""), listed("x,2,3-y"), listed("5-2")), (vec![], vec![2], vec![]));
        assert_eq!(
            (bytes_of("32K"), bytes_of("1M"), bytes_of("77"), bytes_of("")),
            (32768, 1 << 20, 77, 0)
        );
    }

    #[test]
    fn a_machine_of_two_sockets_under_the_unified_groups() {
        const CPU: &str = "sys/devices/system/cpu";
        let mut files = vec![
            (format!("{CPU}/online"), "0-7\n".to_owned()),
            ("sys/devices/system/node/online".into(), "0-1".into()),
            ("proc/meminfo".into(), "MemTotal: 1000 kB\n".into()),
            ("proc/self/cgroup".into(), "0::/a/b\n".into()),
            ("sys/fs/cgroup/a/b/memory.max".into(), "max\n".into()),
            ("sys/fs/cgroup/a/memory.max".into(), "4096\n".into()),
            ("sys/fs/cgroup/a/b/cpu.max".into(), "150000 100000\n".into()),
            ("sys/fs/cgroup/a/cpu.max".into(), "max 100000\n".into()),
            ("proc/sys/kernel/hostname".into(), "node7\n".into()),
        ];
        for cpu in 0..8 {
            let folder = format!("{CPU}/cpu{cpu}/topology");
            files.push((format!("{folder}/physical_package_id"), (cpu / 4).to_string()));
            files.push((format!("{folder}/core_id"), (cpu % 2).to_string()));
            files.push((format!("{folder}/thread_siblings_list"), format!("{},{}", cpu, cpu ^ 2)));
        }
        let caches = [
            ("1", "Data", "48K"),
            ("1", "Instruction", "32K"),
            ("2", "Unified", "2M"),
            ("3", "Unified", "9M"),
        ];
        for (index, (level, kind, size)) in caches.into_iter().enumerate() {
            let folder = format!("{CPU}/cpu0/cache/index{index}");
            for (file, text) in [("level", level), ("type", kind), ("size", size)] {
                files.push((format!("{folder}/{file}"), text.to_owned()));
            }
        }
        let files: Vec<_> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let expected = Topology {
            cpus: 8,
            cores: 4,
            threads_per_core: 2,
            sockets: 2,
            numa_nodes: 2,
            l1d_bytes: 48 << 10,
            l2_bytes: 2 << 20,
            l3_bytes: 9 << 20,
            memory_bytes: 1_024_000,
            memory_limit_bytes: 4096,
            quota_millicpus: 1500,
            hostname: "node7".into(),
        };
        assert_eq!(Folder::new("two", &files).topology(), expected);
    }

    #[test]
    fn groups_of_the_first_version() {
        let told = Folder::new(
            "first",
            &[
                ("proc/self/cgroup", "4:memory:/job/1\n1:cpu,cpuacct:/\n0::/\n"),
                ("proc/meminfo", "MemTotal: 1000 kB\n"),
                ("sys/fs/cgroup/memory/job/1/memory.limit_in_bytes", "5000"),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712"),
                ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1"),
                ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000"),
            ],
        )
        .topology();
        assert_eq!((told.memory_limit_bytes, told.quota_millicpus), (5000, 0));
    }

    #[test]
    fn nothing_there_is_no_failure() {
        let told = Folder::new("none", &[]).topology();
        assert!(told.cpus >= 1);
        assert_eq!(told, Topology { cpus: told.cpus, numa_nodes: 1, ..Topology::default() });
    }

    #[test]
    fn this_machine_agrees_with_itself() {
        let (told, own) = (topology(), affinity());
        assert!(!own.is_empty() && own.len() <= told.cpus && own.is_sorted(), "{own:?} {told:?}");
        assert!(told.memory_bytes > 1 << 20 && told.cores <= told.cpus, "{told:?}");
    }
}
