//! Placement: the node, the CPUs of a thread, the nodes of a communicator (local calls).

use crate::abi::comm::topology::*;
use crate::abi::handle::dtl_comm_t;
use crate::abi::status::dtl_status_t;
use crate::error::fail;
use crate::ffi::args::{self, Out};
use crate::ffi::guard::Entry;
use crate::runtime::{comm, topology};

/// Describes this node: CPUs, cores, sockets, NUMA nodes, caches, memory, limits of the control
/// groups (a container, a batch system), and name. Each call reads system files, which takes about
/// 100 us.
///
/// @param out_topology  Start from DTL_TOPOLOGY_INIT. A value that the system does not report is 0;
///                      this is no failure.
/// Threads: any; cpus_allowed is that of the calling thread. Equivalent: hwloc_topology_load, in
/// part.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_topology(out_topology: *mut dtl_topology_t) -> dtl_status_t {
    Entry("dtl_topology").call(|_| {
        // SAFETY: the caller's contract.
        unsafe { args::fill(out_topology, "out_topology", || Ok(topology::node::topology())) }
    })
}

/// Lists the CPUs (hardware threads, as the system numbers them) that the calling thread may run
/// on.
///
/// @param out_cpus  Room for `cap` numbers, in ascending order. NULL with cap 0: only the number is
///                  returned.
/// @param cap       Length of `out_cpus`, in elements.
/// @param out_len   Number of CPUs; written even if they do not fit.
/// @return DTL_ERROR_BUFFER_TOO_SMALL: `cap` is less than *out_len. DTL_ERROR_NOT_SUPPORTED: the
///         kernel does not report the CPUs. Equivalent: sched_getaffinity.
/// dtl:out_cpus len(cap) opt(cap==0)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_affinity(
    out_cpus: *mut i32,
    cap: u64,
    out_len: *mut u64,
) -> dtl_status_t {
    Entry("dtl_affinity").call(|_| {
        let count = Out::new(out_len, "out_len")?;
        if !(out_cpus.is_null() && cap == 0) {
            Out::new(out_cpus, "out_cpus")?;
        }
        let all = topology::affinity()?;
        count.set(all.len() as u64);
        if out_cpus.is_null() {
            return Ok(());
        }
        if cap < all.len() as u64 {
            return fail!(
                DTL_ERROR_BUFFER_TOO_SMALL,
                "the thread may run on {} CPUs, cap is {cap}",
                all.len()
            );
        }
        args::put_all(out_cpus, &all, "out_cpus")
    })
}

/// Describes how the ranks of a communicator are placed on nodes, as seen from this rank. A local
/// call. Kinds "self", "threads", "shm" and "hier" have this information. For every other kind it
/// comes from the launcher's environment, if that describes the same rank and size.
///
/// @param out_topology  Start from DTL_COMM_TOPOLOGY_INIT. For several nodes, launchers provide
///                      only local_rank and local_size; node and nodes are then -1.
/// @return DTL_ERROR_NOT_SUPPORTED: neither the kind nor the launcher provides it; the text gives
///         the reason.
/// Equivalent: MPI_Comm_split_type with MPI_COMM_TYPE_SHARED, then rank and size of the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_topology(
    comm: dtl_comm_t,
    out_topology: *mut dtl_comm_topology_t,
) -> dtl_status_t {
    Entry("dtl_comm_topology").call(|inside| {
        let comm = comm::pin(inside, comm)?;
        // SAFETY: the caller's contract.
        unsafe { args::fill(out_topology, "out_topology", || topology::of_comm(&comm)) }
    })
}

/// Returns the node that a rank runs on, 0 to nodes-1. Ranks with the same number share memory. A
/// local call.
///
/// @param rank      0 to size-1.
/// @param out_node  Number of the node.
/// @return DTL_ERROR_INVALID_RANK: `rank` is not in the communicator. DTL_ERROR_NOT_SUPPORTED: the
///         node is not known, see dtl_comm_topology.
/// dtl:rank rank
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_node_of(
    comm: dtl_comm_t,
    rank: i32,
    out_node: *mut i32,
) -> dtl_status_t {
    Entry("dtl_comm_node_of").call(|inside| {
        Out::new(out_node, "out_node")?.put(topology::node_of(&*comm::pin(inside, comm)?, rank))
    })
}
