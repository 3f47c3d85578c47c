//! Backend "opencl": the devices of every OpenCL driver that the machine's loader finds. It
//! provides shared virtual memory (SVM), copies, streams, events, and kernels compiled from source.
//! The loader is opened at the first use of the backend. [`super::driver`] contains the code shared
//! by all backends that use a device driver.
//!
//! In reading order:
//! - `opencl_sys`: declarations of CL/cl_ext.h
//! - `symbols`: function table of the loader
//! - `errors`: conversion of result codes
//! - `query`: queries of values, strings and lists
//! - `driver`: platforms, devices, contexts
//! - `device`: properties of devices
//! - `event`: events
//! - `queue`: command queues
//! - `memory`: allocation
//! - `transfer`: copies
//! - `source`: source text for the compiler
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
mod query;
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

/// Backend "opencl".
pub type OpenCl = DeviceBackend<driver::ClDriver>;

impl BackendProbe for Arc<OpenCl> {
    fn available(&self) -> Availability {
        self.driver.look().map(drop)
    }

    fn passed_over_reason(&self) -> Option<String> {
        // OpenCL drivers are large. A program that names no backend loads them only if the machine
        // may have a GPU.
        if settings::current().device_library.is_none() && !may_have_a_gpu() {
            return Some(
                "no GPU's device file is in /dev (dri/render…, nvidia…, kfd, mali… and the like), \
                 and OpenCL on a CPU comes behind the host"
                    .into(),
            );
        }
        let driver = self.driver.look().ok()?;
        let has_gpu = driver.devices.iter().any(|card| card.kind == DTL_DEVICE_GPU);
        (!has_gpu).then(|| "it has no GPU, and OpenCL on a CPU comes behind the host".into())
    }
}

/// Returns true if /dev has a device file that may belong to a GPU.
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
