//! Configuration of an rdma communicator: `dtl_rdma_config_t`, with environment variables for the
//! fields that the struct leaves unset. The documentation of that struct in `src/abi/comm/rdma.rs`
//! describes the rules, the defaults and the reasons for the defaults.

use super::protocol::eager_slots::{LANES, RAILS};
use crate::abi::comm::rdma::*;
use crate::backend::bootstrap::oob_exchange::BootstrapMethod;
use crate::error::{Result, fail};
use crate::from_c;
use crate::runtime::settings;
use crate::sys::memory::buf::Addr;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::mem::offset_of;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Method of transferring messages in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Devices {
    /// Device memory is copied through host memory (staging).
    Staged,
    /// Large messages are transferred directly; the device memory is registered through its
    /// dma-buf.
    Dmabuf,
    /// Large messages are transferred directly; the device memory is registered by its address
    /// (nvidia_peermem).
    Peermem,
}

/// Resolved configuration, except for the values that depend on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Names of the devices to use, each with an optional port, in order of preference among
    /// devices that are equally close to the rank; empty for all active devices.
    pub devices: Vec<(String, Option<u8>)>,
    /// Number of ports (rails) used at once.
    pub rails: u32,
    /// Number of queue pairs per peer and rail.
    pub queues: u32,
    /// Index of the GID; `None` to choose automatically.
    pub gid_index: Option<u8>,
    /// Service level.
    pub service_level: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Exponent of the packet timeout: a packet is retransmitted after 4.096 us x 2^timeout.
    pub timeout: u8,
    /// Maximum number of retransmissions of a packet after a timeout.
    pub retries: u8,
    /// Maximum number of retransmissions of a message for which the receiver has no receive posted
    /// (RNR).
    pub receiver_retries: u8,
    /// Maximum payload of a packet in bytes, 256 to 4096; `None` for the port's active MTU.
    pub mtu: Option<u32>,
    /// Index of the partition key.
    pub pkey_index: u16,
    /// Number of receives posted per peer and queue pair.
    pub depth: u32,
    /// Requested maximum number of bytes that a work request carries inline.
    pub inline: u32,
    /// True if a waiting rank sleeps until its completion queue raises an event.
    pub sleeps: bool,
    /// True if the receiver transfers large messages by RDMA reads; false if the sender transfers
    /// them by RDMA writes.
    pub reads: bool,
    /// Method of transferring messages in device memory.
    pub device_memory: Devices,
    /// Maximum number of bytes of memory that stay registered for later messages, excluding the
    /// memory that the library always registers.
    pub cache_bytes: u64,
    /// Method by which the ranks bootstrap their connections; see `bootstrap::oob_exchange`.
    pub meeting: String,
    /// Address or network interface of the sockets that establish connections; empty: chosen
    /// automatically.
    pub address: String,
    /// Time, in milliseconds, after which a peer's machine that does not respond counts as failed.
    pub silence_ms: u32,
    /// Time limit, in milliseconds, for re-establishing a connection; 0 disables reconnection.
    pub reconnect_ms: u32,
}

/// Default of `Config::depth`, in receives.
pub const DEPTH: u32 = 16;
/// Default of `Config::inline`, in bytes.
pub const INLINE: u32 = 64;

impl Config {
    /// Resolves each field from the caller's struct, else from the environment, else from the
    /// default. `settings` is null or points to a `dtl_rdma_config_t`.
    pub fn resolve(settings: Addr) -> Result<Config> {
        let given = if settings.is_null() { Texts::new() } else { take(settings)? };
        Sources { given, variables: settings::current().fabric }.config()
    }

    /// Returns `reconnect_ms` in nanoseconds.
    pub fn reconnect_ns(&self) -> u64 {
        u64::from(self.reconnect_ms) * 1_000_000
    }
}

/// Configuration values that are set, by field name. Numbers are stored as strings, so that values
/// from all sources pass the same checks.
type Texts = BTreeMap<&'static str, String>;

/// Constants of an enumeration field, numbered from 1, each with the string that selects it in the
/// environment variable.
type Words = &'static [(&'static str, &'static str)];
const COMPLETION: Words = &[("DTL_RDMA_POLL", "poll"), ("DTL_RDMA_EVENT", "event")];
const RENDEZVOUS: Words = &[("DTL_RDMA_WRITE", "write"), ("DTL_RDMA_READ", "read")];
const DEVICE_MEMORY: Words = &[
    ("DTL_RDMA_STAGED", "staged"),
    ("DTL_RDMA_DMABUF", "dmabuf"),
    ("DTL_RDMA_PEERMEM", "peermem"),
];

/// Reads the fields that the caller's struct sets.
fn take(settings: Addr) -> Result<Texts> {
    // SAFETY: the caller of dtl_comm_open passes a struct of the size in its size field.
    let raw: dtl_rdma_config_t = unsafe { from_c::take(settings.ptr().cast(), "rdma") }?;
    for (name, value) in [("flags", raw.flags), ("reserved", u64::from(raw.reserved))] {
        if value != 0 {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "dtl_rdma_config_t.{name} is {value:#x}: no flag is known, use 0"
            );
        }
    }
    let mut given = Texts::new();
    for (name, text) in
        [("devices", raw.devices), ("meeting", raw.meeting), ("address", raw.address)]
    {
        // SAFETY: the caller of dtl_comm_open passes NULL or a NUL-terminated text.
        let text = unsafe { from_c::text_or_null(text, &format!("dtl_rdma_config_t.{name}")) }?;
        given.extend(text.map(|text| (name, text.to_owned())));
    }
    let numbers = [
        ("rails", raw.rails),
        ("queues", raw.queues),
        ("gid_index", raw.gid_index),
        ("service_level", raw.service_level),
        ("traffic_class", raw.traffic_class),
        ("timeout", raw.timeout),
        ("retries", raw.retries),
        ("receiver_retries", raw.receiver_retries),
        ("mtu", raw.mtu),
        ("pkey_index", raw.pkey_index),
        ("depth", raw.depth),
        ("inline_bytes", raw.inline_bytes),
        ("silence_ms", raw.silence_ms),
    ];
    let numbers = numbers.map(|(name, value)| (name, i64::from(value)));
    // Programs compiled for the struct's first version have no field `reconnect_ms`.
    let has_more = raw.struct_size as usize > offset_of!(dtl_rdma_config_t, reconnect_ms);
    let reconnect_ms = if has_more { raw.reconnect_ms } else { -1 };
    let numbers = numbers
        .into_iter()
        .chain([("cache_bytes", raw.cache_bytes), ("reconnect_ms", reconnect_ms)]);
    given.extend(
        numbers.filter(|(_, value)| *value != -1).map(|(name, value)| (name, value.to_string())),
    );
    let words = [
        ("completion", raw.completion, COMPLETION),
        ("rendezvous", raw.rendezvous, RENDEZVOUS),
        ("device_memory", raw.device_memory, DEVICE_MEMORY),
    ];
    for (name, value, words) in words.into_iter().filter(|(_, value, _)| *value != 0) {
        let word = usize::try_from(value).ok().and_then(|value| words.get(value.checked_sub(1)?));
        given.insert(name, word.map_or_else(|| value.to_string(), |(_, word)| (*word).to_owned()));
    }
    Ok(given)
}

/// Sources of the configuration's values.
struct Sources {
    /// Values that the caller's struct sets, by field name.
    given: Texts,
    /// Values of the environment variables, by variable name.
    variables: Texts,
}

impl Sources {
    fn config(&self) -> Result<Config> {
        Ok(Config {
            devices: self.text("devices", devices, DEVICES)?.unwrap_or_default(),
            rails: self.number("rails", 1..=RAILS as u32)?.unwrap_or(1),
            queues: self.number("queues", 1..=(LANES / RAILS) as u32)?.unwrap_or(1),
            gid_index: self.number("gid_index", 0..=255)?,
            service_level: self.number("service_level", 0..=15)?.unwrap_or(0),
            traffic_class: self.number("traffic_class", 0..=255)?.unwrap_or(0),
            timeout: self.number("timeout", 1..=31)?.unwrap_or(20),
            retries: self.number("retries", 0..=7)?.unwrap_or(7),
            receiver_retries: self.number("receiver_retries", 0..=7)?.unwrap_or(7),
            mtu: self.text("mtu", mtu, "256, 512, 1024, 2048 or 4096")?,
            pkey_index: self.number("pkey_index", 0..=u16::MAX)?.unwrap_or(0),
            depth: self.number("depth", 4..=4096)?.unwrap_or(DEPTH),
            inline: self.number("inline_bytes", 0..=1024)?.unwrap_or(INLINE),
            sleeps: self.word("completion", COMPLETION)? == Some("event"),
            reads: self.word("rendezvous", RENDEZVOUS)? == Some("read"),
            device_memory: match self.word("device_memory", DEVICE_MEMORY)? {
                Some("dmabuf") => Devices::Dmabuf,
                Some("peermem") => Devices::Peermem,
                _ => Devices::Staged,
            },
            cache_bytes: self
                .text("cache_bytes", bytes, "bytes: 0, 4096, 512M, 2G …")?
                .unwrap_or(1 << 30),
            meeting: self.text("meeting", meeting, MEETING)?.unwrap_or_else(|| "auto".to_owned()),
            address: self
                .text("address", address, "an IP address or the name of a network interface")?
                .unwrap_or_default(),
            silence_ms: self.number("silence_ms", 100..=600_000)?.unwrap_or(5000),
            reconnect_ms: self.number("reconnect_ms", 0..=600_000)?.unwrap_or(5000),
        })
    }

    /// Returns the value of field `name`, parsed by `read`; returns `None` if the field is not set.
    /// The error message for an invalid value contains its source (struct field or environment
    /// variable) and the `allowed` values.
    fn text<T>(
        &self,
        name: &str,
        read: impl Fn(&str) -> Option<T>,
        allowed: &str,
    ) -> Result<Option<T>> {
        let variable = format!("DTL_RDMA_{}", name.to_uppercase());
        let given = self.given.get(name);
        let text = given.or_else(|| self.variables.get(variable.as_str()));
        let Some(text) = text else { return Ok(None) };
        match read(text) {
            None if given.is_some() => fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "dtl_rdma_config_t.{name} is {text}: use {allowed}; DTL_RDMA_CONFIG_INIT leaves it \
                 open"
            ),
            None => {
                fail!(DTL_ERROR_INVALID_ARGUMENT, "{variable}={text}: use {allowed}; or unset it")
            }
            value => Ok(value),
        }
    }

    fn number<T>(&self, name: &str, allowed: RangeInclusive<T>) -> Result<Option<T>>
    where
        T: FromStr + PartialOrd + Display,
    {
        let read = |text: &str| text.parse().ok().filter(|value| allowed.contains(value));
        self.text(name, read, &format!("{} to {}", allowed.start(), allowed.end()))
    }

    fn word(&self, name: &str, words: Words) -> Result<Option<&'static str>> {
        let read = |text: &str| words.iter().find(|(_, word)| *word == text).map(|(_, word)| *word);
        let allowed: Vec<_> =
            words.iter().map(|(constant, word)| format!("{constant} ({word})")).collect();
        self.text(name, read, &allowed.join(", "))
    }
}

const DEVICES: &str =
    "names of devices, each once, with a port of 1 to 255 if that matters: mlx5_0:1,mlx5_1";

fn devices(text: &str) -> Option<Vec<(String, Option<u8>)>> {
    let mut all = Vec::new();
    if text.is_empty() {
        return Some(all);
    }
    for one in text.split(',').map(str::trim) {
        let (name, port) = match one.split_once(':') {
            Some((name, port)) => (name, Some(port.parse().ok().filter(|port| *port > 0)?)),
            None => (one, None),
        };
        let one = (name.to_owned(), port);
        // A device without a port stands for all ports of the device.
        let is_twice = all.iter().any(|(other, of): &(String, Option<u8>)| {
            *other == one.0 && (of.is_none() || port.is_none() || *of == port)
        });
        // The name is also the name of a folder below /sys, so it must not contain a slash.
        if name.is_empty() || name.contains(['/', ' ']) || name.starts_with('.') || is_twice {
            return None;
        }
        all.push(one);
    }
    Some(all)
}

fn mtu(text: &str) -> Option<u32> {
    text.parse().ok().filter(|bytes| [256, 512, 1024, 2048, 4096].contains(bytes))
}

fn bytes(text: &str) -> Option<u64> {
    settings::bytes("", text).ok()
}

const MEETING: &str = "auto, over, mpi, shm or the name of a registered kind, file:PATH or \
    tcp:HOST:PORT (IPv6 in brackets)";

fn meeting(text: &str) -> Option<String> {
    let text = if text.is_empty() { "auto" } else { text };
    BootstrapMethod::parse(text).is_ok().then(|| text.to_owned())
}

/// Longest name of a network interface, in bytes (IFNAMSIZ of Linux, minus the NUL).
const INTERFACE_NAME: usize = 15;

fn address(text: &str) -> Option<String> {
    let is_name = text.len() <= INTERFACE_NAME && !text.contains(['/', ':', ' ']);
    (is_name || text.parse::<IpAddr>().is_ok()).then(|| text.to_owned())
}

#[cfg(test)]
#[path = "tests/config.rs"]
mod tests;
