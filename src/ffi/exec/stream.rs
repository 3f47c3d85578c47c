//! Streams: in-order queues of work on a device.

use crate::abi::handle::{dtl_backend_t, dtl_event_t, dtl_stream_t};
use crate::abi::runtime::dtl_task_fn_t;
use crate::abi::status::dtl_status_t;
use crate::error::{Result, fail};
use crate::ffi::args::Out;
use crate::ffi::guard::Entry;
use crate::runtime::device;
use crate::runtime::exec::event::Event;
use crate::runtime::exec::handles;
use crate::runtime::exec::stream::{Stream, wait_for_device};
use crate::sys::handles::epoch::Guard;
use crate::sys::handles::handle_table::HazardRef;
use crate::sys::memory::buf::Addr;
use crate::sys::sync::wait::Deadline;
use std::ffi::c_void;
use std::sync::Arc;

#[inline]
pub(crate) fn find(inside: &Guard, stream: dtl_stream_t) -> Result<&Stream> {
    let id = if stream.id != 0 { stream.id } else { handles::current_default()? };
    handles::find(inside, id)
}

fn hold(inside: Guard, stream: dtl_stream_t) -> Result<HazardRef<Stream>> {
    let id = if stream.id != 0 { stream.id } else { handles::current_default()? };
    handles::hold(inside, id)
}

fn pin(inside: &Guard, stream: dtl_stream_t) -> Result<Arc<Stream>> {
    handles::pin(inside, handles::stream_id(stream)?)
}

/// Creates a stream on a device.
///
/// A backend without streams gets a stream of the library: a host thread, which starts with the
/// first queued work, runs the work in order.
///
/// A failure of queued work is stored in the stream. Work behind it still runs, and events that are
/// recorded behind it report the failure. The next dtl_stream_wait returns the failure once. On a
/// stream of the backend this holds for failures of callbacks, host-function kernels and copies
/// that the library runs there, whether or not the events of the backend report them.
///
/// @param device  0 to the device count - 1. 0 for a backend without devices.
/// @param flags   Must be 0.
/// @param out     The stream. The caller owns it; destroy it with dtl_stream_destroy.
/// @return DTL_ERROR_OUT_OF_BOUNDS: there is no such device.
///         DTL_ERROR_INVALID_ARGUMENT: `flags` is not 0.
///         DTL_ERROR_UNAVAILABLE: the backend cannot run here.
/// Equivalent: cudaStreamCreate.
/// dtl:out owned(dtl_stream_destroy)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_stream_create(
    backend: dtl_backend_t,
    device: i32,
    flags: u64,
    out: *mut dtl_stream_t,
) -> dtl_status_t {
    Entry("dtl_stream_create")
        .call(|inside| Out::new(out, "out")?.put(create(inside, backend, device, flags, 0)))
}

fn create(
    inside: &Guard,
    backend: dtl_backend_t,
    device: i32,
    flags: u64,
    priority: i32,
) -> Result<dtl_stream_t> {
    let backend = handles::backend_of(inside, backend)?;
    handles::check_device(&backend, device)?;
    let stream = Stream::with_priority(backend, device, flags, priority)?;
    handles::insert(stream).map(|id| dtl_stream_t { id })
}

/// Creates a stream with a priority relative to other streams of the device.
///
/// A priority is a hint to the scheduler of the device. It orders kernels that wait for the device.
/// It does not preempt running kernels, and does not order copies.
///
/// @param device   0 to the device count - 1. 0 for a backend without devices.
/// @param flags    Must be 0.
/// @param priority Lower numbers are higher priorities; 0 is that of dtl_stream_create. Numbers
///                 outside dtl_stream_priority_range are clamped to the range. A backend without
///                 priorities ignores the number.
/// @param out      The stream. The caller owns it; destroy it with dtl_stream_destroy.
/// @return DTL_ERROR_OUT_OF_BOUNDS: there is no such device.
///         DTL_ERROR_INVALID_ARGUMENT: `flags` is not 0.
///         DTL_ERROR_UNAVAILABLE: the backend cannot run here.
/// Equivalent: cudaStreamCreateWithPriority.
/// dtl:out owned(dtl_stream_destroy)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_stream_create_with_priority(
    backend: dtl_backend_t,
    device: i32,
    flags: u64,
    priority: i32,
    out: *mut dtl_stream_t,
) -> dtl_status_t {
    Entry("dtl_stream_create_with_priority")
        .call(|inside| Out::new(out, "out")?.put(create(inside, backend, device, flags, priority)))
}

/// Returns the range of stream priorities of a device: *out_greatest <= 0 <= *out_least.
///
/// Both are 0 if the device has only one priority: for "host", OpenCL devices without the extension
/// cl_khr_priority_hints, and registered backends without the slots for priorities. OpenCL devices
/// with the extension have 1 to -1. For "cuda" the driver reports the range.
///
/// @param device       0 to the device count - 1. 0 for a backend without devices.
/// @param out_least    The lowest priority, the highest number.
/// @param out_greatest The highest priority, the lowest number.
/// @return DTL_ERROR_OUT_OF_BOUNDS: there is no such device.
///         DTL_ERROR_UNAVAILABLE: the backend cannot run here.
/// Equivalent: cudaDeviceGetStreamPriorityRange.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_stream_priority_range(
    backend: dtl_backend_t,
    device: i32,
    out_least: *mut i32,
    out_greatest: *mut i32,
) -> dtl_status_t {
    Entry("dtl_stream_priority_range").call(|inside| {
        let out = (Out::new(out_least, "out_least")?, Out::new(out_greatest, "out_greatest")?);
        let backend = handles::backend_of(inside, backend)?;
        handles::check_device(&backend, device)?;
        let (least, greatest) = Stream::priorities(&backend, device)?;
        out.0.set(least);
        out.1.set(greatest);
        Ok(())
    })
}

/// Destroys a stream after its work is complete.
///
/// Blocks until then, unless work of the stream itself makes the call. A failure that no call has
/// returned is dropped. For DTL_STREAM_NULL and default streams the call has no effect. For a
/// wrapped stream only the handle is destroyed; when the call has returned, the library does not
/// use the native stream any more.
///
/// Threads: any. Other threads that use the stream get DTL_ERROR_INVALID_HANDLE or
/// DTL_ERROR_CANCELED.
/// Equivalent: cudaStreamDestroy, which does not wait.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_stream_destroy(stream: dtl_stream_t) -> dtl_status_t {
    Entry("dtl_stream_destroy").wait(
        |inside| handles::remove_stream(inside, stream.id),
        |stream| {
            if let Some(stream) = stream {
                stream.close();
            }
            Ok(())
        },
    )
}

/// Blocks until all work queued so far is complete.
///
/// @param timeout_ns  In nanoseconds; 0 polls once, DTL_TIMEOUT_INFINITE sets no limit. The
///                    limit has no effect if the backend implements neither stream queries nor
///                    events for its streams.
/// @return The first failure of that work since the last call. It is reported once.
///         DTL_ERROR_TIMEOUT: the work is not complete in time. It continues.
///         DTL_ERROR_INVALID_STATE: work of the stream itself made the call.
/// Equivalent: cudaStreamSynchronize.
/// dtl:call blocks(timeout_ns)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_stream_wait(stream: dtl_stream_t, timeout_ns: u64) -> dtl_status_t {
    Entry("dtl_stream_wait")
        .hold(hold, stream, |stream: &Stream| stream.wait(Deadline::after(timeout_ns)))
}

/// Reports whether all work queued so far is complete.
///
/// Does not block, unless the backend implements neither stream queries nor events for its streams.
/// There the call waits for the stream. Called by work of the stream itself, it reports 0.
///
/// @param out_done  1 = complete, 0 = not yet.
/// @return A failure of that work. dtl_stream_wait reports it again.
/// Equivalent: cudaStreamQuery.
/// dtl:out_done bool
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_stream_query(
    stream: dtl_stream_t,
    out_done: *mut i32,
) -> dtl_status_t {
    Entry("dtl_stream_query").call(|inside| {
        Out::new(out_done, "out_done")?.put(find(inside, stream)?.query().map(i32::from))
    })
}

/// Makes work that is queued later on a stream wait for the latest record of an event.
///
/// A later record of the event does not change this wait. The event may belong to another stream or
/// backend. Its failure becomes a failure of the stream. Does not block, unless the streams of the
/// backend cannot wait for events. There the call itself waits.
///
/// @return DTL_ERROR_INVALID_STATE: the call would wait for itself, because work of the stream made
///         it.
/// Equivalent: cudaStreamWaitEvent.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_stream_wait_event(stream: dtl_stream_t, event: dtl_event_t) -> dtl_status_t {
    Entry("dtl_stream_wait_event").wait(
        |inside| Ok((pin(inside, stream)?, handles::pin::<Event>(inside, event.id)?)),
        |(stream, event)| stream.wait_event(&event),
    )
}

/// Returns the default stream of a device.
///
/// DTL_STREAM_NULL refers to this stream in threads whose current device this is. It is created at
/// its first use. Destroying it has no effect.
///
/// @param device  0 to the device count - 1. 0 for a backend without devices.
/// @param out     The stream. The library owns it.
/// @return DTL_ERROR_OUT_OF_BOUNDS: there is no such device.
///         DTL_ERROR_UNAVAILABLE: the backend cannot run here.
/// dtl:out borrowed
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_stream_default(
    backend: dtl_backend_t,
    device: i32,
    out: *mut dtl_stream_t,
) -> dtl_status_t {
    Entry("dtl_stream_default").call(|inside| {
        let out = Out::new(out, "out")?;
        let backend = handles::backend_of(inside, backend)?;
        out.put(handles::default_stream(inside, &backend, device).map(|id| dtl_stream_t { id }))
    })
}

/// Creates a handle for a stream that the program created with the interface of the backend (a
/// CUstream, a cl_command_queue).
///
/// The stream has to belong to the current device of the calling thread. The program continues to
/// own it: the library never destroys it. It must live until the handle is destroyed and its work
/// is complete.
///
/// @param native  The native stream, as the backend defines it. May be NULL if that denotes a
///                stream of the backend.
/// @param out     The handle. The caller owns it; destroy it with dtl_stream_destroy.
/// @return DTL_ERROR_NOT_SUPPORTED: the backend has no streams.
/// dtl:out owned(dtl_stream_destroy)
/// dtl:native opaque opt until(last_use)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_stream_wrap(
    backend: dtl_backend_t,
    native: *mut c_void,
    out: *mut dtl_stream_t,
) -> dtl_status_t {
    Entry("dtl_stream_wrap").call(|inside| {
        let out = Out::new(out, "out")?;
        let backend = handles::backend_of(inside, backend)?;
        let device = device::get_or_first(&backend)?;
        let stream = Stream::wrap(backend, device, Addr::new(native))?;
        out.put(handles::insert(stream).map(|id| dtl_stream_t { id }))
    })
}

/// Returns the native stream of the backend, for calls of its own interface.
///
/// @param out_native  The native stream. Valid as long as the stream.
/// @return DTL_ERROR_NOT_SUPPORTED: the backend has no streams, so the library implements this one.
/// dtl:out_native borrowed lives(object)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_stream_native(
    stream: dtl_stream_t,
    out_native: *mut *mut c_void,
) -> dtl_status_t {
    Entry("dtl_stream_native").call(|inside| {
        Out::new(out_native, "out_native")?.put(find(inside, stream)?.native().map(Addr::ptr))
    })
}

/// Queues a call of fn(user) on a stream.
///
/// It runs once the work queued before it is complete, even if that work failed. Work queued later
/// waits for it. A status other than DTL_SUCCESS is a failure of the stream. Does not block, unless
/// the backend has no callbacks on its streams. There the call waits for the stream and then calls
/// `fn` in the calling thread.
///
/// @param fn    Thread: one of the stream, or as above the calling one. Locks held: none. It may
///              block and call dtl_ functions, except to wait for this stream or for an event
///              behind itself. It must not throw. On a stream of a backend the rules of that
///              backend apply too (CUDA: no calls that reach CUDA).
/// @param user  Passed to `fn`.
/// @return DTL_ERROR_INVALID_STATE: the call would wait for the stream whose work made it.
/// Equivalent: cudaLaunchHostFunc.
/// dtl:user opaque until(stream)
/// dtl:fn until(stream)
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_stream_host_callback(
    stream: dtl_stream_t,
    r#fn: dtl_task_fn_t,
    user: *mut c_void,
) -> dtl_status_t {
    Entry("dtl_stream_host_callback").wait(
        |inside| {
            if r#fn.is_none() {
                return fail!(DTL_ERROR_NULL_POINTER, "fn is NULL; pass the function to call");
            }
            pin(inside, stream)
        },
        |stream| stream.host_callback(r#fn, Addr::new(user)),
    )
}

/// Blocks until all work on a device is complete.
///
/// Waits for every stream that was created or wrapped by the library on the device, and uses the
/// device wait of the backend if it has one.
///
/// @param device      0 to the device count - 1. 0 for a backend without devices.
/// @param timeout_ns  In nanoseconds; 0 polls once, DTL_TIMEOUT_INFINITE sets no limit. It
///                    limits the wait for the streams (see dtl_stream_wait). It does not limit the
///                    wait for work that the program queued through the interface of the backend.
/// @return The first failure found. DTL_ERROR_OUT_OF_BOUNDS: there is no such device.
///         DTL_ERROR_TIMEOUT: the work is not complete in time. It continues.
///         DTL_ERROR_INVALID_STATE: work of a stream of the device made the call.
/// Equivalent: cudaDeviceSynchronize.
/// dtl:call blocks(timeout_ns)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_device_wait(
    backend: dtl_backend_t,
    device: i32,
    timeout_ns: u64,
) -> dtl_status_t {
    Entry("dtl_device_wait").wait(
        |inside| {
            let backend = handles::backend_of(inside, backend)?;
            handles::check_device(&backend, device)?;
            let streams = handles::streams_of(inside, &backend, device);
            Ok((backend, streams))
        },
        |(backend, streams)| {
            wait_for_device(&backend, device, &streams, Deadline::after(timeout_ns))
        },
    )
}
