//! A CUevent as an object that gives back what it has.

use super::driver::{CudaDriver, enter};
use super::symbols::*;
use crate::backend::driver;
use crate::error::{Error, Result, fail};
use crate::sys::memory::buf::Addr;
use std::fmt::Arguments;
use std::ptr;
use std::sync::Arc;

/// An event of one context.
pub struct CudaEvent {
    /// Keeps the context.
    driver: Arc<CudaDriver>,
    id: Addr,
    /// The context that it was made in; it is recorded on streams of that one only.
    pub(super) context: Addr,
    /// The context's device.
    device: i32,
}

impl CudaEvent {
    /// Creates an event of a context, which is current.
    pub(super) fn create(
        driver: &Arc<CudaDriver>,
        context: Addr,
        device: i32,
        flags: c_uint,
    ) -> Result<Self> {
        let mut id = ptr::null_mut();
        // SAFETY: room for an event.
        let code = unsafe { (driver.cuda.cuEventCreate)(&raw mut id, flags) };
        driver.cuda.check(code, "cuEventCreate")?;
        Ok(CudaEvent { driver: Arc::clone(driver), id: Addr::new(id), context, device })
    }

    /// Marks the present end of a stream of its context, which is current.
    pub(super) fn record(&self, stream: Addr) -> Result<()> {
        let cuda = self.driver.cuda;
        // SAFETY: an event and a stream, both alive.
        cuda.check(unsafe { (cuda.cuEventRecord)(self.id.ptr(), stream.ptr()) }, "cuEventRecord")
    }

    /// Lets a stream, whose context is current, wait for its latest record.
    pub(super) fn hold(&self, stream: Addr) -> Result<()> {
        let cuda = self.driver.cuda;
        // SAFETY: a stream and an event, both alive; of one device or two.
        let code = unsafe { (cuda.cuStreamWaitEvent)(stream.ptr(), self.id.ptr(), 0) };
        cuda.check(code, "cuStreamWaitEvent")
    }
}

impl driver::Event for CudaEvent {
    fn is_reached(&self) -> Result<bool> {
        let cuda = self.driver.cuda;
        // SAFETY: an event that is alive.
        match unsafe { (cuda.cuEventQuery)(self.id.ptr()) } {
            CUDA_ERROR_NOT_READY => Ok(false),
            code => cuda.check(code, "work before an event (cuEventQuery)").map(|()| true),
        }
    }

    fn wait(&self) -> Result<()> {
        let cuda = self.driver.cuda;
        // SAFETY: an event that is alive.
        let code = unsafe { (cuda.cuEventSynchronize)(self.id.ptr()) };
        cuda.check(code, "work before an event (cuEventSynchronize)")
    }

    /// A fault is the device's, not the event's: `is_reached` and `wait` return it.
    fn failure(&self, _what: Arguments<'_>) -> Option<Error> {
        None
    }

    fn nanoseconds_to(&self, stop: &Self) -> Result<Option<i64>> {
        if self.context != stop.context {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "the events are of devices {} and {} or of two contexts, whose clocks differ; \
                 record both on one device",
                self.device,
                stop.device
            );
        }
        let cuda = self.driver.cuda;
        let inside = enter(cuda, self.context)?;
        let mut milliseconds = 0.0;
        // SAFETY: room for a float, two events that are alive.
        let code = unsafe {
            (cuda.cuEventElapsedTime)(&raw mut milliseconds, self.id.ptr(), stop.id.ptr())
        };
        drop(inside);
        match code {
            CUDA_SUCCESS => Ok(Some((f64::from(milliseconds) * 1e6).round() as i64)),
            CUDA_ERROR_NOT_READY => Ok(None),
            code => Err(cuda.error(code, "cuEventElapsedTime")),
        }
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        if let Ok(_inside) = enter(self.driver.cuda, self.context) {
            // SAFETY: an event of ours, given up once; the driver frees it when it was reached.
            let _ = unsafe { (self.driver.cuda.cuEventDestroy_v2)(self.id.ptr()) };
        }
    }
}
