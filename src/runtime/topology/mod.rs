//! Placement of ranks and threads on hardware. Uses local information only: /proc and /sys, the
//! transport, and the environment variables of the launcher. Nothing is queried over a network.
//!
//! In reading order:
//! - `node`: cores, caches and memory of this node
//! - `cart`: arithmetic of Cartesian grids

pub mod cart;
pub mod node;
use super::comm::Comm;
use super::launch::{self, Launch};
use crate::abi::comm::topology::*;
use crate::error::{Result, fail};
use crate::from_c::blank;
use crate::sys::os::process;

fn count(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// Returns the CPUs on which the calling thread may run.
pub fn affinity() -> Result<Vec<i32>> {
    let cpus = process::affinity();
    if cpus.is_empty() {
        return fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "the kernel does not tell this thread's CPUs (sched_getaffinity)"
        );
    }
    Ok(cpus.into_iter().map(count).collect())
}

/// Returns the number of nodes of a communicator, and the node number, the local rank and the local
/// size of the calling rank.
pub fn of_comm(comm: &Comm) -> Result<dtl_comm_topology_t> {
    let mut out: dtl_comm_topology_t = blank();
    if comm.is_one_node() {
        (out.node, out.nodes, out.local_rank, out.local_size) = (0, 1, comm.rank, comm.size);
        return Ok(out);
    }
    if let Some(nodes) = comm.nodes() {
        let own = nodes.get(comm.rank.unsigned_abs() as usize);
        let before = nodes.iter().take(comm.rank.unsigned_abs() as usize);
        out.node = own.copied().unwrap_or(0);
        out.nodes = nodes.iter().max().map_or(1, |last| last + 1);
        out.local_rank = count(before.filter(|node| Some(*node) == own).count());
        out.local_size = count(nodes.iter().filter(|node| Some(*node) == own).count());
        return Ok(out);
    }
    let why = match launch::from_environment()? {
        None => "no launcher's environment was found".to_owned(),
        Some(Launch { rank, size, launcher, .. }) if (rank, size) != (comm.rank, comm.size) => {
            format!("{launcher} started this process as rank {rank} of {size}")
        }
        Some(Launch { local_size: 0, launcher, .. }) => {
            format!("{launcher} does not say which ranks share a node")
        }
        Some(launch) => {
            (out.node, out.nodes) = if launch.is_one_node() { (0, 1) } else { (-1, -1) };
            (out.local_rank, out.local_size) = (launch.local_rank, launch.local_size);
            return Ok(out);
        }
    };
    not_known(comm, &why)
}

/// Returns the node number of a rank.
pub fn node_of(comm: &Comm, rank: i32) -> Result<i32> {
    if !(0..comm.size).contains(&rank) {
        return fail!(
            DTL_ERROR_INVALID_RANK,
            "rank {rank}: the communicator has ranks 0 to {}",
            comm.size - 1
        );
    }
    if let Some(nodes) = comm.nodes() {
        return Ok(nodes.get(rank.unsigned_abs() as usize).copied().unwrap_or(0));
    }
    if of_comm(comm)?.nodes != 1 {
        return not_known(
            comm,
            "the job has several nodes and the launcher does not say which rank is on which",
        );
    }
    Ok(0)
}

fn not_known<T>(comm: &Comm, why: &str) -> Result<T> {
    fail!(
        DTL_ERROR_NOT_SUPPORTED,
        "kind {} does not tell the nodes of its {} ranks, and {why}",
        comm.kind_name(),
        comm.size
    )
}
