//! A CUevent as an object that gives back what it has.

use super::driver::{Driver, enter};
use super::errors::{NOT_READY, SUCCESS};
use super::symbols::*;
use crate::error::Result;
use crate::sys::buf::Addr;
use std::ptr;
use std::sync::Arc;

/// An event of one context.
pub(super) struct Mark {
    /// Keeps the context.
    driver: Arc<Driver>,
    id: Addr,
    /// The context that it was made in; it is recorded on streams of that one only.
    pub(super) context: Addr,
}

impl Mark {
    /// A new one of a context, which is current.
    pub(super) fn create(driver: &Arc<Driver>, context: Addr, flags: i64) -> Result<Self> {
        let mut id = ptr::null_mut();
        // SAFETY: room for an event.
        let code = unsafe { (driver.cuda.cuEventCreate)(&raw mut id, flags as Uint) };
        driver.cuda.check(code, "cuEventCreate")?;
        Ok(Mark { driver: Arc::clone(driver), id: Addr::new(id), context })
    }

    /// Marks the present end of a stream of its context, which is current.
    pub(super) fn record(&self, stream: Addr) -> Result<()> {
        let cuda = self.driver.cuda;
        // SAFETY: an event and a stream, both alive.
        cuda.check(unsafe { (cuda.cuEventRecord)(self.id.ptr(), stream.ptr()) }, "cuEventRecord")
    }

    /// Whether it was reached; the device's fault if there was one.
    pub(super) fn is_reached(&self) -> Result<bool> {
        let cuda = self.driver.cuda;
        // SAFETY: an event that is alive.
        match unsafe { (cuda.cuEventQuery)(self.id.ptr()) } {
            NOT_READY => Ok(false),
            code => cuda.check(code, "work before an event (cuEventQuery)").map(|()| true),
        }
    }

    /// Waits for it.
    pub(super) fn wait(&self) -> Result<()> {
        let cuda = self.driver.cuda;
        // SAFETY: an event that is alive.
        let code = unsafe { (cuda.cuEventSynchronize)(self.id.ptr()) };
        cuda.check(code, "work before an event (cuEventSynchronize)")
    }

    /// Lets a stream, whose context is current, wait for its latest record.
    pub(super) fn hold(&self, stream: Addr) -> Result<()> {
        let cuda = self.driver.cuda;
        // SAFETY: a stream and an event, both alive; of one device or two.
        let code = unsafe { (cuda.cuStreamWaitEvent)(stream.ptr(), self.id.ptr(), 0) };
        cuda.check(code, "cuStreamWaitEvent")
    }

    /// Milliseconds from it to another one of its context; `None`: one was not reached yet.
    pub(super) fn until(&self, stop: &Mark) -> Result<Option<f32>> {
        let cuda = self.driver.cuda;
        let inside = enter(cuda, self.context)?;
        let mut elapsed = 0.0;
        // SAFETY: room for a float, two events that are alive.
        let code =
            unsafe { (cuda.cuEventElapsedTime)(&raw mut elapsed, self.id.ptr(), stop.id.ptr()) };
        drop(inside);
        match code {
            SUCCESS => Ok(Some(elapsed)),
            NOT_READY => Ok(None),
            code => Err(cuda.error(code, "cuEventElapsedTime")),
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if let Ok(_inside) = enter(self.driver.cuda, self.context) {
            // SAFETY: an event of ours, given up once; the driver frees it when it was reached.
            let _ = unsafe { (self.driver.cuda.cuEventDestroy_v2)(self.id.ptr()) };
        }
    }
}
