//! An event of a command as an object that gives back what it has.

use super::errors::{check, error};
use super::symbols::*;
use crate::backend::driver;
use crate::error::{Error, Result, fail};
use crate::sys::memory::buf::Addr;
use std::fmt::Arguments;
use std::ptr;

/// An event of a command, or one that the host completes.
pub struct ClEvent {
    pub(super) cl: &'static Functions,
    pub(super) id: Addr,
    /// The queue's device.
    pub(super) device: i32,
}

impl ClEvent {
    /// Its command's state: CL_COMPLETE, above it = not there yet, below it = failed.
    fn code(&self) -> cl_int {
        let mut state: cl_int = 0;
        // SAFETY: a live event, and room for the `cl_int` that is queried.
        let code = unsafe {
            (self.cl.clGetEventInfo)(
                self.id.ptr(),
                CL_EVENT_COMMAND_EXECUTION_STATUS,
                size_of::<cl_int>(),
                (&raw mut state).cast(),
                ptr::null_mut(),
            )
        };
        if code < 0 { code } else { state }
    }

    /// Whether the command has ended, well or not.
    pub(super) fn has_ended(&self) -> bool {
        self.code() <= CL_COMPLETE as cl_int
    }

    /// Waits, and fails if the command did.
    pub(super) fn finish(&self, what: &str) -> Result<()> {
        driver::Event::wait(self)?;
        check(self.code(), what)
    }

    /// Completes one of [`super::queue::Queue::user_event`].
    pub(super) fn complete(&self) {
        // SAFETY: a live event of the host's. It is completed once; a second time were an error
        // code.
        let _ = unsafe { (self.cl.clSetUserEventStatus)(self.id.ptr(), CL_COMPLETE as cl_int) };
    }

    /// When the command ended, by the device's clock, in nanoseconds.
    fn time(&self) -> Result<u64> {
        let mut at = 0u64;
        // SAFETY: a live event, and room for the `cl_ulong` that is queried.
        let code = unsafe {
            (self.cl.clGetEventProfilingInfo)(
                self.id.ptr(),
                CL_PROFILING_COMMAND_END,
                size_of::<u64>(),
                (&raw mut at).cast(),
                ptr::null_mut(),
            )
        };
        check(code, "clGetEventProfilingInfo").map(|()| at)
    }
}

impl driver::Event for ClEvent {
    fn is_reached(&self) -> Result<bool> {
        Ok(self.has_ended())
    }

    fn wait(&self) -> Result<()> {
        let id = self.id.ptr();
        // SAFETY: one live event, in a local.
        match unsafe { (self.cl.clWaitForEvents)(1, &raw const id) } {
            // `failure` returns that of the command.
            CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST => Ok(()),
            code => check(code, "clWaitForEvents"),
        }
    }

    fn failure(&self, what: Arguments<'_>) -> Option<Error> {
        let code = self.code();
        (code < 0).then(|| error(code, &what.to_string()))
    }

    fn nanoseconds_to(&self, stop: &Self) -> Result<Option<i64>> {
        if !self.has_ended() || !stop.has_ended() {
            return Ok(None);
        }
        if self.device != stop.device {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "the events are of devices {} and {}, whose clocks differ; record both on one \
                 device",
                self.device,
                stop.device
            );
        }
        let (from, to) = (self.time()?, stop.time()?);
        Ok(Some(to.wrapping_sub(from) as i64))
    }
}

impl Drop for ClEvent {
    fn drop(&mut self) {
        // SAFETY: our share of the event, given up once.
        let _ = unsafe { (self.cl.clReleaseEvent)(self.id.ptr()) };
    }
}
