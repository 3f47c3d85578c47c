//! Choice of the ports that a rank uses, and of the address (GID) of each port. The choices are
//! pure functions of the discovered ports and addresses, which `look` and `gids` read through
//! libibverbs and from files below /sys. No device stays open after these calls.

use super::discovery::DeviceList;
use super::functions::*;
use super::types::*;
use crate::sys::os::process;
use std::path::Path;

/// Directory where the kernel lists RDMA devices.
pub(super) const SYS: &str = "/sys/class/infiniband";

/// Port of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// Name of the device.
    pub device: String,
    /// Number of the port within its device, starting at 1.
    pub port: u8,
    /// Port state as reported by libibverbs, for example `PORT_ACTIVE`.
    pub state: u32,
    /// Link layer: `LINK_INFINIBAND` or `LINK_ETHERNET`.
    pub layer: u8,
    /// True if no other device is closer to the accelerator that the rank uses. Without an
    /// accelerator in the same PCI hierarchy: true if this process may run on CPUs close to the
    /// device, or if that is unknown.
    pub is_near: bool,
    /// Reason why the device cannot be used; empty if it can.
    pub unfit: String,
}

impl PortInfo {
    /// Returns a description of the port, such as "mlx5_0:1 (InfiniBand, active)".
    pub fn text(&self) -> String {
        let layer = match u32::from(self.layer) {
            LINK_ETHERNET => "Ethernet",
            _ => "InfiniBand",
        };
        format!("{} ({layer}, {})", self.label(), state(self.state))
    }

    fn label(&self) -> String {
        format!("{}:{}", self.device, self.port)
    }
}

/// Returns the name of a port state as ibv_devinfo prints it.
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

/// Result of [`choose_ports`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Device name and port number of each chosen port; at least one port.
    pub ports: Vec<(String, u8)>,
    /// Message for each rejected port: the name of the port and the reason for the rejection.
    pub passed_over: Vec<String>,
}

/// Chooses the ports for the rank with node-local rank `local_rank`. Candidates are the active
/// ports among those that `wanted` names (all ports if it is empty); ports that are near
/// (`PortInfo::is_near`) come first. The function chooses `rails` ports (at least one), or fewer if
/// there are fewer candidates. The first port depends on `local_rank`, so that the ranks of a node
/// are distributed over the ports. `Err` is the reason why no port can be used.
///
/// If `wanted` is empty, all chosen ports have the same link layer, because ports with different
/// link layers cannot reach each other. This link layer is InfiniBand if at least one InfiniBand
/// port is active.
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
            choice.passed_over.push(format!("{}: {}", port.label(), port.unfit));
        } else if port.state != PORT_ACTIVE {
            choice.passed_over.push(format!("{} is {}", port.label(), state(port.state)));
        } else {
            usable.push(port);
        }
    }
    let infiniband = |port: &PortInfo| u32::from(port.layer) == LINK_INFINIBAND;
    if wanted.is_empty() && usable.iter().any(|port| infiniband(port)) {
        let others = usable.iter().filter(|port| !infiniband(port));
        let why = |port: &&PortInfo| format!("{} is Ethernet, others are InfiniBand", port.label());
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
    // Ranks share the close ports; distant ports are used only if there are too few close ports.
    for group in [&mut near, &mut far] {
        let first = rails as usize * local_rank as usize % group.len().max(1);
        group.rotate_left(first);
    }
    let ports = near.iter().chain(&far).take(rails.max(1) as usize);
    choice.ports = ports.map(|port| (port.device.clone(), port.port)).collect();
    Ok(choice)
}

/// Returns the ports that `wanted` names, in that order; all ports if `wanted` is empty.
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

/// GID type of a port's address: encapsulation of the packets sent to the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidKind {
    /// InfiniBand address.
    InfiniBand,
    /// RoCE v1: Ethernet frames, not routed.
    RoceV1,
    /// RoCE v2: UDP.
    RoceV2,
    /// Neither libibverbs nor the kernel reports the GID type.
    Unknown,
}

/// Address (GID) of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidInfo {
    /// Index of the address in the port's GID table.
    pub index: u8,
    /// GID type, which determines the encapsulation of packets sent to the address.
    pub kind: GidKind,
    /// Bytes of the address.
    pub gid: Gid,
}

/// Chooses one of a port's addresses and returns its index. On Ethernet the order of preference is:
/// RoCE v2 with IPv4, RoCE v2 with a global IPv6 address, RoCE v2 with a link-local IPv6 address,
/// RoCE v1. On InfiniBand the index is always 0. On Ethernet, returns `None` if the port has no
/// address.
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
    gid.0.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF])
}

fn is_link_local(gid: &Gid) -> bool {
    gid.0.starts_with(&[0xFE, 0x80])
}

/// Returns true if packets to an address need a global route header (GRH): always on Ethernet, on
/// InfiniBand only if the address is in another subnet.
pub fn needs_route(layer: u8, ours: &Gid, theirs: &Gid) -> bool {
    u32::from(layer) == LINK_ETHERNET || ours.0.first_chunk::<8>() != theirs.0.first_chunk::<8>()
}

/// Lists the ports of all devices that can be opened and queried. `accelerator` is the PCI address
/// of the accelerator that the rank uses, if it is known. If there are no ports, `Err` describes
/// the reason for each device.
pub fn look(calls: &'static Functions, accelerator: Option<&str>) -> Result<Vec<PortInfo>, String> {
    // Occupies descriptors 0 to 2 so that libibverbs opens no file as a standard stream.
    let _places = process::occupy_standard();
    look_in(calls, Path::new(SYS), accelerator)
}

fn look_in(
    calls: &'static Functions,
    sys: &Path,
    accelerator: Option<&str>,
) -> Result<Vec<PortInfo>, String> {
    let list = DeviceList::get(calls)?;
    let (mut seen, mut reasons) = (Vec::new(), Vec::new());
    for (device, name) in list.devices() {
        // SAFETY: `device` is a device of the list, which is alive.
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
        // SAFETY: the device was opened above, and no object was created in it.
        unsafe { (calls.ibv_close_device)(context) };
    }
    if let Some(pci) = accelerator {
        prefer_close_to(sys, pci, &mut seen);
    }
    if seen.is_empty() { Err(format!("no RDMA port: {}", reasons.join("; "))) } else { Ok(seen) }
}

/// Marks the ports as near whose devices share the longest part of the path through the PCI
/// hierarchy with the accelerator at the address `pci`. Has no effect if no device shares a part.
fn prefer_close_to(sys: &Path, pci: &str, seen: &mut [PortInfo]) {
    let address = pci.to_ascii_lowercase();
    let path = pci_path(&sys.join("../../bus/pci/devices").join(address));
    let shared: Vec<usize> = seen
        .iter()
        .map(|port| pci_path(&sys.join(&port.device).join("device")))
        .map(|own| own.iter().zip(&path).take_while(|(own, other)| own == other).count())
        .collect();
    let longest = shared.iter().max().copied().unwrap_or(0);
    for (port, shared) in seen.iter_mut().zip(shared).filter(|_| longest > 0) {
        port.is_near = shared == longest;
    }
}

/// Returns the path of a device through the PCI hierarchy, beginning with the host bridge, such as
/// `["pci0000:00", "0000:00:01.0", "0000:01:00.0"]`. Empty if it has none.
fn pci_path(link: &Path) -> Vec<String> {
    let path = std::fs::canonicalize(link).unwrap_or_default();
    let names = path.iter().map(|name| name.to_string_lossy().into_owned());
    names
        .skip_while(|name| !name.starts_with("pci"))
        .take_while(|name| name.contains(':'))
        .collect()
}

fn ports_of(calls: &Functions, context: ContextIn, name: &str, sys: &Path) -> Vec<PortInfo> {
    let mut device = DeviceAttr::zeroed();
    // SAFETY: the device is open, and `device` has room for the attributes.
    if unsafe { (calls.ibv_query_device)(context, &raw mut device) } != 0 {
        return Vec::new();
    }
    let (unfit, is_near) = (unfit(sys, name), is_near(sys, name, &process::affinity()));
    let port = |port| {
        let mut attributes = PortAttr::zeroed();
        // SAFETY: the device belongs to the caller, is open and outlives this call; the last
        // argument has room for the port's attributes.
        let answer = unsafe { (calls.ibv_query_port)(context, port, &raw mut attributes) };
        let (device, unfit) = (name.to_owned(), unfit.clone());
        let seen = PortInfo {
            device,
            port,
            state: attributes.state,
            layer: attributes.link_layer,
            is_near,
            unfit,
        };
        (answer == 0).then_some(seen)
    };
    (1..=device.phys_port_cnt).filter_map(port).collect()
}

fn attribute(sys: &Path, file: &str) -> Option<String> {
    std::fs::read_to_string(sys.join(file)).ok().map(|text| text.trim().to_owned())
}

/// Returns true if one of the CPUs `own` is close to the device, or if `own` is empty. Devices
/// without a PCI slot (soft-RoCE) are close to all CPUs.
fn is_near(sys: &Path, name: &str, own: &[usize]) -> bool {
    let cpus = attribute(sys, &format!("{name}/device/local_cpulist"));
    let cpus = cpus.map(|text| process::listed(&text)).unwrap_or_default();
    cpus.is_empty() || own.is_empty() || cpus.iter().any(|cpu| own.contains(cpu))
}

/// Returns the reason why a device cannot be used; the string is empty if no reason is known. The
/// device's `node_type` attribute in sysfs begins with a number, which is 1 for InfiniBand and
/// RoCE.
fn unfit(sys: &Path, name: &str) -> String {
    match attribute(sys, &format!("{name}/node_type")) {
        Some(kind) if !kind.starts_with("1:") => {
            format!("neither InfiniBand nor RoCE (\"{kind}\")")
        }
        _ => String::new(),
    }
}

/// Maximum number of GID table entries that are read: the address attributes of a queue pair store
/// the GID index in one byte.
const MOST_GIDS: u32 = 256;

/// Returns the GIDs of a port of an open device, read from the first `count` entries of the port's
/// GID table. `count` is the port's `gid_tbl_len`. `device` is the device's directory in sysfs.
pub(super) fn gids(
    calls: &Functions,
    context: ContextIn,
    port: u8,
    count: i32,
    device: &Path,
) -> Vec<GidInfo> {
    let count = u32::try_from(count).unwrap_or(0).min(MOST_GIDS);
    let one = |index: u32| {
        let (answer, kind, gid) = match calls._ibv_query_gid_ex {
            Some(query) => {
                let mut entry = GidEntry::zeroed();
                // SAFETY: the device is open; `entry` has room for an entry of the size that is
                // passed. The call reports an error for empty entries.
                let answer = unsafe {
                    query(context, u32::from(port), index, &raw mut entry, 0, size_of::<GidEntry>())
                };
                let kind = match entry.gid_type {
                    GID_TYPE_IB => GidKind::InfiniBand,
                    GID_TYPE_ROCE_V1 => GidKind::RoceV1,
                    GID_TYPE_ROCE_V2 => GidKind::RoceV2,
                    _ => GidKind::Unknown,
                };
                (answer, kind, entry.gid)
            }
            None => {
                let mut gid = Gid::default();
                // SAFETY: the device is open; `gid` has room for an address.
                let answer =
                    unsafe { (calls.ibv_query_gid)(context, port, index as i32, &raw mut gid) };
                let attributes =
                    attribute(device, &format!("ports/{port}/gid_attrs/types/{index}"));
                let kind = match attributes.as_deref() {
                    Some("RoCE v2") => GidKind::RoceV2,
                    Some("IB/RoCE v1") => GidKind::RoceV1,
                    _ => GidKind::Unknown,
                };
                (answer, kind, gid)
            }
        };
        let index = u8::try_from(index).ok()?;
        (answer == 0 && gid != Gid::default()).then_some(GidInfo { index, kind, gid })
    };
    (0..count).filter_map(one).collect()
}

#[cfg(test)]
#[path = "tests/port_select.rs"]
mod tests;
