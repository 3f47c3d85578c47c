//! The doers: each implements the component traits of `runtime::component`.
//!
//! In reading order:
//! - `vtable_backend`: registered backends: C tables
//! - `plugin`: plugin files
//! - `host`: the host
//! - `null`: a backend that does nothing, to measure calls
//! - `driver`: code that cuda and opencl share
//! - `cuda`: NVIDIA's devices
//! - `opencl`: devices of OpenCL
//! - `nccl`: collectives by NCCL
//! - `inproc`: ranks in one process
//! - `shm`: processes of one node
//! - `mpi`: any MPI
//! - `rdma`: RDMA verbs
//! - `hier`: shared memory inside nodes, another kind between them
//! - `p2p_protocol`: messages over a transport that only sends and receives
//! - `match_queues`: posted receives and unexpected messages
//! - `op_table`: operations in flight
//! - `coll_mailbox`: shared slots for small collectives
//! - `peer_map`: a value for some ranks
//! - `kernel_cache`: compiled kernels on disk
//! - `vendor_lib`: libraries loaded at run time
//! - `symbol_table`: their functions
//! - `os_error`: errors of the operating system

pub mod bootstrap;
mod coll_mailbox;
pub mod cuda;
pub mod driver;
pub mod hier;
pub mod host;
pub mod inproc;
mod kernel_cache;
pub mod match_queues;
pub mod mpi;
pub mod nccl;
pub mod null;
pub mod op_table;
pub mod opencl;
mod os_error;
pub mod p2p_protocol;
pub mod peer_map;
pub mod plugin;
pub mod rdma;
pub mod shm;
pub mod symbol_table;
pub mod vendor_lib;
pub mod vtable_backend;

use crate::runtime::registry::Backend;
use std::sync::Arc;

/// The backends that come with the library, made afresh at each initialisation.
#[must_use]
pub fn builtin() -> Vec<Arc<Backend>> {
    let [alone, threads] = inproc::backends();
    let [shm, mpi, rdma] = [shm::backend(), mpi::backend(), rdma::backend()].map(Arc::new);
    // What can stand between nodes. Shared memory cannot, but between pretended ones.
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
