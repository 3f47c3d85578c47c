//! How an rdma communicator is made: `dtl_rdma_config_t`, with what the environment says in the place of what it leaves open.

/// Everything decided that does not depend on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Devices to use, each with its port, the first that fits the rank's place first; empty: all that are active.
    pub devices: Vec<(String, Option<u8>)>,
    /// Devices (rails) used at once.
    pub rails: u32,
    /// Queue pairs for each peer and rail.
    pub queues: u32,
    /// Index of the GID; `None`: chosen.
    pub gid_index: Option<u8>,
    /// Service level.
    pub service_level: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Time until a packet is sent again: 4.096 µs x 2^timeout.
    pub timeout: u8,
    /// How often it is sent again.
    pub retries: u8,
    /// How often, where the receiver had no receive posted.
    pub receiver_retries: u8,
    /// Bytes of a packet at most, 256 … 4096; `None`: what the port has.
    pub mtu: Option<u32>,
    /// Index of the partition key.
    pub pkey_index: u16,
    /// Receives posted for each peer (and queue pair).
    pub depth: u32,
    /// Bytes of a message that are wanted inside of its work request.
    pub inline: u32,
    /// Whether a waiting rank sleeps until its completion queue wakes it.
    pub sleeps: bool,
    /// Whether a large message is read by its receiver, not written by its sender.
    pub reads: bool,
    /// Bytes registered at most beside what is always so.
    pub cache_bytes: u64,
    /// How the ranks meet, see `meet`.
    pub meeting: String,
    /// The address or the network interface of the sockets by which connections are made; empty: chosen.
    pub address: String,
    /// Silence in milliseconds after which a peer's machine counts as dead.
    pub silence_ms: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            devices: Vec::new(),
            rails: 1,
            queues: 1,
            gid_index: None,
            service_level: 0,
            traffic_class: 0,
            timeout: 20,
            retries: 7,
            receiver_retries: 7,
            mtu: None,
            pkey_index: 0,
            depth: 16,
            inline: 64,
            sleeps: false,
            reads: false,
            cache_bytes: 1 << 30,
            meeting: String::from("auto"),
            address: String::new(),
            silence_ms: 5000,
        }
    }
}
