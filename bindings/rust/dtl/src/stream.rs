//! Streams: in-order queues of work on a device. Events: points in that work.

use crate::handle::owner;
use crate::{Backend, Device, Result, call, sys};

owner! {
    /// An in-order queue of work on a device.
    Stream, dtl_stream_t, dtl_stream_destroy
}

impl Stream {
    /// Creates a stream on a device.
    ///
    /// # Errors
    /// See `dtl_stream_create`.
    pub fn new(device: Device) -> Result<Stream> {
        let (backend, mut handle) = (device.backend.raw(), sys::DTL_STREAM_NULL);
        // SAFETY: the output is a local.
        unsafe { call!(dtl_stream_create(backend, device.index, 0, &raw mut handle)) }?;
        Ok(Stream::from_raw(handle))
    }

    /// Creates a stream on a device. Lower numbers are higher priorities; the number is clamped to
    /// the range of the device.
    ///
    /// # Errors
    /// See `dtl_stream_create_with_priority`.
    pub fn with_priority(device: Device, priority: i32) -> Result<Stream> {
        let (backend, index) = (device.backend.raw(), device.index);
        let mut handle = sys::DTL_STREAM_NULL;
        let out = &raw mut handle;
        // SAFETY: the output is a local.
        unsafe { call!(dtl_stream_create_with_priority(backend, index, 0, priority, out)) }?;
        Ok(Stream::from_raw(handle))
    }

    /// Returns the default stream of a device. Dropping it does not destroy the stream.
    ///
    /// # Errors
    /// See `dtl_stream_default`.
    pub fn default_of(device: Device) -> Result<Stream> {
        let (backend, mut handle) = (device.backend.raw(), sys::DTL_STREAM_NULL);
        // SAFETY: the output is a local.
        unsafe { call!(dtl_stream_default(backend, device.index, &raw mut handle)) }?;
        Ok(Stream::from_raw(handle))
    }

    /// Waits for all queued work.
    ///
    /// # Errors
    /// See `dtl_stream_wait`. Also returns a failure of the queued work.
    pub fn synchronize(&self) -> Result {
        call!(dtl_stream_wait(self.raw(), sys::DTL_TIMEOUT_INFINITE))
    }

    /// Returns true if all queued work is complete.
    ///
    /// # Errors
    /// See `dtl_stream_query`. Also returns a failure of the queued work.
    pub fn is_done(&self) -> Result<bool> {
        let mut done = 0;
        // SAFETY: the output is a local.
        unsafe { call!(dtl_stream_query(self.raw(), &raw mut done)) }?;
        Ok(done != 0)
    }

    /// Makes all work that is queued on this stream after this call wait for an event.
    ///
    /// # Errors
    /// See `dtl_stream_wait_event`.
    pub fn wait_event(&self, event: &Event) -> Result {
        call!(dtl_stream_wait_event(self.raw(), event.raw()))
    }
}

/// Stream of the library over a stream that another crate owns, which it keeps alive.
///
/// Dropping it blocks until the work on the stream is complete.
#[cfg(any(feature = "cudarc", feature = "opencl3"))]
#[derive(Debug)]
pub struct Wrapped<N> {
    // Dropped first: the library uses the native stream no more when its handle is destroyed.
    stream: Stream,
    _native: N,
}

#[cfg(any(feature = "cudarc", feature = "opencl3"))]
impl<N> Wrapped<N> {
    /// Creates a handle for a stream of a device.
    ///
    /// # Safety
    /// `handle` must be a native stream of the backend, and live as long as `native` is not dropped.
    pub(crate) unsafe fn new(
        device: Device,
        handle: *mut std::ffi::c_void,
        native: N,
    ) -> Result<Wrapped<N>> {
        let address = handle.expose_provenance();
        let wrap = || {
            let mut out = sys::DTL_STREAM_NULL;
            device.make_current()?;
            let native = std::ptr::with_exposed_provenance_mut(address);
            // SAFETY: the caller's contract; the output is a local.
            unsafe { call!(dtl_stream_wrap(device.backend.raw(), native, &raw mut out)) }?;
            Ok(Stream::from_raw(out))
        };
        // In a thread of its own, so that the current device of this one does not change.
        let stream = std::thread::scope(|threads| threads.spawn(wrap).join());
        let stream = stream.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(Wrapped { stream, _native: native })
    }
}

#[cfg(any(feature = "cudarc", feature = "opencl3"))]
impl<N> std::ops::Deref for Wrapped<N> {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.stream
    }
}

owner! {
    /// A point in a stream's work.
    Event, dtl_event_t, dtl_event_destroy
}

impl Event {
    /// Creates an event for streams of a backend. `flags` is 0 or DTL_EVENT_NO_TIMING.
    ///
    /// # Errors
    /// See `dtl_event_create`.
    pub fn new(backend: Backend, flags: u64) -> Result<Event> {
        let mut handle = sys::DTL_EVENT_NULL;
        // SAFETY: the output is a local.
        unsafe { call!(dtl_event_create(backend.raw(), flags, &raw mut handle)) }?;
        Ok(Event::from_raw(handle))
    }

    /// Records the event on a stream, after the work queued so far.
    ///
    /// # Errors
    /// See `dtl_event_record`.
    pub fn record(&self, stream: &Stream) -> Result {
        call!(dtl_event_record(self.raw(), stream.raw()))
    }

    /// Waits up to `timeout_ns` nanoseconds for the completion of the work that was queued before
    /// the event was recorded.
    ///
    /// # Errors
    /// See `dtl_event_wait`. Also returns a failure of the work before the event.
    pub fn wait(&self, timeout_ns: u64) -> Result {
        call!(dtl_event_wait(self.raw(), timeout_ns))
    }

    /// Returns true if the work that was queued before the event was recorded is complete.
    ///
    /// # Errors
    /// See `dtl_event_query`. Also returns a failure of the work before the event.
    pub fn is_complete(&self) -> Result<bool> {
        let mut done = 0;
        // SAFETY: the output is a local.
        unsafe { call!(dtl_event_query(self.raw(), &raw mut done)) }?;
        Ok(done != 0)
    }

    /// Returns the time in nanoseconds from this event to the later event `stop`.
    ///
    /// # Errors
    /// See `dtl_event_elapsed_ns`.
    pub fn elapsed_ns(&self, stop: &Event) -> Result<u64> {
        let mut ns = 0;
        // SAFETY: the output is a local.
        unsafe { call!(dtl_event_elapsed_ns(self.raw(), stop.raw(), &raw mut ns)) }?;
        Ok(ns)
    }
}
