//! Where ranks and threads run: the node, its cores, the ranks on it.
//! dtl: section(ffi/topology/neighbors)

use std::ffi::c_char;

/// Properties of this node, filled by dtl_topology. Start from DTL_TOPOLOGY_INIT. A field is 0 if
/// the system does not report it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_topology_t {
    /// sizeof(dtl_topology_t), set by DTL_TOPOLOGY_INIT.
    pub struct_size: u32,
    /// Number of CPUs (hardware threads) that are online.
    pub cpus_online: i32,
    /// Number of CPUs that the calling thread may run on, as listed by dtl_affinity.
    pub cpus_allowed: i32,
    /// Number of physical cores that are online.
    pub cores: i32,
    /// Hardware threads per core. 1: no simultaneous multithreading.
    pub threads_per_core: i32,
    /// Number of processor packages.
    pub sockets: i32,
    /// Number of NUMA nodes. 1 also if the kernel has no NUMA support.
    pub numa_nodes: i32,
    /// Always 0.
    pub reserved: u32,
    /// Thousandths of a CPU that the control groups (a container, a batch system) allow this
    /// process. 0: no limit.
    pub cpu_quota_milli: u64,
    /// Size of the first-level data cache of a core, in bytes.
    pub l1d_bytes: u64,
    /// Size of the second-level cache of a core, or of the cores that share it, in bytes.
    pub l2_bytes: u64,
    /// Size of one third-level cache, in bytes.
    pub l3_bytes: u64,
    /// Memory of the node, in bytes.
    pub memory_bytes: u64,
    /// Memory that the control groups allow this process, in bytes. 0: no limit below memory_bytes.
    pub memory_limit_bytes: u64,
    /// Name of the node, NUL-terminated.
    pub hostname: [c_char; 256],
}

/// Placement of this rank among the nodes, filled by dtl_comm_topology. Start from
/// DTL_COMM_TOPOLOGY_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_comm_topology_t {
    /// sizeof(dtl_comm_topology_t), set by DTL_COMM_TOPOLOGY_INIT.
    pub struct_size: u32,
    /// Node that this rank runs on, 0 to nodes-1. -1: not known.
    pub node: i32,
    /// Number of nodes that the communicator's ranks run on. -1: not known.
    pub nodes: i32,
    /// Position of this rank among the communicator's ranks on its node, 0 to local_size-1.
    pub local_rank: i32,
    /// Number of the communicator's ranks on this rank's node.
    pub local_size: i32,
    /// Always 0.
    pub reserved: u32,
}
