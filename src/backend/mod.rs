//! The doers: each implements the component traits of `runtime::backend`.

mod board;
pub mod cuda;
pub mod driver;
pub mod frames;
pub mod hier;
pub mod host;
mod kernel_cache;
pub mod local;
pub mod matching;
mod meet;
pub mod mpi;
pub mod native;
pub mod nccl;
pub mod null;
pub mod opencl;
pub mod operations;
mod os_error;
pub mod plugin;
pub mod rdma;
pub mod shm;
pub mod sparse;
pub mod symbol_table;
pub mod vendor_lib;

use crate::runtime::registry::Backend;
use std::sync::Arc;

/// The backends that come with the library, made afresh at each initialisation.
#[must_use]
pub fn builtin() -> Vec<Arc<Backend>> {
    let [alone, threads] = local::backends();
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
