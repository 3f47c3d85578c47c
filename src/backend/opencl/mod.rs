//! OpenCL: devices of every driver that the machine's loader finds, memory that they share with the
//! host by pointer, copies, streams, events, kernels from source. The loader is found when somebody
//! asks for this backend.
//!
//! Order of the files: `functions` what a loader has, `codes` what it answers, `driver` platforms
//! and devices, `queue` command queues and events as objects, `lane` what makes a stream of a
//! queue, `source`, `program` and `kernel` what is compiled; then one for each component: `device`,
//! `memory`, `transfer`, `exec`, `modules`.

mod device;
mod driver;
pub mod errors;
mod exec;
mod kernel;
mod lane;
mod memory;
mod modules;
mod program;
mod queue;
mod source;
pub mod symbols;
mod transfer;

use super::vendor_lib::OnDemand;
use crate::abi::word::DTL_DEVICE_GPU;
use crate::runtime::backend::{Availability, Presence};
use crate::runtime::registry::Backend;
use crate::runtime::settings;
use crate::sys::lock::RwLock;
use driver::Driver;
use lane::Lane;
use memory::Block;
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

/// Above the host and what programs register, below what is made for one vendor's devices.
const AUTO_PRIORITY: i32 = 50;

/// The backend named "opencl".
#[must_use]
pub fn backend() -> Backend {
    let shared = Arc::new(OpenCl {
        driver: OnDemand::new(Driver::find),
        blocks: RwLock::default(),
        lanes: RwLock::default(),
    });
    let mut backend = Backend::new(c"opencl", AUTO_PRIORITY, true, Box::new(Arc::clone(&shared)));
    backend.device = Some(Box::new(Arc::clone(&shared)));
    backend.memory = Some(Box::new(Arc::clone(&shared)));
    backend.transfer = Some(Box::new(Arc::clone(&shared)));
    backend.exec = Some(Box::new(Arc::clone(&shared)));
    backend.modules = Some(Box::new(shared));
    backend
}

/// What the components share.
struct OpenCl {
    driver: OnDemand<Driver>,
    /// Live allocations by the first byte that the caller sees.
    blocks: RwLock<BTreeMap<usize, Block>>,
    /// Streams by their command queue.
    lanes: RwLock<BTreeMap<usize, Arc<Lane>>>,
}

impl Presence for Arc<OpenCl> {
    fn available(&self) -> Availability {
        self.driver.look().map(|_| ())
    }

    fn stands_aside(&self) -> Option<String> {
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
