//! Command queue of a library stream, implemented by a CUstream.
//!
//! After a device fault, CUDA returns the fault's error code from every later call in the context.
//! Therefore the library does not need an event per copy, fill or launch to detect failures.
//!
//! Module [`super::stream_hold`] blocks a stream while a host callback runs.

use super::driver::{ContextGuard, CudaDriver, enter, new_stream};
use super::event::CudaEvent;
use super::stream_hold::Gate;
use super::symbols::*;
use crate::backend::driver::stream_callbacks::Hold;
use crate::backend::driver::{self, Driver as _};
use crate::error::{Result, fail};
use crate::sys::memory::buf::Addr;
use crate::sys::sync::lock::Mutex;
use std::ptr;
use std::sync::Arc;

/// CUstream that the library created, or that the application created and the library wraps.
pub struct CudaStream {
    /// Driver, which keeps the context alive.
    pub(super) driver: Arc<CudaDriver>,
    /// Native stream handle (`CUstream`). The values 0, 1 and 2 denote default streams of the
    /// context.
    pub(super) id: Addr,
    /// Context that the stream belongs to.
    pub(super) context: Addr,
    /// Index of the stream's device in the driver's device list.
    pub(super) device: i32,
    is_wrapped: bool,
    gate: Mutex<Option<Gate>>,
}

impl CudaStream {
    /// Creates a stream on `device` with a priority from the range of the device.
    pub(super) fn create(driver: &Arc<CudaDriver>, device: i32, priority: i32) -> Result<Self> {
        let context = driver.context(device)?;
        let _inside = driver.enter(device)?;
        let id = new_stream(driver.cuda, priority)?;
        Ok(CudaStream::new(driver, id, context, device, false))
    }

    /// Wraps a stream that the application created on `device`, in the primary context or in
    /// another context. NULL and the special handles of cuda.h (CU_STREAM_LEGACY,
    /// CU_STREAM_PER_THREAD) denote the default streams of the primary context.
    pub(super) fn wrap(driver: &Arc<CudaDriver>, device: i32, id: Addr) -> Result<Self> {
        let primary = driver.context(device)?;
        if id.get() <= 2 {
            return Ok(CudaStream::new(driver, id, primary, device, true));
        }
        let mut context = ptr::null_mut();
        // SAFETY: the program passes a live stream, and `context` is valid for writing a context
        // handle.
        let code = unsafe { (driver.cuda.cuStreamGetCtx)(id.ptr(), &raw mut context) };
        driver.cuda.check(code, "the CUstream to wrap (cuStreamGetCtx)")?;
        let context = Addr::new(context);
        let _inside = enter(driver.cuda, context)?;
        let mut ordinal = 0;
        // SAFETY: `ordinal` is valid for writing a device handle.
        let code = unsafe { (driver.cuda.cuCtxGetDevice)(&raw mut ordinal) };
        driver.cuda.check(code, "cuCtxGetDevice")?;
        if driver.card(device)?.id != ordinal {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "the CUstream is of CUDA's device {ordinal}, and the current one is {device}: make \
                 that current first (dtl_backend_set_device)"
            );
        }
        Ok(CudaStream::new(driver, id, context, device, true))
    }

    fn new(
        driver: &Arc<CudaDriver>,
        id: Addr,
        context: Addr,
        device: i32,
        is_wrapped: bool,
    ) -> Self {
        let driver = Arc::clone(driver);
        CudaStream { driver, id, context, device, is_wrapped, gate: Mutex::new(None) }
    }

    /// Makes the stream's context current in the calling thread until the returned guard is
    /// dropped.
    pub(super) fn enter(&self) -> Result<ContextGuard> {
        enter(self.driver.cuda, self.context)
    }
}

impl driver::Queue for CudaStream {
    type Event = CudaEvent;

    fn native(&self) -> Addr {
        self.id
    }

    fn is_wrapped(&self) -> bool {
        self.is_wrapped
    }

    fn record(&self, is_timed: bool) -> Result<CudaEvent> {
        let _inside = self.enter()?;
        let flags = if is_timed { CU_EVENT_DEFAULT } else { CU_EVENT_DISABLE_TIMING };
        let event = CudaEvent::create(&self.driver, self.context, self.device, flags)?;
        event.record(self.id).map(|()| event)
    }

    fn record_again(&self, event: &CudaEvent) -> Result<bool> {
        if event.context != self.context {
            return Ok(false);
        }
        let _inside = self.enter()?;
        event.record(self.id).map(|()| true)
    }

    fn can_wait_for(&self, _other: &Self) -> bool {
        true
    }

    fn wait_event(&self, event: &CudaEvent) -> Result<Option<CudaEvent>> {
        let _inside = self.enter()?;
        event.hold(self.id).map(|()| None)
    }

    /// Does nothing: CUDA submits queued commands without a flush.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn prepare_hold(&self) -> Result<bool> {
        let mut gate = self.gate.lock();
        if gate.is_none() {
            *gate = Gate::new(&self.driver, self.device)?;
        }
        Ok(gate.is_some())
    }

    fn hold(&self) -> Result<Option<Box<dyn Hold>>> {
        let mut gate = self.gate.lock();
        let Some(gate) = gate.as_mut() else { return Ok(None) };
        let _inside = self.enter()?;
        let waiting = gate.hold(self.id)?;
        Ok(waiting.map(|waiting| Box::new(waiting) as Box<dyn Hold>))
    }

    fn synchronize(&self) -> Result<()> {
        let _inside = self.enter()?;
        // SAFETY: the stream is alive.
        let code = unsafe { (self.driver.cuda.cuStreamSynchronize)(self.id.ptr()) };
        self.driver.cuda.check(code, "work of a stream (cuStreamSynchronize)")
    }

    fn is_idle(&self, _last: u64, _ended: u64) -> Result<bool> {
        let _inside = self.enter()?;
        // SAFETY: the stream is alive.
        let code = unsafe { (self.driver.cuda.cuStreamQuery)(self.id.ptr()) };
        if code == CUDA_ERROR_NOT_READY {
            return Ok(false);
        }
        self.driver.cuda.check(code, "work of a stream (cuStreamQuery)").map(|()| true)
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        if !self.is_wrapped {
            if let Ok(_inside) = self.enter() {
                // SAFETY: this object owns the stream and destroys it once.
                let _ = unsafe { (self.driver.cuda.cuStreamDestroy_v2)(self.id.ptr()) };
            }
        }
    }
}
