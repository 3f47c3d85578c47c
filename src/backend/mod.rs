//! Backends: implementations of the component traits of `runtime::component`.
//!
//! In reading order:
//! - `vtable_backend`: backends that an application or plugin registers as C function tables
//! - `host`: CPU and host memory
//! - `null`: backend whose streams, events and launches do nothing, for measuring call overhead
//! - `driver`: code shared by the `cuda` and `opencl` backends
//! - `cuda`: NVIDIA devices
//! - `opencl`: OpenCL devices
//! - `nccl`: collectives by NCCL
//! - `inproc`: transport between threads of one process
//! - `shm`: transport between processes of one node
//! - `mpi`: transport over an installed MPI library
//! - `rdma`: transport over RDMA verbs
//! - `hier`: shared memory within nodes, another transport between nodes
//! - `p2p`: point-to-point protocol, generic over the link
//! - `p2p_protocol`: link of `p2p` over a raw transport that provides only send and receive
//! - `match_queues`: posted receives and unexpected messages
//! - `op_table`: table of a transport's operations in flight
//! - `reg_table`: memory registrations that a transport keeps for later messages
//! - `staging_pool`: registered host buffers for staged messages
//! - `coll_mailbox`: mailboxes in shared memory for small collectives
//! - `peer_map`: sparse map from ranks to values
//! - `kernel_cache`: compiled kernels on disk
//! - `try_once`: a value created at its first use
//! - `vendor_lib`: libraries loaded at run time
//! - `symbol_table`: function tables of libraries loaded at run time
//! - `os_error`: conversion of operating system errors to statuses

pub mod bootstrap;
mod coll_mailbox;
pub mod cuda;
pub mod driver;
pub mod hier;
pub mod host;
#[cfg(test)]
#[path = "tests/in_process.rs"]
pub(crate) mod in_process;
pub mod inproc;
mod kernel_cache;
pub mod match_queues;
pub mod mpi;
pub mod nccl;
pub mod null;
pub mod op_table;
pub mod opencl;
mod os_error;
mod p2p;
pub mod p2p_protocol;
pub mod peer_map;
pub mod plugin;
pub mod rdma;
pub mod reg_table;
pub mod shm;
pub mod staging_pool;
pub mod symbol_table;
pub mod try_once;
pub mod vendor_lib;
pub mod vtable_backend;

use crate::runtime::registry::Backend;
use std::sync::Arc;

/// Creates the built-in backends. The library calls this function on each initialization.
pub fn builtin() -> Vec<Arc<Backend>> {
    let [alone, threads] = inproc::backends();
    let [shm, mpi, rdma] = [shm::backend(), mpi::backend(), rdma::backend()].map(Arc::new);
    // Transports between nodes. Shared memory is in the list only for simulated nodes.
    let hier = hier::backend(
        Arc::clone(&shm),
        vec![Arc::clone(&mpi), Arc::clone(&rdma), Arc::clone(&shm)],
    );
    let mut all: Vec<_> = [host::backend(), null::backend(), alone, threads].map(Arc::new).into();
    let devices = Arc::new(cuda::Cuda::default());
    let cuda = Arc::new(driver::backend(Arc::clone(&devices)));
    let opencl = Arc::new(driver::backend(Arc::<opencl::OpenCl>::default()));
    let nccl = nccl::backend(Arc::clone(&cuda), devices);
    all.extend([shm, mpi, rdma, Arc::new(hier), Arc::new(nccl), cuda, opencl]);
    all
}
