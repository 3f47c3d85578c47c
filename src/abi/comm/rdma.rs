//! RDMA: configuration of a communicator of kind "rdma".
//! dtl: header(dtl_rdma.h)

use std::ffi::c_char;

/// Value of dtl_rdma_config_t.completion: a waiting rank busy-polls its device. After 1 to 2 ms of
/// waiting it sleeps between polls. Lowest latency.
pub const DTL_RDMA_POLL: i32 = 1;
/// Value of dtl_rdma_config_t.completion: a rank that has waited for some time sleeps until its
/// device wakes it.
pub const DTL_RDMA_EVENT: i32 = 2;

/// Value of dtl_rdma_config_t.rendezvous: the sender of a large message writes to the receiver's
/// memory.
pub const DTL_RDMA_WRITE: i32 = 1;
/// Value of dtl_rdma_config_t.rendezvous: the receiver of a large message reads the sender's
/// memory.
pub const DTL_RDMA_READ: i32 = 2;

/// Value of dtl_rdma_config_t.device_memory: messages are staged through host memory.
pub const DTL_RDMA_STAGED: i32 = 1;
/// Value of dtl_rdma_config_t.device_memory: large messages are not staged if their memory belongs
/// to a backend that exports dma-bufs (dtl_mem_export_dmabuf). The network device registers the
/// dma-bufs. This needs ibv_reg_dmabuf_mr (rdma-core 34, Linux 5.12) and a driver that imports
/// them, such as mlx5.
pub const DTL_RDMA_DMABUF: i32 = 2;
/// Value of dtl_rdma_config_t.device_memory: large messages in memory of backend "cuda" are not
/// staged. The memory is registered by its address, with nvidia_peermem, a kernel module of
/// NVIDIA's driver. For systems without dma-bufs, which CUDA exports with NVIDIA's open kernel
/// modules only.
pub const DTL_RDMA_PEERMEM: i32 = 3;

/// Settings of a communicator of kind "rdma", passed as dtl_comm_desc_t.rdma. Start from
/// DTL_RDMA_CONFIG_INIT, which sets nothing. The struct and its strings are read during the call
/// only.
///
/// One rule applies to all fields: a value that is set here is used, else that of the environment
/// variable DTL_RDMA_<NAME> (the field's name in capital letters), else the default. A number of
/// -1, a constant of 0 and a NULL string are not set. An empty string is set and means the default.
/// An invalid value fails with DTL_ERROR_INVALID_ARGUMENT; the text names the field or variable,
/// the value and the allowed values. A value that this device or machine does not support gives the
/// same status when the communicator is opened.
///
/// All ranks must have the same rails, queues, depth, rendezvous and meeting. Opening compares the
/// first four between the ranks (rails: limited to the active ports of the rank). A difference
/// fails with DTL_ERROR_INVALID_ARGUMENT; the text names the field and both values. Ranks with
/// different values of meeting do not find each other, which ends with DTL_ERROR_TIMEOUT. All other
/// fields may differ. For mtu the smaller value is used; every other field applies to its own rank.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_rdma_config_t {
    /// sizeof(dtl_rdma_config_t), set by DTL_RDMA_CONFIG_INIT.
    pub struct_size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Must be 0: no flag is defined.
    pub flags: u64,
    /// Devices that may be used, each listed once, optionally with a port: "mlx5_0:1,mlx5_1".
    /// Default: all devices with an active port. The ranks of a node share them, the nearest first.
    /// dtl: opt
    pub devices: *const c_char,
    /// How the ranks find each other: "over" (dtl_comm_desc_t.over), "mpi", "shm" (all ranks on one
    /// node), the name of a registered kind, "file:PATH" (an existing directory that all nodes
    /// share), "tcp:HOST:PORT" (rank 0 listens there; IPv6 in brackets) or "auto". A kind that is
    /// opened for this gets NULL for dtl_comm_desc_t.mpi_comm and config. Default "auto": "over" if
    /// dtl_comm_desc_t.over is set, "shm" if the launcher started all ranks on one node, else
    /// "mpi".
    /// dtl: opt
    pub meeting: *const c_char,
    /// IP address or network interface of this rank's control sockets, which set up connections and
    /// detect deaths: "10.0.0.5", "ib0". Default: the address by which this node reaches the
    /// others.
    /// dtl: opt
    pub address: *const c_char,
    /// Ports that a rank uses at once, 1 to 4. Large messages are split over them. If fewer ports
    /// are active, fewer are used (see dtl_explain); with DTL_STRICT=1 opening fails with
    /// DTL_ERROR_NOT_SUPPORTED. Default 1: one port per rank, as most nodes have no more ports than
    /// ranks.
    /// cbindgen:init=-1
    pub rails: i32,
    /// Queue pairs per peer and rail, 1 to 4. Default 1: more help only where a network balances
    /// its load by queue pair, and each queue pair uses memory.
    /// cbindgen:init=-1
    pub queues: i32,
    /// Index of the port's address (GID), 0 to 255. Default: selected by the library. On Ethernet
    /// it prefers RoCE v2 to RoCE v1, then IPv4 to IPv6 and global to link-local addresses. On
    /// InfiniBand it is 0.
    /// cbindgen:init=-1
    pub gid_index: i32,
    /// Service level (InfiniBand) or priority (RoCE), 0 to 15. Default 0, the level of networks
    /// without classes.
    /// cbindgen:init=-1
    pub service_level: i32,
    /// Traffic class, 0 to 255. With RoCE v2 it is the IP byte that has the DSCP (the DSCP times
    /// 4). Default 0. A network that is lossless for one class needs the number of that class here.
    /// cbindgen:init=-1
    pub traffic_class: i32,
    /// Exponent of the retransmission timeout, 1 to 31: a packet that is not acknowledged is sent
    /// again after 4.096 us x 2^timeout. Devices may wait up to four times as long. Default 20:
    /// 4.3 s, longer than a switch takes to reroute.
    /// cbindgen:init=-1
    pub timeout: i32,
    /// Number of retransmissions of a packet before its queue pair fails, 0 to 7. Default 7, the
    /// maximum: half a minute or more with timeout 20. Soft-RoCE (rdma_rxe) treats 7 as unlimited;
    /// its largest limit is 6.
    /// cbindgen:init=-1
    pub retries: i32,
    /// Number of retransmissions if the receiver has no receive posted, 0 to 7; 7 is unlimited.
    /// Default 7. The library counts the receives that the peer has posted and never sends without
    /// one.
    /// cbindgen:init=-1
    pub receiver_retries: i32,
    /// Maximum size of a packet in bytes: 256, 512, 1024, 2048 or 4096. Default: the smaller value
    /// of the two ports.
    /// cbindgen:init=-1
    pub mtu: i32,
    /// Index of the partition key in the port's table, 0 to 65535. Default 0.
    /// cbindgen:init=-1
    pub pkey_index: i32,
    /// Receives posted per peer and queue pair, 4 to 4096. This also limits the number of small
    /// messages in flight to a rank that makes no calls. Default 16: enough for the latency of a
    /// network with small messages. Each receive takes a memory slot per active peer.
    /// cbindgen:init=-1
    pub depth: i32,
    /// Bytes of a message that are sent inline in its work request, 0 to 1024, limited by the
    /// device. Default 64: one cache line, which saves the device a memory read.
    /// cbindgen:init=-1
    pub inline_bytes: i32,
    /// How a waiting rank detects completions: DTL_RDMA_POLL or DTL_RDMA_EVENT; variable: poll,
    /// event. Default DTL_RDMA_POLL.
    /// dtl: values(DTL_RDMA_POLL|DTL_RDMA_EVENT)
    pub completion: i32,
    /// How large messages are transferred: DTL_RDMA_WRITE or DTL_RDMA_READ; variable: write, read.
    /// Default DTL_RDMA_WRITE: its last packet notifies the receiver, while a read needs a message
    /// at its end.
    /// dtl: values(DTL_RDMA_WRITE|DTL_RDMA_READ)
    pub rendezvous: i32,
    /// How messages in device memory are transferred: DTL_RDMA_STAGED, DTL_RDMA_DMABUF or
    /// DTL_RDMA_PEERMEM; variable: staged, dmabuf, peermem. Default DTL_RDMA_STAGED. Each rank may
    /// choose.
    ///
    /// With the other two values, the network device reads and writes messages of more than
    /// 8160 bytes directly, in device memory that was allocated through this library
    /// (dtl_mem_alloc, a pool, a dtl::buffer). The peer's memory must be accessible in the same
    /// way: device memory of a rank with such a setting, or host memory from dtl_mem_alloc.
    /// Otherwise there is one copy on the side of the device memory, as for staged messages.
    /// Collectives and probed messages are staged.
    ///
    /// Each allocation is registered once, until it is freed; cache_bytes limits the total.
    /// export_dmabuf runs in the thread that first sends or receives the memory, with no lock held.
    /// Exception: for a message that starts later than its call (dtl_comm_isend_on, a persistent
    /// request) that request is locked, so the slot must not wait for it.
    ///
    /// With DTL_RDMA_DMABUF, opening fails with DTL_ERROR_NOT_SUPPORTED if the verbs library has no
    /// ibv_reg_dmabuf_mr. A registration that is refused gives a warning, and all messages are
    /// staged from then on (see dtl_explain). Tested with fake verbs, not yet on a network card
    /// with a GPU.
    /// dtl: values(DTL_RDMA_STAGED|DTL_RDMA_DMABUF|DTL_RDMA_PEERMEM)
    pub device_memory: i32,
    /// Milliseconds of silence after which the node of a peer counts as dead, 100 to 600000.
    /// Default 5000. The death of a process on a live node is detected at once.
    /// cbindgen:init=-1
    pub silence_ms: i32,
    /// Bytes of memory that stay registered for later messages, in addition to memory that is
    /// always registered. 0: none. The variable also accepts 512M, 2G. Default 1 GiB: registering
    /// memory costs more than sending registered memory, but registered memory cannot be swapped
    /// out.
    /// cbindgen:init=-1
    pub cache_bytes: i64,
    /// Milliseconds without progress after which a broken connection to a live peer is abandoned,
    /// 0 to 600000. 0: a broken connection is not re-established. Default 5000, enough for a
    /// replugged cable or a switch that starts a port.
    ///
    /// A connection breaks if the retries are used up or a queue pair is in error. It is
    /// re-established, and data that the peer has not received is sent again. This is repeated,
    /// with pauses, until no data has arrived for this time; then operations fail with
    /// DTL_ERROR_RANK_FAILURE on both sides. Accumulate operations in flight (dtl_win_accumulate
    /// and the like) fail with DTL_ERROR_CONNECTION_LOST: whether they were done is unknown.
    /// Everything else continues.
    /// cbindgen:init=-1
    /// cbindgen:appended
    pub reconnect_ms: i64,
}
