//! A command queue as the queue of a stream.
//!
//! OpenCL reports a command's failure by that command's event alone. A barrier behind an event of
//! the host holds the queue while a host callback runs.

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

/// An in-order command queue.
pub struct ClQueue {
    cl: &'static Functions,
    id: Addr,
    context: Addr,
    /// The device's place in the driver's list.
    pub(super) device: i32,
    /// The platform's.
    pub(super) platform: usize,
    is_wrapped: bool,
    /// A marker for queries, and the number of the command before it.
    probe: Mutex<Option<(ClEvent, u64)>>,
}

/// The marker before the work of the host, and the event for which the queue waits.
struct HostWorkMarker {
    before: ClEvent,
    done: ClEvent,
}

impl Hold for HostWorkMarker {
    fn wait(&self) {
        let _ = self.before.wait(); // a failure belongs to the work before it
    }

    fn release(&self) {
        self.done.complete();
    }
}

impl ClQueue {
    /// Creates a queue on a device, with profiling of its commands.
    pub(super) fn create(driver: &ClDriver, device: i32) -> Result<Self> {
        let card = driver.card(device)?;
        let context = driver.context(card.platform)?;
        let mut code = 0;
        // SAFETY: a context and one of its devices.
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

    /// One that the program made, by its `cl_command_queue`: in order and in a context of this
    /// library's.
    pub(super) fn wrap(driver: &ClDriver, id: Addr) -> Result<Self> {
        if id.is_null() {
            return fail!(DTL_ERROR_INVALID_ARGUMENT, "NULL is no cl_command_queue");
        }
        let context: usize = told(driver.cl, id, CL_QUEUE_CONTEXT)?;
        let device: usize = told(driver.cl, id, CL_QUEUE_DEVICE)?;
        let properties: u64 = told(driver.cl, id, CL_QUEUE_PROPERTIES)?;
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
                 stream \
                 (dtl_stream_native, clGetCommandQueueInfo with CL_QUEUE_CONTEXT)"
            );
        }
        if properties & u64::from(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0 {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "the command queue is out of order; a stream is in order"
            );
        }
        // SAFETY: a queue of the program's, live as the program promises; the share is given back
        // by drop.
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

    /// Queues a point that is reached when all before it has ended.
    fn marker(&self) -> Result<ClEvent> {
        let mut event = ptr::null_mut();
        // SAFETY: a live queue, no list, room for one event.
        let code = unsafe {
            (self.cl.clEnqueueMarkerWithWaitList)(self.id.ptr(), 0, ptr::null(), &raw mut event)
        };
        self.queued(code, event, "clEnqueueMarkerWithWaitList")
    }

    /// Lets what is queued later wait for an event of the same platform.
    fn barrier(&self, event: &ClEvent) -> Result<ClEvent> {
        let (first, mut own) = (event.id.ptr(), ptr::null_mut());
        // SAFETY: a live queue, a live event of its context in a local, room for one event.
        let code = unsafe {
            (self.cl.clEnqueueBarrierWithWaitList)(self.id.ptr(), 1, &raw const first, &raw mut own)
        };
        self.queued(code, own, "clEnqueueBarrierWithWaitList")
    }

    /// An event that the host completes.
    pub(super) fn user_event(&self) -> Result<ClEvent> {
        let mut code = 0;
        // SAFETY: the queue's context.
        let id = unsafe { (self.cl.clCreateUserEvent)(self.context.ptr(), &raw mut code) };
        if id.is_null() {
            return Err(error(code.min(-1), "clCreateUserEvent"));
        }
        Ok(ClEvent { cl: self.cl, id: Addr::new(id), device: self.device })
    }

    /// Queues a copy; each side is shared memory of the queue's platform or the program's own.
    pub(super) fn copy(&self, dst: Region, src: Region) -> Result<ClEvent> {
        let Some(copy) = self.cl.clEnqueueSVMMemcpy else {
            return Err(absent("clEnqueueSVMMemcpy"));
        };
        let mut event = ptr::null_mut();
        let (to, from) = (dst.addr().ptr(), src.addr().ptr());
        // SAFETY: two ranges of this length that the caller has given to this copy until it has
        // ended.
        let code = unsafe {
            copy(self.id.ptr(), CL_FALSE, to, from, dst.len(), 0, ptr::null(), &raw mut event)
        };
        self.queued(code, event, "clEnqueueSVMMemcpy")
    }

    /// Queues setting every byte of shared memory.
    pub(super) fn fill(&self, dst: Region, value: u8) -> Result<ClEvent> {
        let Some(fill) = self.cl.clEnqueueSVMMemFill else {
            return Err(absent("clEnqueueSVMMemFill"));
        };
        let (mut event, pattern) = (ptr::null_mut(), (&raw const value).cast());
        // SAFETY: a range that the caller has given to this call until it has ended; the pattern is
        // copied at once.
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

    /// Queues a kernel over a grid of blocks.
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
        // Below 2 to the 64th: the runtime has checked their product.
        let global = [columns * x, rows * y, layers * z];
        // SAFETY: a live queue, a kernel with all arguments set that no other thread has, three
        // sizes each, no list, room for one event.
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

    /// Makes memory of the host's that the driver copies from and to at once, and its address.
    pub(super) fn pinned(&self, size: usize) -> Result<(Addr, Addr)> {
        let (flags, mut code) = (cl_ulong::from(CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR), 0);
        // SAFETY: the queue's context.
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
        // SAFETY: a live queue and a buffer of its context, all of it; it returns when it is
        // mapped.
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
            // SAFETY: the buffer from above, given up once.
            let _ = unsafe { (self.cl.clReleaseMemObject)(buffer) };
            return Err(error(
                code.min(-1),
                &format!("{size} bytes of pinned memory (clEnqueueMapBuffer)"),
            ));
        }
        Ok((Addr::new(buffer), Addr::new(first)))
    }

    /// Gives back what `pinned` made.
    pub(super) fn unpin(&self, buffer: Addr, first: Addr) {
        // A device that is lost cannot unmap; the buffer goes nonetheless. SAFETY: a live queue, a
        // buffer of its context and where it is mapped; nobody uses it any more.
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
        // SAFETY: the buffer is given up once; the driver keeps it until it is unmapped.
        let _ = unsafe { (self.cl.clReleaseMemObject)(buffer.ptr()) };
        let _ = driver::Queue::flush(self);
    }

    /// Waits for all that is queued.
    pub(super) fn finish(&self) -> Result<()> {
        // SAFETY: a live queue.
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

    /// An event of OpenCL is a single point.
    fn record_again(&self, _event: &ClEvent) -> Result<bool> {
        Ok(false)
    }

    /// A driver cannot use events of another one.
    fn can_wait_for(&self, other: &Self) -> bool {
        self.platform == other.platform
    }

    fn wait_event(&self, event: &ClEvent) -> Result<Option<ClEvent>> {
        self.barrier(event).map(Some)
    }

    fn flush(&self) -> Result<()> {
        // SAFETY: a live queue.
        check(unsafe { (self.cl.clFlush)(self.id.ptr()) }, "clFlush")
    }

    /// Every queue can wait for an event of the host.
    fn prepare_hold(&self) -> Result<bool> {
        Ok(true)
    }

    fn hold(&self) -> Result<Option<Box<dyn Hold>>> {
        let turn = HostWorkMarker { before: self.marker()?, done: self.user_event()? };
        // Whatever fails from here on, the queue must not stay held.
        let held = self.barrier(&turn.done).and_then(|_| self.flush());
        held.inspect_err(|_| turn.release())?;
        Ok(Some(Box::new(turn)))
    }

    fn synchronize(&self) -> Result<()> {
        self.marker()?.wait() // submits the work to the device, too
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
        // SAFETY: our share of the queue, given up once; what is queued still runs.
        let _ = unsafe { (self.cl.clReleaseCommandQueue)(self.id.ptr()) };
    }
}

/// Queries a property of a queue.
fn told<T: super::driver::Pod>(cl: &Functions, queue: Addr, what: cl_uint) -> Result<T> {
    let mut value = T::default();
    let out = (&raw mut value).cast();
    // SAFETY: a queue, as the program promises, and room for the number of bytes that is passed, of
    // a type without wrong values.
    let code = unsafe {
        (cl.clGetCommandQueueInfo)(queue.ptr(), what, size_of::<T>(), out, ptr::null_mut())
    };
    check(code, "clGetCommandQueueInfo").map(|()| value)
}

pub(super) fn absent(name: &str) -> Error {
    let text = format!("the OpenCL loader has no {name}: one of OpenCL 2.0 or newer is needed");
    Error::new(crate::abi::status::DTL_ERROR_NOT_SUPPORTED, text)
}
