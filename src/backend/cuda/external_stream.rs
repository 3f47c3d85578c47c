//! A stream for the work of another library (NCCL): what that needs of this backend, and nothing
//! more.

use super::Cuda;
use super::driver::CudaDriver;
use super::stream::CudaStream;
use super::symbols::*;
use crate::backend::driver::{Driver as _, EventRecord, Queue as _, Stream};
use crate::error::Result;
use crate::sys::memory::buf::{Addr, Region};
use crate::sys::sync::lock::Mutex;
use std::sync::Arc;

/// Points kept for reuse.
const SPARE: usize = 16;

/// A stream of a device.
pub struct ExternalStream {
    stream: Arc<Stream<CudaDriver>>,
    spare: Mutex<Vec<EventRecord<CudaDriver>>>,
}

/// The end of the work that was queued when it was made.
pub struct Point(EventRecord<CudaDriver>);

impl ExternalStream {
    /// Creates a stream; `None`: on the calling thread's current device.
    pub fn create(cuda: &Cuda, device: Option<i32>) -> Result<Self> {
        let driver = cuda.driver.get()?;
        let device = device.unwrap_or_else(|| cuda.current(&driver));
        Ok(ExternalStream { stream: driver.create_stream(device)?, spare: Mutex::default() })
    }

    fn queue(&self) -> &CudaStream {
        self.stream.queue()
    }

    /// Its device's index in the backend's list.
    #[must_use]
    pub fn device(&self) -> i32 {
        self.queue().device
    }

    /// Its CUstream.
    #[must_use]
    pub fn stream(&self) -> CUstream {
        self.queue().native().ptr()
    }

    /// Makes its device's context current for the calling thread, and so its device that of CUDA's
    /// runtime interface.
    pub fn enter(&self) -> Result<impl Sized + use<>> {
        self.queue().enter()
    }

    /// Queues a copy within the device.
    pub fn copy(&self, into: Region, from: Region) -> Result<()> {
        let cuda = self.queue().driver.cuda;
        let _inside = self.enter()?;
        let number = |of: Region| of.addr().get() as CUdeviceptr;
        // SAFETY: memory of the device, which the caller keeps until a later point is reached.
        let code =
            unsafe { (cuda.cuMemcpyAsync)(number(into), number(from), into.len(), self.stream()) };
        cuda.check(code, "cuMemcpyAsync")
    }

    /// The present end.
    pub fn point(&self) -> Result<Point> {
        let spare = self.spare.lock().pop();
        if let Some(mut record) = spare {
            if record.renew(&self.stream)? {
                return Ok(Point(record));
            }
        }
        EventRecord::new(&self.stream, false).map(Point)
    }

    /// Takes back a point that was reached.
    pub fn recycle(&self, point: Point) {
        let mut spare = self.spare.lock();
        if spare.len() < SPARE {
            spare.push(point.0);
        }
    }
}

impl Point {
    /// Whether it was reached; the device's fault if there was one.
    pub fn is_reached(&self) -> Result<bool> {
        self.0.is_done()
    }
}

/// An address of a device as another library takes it.
#[must_use]
pub fn address(region: Region) -> *mut c_void {
    if region.is_empty() { Addr::NULL.ptr() } else { region.addr().ptr() }
}
