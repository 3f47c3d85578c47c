//! Which ports a rank uses, and by which of a port's addresses (GIDs) it is reached. The choices
//! are pure functions of what was seen; `look` and `gids` see it, in the library and below /sys.
//! Nothing stays open here.

use super::discovery::{DeviceList, Verbs};
use super::functions::*;
use super::types::*;
use crate::sys::os::hwinfo;
use std::path::Path;

/// Directory where the kernel lists RDMA devices.
const SYS: &str = "/sys/class/infiniband";

/// A port of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// The device's name.
    pub device: String,
    /// 1 and up.
    pub port: u8,
    /// The library's value: `PORT_ACTIVE` and others.
    pub state: u32,
    /// `LINK_INFINIBAND` or `LINK_ETHERNET`.
    pub layer: u8,
    /// Whether this process may run on CPUs next to it; true if that is unknown.
    pub is_near: bool,
    /// Why its device is of no use; empty: it is.
    pub unfit: String,
}

impl PortInfo {
    /// "mlx5_0:1 (InfiniBand, active)".
    #[must_use]
    pub fn text(&self) -> String {
        let layer = match u32::from(self.layer) {
            LINK_ETHERNET => "Ethernet",
            _ => "InfiniBand",
        };
        format!("{}:{} ({layer}, {})", self.device, self.port, state(self.state))
    }
}

/// The state in ibv_devinfo's words.
fn state(state: u32) -> &'static str {
    match state {
        1 => "down",
        2 => "initializing",
        3 => "armed",
        PORT_ACTIVE => "active",
        5 => "active, but its link is down for now",
        _ => "in an unknown state",
    }
}

/// What was chosen of the ports that were seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Device and port of each rail; at least one.
    pub ports: Vec<(String, u8)>,
    /// What was passed over, and why; for people.
    pub passed_over: Vec<String>,
}

/// Chooses the ports for the rank that is number `local_rank` on its node: among those of `wanted`
/// (empty: all) that are active, near ones first, `rails` of them (fewer if there are no more),
/// beginning at another one for each rank. `Err` is the reason why there is none.
///
/// Where nobody named devices, all are of one link layer, InfiniBand if it has an active port:
/// ports of two do not reach each other.
pub fn choose_ports(
    seen: &[PortInfo],
    wanted: &[(String, Option<u8>)],
    rails: u32,
    local_rank: u32,
) -> Result<Choice, String> {
    let mut choice = Choice::default();
    let mut usable: Vec<&PortInfo> = Vec::new();
    for port in named(seen, wanted)? {
        if !port.unfit.is_empty() {
            choice.passed_over.push(format!("{}:{}: {}", port.device, port.port, port.unfit));
        } else if port.state != PORT_ACTIVE {
            choice.passed_over.push(format!(
                "{}:{} is {}",
                port.device,
                port.port,
                state(port.state)
            ));
        } else {
            usable.push(port);
        }
    }
    let infiniband = |port: &PortInfo| u32::from(port.layer) == LINK_INFINIBAND;
    if wanted.is_empty() && usable.iter().any(|port| infiniband(port)) {
        let others = usable.iter().filter(|port| !infiniband(port));
        let why = |port: &&PortInfo| {
            format!("{}:{} is Ethernet, others are InfiniBand", port.device, port.port)
        };
        choice.passed_over.extend(others.map(why));
        usable.retain(|port| infiniband(port));
    }
    if usable.is_empty() {
        return Err(format!(
            "no active RDMA port: {}; \"rdma link\" or ibv_devinfo show them",
            choice.passed_over.join("; ")
        ));
    }
    let (mut near, mut far): (Vec<_>, Vec<_>) = usable.into_iter().partition(|port| port.is_near);
    // Ranks share out the near ones; only if there is none, or not enough, the others.
    for group in [&mut near, &mut far] {
        let first = rails as usize * local_rank as usize % group.len().max(1);
        group.rotate_left(first);
    }
    let ports = near.iter().chain(&far).take(rails.max(1) as usize);
    choice.ports = ports.map(|port| (port.device.clone(), port.port)).collect();
    Ok(choice)
}

/// The ports that are wanted, in the order in which they are.
fn named<'a>(
    seen: &'a [PortInfo],
    wanted: &[(String, Option<u8>)],
) -> Result<Vec<&'a PortInfo>, String> {
    if wanted.is_empty() {
        return Ok(seen.iter().collect());
    }
    let mut all: Vec<&PortInfo> = Vec::new();
    for (name, number) in wanted {
        let before = all.len();
        let is_it = |port: &&PortInfo| {
            port.device == *name && number.is_none_or(|number| number == port.port)
        };
        all.extend(seen.iter().filter(is_it));
        if all.len() == before {
            let number = number.map_or(String::new(), |number| format!(":{number}"));
            let there: Vec<_> = seen.iter().map(PortInfo::text).collect();
            return Err(format!(
                "no RDMA port {name}{number}, which devices (DTL_RDMA_DEVICES) names; there are {}",
                there.join(", ")
            ));
        }
    }
    Ok(all)
}

/// How an address of a port goes over the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidKind {
    /// InfiniBand's.
    InfiniBand,
    /// RoCE v1: Ethernet frames, not routed.
    RoceV1,
    /// RoCE v2: UDP.
    RoceV2,
    /// Neither the library nor the kernel reports it.
    Unknown,
}

/// An address of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidInfo {
    /// Its place in the port's table.
    pub index: u8,
    /// How it travels.
    pub kind: GidKind,
    /// Its bytes.
    pub gid: Gid,
}

/// Which of a port's addresses to use: over Ethernet RoCE v2 with IPv4 first, then with a global
/// IPv6 address, then with a link-local one, then RoCE v1; over InfiniBand that at 0. `None`: there
/// is none.
#[must_use]
pub fn choose_gid(entries: &[GidInfo], layer: u8) -> Option<u8> {
    if u32::from(layer) != LINK_ETHERNET {
        return Some(0);
    }
    let preference = |entry: &&GidInfo| match entry.kind {
        GidKind::RoceV2 if is_ipv4(&entry.gid) => 0,
        GidKind::RoceV2 if !is_link_local(&entry.gid) => 1,
        GidKind::RoceV2 => 2,
        GidKind::RoceV1 => 3,
        GidKind::InfiniBand | GidKind::Unknown => 4,
    };
    entries.iter().min_by_key(|entry| (preference(entry), entry.index)).map(|entry| entry.index)
}

fn is_ipv4(gid: &Gid) -> bool {
    gid.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF])
}

fn is_link_local(gid: &Gid) -> bool {
    gid.starts_with(&[0xFE, 0x80])
}

/// Whether packets to an address need a route header (GRH): always over Ethernet, over InfiniBand
/// to another subnet.
#[must_use]
pub fn needs_route(layer: u8, ours: &Gid, theirs: &Gid) -> bool {
    u32::from(layer) == LINK_ETHERNET || ours.first_chunk::<8>() != theirs.first_chunk::<8>()
}

/// Lists every port of every device; devices are opened and closed again. `Err` is the reason why
/// there is none.
pub fn look(verbs: &Verbs) -> Result<Vec<PortInfo>, String> {
    look_in(verbs.calls, Path::new(SYS))
}

fn look_in(calls: &'static Functions, sys: &Path) -> Result<Vec<PortInfo>, String> {
    let list = DeviceList::get(calls)?;
    let (mut seen, mut reasons) = (Vec::new(), Vec::new());
    for (device, name) in list.devices() {
        // SAFETY: a device of the list, which lives.
        let context = unsafe { (calls.ibv_open_device)(device.ptr()) };
        if context.is_null() {
            reasons.push(format!("{name} cannot be opened: {}", std::io::Error::last_os_error()));
            continue;
        }
        let before = seen.len();
        seen.extend(ports_of(calls, context, &name, sys));
        if seen.len() == before {
            reasons.push(format!("{name} tells of no port"));
        }
        // SAFETY: opened above, and nothing was made in it.
        unsafe { (calls.ibv_close_device)(context) };
    }
    if seen.is_empty() { Err(format!("no RDMA port: {}", reasons.join("; "))) } else { Ok(seen) }
}

fn ports_of(calls: &Functions, context: ContextIn, name: &str, sys: &Path) -> Vec<PortInfo> {
    let mut device = DeviceAttr::zeroed();
    // SAFETY: an open device; room for its answer.
    if unsafe { (calls.ibv_query_device)(context, &raw mut device) } != 0 {
        return Vec::new();
    }
    let (unfit, is_near) = (unfit(sys, name), is_near(sys, name, &hwinfo::affinity()));
    let port = |port| {
        let mut told = PortAttr::zeroed();
        // SAFETY: the caller's open device, which outlives this call; room for the port's
        // attributes.
        let answer = unsafe { (calls.ibv_query_port)(context, port, &raw mut told) };
        let (device, unfit) = (name.to_owned(), unfit.clone());
        let seen =
            PortInfo { device, port, state: told.state, layer: told.link_layer, is_near, unfit };
        (answer == 0).then_some(seen)
    };
    (1..=device.phys_port_cnt).filter_map(port).collect()
}

fn attribute(sys: &Path, file: &str) -> Option<String> {
    std::fs::read_to_string(sys.join(file)).ok().map(|text| text.trim().to_owned())
}

/// Whether one of `own` CPUs is next to the device. Devices without a slot (soft-RoCE) are next to
/// all.
fn is_near(sys: &Path, name: &str, own: &[usize]) -> bool {
    let cpus = attribute(sys, &format!("{name}/device/local_cpulist"));
    let cpus = cpus.map(|text| hwinfo::listed(&text)).unwrap_or_default();
    cpus.is_empty() || own.is_empty() || cpus.iter().any(|cpu| own.contains(cpu))
}

/// Why a device is of no use; empty: nothing known against it. The kernel's words begin with a
/// number: 1 for InfiniBand and RoCE.
fn unfit(sys: &Path, name: &str) -> String {
    match attribute(sys, &format!("{name}/node_type")) {
        Some(kind) if !kind.starts_with("1:") => {
            format!("neither InfiniBand nor RoCE (\"{kind}\")")
        }
        _ => String::new(),
    }
}

/// Most entries of a port's table that are looked at: an index in a queue pair's address has a
/// byte.
const MOST_GIDS: u32 = 256;

/// The addresses of a port of an open device, of whose table `count` are to be looked at
/// (`gid_tbl_len`).
#[must_use]
pub fn gids(
    calls: &Functions,
    context: ContextIn,
    device: &str,
    port: u8,
    count: i32,
) -> Vec<GidInfo> {
    gids_in(calls, context, port, count, &Path::new(SYS).join(device))
}

fn gids_in(
    calls: &Functions,
    context: ContextIn,
    port: u8,
    count: i32,
    device: &Path,
) -> Vec<GidInfo> {
    let count = u32::try_from(count).unwrap_or(0).min(MOST_GIDS);
    let one = |index: u32| {
        let (kind, gid) = match calls._ibv_query_gid_ex {
            Some(query) => {
                let mut entry = GidEntry::zeroed();
                // SAFETY: an open device; room for an entry of the size that is passed. Empty ones
                // are an error.
                let answer = unsafe {
                    query(context, u32::from(port), index, &raw mut entry, 0, size_of::<GidEntry>())
                };
                let kind = match entry.gid_type {
                    GID_TYPE_IB => GidKind::InfiniBand,
                    GID_TYPE_ROCE_V1 => GidKind::RoceV1,
                    GID_TYPE_ROCE_V2 => GidKind::RoceV2,
                    _ => GidKind::Unknown,
                };
                let [high, low] = entry.gid.map(u64::to_ne_bytes);
                let mut gid = Gid::default();
                for (byte, from) in gid.iter_mut().zip(high.into_iter().chain(low)) {
                    *byte = from;
                }
                (answer == 0).then_some((kind, gid))?
            }
            None => {
                let mut gid = Gid::default();
                // SAFETY: an open device; room for an address.
                let answer =
                    unsafe { (calls.ibv_query_gid)(context, port, index as i32, &raw mut gid) };
                let told = attribute(device, &format!("ports/{port}/gid_attrs/types/{index}"));
                let kind = match told.as_deref() {
                    Some("RoCE v2") => GidKind::RoceV2,
                    Some("IB/RoCE v1") => GidKind::RoceV1,
                    _ => GidKind::Unknown,
                };
                (answer == 0).then_some((kind, gid))?
            }
        };
        (gid != Gid::default()).then_some(GidInfo { index: u8::try_from(index).ok()?, kind, gid })
    };
    (0..count).filter_map(one).collect()
}

#[cfg(test)]
mod tests;
