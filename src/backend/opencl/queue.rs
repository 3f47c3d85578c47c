//! OpenCL command queue on which a stream executes its work.
//!
//! OpenCL reports the failure of a command only through the command's event. A barrier that waits
//! for a user event blocks the queue while a host callback runs.

use super::driver::{Card, ClDriver};
use super::errors::{check, created, error, required};
use super::event::ClEvent;
use super::kernel::BoundKernel;
use super::query::{Pod, query};
use super::symbols::*;
use crate::backend::driver::stream_callbacks::Hold;
use crate::backend::driver::{self, Driver as _, Event as _};
use crate::error::{Result, fail};
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
    /// Event of the marker that `is_idle` queries, and the number of the last command queued before
    /// the marker.
    probe: Mutex<Option<(ClEvent, u64)>>,
}

/// Position of a host callback in the queue: the event of the marker that precedes the callback,
/// and the user event that unblocks the queue after the callback.
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
    /// Creates a queue on `device`, with profiling of its commands enabled. `priority` is 0, or
    /// from the range of a device with priorities.
    pub(super) fn create(driver: &ClDriver, device: i32, priority: i32) -> Result<Self> {
        let card = driver.card(device)?;
        let context = driver.context(card.platform)?;
        let (cl, of, on) = (driver.cl, context.ptr(), card.id.ptr());
        let profiling = cl_ulong::from(CL_QUEUE_PROFILING_ENABLE);
        let mut code = 0;
        let id = match cl.clCreateCommandQueueWithProperties.filter(|_| priority != 0) {
            Some(create) => {
                let hint = if priority < 0 {
                    CL_QUEUE_PRIORITY_HIGH_KHR
                } else {
                    CL_QUEUE_PRIORITY_LOW_KHR
                };
                let (first, second) = (CL_QUEUE_PROPERTIES.into(), CL_QUEUE_PRIORITY_KHR.into());
                let properties: [cl_ulong; 5] = [first, profiling, second, hint.into(), 0];
                // SAFETY: the context is alive and contains the device. `properties` is a local
                // with pairs of names and values, which ends with 0.
                let id = unsafe { create(of, on, properties.as_ptr(), &raw mut code) };
                created(id, code, "clCreateCommandQueueWithProperties")?
            }
            None => {
                // SAFETY: the context is alive and contains the device.
                let id = unsafe { (cl.clCreateCommandQueue)(of, on, profiling, &raw mut code) };
                created(id, code, "clCreateCommandQueue")?
            }
        };
        Ok(Self::new(driver, id, context, device, card, false))
    }

    fn new(
        driver: &ClDriver,
        id: Addr,
        context: Addr,
        device: i32,
        card: &Card,
        is_wrapped: bool,
    ) -> Self {
        let (cl, platform, probe) = (driver.cl, card.platform, Mutex::new(None));
        ClQueue { cl, id, context, device, platform, is_wrapped, probe }
    }

    /// Wraps `id`, a command queue that the application created. Returns an error unless the queue
    /// is in order and belongs to a context of this library.
    pub(super) fn wrap(driver: &ClDriver, id: Addr) -> Result<Self> {
        if id.is_null() {
            return fail!(DTL_ERROR_INVALID_ARGUMENT, "NULL is no cl_command_queue");
        }
        let context: usize = info(driver.cl, id, CL_QUEUE_CONTEXT)?;
        let device: usize = info(driver.cl, id, CL_QUEUE_DEVICE)?;
        let properties: u64 = info(driver.cl, id, CL_QUEUE_PROPERTIES)?;
        let mut devices = (0..).zip(&driver.devices);
        let Some((number, card)) = devices.find(|(_, card)| card.id.get() == device) else {
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
        Ok(Self::new(driver, id, own, number, card, true))
    }

    /// Queues a marker. Returns its event, which completes when all preceding commands have ended.
    fn marker(&self) -> Result<ClEvent> {
        self.enqueue("clEnqueueMarkerWithWaitList", |event| {
            // SAFETY: the queue is alive, the wait list is empty, and `event` is valid for writing
            // an event handle.
            unsafe { (self.cl.clEnqueueMarkerWithWaitList)(self.id.ptr(), 0, ptr::null(), event) }
        })
    }

    /// Makes commands queued later wait for `event`, which must belong to the queue's platform.
    /// Returns the event of the barrier.
    fn barrier(&self, event: &ClEvent) -> Result<ClEvent> {
        let first = event.id.ptr();
        self.enqueue("clEnqueueBarrierWithWaitList", |own| {
            let list = &raw const first;
            // SAFETY: the queue is alive, `first` is a local with one live event of the queue's
            // context, and `own` is valid for writing an event handle.
            unsafe { (self.cl.clEnqueueBarrierWithWaitList)(self.id.ptr(), 1, list, own) }
        })
    }

    /// Creates a user event, which the host completes.
    pub(super) fn user_event(&self) -> Result<ClEvent> {
        let mut code = 0;
        // SAFETY: the queue keeps its context alive.
        let id = unsafe { (self.cl.clCreateUserEvent)(self.context.ptr(), &raw mut code) };
        let id = created(id, code, "clCreateUserEvent")?;
        Ok(ClEvent { cl: self.cl, id, device: self.device })
    }

    /// Queues a copy. The source and the destination must each be host memory of the application or
    /// shared virtual memory of the queue's platform.
    pub(super) fn copy(&self, dst: Region, src: Region) -> Result<ClEvent> {
        let copy = required(self.cl.clEnqueueSVMMemcpy, "clEnqueueSVMMemcpy")?;
        let (queue, to, from) = (self.id.ptr(), dst.addr().ptr(), src.addr().ptr());
        self.enqueue("clEnqueueSVMMemcpy", |event| {
            // SAFETY: both ranges have this length, and the caller reserves them for this copy
            // until the copy has ended.
            unsafe { copy(queue, CL_FALSE, to, from, dst.len(), 0, ptr::null(), event) }
        })
    }

    /// Queues a fill of `dst`, which must be shared virtual memory, with the byte `value`.
    pub(super) fn fill(&self, dst: Region, value: u8) -> Result<ClEvent> {
        let fill = required(self.cl.clEnqueueSVMMemFill, "clEnqueueSVMMemFill")?;
        let (queue, to, pattern) = (self.id.ptr(), dst.addr().ptr(), (&raw const value).cast());
        self.enqueue("clEnqueueSVMMemFill", |event| {
            // SAFETY: the caller reserves the range for this fill until the fill has ended. The
            // call copies the pattern before it returns.
            unsafe { fill(queue, to, pattern, 1, dst.len(), 0, ptr::null(), event) }
        })
    }

    /// Queues a kernel over a grid of `grid` blocks of `block` threads.
    pub(super) fn launch(
        &self,
        ready: &BoundKernel<'_>,
        grid: [u32; 3],
        block: [u32; 3],
    ) -> Result<ClEvent> {
        let local = block.map(|threads| threads as usize);
        let [x, y, z] = local;
        let [columns, rows, layers] = grid.map(|blocks| blocks as usize);
        // The products do not overflow: the runtime has checked that the total is below 2^64.
        let global = [columns * x, rows * y, layers * z];
        let (global, local) = (global.as_ptr(), local.as_ptr());
        let (queue, kernel, none) = (self.id.ptr(), ready.id().ptr(), ptr::null());
        let mut code = 0;
        let event = self.enqueue("clEnqueueNDRangeKernel", |event| {
            // SAFETY: the queue is alive, and the kernel has all arguments set and is used by no
            // other thread. `global` and `local` have three sizes each, the wait list is empty, and
            // `event` is valid for writing an event handle.
            code = unsafe {
                (self.cl.clEnqueueNDRangeKernel)(
                    queue,
                    kernel,
                    3,
                    none,
                    global,
                    local,
                    0,
                    ptr::null(),
                    event,
                )
            };
            code
        });
        if code < 0 { Err(ready.refused(code, block)) } else { event }
    }

    /// Allocates host memory that the driver can copy from and to directly. Returns the `cl_mem`
    /// handle and the address.
    pub(super) fn pinned(&self, size: usize) -> Result<(Addr, Addr)> {
        let (flags, mut code) = (cl_ulong::from(CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR), 0);
        // SAFETY: the queue keeps its context alive.
        let buffer = unsafe {
            let none = ptr::null_mut();
            (self.cl.clCreateBuffer)(self.context.ptr(), flags, size, none, &raw mut code)
        };
        created(buffer, code, &format!("{size} bytes of pinned memory (clCreateBuffer)"))?;
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
        let what = format!("{size} bytes of pinned memory (clEnqueueMapBuffer)");
        let first = created(first, code, &what).inspect_err(|_| {
            // SAFETY: this function created the buffer and releases it once.
            let _ = unsafe { (self.cl.clReleaseMemObject)(buffer) };
        })?;
        Ok((Addr::new(buffer), first))
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

    /// Queues a command by calling `enqueue`, which writes the command's event to the passed
    /// address. `what` names the OpenCL function.
    fn enqueue(
        &self,
        what: &str,
        enqueue: impl FnOnce(*mut *mut c_void) -> cl_int,
    ) -> Result<ClEvent> {
        let mut event = ptr::null_mut();
        check(enqueue(&raw mut event), what)?;
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

    /// Returns true if both queues belong to the same platform: the driver of one platform cannot
    /// wait for events of another driver.
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
fn info<T: Pod>(cl: &Functions, queue: Addr, what: cl_uint) -> Result<T> {
    let value = query(|room, out| {
        // SAFETY: the program guarantees that the queue is alive, and `out` is valid for writing
        // `room` bytes.
        unsafe { (cl.clGetCommandQueueInfo)(queue.ptr(), what, room, out, ptr::null_mut()) }
    });
    value.map_err(|code| error(code, "clGetCommandQueueInfo"))
}
