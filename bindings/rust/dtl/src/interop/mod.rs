//! Objects of other crates as objects of this one, each behind a feature of the crate's name:
//! - `mpi`: communicators of rsmpi, see `Comm::from_mpi`.
//! - `cudarc`: streams and device memory, see `interop::cudarc`.
//! - `opencl3`: command queues and buffers, see `interop::opencl3`.
//!
//! The features `half` and `num-complex` have no functions: they make the numbers of those crates
//! element types.

#[cfg(feature = "cudarc")]
pub mod cudarc;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(feature = "opencl3")]
pub mod opencl3;
