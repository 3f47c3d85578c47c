//! CUDA: NVIDIA's GPUs through the driver's own interface. The driver is loaded when this backend
//! is first needed. The code that other drivers' backends have too is in [`super::driver`].
//!
//! In reading order:
//! - `cuda_sys`: declarations of cuda.h
//! - `symbols`: functions of the driver
//! - `errors`: results of the driver
//! - `driver`: devices and contexts
//! - `device`: properties of devices
//! - `event`: CUevents
//! - `stream`: CUstreams
//! - `stream_hold`: a stream that waits for the host
//! - `external_stream`: streams of other libraries
//! - `memory`: allocation
//! - `mem_export`: memory for other processes and devices
//! - `transfer`: copies
//! - `staging`: page-locked memory for staged messages
//! - `modules`: kernels

#[rustfmt::skip]
pub mod cuda_sys;
mod device;
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

use super::driver::DeviceBackend;
use crate::runtime::component::{Availability, BackendProbe};
use crate::runtime::settings;
use std::path::Path;
use std::sync::Arc;

/// The backend named "cuda".
pub type Cuda = DeviceBackend<driver::CudaDriver>;

impl BackendProbe for Arc<Cuda> {
    fn available(&self) -> Availability {
        self.availability()
    }

    fn is_in_use(&self) -> bool {
        driver::is_in_use()
    }

    fn passed_over_reason(&self) -> Option<String> {
        // Initialising the driver takes a good part of a second where it is installed: only where a
        // GPU may be.
        let is_sought = settings::current().driver_library.is_some()
            || ["/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl"]
                .iter()
                .any(|file| Path::new(file).exists());
        (!is_sought).then(|| "no NVIDIA GPU's device file is in /dev (nvidiactl, dxg)".into())
    }
}
