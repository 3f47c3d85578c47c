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
//! - `stream_hold`: streams that wait for the host
//! - `external_stream`: streams for other libraries
//! - `memory`: allocation
//! - `mem_export`: memory exported to other processes and devices
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

/// Backend "cuda".
pub type Cuda = DeviceBackend<driver::CudaDriver>;

impl BackendProbe for Arc<Cuda> {
    fn available(&self) -> Availability {
        self.availability()
    }

    fn is_in_use(&self) -> bool {
        driver::is_in_use()
    }

    fn passed_over_reason(&self) -> Option<String> {
        // Initializing an installed CUDA driver takes a considerable part of a second. The backend
        // is therefore passed over unless a device file or the settings indicate a GPU.
        let is_sought = settings::current().driver_library.is_some()
            || ["/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl"]
                .iter()
                .any(|file| Path::new(file).exists());
        (!is_sought).then(|| "no NVIDIA GPU's device file is in /dev (nvidiactl, dxg)".into())
    }
}
