//! Compares the RDMA devices that libdtl finds with those of the crate `ibverbs`, and registers
//! memory of the library with a device.
//!
//! Usage: oracle-ibverbs. Without an error it exits with 0 and prints what both have found. The
//! verbs provider and the CUDA driver may be the fake ones of tests/rdma and tests/cuda.

#![allow(clippy::print_stdout, reason = "what both have found is the output of the program")]

mod register;

use dtl_binding::{Backend, Comm, Open, call, sys};
use std::collections::BTreeSet;
use std::io::ErrorKind;

/// Name that no device has: the error of the library then lists those that there are.
const NO_DEVICE: &std::ffi::CStr = c"no-such-device";

/// Facts of port 1 of a device.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Port {
    device: String,
    /// True if its link layer is Ethernet; `None` if that is unknown, because it is not active.
    is_ethernet: Option<bool>,
}

/// Returns the devices by the crate `ibverbs`.
fn by_ibverbs() -> BTreeSet<Port> {
    let list = match ibverbs::devices() {
        Ok(list) => list,
        // The kernel has no RDMA support.
        Err(error) if error.kind() == ErrorKind::Unsupported => return BTreeSet::new(),
        Err(error) => panic!("ibverbs::devices: {error}"),
    };
    let port = |device: ibverbs::Device<'_>| {
        let name = device.name().expect("ibv_get_device_name").to_str().unwrap().to_owned();
        // `open` fails if port 1 is not active.
        let is_ethernet = device.open().ok().map(|context| {
            let kinds = context.gid_table().iter().map(|entry| entry.gid_type);
            kinds.clone().all(|kind| kind != ibverbs_sys::IBV_GID_TYPE_IB)
        });
        Port { device: name, is_ethernet }
    };
    list.iter().map(port).collect()
}

/// Returns the devices by the library, from the text of an error: "there are mlx5_0:1 (InfiniBand,
/// active), ...".
fn by_dtl() -> BTreeSet<Port> {
    let own = Comm::open(&Open { kind: "self", place: Some((0, 1)), ..Open::default() }).unwrap();
    let mut config = sys::DTL_RDMA_CONFIG_INIT;
    config.devices = NO_DEVICE.as_ptr();
    let desc = sys::dtl_comm_desc_t {
        kind: c"rdma".as_ptr(),
        over: own.raw(),
        rdma: &raw const config,
        ..sys::DTL_COMM_DESC_INIT
    };
    let mut out = sys::DTL_COMM_NULL;
    // SAFETY: the description and what it points to live through the call; the output is a local.
    let error = unsafe { call!(dtl_comm_open(&raw const desc, &raw mut out)) }.unwrap_err();
    let numbered = |name: &str, is_ethernet| {
        let (device, number) = name.rsplit_once(':').unwrap_or_else(|| panic!("{name}: {error}"));
        (number == "1").then(|| Port { device: device.to_owned(), is_ethernet })
    };
    if let Some(reason) = Backend::find("rdma").unwrap().unavailable().unwrap() {
        println!("libdtl: {reason}");
        if let Some(list) = reason.strip_prefix("no active RDMA port: ") {
            let down = list.split("; ").filter_map(|text| text.strip_suffix(" is down"));
            return down.filter_map(|name| numbered(name, None)).collect();
        }
        assert!(reason.starts_with("no RDMA device"), "{reason}");
        return BTreeSet::new();
    }
    let (_, list) = error.text.split_once("there are ").unwrap_or_else(|| panic!("{error}"));
    let port = |text: &str| {
        let (name, facts) = text.split_once(" (").unwrap_or_else(|| panic!("{list}"));
        numbered(name, facts.contains(", active").then(|| facts.starts_with("Ethernet")))
    };
    list.split("), ").filter_map(port).collect()
}

fn main() {
    let (ours, theirs) = (by_dtl(), by_ibverbs());
    assert_eq!(ours, theirs);
    println!("both have found {} devices: {ours:?}", ours.len());
    if ours.iter().any(|port| port.is_ethernet.is_some()) {
        register::all();
    }
}
