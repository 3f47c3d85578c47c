//! A stream for the work of another library (NCCL): what that needs of this backend, and nothing
//! more.

use super::Cuda;
use super::stream::{Lane, Record};
use super::symbols::*;
use crate::error::Result;
use crate::sys::buf::{Addr, Region};
use crate::sys::lock::Mutex;
use std::sync::Arc;

/// Points kept for reuse.
const SPARE: usize = 16;

/// A stream of a device.
pub struct Queue {
    lane: Arc<Lane>,
    spare: Mutex<Vec<Record>>,
}

/// The end of what was queued when it was made.
pub struct Point(Record);

impl Queue {
    /// A new one; `None`: on the calling thread's current device.
    pub fn create(cuda: &Cuda, device: Option<i32>) -> Result<Self> {
        let driver = cuda.driver.get()?;
        let device = device.unwrap_or_else(|| cuda.current(&driver));
        Ok(Queue { lane: Arc::new(Lane::create(driver, device)?), spare: Mutex::default() })
    }

    /// Its device's place in the backend's list.
    #[must_use]
    pub fn device(&self) -> i32 {
        self.lane.device
    }

    /// Its CUstream.
    #[must_use]
    pub fn stream(&self) -> Object {
        self.lane.stream.ptr()
    }

    /// Makes its device's context current for the calling thread, and so its device that of CUDA's
    /// runtime interface.
    pub fn enter(&self) -> Result<impl Sized + use<>> {
        self.lane.enter()
    }

    /// Queues a copy within the device.
    pub fn copy(&self, into: Region, from: Region) -> Result<()> {
        let cuda = self.lane.driver.cuda;
        let _inside = self.enter()?;
        let number = |of: Region| of.addr().get() as Ptr;
        // SAFETY: memory of the device, which the caller keeps until a later point is reached.
        let code = unsafe {
            (cuda.cuMemcpyAsync)(number(into), number(from), into.len(), self.lane.stream.ptr())
        };
        cuda.check(code, "cuMemcpyAsync")
    }

    /// The present end.
    pub fn point(&self) -> Result<Point> {
        let spare = self.spare.lock().pop();
        match spare {
            Some(mut record) => record.renew(Arc::clone(&self.lane)).map(|()| Point(record)),
            None => Record::new(Arc::clone(&self.lane), CU_EVENT_DISABLE_TIMING).map(Point),
        }
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
pub fn address(region: Region) -> Object {
    if region.is_empty() { Addr::NULL.ptr() } else { region.addr().ptr() }
}
