//! Backend "cuda": NVIDIA GPUs through the CUDA driver API. The driver library is loaded at the
//! first use of the backend. [`super::driver`] has the code that all driver backends share.
//!
//! In reading order:
//! - `cuda_sys`: declarations of cuda.h
//! - `symbols`: function table of the driver
//! - `errors`: conversion of `CUresult` codes
//! - `driver`: devices and contexts
//! - `device`: properties of devices
//! - `event`: CUevents
//! - `stream`: CUstreams
//! - `stream_hold`: blocking of a stream while a host callback runs
//! - `external_stream`: streams for the work of other libraries
//! - `memory`: allocation
//! - `mem_export`: memory exported to other processes and devices
//! - `transfer`: copies
//! - `staging`: page-locked memory for staged messages
//! - `modules`: kernels
//! - `discovery`: loading of the driver library and enumeration of its devices

#[rustfmt::skip]
pub mod cuda_sys;
mod device;
mod discovery;
mod driver;
pub mod errors;
mod event;
pub mod external_stream;
mod mem_export;
mod memory;
pub mod modules;
mod staging;
mod stream;
mod stream_hold;
pub mod symbols;
mod transfer;

pub use driver::Cuda;
