//! Wrapper of a CUevent. Dropping the wrapper destroys the CUevent.

use super::driver::{CudaDriver, enter};
use super::symbols::*;
use crate::backend::driver;
use crate::error::{Error, Result, fail};
use crate::sys::memory::buf::Addr;
use std::fmt::Arguments;
use std::ptr;
use std::sync::Arc;

/// CUDA event of one context.
pub struct CudaEvent {
    /// Driver, which keeps the context alive.
    driver: Arc<CudaDriver>,
    id: Addr,
    /// Context in which the event was created. Only streams of this context can record the event.
    pub(super) context: Addr,
    /// Device of the context.
    device: i32,
}

impl CudaEvent {
    /// Creates an event in `context`, which the caller must have made current.
    pub(super) fn create(
        driver: &Arc<CudaDriver>,
        context: Addr,
        device: i32,
        flags: c_uint,
    ) -> Result<Self> {
        let mut id = ptr::null_mut();
        // SAFETY: `id` is valid for writing an event handle.
        let code = unsafe { (driver.cuda.cuEventCreate)(&raw mut id, flags) };
        driver.cuda.check(code, "cuEventCreate")?;
        Ok(CudaEvent { driver: Arc::clone(driver), id: Addr::new(id), context, device })
    }

    /// Records the event after all work queued on `stream`, a stream of the event's context. The
    /// caller must have made that context current.
    pub(super) fn record(&self, stream: Addr) -> Result<()> {
        let cuda = self.driver.cuda;
        // SAFETY: the event and the stream are alive.
        cuda.check(unsafe { (cuda.cuEventRecord)(self.id.ptr(), stream.ptr()) }, "cuEventRecord")
    }

    /// Makes work queued later on `stream` wait for the work captured by the event's latest record
    /// call (cuStreamWaitEvent). The caller must have made the stream's context current.
    pub(super) fn hold(&self, stream: Addr) -> Result<()> {
        let cuda = self.driver.cuda;
        // SAFETY: the stream and the event are alive. They may belong to different devices.
        let code = unsafe { (cuda.cuStreamWaitEvent)(stream.ptr(), self.id.ptr(), 0) };
        cuda.check(code, "cuStreamWaitEvent")
    }
}

impl driver::Event for CudaEvent {
    fn is_reached(&self) -> Result<bool> {
        let cuda = self.driver.cuda;
        // SAFETY: the event is alive.
        match unsafe { (cuda.cuEventQuery)(self.id.ptr()) } {
            CUDA_ERROR_NOT_READY => Ok(false),
            code => cuda.check(code, "work before an event (cuEventQuery)").map(|()| true),
        }
    }

    fn wait(&self) -> Result<()> {
        let cuda = self.driver.cuda;
        // SAFETY: the event is alive.
        let code = unsafe { (cuda.cuEventSynchronize)(self.id.ptr()) };
        cuda.check(code, "work before an event (cuEventSynchronize)")
    }

    /// Always returns `None`, because CUDA does not report failures of single commands. After a
    /// device fault, `is_reached` and `wait` of every event return the error.
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
        let _inside = enter(cuda, self.context)?;
        let mut milliseconds = 0.0;
        // SAFETY: `milliseconds` is valid for writing a float, and both events are alive.
        let code = unsafe {
            (cuda.cuEventElapsedTime)(&raw mut milliseconds, self.id.ptr(), stop.id.ptr())
        };
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
            // SAFETY: this object owns the event and destroys it once. The driver defers the
            // release until the event is reached.
            let _ = unsafe { (self.driver.cuda.cuEventDestroy_v2)(self.id.ptr()) };
        }
    }
}
