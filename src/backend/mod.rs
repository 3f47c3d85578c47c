//! The doers: each implements the component traits of `runtime::backend`.

pub mod frames;
pub mod host;
pub mod local;
pub mod matching;
pub mod mpi;
pub mod native;
pub mod null;
pub mod operations;
pub mod plugin;
pub mod shm;
pub mod sparse;

use crate::runtime::registry::Backend;
use std::sync::Arc;

/// The backends that come with the library, made afresh at each initialisation.
#[must_use]
pub fn builtin() -> Vec<Arc<Backend>> {
    let [alone, threads] = local::backends();
    [host::backend(), null::backend(), alone, threads, shm::backend(), mpi::backend()].map(Arc::new).into()
}
