//! OpenCL command queue: the driver queue of a stream.
//!
//! OpenCL reports the failure of a command only by the command's event. A barrier that waits for a
//! user event blocks the queue while a host callback runs.

use super::driver::ClDriver;
use super::errors::{check, error};
use super::event::ClEvent;
use super::kernel::BoundKernel;
use super::symbols::*;
use crate::backend::driver::stream_callbacks::Hold;
use crate::backend::driver::{self, Driver as _, Event as _};
use crate::error::{Error, Result, fail};
use crate::sys::memory::buf::{Addr, Region};
use crate::sys::sync::lock::Mutex;
use std::ptr;

/// In-order command queue.
pub struct ClQueue {
    cl: &'static Functions,
    id: Addr,
    context: Addr,
    /// Index of the device in the driver's list.
    pub(super) device: i32,
    /// Index of the device's platform.
    pub(super) platform: usize,
    is_wrapped: bool,
    /// Marker that `is_idle` queries, and the number of the latest command before the marker.
    probe: Mutex<Option<(ClEvent, u64)>>,
}

/// Blocked queue position: a marker before the host work, and the user event that unblocks it.
struct HostWorkMarker {
    before: ClEvent,
    done: ClEvent,
}

impl Hold for HostWorkMarker {
    fn wait(&self) {
        let _ = self.before.wait(); // a failure belongs to the preceding work
    }

    fn release(&self) {
        self.done.complete();
    }
}

impl ClQueue {
    /// Creates a queue on `device`, with profiling of its commands enabled.
    pub(super) fn create(driver: &ClDriver, device: i32) -> Result<Self> {
        let card = driver.card(device)?;
        let context = driver.context(card.platform)?;
        let mut code = 0;
        // SAFETY: the context is alive and contains the device.
        let id = unsafe {
            (driver.cl.clCreateCommandQueue)(
                context.ptr(),
                card.id.ptr(),
                cl_ulong::from(CL_QUEUE_PROFILING_ENABLE),
                &raw mut code,
            )
        };
        if id.is_null() {
            return Err(error(code.min(-1), "clCreateCommandQueue"));
        }
        Ok(ClQueue {
            cl: driver.cl,
            id: Addr::new(id),
            context,
            device,
            platform: card.platform,
            is_wrapped: false,
            probe: Mutex::new(None),
        })
    }

    /// Wraps `id`, a command queue of the application. Returns an error unless the queue is in
    /// order and belongs to a context of this library.
    pub(super) fn wrap(driver: &ClDriver, id: Addr) -> Result<Self> {
        if id.is_null() {
            return fail!(DTL_ERROR_INVALID_ARGUMENT, "NULL is no cl_command_queue");
        }
        let context: usize = info(driver.cl, id, CL_QUEUE_CONTEXT)?;
        let device: usize = info(driver.cl, id, CL_QUEUE_DEVICE)?;
        let properties: u64 = info(driver.cl, id, CL_QUEUE_PROPERTIES)?;
        let place = driver.devices.iter().position(|card| card.id.get() == device);
        let known = place.and_then(|place| Some((place, driver.devices.get(place)?)));
        let Some((place, card)) = known else {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "the command queue is of a device that is not listed here"
            );
        };
        let own = driver.context(card.platform)?;
        if own.get() != context {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "the command queue is of another context than the library's: make it in that of a \
                 stream (dtl_stream_native, clGetCommandQueueInfo with CL_QUEUE_CONTEXT)"
            );
        }
        if properties & u64::from(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0 {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "the command queue is out of order; a stream is in order"
            );
        }
        // SAFETY: the program guarantees that the queue is alive. Dropping this object releases the
        // reference.
        check(unsafe { (driver.cl.clRetainCommandQueue)(id.ptr()) }, "clRetainCommandQueue")?;
        Ok(ClQueue {
            cl: driver.cl,
            id,
            context: own,
            device: place as i32,
            platform: card.platform,
            is_wrapped: true,
            probe: Mutex::new(None),
        })
    }

    /// Queues a marker, whose event is reached when all preceding commands have ended.
    fn marker(&self) -> Result<ClEvent> {
        let mut event = ptr::null_mut();
        // SAFETY: the queue is alive, the wait list is empty, and `event` is valid for writing an
        // event handle.
        let code = unsafe {
            (self.cl.clEnqueueMarkerWithWaitList)(self.id.ptr(), 0, ptr::null(), &raw mut event)
        };
        self.queued(code, event, "clEnqueueMarkerWithWaitList")
    }

    /// Makes commands queued later wait for `event`, which must belong to the queue's platform.
    /// Returns the event of the barrier.
    fn barrier(&self, event: &ClEvent) -> Result<ClEvent> {
        let (first, mut own) = (event.id.ptr(), ptr::null_mut());
        // SAFETY: the queue is alive, `first` is a local with one live event of the queue's
        // context, and `own` is valid for writing an event handle.
        let code = unsafe {
            (self.cl.clEnqueueBarrierWithWaitList)(self.id.ptr(), 1, &raw const first, &raw mut own)
        };
        self.queued(code, own, "clEnqueueBarrierWithWaitList")
    }

    /// Creates a user event, which the host completes.
    pub(super) fn user_event(&self) -> Result<ClEvent> {
        let mut code = 0;
        // SAFETY: the queue keeps its context alive.
        let id = unsafe { (self.cl.clCreateUserEvent)(self.context.ptr(), &raw mut code) };
        if id.is_null() {
            return Err(error(code.min(-1), "clCreateUserEvent"));
        }
        Ok(ClEvent { cl: self.cl, id: Addr::new(id), device: self.device })
    }

    /// Queues a copy. Each side must be host memory of the application or shared virtual memory of
    /// the queue's platform.
    pub(super) fn copy(&self, dst: Region, src: Region) -> Result<ClEvent> {
        let Some(copy) = self.cl.clEnqueueSVMMemcpy else {
            return Err(absent("clEnqueueSVMMemcpy"));
        };
        let mut event = ptr::null_mut();
        let (to, from) = (dst.addr().ptr(), src.addr().ptr());
        // SAFETY: both ranges have this length, and the caller reserves them for this copy until
        // the copy has ended.
        let code = unsafe {
            copy(self.id.ptr(), CL_FALSE, to, from, dst.len(), 0, ptr::null(), &raw mut event)
        };
        self.queued(code, event, "clEnqueueSVMMemcpy")
    }

    /// Queues a fill of `dst`, which must be shared virtual memory, with the byte `value`.
    pub(super) fn fill(&self, dst: Region, value: u8) -> Result<ClEvent> {
        let Some(fill) = self.cl.clEnqueueSVMMemFill else {
            return Err(absent("clEnqueueSVMMemFill"));
        };
        let (mut event, pattern) = (ptr::null_mut(), (&raw const value).cast());
        // SAFETY: the caller reserves the range for this fill until the fill has ended. The call
        // copies the pattern before it returns.
        let code = unsafe {
            fill(
                self.id.ptr(),
                dst.addr().ptr(),
                pattern,
                1,
                dst.len(),
                0,
                ptr::null(),
                &raw mut event,
            )
        };
        self.queued(code, event, "clEnqueueSVMMemFill")
    }

    /// Queues a kernel over a grid of `grid` blocks of `block` threads.
    pub(super) fn launch(
        &self,
        ready: &BoundKernel<'_>,
        grid: [u32; 3],
        block: [u32; 3],
    ) -> Result<ClEvent> {
        let mut event = ptr::null_mut();
        let local = block.map(|threads| threads as usize);
        let [x, y, z] = local;
        let [columns, rows, layers] = grid.map(|blocks| blocks as usize);
        // The products do not overflow: the runtime has checked that the total is below 2^64.
        let global = [columns * x, rows * y, layers * z];
        // SAFETY: the queue is alive, and the kernel has all arguments set and is used by no other
        // thread. `global` and `local` have three sizes each, the wait list is empty, and `event`
        // is valid for writing an event handle.
        let code = unsafe {
            (self.cl.clEnqueueNDRangeKernel)(
                self.id.ptr(),
                ready.id().ptr(),
                3,
                ptr::null(),
                global.as_ptr(),
                local.as_ptr(),
                0,
                ptr::null(),
                &raw mut event,
            )
        };
        if code < 0 {
            return Err(ready.refused(code, block));
        }
        self.queued(code, event, "clEnqueueNDRangeKernel")
    }

    /// Allocates host memory that the driver can copy from and to directly. Returns the `cl_mem`
    /// handle and the address.
    pub(super) fn pinned(&self, size: usize) -> Result<(Addr, Addr)> {
        let (flags, mut code) = (cl_ulong::from(CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR), 0);
        // SAFETY: the queue keeps its context alive.
        let buffer = unsafe {
            (self.cl.clCreateBuffer)(
                self.context.ptr(),
                flags,
                size,
                ptr::null_mut(),
                &raw mut code,
            )
        };
        if buffer.is_null() {
            return Err(error(
                code.min(-1),
                &format!("{size} bytes of pinned memory (clCreateBuffer)"),
            ));
        }
        let access = cl_ulong::from(CL_MAP_READ | CL_MAP_WRITE);
        // SAFETY: the queue is alive, and the whole of a buffer of its context is mapped. The
        // blocking call returns after the mapping is complete.
        let first = unsafe {
            (self.cl.clEnqueueMapBuffer)(
                self.id.ptr(),
                buffer,
                CL_TRUE,
                access,
                0,
                size,
                0,
                ptr::null(),
                ptr::null_mut(),
                &raw mut code,
            )
        };
        if first.is_null() {
            // SAFETY: this function created the buffer and releases it once.
            let _ = unsafe { (self.cl.clReleaseMemObject)(buffer) };
            return Err(error(
                code.min(-1),
                &format!("{size} bytes of pinned memory (clEnqueueMapBuffer)"),
            ));
        }
        Ok((Addr::new(buffer), Addr::new(first)))
    }

    /// Unmaps and releases `buffer`, which `pinned` created and mapped at `first`.
    pub(super) fn unpin(&self, buffer: Addr, first: Addr) {
        // SAFETY: the queue is alive, the buffer belongs to its context and is mapped at `first`,
        // and nothing uses the memory. The result is ignored: a lost device cannot unmap, but the
        // buffer is released nevertheless.
        let _ = unsafe {
            (self.cl.clEnqueueUnmapMemObject)(
                self.id.ptr(),
                buffer.ptr(),
                first.ptr(),
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        };
        // SAFETY: the buffer is released once; the driver keeps it until it is unmapped.
        let _ = unsafe { (self.cl.clReleaseMemObject)(buffer.ptr()) };
        let _ = driver::Queue::flush(self);
    }

    /// Waits until all queued commands have completed.
    pub(super) fn finish(&self) -> Result<()> {
        // SAFETY: the queue is alive.
        check(unsafe { (self.cl.clFinish)(self.id.ptr()) }, "clFinish")
    }

    fn queued(&self, code: cl_int, event: *mut c_void, what: &str) -> Result<ClEvent> {
        check(code, what)?;
        if event.is_null() {
            return fail!(DTL_ERROR_OPENCL, "{what} succeeded and gave no event");
        }
        Ok(ClEvent { cl: self.cl, id: Addr::new(event), device: self.device })
    }
}

impl driver::Queue for ClQueue {
    type Event = ClEvent;

    fn native(&self) -> Addr {
        self.id
    }

    fn is_wrapped(&self) -> bool {
        self.is_wrapped
    }

    fn record(&self, _is_timed: bool) -> Result<ClEvent> {
        let event = self.marker()?;
        self.flush().map(|()| event)
    }

    /// Returns false: an OpenCL event cannot be recorded again.
    fn record_again(&self, _event: &ClEvent) -> Result<bool> {
        Ok(false)
    }

    /// Returns true if both queues belong to one platform: a driver cannot wait for events of
    /// another driver.
    fn can_wait_for(&self, other: &Self) -> bool {
        self.platform == other.platform
    }

    fn wait_event(&self, event: &ClEvent) -> Result<Option<ClEvent>> {
        self.barrier(event).map(Some)
    }

    fn flush(&self) -> Result<()> {
        // SAFETY: the queue is alive.
        check(unsafe { (self.cl.clFlush)(self.id.ptr()) }, "clFlush")
    }

    /// Returns true: every queue can wait for a user event.
    fn prepare_hold(&self) -> Result<bool> {
        Ok(true)
    }

    fn hold(&self) -> Result<Option<Box<dyn Hold>>> {
        let turn = HostWorkMarker { before: self.marker()?, done: self.user_event()? };
        // On any failure from here on the user event is completed, so that the queue does not
        // remain held.
        let held = self.barrier(&turn.done).and_then(|_| self.flush());
        held.inspect_err(|_| turn.release())?;
        Ok(Some(Box::new(turn)))
    }

    fn synchronize(&self) -> Result<()> {
        self.marker()?.wait() // also submits the work to the device
    }

    fn is_idle(&self, last: u64, ended: u64) -> Result<bool> {
        // Commands that the program queues on its own queue have no numbers.
        if ended == last && !self.is_wrapped {
            return Ok(true);
        }
        let mut probe = self.probe.lock();
        if probe.as_ref().is_none_or(|(_, number)| *number != last) {
            *probe = Some((self.marker()?, last));
            self.flush()?;
        }
        let is_reached = probe.as_ref().is_none_or(|(marker, _)| marker.has_ended());
        if is_reached {
            *probe = None;
        }
        Ok(is_reached)
    }
}

impl Drop for ClQueue {
    fn drop(&mut self) {
        // SAFETY: this object owns one reference to the queue and releases it once. Queued commands
        // still run.
        let _ = unsafe { (self.cl.clReleaseCommandQueue)(self.id.ptr()) };
    }
}

/// Queries a property of a queue.
fn info<T: super::driver::Pod>(cl: &Functions, queue: Addr, what: cl_uint) -> Result<T> {
    let mut value = T::default();
    let out = (&raw mut value).cast();
    // SAFETY: the program guarantees that the queue is alive, `out` is valid for writing the passed
    // number of bytes, and every bit pattern is a valid `T`.
    let code = unsafe {
        (cl.clGetCommandQueueInfo)(queue.ptr(), what, size_of::<T>(), out, ptr::null_mut())
    };
    check(code, "clGetCommandQueueInfo").map(|()| value)
}

pub(super) fn absent(name: &str) -> Error {
    let text = format!("the OpenCL loader has no {name}: one of OpenCL 2.0 or newer is needed");
    Error::new(crate::abi::status::DTL_ERROR_NOT_SUPPORTED, text)
}
