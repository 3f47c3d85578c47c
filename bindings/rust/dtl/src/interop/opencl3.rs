//! Command queues and buffers of the crate `opencl3`. Needs feature `opencl3` and Rust 1.87.
//!
//! OpenCL objects belong to a context, and the library has one for each platform: [`context`] returns
//! it, for the queues, programs and buffers of opencl3. Shared virtual memory that the library has
//! allocated (`Backend::alloc` with DTL_MEMORY_DEVICE) is an argument of kernels of opencl3 by its
//! address (`set_arg_svm`). A `Buffer` of opencl3 has no address that the library could use; it is
//! mapped into the host's memory for messages, see [`Mapped`].
//!
//! ```
//! use dtl_binding::interop::opencl3::{Mapped, context, stream};
//! use dtl_binding::{Backend, Comm, SUM};
//! use opencl3::command_queue::CommandQueue;
//! use opencl3::memory::{Buffer, CL_MEM_READ_WRITE};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let Ok(_) = Backend::require("opencl") else { return Ok(()) };
//! let device = Backend::require("opencl")?.device(0);
//! let context = context(device)?;
//! let queue = Arc::new(CommandQueue::create_default_with_properties(&context, 0, 0)?);
//! // SAFETY: no memory of the host is named.
//! let mut buffer = unsafe {
//!     Buffer::<f32>::create(&context, CL_MEM_READ_WRITE, 1024, std::ptr::null_mut())
//! }?;
//! let comm = Comm::world()?;
//! {
//!     // SAFETY: nothing else uses the buffer.
//!     let mut mapped = unsafe { Mapped::new(&queue, &mut buffer) }?;
//!     mapped.fill(1.0);
//!     comm.allreduce_in_place(&mut *mapped, SUM)?;
//! } // the device has the sums
//! stream(&queue)?.synchronize()?; // a stream for the library's events and kernels
//! # Ok(())
//! # }
//! ```

use crate::stream::Wrapped;
use crate::{Backend, Device, Dtype, Error, Result, Status, Stream, call, sys};
use ::opencl3::command_queue::{
    CL_QUEUE_CONTEXT, CL_QUEUE_DEVICE, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CommandQueue,
    get_command_queue_info,
};
use ::opencl3::context::Context;
use ::opencl3::context::context::retain_context;
use ::opencl3::error_codes::ClError;
use ::opencl3::memory::{Buffer, CL_MAP_READ, CL_MAP_WRITE, ClMem};
use ::opencl3::types::{CL_BLOCKING, cl_command_queue, cl_context, cl_device_id};
use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::{fmt, ptr, slice};

/// Returns the error of a call of opencl3.
fn failed(call: &'static str, error: ClError) -> Error {
    Error { call, status: Status(sys::DTL_ERROR_OPENCL), text: error.to_string() }
}

/// Returns the context and the device of a command queue.
fn owner_of(queue: cl_command_queue) -> Result<(cl_context, cl_device_id)> {
    let about = |name| {
        let info = get_command_queue_info(queue, name);
        let info = info.map_err(|code| failed("clGetCommandQueueInfo", ClError(code)))?;
        Ok(ptr::with_exposed_provenance_mut::<c_void>(isize::from(info) as usize))
    };
    Ok((about(CL_QUEUE_CONTEXT)?, about(CL_QUEUE_DEVICE)?))
}

/// Returns the context in which the library uses a device of backend "opencl", as one of opencl3
/// with this device. Each call returns a value of its own, with a reference to the context.
///
/// # Errors
/// See `dtl_stream_create`. DTL_ERROR_NOT_SUPPORTED: the device is one of another backend.
pub fn context(device: Device) -> Result<Context> {
    if device.backend != Backend::require("opencl")? {
        let text = "the device is not one of backend opencl: use Backend::require(\"opencl\")";
        return Err(Error::argument("dtl_stream_native", text.to_owned()));
    }
    let (stream, mut queue) = (Stream::new(device)?, ptr::null_mut());
    // SAFETY: the output is a local.
    unsafe { call!(dtl_stream_native(stream.raw(), &raw mut queue)) }?;
    let (context, id) = owner_of(queue)?;
    // SAFETY: a context that the stream's queue keeps alive.
    let retained = unsafe { retain_context(context) };
    retained.map_err(|code| failed("clRetainContext", ClError(code)))?;
    // It owns the reference that was just taken.
    Ok(Context::new(context, &[id]))
}

/// Returns a stream of the library over a command queue of opencl3. Work of both crates runs in the
/// order in which it was queued.
///
/// # Errors
/// See `dtl_stream_wrap`. DTL_ERROR_INVALID_ARGUMENT: the queue is not in the library's context (see
/// [`context`]), or not in order.
pub fn stream(queue: &Arc<CommandQueue>) -> Result<Wrapped<Arc<CommandQueue>>> {
    let backend = Backend::require("opencl")?;
    // The library finds the device of the queue itself.
    // SAFETY: a command queue, which the clone keeps alive.
    unsafe { Wrapped::new(backend.current_device()?, queue.get(), queue.clone()) }
}

/// Buffer of opencl3 that is mapped into the host's memory: a slice, and so a buffer of messages and
/// collectives. Dropping it unmaps the buffer, and blocks until the device has the changes.
pub struct Mapped<'a, T> {
    queue: &'a CommandQueue,
    buffer: &'a mut Buffer<T>,
    at: *mut T,
    count: usize,
}

impl<'a, T: Dtype> Mapped<'a, T> {
    /// Maps the whole buffer for reading and writing. Blocks until the commands before it in the
    /// queue are complete.
    ///
    /// # Safety
    /// While the value exists, nothing else may access the memory: no command that uses it may be
    /// running or queued in another queue, and no other `Buffer` of the same `cl_mem` (`Buffer::new`
    /// is safe), sub-buffer or pointer of CL_MEM_USE_HOST_PTR may be used.
    ///
    /// # Errors
    /// DTL_ERROR_OPENCL with the code of clEnqueueMapBuffer: for example the buffer was created with
    /// CL_MEM_HOST_NO_ACCESS. DTL_ERROR_INVALID_ARGUMENT: the queue is not in order, or the buffer's
    /// memory is not aligned for its elements.
    pub unsafe fn new(queue: &'a CommandQueue, buffer: &'a mut Buffer<T>) -> Result<Mapped<'a, T>> {
        const CALL: &str = "clEnqueueMapBuffer";
        let properties = queue.properties();
        let properties = properties.map_err(|error| failed("clGetCommandQueueInfo", error))?;
        if properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE != 0 {
            let text = "the queue is out of order, so earlier commands may still use the buffer: \
                        map it in a queue without CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE";
            return Err(Error::argument(CALL, text.to_owned()));
        }
        let size = buffer.size().map_err(|error| failed("clGetMemObjectInfo", error))?;
        let (flags, mut at) = (CL_MAP_READ | CL_MAP_WRITE, ptr::null_mut());
        // SAFETY: the range is the whole buffer, and the call returns when it is mapped.
        let mapped =
            unsafe { queue.enqueue_map_buffer(buffer, CL_BLOCKING, flags, 0, size, &mut at, &[]) };
        mapped.map_err(|error| failed(CALL, error))?;
        let mapped = Mapped { queue, buffer, at: at.cast(), count: size / size_of::<T>().max(1) };
        if !mapped.at.is_aligned() || mapped.at.is_null() {
            let text = format!("the mapped address {at:?} is not aligned for the elements");
            return Err(Error::argument(CALL, text));
        }
        Ok(mapped)
    }
}

impl<T> fmt::Debug for Mapped<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapped").field("at", &self.at).field("count", &self.count).finish()
    }
}

impl<T> Deref for Mapped<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: mapped memory of `count` elements, which any bits are, as `new` requires a dtype.
        unsafe { slice::from_raw_parts(self.at, self.count) }
    }
}

impl<T> DerefMut for Mapped<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: mapped memory of `count` elements that nothing else accesses, by the promise of
        // `new`.
        unsafe { slice::from_raw_parts_mut(self.at, self.count) }
    }
}

impl<T> Drop for Mapped<'_, T> {
    fn drop(&mut self) {
        let (buffer, at) = (self.buffer.get(), self.at.cast());
        // SAFETY: the address that the mapping of this buffer returned.
        let unmapped = unsafe { self.queue.enqueue_unmap_mem_object(buffer, at, &[]) };
        // A drop has nobody to report a failure to; the next command on the buffer has it.
        let _ = unmapped.map(|event| event.wait());
    }
}
