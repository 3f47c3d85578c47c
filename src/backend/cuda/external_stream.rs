//! CUDA stream on which another library (NCCL) queues its work. [`ExternalStream`] has only the
//! operations that this use requires.

use super::driver::{Cuda, CudaDriver};
use super::symbols::*;
use crate::backend::driver::{Driver as _, EventRecord, Stream};
use crate::error::Result;
use crate::sys::memory::buf::{Addr, Region};
use crate::sys::sync::lock::Mutex;
use std::sync::Arc;

/// Maximum number of [`Point`] objects that a stream caches for reuse.
const SPARE: usize = 16;

/// CUDA stream of one device for the work of another library, such as NCCL.
pub struct ExternalStream {
    stream: Arc<Stream<CudaDriver>>,
    spare: Mutex<Vec<Point>>,
}

/// Position in a stream: the end of the work that was queued on the stream when the point was
/// created.
pub type Point = EventRecord<CudaDriver>;

impl ExternalStream {
    /// Creates a stream on `device`, or on the calling thread's current device if `device` is
    /// `None`.
    pub fn create(cuda: &Cuda, device: Option<i32>) -> Result<Self> {
        let driver = cuda.driver.get()?;
        let device = device.unwrap_or_else(|| cuda.current(&driver));
        Ok(ExternalStream { stream: driver.create_stream(device, 0)?, spare: Mutex::default() })
    }

    /// Returns the index of the stream's device in the backend's device list.
    pub fn device(&self) -> i32 {
        self.stream.queue.device
    }

    /// Returns the native stream handle (`CUstream`).
    pub fn stream(&self) -> CUstream {
        self.stream.queue.id.ptr()
    }

    /// Makes the context of the stream's device current in the calling thread until the returned
    /// guard is dropped. The device is then the current device of the CUDA runtime API too.
    pub fn enter(&self) -> Result<impl Sized + use<>> {
        self.stream.queue.enter()
    }

    /// Queues a copy. The caller must keep both regions allocated until the copy has completed.
    pub fn copy(&self, into: Region, from: Region) -> Result<()> {
        let cuda = self.stream.queue.driver.cuda;
        let _inside = self.enter()?;
        let number = |of: Region| of.addr().get() as CUdeviceptr;
        // SAFETY: both regions are memory of the device. The caller keeps them allocated until a
        // point created after the copy is reached.
        let code =
            unsafe { (cuda.cuMemcpyAsync)(number(into), number(from), into.len(), self.stream()) };
        cuda.check(code, "cuMemcpyAsync")
    }

    /// Creates a [`Point`] at the end of the work queued on the stream so far.
    pub fn point(&self) -> Result<Point> {
        let spare = self.spare.lock().pop();
        if let Some(mut point) = spare {
            if point.renew(&self.stream)? {
                return Ok(point);
            }
        }
        Point::new(&self.stream, false)
    }

    /// Caches `point`, whose work must have completed, so that a later call to [`Self::point`] can
    /// reuse its event. Drops `point` if the cache is full.
    pub fn recycle(&self, point: Point) {
        let mut spare = self.spare.lock();
        if spare.len() < SPARE {
            spare.push(point);
        }
    }
}

/// Returns the address of a device region as a raw pointer for another library; null if the region
/// is empty.
pub fn address(region: Region) -> *mut c_void {
    if region.is_empty() { Addr::NULL.ptr() } else { region.addr().ptr() }
}
