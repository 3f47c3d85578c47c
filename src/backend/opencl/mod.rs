//! OpenCL: devices of every driver that the machine's loader finds, memory that they share with
//! the host by pointer, copies, streams, events, kernels from source. The loader is opened when
//! this backend is first needed. The code that other drivers' backends have too is in
//! [`super::driver`].
//!
//! In reading order:
//! - `opencl_sys`: declarations of CL/cl_ext.h
//! - `symbols`: functions of the loader
//! - `errors`: results
//! - `driver`: platforms, devices, contexts
//! - `device`: properties of devices
//! - `event`: events
//! - `queue`: command queues
//! - `memory`: allocation
//! - `transfer`: copies
//! - `source`: text for the compiler
//! - `program`: compiled programs
//! - `kernel`: kernels and launches

mod device;
mod driver;
pub mod errors;
mod event;
mod kernel;
mod memory;
#[rustfmt::skip]
pub mod opencl_sys;
mod program;
mod queue;
mod source;
pub mod symbols;
mod transfer;

use super::driver::DeviceBackend;
use crate::abi::word::DTL_DEVICE_GPU;
use crate::runtime::component::{Availability, BackendProbe};
use crate::runtime::settings;
use std::fs;
use std::sync::Arc;

/// The backend named "opencl".
pub type OpenCl = DeviceBackend<driver::ClDriver>;

impl BackendProbe for Arc<OpenCl> {
    fn available(&self) -> Availability {
        self.availability()
    }

    fn passed_over_reason(&self) -> Option<String> {
        // Drivers are large: programs that name no backend load them only where there may be a GPU.
        if settings::current().device_library.is_none() && !may_have_a_gpu() {
            return Some(
                "no GPU's device file is in /dev (dri/render…, nvidia…, kfd, mali… and the like), \
                 and OpenCL on a CPU \
                 comes behind the host"
                    .into(),
            );
        }
        let driver = self.driver.look().ok()?;
        let has_gpu = driver.devices.iter().any(|card| card.kind == DTL_DEVICE_GPU);
        (!has_gpu).then(|| "it has no GPU, and OpenCL on a CPU comes behind the host".into())
    }
}

/// Whether the kernel has a device that could be a GPU.
fn may_have_a_gpu() -> bool {
    let has = |folder: &str, beginnings: &[&str]| {
        let names =
            fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let mut names = names.map(|name| name.to_string_lossy().into_owned());
        names.any(|name| beginnings.iter().any(|beginning| name.starts_with(beginning)))
    };
    has("/dev/dri", &["render"])
        || has("/dev", &["nvidia", "kfd", "dxg", "mali", "kgsl", "pvr", "galcore", "davinci"])
}
