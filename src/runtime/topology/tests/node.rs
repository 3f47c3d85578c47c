//! Tests of `node`.

use super::*;

/// Temporary directory that is removed when the test ends.
struct Folder(String);

impl Folder {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("dtl-machine-{name}-{}", std::process::id()));
        for (path, text) in files {
            let file = root.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        Folder(root.to_str().unwrap().to_owned())
    }

    fn topology(&self) -> dtl_topology_t {
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
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let told = Folder::new("two", &files).topology();
    assert_eq!(
        [
            told.cpus_online,
            told.cores,
            told.threads_per_core,
            told.sockets,
            told.numa_nodes,
            told.cpus_allowed
        ],
        [8, 4, 2, 2, 2, 0]
    );
    assert_eq!([told.l1d_bytes, told.l2_bytes, told.l3_bytes], [48 << 10, 2 << 20, 9 << 20]);
    assert_eq!((told.memory_bytes, told.memory_limit_bytes), (1_024_000, 4096));
    let hostname: Vec<u8> = told.hostname[..6].iter().map(|byte| *byte as u8).collect();
    assert_eq!((told.cpu_quota_milli, hostname.as_slice()), (1500, &b"node7\0"[..]));
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
    assert_eq!((told.memory_limit_bytes, told.cpu_quota_milli), (5000, 0));
}

#[test]
fn nothing_there_is_no_failure() {
    let told = Folder::new("none", &[]).topology();
    assert!(told.cpus_online >= 1);
    assert_eq!([told.cores, told.threads_per_core, told.sockets, told.numa_nodes], [0, 0, 0, 1]);
    assert_eq!([told.l1d_bytes, told.l2_bytes, told.l3_bytes, told.cpu_quota_milli], [0; 4]);
    assert_eq!((told.memory_bytes, told.memory_limit_bytes, told.hostname[0]), (0, 0, 0));
}

#[test]
fn this_machine_agrees_with_itself() {
    let (told, own) = (topology(), affinity());
    assert!(!own.is_empty() && count(own.len()) <= told.cpus_online && own.is_sorted(), "{own:?}");
    assert_eq!(told.cpus_allowed, count(own.len()));
    assert!(told.memory_bytes > 1 << 20 && told.cores <= told.cpus_online);
}
