//! Where ranks and threads run: the node, its cores, the ranks on it.
//! dtl: section(ffi/topology/neighbors)

use std::ffi::c_char;

/// What `dtl_topology` tells of this node. Start from DTL_TOPOLOGY_INIT. 0 = the system does not
/// tell.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_topology_t {
    /// sizeof(dtl_topology_t), set by DTL_TOPOLOGY_INIT.
    pub struct_size: u32,
    /// CPUs (hardware threads) that are online.
    pub cpus_online: i32,
    /// CPUs that the calling thread may run on: how many dtl_affinity lists.
    pub cpus_allowed: i32,
    /// Physical cores that are online.
    pub cores: i32,
    /// Hardware threads of one core; 1 = no simultaneous multithreading.
    pub threads_per_core: i32,
    /// Processor packages.
    pub sockets: i32,
    /// NUMA nodes; 1 also where the kernel knows none.
    pub numa_nodes: i32,
    /// 0.
    pub reserved: u32,
    /// Thousandths of a CPU that the control groups (a container, a batch system) allow this
    /// process; 0 = no limit.
    pub cpu_quota_milli: u64,
    /// Bytes of the first-level data cache of a core.
    pub l1d_bytes: u64,
    /// Bytes of the second-level cache of a core (or of the cores that share it).
    pub l2_bytes: u64,
    /// Bytes of one third-level cache.
    pub l3_bytes: u64,
    /// Bytes of memory of the node.
    pub memory_bytes: u64,
    /// Bytes of memory that the control groups allow this process; 0 = no limit below memory_bytes.
    pub memory_limit_bytes: u64,
    /// The node's name, NUL-terminated.
    pub hostname: [c_char; 256],
}

/// What `dtl_comm_topology` tells. Start from DTL_COMM_TOPOLOGY_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_comm_topology_t {
    /// sizeof(dtl_comm_topology_t), set by DTL_COMM_TOPOLOGY_INIT.
    pub struct_size: u32,
    /// The node that this rank runs on, 0 ... nodes-1; -1 = not known.
    pub node: i32,
    /// Nodes that the communicator's ranks run on; -1 = not known.
    pub nodes: i32,
    /// This rank's place among the communicator's ranks on its node, 0 ... local_size-1.
    pub local_rank: i32,
    /// Ranks of the communicator on this rank's node.
    pub local_size: i32,
    /// 0.
    pub reserved: u32,
}
