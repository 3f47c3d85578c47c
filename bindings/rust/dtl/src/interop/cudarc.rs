//! Streams and device memory of the crate `cudarc`. Needs feature `cudarc` and Rust 1.88.
//!
//! Both crates use the primary context of a device, so a pointer of one is valid in the other.
//!
//! # Order
//! cudarc queues work on streams and returns; the library's calls run on the host. A
//! [`DeviceSlice`] therefore waits, when it is created, until the work before it that writes the
//! memory is complete; a [`DeviceSliceMut`] also waits for the work that reads it. From then on the
//! borrow of the slice keeps safe functions of cudarc from writing the memory, or from using it at
//! all. Kernels are launched by an `unsafe` function, whose caller ensures the same. A call of this
//! crate that returns, or a request that is complete, has written the memory: work that cudarc
//! queues later, on any stream, reads the new values.
//!
//! ```no_run
//! use cudarc::driver::CudaContext;
//! use dtl_binding::interop::cudarc::{DeviceSlice, DeviceSliceMut, stream};
//! use dtl_binding::{Comm, SUM};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let native = CudaContext::new(0)?.new_stream()?;
//! let mine = native.clone_htod(&[1.0_f32; 1024])?;
//! let mut sum = native.alloc_zeros::<f32>(1024)?;
//! let comm = Comm::world()?;
//! comm.allreduce(&DeviceSlice::new(&mine)?, &mut DeviceSliceMut::new(&mut sum)?, SUM)?;
//! println!("{}", native.clone_dtoh(&sum)?[0]);
//! stream(&native)?.synchronize()?; // a stream for the library's events and kernels
//! # Ok(())
//! # }
//! ```

use crate::stream::Wrapped;
use crate::{Backend, Buffer, BufferMut, Device, Dtype, Error, Result, call, sys};
use ::cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut, DriverError,
};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// Native handle of the stream that is another one in each thread (CU_STREAM_PER_THREAD).
const PER_THREAD: usize = 2;

/// Returns the error of a call of cudarc.
fn failed(call: &'static str, error: &DriverError) -> Error {
    Error { call, status: crate::Status(sys::DTL_ERROR_CUDA), text: error.to_string() }
}

/// Returns the device of a context.
fn device_of(call: &'static str, context: &CudaContext) -> Result<Device> {
    if !context.is_primary() {
        let text = "the context is not the primary one of its device: use CudaContext::new";
        return Err(Error::argument(call, text.to_owned()));
    }
    let index = i32::try_from(context.ordinal()).unwrap_or(i32::MAX);
    Ok(Backend::require("cuda")?.device(index))
}

/// Returns a stream of the library over a stream of cudarc. Work of both crates runs in the order in
/// which it was queued.
///
/// # Errors
/// See `dtl_backend_require` and `dtl_stream_wrap`. DTL_ERROR_INVALID_ARGUMENT: the context is not
/// the primary one of its device, or the stream is that of `per_thread_stream`, which is another one
/// in each thread.
pub fn stream(stream: &Arc<CudaStream>) -> Result<Wrapped<Arc<CudaStream>>> {
    const CALL: &str = "dtl_stream_wrap";
    let device = device_of(CALL, stream.context())?;
    if stream.cu_stream().addr() == PER_THREAD {
        let text = "the per-thread stream is another one in each thread: use new_stream";
        return Err(Error::argument(CALL, text.to_owned()));
    }
    // SAFETY: a stream of the device's primary context, which the clone keeps alive.
    unsafe { Wrapped::new(device, stream.cu_stream().cast(), stream.clone()) }
}

mod sealed {
    /// Prevents implementations that name other memory.
    pub trait Slice {}
    impl<T> Slice for super::CudaSlice<T> {}
    impl<T> Slice for super::CudaView<'_, T> {}
    impl<T> Slice for super::CudaViewMut<'_, T> {}
}

/// Waits for the work on a stream, and returns the address of memory of its device for the host.
fn address<T>(at: u64, count: usize, stream: &CudaStream) -> Result<*mut T> {
    const CALL: &str = "dtl_mem_query";
    let device = device_of(CALL, stream.context())?;
    let context = stream.context();
    if context.is_managing_stream_synchronization() {
        // `device_ptr` has made the stream wait for the events of the memory.
        stream.synchronize().map_err(|error| failed("cuStreamSynchronize", &error))?;
    } else {
        // The memory has no events that could be waited for.
        context.synchronize().map_err(|error| failed("cuCtxSynchronize", &error))?;
    }
    // What cudarc could not queue, it has recorded.
    context.check_err().map_err(|error| failed("cuStreamWaitEvent", &error))?;
    let address = std::ptr::with_exposed_provenance_mut::<T>(at as usize);
    if count == 0 {
        return Ok(address);
    }
    // The library would take an address that its driver does not know for one of the host.
    let mut info = sys::DTL_MEM_INFO_INIT;
    // SAFETY: the address is not read; the output is a local with its size.
    unsafe { call!(dtl_mem_query(address.cast_const().cast(), &raw mut info)) }?;
    if (info.backend, info.device) != (device.backend.raw(), device.index) {
        let text = "the library's CUDA driver knows the address as memory of something else: both \
                    crates must load one libcuda (DTL_CUDA_LIBRARY)";
        return Err(Error::state(CALL, text.to_owned()));
    }
    Ok(address)
}

/// Device memory of cudarc as a [`Buffer`]: a `CudaSlice`, a `CudaView` or a `CudaViewMut`.
pub struct DeviceSlice<'a, T> {
    at: *const T,
    count: usize,
    life: PhantomData<&'a [T]>,
}

impl<'a, T: Dtype> DeviceSlice<'a, T> {
    /// Borrows the memory. Blocks until the queued work that writes it is complete.
    ///
    /// # Errors
    /// DTL_ERROR_CUDA: the work has failed. DTL_ERROR_UNAVAILABLE and others: the library cannot use
    /// CUDA here, see `dtl_backend_require`. DTL_ERROR_NOT_FOUND, DTL_ERROR_INVALID_STATE: the
    /// library's driver does not know the memory. DTL_ERROR_INVALID_ARGUMENT: the context is not the
    /// primary one of its device.
    pub fn new<S: DevicePtr<T> + sealed::Slice>(slice: &'a S) -> Result<DeviceSlice<'a, T>> {
        let (at, _reading) = slice.device_ptr(slice.stream());
        let at = address::<T>(at, slice.len(), slice.stream())?.cast_const();
        Ok(DeviceSlice { at, count: slice.len(), life: PhantomData })
    }
}

/// Device memory of cudarc as a [`BufferMut`]: a `CudaSlice` or a `CudaViewMut`.
pub struct DeviceSliceMut<'a, T> {
    at: *mut T,
    count: usize,
    life: PhantomData<&'a mut [T]>,
}

impl<'a, T: Dtype> DeviceSliceMut<'a, T> {
    /// Borrows the memory. Blocks until the queued work that uses it is complete.
    ///
    /// # Errors
    /// See [`DeviceSlice::new`].
    pub fn new<S: DevicePtrMut<T> + sealed::Slice>(slice: &'a mut S) -> Result<Self> {
        let (stream, count) = (slice.stream().clone(), slice.len());
        let (at, _writing) = slice.device_ptr_mut(&stream);
        Ok(DeviceSliceMut { at: address(at, count, &stream)?, count, life: PhantomData })
    }
}

macro_rules! device_slices {
    ($($name:ident),+) => {$(
        // SAFETY: an address, which behaves like a reference to a slice.
        unsafe impl<T: Dtype> Send for $name<'_, T> {}
        // SAFETY: through a shared reference the memory is only read.
        unsafe impl<T: Dtype> Sync for $name<'_, T> {}

        impl<T> fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let name = stringify!($name);
                f.debug_struct(name).field("at", &self.at).field("count", &self.count).finish()
            }
        }

        // SAFETY: `count` elements of a slice of cudarc that is borrowed, and that no queued work
        // writes: `new` has waited for it, and to queue more is unsafe or needs another borrow.
        unsafe impl<T: Dtype> Buffer for $name<'_, T> {
            type Element = T;

            fn as_ptr(&self) -> *const T {
                self.at
            }

            fn count(&self) -> usize {
                self.count
            }
        }
    )+};
}
device_slices! { DeviceSlice, DeviceSliceMut }

// SAFETY: the slice is borrowed exclusively, and no queued work uses it: `new` has waited for it.
unsafe impl<T: Dtype> BufferMut for DeviceSliceMut<'_, T> {
    fn as_mut_ptr(&mut self) -> *mut T {
        self.at
    }
}
