//! Tests that the expected ports and GIDs are selected from lists of ports and GIDs, and that ports
//! and GIDs are discovered with a fake libibverbs.

use super::*;
use crate::sys::memory::buf::Addr;
use std::ffi::{c_char, c_int, c_void};
use std::fs;

fn port(device: &str, port: u8, state: u32, layer: u32) -> PortInfo {
    PortInfo {
        device: device.into(),
        port,
        state,
        layer: layer as u8,
        is_near: true,
        unfit: String::new(),
    }
}

fn far(seen: PortInfo) -> PortInfo {
    PortInfo { is_near: false, ..seen }
}

fn names(choice: Result<Choice, String>) -> Vec<String> {
    choice.unwrap().ports.iter().map(|(device, port)| format!("{device}:{port}")).collect()
}

#[test]
fn ranks_share_out_the_active_ports_near_ones_first() {
    let seen = [
        far(port("a", 1, PORT_ACTIVE, LINK_INFINIBAND)),
        port("b", 1, PORT_ACTIVE, LINK_INFINIBAND),
        port("b", 2, 1, LINK_INFINIBAND),
        port("c", 1, PORT_ACTIVE, LINK_INFINIBAND),
    ];
    let of = |rails, rank| names(choose_ports(&seen, &[], rails, rank));
    assert_eq!(
        (of(1, 0), of(1, 1), of(1, 2)),
        (vec!["b:1".into()], vec!["c:1".into()], vec!["b:1".into()])
    );
    assert_eq!(of(2, 0), ["b:1", "c:1"]);
    assert_eq!(of(3, 1), ["c:1", "b:1", "a:1"]);
    assert_eq!(of(8, 0).len(), 3, "no more than there are");
    assert_eq!(of(1, u32::MAX).len(), 1);
    let passed = choose_ports(&seen, &[], 1, 0).unwrap().passed_over;
    assert_eq!(passed, ["b:2 is down"]);
    // Without close ports, the ranks share the distant ports.
    let seen = seen.map(far);
    assert_eq!(names(choose_ports(&seen, &[], 1, 1)), ["b:1"]);
}

#[test]
fn named_devices_are_taken_in_their_order_and_must_be_there() {
    let seen = [
        port("a", 1, PORT_ACTIVE, LINK_ETHERNET),
        port("b", 1, PORT_ACTIVE, LINK_INFINIBAND),
        port("b", 2, PORT_ACTIVE, LINK_INFINIBAND),
    ];
    let of = |wanted: &[(&str, Option<u8>)], rails| {
        let wanted: Vec<_> =
            wanted.iter().map(|(name, port)| ((*name).to_owned(), *port)).collect();
        choose_ports(&seen, &wanted, rails, 0)
    };
    assert_eq!(names(of(&[("b", Some(2)), ("a", None)], 2)), ["b:2", "a:1"]);
    assert_eq!(names(of(&[("b", Some(2)), ("b", Some(1))], 3)), ["b:2", "b:1"]);
    let why = of(&[("a", None), ("d", None)], 1).unwrap_err();
    assert!(
        why.starts_with(
            "no RDMA port d, which devices (DTL_RDMA_DEVICES) names; there are a:1 (Eth"
        ),
        "{why}"
    );
    let why = of(&[("b", Some(3))], 1).unwrap_err();
    assert!(why.contains("b:3") && why.contains("b:2 (InfiniBand, active)"), "{why}");
    // If no device is named, ports of two link layers are not mixed.
    let choice = of(&[], 3).unwrap();
    assert_eq!(choice.passed_over, ["a:1 is Ethernet, others are InfiniBand"]);
    assert_eq!(names(Ok(choice)), ["b:1", "b:2"]);
}

#[test]
fn without_an_active_port_each_ones_reason_is_told() {
    let mut seen = [
        port("a", 1, 1, LINK_ETHERNET),
        port("b", 1, 2, 0),
        port("c", 1, PORT_ACTIVE, LINK_ETHERNET),
    ];
    seen[2].unfit = "neither InfiniBand nor RoCE (\"4: RNIC\")".into();
    let why = choose_ports(&seen, &[], 1, 0).unwrap_err();
    assert!(
        why.starts_with("no active RDMA port: a:1 is down; b:1 is initializing; c:1: neither"),
        "{why}"
    );
}

fn gid(index: u8, kind: GidKind, beginning: &[u8]) -> GidInfo {
    let mut gid = [0; 16];
    gid[..beginning.len()].copy_from_slice(beginning);
    gid[15] = 1;
    GidInfo { index, kind, gid: Gid(gid) }
}

const IPV4: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10];
const LOCAL: &[u8] = &[0xFE, 0x80];
const GLOBAL: &[u8] = &[0x20, 0x01];

#[test]
fn the_address_is_the_one_that_reaches_farthest() {
    use GidKind::{InfiniBand, RoceV1, RoceV2, Unknown};
    // Table in the order of an mlx5 port.
    let all = [
        gid(0, RoceV1, LOCAL),
        gid(1, RoceV2, LOCAL),
        gid(2, RoceV2, GLOBAL),
        gid(3, RoceV1, IPV4),
        gid(4, RoceV2, IPV4),
        gid(5, RoceV2, IPV4),
    ];
    let ethernet = LINK_ETHERNET as u8;
    let first = |count| choose_gid(&all[..count], ethernet);
    assert_eq!([first(6), first(4), first(2), first(1)], [Some(4), Some(2), Some(1), Some(0)]);
    assert_eq!(choose_gid(&[gid(7, Unknown, IPV4), gid(3, Unknown, LOCAL)], ethernet), Some(3));
    assert_eq!(choose_gid(&[], ethernet), None);
    let infiniband = LINK_INFINIBAND as u8;
    assert_eq!(choose_gid(&[gid(1, InfiniBand, LOCAL)], infiniband), Some(0));
    assert_eq!(choose_gid(&[], infiniband), Some(0));
}

#[test]
fn a_route_is_needed_over_ethernet_and_between_subnets() {
    let [here, there, near] =
        [LOCAL, GLOBAL, LOCAL].map(|bytes| gid(0, GidKind::InfiniBand, bytes).gid);
    assert!(needs_route(LINK_ETHERNET as u8, &here, &near));
    assert!(needs_route(LINK_INFINIBAND as u8, &here, &there));
    assert!(!needs_route(LINK_INFINIBAND as u8, &here, &near));
}

/// Fake libibverbs with two devices: the first has two ports, the second cannot be opened.
mod library {
    use super::*;

    static NAMES: [&std::ffi::CStr; 2] = [c"rxe0", c"gone0"];
    static mut CONTEXT: u64 = 0;

    unsafe extern "C" fn list(count: *mut c_int) -> *mut *mut c_void {
        // SAFETY: `count` has room for an int.
        unsafe { count.write(2) };
        Box::into_raw(Box::new([&raw const NAMES[0], &raw const NAMES[1]])).cast()
    }
    unsafe extern "C" fn no_list(count: *mut c_int) -> *mut *mut c_void {
        // SAFETY: `count` has room for an int.
        unsafe { count.write(0) };
        Box::into_raw(Box::new([&raw const NAMES[0]; 2])).cast()
    }
    unsafe extern "C" fn free(list: *mut *mut c_void) {
        // SAFETY: `list` or `no_list` created the box.
        drop(unsafe { Box::from_raw(list.cast::<[*const c_void; 2]>()) });
    }
    unsafe extern "C" fn name(device: *mut c_void) -> *const c_char {
        // SAFETY: `device` is the address of an entry of NAMES.
        unsafe { *device.cast::<&std::ffi::CStr>() }.as_ptr()
    }
    unsafe extern "C" fn open(device: *mut c_void) -> *mut c_void {
        let is_first = device.cast_const() == (&raw const NAMES[0]).cast();
        if is_first { (&raw mut CONTEXT).cast() } else { std::ptr::null_mut() }
    }
    unsafe extern "C" fn device(_: *mut c_void, out: *mut DeviceAttr) -> c_int {
        // SAFETY: `out` has room for the attributes.
        unsafe { (*out).phys_port_cnt = 2 };
        0
    }
    unsafe extern "C" fn port(_: *mut c_void, port: u8, out: *mut PortAttr) -> c_int {
        // SAFETY: `out` has room for the attributes.
        unsafe { (*out).state = if port == 1 { PORT_ACTIVE } else { 1 } };
        // SAFETY: `out` is the caller's PortAttr, which the write above has used too.
        unsafe { (*out).link_layer = LINK_ETHERNET as u8 };
        0
    }
    unsafe extern "C" fn old_gid(_: *mut c_void, _: u8, index: c_int, out: *mut Gid) -> c_int {
        // SAFETY: `out` has room for an address. Two addresses are set, the others are empty.
        unsafe {
            *out = if index < 2 { gid(0, GidKind::Unknown, IPV4).gid } else { Gid::default() }
        };
        0
    }
    unsafe extern "C" fn new_gid(
        _: *mut c_void,
        _: u32,
        index: u32,
        out: *mut GidEntry,
        _: u32,
        _: usize,
    ) -> c_int {
        let entry = GidEntry {
            gid: gid(0, GidKind::Unknown, IPV4).gid,
            gid_index: index,
            port_num: 1,
            gid_type: index,
            ndev_ifindex: 0,
        };
        // SAFETY: `out` has room for an entry.
        unsafe { out.write(entry) };
        // Entries after the third are empty.
        if index < 3 { 0 } else { libc::ENODATA }
    }
    unsafe extern "C" fn nothing(_: *mut c_void) -> c_int {
        0
    }

    pub(super) fn functions(has_devices: bool, is_new: bool) -> &'static Functions {
        use crate::backend::symbol_table::SymbolTable as _;
        let find = |asked: &std::ffi::CStr| {
            let at: *const c_void = match asked.to_str().unwrap() {
                "ibv_get_device_list" if has_devices => list as *const c_void,
                "ibv_get_device_list" => no_list as *const c_void,
                "ibv_free_device_list" => free as *const c_void,
                "ibv_get_device_name" => name as *const c_void,
                "ibv_open_device" => open as *const c_void,
                "ibv_query_device" => device as *const c_void,
                "ibv_query_port" => port as *const c_void,
                "ibv_query_gid" => old_gid as *const c_void,
                "_ibv_query_gid_ex" if is_new => new_gid as *const c_void,
                "_ibv_query_gid_ex" | "ibv_reg_dmabuf_mr" => return None,
                _ => nothing as *const c_void,
            };
            Some(Addr::new(at.cast_mut()))
        };
        // SAFETY: every function that is called has the signature of its name.
        Box::leak(Box::new(unsafe { Functions::resolve(&find) }.unwrap()))
    }
}

#[test]
fn ports_are_seen_with_what_the_kernel_tells_of_their_device() {
    let sys = std::env::temp_dir().join(format!("dtl-places-{}", std::process::id()));
    fs::create_dir_all(sys.join("rxe0/device")).unwrap();
    let seen = look_in(library::functions(true, true), &sys, None).unwrap();
    let wanted = [port("rxe0", 1, PORT_ACTIVE, LINK_ETHERNET), port("rxe0", 2, 1, LINK_ETHERNET)];
    assert_eq!(seen, wanted);
    assert_eq!(seen[1].text(), "rxe0:2 (Ethernet, down)");
    // CPUs that no process has, and a kind of device without compatible queue pairs.
    fs::write(sys.join("rxe0/device/local_cpulist"), "200000-200001\n").unwrap();
    fs::write(sys.join("rxe0/node_type"), "4: RNIC\n").unwrap();
    let seen = look_in(library::functions(true, true), &sys, None).unwrap();
    assert!(!seen[0].is_near && seen[0].unfit.contains("4: RNIC"), "{seen:?}");
    fs::write(sys.join("rxe0/device/local_cpulist"), "0-200001\n").unwrap();
    fs::write(sys.join("rxe0/node_type"), "1: CA\n").unwrap();
    assert_eq!(look_in(library::functions(true, true), &sys, None).unwrap(), wanted);
    let why = look_in(library::functions(false, true), &sys, None).unwrap_err();
    assert!(why.starts_with("no RDMA device: the kernel knows of none"), "{why}");
    fs::remove_dir_all(sys).unwrap();
}

#[test]
fn ports_close_to_the_accelerator_come_first() {
    let root = std::env::temp_dir().join(format!("dtl-locality-{}", std::process::id()));
    let (sys, bus) = (root.join("class/infiniband"), root.join("bus/pci/devices"));
    fs::create_dir_all(&sys).unwrap();
    fs::create_dir_all(&bus).unwrap();
    let put = |path: &str, link: &Path| {
        let path = root.join("devices").join(path);
        fs::create_dir_all(&path).unwrap();
        std::os::unix::fs::symlink(path, link).unwrap();
    };
    // Under the accelerator's switch, under its host bridge, under another one, and no PCI device.
    put("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0", &bus.join("0000:02:01.0"));
    for (name, path) in [
        ("same_switch", "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:02.0"),
        ("same_bridge", "pci0000:00/0000:00:02.0"),
        ("other_bridge", "pci0000:80/0000:80:01.0"),
        ("virtual", "virtual/net"),
    ] {
        fs::create_dir(sys.join(name)).unwrap();
        put(path, &sys.join(name).join("device"));
    }
    let ports = |names: &[&str]| -> Vec<PortInfo> {
        names.iter().map(|name| port(name, 1, PORT_ACTIVE, LINK_INFINIBAND)).collect()
    };
    let near = |pci: &str, names: &[&str]| -> Vec<String> {
        let mut seen = ports(names);
        prefer_close_to(&sys, pci, &mut seen);
        seen.into_iter().filter(|port| port.is_near).map(|port| port.device).collect()
    };
    let all = ["other_bridge", "same_bridge", "virtual", "same_switch"];
    assert_eq!(near("0000:02:01.0", &all), ["same_switch"]);
    assert_eq!(near("0000:02:01.0", &all[..3]), ["same_bridge"]);
    // Nothing in common, or an address that does not exist: the CPUs decide.
    assert_eq!(near("0000:02:01.0", &["other_bridge", "virtual"]), ["other_bridge", "virtual"]);
    assert_eq!(near("0000:FF:00.0", &all), all);
    let mut seen = ports(&all);
    prefer_close_to(&sys, "0000:02:01.0", &mut seen);
    assert_eq!(names(choose_ports(&seen, &[], 1, 3)), ["same_switch:1"]);
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn addresses_are_seen_with_their_kind_by_the_library_or_the_kernel() {
    let folder = std::env::temp_dir().join(format!("dtl-gids-{}", std::process::id()));
    let types = folder.join("ports/1/gid_attrs/types");
    fs::create_dir_all(&types).unwrap();
    fs::write(types.join("1"), "RoCE v2\n").unwrap();
    let context = std::ptr::null_mut();
    let seen = gids(library::functions(true, true), context, 1, 1000, &folder);
    let of = |index, kind| gid(index, kind, IPV4);
    let wanted = [of(0, GidKind::InfiniBand), of(1, GidKind::RoceV1), of(2, GidKind::RoceV2)];
    assert_eq!(seen, wanted);
    let seen = gids(library::functions(true, false), context, 1, 1000, &folder);
    assert_eq!(seen, [of(0, GidKind::Unknown), of(1, GidKind::RoceV2)]);
    assert_eq!(gids(library::functions(true, false), context, 1, -1, &folder), []);
    fs::remove_dir_all(folder).unwrap();
}
