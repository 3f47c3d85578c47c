//! CUDA: NVIDIA's GPUs through the driver's own interface. The driver is found when somebody asks
//! for this backend.
//!
//! Order of the files: `functions` what a driver has, `codes` what it answers, `driver` devices and
//! their contexts; then one for each component: `device`, `memory` (and `crossing`, what others
//! reach), `transfer`, `exec` (and `lane`, what makes a stream of a CUstream), `modules` (`nvrtc`
//! the compiler, `source` what it is given and what is kept, `includes` the files that it reads,
//! `ptx` the parameters of kernels, `binary` and `loading` what the driver gets). `queue` is a
//! stream for another library's work.

mod device;
mod driver;
pub mod errors;
mod event;
mod exec;
pub mod external_stream;
mod mem_export;
mod memory;
pub mod modules;
mod stream;
pub mod symbols;
mod transfer;

use super::vendor_lib::OnDemand;
use crate::runtime::backend::{Availability, Presence};
use crate::runtime::registry::Backend;
use crate::runtime::settings;
use crate::sys::lock::RwLock;
use driver::Driver;
use memory::Block;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Made for one vendor's devices: before everything else.
const AUTO_PRIORITY: i32 = 100;

/// The backend named "cuda".
#[must_use]
pub fn backend(shared: Arc<Cuda>) -> Backend {
    let mut backend = Backend::new(c"cuda", AUTO_PRIORITY, true, Box::new(Arc::clone(&shared)));
    backend.device = Some(Box::new(Arc::clone(&shared)));
    backend.memory = Some(Box::new(Arc::clone(&shared)));
    backend.transfer = Some(Box::new(Arc::clone(&shared)));
    backend.modules = Some(Box::new(Arc::clone(&shared)));
    backend.exec = Some(Box::new(shared));
    backend
}

/// What the components share.
pub struct Cuda {
    driver: OnDemand<Driver>,
    /// Live allocations by the first byte that the caller sees.
    blocks: RwLock<BTreeMap<usize, Block>>,
}

impl Default for Cuda {
    fn default() -> Self {
        Cuda { driver: OnDemand::new(Driver::find), blocks: RwLock::default() }
    }
}

impl Presence for Arc<Cuda> {
    fn available(&self) -> Availability {
        self.driver.look().map(|_| ())
    }

    fn is_in_use(&self) -> bool {
        driver::is_in_use()
    }

    fn stands_aside(&self) -> Option<String> {
        // Initialising the driver takes a good part of a second where it is installed: only where a
        // GPU may be.
        let is_sought = settings::current().driver_library.is_some()
            || ["/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl"]
                .iter()
                .any(|file| Path::new(file).exists());
        (!is_sought).then(|| "no NVIDIA GPU's device file is in /dev (nvidiactl, dxg)".into())
    }
}
