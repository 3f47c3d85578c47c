//! Discovery of the CUDA driver library and its devices, and destruction of the driver object.

use super::device::CHOSEN;
use super::driver::{AllocOrigin, Card, Cuda, CudaDriver, enter, text};
use super::modules::CudaModule;
use super::staging;
use super::stream::CudaStream;
use super::symbols::*;
use crate::backend::driver::{self, CurrentDevice, Stream};
use crate::backend::vendor_lib::{Names, VendorLib};
use crate::error::Result;
use crate::runtime::component::{Availability, BackendProbe};
use crate::runtime::settings;
use crate::sys::memory::buf::Addr;
use crate::sys::os::dl;
use std::ffi::CStr;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

/// Minimum driver version, encoded like the result of cuDriverGetVersion (11000 = CUDA 11.0). A
/// driver of this version exports every required function of the function table.
const OLDEST: i32 = 11_000;

static LIBRARY: VendorLib<Functions> = VendorLib::new(Names {
    name: "CUDA",
    part: "driver",
    soname: "libcuda.so.1",
    variable: "DTL_CUDA_LIBRARY",
    wanted: "NVIDIA's driver library (libcuda.so.1)",
    advice: "install NVIDIA's driver, or name its libcuda.so.1 with DTL_CUDA_LIBRARY",
});

impl BackendProbe for Arc<Cuda> {
    fn available(&self) -> Availability {
        self.driver.look().map(drop)
    }

    /// Returns true if the application has loaded and initialized the driver. The query neither
    /// loads nor initializes the driver: after cuInit, forked children cannot use CUDA, and an
    /// application may load the driver long before it initializes it.
    fn is_in_use(&self) -> bool {
        let named = settings::current().driver_library;
        let name = LIBRARY.file(named.as_deref());
        if LIBRARY.may_be_called().is_err() || dl::SharedObject::loaded(Path::new(name)).is_none() {
            return false;
        }
        // SAFETY: the name is that of CUDA's driver library, or the user who named another library
        // vouches for it.
        let Ok(cuda) = (unsafe { LIBRARY.open(name) }) else { return false };
        let mut current = ptr::null_mut();
        // SAFETY: `current` is writable; before cuInit the call returns an error code.
        unsafe { (cuda.cuCtxGetCurrent)(&raw mut current) == CUDA_SUCCESS }
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

impl driver::Driver for CudaDriver {
    const NAME: &'static CStr = c"cuda";
    /// Priority for automatic backend selection. It is higher than that of backend "opencl",
    /// because backend "cuda" is specific to one vendor's devices.
    const PRIORITY: i32 = 100;
    const CALLBACK_THREAD: &'static str = "dtl-cuda-stream";
    const ALIGNMENT: u64 = 256;
    const CHOSEN: &'static CurrentDevice = &CHOSEN;
    type Card = Card;
    type Queue = CudaStream;
    type Origin = AllocOrigin;
    type Module = CudaModule;

    fn find() -> Result<Self, String> {
        // SAFETY: the name is that of CUDA's driver library, or the user who named another library
        // vouches for it.
        let cuda = unsafe { LIBRARY.load(settings::current().driver_library.as_deref()) }?;
        let mut version = 0;
        // SAFETY: `version` is valid for writing an int. cuDriverGetVersion may be called before
        // cuInit.
        let code = unsafe { (cuda.cuDriverGetVersion)(&raw mut version) };
        cuda.check(code, "cuDriverGetVersion").map_err(|error| error.text().to_owned())?;
        if version < OLDEST {
            let (major, minor) = (version / 1000, version % 1000 / 10);
            return Err(format!(
                "the CUDA driver is one of CUDA {major}.{minor}, and 11.0 or newer is needed: \
                 update the driver"
            ));
        }
        // SAFETY: cuInit takes no pointers.
        let code = unsafe { (cuda.cuInit)(0) };
        if code == CUDA_ERROR_NO_DEVICE {
            return Err("the CUDA driver finds no device: permissions of /dev/nvidia…, \
                CUDA_VISIBLE_DEVICES, or none is plugged in"
                .into());
        }
        cuda.check(code, "cuInit").map_err(|error| error.text().to_owned())?;
        let cards = list(cuda).map_err(|error| error.text().to_owned())?;
        if cards.is_empty() {
            return Err("the CUDA driver counts 0 devices".into());
        }
        Ok(CudaDriver { cuda, version, cards, staging: Arc::default() })
    }

    fn cards(&self) -> &[Card] {
        &self.cards
    }

    fn priorities(&self, device: i32) -> Result<(i32, i32)> {
        let (Some(query), Some(_)) =
            (self.cuda.cuCtxGetStreamPriorityRange, self.cuda.cuStreamCreateWithPriority)
        else {
            return Ok((0, 0));
        };
        let _inside = self.enter(device)?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: both are valid for writing an int.
        let code = unsafe { query(&raw mut least, &raw mut greatest) };
        self.cuda.check(code, "cuCtxGetStreamPriorityRange").map(|()| (least, greatest))
    }

    fn create_stream(self: &Arc<Self>, device: i32, priority: i32) -> Result<Arc<Stream<Self>>> {
        CudaStream::create(self, device, priority).map(Stream::new)
    }

    fn wrap_stream(self: &Arc<Self>, device: i32, native: Addr) -> Result<Arc<Stream<Self>>> {
        CudaStream::wrap(self, device, native).map(Stream::new)
    }
}

impl Drop for CudaDriver {
    fn drop(&mut self) {
        staging::trim(self);
        for card in &mut self.cards {
            let Some(context) = card.context.take() else { continue };
            if let Ok(_inside) = enter(self.cuda, context) {
                let own = [card.copies.take(), card.allocations.take()];
                for stream in own.into_iter().flatten() {
                    // SAFETY: this driver object owns the stream and destroys it once.
                    let _ = unsafe { (self.cuda.cuStreamDestroy_v2)(stream.ptr()) };
                }
                if let (Some(pool), Some(destroy)) =
                    (card.pool.take().flatten(), self.cuda.cuMemPoolDestroy)
                {
                    // SAFETY: this driver object owns the pool and destroys it once.
                    let _ = unsafe { destroy(pool.ptr()) };
                }
                for page in card.words.get_mut().pages.drain(..) {
                    // SAFETY: cuMemHostAlloc allocated the page, which is freed once. The device's
                    // context is current, and all streams of the library are destroyed.
                    let _ = unsafe { (self.cuda.cuMemFreeHost)(page.ptr()) };
                }
            }
            // SAFETY: `context` retained the primary context once, and this call releases it once.
            let _ = unsafe { (self.cuda.cuDevicePrimaryCtxRelease_v2)(card.id) };
        }
    }
}

fn list(cuda: &'static Functions) -> Result<Vec<Card>> {
    let mut count = 0;
    // SAFETY: `count` is valid for writing an int.
    cuda.check(unsafe { (cuda.cuDeviceGetCount)(&raw mut count) }, "cuDeviceGetCount")?;
    let mut cards = Vec::new();
    for ordinal in 0..count {
        let mut id = 0;
        // SAFETY: `id` is valid for writing a device handle.
        cuda.check(unsafe { (cuda.cuDeviceGet)(&raw mut id, ordinal) }, "cuDeviceGet")?;
        let name = text::<128>(|room, out| {
            // SAFETY: `id` is a device of the driver, and `out` is valid for writing `room` bytes.
            unsafe { (cuda.cuDeviceGetName)(out, room, id) }
        });
        let (context, copies, allocations, pool, words) = Default::default();
        cards.push(Card { id, name, context, copies, allocations, pool, words });
    }
    Ok(cards)
}
