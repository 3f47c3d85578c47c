//! Event of an OpenCL command, released when its owner drops it.

use super::errors::{check, error};
use super::query::query;
use super::symbols::*;
use crate::backend::driver;
use crate::error::{Error, Result, fail};
use crate::sys::memory::buf::Addr;
use std::fmt::Arguments;
use std::ptr;

/// OpenCL event of a queued command, or user event that the host completes.
pub struct ClEvent {
    pub(super) cl: &'static Functions,
    pub(super) id: Addr,
    /// Index of the device of the event's queue.
    pub(super) device: i32,
}

impl ClEvent {
    /// Returns the execution status of the event's command: CL_COMPLETE, a greater value if the
    /// command has not ended, or a negative error code.
    fn code(&self) -> cl_int {
        let status = query(|room, out| {
            let (what, none) = (CL_EVENT_COMMAND_EXECUTION_STATUS, ptr::null_mut());
            // SAFETY: the event is alive, and `out` is valid for writing `room` bytes.
            unsafe { (self.cl.clGetEventInfo)(self.id.ptr(), what, room, out, none) }
        });
        status.unwrap_or_else(|code| code)
    }

    /// Returns true if the command has ended, successfully or not.
    pub(super) fn has_ended(&self) -> bool {
        self.code() <= CL_COMPLETE as cl_int
    }

    /// Waits for the command and returns its error, if any. `what` names the command in the error
    /// message.
    pub(super) fn finish(&self, what: &str) -> Result<()> {
        driver::Event::wait(self)?;
        check(self.code(), what)
    }

    /// Completes the event, which must be a user event from `ClQueue::user_event`.
    pub(super) fn complete(&self) {
        // SAFETY: the event is alive and is a user event. It is completed once; a second completion
        // would return an error code.
        let _ = unsafe { (self.cl.clSetUserEventStatus)(self.id.ptr(), CL_COMPLETE as cl_int) };
    }

    /// Returns the device timestamp of the command's end, in nanoseconds.
    fn time(&self) -> Result<u64> {
        let end = query(|room, out| {
            let (what, none) = (CL_PROFILING_COMMAND_END, ptr::null_mut());
            // SAFETY: the event is alive, and `out` is valid for writing `room` bytes.
            unsafe { (self.cl.clGetEventProfilingInfo)(self.id.ptr(), what, room, out, none) }
        });
        end.map_err(|code| error(code, "clGetEventProfilingInfo"))
    }
}

impl driver::Event for ClEvent {
    fn is_reached(&self) -> Result<bool> {
        Ok(self.has_ended())
    }

    fn wait(&self) -> Result<()> {
        let id = self.id.ptr();
        // SAFETY: `id` is a local with one live event.
        match unsafe { (self.cl.clWaitForEvents)(1, &raw const id) } {
            // `failure` returns the failure of the command.
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
        // SAFETY: this object owns one reference to the event and releases it once.
        let _ = unsafe { (self.cl.clReleaseEvent)(self.id.ptr()) };
    }
}
