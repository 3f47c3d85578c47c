//! RDMA: configuration of a communicator of kind "rdma".
//! dtl: header(dtl_rdma.h)

use std::ffi::c_char;

/// dtl_rdma_config_t.completion: a waiting rank busy-polls its device; after 1 to 2 ms of waiting
/// it sleeps between polls. Lowest latency.
pub const DTL_RDMA_POLL: i32 = 1;
/// dtl_rdma_config_t.completion: a rank that has waited a while sleeps until its device wakes it.
pub const DTL_RDMA_EVENT: i32 = 2;

/// dtl_rdma_config_t.rendezvous: the sender of a large message writes it to the receiver's memory.
pub const DTL_RDMA_WRITE: i32 = 1;
/// dtl_rdma_config_t.rendezvous: the receiver of a large message reads it from the sender's memory.
pub const DTL_RDMA_READ: i32 = 2;

/// dtl_rdma_config_t.device_memory: messages are staged through host memory.
pub const DTL_RDMA_STAGED: i32 = 1;
/// dtl_rdma_config_t.device_memory: large messages go without staging, for memory of any backend
/// that gives dma-bufs (dtl_mem_export_dmabuf). The network's device registers these
/// (ibv_reg_dmabuf_mr: rdma-core 34, Linux 5.12, a driver that imports them: mlx5 does).
pub const DTL_RDMA_DMABUF: i32 = 2;
/// dtl_rdma_config_t.device_memory: large messages go without staging, for memory of backend "cuda"
/// only. It is registered by its address, with nvidia_peermem, a kernel module of NVIDIA's driver.
/// For systems without dma-bufs: CUDA's need open kernel modules.
pub const DTL_RDMA_PEERMEM: i32 = 3;

/// How a communicator of kind "rdma" is made: its address is dtl_comm_desc_t.rdma. Start from
/// DTL_RDMA_CONFIG_INIT, which sets nothing. Read, with its texts, during the call.
///
/// One rule for all fields: a value that is set here is used, else that of the environment variable
/// DTL_RDMA_<NAME> (the field's name in capital letters), else the default. A number of -1, a
/// constant of 0 and a text of NULL are not set; an empty text is set, and means the default. An
/// invalid value is DTL_ERROR_INVALID_ARGUMENT, whose text names field or variable, the value and
/// what is allowed. So is a value that this device or machine does not have, which is found when
/// the communicator is opened. rails, queues, depth, rendezvous and meeting are the same on all
/// ranks. Opening compares the first four between the ranks (rails: no more than the rank has
/// active ports). One that differs is DTL_ERROR_INVALID_ARGUMENT, whose text names it and both
/// values. Ranks with different meetings do not find each other: DTL_ERROR_TIMEOUT. Everything else
/// may differ: for mtu the smaller value is used, the rest is each rank's own.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_rdma_config_t {
    /// sizeof(dtl_rdma_config_t), set by DTL_RDMA_CONFIG_INIT.
    pub struct_size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Must be 0: no flag is defined.
    pub flags: u64,
    /// Devices that may be used, each once, with a port if that matters: "mlx5_0:1,mlx5_1".
    /// Default: all whose port is active; the ranks of a node share them out, the near ones first.
    /// dtl: opt
    pub devices: *const c_char,
    /// How the ranks find each other: "over" (a communicator: dtl_comm_desc_t.over), "mpi", "shm"
    /// (all ranks on one node) or the name of a registered kind, "file:PATH" (a folder that all
    /// nodes share, and that is there), "tcp:HOST:PORT" (rank 0 listens there; IPv6 in brackets) or
    /// "auto". A kind that is opened for that is opened as if native was NULL. Default "auto":
    /// "over" if a communicator is named, "shm" if the launcher started all ranks on one node, else
    /// "mpi".
    /// dtl: opt
    pub meeting: *const c_char,
    /// IP address or network interface of this rank's control sockets, which set up connections and
    /// detect deaths: "10.0.0.5", "ib0". Default: the address by which this node reaches the
    /// others.
    /// dtl: opt
    pub address: *const c_char,
    /// Ports that a rank uses at once, 1 ... 4; large messages are split over them. Fewer if there
    /// are no more, which dtl_explain tells; with DTL_STRICT=1 that is DTL_ERROR_NOT_SUPPORTED.
    /// Default 1: one port for each rank, as most nodes have no more ports than ranks.
    /// cbindgen:init=-1
    pub rails: i32,
    /// Queue pairs for each peer and rail, 1 ... 4. Default 1: more help only where a network
    /// spreads its load by queue pair, and each takes its own memory.
    /// cbindgen:init=-1
    pub queues: i32,
    /// Index of the port's address (GID), 0 ... 255. Default: chosen. Over Ethernet a RoCE v2
    /// address, IPv4 before IPv6 and global before link-local, else RoCE v1; over InfiniBand
    /// index 0.
    /// cbindgen:init=-1
    pub gid_index: i32,
    /// InfiniBand's service level, RoCE's priority, 0 ... 15. Default 0: networks without classes
    /// have that one.
    /// cbindgen:init=-1
    pub service_level: i32,
    /// Traffic class, over RoCE v2 the byte of IP with the DSCP (times 4), 0 ... 255. Default 0. A
    /// network that loses no packets of one class wants its number here.
    /// cbindgen:init=-1
    pub traffic_class: i32,
    /// A packet without an answer is sent again after 4.096 us x 2^timeout, 1 ... 31. Default 20:
    /// 4.3 s, which outlives a switch that reroutes. (Devices may wait up to four times as long.)
    /// cbindgen:init=-1
    pub timeout: i32,
    /// How often a packet is sent again before its queue pair fails, 0 ... 7. Default 7, the most:
    /// with timeout 20, half a minute or more. Soft-RoCE (rdma_rxe) takes 7 as for ever; there 6
    /// ends.
    /// cbindgen:init=-1
    pub retries: i32,
    /// How often, where the receiver has no receive posted, 0 ... 7; 7 = for ever. Default 7. The
    /// library counts the other side's receives and never sends without one.
    /// cbindgen:init=-1
    pub receiver_retries: i32,
    /// Bytes of a packet at most: 256, 512, 1024, 2048 or 4096. Default: what the two ports have,
    /// the smaller.
    /// cbindgen:init=-1
    pub mtu: i32,
    /// Index of the partition key in the port's table, 0 ... 65535. Default 0.
    /// cbindgen:init=-1
    pub pkey_index: i32,
    /// Receives posted for each peer (and queue pair), 4 ... 4096, so also how many small messages
    /// are under way to a rank that does nothing. Default 16: enough for a network's delay at small
    /// messages; each takes a slot of memory for each active peer.
    /// cbindgen:init=-1
    pub depth: i32,
    /// Bytes of a message that travel inside of its work request, 0 ... 1024, as far as the device
    /// grants them. Default 64: a line of the cache, which saves the device a read of memory.
    /// cbindgen:init=-1
    pub inline_bytes: i32,
    /// DTL_RDMA_POLL or DTL_RDMA_EVENT; variable: poll, event. Default DTL_RDMA_POLL.
    /// dtl: values(DTL_RDMA_POLL|DTL_RDMA_EVENT)
    pub completion: i32,
    /// DTL_RDMA_WRITE or DTL_RDMA_READ; variable: write, read. Default DTL_RDMA_WRITE: its last
    /// packet signals the receiver, while a read needs a message to signal its end.
    /// dtl: values(DTL_RDMA_WRITE|DTL_RDMA_READ)
    pub rendezvous: i32,
    /// DTL_RDMA_STAGED, DTL_RDMA_DMABUF or DTL_RDMA_PEERMEM; variable: staged, dmabuf, peermem.
    /// Default DTL_RDMA_STAGED. With the others messages of more than 8160 bytes of device memory
    /// that was allocated here (by dtl_mem_alloc, a pool, a dtl::buffer) are written and read by
    /// the network's device, as far as the other side's memory can be: also device memory of such a
    /// rank, or the host's from dtl_mem_alloc. Else one copy on the side of the device, as with
    /// what is staged. Collectives and probed messages are staged. Each allocation is registered
    /// once (cache_bytes bounds all), until it is freed; the thread that sends or receives first
    /// calls export_dmabuf, with no lock held but, of a message that begins later than its call
    /// (dtl_comm_isend_on, a persistent one), that request's: it must not wait for that. A library
    /// without ibv_reg_dmabuf_mr is DTL_ERROR_NOT_SUPPORTED when the communicator is opened (with
    /// DTL_RDMA_DMABUF); a registration that is refused is a warning, and all is staged from then
    /// on, which dtl_explain tells. Each rank as it likes. Tested over verbs that are none; not yet
    /// on a network card with a GPU.
    /// dtl: values(DTL_RDMA_STAGED|DTL_RDMA_DMABUF|DTL_RDMA_PEERMEM)
    pub device_memory: i32,
    /// Milliseconds of silence after which a peer's machine counts as dead, 100 ... 600000. Default
    /// 5000. (The death of a process on a live machine is detected at once.)
    /// cbindgen:init=-1
    pub silence_ms: i32,
    /// Bytes of memory that stay registered for later messages, beside what always is; 0 = none.
    /// Variable: also 512M, 2G. Default 1 GiB: registering costs more than sending what is
    /// registered, and registered memory cannot be swapped out.
    /// cbindgen:init=-1
    pub cache_bytes: i64,
    /// A connection that breaks although the peer lives (retries used up, a queue pair in error) is
    /// made anew, and what the peer has not received is sent again; over and over, with pauses,
    /// until for so many milliseconds nothing has come through: then it is DTL_ERROR_RANK_FAILURE
    /// on both sides. 0 ... 600000; 0: a connection that breaks is not made anew. Default 5000: a
    /// cable that is plugged again, a switch that starts a port. Changes of elements that were
    /// under way (dtl_win_accumulate and its like) end with DTL_ERROR_CONNECTION_LOST: whether they
    /// were made is not known, everything else goes on.
    /// cbindgen:init=-1
    /// cbindgen:appended
    pub reconnect_ms: i64,
}
